"""A run over NVMe/TCP on the custom kernel, killed while it measures; `harness clean` takes all away."""

from __future__ import annotations

from pathlib import Path

from harness.storage.nvme.transport import NAME
from tests.lab.inside.exports import load
from tests.lab.inside.kernel import make_the_user_s_own
from tests.lab.inside.killed_host_run import kill_while, measuring, one_more
from tests.lab.inside.nvme_tcp import tree, user_s_own

WORDS = ("--transport=nvme-tcp", "--link=wired")
LEFT = ("NvmeController", "Subsystem", "IpsecFailClosed", "Ramdisk 33554432")


def main() -> None:
    load(NAME)
    make_the_user_s_own()
    user_s_own()
    exports = tree()
    kill_while(measuring, *WORDS, "--runtime=100s", removed=LEFT)
    assert tree() == exports and not list(Path("/sys/class/nvme").iterdir())
    one_more(*WORDS)
    assert tree() == exports


if __name__ == "__main__":
    main()
