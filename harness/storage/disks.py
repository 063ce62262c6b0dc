"""Modelled disks: profiles as data (``profiles/disks/*.toml``), memory that answers with a disk's latency.

Without moving parts: the kernel's null_blk, where each command has a timer. With moving parts:
``programs/harddisk.py`` behind the kernel's nbd. Both keep virtual time, and both need the custom kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.hosts import Host, programs
from harness.hosts.journal import Journal
from harness.hosts.undo import UndoStep
from harness.model import DiskProfile, Flash
from harness.model.errors import DeviceRefused, RequirementError
from harness.storage.transport import SECTOR_BYTES

FLASH_DEVICE = "/dev/nullb0"
HARD_DISK_DEVICE = "/dev/nbd0"
MIB = 1 << 20
START_S = 30
"""How long the program of a disk with moving parts may take to start; an overloaded lab took over 10."""

LARGEST_COMMAND_SECTORS = 2048
"""1 MiB, in sectors of 512 bytes: the largest command of the device, so LIO does not split any."""


class FlashDisk(msgspec.Struct, frozen=True):
    """One disk of null_blk in memory; refused if somebody already uses the module."""

    size_bytes: int
    flash: Flash | None = None

    def acquire(self, host: Host) -> None:
        load(host, "null_blk", "nr_devices=0")
        flash = self.flash
        settings: dict[str, int] = {
            "size": self.size_bytes // MIB,
            "memory_backed": 1,
            "max_sectors": LARGEST_COMMAND_SECTORS,
            "submit_queues": 1,
            # Requests go straight to the chips: a scheduler would hold back some that could run in parallel.
            "no_sched": 1,
            # Answered at once, or by a timer for each command.
            "irqmode": 0 if flash is None else 2,
        }
        if flash is not None:
            settings["completion_nsec"] = round(flash.page_us * 1000)
            settings["hw_queue_depth"] = flash.pages_at_once
        words = [f"{name}={value}" for name, value in settings.items()]
        host.run(["sh", "-euc", MAKE_NULL_BLK, "sh", *words])
        if flash is not None:
            # Not max_sectors, which the device would report to LIO, and LIO to the initiator. So requests of
            # many pages are split here, into one for each page.
            limit = f"/sys/block/{Path(FLASH_DEVICE).name}/queue/max_sectors_kb"
            host.run(["sh", "-euc", 'echo "$1" > "$2"', "sh", str(flash.page_bytes >> 10), limit])

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("sh", "-euc", REMOVE_NULL_BLK)),)


MAKE_NULL_BLK = """
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
mkdir /sys/kernel/config/nullb/nullb0
cd /sys/kernel/config/nullb/nullb0
for setting; do echo "${setting#*=}" > "${setting%%=*}"; done
echo 1 > power
"""

REMOVE_NULL_BLK = """
test -e /sys/module/null_blk || exit 0
if test -e /sys/kernel/config/nullb/nullb0; then
    echo 0 > /sys/kernel/config/nullb/nullb0/power
    rmdir /sys/kernel/config/nullb/nullb0
fi
modprobe -r null_blk
"""


class NbdModule(msgspec.Struct, frozen=True):
    """The kernel's nbd, for one disk; refused if somebody already uses the module."""

    devices: int = 1
    partitions: int = 0

    def acquire(self, host: Host) -> None:
        # It may be there without a disk, for connections to come. While it has one in use, this fails.
        host.run(["modprobe", "-r", "nbd"], check=False)
        load(host, "nbd", f"nbds_max={self.devices}", f"max_part={self.partitions}")

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("modprobe", "-r", "nbd")),)


def load(
    host: Host,
    module: str,
    *parameters: str,
    wants: str = "modelled disks",
    hint: str = "use the custom kernel: make lab-kernel",
) -> None:
    """Load a module. DeviceRefused if it is loaded, RequirementError if it cannot be."""
    # --first-time: it is also a failure if the module is loaded already.
    done = host.run(["modprobe", "--first-time", module, *parameters], check=False)
    if "already in kernel" in done.stderr:
        raise DeviceRefused(
            f"the kernel module {module} is already loaded, so its disks may be somebody else's",
            hint=f"unload it with `modprobe -r {module}`",
        )
    if done.status != 0:
        raise RequirementError(
            f"{wants} need the kernel module {module}, which was not loaded: {done.stderr.strip()}", hint=hint
        )


@contextlib.contextmanager
def bring_up(
    journal: Journal,
    host: Host,
    profile: DiskProfile,
    size_bytes: int,
    *,
    count: int = 1,
    folder: Path,
    log: Path,
) -> Iterator[list[str]]:
    """Make one disk with ``count`` pieces of ``size_bytes`` (whole MiB) on a host, and yield their paths; it
    is all zeros.

    A lone piece is the disk itself. ``folder`` is on the host, for the program of a disk with moving parts;
    ``log`` gets the program's output.
    """
    if profile.moving is None:
        with journal.hold(host, FlashDisk(size_bytes * count, profile.flash)):
            yield _pieces(host, FLASH_DEVICE, size_bytes, count)
        return
    program = folder / "harddisk.py"
    host.write_secret(program, programs.source(__package__, "harddisk"))
    request = {"size_bytes": size_bytes * count, **msgspec.to_builtins(profile.moving)}

    def ready() -> bool:
        return host.run(["test", "-e", "/sys/block/nbd0/pid"], check=False).status == 0

    argv = [programs.PYTHON, str(program), msgspec.json.encode(request).decode()]
    module = NbdModule(partitions=count if count > 1 else 0)
    with journal.hold(host, module), host.daemon(argv, log=log, ready=ready, deadline_s=START_S):
        yield _pieces(host, HARD_DISK_DEVICE, size_bytes, count)


PARTITION = """
device=$1 sectors=$2 count=$3 number=1
while [ "$number" -le "$count" ]; do
    addpart "$device" "$number" $(((number - 1) * sectors)) "$sectors"
    number=$((number + 1))
done
"""
"""For sh(1). Arguments: a disk, how many sectors of 512 bytes each partition has, and how many there are. The
kernel is told (addpart(8)) and nothing is written: they are gone with the disk."""


def _pieces(host: Host, device: str, size_bytes: int, count: int) -> list[str]:
    if count == 1:
        return [device]
    host.run(["sh", "-euc", PARTITION, "sh", device, str(size_bytes // SECTOR_BYTES), str(count)])
    return [f"{device}p{number}" for number in range(1, count + 1)]
