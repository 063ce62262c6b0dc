"""What attached a volume, by the files of sysfs and the table of mounts; and that it still is the same."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import programs
from harness.model import AttachedVolume, Backing, BackingKind
from harness.model.errors import CellInvalid, DeviceRefused, UsageError
from harness.storage import attached, guard
from harness.storage.guard import Device
from harness.storage.transport import Disk, Expected
from tests.unit.fakes import World

SOURCE = programs.source("harness.storage", "attached")
MOUNTS = """\
22 1 254:1 / / rw - ext4 /dev/vda1 rw
30 22 0:45 / /mnt/nas rw,sync - nfs4 nas.lan:/export rw,sync,vers=4.2,rsize=1048576,hard,addr=192.0.2.2
31 22 0:46 / /mnt/nas\\040two rw - cifs //nas/share rw
32 22 8:16 / /mnt/usb rw - ext4 /dev/sdb rw
"""


NFS = "rw,sync,rw,sync,vers=4.2,rsize=1048576,hard,addr=192.0.2.2"


def disk(sysfs: Path, number: str, place: str, **files: str) -> None:
    """A disk at a place below the devices of sysfs, with what its files say."""
    folder = sysfs / "devices" / place
    folder.mkdir(parents=True)
    for name, text in {"size": "2048", **files}.items():
        file = folder / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")
    for index, name in (("dev/block", number), ("class/block", folder.name)):
        (sysfs / index).mkdir(parents=True, exist_ok=True)
        (sysfs / index / name).symlink_to(folder)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    found = tmp_path / "sys"
    session, connection = (
        found / "class/iscsi_session/session3",
        found / "class/iscsi_connection/connection3:0",
    )
    for folder, files in (
        (session, {"targetname": "iqn.x:a"}),
        (connection, {"address": "192.0.2.2", "port": "3260"}),
    ):
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(f"{text}\n", encoding="utf-8")
    place = "platform/host2/session3/target2:0:0/2:0:0:0/block/sdc"
    disk(found, "8:32", place, device__vendor="IET", device__model="VIRTUAL-DISK", device__wwid="t10.IET 1")
    disk(found, "8:16", "pci0/usb1/1-1/block/sdb")
    disk(found, "8:0", "pci0/ata1/block/sda")
    address = "traddr=192.0.2.3,trsvcid=4420"
    disk(
        *(found, "259:1", "virtual/nvme-fabrics/ctl/nvme1/nvme1n1"),
        device__transport="tcp",
        device__address=address,
        device__subsysnqn="nqn.x",
        wwid="eui.1",
    )
    disk(found, "43:0", "virtual/block/nbd0", backend="mine")
    disk(found, "253:0", "virtual/block/dm-0", dm__uuid="mpath-3600", slaves__sdc__x="")
    disk(found, "254:1", "pci0/virtio1/block/vda1")
    (tmp_path / "mountinfo").write_text(MOUNTS, encoding="utf-8")
    return found


def told(sysfs: Path, *words: str) -> str:
    """What the program's functions say, by their source in another process."""
    source = SOURCE.replace('Path("/sys")', f'Path("{sysfs}")')
    source = source.replace('"/proc/self/mountinfo"', f'"{sysfs.parent}/mountinfo"')
    source = source.replace('if __name__ == "__main__":', "if False:")
    call = f"{source}\nimport json, sys\nprint(json.dumps(globals()[sys.argv[1]](sys.argv[2])))"
    argv = [programs.PYTHON, "-I", "-S", "-c", call, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "by"),
    [
        ("8:32", "iSCSI from 192.0.2.2:3260, iqn.x:a"),
        ("8:16", "USB"),
        ("8:0", "SATA"),
        ("259:1", "NVMe/TCP from 192.0.2.3:4420, nqn.x"),
        ("43:0", "NBD mine"),
        ("253:0", "mpath of sdc (iSCSI from 192.0.2.2:3260, iqn.x:a)"),
        ("254:1", "virtio"),
    ],
)
def test_a_disk_says_what_attached_it(sysfs: Path, number: str, by: str) -> None:
    found: dict[str, Any] = json.loads(told(sysfs, "disk", number))
    assert (found["by"], found["size_bytes"]) == (by, 1 << 20)
    if number == "8:32":
        assert (found["node"], found["identity"]) == ("/dev/sdc", "t10.IET 1")
        assert found["makers"] == "IET VIRTUAL-DISK"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/mnt/nas/a", ["nfs4", "nas.lan:/export", "0:45", NFS]),
        ("/mnt/nas two/a", ["cifs", "//nas/share", "0:46", "rw,rw"]),
        ("/mnt/nasty", ["ext4", "/dev/vda1", "254:1", "rw,rw"]),
        ("/mnt/usb/a/b", ["ext4", "/dev/sdb", "8:16", "rw,rw"]),
    ],
)
def test_a_file_lies_on_the_nearest_mount(sysfs: Path, path: str, mount: list[str]) -> None:
    assert json.loads(told(sysfs, "mount_of", path)) == mount


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/mnt/nas/a", "nfs4 of nas.lan:/export, sync, vers=4.2, rsize=1048576, hard"),
        ("/mnt/nas two/a", "cifs of //nas/share"),
        ("/mnt/usb/a/b", "ext4 on /dev/sdb, USB"),
    ],
)
def test_a_file_says_what_is_behind_it_and_how_it_is_mounted(sysfs: Path, path: str, text: str) -> None:
    assert json.loads(told(sysfs, "behind", path)) == text


def host(
    kind: str, *, identity: str = "7", size_bytes: int = 2 << 20, node: str = "/mnt/x", is_direct: bool = True
) -> World:
    found = {"kind": kind, "node": node, "size_bytes": size_bytes, "identity": identity}
    found["is_direct"] = is_direct
    text = json.dumps({**found, "makers": "", "by": "nfs4 of nas:/export"})
    return World(answers=[((programs.PYTHON, "-I", "-S", "-c", SOURCE), (0, text, ""))])


@pytest.mark.parametrize(("kind", "hint"), [("folder", "/mnt/x/bench.img"), ("nothing", "lsblk")])
def test_what_is_no_volume_is_refused_with_what_is_one(kind: str, hint: str) -> None:
    with pytest.raises(UsageError, match="a block device, a file, or a new file's name") as refused:
        attached.look(host(kind).host("initiator"), "/mnt/x")
    assert hint in (refused.value.hint or "")
    with pytest.raises(UsageError):
        attached.look(host("file").host("initiator"), "relative")


def test_a_volume_is_read_only_if_it_is_the_one_that_was_planned_with() -> None:
    volume = AttachedVolume(path="/mnt/x", title="x", identity="7")
    part = Backing(kind=BackingKind.FILE, size_bytes=1 << 19, offset_bytes=1 << 19)
    with attached.there(host("file").host("initiator"), volume, part) as ready:
        assert (ready.path, ready.device) == ("/mnt/x", None)
    small = host("file", size_bytes=(1 << 20) - 1)
    for other in (host("file", identity="8"), host("new", identity=""), small):
        with (
            pytest.raises(CellInvalid, match="still to be the same volume"),
            attached.there(other.host("initiator"), volume, part),
        ):
            raise AssertionError


UNIT = Device(number="8:0", node="/dev/sda", path="/dev/x", size_bytes=1 << 30)
PART = Backing(kind=BackingKind.BLOCK, size_bytes=1 << 20, offset_bytes=1 << 20, destroy="/dev/x")


def guarded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the guard is asked, which allows all."""
    asked: list[tuple[Any, ...]] = []

    def require_unit(_host: object, path: str, *, needed_bytes: int, ours: Any = ()) -> Device:
        asked.append((path, needed_bytes, tuple(ours)))
        return UNIT

    monkeypatch.setattr(guard, "require_unit", require_unit)
    return asked


def test_what_may_be_lost_is_guarded_and_then_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, volume = guarded(monkeypatch), AttachedVolume(path="/dev/x", title="x", identity="7")
    world = host("device", node="/dev/sda")
    with attached.there(world.host("initiator"), volume, PART) as ready:
        assert (ready.path, ready.size_bytes, ready.device) == ("/dev/sda", 1 << 20, UNIT)
    assert asked == [("/dev/x", 2 << 20, ())]
    (filled,) = [command.argv for command in world.commands if "urandom" in " ".join(command.argv)]
    assert filled[-4:] == ("/dev/sda", "1", "1", "1")
    world = host("device", node="/dev/sdb")
    with (
        pytest.raises(CellInvalid, match="to be /dev/sdb, found /dev/sda"),
        attached.there(world.host("initiator"), volume, PART),
    ):
        raise AssertionError
    assert not [command for command in world.commands if "urandom" in " ".join(command.argv)]


def test_a_session_s_disk_is_guarded_and_then_takes_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, sysfs = guarded(monkeypatch), "/sys/block/sda"
    identity = Expected("identity", f"{sysfs}/wwid", "naa.6")
    expected = (Expected("read-only mark", f"{sysfs}/ro", "1"), identity)
    for status in (0, 1):
        world = World(answers=[(("sh", "-euc", attached.OPEN), (status, "", ""))])
        disk = Disk(host=world.host("initiator"), sysfs=sysfs, expected=expected)
        if status:
            with pytest.raises(DeviceRefused, match="its target refuses them"):
                attached.opened(disk.host, disk, PART, ours=["/dev/sdb"])
            continue
        found, device = attached.opened(disk.host, disk, PART, ours=["/dev/sdb"])
        assert found.expected == (Expected("read-only mark", f"{sysfs}/ro", "0"), identity)
        assert device == UNIT and found.device == "/dev/sda"
    assert asked == [("/dev/sda", 2 << 20, ("/dev/sdb",))] * 2


def test_a_file_system_without_direct_io_is_refused() -> None:
    with pytest.raises(UsageError, match="nfs4 of nas:/export takes no direct I/O"):
        attached.look(host("new", is_direct=False).host("initiator"), "/mnt/x")


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "is_direct"), [("EINVAL", False), ("EOPNOTSUPP", True), ("", True)])
@pytest.mark.parametrize("name", ["file", ""])
def test_direct_io_is_tried_without_a_trace(tmp_path: Path, number: str, is_direct: bool, name: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    refusing = f"raise OSError(errno.{number}, '')" if number else "return 0"
    patch = f"os.close = lambda _: None\ndef refuse(*_): {refusing}\nos.open = refuse\n"
    source = SOURCE.replace('if __name__ == "__main__":', "if False:")
    call = f"{source}\n{patch}print(is_direct(Path({str(tmp_path / name)!r})))"
    argv = [programs.PYTHON, "-I", "-S", "-c", call]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert said == f"{is_direct}\n"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.thorough
def test_it_says_of_a_path_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(4096))
    for path, kind in (
        (file, "file"),
        (tmp_path, "folder"),
        (tmp_path / "new", "new"),
        (tmp_path / "a/b", "nothing"),
    ):
        request = json.dumps({"do": "look", "path": str(path)})
        argv = [programs.PYTHON, "-I", "-S", "-c", SOURCE]
        found = json.loads(
            subprocess.run(argv, input=request, capture_output=True, text=True, check=True).stdout
        )
        assert (found["kind"], found["node"]) == (kind, os.path.realpath(path))
        assert found["size_bytes"] == (4096 if path == file else found["size_bytes"])
