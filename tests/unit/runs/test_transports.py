"""Columns of two transports on hosts that only record: measured, proved, skipped, and taken down."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.hosts.journal import Journal
from harness.model import DEFAULT_TRANSPORT, ENDS, KERNEL_TARGETS, TRANSPORTS, Column, Plan, Status
from harness.model.errors import RequirementError, UsageError
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.results import rules
from harness.runs import executor
from harness.runs.columns import Hosts
from harness.storage import transports
from tests import flat
from tests.unit.fakes import Failure, World
from tests.unit.runs.test_teardown import PLAN, SECURED, TAG, measure
from tests.unit.storage.exports import LUN, sides, wanted

OTHERS = [name for name in TRANSPORTS if name != DEFAULT_TRANSPORT]


def columns_of(name: str) -> tuple[Column, ...]:
    """Over the local disk, and plain and secured over iSCSI and another transport."""
    return (Column("local"), Column("wired"), plain(name), SECURED, secured(name))


def plain(name: str) -> Column:
    return Column("wired", (), name)


def secured(name: str) -> Column:
    return Column("wifi", SECURED.protection, name)


def plan_of(*columns: Column) -> Plan:
    return flat.changed(PLAN, columns=columns, jobs=PLAN.jobs[:1])


@pytest.mark.parametrize("name", OTHERS)
def test_cells_of_both_are_measured_proved_and_shielded(tmp_path: Path, name: str) -> None:
    columns = columns_of(name)
    outcome = measure(World(), tmp_path / "run", plan_of(*columns))
    by_column = {record.column: record for record in outcome.records}
    assert {*by_column} == {*columns}
    assert {(record.status, record.reason) for record in outcome.records} == {(Status.OK, None)}
    assert by_column[plain(name)].session
    proof = by_column[secured(name)].proof
    assert proof is not None and proof.packets_sampled > 0 and not proof.cleartext_segments
    outcome.assert_nothing_is_left()
    # A fail-closed policy stands before the port of its column's transport.
    fail_closed = re.compile(r"policy .* proto 6 [sd]port (\d+) dir (in|out)$")
    closed = [found[1] for thing in outcome.made if (found := fail_closed.match(thing))]
    assert sorted(closed) == sorted(["3260"] * 4 + [f"{transports.named(name).port}"] * 4)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("failure", [Failure.STATUS, Failure.HANG])
def test_whatever_step_fails_nothing_is_left(tmp_path: Path, failure: Failure, name: str) -> None:
    plan = plan_of(Column("local"), plain(name))
    for step in range(1, 60, 4):
        world = World(fail_at=step, failure=failure)
        outcome = measure(world, tmp_path / f"{step}", plan)
        # A step that undoes something may be the one that fails: then it is reported.
        if not outcome.journal.leaks:
            assert not world.left and not outcome.journal.open_entries(), world.failed


def lacking(*modules: str) -> World:
    return World(broken=lambda c: c.argv[0] == "modprobe" and not {*modules}.isdisjoint(c.argv))


def prepared(world: World, plan: Plan) -> dict[str, RequirementError]:
    return executor.prepare(plan, Hosts(target=world.host("target"), initiators=(world.host("initiator"),)))


def test_modules_that_a_kernel_has_are_loaded_by_one_program_and_a_run_that_needs_others_is_refused() -> None:
    plan = plan_of(Column("local"), SECURED, *map(plain, KERNEL_TARGETS))
    with pytest.raises(RequirementError, match="the initiator's kernel lacks veth"):
        prepared(lacking("veth"), plan)
    named = map(transports.named, KERNEL_TARGETS)
    own = {module for each in named for role in ENDS for module in each.modules(role, ())}
    for loaded in ("", "veth iscsi_tcp"):
        listed = "".join(f"{module}\n" for module in loaded.split())
        world = World(answers=[(("ls", "/sys/module"), (0, listed, ""))] if loaded else [])
        assert prepared(world, plan) == {}
        (load,) = [command.argv for command in world.commands if command.argv[0] == "modprobe"]
        assert load[:2] == ("modprobe", "-a") and {"sch_netem", "xfrm_user"} <= {*load}
        assert own - {*loaded.split()} <= {*load}
        assert {"veth", "iscsi_tcp"} - {*load} == {*loaded.split()}


@pytest.mark.parametrize("name", OTHERS)
def test_columns_of_transports_stand_side_by_side(name: str) -> None:
    asked = RunRequest(links=("local", "wired", "wifi"), ipsec=("off", "aes128gcm16"))
    made = make_plan(msgspec.structs.replace(asked, transports=(name, "iscsi", name)))
    pairs = ((f"{of}.{name}", of) for of in ("wired", "wifi", "wired+aes128gcm16", "wifi+aes128gcm16"))
    assert [column.label for column in made.columns] == ["local", *itertools.chain(*pairs)]
    assert made.transports == (name, "iscsi")
    assert make_plan(asked).transports == ("iscsi",)
    rules.check(made, "plan.json")


def test_a_transport_that_cannot_be_is_refused() -> None:
    of_iscsi = RunRequest(transports=tuple(OTHERS), iscsi=("InitialR2T=No",))
    for request, message in (
        (RunRequest(transports=("iscs",)), "there is no transport 'iscs'"),
        (RunRequest(links=("local",), transports=("iscsi",)), "--transport needs a network"),
        (of_iscsi, "--iscsi InitialR2T=No is for iSCSI"),
    ):
        with pytest.raises(UsageError, match=message) as refused:
            make_plan(request)
        assert refused.value.hint
    plan = flat.changed(make_plan(RunRequest()), columns=(Column("wired", (), None),))
    with pytest.raises(UsageError, match="a transport over each link"):
        rules.check(plan, "plan.json")


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("name", [each.name for each in transports.every()])
def test_several_initiators_get_a_disk_each_under_names_of_their_own(
    tmp_path: Path, name: str, is_shared: bool
) -> None:
    world, journal, transport = World(), Journal(tmp_path / "journal.jsonl"), transports.named(name)
    hosts = tuple(world.host(f"initiator{number}") for number in (1, 2))
    luns = tuple(replace(LUN, serial=f"harness-{TAG}-{n}", path=f"/dev/ram{n}") for n in (0, 1))
    of = sides(world, journal=journal, initiators=hosts, luns=luns[:1] if is_shared else luns, logs=tmp_path)
    with transport.shared(of) as up:
        for number in (0, 1):
            of_export: dict[str, Any] = {"number": number, "lun": of.luns[0 if is_shared else number]}
            of_export |= {"port": transport.port, "read_only": is_shared}
            with up.attach(wanted(world, name=f"wired.off.2.{number + 1}", **of_export)) as session:
                assert session.disk.device.startswith("/dev/")
                session.disk.check()
    made = [thing for sign, thing in world.history if sign == "+"]
    exports = {thing for thing in made if re.match("target|subsystem|export", thing)}
    assert len(exports) == 2 and all(f":{TAG}.wired.off.2." in name for name in exports)
    assert not world.left and not journal.leaks and not journal.open_entries()
