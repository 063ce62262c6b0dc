"""What `harness fault` must find is planted in each of ten cells: the argument says what.

``lost``: the target forgets a write that it has acknowledged. ``clear``: for a second both ends let packets
past IPsec.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from unittest import mock

import msgspec

from harness.hosts import PRIVATE, Host
from harness.hosts.journal import Journal
from harness.hosts.undo import UndoStep
from harness.model import Cell, Plan, Record, Status
from harness.network import faults, links
from harness.network.links import LinkPath
from harness.questions.fault.plan import FaultRequest, make_plan
from harness.results.events import Event
from harness.results.store import RunFolder
from harness.runs import executor
from harness.runs.cells import CellComposer

REPEATS = 10
PLANTED = "loss-1"
"""The fault in whose place it is."""

DEVICE, SEEN_MIB = "/dev/ram0", 16

FORGET = """
dd if="$1" of=/root/after bs=1M count="$2" iflag=direct status=none
first=$(cmp -l /root/before /root/after | awk '{ print $1; exit }')
block=$(((first - 1) / 4096))
dd if=/root/before of="$1" bs=4096 skip="$block" seek="$block" count=1 oflag=direct conv=notrunc status=none
"""
"""For sh(1). Arguments: a device, and so many MiB of it. The first block that was written since is again what
it was."""


class Forgotten(msgspec.Struct, frozen=True):
    """A write that is taken back."""

    device: str

    def acquire(self, host: Host) -> None:
        copy = ("bs=1M", f"count={SEEN_MIB}", "iflag=direct", "status=none")
        host.run(["dd", f"if={self.device}", "of=/root/before", *copy])

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("sh", "-euc", FORGET, "sh", self.device, str(SEEN_MIB))),)


class PastPolicies(msgspec.Struct, frozen=True):
    """An interface by which packets leave and come in whatever policies say (ip-sysctl.rst)."""

    iface: str

    def _write(self, value: int) -> tuple[str, ...]:
        folder = f"/proc/sys/net/ipv4/conf/{self.iface}"
        both = f"echo {value} > {folder}/disable_xfrm && echo {value} > {folder}/disable_policy"
        return ("sh", "-euc", both)

    def acquire(self, host: Host) -> None:
        host.run(self._write(1))

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(self._write(0)),)


def lost(path: LinkPath) -> faults.Places:
    return [(path.target, Forgotten(DEVICE))]


def clear(path: LinkPath) -> faults.Places:
    return [(host, PastPolicies(iface)) for _, host, iface, _, _ in links.ends(path)]


def emit(_event: Event) -> None:
    """Nobody follows this run."""


def measured(plan: Plan) -> list[Record]:
    """The records of all cells, as they are once everything is down."""
    folder, journal = RunFolder(Path("/root/run")), Journal(Path("/root/journal.jsonl"))
    folder.path.mkdir()
    executor.mount_private()
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(executor.hosts(plan, folder, emit))
        executor.prepare(plan, hosts)
        composer = CellComposer(plan, folder, emit, hosts=hosts, journal=journal, private=PRIVATE)
        stack.enter_context(composer.shared())
        (column,), (job,) = plan.columns, plan.jobs
        for repeat in range(1, plan.repeats + 1):
            composer.record(Cell(column, job.name, repeat), repeat)
    assert not journal.open_entries() and not journal.leaks, journal.leaks
    return folder.load_records()


def main(what: str) -> None:
    planted = {"lost": lost, "clear": clear}[what]
    request = FaultRequest(
        links=("wired",),
        protect=("aes128gcm16",),
        fault=(f"{PLANTED}:1s",),
        repeats=REPEATS,
        size="32M",
        probes=False,
    )
    with mock.patch.dict(faults.OF_LINKS, {PLANTED: planted}):
        records = measured(make_plan(request))
    for record in records:
        print(record.status, record.reason, record.stall and (record.stall.written, record.stall.lost))
    assert len(records) == REPEATS
    if what == "lost":
        found = [record.stall is not None and record.stall.lost == 1 for record in records]
    else:
        clear_segments = [record.proof.cleartext_segments if record.proof else 0 for record in records]
        found = [record.status is Status.INVALID for record in records]
        assert all(clear_segments), clear_segments
    print(f"{what}: found {sum(found)} of {REPEATS}")
    assert all(found), found


if __name__ == "__main__":
    main(*sys.argv[1:])
