"""A run over NVMe/TCP on the machine's own kernel, killed while it measures; `harness clean` takes all away.

`python -m tests.lab.inside.killed_nvme_run`, on the lab's own kernel.
"""

from __future__ import annotations

from pathlib import Path

from harness.model import ENDS, NVME_TCP
from harness.storage import transports
from tests.lab.inside.kernel import RESULTS, differences, harness, make_the_user_s_own, sh, snapshot
from tests.lab.inside.killed_host_run import RUN, kill_while, measuring
from tests.lab.inside.nvme_tcp import tree, user_s_own

WORDS = ("--transport=nvme-tcp", "--link=wired")


def main() -> None:
    for module in [each for role in ENDS for each in transports.named(NVME_TCP).modules(role, ())]:
        sh("modprobe", module)
    make_the_user_s_own()
    user_s_own()
    before, exports = snapshot(), tree()
    said = kill_while(measuring, *WORDS, "--runtime=100s")
    for what in ("NvmeController", "Subsystem", "IpsecBarrier", "Ramdisk 33554432"):
        assert f"removed, left by an earlier run: {what}" in said, said
    changed = differences(before, snapshot())
    assert not changed, changed
    assert tree() == exports and not list(Path("/sys/class/nvme").iterdir())
    again = harness(*RUN, *WORDS, "--runtime=0.1s", f"--results={RESULTS}")
    assert "1 measurement (1 ok)" in again, again
    changed = differences(before, snapshot())
    assert not changed and tree() == exports, changed


if __name__ == "__main__":
    main()
