"""Plans of what is only read: a LUN behind a portal, a volume that is attached, a new file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness import model
from harness.model import ISCSI, LINK_LOCAL, BackingKind, BlackBoxTarget, Machines, Plan
from harness.model.errors import DeviceRefused, UsageError
from harness.model.protections import MADE
from harness.parse.jobfile import load_jobs, moves_write
from harness.planning import plan as planning
from harness.planning.request import RunRequest
from harness.protection import pre_existing
from harness.results import planned, rules
from harness.results.store import RunFolder
from harness.storage.guard import Device
from harness.testbeds import portals
from tests.unit.protection.test_pre_existing import recorded

TARGET = BlackBoxTarget(
    transport=ISCSI, typed="nas.lan", address="192.0.2.2", port=3260, name="iqn.x:a", lun=1, wwid="naa.6"
)
UNIT = portals.FoundUnit(portal=TARGET, iface="eth0", size_bytes=(1 << 30) + 512, title="1 GiB IET DISK")
PORTAL = {"portal": "nas.lan"}
TWICE = {"portal": "nas.lan", "iqn": "iqn.x:a", "lun": 1, "destroy": ("iqn.x:a:1",)}
replace = msgspec.structs.replace


@pytest.fixture(autouse=True)
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_asked: object, *, swanctl: str = "", **_more: Any) -> portals.FoundUnit:
        return dataclasses.replace(UNIT, portal=replace(TARGET, swanctl=swanctl))

    def look_at(path: str, **_more: Any) -> tuple[model.AttachedVolume, BackingKind, int]:
        is_new = path.endswith("new")
        kind: model.FileSystem | None = "nfs" if path.startswith("/nfs/") else None
        volume = model.AttachedVolume(path=path, title=f"{path} (of nas:/x)", is_new=is_new, filesystem=kind)
        backing = BackingKind.BLOCK if path.startswith("/dev/") else BackingKind.FILE
        return volume, backing, 0 if is_new else 1 << 30

    def require_unit(path: str, *, needed_bytes: int, **_more: Any) -> None:
        if path == "/dev/used":
            raise DeviceRefused(f"used up to {needed_bytes}")

    def protections(_initiator: str, asked: dict[str, Any], _port: int, **_more: Any) -> dict[str, Any]:
        return dict.fromkeys(asked, SimpleNamespace(names=(), notes=(), steps=()))

    for instead in (look, look_at, require_unit, protections):
        monkeypatch.setattr(portals, instead.__name__, instead)


def made(**asked: Any) -> Plan:
    return planning.make_plan(RunRequest(**asked))


def writes(plan: Plan) -> bool:
    is_writing = any(map(moves_write, plan.jobs))
    assert plan.jobs and plan.only_reads is not is_writing
    return is_writing


def test_a_portal_makes_one_column_that_is_only_read() -> None:
    plan = made(portal="nas.lan")
    assert [column.label for column in plan.columns] == ["portal"]
    link = plan.links["portal"]
    assert (link.portal, link.interface, link.title) == ("192.0.2.2", "eth0", "nas.lan (eth0)")
    assert plan.storage.black_box == TARGET and plan.storage.backing.size_bytes == 1 << 30
    assert plan.machines == Machines(target=None, initiators=("local",))
    assert not writes(plan) and not plan.sees_target
    assert any("rand-write-4k" in note and "--volume" in note for note in plan.notes)
    assert "secret" not in msgspec.json.encode(plan).decode()
    typed = "--resume R --portal nas.lan --lun 1 --iqn iqn.x:a --link portal=eth0@192.0.2.2"
    assert planned.resume_command(plan, "R") == f"harness run {typed}"

    # Several ways lead to it, and a part of the LUN may do.
    plan = made(portal="nas.lan", links=("wired=eth0", "tunnel=wg0@10.8.0.2", "six=eth1@fd00::2"), size="64M")
    protections = {"wired": "192.0.2.2", "tunnel": "10.8.0.2", "six-ip6": "fd00::2"}
    assert {link.name: link.portal for link in plan.links.values()} == protections
    assert plan.storage.backing.size_bytes == 64 << 20


def test_what_cannot_be_had_behind_a_portal_is_refused() -> None:
    one_way = "one connection, .* per run, found "
    for where, asked, message in (
        (PORTAL, {"target": "local"}, "expected --portal or --target, found both"),
        (PORTAL, {"backing": "ramdisk"}, "expected --portal or --backing"),
        (PORTAL, {"links": ("local", "wired=eth0")}, "--link local without --local-device"),
        (PORTAL, {"workloads": ("rand-write-4k",)}, "workloads that read a LUN, found rand-write-4k"),
        (PORTAL, {"size": "2G"}, "expected --size within its 1 GiB"),
        (PORTAL, {"testbed": "lab"}, "expected --target or --testbed, found both: nas.lan"),
        (
            PORTAL,
            {"protect": (MADE[0],)},
            f"pre-existing, swanctl:FILE or off with --portal.* found {MADE[0]}",
        ),
        (PORTAL, {"protect": ("swanctl:/a", "swanctl:/b")}, f"{one_way}swanctl:/a, swanctl:/b"),
        (PORTAL, {"protect": ("pre-existing", "swanctl:/a")}, f"{one_way}pre-existing, swanctl:/a"),
        ({}, {"protect": ("pre-existing",)}, "pre-existing needs --portal"),
        ({}, {"protect": ("tunnel",)}, "tunnel"),
        ({}, {"protect": ("swanctl:/etc/a.conf",)}, r"--protect 'swanctl:/etc/a\.conf' needs --portal"),
        (TWICE, {"iqn": None}, "name it twice: found only --destroy 'iqn.x:a:1'"),
        (TWICE, {"lun": None}, "name it twice: found only --destroy 'iqn.x:a:1'"),
        (TWICE, {"iqn": None, "lun": None}, "name it twice"),
        (TWICE, {"destroy": ("iqn.x:a:2",)}, "--destroy iqn.x:a:2 allows"),
        (TWICE, {"destroy": ("iqn.x:a",)}, "--destroy iqn.x:a allows"),
        (TWICE, {"destroy": ("nas.lan",)}, "--destroy nas.lan allows"),
        (TWICE, {"destroy": ("iqn.x:a:1", "/dev/sdb")}, "--destroy /dev/sdb allows"),
        (TWICE, {"initiators": ("local", "ssh://a")}, "expected one initiator to write to a LUN"),
        (TWICE, {"size": "512M..2G"}, "expected --size within its 1 GiB"),
        (TWICE, {"size": "512M..512M"}, "expected --size within its 1 GiB"),
        (TWICE, {"size": "1K..512M"}, "from a whole MiB on"),
    ):
        with pytest.raises(UsageError, match=message) as refused:
            made(**{**where, **asked})
        assert refused.value.hint


def test_a_volume_is_read_and_a_new_file_is_written_as_well() -> None:
    there, new = made(volume="/mnt/x"), made(volume="/mnt/new", size="64M")
    for plan in (there, new):
        assert [column.link for column in plan.columns] == [LINK_LOCAL]
        assert plan.machines == Machines(target=None, initiators=("local",)) and not plan.transports
    assert not writes(there) and there.storage.backing.size_bytes == 1 << 30
    assert writes(new) and new.storage.backing.size_bytes == 64 << 20
    assert planned.resume_command(there, "R") == "harness run --resume R --volume /mnt/x"
    with pytest.raises(UsageError, match="expected --volume or --link, found both"):
        made(volume="/mnt/x", links=("wired=eth0",))


def test_a_file_on_another_machine_s_file_system_has_a_column_of_that_name() -> None:
    for plan in (made(volume="/nfs/film"), made(volume="/nfs/new", size="64M")):
        rules.check(plan)
        (column,) = plan.columns
        assert (column.label, column.filesystem, column.has_path) == ("nfs", "NFS", False)
        assert not column.is_local and not plan.links and not plan.transports
        assert planned.outside(plan)[-1][0] == "--volume"
        assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
        local = replace(column, link=LINK_LOCAL)
        for others in ((local,), (replace(column, transport="iscsi"),), (column, local)):
            with pytest.raises(UsageError):
                rules.check(replace(plan, columns=others))
    plan = made(volume="/mnt/x")
    with pytest.raises(UsageError):
        rules.check(replace(plan, columns=(model.Column("nfs", transport=None),)))


def test_a_lun_named_twice_is_written_to_in_the_part_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = made(**TWICE)
    backing = plan.storage.backing
    assert (backing.kind, backing.path, backing.destroy) == (BackingKind.BLOCK, None, "iqn.x:a:1")
    assert (backing.offset_bytes, backing.size_bytes) == (0, 128 << 20)
    assert writes(plan) and not plan.storage.shared_lun
    assert any("the run overwrites it from 0 B to 128 MiB" in note for note in plan.notes), plan.notes
    assert planned.resume_command(plan, "R").endswith("--destroy iqn.x:a:1")
    backing = made(**TWICE, size="256M..512M").storage.backing
    assert (backing.offset_bytes, backing.size_bytes, backing.end_bytes) == (256 << 20, 256 << 20, 512 << 20)
    reading = made(portal="nas.lan", size="256M..1G")
    assert not writes(reading)
    assert (reading.storage.backing.offset_bytes, reading.storage.backing.destroy) == (256 << 20, None)
    # One that is smaller than the part's default is written whole.
    small = dataclasses.replace(UNIT, size_bytes=64 << 20)
    monkeypatch.setattr(portals, "look", lambda _asked, **_more: small)
    assert made(**TWICE).storage.backing.end_bytes == 64 << 20


def test_writes_stay_within_one_region(tmp_path: Path) -> None:
    profile = tmp_path / "zones.fio"
    profile.write_text("[z]\nrw=write\nzonesize=4k\nzoneskip=1m\n", encoding="utf-8")
    for where in (TWICE, {"volume": "/dev/sdx", "destroy": ("/dev/sdx",)}):
        with pytest.raises(UsageError, match="z: expected writes in one region, found zones"):
            made(**where, profile=str(profile))


def test_a_lun_on_which_the_guard_finds_somebody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(number="8:0", node="/dev/sda", path="/dev/sda", size_bytes=1 << 30, read_only=True)
    found = dataclasses.replace(UNIT, device=device)
    monkeypatch.setattr(portals, "look", lambda _asked, **_more: found)
    assert writes(made(**TWICE))
    found = dataclasses.replace(UNIT, device=replace(device, signatures=("ext4",)))
    with pytest.raises(DeviceRefused, match="is not blank; found on it: ext4"):
        made(**TWICE)
    assert not writes(made(portal="nas.lan"))


def test_a_unit_has_a_name_that_can_be_typed_again() -> None:
    assert TARGET.unit == "iqn.x:a:1"


def test_a_device_that_is_attached_is_written_to_if_it_is_named_twice() -> None:
    plan = made(volume="/dev/sdx", destroy=("/dev/sdx",), size="1M..65M")
    backing = plan.storage.backing
    assert (backing.destroy, backing.offset_bytes, backing.size_bytes) == ("/dev/sdx", 1 << 20, 64 << 20)
    assert writes(plan)
    resumed = planned.resume_command(plan, "R")
    assert resumed == "harness run --resume R --volume /dev/sdx --destroy /dev/sdx"
    assert any("--destroy /dev/sdx" in note for note in made(volume="/dev/sdx").notes)
    with pytest.raises(DeviceRefused, match=f"used up to {128 << 20}"):
        made(volume="/dev/used", destroy=("/dev/used",))
    for volume, destroy in (("/mnt/x", "/mnt/x"), ("/dev/sdx", "/dev/sdy")):
        with pytest.raises(UsageError, match=f"--destroy {destroy} allows the run to overwrite"):
            made(volume=volume, destroy=(destroy,))


def test_who_edits_a_plan_cannot_make_it_write_elsewhere() -> None:
    plan, reading, volume = made(**TWICE), made(portal="nas.lan"), made(volume="/mnt/x")
    rules.check(plan)
    storage, backing = plan.storage, plan.storage.backing
    writing = (next(job for job in load_jobs("basic")[1] if moves_write(job)),)
    other: list[dict[str, Any]] = [{"destroy": "iqn.x:a:2"}, {"destroy": None}, {"kind": BackingKind.FILE}]
    other += [{"offset_bytes": -(1 << 20)}, {"offset_bytes": 512}]
    for wrong in (
        *(replace(plan, storage=replace(storage, backing=replace(backing, **each))) for each in other),
        replace(plan, storage=replace(storage, shared_lun=True)),
        replace(plan, machines=Machines(target=None, initiators=("local", "ssh://a"))),
        replace(reading, jobs=writing),
        replace(reading, jobs=writing, storage=replace(reading.storage, shared_lun=False)),
        replace(volume, jobs=writing),
    ):
        with pytest.raises(UsageError):
            rules.check(wrong)


@pytest.fixture
def protected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways of this end as they were recorded in the lab."""

    def protections(
        _initiator: str, links: Mapping[str, tuple[str, str]], port: int, *, swanctl: str
    ) -> dict[str, pre_existing.FoundProtection]:
        assert swanctl in ("", "/etc/nas.conf#disks")
        host = recorded("lab-own-kernel")
        # Which interface a route leads to is recorded, not what another one would do.
        return {name: pre_existing.protection_to(host, address, port) for name, (address, _) in links.items()}

    monkeypatch.setattr(portals, "protections", protections)


def over(*links: str, **asked: Any) -> Plan:
    plan = made(portal="nas.lan", workloads=("rand-read-4k",), links=links, **asked)
    rules.check(plan)
    return plan


@pytest.mark.usefixtures("protected")
def test_each_link_has_its_own_protection_and_one_without_a_note() -> None:
    plan = over("wired=nic0@192.0.2.2", "ipsec=nic0@192.0.2.9")
    protections = {"wired": (), "ipsec": ("aes128gcm16",)}
    assert [(column.link, column.protection) for column in plan.columns] == [*protections.items()]
    (note,) = [note for note in plan.notes if "wired" in note]
    assert note == "wired: no protection was found on this path"
    assert set(plan.proposals) == {"aes128gcm16"}
    # What is in no order that a run could make is taken as it is.
    (column,) = over("vpn=nic0@10.77.0.5").columns
    assert (column.protection, column.mode) == (("aes256-sha256",), "tunnel")
    (column,) = over("ipsec=nic0@192.0.2.9", protect=("off",)).columns
    assert column.protection == (), "off asks for nothing"
    # A connection of the user's is up in the columns that it protects.
    plan = over("ipsec=nic0@192.0.2.9", protect=("off,swanctl:/etc/nas.conf#disks",))
    assert [column.protection for column in plan.columns] == [(), ("aes128gcm16",)]
    assert plan.storage.black_box is not None and plan.storage.black_box.swanctl == "/etc/nas.conf#disks"
    with pytest.raises(UsageError, match="one mode in a run, found transport and tunnel"):
        over("vpn=nic0@10.77.0.5", "ipsec=nic0@192.0.2.9")
    # Its file says who is reached, and what of this machine's traffic goes there.
    assert ("--protect", "swanctl:/etc/nas.conf#disks") in planned.outside(plan)


def test_where_a_session_logs_in_is_typed_again(tmp_path: Path) -> None:
    made = over("tunnel=wg0")
    for login, port, typed, wrong in (
        ("", 3260, "nas.lan", None),
        ("203.0.113.9:3260", 3261, "203.0.113.9:3260", None),
        ("203.0.113.9/iqn.y", 3260, "", "nothing, or a portal: .* found '203.0.113.9/iqn.y'"),
        ("x y", 3260, "", "nothing, or a portal: .* found 'x y'"),
        ("", 22, "nas.lan:3260", "portal: expected '3260', found"),
    ):
        reached = replace(TARGET, login=login, port=port, typed="nas.lan" if login else typed)
        run = RunFolder(tmp_path)
        run.save_plan(replace(made, storage=replace(made.storage, black_box=reached)))
        if wrong is not None:
            with pytest.raises(UsageError, match=wrong):
                run.load_plan()
            continue
        assert planned.outside(run.load_plan())[0] == ("--portal", typed)
