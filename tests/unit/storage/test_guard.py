"""The device guard's judgement, on surveys as a host would report them; the real ones are made in the lab."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.hosts import Host, NamespaceHost
from harness.hosts.runner import Completed
from harness.model.errors import CellInvalid, CommandFailed, DeviceRefused, UsageError
from harness.storage import guard
from harness.storage.guard import Block, Device, Signature, Survey
from harness.storage.programs import survey
from harness.storage.transport import Exported

MIB = 1 << 20
DISK = Block(
    number="8:16",
    node="/dev/sdb",
    size_bytes=64 * MIB,
    serial="S3R1AL",
    wwn="naa.5000c500a1b2c3d4",
    diskseq="7",
)
PARTITION = Block(number="8:17", via="partition", below="8:16", node="/dev/sdb1", size_bytes=32 * MIB)
VOLUME = Block(
    number="254:0",
    via="holder",
    below="8:17",
    node="/dev/dm-0",
    dm_name="my--vg-home",
    dm_uuid="LVM-0123456789abcdef",
)
LOOP = Block(number="7:3", via="loop", below="8:16", node="/dev/loop3")

NVMET = {"over NVMe by the subsystem nqn.x": False}


def lio(backstore: str) -> dict[str, bool]:
    return {f"by LIO as the backstore {backstore}": True}


RECORDED = """\
{"found": "", "blocks": [{"number": "1:24", "via": "", "below": "", "node": "/dev/ram6", "size_bytes":
33554432, "read_only": false, "serial": "", "wwn": "", "model": "", "diskseq": "15", "dm_name": "",
"dm_uuid": "", "md_level": "", "bcache": false, "problem": "", "busy": true, "btrfs": "", "swap": false,
"mounts": {}, "exports": {}, "writers": {}}, {"number": "1:25", "via": "partition", "below": "1:24", "node":
"/dev/ram6p1", "size_bytes": 16777216, "read_only": false, "serial": "", "wwn": "", "model": "", "diskseq":
"15", "dm_name": "", "dm_uuid": "", "md_level": "", "bcache": false, "problem": "", "busy": true, "btrfs":
"", "swap": false, "mounts": {}, "exports": {}, "writers": {}}, {"number": "254:0", "via": "holder",
"below": "1:25", "node": "/dev/dm-0", "size_bytes": 8388608, "read_only": false, "serial":
"LVM-0123456789abcdef", "wwn": "", "model": "", "diskseq": "17", "dm_name": "vg0-big--home", "dm_uuid":
"LVM-0123456789abcdef", "md_level": "", "bcache": false, "problem": "", "busy": false, "btrfs": "", "swap":
false, "mounts": {"/run/volume": ""}, "exports": {}, "writers": {}}]}"""
"""As the lab's kernel reported it: ext4 on a device mapper volume on a partition."""


UNRESERVED = '{"keys": [0, "0000000000000000"], "reservation": [0, "0000000000000000"], "full": [0, ""]}'
REGISTERED = UNRESERVED.replace("0000000000000000", "00000001000000080000000000abcdef", 1)


@dataclass(frozen=True, eq=False)
class Surveyed(NamespaceHost):
    """Answers the survey and wipefs with what it is given, and remembers what was run."""

    survey: Survey | str = ""
    signatures: Sequence[Signature] | str = ()
    ran: list[tuple[str, ...]] = field(default_factory=list)
    reserved: list[str] = field(default_factory=lambda: [UNRESERVED])

    def _run(
        self, argv: Sequence[str], input: str | None, timeout_s: float, env: Mapping[str, str]
    ) -> Completed:
        del input, timeout_s, env
        self.ran.append(tuple(argv))
        if "-c" in argv:
            answer = self.reserved.pop(0) if len(self.reserved) > 1 else self.reserved[0]
            return Completed(argv=tuple(argv), status=0, stdout=answer, stderr="")
        reported = self.signatures if argv[0] == "wipefs" else self.survey
        wrapped = reported if isinstance(reported, Survey) else {"signatures": reported}
        answer = reported if isinstance(reported, str) else msgspec.json.encode(wrapped).decode()
        return Completed(argv=tuple(argv), status=0, stdout=answer, stderr="")


def ask(
    *blocks: Block,
    path: str = "/dev/sdb",
    destroy: str | None = None,
    signatures: Sequence[Signature] = (),
    needed_bytes: int = MIB,
) -> Device:
    host: Host = Surveyed("target", None, Survey("", blocks), signatures)
    # Equal words of a command line are never the same object.
    destroy = destroy and "".join(list(destroy))
    return guard.require_writable(host, path, destroy=destroy, needed_bytes=needed_bytes)


def changed(block: Block, **changes: Any) -> Block:
    return msgspec.structs.replace(block, **changes)


def test_blank_disk_may_be_written() -> None:
    device = ask(DISK)
    assert (device.node, device.number, device.size_bytes) == ("/dev/sdb", "8:16", 64 * MIB)
    assert (device.serial, device.wwn, device.diskseq) == ("S3R1AL", "naa.5000c500a1b2c3d4", "7")
    assert not device.uses
    assert not device.signatures


@pytest.mark.parametrize(
    ("blocks", "sentence"),
    [
        ([changed(DISK, mounts={"/home": ""})], "it is mounted on /home"),
        (
            [DISK, changed(PARTITION, mounts={"/": "", "/var": ""})],
            "its partition /dev/sdb1 is mounted on /, its partition /dev/sdb1 is mounted on /var",
        ),
        ([changed(DISK, mounts={"/data": "4711"})], "it is mounted on /data (seen by process 4711)"),
        ([changed(DISK, swap=True)], "it is swap"),
        ([DISK, changed(PARTITION, swap=True)], "its partition /dev/sdb1 is swap"),
        (
            [DISK, PARTITION, changed(VOLUME, mounts={"/home": ""})],
            "its partition /dev/sdb1 is a physical volume of LVM volume group my-vg (holder dm-0), "
            "my--vg-home on it is mounted on /home",
        ),
        (
            [DISK, changed(VOLUME, below="8:16", dm_name="safe", dm_uuid="CRYPT-LUKS2-0-safe")],
            "it is an encrypted volume opened as safe (holder dm-0)",
        ),
        (
            [DISK, changed(VOLUME, below="8:16", dm_name="mpatha", dm_uuid="mpath-3600")],
            "it is a path of the multipath device mpatha (holder dm-0)",
        ),
        (
            [DISK, changed(VOLUME, below="8:16", dm_name="part1", dm_uuid="")],
            "it is used by the device mapper for part1 (holder dm-0)",
        ),
        (
            [DISK, Block(number="9:0", via="holder", below="8:16", node="/dev/md0", md_level="raid1")],
            "it is part of the md array md0 (raid1)",
        ),
        (
            [DISK, Block(number="251:0", via="holder", below="8:16", node="/dev/bcache0")],
            "it is held by bcache0",
        ),
        (
            [DISK, LOOP],
            "it is behind the loop device loop3",
        ),
        (
            [
                DISK,
                LOOP,
                Block(
                    number="259:0",
                    via="partition",
                    below="7:3",
                    node="/dev/loop3p1",
                    mounts={"/srv": ""},
                ),
            ],
            "it is behind the loop device loop3, its partition /dev/loop3p1 is mounted on /srv",
        ),
        (
            [
                changed(PARTITION, via="", below=""),
                changed(DISK, via="disk", below="8:17", exports=lio("iblock_0/x")),
            ],
            "its disk /dev/sdb is exported by LIO as the backstore iblock_0/x",
        ),
        (
            [DISK, Block(number="8:32", via="twin", below="8:16", node="/dev/sdc", mounts={"/srv": ""})],
            "/dev/sdc, another path to the same disk, is mounted on /srv",
        ),
        (
            [DISK, Block(number="8:0", via="backing", below="8:16", node="/dev/sda", mounts={"/srv": ""})],
            "/dev/sda, which is behind it, is mounted on /srv",
        ),
        ([changed(DISK, bcache=True)], "it is registered with bcache"),
        ([changed(DISK, btrfs="0a1b")], "it is part of the mounted btrfs file system 0a1b"),
        ([changed(DISK, exports=lio("iblock_0/nas"))], "it is exported by LIO as the backstore iblock_0/nas"),
        ([changed(DISK, exports=NVMET)], "it is exported over NVMe by the subsystem nqn.x"),
        (
            [changed(DISK, writers={"99": "qemu-system-x86"})],
            "it is open for writing by qemu-system-x86 (process 99)",
        ),
        ([changed(DISK, busy=True)], "something invisible has opened it exclusively"),
        ([DISK, changed(PARTITION, busy=True)], "something invisible has opened it exclusively"),
    ],
)
def test_what_is_in_use_is_refused_whatever_is_typed(blocks: list[Block], sentence: str) -> None:
    for destroy in (None, blocks[0].node):
        with pytest.raises(DeviceRefused) as refusal:
            ask(*blocks, path=blocks[0].node, destroy=destroy)
        assert refusal.value.message.startswith(f"{blocks[0].node} is in use: ")
        assert sentence in refusal.value.message
        assert refusal.value.hint


@pytest.mark.parametrize(
    ("kind", "label", "sentence"),
    [
        ("zfs_member", "tank", "it is part of the imported ZFS pool tank"),
        ("zfs_member", None, "it is part of the imported ZFS pool of unknown name"),
        ("ceph_bluestore", None, "it is held by a Ceph OSD"),
        ("drbd", None, "it is held by DRBD"),
        ("ext4", None, "something invisible"),
    ],
)
def test_a_signature_gives_an_unseen_holder_away(kind: str, label: str | None, sentence: str) -> None:
    with pytest.raises(DeviceRefused, match=sentence):
        ask(changed(DISK, busy=True), destroy="/dev/sdb", signatures=[Signature("sdb", kind, None, label)])


def test_the_hint_frees_from_the_top_down_and_quotes() -> None:
    with pytest.raises(DeviceRefused) as refusal:
        ask(DISK, PARTITION, changed(VOLUME, mounts={"/a b; reboot": ""}))
    assert (
        refusal.value.hint
        == "free it with `umount '/a b; reboot' && vgchange --activate n my-vg`, or name another device"
    )


def test_nobody_is_reported_to_unmount_the_root() -> None:
    with pytest.raises(DeviceRefused) as refusal:
        ask(DISK, changed(PARTITION, mounts={"/": ""}))
    assert refusal.value.hint == "name another device"


@pytest.mark.parametrize(
    ("count", "end", "hint"),
    [
        (
            4,
            "/m2, it is mounted on /m3",
            "umount /m3 && umount /m2 && umount /m1 && umount /m0`, or name another device",
        ),
        (5, "/m3, and 1 more", "name another device"),
        (10, "/m3, and 6 more", "name another device"),
    ],
)
def test_many_uses_are_counted(count: int, end: str, hint: str) -> None:
    with pytest.raises(DeviceRefused) as refusal:
        ask(changed(DISK, mounts={f"/m{number}": "" for number in range(count)}))
    assert refusal.value.message.endswith(end)
    assert (refusal.value.hint or "").removeprefix("free it with `") == hint


@pytest.mark.parametrize(
    ("label", "hint"),
    [("tank", "free it with `zpool export tank`, or name another device"), (None, "name another device")],
)
def test_an_imported_pool_can_be_freed_if_its_name_is_known(label: str | None, hint: str) -> None:
    with pytest.raises(DeviceRefused) as refusal:
        ask(changed(DISK, busy=True), signatures=[Signature("sdb", "zfs_member", None, label)])
    assert refusal.value.hint == hint


@pytest.mark.parametrize(
    ("blocks", "nodes"),
    [
        ([DISK], ["/dev/sdb"]),
        ([DISK, PARTITION], ["/dev/sdb", "/dev/sdb1"]),
        # wipefs fails at what has no size, such as a reader without a card.
        ([DISK, changed(PARTITION, size_bytes=0)], ["/dev/sdb"]),
        ([changed(DISK, size_bytes=0)], None),
        # What lies on the disk is in use: that alone has it refused.
        ([DISK, changed(VOLUME, below="8:16", size_bytes=MIB)], ["/dev/sdb"]),
        ([DISK, PARTITION, changed(VOLUME, size_bytes=MIB)], ["/dev/sdb", "/dev/sdb1"]),
        ([DISK, LOOP, changed(PARTITION, below="7:3", node="/dev/loop3p1")], ["/dev/sdb"]),
    ],
)
def test_signatures_are_those_of_the_disk_and_of_its_partitions(
    blocks: list[Block], nodes: list[str] | None
) -> None:
    host = Surveyed("target", None, Survey("", tuple(blocks)))
    guard.inspect(host, "/dev/sdb")
    asked = [list(argv[argv.index("--") + 1 :]) for argv in host.ran if argv[0] == "wipefs"]
    assert asked == ([] if nodes is None else [nodes])


def test_partitions_are_those_of_the_disk_and_not_of_what_is_on_it() -> None:
    blocks = (
        DISK,
        changed(VOLUME, below="8:16"),
        PARTITION,
        LOOP,
        changed(PARTITION, below="7:3", node="/dev/loop3p1"),
    )
    assert guard.inspect(Surveyed("target", None, Survey("", blocks)), "/dev/sdb").partitions == (
        "/dev/sdb1",
    )


def test_each_signature_is_said_of_the_device_that_bears_it() -> None:
    found = [Signature("sdb", "dos", "partition-table"), Signature("sdb1", "xfs", "filesystem", "data")]
    second = changed(PARTITION, number="8:18", node="/dev/sdb2")
    device = ask(DISK, PARTITION, second, signatures=found, destroy="/dev/sdb")
    assert device.signatures == (
        "dos partition table",
        "xfs file system 'data' on its partition /dev/sdb1",
        "the partition /dev/sdb2",
    )


def test_mount_points_cannot_drive_a_terminal() -> None:
    with pytest.raises(DeviceRefused) as refusal:
        ask(changed(DISK, mounts={"/a\x1b[2J\nb": ""}))
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("destroy", [None, "/dev/sdb"])
def test_a_device_that_cannot_be_opened_is_refused_and_not_probed(destroy: str | None) -> None:
    host = Surveyed("target", None, Survey("", (changed(DISK, problem="Permission denied"),)))
    with pytest.raises(DeviceRefused, match="could not be opened: Permission denied"):
        guard.require_writable(host, "/dev/sdb", destroy=destroy, needed_bytes=MIB)
    assert len(host.ran) == 1


def test_a_read_only_device_is_refused() -> None:
    with pytest.raises(DeviceRefused, match="/dev/sdb is read-only"):
        ask(changed(DISK, read_only=True), destroy="/dev/sdb")


@pytest.mark.parametrize("size_bytes", [0, 64 * MIB - 512])
def test_a_small_device_is_refused(size_bytes: int) -> None:
    assert ask(DISK, needed_bytes=64 * MIB)
    with pytest.raises(DeviceRefused, match="64 MiB are needed"):
        ask(changed(DISK, size_bytes=size_bytes), destroy="/dev/sdb", needed_bytes=64 * MIB)


@pytest.mark.parametrize(
    ("blocks", "signatures", "sentence"),
    [
        ([DISK], [Signature("sdb", "ext4", "filesystem", "my data")], "ext4 file system 'my data'"),
        (
            [DISK],
            [Signature("sdb", "gpt", "partition-table"), Signature("sdb", "gpt", "partition-table")],
            "found on it: gpt partition table",
        ),
        ([DISK], [Signature("sdb", "LVM2_member", "raid")], "LVM2_member (a part of a larger volume)"),
        ([DISK], [Signature("sdb", "crypto_LUKS", "crypto")], "crypto_LUKS (encrypted)"),
        ([DISK], [Signature("sdb", "swap", "other")], "found on it: swap"),
        (
            [DISK, PARTITION],
            [Signature("sdb1", "xfs", "filesystem")],
            "xfs file system on its partition /dev/sdb1",
        ),
        ([DISK, PARTITION], [], "the partition /dev/sdb1"),
    ],
)
def test_what_bears_a_signature_needs_its_name_typed_again(
    blocks: list[Block], signatures: list[Signature], sentence: str
) -> None:
    with pytest.raises(DeviceRefused) as refusal:
        ask(*blocks, signatures=signatures)
    assert refusal.value.message.endswith(sentence)
    assert refusal.value.hint == "if all of that may be lost, add --destroy /dev/sdb"
    assert ask(*blocks, signatures=signatures, destroy="/dev/sdb").signatures


@pytest.mark.parametrize("destroy", ["", "/dev/sdc", "sdb", "/dev/sd?", "/dev/sdb ", "/dev//sdb", "*", "yes"])
@pytest.mark.parametrize("signatures", [[], [Signature("sdb", "ext4", "filesystem")]])
def test_consent_is_the_same_word_or_none(destroy: str, signatures: list[Signature]) -> None:
    with pytest.raises(DeviceRefused, match="but --destroy names"):
        ask(DISK, destroy=destroy, signatures=signatures)


def test_a_symbolic_link_is_named_with_what_it_leads_to() -> None:
    link = "/dev/disk/by-id/ata-X $(reboot):0"
    ext4 = [Signature("sdb", "ext4", "filesystem")]
    with pytest.raises(DeviceRefused) as refusal:
        ask(DISK, path=link, signatures=ext4)
    assert refusal.value.message.startswith(f"{link} (/dev/sdb) is not blank")
    assert refusal.value.hint is not None
    assert refusal.value.hint.endswith(f"--destroy '{link}'")
    with pytest.raises(DeviceRefused, match="both must be the same word"):
        ask(DISK, path=link, signatures=ext4, destroy="/dev/sdb")
    assert ask(DISK, path=link, signatures=ext4, destroy=link).node == "/dev/sdb"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "sdb",
        "../dev/sdb",
        "/dev/../dev/sdb",
        "-n",
        "/dev/s\0db",
        "/dev/sdb\n",
        "/dev/\x1b[2J",
        "/dev/\udcff",
    ]
    + ["/dev/" + "a" * 256, "/dev/" + "ä" * 128, "/a" * 2048],
)
def test_what_cannot_be_a_name_never_reaches_the_host(path: str) -> None:
    host = Surveyed("target", None, Survey("", (DISK,)))
    with pytest.raises(UsageError, match="expected the absolute path"):
        guard.require_writable(host, path, destroy=path, needed_bytes=MIB)
    assert not host.ran


@pytest.mark.parametrize("path", ["/dev/" + "a" * 255, "/dev/" + "ä" * 127, "/a" * 2047 + "/"])
def test_the_longest_name_that_linux_has_may_be_a_device(path: str) -> None:
    """255 bytes each part, 4095 the whole: PATH_MAX counts the NUL."""
    assert ask(DISK, path=path).path == path


@pytest.mark.parametrize(
    "path", ["/dev/sda; reboot", "/dev/$(reboot)", "/dev/%1:*", "/dev/-rf", "/dev/a'\"b"]
)
def test_metacharacters_stay_one_argument(path: str) -> None:
    host = Surveyed("target", None, Survey("", (DISK,)))
    guard.inspect(host, path)
    assert [argv[-1] for argv in host.ran] == [path, "/dev/sdb"]


def test_what_is_no_block_device_is_refused(tmp_path: Path) -> None:
    """The very program that runs on hosts, on this one."""
    host = NamespaceHost(name="target")
    file = tmp_path / "odd $(name)"
    file.write_text("x")
    for path, found in (
        (file, "a regular file"),
        (tmp_path, "a directory"),
        (Path("/dev/null"), "a character device"),
        (tmp_path / "missing", "nothing of that name"),
        (file / "below", "out of reach"),
    ):
        with pytest.raises(DeviceRefused, match=f"to be a block device, found {found}"):
            guard.require_writable(host, str(path), destroy=str(path), needed_bytes=1)
    assert file.read_text() == "x"


def test_a_recorded_survey_is_understood() -> None:
    host = Surveyed("target", None, RECORDED, [Signature("ram6", "dos", "partition-table")])
    device = guard.inspect(host, "/dev/ram6")
    assert device.partitions == ("/dev/ram6p1",)
    assert [use.what for use in device.uses] == [
        "its partition /dev/ram6p1 is a physical volume of LVM volume group vg0 (holder dm-0)",
        "vg0-big--home on it is mounted on /run/volume",
    ]
    assert host.ran[1][-2:] == ("/dev/ram6", "/dev/ram6p1")


@pytest.mark.parametrize("answer", ["", "{", '{"blocks": 3}', "Segmentation fault"])
def test_an_answer_that_makes_no_sense_is_an_error(answer: str) -> None:
    with pytest.raises(CommandFailed, match="cannot be understood"):
        guard.inspect(Surveyed("target", None, answer), "/dev/sdb")
    host = Surveyed("target", None, Survey("", (DISK,)), answer)
    with pytest.raises(CommandFailed, match="cannot be understood"):
        guard.inspect(host, "/dev/sdb")


@pytest.mark.parametrize(
    "block",
    [
        DISK,
        changed(DISK, exports=lio("iblock_0/harness-x")),
        changed(DISK, exports=lio("iblock_0/x"), busy=True),
        changed(DISK, exports=lio("iblock_0/x") | NVMET, busy=True),
    ],
)
def test_the_same_disk_passes_again_even_when_it_is_exported(block: Block) -> None:
    host = Surveyed("target", None, Survey("", (block,)))
    guard.recheck(host, ask(DISK, path="/dev/disk/by-id/x"))
    assert host.ran[0][-1] == "/dev/sdb"
    assert len(host.ran) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"number": "8:32"}, "its device number was 8:16 and is 8:32"),
        ({"size_bytes": 32 * MIB}, "its size in bytes was 67108864 and is 33554432"),
        ({"serial": "other"}, "its serial number was S3R1AL and is other"),
        ({"wwn": ""}, "its WWN was naa.5000c500a1b2c3d4 and is none"),
        ({"diskseq": "8"}, "its disk sequence number was 7 and is 8"),
        ({"mounts": {"/mnt": ""}, "exports": lio("iblock_0/x")}, "it is mounted on /mnt"),
        ({"busy": True}, "something invisible has opened it"),
        ({"busy": True, "exports": NVMET}, "has opened it exclusively"),
        ({"read_only": True}, "it has become read-only"),
        ({"problem": "No such device"}, "it cannot be opened any more: No such device"),
    ],
)
def test_another_disk_under_the_run_makes_the_cell_invalid(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CellInvalid) as error:
        guard.recheck(Surveyed("target", None, Survey("", (changed(DISK, **changes),))), ask(DISK))
    assert sentence in error.value.message


def test_a_disk_that_is_gone_makes_the_cell_invalid() -> None:
    with pytest.raises(CellInvalid, match="is gone"):
        guard.recheck(Surveyed("target", None, Survey("nothing of that name")), ask(DISK))


def test_a_process_that_exports_a_device_is_no_other_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file says which process it is. One whose command line lacks that file is another's."""
    devices, process = tmp_path / "devices", tmp_path / "process"
    devices.mkdir()
    (devices / "a").write_text("/dev/sdb\n", encoding="utf-8")
    monkeypatch.setattr(survey, "_number", lambda path: {"/dev/sdb": "8:16"}.get(path, ""))
    kind = Exported(devices=f"{devices}/*", name=(-2, -1), as_what="at", process="../process")
    program = ["sh", "-c", "echo begun; read nothing", "sh", str(process)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stdout.readline()
        process.write_text(f"{server.pid}\n", encoding="utf-8")
        found = survey._exports([dataclasses.asdict(kind)])
        process.write_text(f"{os.getpid()}\n", encoding="utf-8")
        others = survey._exports([dataclasses.asdict(kind)])
    assert found == ({"8:16": {"at devices": False}}, {"8:16": {str(server.pid)}})
    assert others == ({}, {})


TWIN = Block(number="8:32", via="twin", below="8:16", node="/dev/sdc")


def unit(*blocks: Block, signatures: Sequence[Signature] = (), reserved: str = UNRESERVED) -> Surveyed:
    return Surveyed("initiator", None, Survey("", blocks), signatures, reserved=[reserved])


def test_a_blank_unit_that_nobody_else_has_may_be_written_though_the_kernel_takes_no_writes_yet() -> None:
    host = unit(changed(DISK, read_only=True))
    device = guard.require_unit(host, "/dev/sdb", needed_bytes=64 * MIB)
    assert (device.node, device.reserved, device.twins) == ("/dev/sdb", "", ())
    assert [argv[0] for argv in host.ran if argv[0] == "wipefs"] == ["wipefs"]


@pytest.mark.parametrize(
    ("host", "message", "hint"),
    [
        (
            unit(DISK, signatures=[Signature("sdb", "ext4", "filesystem")]),
            "/dev/sdb is not blank; found on it: ext4 file system",
            "another machine may use that: make an empty LUN, or remove it where it is used (wipefs)",
        ),
        (
            unit(DISK, signatures=[Signature("sdb", "LVM2_member", "raid")]),
            "/dev/sdb is not blank; found on it: LVM2_member (a part of a larger volume)",
            None,
        ),
        (unit(DISK, PARTITION), "/dev/sdb is not blank; found on it: the partition /dev/sdb1", None),
        (
            unit(DISK, TWIN, changed(TWIN, number="8:48", node="/dev/sdd")),
            "/dev/sdb is in use: it has another path here, /dev/sdd",
            "log out of its other sessions, and let go of it with `multipath -f`",
        ),
        (
            unit(DISK, reserved=REGISTERED),
            "/dev/sdb is in use: 1 key for reservations registered",
            "name another LUN, or end that use there",
        ),
        (unit(changed(DISK, mounts={"/a": ""})), "/dev/sdb is in use: it is mounted on /a", None),
        (unit(changed(DISK, problem="No medium found")), "/dev/sdb could not be opened", None),
        (unit(changed(DISK, size_bytes=63 * MIB)), "/dev/sdb has 63 MiB, but 64 MiB are needed", None),
    ],
)
def test_a_unit_that_somebody_has_is_refused_whatever_is_typed(
    host: Surveyed, message: str, hint: str | None
) -> None:
    with pytest.raises(DeviceRefused) as refusal:
        guard.require_unit(host, "/dev/sdb", needed_bytes=64 * MIB, ours=["/dev/sdc"])
    assert refusal.value.message.startswith(message), refusal.value.message
    assert refusal.value.hint == hint if hint else refusal.value.hint


def test_the_run_s_own_paths_to_a_unit_are_no_others() -> None:
    assert guard.require_unit(unit(DISK, TWIN), "/dev/sdb", needed_bytes=MIB, ours=["/dev/sdc"]).twins == (
        "/dev/sdc",
    )
    with pytest.raises(DeviceRefused, match="another path here, /dev/sdc"):
        guard.require_unit(unit(DISK, TWIN), "/dev/sdb", needed_bytes=MIB)
    # Of a disk of one's own another path is no reason: whether anybody uses it is seen here.
    assert ask(DISK, TWIN).twins == ("/dev/sdc",)


def test_before_each_write_nobody_else_may_have_come_to_a_unit() -> None:
    device = guard.require_unit(unit(DISK), "/dev/sdb", needed_bytes=MIB)
    guard.recheck(unit(DISK, TWIN), device, ours=["/dev/sdc"])
    with pytest.raises(CellInvalid, match="same disk, but it has another path here, /dev/sdc"):
        guard.recheck(unit(DISK, TWIN), device, ours=["/dev/sdd"])
    with pytest.raises(CellInvalid, match="but 1 key for reservations registered"):
        guard.recheck(unit(DISK, reserved=REGISTERED), device, ours=())
    # A disk of one's own is asked for neither.
    guard.recheck(unit(DISK, TWIN, reserved=REGISTERED), device)
