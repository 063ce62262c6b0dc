"""The device guard: may the harness write to the block device that the user named?

fio checks only whether the device node itself is mounted. It accepts a disk whose partition is mounted, or is
swap, LVM or md. The guard examines the device with all that lies on it: partitions, device mapper, md,
bcache, loop devices, exports, other paths to the same disk, and mounts of every visible mount
namespace.

A device in use is always refused. A device with a signature is refused until the user types its name a second
time (``--destroy NAME``). A free device without a signature may be written to: the user typed its name as the
backing.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.hosts import Host, programs
from harness.model.errors import CellInvalid, CommandFailed, DeviceRefused, UsageError
from harness.model.escape import printable
from harness.model.units import format_size, shown
from harness.storage import transports

MOST_BYTES_OF_PATH = 4095
MOST_BYTES_OF_NAME = 255
MOST_USES_SHOWN = 4


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """One user of a device: ``what`` as the end of a sentence, ``remedy`` a shell command or ""."""

    what: str
    remedy: str = ""
    is_export: bool = False


class Signature(msgspec.Struct, frozen=True):
    """One line of wipefs(8); ``device`` is the last part of the node's name."""

    device: str
    type: str
    usage: str | None = None
    label: str | None = None


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One block device of a survey; ``via`` says how it was reached from the device ``below``.

    ``node`` is the kernel's own name (``/dev/sdb``), ``number`` its major:minor. Identity that the kernel
    does not report is "". ``serial`` is a device mapper UUID or a loop device's file if there is no serial
    number. A partition has ``serial``, ``wwn``, ``model`` and ``diskseq`` of its disk. ``diskseq`` is a
    number that the kernel gives to no second disk until the next reboot
    (Documentation/ABI/stable/sysfs-block, since 5.15).
    ``mounts`` maps a mount point to the process it was seen through ("" is the surveyor's own namespace),
    ``exports`` maps how it is exported to whether that keeps others from opening it; ``writers`` maps
    processes that have it open for writing to their names.
    ``problem`` is why it could not be opened exclusively, ``busy`` that somebody else has done so.
    """

    number: str
    via: str = ""
    below: str = ""
    node: str
    size_bytes: int = 0
    read_only: bool = False
    serial: str = ""
    wwn: str = ""
    model: str = ""
    diskseq: str = ""
    dm_name: str = ""
    dm_uuid: str = ""
    md_level: str = ""
    bcache: bool = False
    btrfs: str = ""
    swap: bool = False
    mounts: dict[str, str] = {}
    exports: dict[str, bool] = {}
    writers: dict[str, str] = {}
    busy: bool = False
    problem: str = ""


class Device(Block, frozen=True, kw_only=True):
    """The block that was named, with what is on it. ``path`` is what the user typed.

    ``signatures`` are those on the device and its partitions, which ``partitions`` names. ``twins`` are the
    nodes of other paths to the same disk. ``reserved`` is who else uses a logical unit, as the end of a
    sentence, by what its target says (``inspect_unit``).
    """

    path: str
    partitions: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
    signatures: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()
    reserved: str = ""

    @property
    def title(self) -> str:
        """Both names, if they differ."""
        return self.path if self.path == self.node else f"{self.path} ({self.node})"


class Survey(msgspec.Struct, frozen=True):
    """A path, and what it is: ``found`` in words if it is not a block device, else the blocks around it."""

    found: str = ""
    blocks: tuple[Block, ...] = ()


class _Wipefs(msgspec.Struct, frozen=True):
    signatures: tuple[Signature, ...]


def inspect(host: Host, path: str) -> Device:
    """The block device ``path`` on ``host``, and all that is on it. Nothing is written.

    UsageError if ``path`` cannot be a device's name, DeviceRefused if it is not a device, CommandFailed if
    the host cannot report it.
    """
    check_path(path)
    survey = _examine(host, path)
    if survey.found:
        raise DeviceRefused(
            printable(f"expected {path} to be a block device, found {survey.found}"),
            hint="`lsblk --paths` lists the devices; --backing file:PATH makes a new file",
        )
    return describe(path, survey.blocks, _signatures(host, survey.blocks))


def require_writable(host: Host, path: str, *, destroy: str | None, needed_bytes: int) -> Device:
    """The device, if the harness may write to it; to be called before anything else is done with it.

    ``destroy`` is the name typed as consent to lose what is on it. It must be exactly ``path``, character by
    character: no pattern, and no other name of the same device. Raises DeviceRefused, and what ``inspect``
    raises.
    """
    device = inspect(host, path)
    refusal = judge(device, destroy=destroy, needed_bytes=needed_bytes)
    if refusal is not None:
        raise refusal
    return device


def require_unit(host: Host, path: str, *, needed_bytes: int, ours: Collection[str] = ()) -> Device:
    """A logical unit that may be written to, of whose contents the user has agreed to lose that part: see
    ``judge_unit``. Raises DeviceRefused, and what ``inspect`` raises."""
    from harness.storage import reservations  # here and below, because a run has most disks made

    device = inspect(host, path)
    device = msgspec.structs.replace(device, reserved=reservations.of(host, device.node).in_use)
    if refusal := judge_unit(device, needed_bytes=needed_bytes, ours=ours):
        raise refusal
    return device


def recheck(host: Host, device: Device, *, ours: Collection[str] | None = None) -> None:
    """Check, just before a job writes, that the node still is the same disk and that only exports hold it.
    Of a logical unit also that nobody else has come: ``ours`` are the run's own paths to it.

    Raises CellInvalid naming what has changed.
    """
    survey = _examine(host, device.node)
    if survey.found:
        raise CellInvalid(printable(f"expected {device.title} still to be the same disk, but it is gone"))
    now = describe(device.path, survey.blocks, ())
    changes = differences(device, now)
    if ours is not None:
        from harness.storage import reservations

        changes += [f"{_OTHERS} {node}" for node in now.twins if node not in ours]
        changes += filter(None, [reservations.of(host, device.node).in_use])
    if changes:
        raise CellInvalid(
            printable(f"expected {device.title} still to be the same disk, but {', '.join(changes)}"),
            hint="keep everything else away from it during a run",
        )


def check_path(path: str) -> None:
    """UsageError unless ``path`` can be a device's name: absolute, printable, without ``..``.

    Characters that a shell or a pattern would interpret are allowed: neither ever sees the path, and from
    here on the kernel's name of the device is used.
    """
    parts = path.split("/")
    if (
        not path.startswith("/")
        or not path.isprintable()
        or ".." in parts
        or len(os.fsencode(path)) > MOST_BYTES_OF_PATH
        or any(len(os.fsencode(part)) > MOST_BYTES_OF_NAME for part in parts)
    ):
        raise UsageError(
            f"expected the absolute path of a block device, found {shown(path)}",
            hint="try /dev/sdb, or its name under /dev/disk/by-id",
        )


def judge(device: Device, *, destroy: str | None, needed_bytes: int) -> DeviceRefused | None:
    """Why the device must not be written to, the gravest reason first; None if it may be."""
    other = "name another device"
    if device.uses:
        reason, hint = f"is in use: {_enumerate([use.what for use in device.uses])}", other
        remedies = [use.remedy for use in reversed(device.uses)]
        if all(remedies) and len(remedies) <= MOST_USES_SHOWN:
            hint = f"free it with `{' && '.join(dict.fromkeys(remedies))}`, or {other}"
    elif device.problem:
        reason, hint = f"could not be opened: {device.problem}", f"become root, or {other}"
    elif device.read_only:
        reason, hint = "is read-only", other
    elif device.size_bytes < needed_bytes:
        reason = f"has {format_size(device.size_bytes)}, but {format_size(needed_bytes)} are needed"
        hint = f"ask for less, or {other}"
    elif destroy is not None and destroy != device.path:
        reason = f"is the device to be written to, but --destroy names {shown(destroy)}"
        hint = f"both must be the same word: --destroy {shlex.quote(device.path)}"
    elif device.signatures and destroy is None:
        reason = f"is not blank; found on it: {_enumerate(device.signatures)}"
        hint = f"if all of that may be lost, add --destroy {shlex.quote(device.path)}"
    else:
        return None
    return DeviceRefused(printable(f"{device.title} {reason}"), hint=printable(hint))


_OTHERS = "it has another path here,"


def judge_unit(device: Device, *, needed_bytes: int, ours: Collection[str] = ()) -> DeviceRefused | None:
    """The same of a logical unit. Nobody here knows who else has it, so consent is not enough: it must be
    blank, and no path to it but ``ours`` is there. That the kernel takes no writes yet is the run's doing."""
    bare = msgspec.structs.replace(device, signatures=(), read_only=False)
    if refusal := judge(bare, destroy=None, needed_bytes=needed_bytes):
        return refusal
    others = [node for node in device.twins if node not in ours]
    if device.reserved:
        reason, hint = f"is in use: {device.reserved}", "name another LUN, or free this one there"
    elif others:
        reason = f"is in use: {_OTHERS} {_enumerate(others)}"
        hint = "log out of its other sessions, and release it with `multipath -f`"
    elif device.signatures:
        reason = f"is not blank; found on it: {_enumerate(device.signatures)}"
        hint = "another machine may use that: make an empty LUN, or remove it where it is used (wipefs)"
    else:
        return None
    return DeviceRefused(printable(f"{device.title} {reason}"), hint=hint)


def differences(before: Device, now: Device) -> list[str]:
    """What has changed between two surveys, each as the end of a sentence. Exports do not count."""
    changes = [
        f"its {what} was {was or 'none'} and is {found or 'none'}"
        for what, was, found in (
            ("device number", before.number, now.number),
            ("size in bytes", before.size_bytes, now.size_bytes),
            ("serial number", before.serial, now.serial),
            ("WWN", before.wwn, now.wwn),
            ("disk sequence number", before.diskseq, now.diskseq),
        )
        if was != found
    ]
    changes += [use.what for use in now.uses if not use.is_export]
    if now.problem:
        changes.append(f"it cannot be opened any more: {now.problem}")
    if now.read_only:
        changes.append("it has become read-only")
    return changes


def describe(path: str, blocks: Sequence[Block], signatures: Sequence[Signature]) -> Device:
    """A survey in words; the first block is the device itself."""
    device = blocks[0]
    partitions = _partitions(blocks)
    uses = [use for block in blocks for use in _uses(block, blocks)]
    if not uses and any(block.busy for block in blocks):
        uses = [_unseen_holder(signatures)]
    uses += [use for block in blocks for use in _exports(block, are_exclusive=False)]
    return Device(
        **msgspec.structs.asdict(device),
        path=path,
        partitions=tuple(block.node for block in partitions),
        uses=tuple(uses),
        signatures=tuple(dict.fromkeys(_in_words(device, partitions, signatures))),
        twins=tuple(block.node for block in blocks if block.via == "twin"),
    )


def _partitions(blocks: Sequence[Block]) -> list[Block]:
    """Those of the device itself, not of what lies on it."""
    return [block for block in blocks if block.via == "partition" and block.below == blocks[0].number]


def _enumerate(words: Sequence[str]) -> str:
    """Words with commas; a long list ends with the number of those left out."""
    extra = len(words) - MOST_USES_SHOWN
    return ", ".join([*words[:MOST_USES_SHOWN], *([f"and {extra} more"] if extra > 0 else [])])


def _uses(block: Block, blocks: Sequence[Block]) -> list[Use]:
    """What a block means for the device that was named: that it holds it, and who holds the block."""
    subject = _subject(block)
    uses = []
    if block.via in ("holder", "loop"):
        (below,) = [other for other in blocks if other.number == block.below]
        what, remedy = _holding(block)
        uses.append(Use(what=f"{_subject(below)} {what}", remedy=remedy))
    for point, process in block.mounts.items():
        where, enter = "", ""
        if process:
            where, enter = f" (seen by process {process})", f"nsenter --target {process} --mount "
        # Nobody can free the root file system while the machine runs.
        remedy = "" if point == "/" else f"{enter}umount {shlex.quote(point)}"
        uses.append(Use(what=f"{subject} is mounted on {point}{where}", remedy=remedy))
    if block.swap:
        uses.append(Use(what=f"{subject} is swap", remedy=f"swapoff {block.node}"))
    if block.btrfs:
        uses.append(Use(what=f"{subject} is part of the mounted btrfs file system {block.btrfs}"))
    if block.bcache:
        uses.append(Use(what=f"{subject} is registered with bcache"))
    uses += _exports(block, are_exclusive=True)
    uses += [
        Use(what=f"{subject} is open for writing by {name} (process {process})")
        for process, name in block.writers.items()
    ]
    return uses


def _exports(block: Block, *, are_exclusive: bool) -> list[Use]:
    """Those that keep others from opening the block, or those that do not: then something else keeps it
    busy."""
    return [
        Use(what=f"{_subject(block)} is exported {how}", is_export=True)
        for how, is_exclusive in block.exports.items()
        if is_exclusive is are_exclusive
    ]


def _subject(block: Block) -> str:
    """A block as the subject of a sentence about the device that was named."""
    return {
        "": "it",
        "partition": f"its partition {block.node}",
        "disk": f"its disk {block.node}",
        "backing": f"{block.node}, which is behind it,",
        "twin": f"{block.node}, another path to the same disk,",
    }.get(block.via, f"{block.dm_name or block.node} on it")


def _holding(block: Block) -> tuple[str, str]:
    """How a block holds the one below it, and the command that ends that."""
    name = block.node.removeprefix("/dev/")
    quoted = shlex.quote(block.dm_name)
    # lvm names its devices GROUP-VOLUME, and doubles every hyphen within the two names.
    group = re.split(r"(?<!-)-(?!-)", block.dm_name)[0].replace("--", "-")
    for found, what, remedy in (
        (block.via == "loop", f"is behind the loop device {name}", f"losetup --detach {block.node}"),
        (
            block.dm_uuid.startswith("LVM-"),
            f"is a physical volume of LVM volume group {group} (holder {name})",
            f"vgchange --activate n {shlex.quote(group)}",
        ),
        (
            block.dm_uuid.startswith("CRYPT-"),
            f"is an encrypted volume opened as {block.dm_name} (holder {name})",
            f"cryptsetup close {quoted}",
        ),
        (
            block.dm_uuid.startswith("mpath-"),
            f"is a path of the multipath device {block.dm_name} (holder {name})",
            f"multipath -f {quoted}",
        ),
        (
            block.dm_name,
            f"is used by the device mapper for {block.dm_name} (holder {name})",
            f"dmsetup remove {quoted}",
        ),
        (
            block.md_level,
            f"is part of the md array {name} ({block.md_level})",
            f"mdadm --stop {block.node}",
        ),
    ):
        if found:
            return what, remedy
    return f"is held by {name}", ""


def _unseen_holder(signatures: Sequence[Signature]) -> Use:
    """Something that opened the device exclusively and shows in no list; a signature may identify it."""
    for signature in signatures:
        if signature.type == "zfs_member":
            pool = signature.label or "of unknown name"
            return Use(
                what=f"it is part of the imported ZFS pool {pool}",
                remedy=f"zpool export {shlex.quote(pool)}" if signature.label else "",
            )
        if signature.type == "ceph_bluestore":
            return Use(what="it is held by a Ceph OSD")
        if signature.type == "drbd":
            return Use(what="it is held by DRBD")
    return Use(
        what="something invisible has opened it exclusively, such as a file system of another container or a "
        "virtual machine"
    )


USAGES = {
    "filesystem": " file system",
    "partition-table": " partition table",
    "raid": " (a part of a larger volume)",
    "crypto": " (encrypted)",
}
"""wipefs(8)'s column USAGE, as it reads after the column TYPE."""


def _in_words(device: Block, partitions: Sequence[Block], signatures: Sequence[Signature]) -> list[str]:
    words = []
    for block in (device, *partitions):
        where = "" if block is device else f" on its partition {block.node}"
        mine = [
            f"{signature.type}{USAGES.get(signature.usage or '', '')}"
            f"{f' {shown(signature.label)}' if signature.label else ''}{where}"
            for signature in signatures
            if signature.device == Path(block.node).name
        ]
        words += mine or ([f"the partition {block.node}"] if where else [])
    return words


T = TypeVar("T")


def _understood(text: str, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise CommandFailed(printable(f"{what} cannot be understood: {error}")) from error


def _examine(host: Host, path: str) -> Survey:
    exported = msgspec.json.encode([kind for each in transports.every() for kind in each.exported]).decode()
    source = programs.source(__package__, "survey")
    done = host.run([programs.PYTHON, "-I", "-S", "-", exported, path], input=source)
    return _understood(done.stdout, Survey, f"the survey of {path} on {host.name}")


def _signatures(host: Host, blocks: Sequence[Block]) -> tuple[Signature, ...]:
    """The signatures that wipefs(8) finds on the device and its partitions; it only reads."""
    device = blocks[0]
    nodes = [block.node for block in (device, *_partitions(blocks)) if block.size_bytes]
    if device.problem or not nodes:
        return ()
    columns = "DEVICE,TYPE,USAGE,LABEL"
    done = host.run(["wipefs", "--no-act", "--json", "--output", columns, "--", *nodes])
    return _understood(done.stdout, _Wipefs, f"the output of wipefs for {device.node}").signatures
