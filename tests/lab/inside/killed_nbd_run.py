"""A run over NBD on the machine's own kernel, killed while it measures; `harness clean` takes all away.

`python -m tests.lab.inside.killed_nbd_run`, on any kernel of the lab.
"""

from __future__ import annotations

from pathlib import Path

from harness.model import ENDS, NBD
from harness.storage import transports
from harness.storage.nbd.transport import FOLDER
from tests.lab.inside.kernel import RESULTS, differences, harness, make_the_user_s_own, sh, snapshot
from tests.lab.inside.killed_host_run import RUN, kill_while, measuring
from tests.lab.inside.nbd import disks, servers

WORDS = ("--transport=nbd", "--link=wired")


def main() -> None:
    for module in [each for role in ENDS for each in transports.named(NBD).modules(role, ())]:
        sh("modprobe", *module.split())
    make_the_user_s_own()
    before = snapshot()
    said = kill_while(measuring, *WORDS, "--runtime=100s")
    for what in ("NbdConnection", "NbdExport", "IpsecBarrier", "Ramdisk 33554432"):
        assert f"removed, left by an earlier run: {what}" in said, said
    changed = differences(before, snapshot())
    assert not changed, changed
    assert not disks() and not servers() and not Path(FOLDER).exists()
    again = harness(*RUN, *WORDS, "--runtime=0.1s", f"--results={RESULTS}")
    assert "1 measurement (1 ok)" in again, again
    changed = differences(before, snapshot())
    assert not changed, changed


if __name__ == "__main__":
    main()
