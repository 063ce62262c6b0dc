"""Plans of what is only read: a LUN behind a portal, a volume that is attached, a new file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.model import (
    ISCSI,
    LINK_LOCAL,
    AttachedVolume,
    BackingKind,
    Machines,
    Plan,
    ReachedTarget,
)
from harness.model.errors import UsageError
from harness.parse.jobfile import load_jobs, moves_write
from harness.planning import plan as planning
from harness.planning.request import RunRequest
from harness.results import planned, rules
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
        return volume, BackingKind.FILE, 0 if is_new else 1 << 30

    def ways(_initiator: str, asked: dict[str, Any], _port: int) -> dict[str, Any]:
        return dict.fromkeys(asked, SimpleNamespace(names=(), notes=(), steps=()))

    monkeypatch.setattr(portals, "ways", ways)
    monkeypatch.setattr(portals, "look", look)
    monkeypatch.setattr(portals, "look_at", look_at)


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
        ({"protect": ("wireguard",)}, "expected --protect as-found or off"),
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
