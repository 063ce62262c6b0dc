"""A run over NBD on the machine's own kernel, killed while it measures; `harness clean` takes all away."""

from __future__ import annotations

from pathlib import Path

from harness.storage.nbd.transport import FOLDER, NAME
from tests.lab.inside.exports import load
from tests.lab.inside.kernel import make_the_user_s_own
from tests.lab.inside.killed_host_run import kill_while, measuring, one_more
from tests.lab.inside.nbd import disks, servers

WORDS = ("--transport=nbd", "--link=wired")
LEFT = ("NbdConnection", "NbdExport", "IpsecFailClosed", "Ramdisk 33554432")


def main() -> None:
    load(NAME)
    make_the_user_s_own()
    kill_while(measuring, *WORDS, "--runtime=100s", removed=LEFT)
    assert not disks() and not servers() and not Path(FOLDER).exists()
    one_more(*WORDS)


if __name__ == "__main__":
    main()
