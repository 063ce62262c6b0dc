"""Volumes that are already attached to the initiator, and other people's LUNs: only read, or, with consent,
partly overwritten; or a new file."""

from __future__ import annotations

import contextlib
import functools
import os.path
from collections.abc import Collection, Iterator
from dataclasses import replace

import msgspec

from harness.hosts import Host
from harness.model import AttachedVolume, Backing, FileSystem
from harness.model.errors import CellInvalid, DeviceRefused, UsageError
from harness.model.escape import printable
from harness.storage import guard, requests
from harness.storage.backing import ReadyStorage, fill
from harness.storage.guard import check_path
from harness.storage.transport import Disk

OPEN = """
! command -v udevadm >/dev/null || udevadm settle --timeout=10
blockdev --setrw "$1"
test "$(blockdev --getro "$1")" = 0
"""
"""For sh(1): nobody looks at the disk any more, whose rule makes it read-only (``udev``)."""

_step = functools.partial(requests.step, __package__)


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What a path is (``kind``), what attached it (``by``), and the file system of another machine on which a
    file lies, as its host sees it."""

    kind: str
    node: str
    size_bytes: int
    identity: str
    makers: str
    by: str
    is_direct: bool = True
    filesystem: FileSystem | None = None


def look(host: Host, path: str) -> Looked:
    """UsageError unless the path is a block device, a file, or a new name in a folder, and takes direct
    I/O."""
    check_path(path)
    reported = requests.reported(host, _step("attached", "look", path=path), f"{path} cannot be looked at")
    found = msgspec.convert(reported, Looked)
    if found.kind not in ("device", "file", "new"):
        what, hint = f"a {found.kind}", "`lsblk --paths` lists the devices"
        if found.kind == "folder":
            hint = f"name a new file in it, which is made and removed: --volume {path.rstrip('/')}/bench.img"
        elif found.kind == "nothing":
            folder = os.path.dirname(found.node)  # noqa: PTH120 -- of another machine
            what, hint = f"no folder {folder} for it", f"make it first: mkdir -p {folder}"
        raise UsageError(
            printable(f"expected {path} to be a block device, a file, or a new file's name, found {what}"),
            hint=printable(hint),
        )
    if not found.is_direct:
        raise UsageError(
            printable(f"{found.by} does not support direct I/O, so this machine's memory would be measured"),
            hint="name a file of a file system on a disk or of another machine",
        )
    return found


@contextlib.contextmanager
def there(host: Host, volume: AttachedVolume, part: Backing) -> Iterator[ReadyStorage]:
    """A part of a volume, if that still is the one that was planned with; CellInvalid if not. With consent it
    is filled, to be written to."""
    found = look(host, volume.path)
    if (found.identity, found.kind == "new") != (volume.identity, False) or found.size_bytes < part.end_bytes:
        raise CellInvalid(
            printable(f"expected {volume.path} still to be the same volume, found another or a smaller one"),
            hint="begin a new run",
        )
    device = None
    if part.destroy is not None:
        device = guard.require_unit(host, volume.path, needed_bytes=part.end_bytes)
        if device.node != found.node:
            raise CellInvalid(printable(f"expected {volume.path} to be {found.node}, found {device.node}"))
        fill(host, device.node, part.size_bytes, offset_bytes=part.offset_bytes)
    yield ReadyStorage(path=found.node, size_bytes=part.size_bytes, device=device)


def opened(host: Host, disk: Disk, part: Backing, *, ours: Collection[str]) -> tuple[Disk, guard.Device]:
    """The disk of a session that may be written to: the kernel takes writes from now on. DeviceRefused if the
    guard or the target refuses them."""
    device = guard.require_unit(host, disk.device, needed_bytes=part.end_bytes, ours=ours)
    if host.run(["sh", "-euc", OPEN, "sh", device.node], check=False).status != 0:
        raise DeviceRefused(f"{device.title} is read-only for this machine: its target refuses writes")
    expected = (
        each._replace(wanted="0") if each.path == f"{disk.sysfs}/ro" else each for each in disk.expected
    )
    return replace(disk, expected=tuple(expected)), device
