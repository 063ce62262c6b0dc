"""The device guard's judgement, on surveys as a host would report them; the real ones are made in the lab."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.hosts import NamespaceHost, programs
from harness.model.errors import CellInvalid, CommandFailed, DeviceRefused, UsageError
from harness.storage import guard
from harness.storage.guard import Block, Device, Signature, Survey
from harness.storage.programs import survey
from harness.storage.transport import Exported
from tests.unit.fakes import World

MIB = 1 << 20
SDB = "/dev/sdb"
DISK = Block(number="8:16", node=SDB, size_bytes=64 * MIB, serial="S3R1AL", wwn="naa.5000c5", diskseq="7")
PARTITION = Block(number="8:17", via="partition", below="8:16", node="/dev/sdb1", size_bytes=32 * MIB)
HELD = Block(number="254:0", via="holder", below="8:16", node="/dev/dm-0")
VOLUME = msgspec.structs.replace(HELD, below="8:17", dm_name="my--vg-home", dm_uuid="LVM-0123456789abcdef")
LOOP = Block(number="7:3", via="loop", below="8:16", node="/dev/loop3")
ON_LOOP = Block(number="259:0", via="partition", below="7:3", node="/dev/loop3p1", size_bytes=MIB)
TWIN = Block(number="8:32", via="twin", below="8:16", node="/dev/sdc")
disk, partition, held, volume, on_loop, twin = (
    partial(msgspec.structs.replace, block) for block in (DISK, PARTITION, HELD, VOLUME, ON_LOOP, TWIN)
)

LIO = {"by LIO as the backstore iblock_0/x": True}
NVMET = {"over NVMe by the subsystem nqn.x": False}
EXT4 = Signature("sdb", "ext4", "filesystem")

RECORDED = """\
{"found": "", "blocks": [{"number": "1:24", "node": "/dev/ram6", "size_bytes": 33554432, "busy": true},
{"number": "1:25", "via": "partition", "below": "1:24", "node": "/dev/ram6p1", "size_bytes": 16777216, "busy":
true}, {"number": "254:0", "via": "holder", "below": "1:25", "node": "/dev/dm-0", "size_bytes": 8388608,
"read_only": false, "serial": "LVM-0123456789abcdef", "wwn": "", "model": "", "diskseq": "17", "dm_name":
"vg0-big--home", "dm_uuid": "LVM-0123456789abcdef", "md_level": "", "bcache": false, "problem": "", "busy":
false, "btrfs": "", "swap": false, "mounts": {"/run/volume": ""}, "exports": {}, "writers": {}}]}"""
"""As the lab's kernel reported it: ext4 on a device mapper volume on a partition."""

UNRESERVED = '{"keys": [0, "0000000000000000"], "reservation": [0, "0000000000000000"], "full": [0, ""]}'
REGISTERED = UNRESERVED.replace("0000000000000000", "00000001000000080000000000abcdef", 1)

IN_USE: dict[str, list[Block]] = {
    "it is mounted on /home": [disk(mounts={"/home": ""})],
    "its partition /dev/sdb1 is mounted on /, its partition /dev/sdb1 is mounted on /var": [
        *(DISK, partition(mounts={"/": "", "/var": ""}))
    ],
    "it is mounted on /data (seen by process 4711)": [disk(mounts={"/data": "4711"})],
    r"it is mounted on /a\x1b[2J\nb": [disk(mounts={"/a\x1b[2J\nb": ""})],
    "it is swap": [disk(swap=True)],
    "its partition /dev/sdb1 is swap": [DISK, partition(swap=True)],
    "its partition /dev/sdb1 is a physical volume of LVM volume group my-vg (holder dm-0), "
    "my--vg-home on it is mounted on /home": [DISK, PARTITION, volume(mounts={"/home": ""})],
    "it is an encrypted volume opened as safe (holder dm-0)": [
        *(DISK, held(dm_name="safe", dm_uuid="CRYPT-LUKS2-0-safe"))
    ],
    "it is a path of the multipath device mpatha (holder dm-0)": [
        *(DISK, held(dm_name="mpatha", dm_uuid="mpath-3600"))
    ],
    "it is used by the device mapper for part1 (holder dm-0)": [DISK, held(dm_name="part1")],
    "it is part of the md array md0 (raid1)": [DISK, held(node="/dev/md0", md_level="raid1")],
    "it is held by bcache0": [DISK, held(node="/dev/bcache0")],
    "it is behind the loop device loop3": [DISK, LOOP],
    "it is behind the loop device loop3, its partition /dev/loop3p1 is mounted on /srv": [
        *(DISK, LOOP, on_loop(mounts={"/srv": ""}))
    ],
    "its disk /dev/sdb is exported by LIO as the backstore iblock_0/x": [
        *(partition(via="", below=""), disk(via="disk", below="8:17", exports=LIO))
    ],
    "/dev/sdc, another path to the same disk, is mounted on /srv": [DISK, twin(mounts={"/srv": ""})],
    "/dev/sdc, which is behind it, is mounted on /srv": [DISK, twin(via="backing", mounts={"/srv": ""})],
    "it is registered with bcache": [disk(bcache=True)],
    "it is part of the mounted btrfs file system 0a1b": [disk(btrfs="0a1b")],
    "it is exported by LIO as the backstore iblock_0/x": [disk(exports=LIO)],
    "it is exported over NVMe by the subsystem nqn.x": [disk(exports=NVMET)],
    "it is open for writing by qemu-system-x86 (process 99)": [disk(writers={"99": "qemu-system-x86"})],
    "something invisible has opened it exclusively, such as": [disk(busy=True)],
    "something invisible has opened it exclusively": [DISK, partition(busy=True)],
}
BORNE: dict[str, list[Signature]] = {
    "ext4 file system 'my data'": [Signature("sdb", "ext4", "filesystem", "my data")],
    "gpt partition table": [Signature("sdb", "gpt", "partition-table")] * 2,
    "LVM2_member (a part of a larger volume)": [Signature("sdb", "LVM2_member", "raid")],
    "crypto_LUKS (encrypted)": [Signature("sdb", "crypto_LUKS", "crypto")],
    "swap": [Signature("sdb", "swap", "other")],
    "the partition /dev/sdb1": [],
    "dos partition table, xfs file system 'data' on its partition /dev/sdb1, the partition /dev/sdb2": [
        *(Signature("sdb", "dos", "partition-table"), Signature("sdb1", "xfs", "filesystem", "data"))
    ],
}


def machine(
    *blocks: Block, signatures: Sequence[Signature] = (), found: str = "", reserved: str = UNRESERVED
) -> World:
    """Where the survey, wipefs and a target answer that."""
    seen = msgspec.json.encode(Survey(found, blocks)).decode()
    borne = msgspec.json.encode({"signatures": signatures}).decode()
    python = (programs.PYTHON, "-I", "-S")
    starts = (*python, "-"), ("wipefs",), (*python, "-c")
    return World(
        answers=[(s, (0, said, "")) for s, said in zip(starts, (seen, borne, reserved), strict=True)]
    )


def ask(*blocks: Block, path: str = SDB, destroy: str | None = None, **found: Any) -> Device:
    # Equal words of a command line are never the same object.
    destroy = destroy and "".join(list(destroy))
    host = machine(*blocks, **found).host("target")
    return guard.require_writable(host, path, destroy=destroy, needed_bytes=64 * MIB)


def refused(*blocks: Block, **asked: Any) -> tuple[str, str]:
    """The message and the hint."""
    with pytest.raises(DeviceRefused) as refusal:
        ask(*blocks, **asked)
    assert str(refusal.value).isprintable()
    return refusal.value.message, refusal.value.hint or ""


def test_blank_disk_may_be_written() -> None:
    assert ask(DISK) == Device(**msgspec.structs.asdict(DISK), path=SDB)


@pytest.mark.parametrize("sentence", IN_USE)
def test_what_is_in_use_is_refused_whatever_is_typed(sentence: str) -> None:
    blocks = IN_USE[sentence]
    for destroy in (None, blocks[0].node):
        message, hint = refused(*blocks, path=blocks[0].node, destroy=destroy)
        assert message.startswith(f"{blocks[0].node} is in use: {sentence}") and hint


def test_a_signature_gives_an_unseen_holder_away() -> None:
    for kind, label, sentence, remedy in (
        ("zfs_member", "tank", "it is part of the imported ZFS pool tank", "zpool export tank"),
        ("zfs_member", None, "it is part of the imported ZFS pool of unknown name", ""),
        ("ceph_bluestore", None, "it is held by a Ceph OSD", ""),
        ("drbd", None, "it is held by DRBD", ""),
        ("ext4", None, "something invisible", ""),
    ):
        signatures = [Signature("sdb", kind, None, label)]
        message, hint = refused(disk(busy=True), destroy=SDB, signatures=signatures)
        assert message.startswith(f"/dev/sdb is in use: {sentence}")
        assert hint == (f"free it with `{remedy}`, or " if remedy else "") + "name another device"


def test_a_few_uses_are_freed_from_the_top_down_and_many_are_counted() -> None:
    mounted = [[disk(mounts={f"/m{number}": "" for number in range(count)})] for count in (4, 5, 10)]
    for blocks, end, remedies in (
        (
            *([DISK, PARTITION, volume(mounts={"/a b; x": ""})], "x"),
            "umount '/a b; x' && vgchange --activate n my-vg",
        ),
        # Nobody can free the root file system.
        ([DISK, partition(mounts={"/": ""})], "on /", ""),
        (mounted[0], "/m2, it is mounted on /m3", "umount /m3 && umount /m2 && umount /m1 && umount /m0"),
        (mounted[1], "/m3, and 1 more", ""),
        (mounted[2], "/m3, and 6 more", ""),
    ):
        message, hint = refused(*blocks)
        assert message.endswith(end)
        assert hint == (f"free it with `{remedies}`, or " if remedies else "") + "name another device"


def test_signatures_are_those_of_the_disk_and_of_its_partitions() -> None:
    # What lies on the disk is in use: that alone has it refused.
    users = [held(size_bytes=MIB), PARTITION, volume(size_bytes=MIB), LOOP, ON_LOOP]
    for blocks, probed, partitions in (
        ([DISK], [SDB], ()),
        ([DISK, *users], [SDB, "/dev/sdb1"], ("/dev/sdb1",)),
        # wipefs fails at what has no size, such as a reader without a card.
        ([DISK, partition(size_bytes=0)], [SDB], ("/dev/sdb1",)),
        ([disk(size_bytes=0)], None, ()),
        ([disk(problem="Permission denied")], None, ()),
    ):
        world = machine(*blocks)
        assert guard.inspect(world.host("target"), SDB).partitions == partitions
        asked = [[*c.argv[c.argv.index("--") + 1 :]] for c in world.commands if c.argv[0] == "wipefs"]
        assert asked == ([] if probed is None else [probed]), blocks


@pytest.mark.parametrize("destroy", [None, SDB])
def test_what_takes_no_writes_or_too_few_is_refused_whatever_is_typed(destroy: str | None) -> None:
    for block, sentence in (
        (disk(problem="Permission denied"), "could not be opened: Permission denied"),
        (disk(read_only=True), "is read-only"),
        (disk(size_bytes=0), "has 0 B, but 64 MiB are needed"),
        (disk(size_bytes=64 * MIB - 512), "64 MiB are needed"),
    ):
        message, hint = refused(block, destroy=destroy)
        assert message.startswith("/dev/sdb ") and message.endswith(sentence) and hint


@pytest.mark.parametrize("sentence", BORNE)
def test_what_bears_a_signature_needs_its_name_typed_again(sentence: str) -> None:
    second = partition(number="8:18", node="/dev/sdb2")
    blocks = [block for block in (DISK, PARTITION, second) if block is DISK or block.node in sentence]
    message, hint = refused(*blocks, signatures=BORNE[sentence])
    assert message == f"/dev/sdb is not blank; found on it: {sentence}"
    assert hint == "if all of that may be lost, add --destroy /dev/sdb"
    device = ask(*blocks, signatures=BORNE[sentence], destroy=SDB)
    assert ", ".join(device.signatures) == sentence


@pytest.mark.parametrize("destroy", ["", "/dev/sdc", "sdb", "/dev/sd?", "/dev/sdb ", "/dev//sdb", "*", "yes"])
def test_consent_is_the_same_word_or_none(destroy: str) -> None:
    for signatures in ([], [EXT4]):
        assert "but --destroy names" in refused(DISK, destroy=destroy, signatures=signatures)[0]


def test_a_symbolic_link_is_named_with_what_it_leads_to() -> None:
    link = "/dev/disk/by-id/ata-X $(reboot):0"
    linked: dict[str, Any] = {"path": link, "signatures": [EXT4]}
    for destroy, said in ((None, "is not blank"), (SDB, "is the device to be written to, but --destroy")):
        message, hint = refused(DISK, **linked, destroy=destroy)
        assert message.startswith(f"{link} (/dev/sdb) {said}")
        assert hint.endswith(f"--destroy '{link}'")
    assert ask(DISK, **linked, destroy=link).node == SDB


@pytest.mark.parametrize(
    "path",
    [
        *("", "sdb", "../dev/sdb", "/dev/../dev/sdb", "-n", "/dev/s\0db", "/dev/sdb\n", "/dev/\x1b[2J"),
        *("/dev/\udcff", "/dev/" + "a" * 256, "/dev/" + "ä" * 128, "/a" * 2048),
    ],
)
def test_what_cannot_be_a_name_never_reaches_the_host(path: str) -> None:
    world = machine(DISK)
    with pytest.raises(UsageError, match="expected the absolute path"):
        guard.require_writable(world.host("target"), path, destroy=path, needed_bytes=MIB)
    assert not world.commands


@pytest.mark.parametrize(
    "path",
    [
        *("/dev/sda; reboot", "/dev/$(reboot)", "/dev/%1:*", "/dev/-rf", "/dev/a'\"b"),
        # 255 bytes each part, 4095 the whole: PATH_MAX counts the NUL.
        *("/dev/" + "a" * 255, "/dev/" + "ä" * 127, "/a" * 2047 + "/"),
    ],
)
def test_the_longest_name_and_metacharacters_stay_one_argument(path: str) -> None:
    world = machine(DISK)
    assert guard.inspect(world.host("target"), path).path == path
    assert [command.argv[-1] for command in world.commands] == [path, SDB]


def test_what_is_no_block_device_is_refused(tmp_path: Path) -> None:
    """The very program that runs on hosts, on this one."""
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
            guard.require_writable(NamespaceHost("target"), str(path), destroy=str(path), needed_bytes=1)
    assert file.read_text() == "x"


def answering(number: int, answer: str) -> World:
    """A machine of whose programs one answers something else."""
    world = machine(DISK)
    world.answers[number] = (world.answers[number][0], (0, answer, ""))
    return world


def test_a_recorded_survey_is_understood() -> None:
    world = answering(0, RECORDED)
    device = guard.inspect(world.host("target"), "/dev/ram6")
    assert device.partitions == ("/dev/ram6p1",)
    assert [use.what for use in device.uses] == [
        "its partition /dev/ram6p1 is a physical volume of LVM volume group vg0 (holder dm-0)",
        "vg0-big--home on it is mounted on /run/volume",
    ]
    assert world.commands[1].argv[-2:] == ("/dev/ram6", "/dev/ram6p1")


@pytest.mark.parametrize("number", [0, 1])
def test_an_answer_that_makes_no_sense_is_an_error(number: int) -> None:
    for answer in ("", "{", '{"blocks": 3}', "Segmentation fault"):
        with pytest.raises(CommandFailed, match="cannot be understood"):
            guard.inspect(answering(number, answer).host("target"), SDB)


def test_the_same_disk_passes_again_even_when_it_is_exported() -> None:
    for exports, busy in (({}, False), (LIO, False), (LIO, True), (LIO | NVMET, True)):
        world = machine(disk(exports=exports, busy=busy))
        guard.recheck(world.host("target"), ask(DISK, path="/dev/disk/by-id/x"))
        assert [command.argv[-1] for command in world.commands] == [SDB]


def test_another_disk_under_the_run_makes_the_cell_invalid() -> None:
    for changes, sentence in (
        ({"number": "8:32"}, "its device number was 8:16 and is 8:32"),
        ({"size_bytes": 32 * MIB}, "its size in bytes was 67108864 and is 33554432"),
        ({"serial": "other"}, "its serial number was S3R1AL and is other"),
        ({"wwn": ""}, "its WWN was naa.5000c5 and is none"),
        ({"diskseq": "8"}, "its disk sequence number was 7 and is 8"),
        ({"mounts": {"/mnt": ""}, "exports": LIO}, "it is mounted on /mnt"),
        ({"busy": True}, "something invisible has opened it"),
        ({"busy": True, "exports": NVMET}, "something invisible has opened it"),
        ({"read_only": True}, "it has become read-only"),
        ({"problem": "No such device"}, "it cannot be opened any more: No such device"),
        (None, "it is gone"),
    ):
        world = machine(found="nothing of that name") if changes is None else machine(disk(**changes))
        why = f"^expected /dev/sdb still to be the same disk, but {sentence}"
        with pytest.raises(CellInvalid, match=why):
            guard.recheck(world.host("target"), ask(DISK))


def test_a_process_that_exports_a_device_is_no_other_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file says which process it is. One whose command line lacks that file is another's."""
    devices, process = tmp_path / "devices", tmp_path / "process"
    devices.mkdir()
    (devices / "a").write_text("/dev/sdb\n", encoding="utf-8")
    monkeypatch.setattr(survey, "_number", lambda path: {SDB: "8:16"}.get(path, ""))
    kind = Exported(devices=f"{devices}/*", name=(-2, -1), as_what="at", process="../process")
    program = ["sh", "-c", "echo begun; read nothing", "sh", str(process)]
    found = {}
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stdout.readline()
        for number in (server.pid, os.getpid()):
            process.write_text(f"{number}\n", encoding="utf-8")
            found[number] = survey._exports([dataclasses.asdict(kind)])
    ours = ({"8:16": {"at devices": False}}, {"8:16": {str(server.pid)}})
    assert found == {server.pid: ours, os.getpid(): ({}, {})}


def unit(world: World, ours: Sequence[str] = ()) -> Device:
    return guard.require_unit(world.host("initiator"), SDB, needed_bytes=64 * MIB, ours=ours)


def test_a_blank_unit_that_nobody_else_has_may_be_written_though_the_kernel_takes_no_writes_yet() -> None:
    world = machine(disk(read_only=True))
    device = unit(world)
    assert (device.node, device.reserved, device.twins) == (SDB, "", ())
    assert [command.argv[0] for command in world.commands].count("wipefs") == 1


def test_a_unit_that_somebody_has_is_refused_whatever_is_typed() -> None:
    for world, message, hint in (
        (
            machine(DISK, signatures=[EXT4]),
            "is not blank; found on it: ext4 file system",
            "make an empty LUN",
        ),
        (machine(DISK, PARTITION), "is not blank; found on it: the partition /dev/sdb1", "make an empty LUN"),
        (
            machine(DISK, TWIN, twin(number="8:48", node="/dev/sdd")),
            *("is in use: it has another path here, /dev/sdd", "multipath -f"),
        ),
        (machine(DISK, reserved=REGISTERED), "is in use: 1 key for reservations registered", "another LUN"),
        (machine(disk(mounts={"/a": ""})), "is in use: it is mounted on /a", "umount"),
        (machine(disk(problem="No medium found")), "could not be opened", "become root"),
        (machine(disk(size_bytes=63 * MIB)), "has 63 MiB, but 64 MiB are needed", "ask for less"),
    ):
        with pytest.raises(DeviceRefused) as refusal:
            unit(world, ours=["/dev/sdc"])
        assert refusal.value.message.startswith(f"/dev/sdb {message}"), refusal.value.message
        assert hint in (refusal.value.hint or "")


def test_the_run_s_own_paths_to_a_unit_are_no_others() -> None:
    assert unit(machine(DISK, TWIN), ours=["/dev/sdc"]).twins == ("/dev/sdc",)
    with pytest.raises(DeviceRefused, match="another path here, /dev/sdc"):
        unit(machine(DISK, TWIN))
    # Of a disk of one's own another path is no reason: whether anybody uses it is seen here.
    assert ask(DISK, TWIN).twins == ("/dev/sdc",)


def test_before_each_write_nobody_else_may_have_come_to_a_unit() -> None:
    device, twins = unit(machine(DISK)), machine(DISK, TWIN).host("initiator")
    reserved = machine(DISK, TWIN, reserved=REGISTERED).host("initiator")
    guard.recheck(twins, device, ours=["/dev/sdc"])
    with pytest.raises(CellInvalid, match="same disk, but it has another path here, /dev/sdc"):
        guard.recheck(twins, device, ours=["/dev/sdd"])
    with pytest.raises(CellInvalid, match="but 1 key for reservations registered"):
        guard.recheck(reserved, device, ours=["/dev/sdc"])
    # A disk of one's own is asked for neither.
    guard.recheck(reserved, device)
