"""What a modelled disk (``disks``) can do besides answering: errors, or nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from harness.hosts import PRIVATE, Host, programs
from harness.hosts.journal import Resource
from harness.hosts.undo import UndoStep

SPOIL = """
first=0
while [ "$first" -lt 131072 ]; do
    echo "$1$first-$((first + 511))" > "/sys/kernel/config/nullb/$2/badblocks"
    first=$((first + 512))
done
"""
"""For sh(1). Arguments: + or -, and the disk. 64 MiB, four times what a load writes to, in sectors of 512
bytes, no more at a time than an entry of the list holds: until Linux 6.7 longer ones are put into the wrong
order, and not found (block/badblocks.c)."""


class DiskErrors(msgspec.Struct, frozen=True):
    """Sectors of null_blk's disk are bad (``badblocks``, drivers/block/null_blk/main.c)."""

    name: str = "nullb0"

    def _bad(self, sign: str) -> tuple[str, ...]:
        return ("sh", "-euc", SPOIL, "sh", sign, self.name)

    def acquire(self, host: Host) -> None:
        host.run(self._bad("+"))

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(self._bad("-"), absent=("nonexistent",)),)


SIGNAL = """
found=
for place in /proc/[0-9]*; do
    case $(tr '\\0' ' ' 2>/dev/null < "$place/cmdline") in
    "$2 "*) kill "-$1" "${place#/proc/}" && found=yes ;;
    esac
done
test "$found" || { echo "there is no $2" >&2; exit 1; }
"""
"""For sh(1). Arguments: a signal, and how the command line of the processes begins that it is for."""


class DiskStalls(msgspec.Struct, frozen=True):
    """A disk with moving parts whose program answers nothing (``programs/harddisk.py``)."""

    program: str = f"{programs.PYTHON} {PRIVATE}/harddisk.py"

    def acquire(self, host: Host) -> None:
        host.run(["sh", "-euc", SIGNAL, "sh", "USR1", self.program])

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("sh", "-euc", SIGNAL, "sh", "USR2", self.program), absent=("there is no",)),)


OF_DISKS: dict[str, Callable[[], Resource]] = {"disk-errors": DiskErrors, "disk-stalls": DiskStalls}
