"""Plans of what is only read: a LUN behind a portal, a volume that is attached, a new file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.model import (
    ISCSI,
    LINK_LOCAL,
    NBD,
    NVME_TCP,
    AttachedVolume,
    BackingKind,
    Machines,
    Plan,
    ReachedTarget,
)
from harness.model.errors import DeviceRefused, UsageError
from harness.parse.jobfile import load_jobs, moves_write
from harness.planning import plan as planning
from harness.planning.request import RunRequest
from harness.results import planned, rules
from harness.storage.guard import Device
from harness.testbeds import portals

TARGET = ReachedTarget(
    transport=ISCSI, typed="nas.lan", address="192.0.2.2", port=3260, name="iqn.x:a", lun=1, wwid="naa.6"
)
UNIT = portals.FoundUnit(portal=TARGET, iface="eth0", size_bytes=(1 << 30) + 512, title="1 GiB IET DISK")


@pytest.fixture(autouse=True)
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_asked: object, **_more: Any) -> portals.FoundUnit:
        return UNIT

    def look_at(path: str, **_more: Any) -> tuple[AttachedVolume, BackingKind, int]:
        is_new = path.endswith("new")
        volume = AttachedVolume(path=path, title=f"{path} (nfs4 of nas:/x)", is_new=is_new)
        kind = BackingKind.BLOCK if path.startswith("/dev/") else BackingKind.FILE
        return volume, kind, 0 if is_new else 1 << 30

    def require_unit(path: str, *, needed_bytes: int, **_more: Any) -> None:
        if path == "/dev/used":
            raise DeviceRefused(f"used up to {needed_bytes}")

    def ways(_initiator: str, asked: dict[str, Any], _port: int, **_more: Any) -> dict[str, Any]:
        return dict.fromkeys(asked, SimpleNamespace(names=(), notes=(), steps=()))

    monkeypatch.setattr(portals, "ways", ways)
    monkeypatch.setattr(portals, "look", look)
    monkeypatch.setattr(portals, "look_at", look_at)
    monkeypatch.setattr(portals, "require_unit", require_unit)


def made(**asked: Any) -> Plan:
    return planning.make_plan(RunRequest(**asked))


def test_a_portal_makes_one_column_that_is_only_read() -> None:
    plan = made(portal="nas.lan")
    assert [column.label for column in plan.columns] == ["portal"]
    assert plan.links["portal"].portal == "192.0.2.2" and plan.links["portal"].interface == "eth0"
    assert plan.links["portal"].title == "nas.lan (eth0)"
    assert plan.storage.reached == TARGET and plan.storage.backing.size_bytes == 1 << 30
    assert plan.machines == Machines(target=None, initiators=("local",))
    assert plan.jobs and not any(map(moves_write, plan.jobs))
    assert plan.only_reads and not plan.sees_target
    assert any("rand-write-4k" in note and "--volume" in note for note in plan.notes)
    assert "secret" not in msgspec.json.encode(plan).decode()
    assert planned.resume_command(plan, "R") == (
        "harness run --resume R --portal nas.lan --lun 1 --iqn iqn.x:a --link portal=eth0@192.0.2.2"
    )


def test_several_ways_lead_to_a_portal_and_a_part_of_the_lun_may_do() -> None:
    plan = made(portal="nas.lan", links=("wired=eth0", "tunnel=wg0@10.8.0.2", "six=eth1@fd00::2"), size="64M")
    assert [(link.name, link.portal) for link in plan.links.values()] == [
        ("wired", "192.0.2.2"),
        ("tunnel", "10.8.0.2"),
        ("six-ip6", "fd00::2"),
    ]
    assert plan.storage.backing.size_bytes == 64 << 20


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"target": "local"}, "expected --portal or --target, found both"),
        ({"backing": "ramdisk"}, "expected --portal or --backing"),
        ({"links": ("local", "wired=eth0")}, "--link local without --local-device"),
        ({"workloads": ("rand-write-4k",)}, "expected workloads that read a LUN, found rand-write-4k"),
        ({"size": "2G"}, "expected --size of at most 1 GiB"),
        ({"testbed": "lab"}, "expected --target or --testbed, found both: nas.lan"),
        ({"protect": ("wireguard",)}, "expected --protect as-found, swanctl:FILE or off"),
    ],
)
def test_what_cannot_be_had_behind_a_portal_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        made(portal="nas.lan", **asked)
    assert refused.value.hint


def test_a_volume_is_read_and_a_new_file_is_written_as_well() -> None:
    there, new = made(volume="/mnt/x"), made(volume="/mnt/new", size="64M")
    for plan in (there, new):
        assert [column.link for column in plan.columns] == [LINK_LOCAL]
        assert plan.machines == Machines(target=None, initiators=("local",)) and not plan.transports
    assert there.only_reads and not any(map(moves_write, there.jobs))
    assert there.storage.backing.size_bytes == 1 << 30
    assert not new.only_reads and any(map(moves_write, new.jobs))
    assert new.storage.backing.size_bytes == 64 << 20
    assert planned.resume_command(there, "R") == "harness run --resume R --volume /mnt/x"
    with pytest.raises(UsageError, match="expected --volume or --link, found both"):
        made(volume="/mnt/x", links=("wired=eth0",))


TWICE = {"portal": "nas.lan", "iqn": "iqn.x:a", "lun": 1, "destroy": ("iqn.x:a:1",)}


def test_a_lun_that_is_named_twice_is_written_to_in_the_part_that_is_asked_for() -> None:
    plan = made(**TWICE)
    backing = plan.storage.backing
    assert (backing.kind, backing.path, backing.destroy) == (BackingKind.BLOCK, None, "iqn.x:a:1")
    assert (backing.offset_bytes, backing.size_bytes) == (0, 128 << 20)
    assert any(map(moves_write, plan.jobs)) and not plan.only_reads and not plan.storage.shared_lun
    assert any("from 0 B to 128 MiB is overwritten" in note for note in plan.notes), plan.notes
    assert planned.resume_command(plan, "R").endswith("--destroy iqn.x:a:1")
    backing = made(**TWICE, size="256M..512M").storage.backing
    assert (backing.offset_bytes, backing.size_bytes, backing.end_bytes) == (256 << 20, 256 << 20, 512 << 20)
    reading = made(portal="nas.lan", size="256M..1G")
    assert reading.only_reads and not any(map(moves_write, reading.jobs))
    assert reading.storage.backing.offset_bytes == 256 << 20 and reading.storage.backing.destroy is None


def test_a_lun_that_is_smaller_than_the_part_s_default_is_written_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = dataclasses.replace(UNIT, size_bytes=64 << 20)
    monkeypatch.setattr(portals, "look", lambda _asked, **_more: small)
    assert made(**TWICE).storage.backing.end_bytes == 64 << 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iqn": None}, "named twice, found --destroy 'iqn.x:a:1' alone"),
        ({"lun": None}, "named twice, found --destroy 'iqn.x:a:1' alone"),
        ({"iqn": None, "lun": None}, "named twice"),
        ({"destroy": ("iqn.x:a:2",)}, "--destroy iqn.x:a:2 is consent"),
        ({"destroy": ("iqn.x:a",)}, "--destroy iqn.x:a is consent"),
        ({"destroy": ("nas.lan",)}, "--destroy nas.lan is consent"),
        ({"destroy": ("iqn.x:a:1", "/dev/sdb")}, "--destroy /dev/sdb is consent"),
        ({"initiators": ("local", "ssh://a")}, "expected one initiator to write to a LUN"),
        ({"size": "512M..2G"}, "expected --size of at most 1 GiB"),
        ({"size": "512M..512M"}, "expected --size of at most 1 GiB"),
        ({"size": "1K..512M"}, "from whole MiB on"),
    ],
)
def test_what_is_not_named_twice_is_not_written_to(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        made(**TWICE | changes)
    assert refused.value.hint


def test_writes_stay_within_one_region(tmp_path: Path) -> None:
    profile = tmp_path / "zones.fio"
    profile.write_text("[z]\nrw=write\nzonesize=4k\nzoneskip=1m\n", encoding="utf-8")
    for where in (TWICE, {"volume": "/dev/sdx", "destroy": ("/dev/sdx",)}):
        with pytest.raises(UsageError, match="z: expected writes in one region, found zones"):
            made(**where, profile=str(profile))


def test_a_lun_on_which_the_guard_finds_somebody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(number="8:0", node="/dev/sda", path="/dev/sda", size_bytes=1 << 30, read_only=True)
    free = dataclasses.replace(UNIT, device=device)
    monkeypatch.setattr(portals, "look", lambda _asked, **_more: free)
    assert not made(**TWICE).only_reads
    used = dataclasses.replace(UNIT, device=msgspec.structs.replace(device, signatures=("ext4",)))
    monkeypatch.setattr(portals, "look", lambda _asked, **_more: used)
    with pytest.raises(DeviceRefused, match="is not blank; found on it: ext4"):
        made(**TWICE)
    assert made(portal="nas.lan").only_reads


@pytest.mark.parametrize(
    ("portal", "unit"),
    [
        (TARGET, "iqn.x:a:1"),
        (msgspec.structs.replace(TARGET, transport=NVME_TCP, name="nqn.x"), "nqn.x:1"),
        (msgspec.structs.replace(TARGET, transport=NBD, name="disk", lun=0), "disk"),
        (msgspec.structs.replace(TARGET, transport=NBD, name="", lun=0, typed="nbd://nas"), "nbd://nas"),
    ],
)
def test_a_unit_has_a_name_that_can_be_typed_again(portal: ReachedTarget, unit: str) -> None:
    assert portal.unit == unit


def test_a_device_that_is_attached_is_written_to_if_it_is_named_twice() -> None:
    plan = made(volume="/dev/sdx", destroy=("/dev/sdx",), size="1M..65M")
    assert plan.storage.backing.destroy == "/dev/sdx" and not plan.only_reads
    assert (plan.storage.backing.offset_bytes, plan.storage.backing.size_bytes) == (1 << 20, 64 << 20)
    assert any(map(moves_write, plan.jobs))
    resumed = planned.resume_command(plan, "R")
    assert resumed == "harness run --resume R --volume /dev/sdx --destroy /dev/sdx"
    assert any("--destroy /dev/sdx" in note for note in made(volume="/dev/sdx").notes)
    with pytest.raises(DeviceRefused, match=f"used up to {128 << 20}"):
        made(volume="/dev/used", destroy=("/dev/used",))
    for volume, destroy in (("/mnt/x", "/mnt/x"), ("/dev/sdx", "/dev/sdy")):
        with pytest.raises(UsageError, match=f"--destroy {destroy} is consent for a block device"):
            made(volume=volume, destroy=(destroy,))


def test_consent_in_a_plan_is_for_the_very_unit_and_one_initiator() -> None:
    plan = made(**TWICE)
    rules.check(plan)
    storage, replace = plan.storage, msgspec.structs.replace
    for wrong in (
        {"backing": replace(storage.backing, destroy="iqn.x:a:2")},
        {"backing": replace(storage.backing, destroy=None)},
        {"backing": replace(storage.backing, offset_bytes=-(1 << 20))},
        {"backing": replace(storage.backing, offset_bytes=512)},
        {"backing": replace(storage.backing, kind=BackingKind.FILE)},
        {"shared_lun": True},
    ):
        with pytest.raises(UsageError):
            rules.check(replace(plan, storage=replace(storage, **wrong)))
    with pytest.raises(UsageError):
        rules.check(replace(plan, machines=Machines(target=None, initiators=("local", "ssh://a"))))


def test_who_edits_a_plan_cannot_make_it_write() -> None:
    plan = made(portal="nas.lan")
    writing = next(job for job in load_jobs("document")[1] if moves_write(job))
    storage = msgspec.structs.replace(plan.storage, shared_lun=False)
    for changes in ({"jobs": (writing,)}, {"jobs": (writing,), "storage": storage}):
        with pytest.raises(UsageError):
            rules.check(msgspec.structs.replace(plan, **changes))
    volume = made(volume="/mnt/x")
    with pytest.raises(UsageError):
        rules.check(msgspec.structs.replace(volume, jobs=(writing,)))
