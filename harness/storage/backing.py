"""The storage behind the target, made for the run: brd, a file, or a device that the user named."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec

from harness.hosts import LOADED, Host
from harness.hosts.journal import Journal
from harness.hosts.undo import UndoStep
from harness.model import Backing, BackingKind, DiskProfile
from harness.model.errors import CommandFailed, DeviceRefused
from harness.model.units import format_size
from harness.storage import disks, guard

MODULES = ("brd",)
"""The ramdisk's module. Only the ramdisk itself loads it."""

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, kw_only=True)
class ReadyStorage:
    """Storage that is ready: its path on the target host, its size, and the user's device, if it is one."""

    path: str
    size_bytes: int
    device: guard.Device | None = None


class Ramdisk(msgspec.Struct, frozen=True):
    """Disks of the kernel's brd module; refused if somebody already uses the module."""

    size_bytes: int
    count: int = 1

    @staticmethod
    def path(number: int) -> str:
        return f"/dev/ram{number}"

    def refuse_foreign(self, host: Host) -> None:
        if "brd" in host.list_folder(LOADED):
            raise DeviceRefused(
                "the ramdisk module brd is already loaded, so its disks may be somebody else's",
                hint="unload it with `modprobe -r brd`, or use --backing file:PATH",
            )

    def acquire(self, host: Host) -> None:
        words = (f"rd_nr={self.count}", f"rd_size={self.size_bytes // KIB}", "max_part=0")
        disks.load(host, "brd", *words, wants="ramdisks", hint="use --backing file:PATH")

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("modprobe", "-r", "brd")),)


IDENTITY = "%i %.9W"
"""stat(1)'s words for a file's inode and time of birth: together they are unique within a file system."""

REMOVE_IF_EMPTY = """
test -f "$1" && ! test -L "$1" && ! test -s "$1" || { echo 'there is no empty file' >&2; exit 1; }
rm -f -- "$1"
"""
REMOVE_IF_SAME = """
test "$(stat -c "$3" -- "$1")" = "$2" || { echo 'there is not the same file' >&2; exit 1; }
rm -f -- "$1" || exit
sync -- "$(dirname -- "$1")"
"""
"""Synced, because its journal may be on another disk: a file that is crossed out there must not come back
here."""


class NewFile(msgspec.Struct, frozen=True):
    """A new, empty file; never one that existed before."""

    lasting: ClassVar[bool] = True

    path: str

    def refuse_foreign(self, host: Host) -> None:
        # A symbolic link that leads nowhere is somebody's, too.
        if host.run(["sh", "-c", 'test -e "$1" || test -L "$1"', "sh", self.path], check=False).status == 0:
            raise self._refusal("it exists")

    def _refusal(self, found: str) -> DeviceRefused:
        return DeviceRefused(
            f"expected the backing file {self.path} not to exist yet, in a writable folder: {found}",
            hint="name a new file; the harness makes it and removes it",
        )

    def acquire(self, host: Host) -> None:
        # noclobber: the shell opens it with O_EXCL, so a race cannot hit a file of the user's.
        done = host.run(["sh", "-c", 'set -C; : > "$1"', "sh", self.path], check=False)
        if done.status != 0:
            raise self._refusal(done.stderr.strip().rpartition(": ")[2])

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("sh", "-c", REMOVE_IF_EMPTY, "sh", self.path), absent=("there is no empty file",)),)


class BackingFile(msgspec.Struct, frozen=True):
    """A file of the run's, its blocks allocated. A later run recognises it by its ``identity``."""

    lasting: ClassVar[bool] = True

    path: str
    size_bytes: int
    identity: str

    def acquire(self, host: Host) -> None:
        done = host.run(["fallocate", "-l", str(self.size_bytes), self.path], check=False)
        if "not supported" in done.stderr:  # as by NFS 3; all of it is written in any case
            host.run(["truncate", "-s", str(self.size_bytes), self.path])
        elif "No space left" in done.stderr or "Disk quota" in done.stderr:
            # What fallocate got before it failed is free again first.
            empty = 'truncate -s 0 -- "$1" && stat --file-system --format="%a %S" -- "$1"'
            free = host.run(["sh", "-c", empty, "sh", self.path], check=False).stdout.split()
            found = format_size(math.prod(map(int, free))) if free else "less"
            size = format_size(self.size_bytes)
            raise DeviceRefused(
                f"expected {size} for the backing file {self.path}, found {found} free",
                hint="make room there, name a file elsewhere, or use less: --size",
            )
        else:
            done.require_success()

    def undo(self) -> tuple[UndoStep, ...]:
        remove = ("sh", "-c", REMOVE_IF_SAME, "sh", self.path, self.identity, IDENTITY)
        return (UndoStep(remove, absent=("there is not the same file",)),)


class ScratchFilesystem(msgspec.Struct, frozen=True):
    """ext4 on a ramdisk: a file system that can do O_DIRECT, for file backing inside the lab."""

    mountpoint: str
    device: str

    def acquire(self, host: Host) -> None:
        host.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", self.device])
        host.run(["mkdir", "-p", self.mountpoint])
        host.run(["mount", self.device, self.mountpoint])

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("umount", self.mountpoint), absent=("not mounted", "no mount point")),)


SCRATCH_OVERHEAD_BYTES = 16 * MIB
"""What ext4 needs for itself besides the file; generous, because it is only memory of the lab."""


@contextlib.contextmanager
def bring_up(
    journal: Journal, host: Host, backing: Backing, *, count: int = 1
) -> Iterator[list[ReadyStorage]]:
    """Make the storage of a run on its host, ``count`` pieces of the same size, and fill it.

    It is filled once with random data, because blocks that were never written are answered without any work.
    """
    device: guard.Device | None = None
    with contextlib.ExitStack() as stack:
        if backing.kind is BackingKind.RAMDISK:
            _hold(stack, journal, host, Ramdisk(backing.size_bytes, count))
            paths = [Ramdisk.path(number) for number in range(count)]
        elif backing.kind is BackingKind.FILE:
            first = backing.path or _scratch_file(stack, journal, host, backing.size_bytes * count)
            paths = _file_names(first, count)
            for path in paths:
                stack.enter_context(new_file(journal, host, path, backing.size_bytes))
        else:
            device = require_device(host, backing)
            # The kernel's own name: by-path names have colons, which fio and LIO interpret.
            paths = [device.node]
        for path in paths:
            random_mib = RANDOM_MIB if backing.kind is BackingKind.RAMDISK else None
            fill(host, path, backing.size_bytes, random_mib=random_mib)
        yield [ReadyStorage(path=path, size_bytes=backing.size_bytes, device=device) for path in paths]


@contextlib.contextmanager
def new_file(journal: Journal, host: Host, path: str, size_bytes: int) -> Iterator[None]:
    """A new file of that size, with nothing in it. DeviceRefused if there is one already."""
    with contextlib.ExitStack() as stack:
        _hold(stack, journal, host, NewFile(path))
        identity = host.run(["stat", "-c", IDENTITY, "--", path]).stdout.strip()
        stack.enter_context(journal.hold(host, BackingFile(path, size_bytes, identity)))
        yield


def refuse_foreign(host: Host, backing: Backing, *, count: int = 1) -> None:
    """Refuse what ``bring_up`` would refuse, so that a run is refused before anything is brought up."""
    if backing.kind is BackingKind.BLOCK:
        require_device(host, backing)
    elif backing.path is None:
        Ramdisk(backing.size_bytes, count).refuse_foreign(host)
    else:
        for path in _file_names(backing.path, count):
            NewFile(path).refuse_foreign(host)


def _file_names(first: str, count: int) -> list[str]:
    return [first, *(f"{first}.{number}" for number in range(1, count))]


@contextlib.contextmanager
def model(
    journal: Journal,
    host: Host,
    disk: DiskProfile,
    size_bytes: int,
    *,
    count: int = 1,
    folder: Path,
    log: Path,
) -> Iterator[list[ReadyStorage]]:
    """Make one modelled disk on a host, and fill its ``count`` pieces; ``folder`` and ``log`` are as for
    ``disks.bring_up``."""
    with disks.bring_up(journal, host, disk, size_bytes, count=count, folder=folder, log=log) as paths:
        for path in paths:
            fill(host, path, size_bytes)
        yield [ReadyStorage(path=path, size_bytes=size_bytes) for path in paths]


def _hold(stack: contextlib.ExitStack, journal: Journal, host: Host, resource: Ramdisk | NewFile) -> None:
    # Checked before it is journalled: otherwise a run killed in between would leave it named for removal.
    resource.refuse_foreign(host)
    stack.enter_context(journal.hold(host, resource))


def require_device(host: Host, backing: Backing) -> guard.Device:
    """The user's device, if the guard allows the harness to write to it; see ``guard.require_writable``."""
    return guard.require_writable(
        host, backing.path or "", destroy=backing.destroy, needed_bytes=backing.size_bytes
    )


def _scratch_file(stack: contextlib.ExitStack, journal: Journal, host: Host, size_bytes: int) -> str:
    mountpoint = "/run/harness/scratch"
    _hold(stack, journal, host, Ramdisk(size_bytes + SCRATCH_OVERHEAD_BYTES))
    stack.enter_context(journal.hold(host, ScratchFilesystem(mountpoint, Ramdisk.path(0))))
    return f"{mountpoint}/backing.img"


FILL = """
path=$1 have=$2 size=$3 from=$4
dd if=/dev/urandom "of=$path" bs=1M "count=$have" "seek=$from" \
    iflag=fullblock oflag=direct conv=notrunc,fsync || exit
while [ "$have" -lt "$size" ]; do
    more=$((size - have < have ? size - have : have))
    dd "if=$path" "of=$path" bs=1M "count=$more" "skip=$from" "seek=$((from + have))" \
        iflag=fullblock,direct oflag=direct conv=notrunc,fsync || exit
    have=$((have + more))
done
"""
"""For sh(1). Arguments: a device, how many MiB of it shall be random, how many there shall be, and how many
are left alone before these."""

RANDOM_MIB = 8
"""So much of a ramdisk is random, and then copied: it neither compresses nor looks for what is equal, and
random numbers take the lab longer than copies."""


def fill(
    host: Host, path: str, size_bytes: int, *, random_mib: int | None = None, offset_bytes: int = 0
) -> None:
    """Fill it from an offset on with random data, or with so many MiB of it again and again."""
    size_mib = size_bytes // MIB
    first_mib = min(size_mib, random_mib or size_mib)
    argv = ["sh", "-c", FILL, "sh", path, str(first_mib), str(size_mib), str(offset_bytes // MIB)]
    done = host.run(argv, timeout_s=60 + size_bytes / (10 * MIB), check=False)
    if done.status != 0:
        raise CommandFailed(f"{path} could not be filled: {(done.stderr.strip().splitlines() or ['?'])[0]}")
