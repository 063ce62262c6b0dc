"""Real situations for the device guard: run as root inside the lab, `python guard_in_lab.py`.

Each is made on a ramdisk of its own, judged, and left as it is: the lab's kernel ends with it. Exits with
status 1 if some verdict in one is not what it should be; what the lab has no tools for is passed over.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness.hosts import NamespaceHost
from harness.model import BackingKind
from harness.model.errors import CellInvalid, DeviceRefused, HarnessError
from harness.storage import guard
from harness.storage.guard import Device
from harness.storage.iscsi.transport import backstore
from harness.storage.transport import Lun
from tests.lab.inside.kernel import modprobe

MIB = 1 << 20
SIZE_MIB = 32
SECTORS = 16384
"""Of what is mapped: 8 MiB."""

HOST = NamespaceHost(name="target")


def run(*argv: str) -> str:
    return HOST.run(argv).stdout.strip()


def say(verdict: str, what: str, words: object) -> None:
    sys.stdout.write(f"{verdict:7} {what}: {words}\n")


def refused(what: str, path: str, *words: str, destroy: bool = True, needed: int = MIB) -> None:
    """``path`` must be refused, although ``--destroy`` was typed, in a message that has all ``words``."""
    try:
        device = guard.require_writable(HOST, path, destroy=path if destroy else None, needed_bytes=needed)
    except DeviceRefused as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{what}: {error} lacks {missing}"
        say("refused", what, error)
    else:
        raise AssertionError(f"{what} was allowed: {device}")


def allowed(what: str, path: str, *, destroy: bool = False) -> Device:
    device = guard.require_writable(HOST, path, destroy=path if destroy else None, needed_bytes=MIB)
    say("allowed", what, f"{device.node} {device.number} diskseq {device.diskseq}")
    return device


def invalid(what: str, device: Device, word: str) -> None:
    try:
        guard.recheck(HOST, device)
    except CellInvalid as error:
        assert word in str(error), f"{what}: {error}"
        say("refused", what, error)
    else:
        raise AssertionError(f"{what} was not noticed")


def write_partition_table(disk: str, *sizes_mib: int) -> None:
    """An MBR (UEFI specification, section 5.2.1), and the kernel told to read it."""
    entries, start = b"", 2048
    for size_mib in sizes_mib:
        entries += struct.pack("<B3sB3sII", 0, b"\0" * 3, 0x83, b"\0" * 3, start, size_mib * 2048)
        start += size_mib * 2048
    with Path(disk).open("r+b") as file:
        file.write(b"\0" * 446 + entries.ljust(64, b"\0") + b"\x55\xaa")
        file.flush()
        os.fsync(file.fileno())
    run("blockdev", "--rereadpt", disk)


def map_device(name: str, disk: str, *, uuid: str = "") -> str:
    words = ("--uuid", uuid) if uuid else ()
    run("dmsetup", "create", name, "--noudevsync", *words, "--table", f"0 {SECTORS} linear {disk} 0")
    number = run("dmsetup", "info", "--columns", "--noheadings", "--options", "minor", name)
    return f"/dev/dm-{number}"


def mount(device: str, place: str) -> None:
    Path(place).mkdir()
    run("mount", device, place)


def not_block_devices(_disk: str) -> None:
    refused("regular file", "/etc/passwd", "found a regular file")
    refused("directory", "/etc", "found a directory")
    refused("character device", "/dev/null", "found a character device")
    refused("missing", "/dev/sdzz", "found nothing of that name")


def blank(disk: str) -> None:
    device = allowed("blank disk", disk)
    refused("too small", disk, "are needed", needed=1 << 40)
    folder = Path("/dev/disk/by-id")
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "odd $(reboot); name:%1*"
    link.symlink_to(disk)
    allowed("symbolic link with metacharacters", str(link), destroy=True)
    guard.recheck(HOST, device)


def file_system(disk: str) -> None:
    run("mkfs.ext4", "-q", "-L", "precious", disk)
    refused("file system without consent", disk, "ext4 file system", "precious", destroy=False)
    device = allowed("file system with consent", disk, destroy=True)
    mount(disk, "/run/a b")
    refused("mounted", disk, "it is mounted on /run/a b", "umount '/run/a b'")
    invalid("mounted after it was allowed", device, "is mounted on /run/a b")


def other_namespace(disk: str) -> None:
    run("mkfs.ext4", "-q", disk)
    Path("/run/elsewhere").mkdir()
    script = f"mount {disk} /run/elsewhere && echo ready && exec sleep 60"
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        if process.stdout is not None:
            process.stdout.readline()
        refused("mounted in another namespace", disk, f"on /run/elsewhere (seen by process {process.pid})")
        process.kill()


def swap(disk: str) -> None:
    run("mkswap", disk)
    refused("swap without consent", disk, "swap", destroy=False)
    run("swapon", disk)
    refused("swap in use", disk, "it is swap", f"swapoff {disk}")


def partitions(disk: str) -> None:
    write_partition_table(disk, 16, 8)
    refused("partition table", disk, "dos partition table", destroy=False)
    allowed("partition table with consent", disk, destroy=True)
    first = f"{disk}p1"
    run("mkfs.ext4", "-q", first)
    refused("file system on a partition", disk, f"ext4 file system on its partition {first}", destroy=False)
    mount(first, "/run/partition")
    refused("disk of a mounted partition", disk, f"its partition {first} is mounted on /run/partition")
    allowed("blank partition next to a mounted one", f"{disk}p2")


def mapped_partition(disk: str) -> None:
    write_partition_table(disk, 16)
    volume = map_device("vg0-big--home", f"{disk}p1", uuid="LVM-0123456789abcdef")
    words = f"its partition {disk}p1 is a physical volume of LVM volume group vg0 (holder dm-"
    refused("device mapper on a partition (LVM by its UUID)", disk, words)
    run("mkfs.ext4", "-q", volume)
    mount(volume, "/run/volume")
    refused("mounted through the device mapper", disk, words, "vg0-big--home on it is mounted on /run/volume")
    refused("the volume itself", volume, "it is mounted on /run/volume")


def plain_map(disk: str) -> None:
    volume = map_device("plain", disk)
    refused("device mapper", disk, "is used by the device mapper for plain", "dmsetup remove plain")
    allowed("free volume of the device mapper", volume)


def multiple_devices(disk: str) -> None:
    """An array of one disk without metadata, made as Documentation/admin-guide/md.rst tells."""
    run("modprobe", "raid1")
    Path("/sys/module/md_mod/parameters/new_array").write_text("md0")
    number = f"{os.major(Path(disk).stat().st_rdev)}:{os.minor(Path(disk).stat().st_rdev)}"
    name, size_kib = Path(disk).name, SECTORS // 2
    for attribute, value in (
        *(("metadata_version", "none"), ("level", "raid1"), ("raid_disks", "1"), ("new_dev", number)),
        *((f"dev-{name}/size", str(size_kib)), (f"dev-{name}/slot", "0")),
        *(("component_size", str(size_kib)), ("array_state", "active")),
    ):
        Path("/sys/block/md0/md", attribute).write_text(value)
    refused("md", disk, "is part of the md array md0 (raid1)", "mdadm --stop /dev/md0")
    allowed("free md array", "/dev/md0")


def loop(disk: str) -> None:
    device = run("losetup", "--find", "--show", disk)
    refused("loop device on top", disk, f"is behind the loop device {Path(device).name}", "losetup --detach")
    allowed("the loop device itself", device)
    run("mkfs.ext4", "-q", disk)
    mount(disk, "/run/behind")
    refused("loop device over a mounted disk", device, f"{disk}, which is behind it, is mounted on")


def exported(disk: str) -> None:
    device = allowed("disk before LIO has it", disk)
    lun = Lun(serial="mine", kind=BackingKind.BLOCK, path=disk, size_bytes=SIZE_MIB * MIB)
    backstore(lun).acquire(HOST)
    refused("exported by LIO", disk, "is exported by LIO as the backstore iblock_", "/mine")
    guard.recheck(HOST, device)
    say("allowed", "checked again while LIO has it", disk)


def opened(disk: str) -> None:
    handle = os.open(disk, os.O_RDONLY | os.O_EXCL)
    refused("opened exclusively", disk, "something invisible has opened it exclusively")
    os.close(handle)
    handle = os.open(disk, os.O_RDWR)
    refused("open for writing", disk, "is open for writing by python", f"(process {os.getpid()})")
    os.close(handle)


def read_only(disk: str) -> None:
    run("blockdev", "--setro", disk)
    refused("read-only", disk, "is read-only")


def swapped(_disk: str) -> None:
    """The same node, number and size, but another disk: only the kernel's sequence number tells."""
    for name in ("one", "two"):
        Path(f"/dev/shm/{name}").write_bytes(b"\0" * 4 * MIB)
    node = run("losetup", "--find", "--show", "/dev/shm/one")
    device = allowed("loop device of a file", node)
    run("losetup", "--detach", node)
    invalid("taken away", device, "size in bytes was 4194304 and is none")
    run("losetup", node, "/dev/shm/two")
    invalid("swapped under the run", device, "disk sequence number was")


def btrfs(disk: str) -> None:
    run("mkfs.btrfs", "-q", disk)
    mount(disk, "/run/btrfs")
    refused("btrfs", disk, "is part of the mounted btrfs file system")


SITUATIONS: dict[Callable[[str], None], str] = {
    **dict.fromkeys((not_block_devices, blank, file_system, other_namespace, swap, partitions), "true"),
    **dict.fromkeys((mapped_partition, plain_map), "dmsetup"),
    **dict.fromkeys((multiple_devices, loop, exported, opened, read_only, swapped), "true"),
    btrfs: "mkfs.btrfs",
}
"""What to make, and the program that it needs; each gets a ramdisk of its own."""


def main() -> int:
    modules = ("dm-mod", "loop", "target_core_mod", "target_core_iblock")
    modprobe(*modules, f"brd rd_nr={len(SITUATIONS)} rd_size={SIZE_MIB << 10} max_part=4")
    HOST.run(["mount", "-t", "configfs", "configfs", "/sys/kernel/config"], check=False)
    wrong = []
    for number, (make, program) in enumerate(SITUATIONS.items()):
        if HOST.run(["which", program], check=False).status != 0:
            say("passed", make.__name__, f"over, for {program} is not installed")
            continue
        try:
            make(f"/dev/ram{number}")
        except (AssertionError, HarnessError, OSError) as error:
            wrong.append(make.__name__)
            say("WRONG", make.__name__, repr(error))
    started = time.monotonic()
    guard.inspect(HOST, "/dev/ram1")
    say("passed", "one look", f"{time.monotonic() - started:.2f} s")
    sys.stdout.write(f"{len(wrong)} verdicts are wrong: {', '.join(wrong)}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
