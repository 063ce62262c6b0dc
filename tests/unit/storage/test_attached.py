"""What attached a volume, by the files of sysfs and the table of mounts; and that it still is the same."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, get_args
from unittest.mock import ANY, Mock, call

import pytest

from harness.hosts import programs
from harness.model import FILE_SYSTEMS, AttachedVolume, Backing, BackingKind, Column, FileSystem
from harness.model.errors import CellInvalid, DeviceRefused, UsageError
from harness.storage import attached, guard
from harness.storage.backing import ReadyStorage
from harness.storage.guard import Device
from harness.storage.programs import attached as program
from harness.storage.transport import Disk, Expected
from harness.testbeds import portals
from tests.unit.fakes import World
from tests.unit.storage.files import lines

SOURCE = programs.source("harness.storage", "attached")
IMPORTED = SOURCE.replace('if __name__ == "__main__":', "if False:")
NFS = "rw,sync,rw,sync,vers=4.2,rsize=1048576,hard,addr=192.0.2.2"
UNIT = Device(number="8:0", node="/dev/sda", path="/dev/x", size_bytes=1 << 30)
PART = Backing(kind=BackingKind.BLOCK, size_bytes=1 << 20, offset_bytes=1 << 20, destroy="/dev/x")
MOUNTS = """\
22 1 254:1 / / rw - ext4 /dev/vda1 rw
30 22 0:45 / /mnt/nas rw,sync - nfs4 nas.lan:/export rw,sync,vers=4.2,rsize=1048576,hard,addr=192.0.2.2
31 22 0:46 / /mnt/nas\\040two rw - cifs //nas/share rw
32 22 8:16 / /mnt/usb rw - ext4 /dev/sdb rw
"""


SCSI = {"device/vendor": "IET", "device/model": "VIRTUAL-DISK", "device/wwid": "t10.IET 1"}
NVME = {"device/transport": "tcp", "device/address": "traddr=192.0.2.3,trsvcid=4420"}
ISCSI = "iSCSI from 192.0.2.2:3260, iqn.x:a"
DISKS: dict[str, tuple[str, str, dict[str, str]]] = {
    "8:32": (ISCSI, "platform/host2/session3/target2:0:0/2:0:0:0/block/sdc", SCSI),
    "8:16": ("USB", "pci0/usb1/1-1/block/sdb", {}),
    "8:0": ("SATA", "pci0/ata1/block/sda", {}),
    "259:1": (
        *("NVMe/TCP from 192.0.2.3:4420, nqn.x", "virtual/nvme-fabrics/ctl/nvme1/nvme1n1"),
        {**NVME, "device/subsysnqn": "nqn.x", "wwid": "eui.1"},
    ),
    "43:0": ("NBD mine", "virtual/block/nbd0", {"backend": "mine"}),
    "253:0": (f"mpath of sdc ({ISCSI})", "virtual/block/dm-0", {"dm/uuid": "mpath-3600", "slaves/sdc/x": ""}),
    "254:1": ("virtio", "pci0/virtio1/block/vda1", {}),
}
"""What attached a disk, by its number; its place below the devices of sysfs, and what its files say."""


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    found = tmp_path / "sys"
    lines(found / "class/iscsi_session/session3", {"targetname": "iqn.x:a"})
    lines(found / "class/iscsi_connection/connection3:0", {"address": "192.0.2.2", "port": "3260"})
    for number, (_, place, files) in DISKS.items():
        folder = lines(found / "devices" / place, {"size": "2048", **files})
        for index in (f"dev/block/{number}", f"class/block/{folder.name}"):
            (found / index).parent.mkdir(parents=True, exist_ok=True)
            (found / index).symlink_to(folder)
    (tmp_path / "mountinfo").write_text(MOUNTS, encoding="utf-8")
    return found


def said(*argv: str, source: str = SOURCE, asked: str | None = None) -> Any:
    """What the program says, in another process."""
    words = [programs.PYTHON, "-I", "-S", "-c", source, *argv]
    return json.loads(subprocess.run(words, input=asked, capture_output=True, text=True, check=True).stdout)


def reported(sysfs: Path, *words: str) -> Any:
    """What one of its functions says."""
    source = IMPORTED.replace('Path("/sys")', f'Path("{sysfs}")')
    source = source.replace('"/proc/self/mountinfo"', f'"{sysfs.parent}/mountinfo"')
    call = "import json, sys\nprint(json.dumps(globals()[sys.argv[1]](sys.argv[2])))"
    return said(*words, source=f"{source}\n{call}")


@pytest.mark.thorough
def test_a_disk_says_what_attached_it(sysfs: Path) -> None:
    for number, (by, *_) in DISKS.items():
        found = reported(sysfs, "disk", number)
        assert (found["by"], found["size_bytes"]) == (by, 1 << 20), number
        if by == ISCSI:
            known = [found[name] for name in ("node", "identity", "makers")]
            assert known == ["/dev/sdc", "t10.IET 1", "IET VIRTUAL-DISK"]


@pytest.mark.thorough
def test_a_file_lies_on_the_nearest_mount(sysfs: Path) -> None:
    behind_nfs = "nfs4 of nas.lan:/export, sync, vers=4.2, rsize=1048576, hard"
    for path, mount, text in (
        ("/mnt/nas/a", ["nfs4", "nas.lan:/export", "0:45", NFS], behind_nfs),
        ("/mnt/nas two/a", ["cifs", "//nas/share", "0:46", "rw,rw"], "cifs of //nas/share"),
        ("/mnt/nasty", ["ext4", "/dev/vda1", "254:1", "rw,rw"], "ext4 on /dev/vda1, virtio"),
        ("/mnt/usb/a/b", ["ext4", "/dev/sdb", "8:16", "rw,rw"], "ext4 on /dev/sdb, USB"),
    ):
        assert reported(sysfs, "mount_of", path) == mount
        assert reported(sysfs, "behind", path) == text


REMOTE = """\
60 30 0:52 / /mnt/v3 rw,relatime shared:31 - nfs 192.0.2.2:/volume1/vm rw,vers=3,rsize=131072,wsize=131072,\
hard,proto=tcp,timeo=600,retrans=2,sec=sys,mountaddr=192.0.2.2,mountvers=3,local_lock=none,addr=192.0.2.2
61 30 0:53 / /mnt/v4 rw,relatime shared:32 - nfs4 nas.lan:/export rw,vers=4.2,rsize=1048576,wsize=1048576,\
namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=192.0.2.9,local_lock=none,addr=192.0.2.2
62 30 0:54 / /mnt/smb rw,relatime shared:33 - cifs //192.0.2.2/share rw,vers=3.1.1,sec=ntlmssp,cache=strict
63 30 0:55 / /mnt/ssh rw,nosuid,nodev,relatime shared:34 - fuse.sshfs me@nas:/srv rw,user_id=0,group_id=0
64 30 0:56 / /mnt/gluster rw,relatime - fuse.glusterfs nas:/gv0 rw,user_id=0,allow_other,max_read=131072
65 30 0:57 / /mnt/ceph rw,relatime - ceph 192.0.2.2:6789:/ rw,name=admin,secret=<hidden>,acl
66 30 0:58 / /mnt/9p rw,relatime - 9p hostshare rw,dirsync,trans=virtio,version=9p2000.L
67 30 0:59 / /mnt/tmp rw,nosuid - tmpfs tmpfs rw,size=1024k
68 30 0:60 / /mnt/pool rw,relatime - fuse.mergerfs /disk1:/disk2 rw,user_id=0,allow_other
"""
"""Lines of /proc/self/mountinfo as kernels print them."""


@pytest.mark.thorough
def test_a_file_system_of_another_machine_is_named_by_its_kind(sysfs: Path) -> None:
    (sysfs.parent / "mountinfo").write_text(MOUNTS + REMOTE, encoding="utf-8")
    kinds = {"v3": "nfs", "v4": "nfs", "smb": "smb", "ssh": "sshfs", "gluster": "glusterfs", "ceph": "ceph"}
    for place, kind in {**kinds, "9p": "9p", "tmp": None, "pool": None, "usb": None}.items():
        assert reported(sysfs, "filesystem", f"/mnt/{place}/bench.img") == kind, place
    assert {*program.NETWORK.values()} == {*FILE_SYSTEMS} == {*get_args(FileSystem)}


def test_a_look_tells_it_and_other_volumes_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for facts, column in (
        ({"filesystem": "nfs"}, Column("nfs", transport=None)),
        ({"filesystem": None}, Column("local")),
        ({}, Column("local")),
    ):
        host = look("file", **facts).host("initiator")
        monkeypatch.setattr(portals, "_reached", lambda *_, host=host: contextlib.nullcontext((host, Path())))
        volume, _, _ = portals.look_at("/mnt/x", initiator="local")
        assert volume.column == column


def look(kind: str, **facts: object) -> World:
    """A world whose initiator finds such a volume at a path."""
    found = {"kind": kind, "node": "/mnt/x", "size_bytes": 2 << 20, "identity": "7", "is_direct": True}
    text = json.dumps({**found, "makers": "", "by": "nfs4 of nas:/export", **facts})
    return World(answers=[((programs.PYTHON, "-I", "-S", "-c", SOURCE), (0, text, ""))])


def there(world: World, path: str, part: Backing) -> AbstractContextManager[ReadyStorage]:
    volume = AttachedVolume(path=path, title="x", identity="7")
    return attached.there(world.host("initiator"), volume, part)


def test_what_is_no_volume_is_refused_with_what_is_one() -> None:
    for kind, hint in (("folder", "/mnt/x/bench.img"), ("nothing", "mkdir -p")):
        with pytest.raises(UsageError, match="a block device, a file, or a new file's name") as refused:
            attached.look(look(kind).host("initiator"), "/mnt/x")
        assert hint in (refused.value.hint or "")
    with pytest.raises(UsageError):
        attached.look(look("file").host("initiator"), "relative")
    with pytest.raises(UsageError, match="nfs4 of nas:/export does not support direct I/O"):
        attached.look(look("new", is_direct=False).host("initiator"), "/mnt/x")


def test_a_volume_is_read_only_if_it_is_the_one_that_was_planned_with() -> None:
    part = Backing(kind=BackingKind.FILE, size_bytes=1 << 19, offset_bytes=1 << 19)
    with there(look("file"), "/mnt/x", part) as ready:
        assert (ready.path, ready.device) == ("/mnt/x", None)
    small = look("file", size_bytes=(1 << 20) - 1)
    for other in (look("file", identity="8"), look("new", identity=""), small):
        with pytest.raises(CellInvalid, match="still to be the same volume"), there(other, "/mnt/x", part):
            raise AssertionError


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What the guard is asked, which allows all."""
    monkeypatch.setattr(guard, "require_unit", asked := Mock(return_value=UNIT))
    return asked


def test_what_may_be_lost_is_guarded_and_then_filled(guarded: Mock) -> None:
    world = look("device", node="/dev/sda")
    with there(world, "/dev/x", PART) as ready:
        assert (ready.path, ready.size_bytes, ready.device) == ("/dev/sda", 1 << 20, UNIT)
    guarded.assert_called_once_with(ANY, "/dev/x", needed_bytes=2 << 20)
    assert [c.argv[-4:] for c in world.commands if "urandom" in str(c)] == [("/dev/sda", "1", "1", "1")]
    world = look("device", node="/dev/sdb")
    with pytest.raises(CellInvalid, match="to be /dev/sdb, found /dev/sda"), there(world, "/dev/x", PART):
        raise AssertionError
    assert not any("urandom" in str(command) for command in world.commands)


def test_a_session_s_disk_is_guarded_and_then_takes_writes(guarded: Mock) -> None:
    sysfs = "/sys/block/sda"
    identity = Expected("identity", f"{sysfs}/wwid", "naa.6")
    expected = (Expected("read-only mark", f"{sysfs}/ro", "1"), identity)

    def opened(status: int) -> tuple[Disk, Device]:
        world = World(answers=[(("sh", "-euc", attached.OPEN), (status, "", ""))])
        disk = Disk(host=world.host("initiator"), sysfs=sysfs, expected=expected)
        return attached.opened(disk.host, disk, PART, ours=["/dev/sdb"])

    found, device = opened(0)
    assert found.expected == (Expected("read-only mark", f"{sysfs}/ro", "0"), identity)
    assert device == UNIT and found.device == UNIT.node
    with pytest.raises(DeviceRefused, match="its target refuses writes"):
        opened(1)
    assert guarded.call_args_list == [call(ANY, "/dev/sda", needed_bytes=2 << 20, ours=["/dev/sdb"])] * 2


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "is_direct"), [("EINVAL", False), ("EOPNOTSUPP", True), ("", True)])
@pytest.mark.parametrize("name", ["file", ""])
def test_direct_io_is_tried_without_a_trace(tmp_path: Path, number: str, is_direct: bool, name: str) -> None:
    (tmp_path / "file").touch()
    refusing = f"raise OSError(errno.{number}, '')" if number else "return 0"
    patch = f"os.close = lambda _: None\ndef refuse(*_): {refusing}\nos.open = refuse\n"
    call = f"print(int(is_direct(Path({str(tmp_path / name)!r}))))"
    assert said(source=f"{IMPORTED}\n{patch}{call}") == is_direct
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.thorough
def test_it_says_of_a_path_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(4096))
    for name, kind in (("file", "file"), ("", "folder"), ("new", "new"), ("a/b", "nothing")):
        path = tmp_path / name
        found = said(asked=json.dumps({"do": "look", "path": str(path)}))
        assert (found["kind"], found["node"]) == (kind, os.path.realpath(path))
        assert kind != "file" or found["size_bytes"] == 4096
