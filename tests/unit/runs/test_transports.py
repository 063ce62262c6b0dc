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
from harness.model import Column, Plan, Status
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
from tests.unit.storage.test_nvme import LUN, sides, wanted

NVME = Column("wired", (), "nvme-tcp")
SECURED_NVME = Column("wifi", SECURED.protection, "nvme-tcp")
COLUMNS = (Column("local"), Column("wired"), NVME, SECURED, SECURED_NVME)
BOTH = flat.changed(PLAN, columns=COLUMNS, jobs=PLAN.jobs[:1])
NVME_ALONE = flat.changed(BOTH, columns=(NVME,))


def test_cells_of_both_are_measured_proved_and_shielded(tmp_path: Path) -> None:
    outcome = measure(World(), tmp_path / "run", BOTH)
    by_column = {record.column: record for record in outcome.records}
    assert {*by_column} == {*COLUMNS}
    assert {(record.status, record.reason) for record in outcome.records} == {(Status.OK, None)}
    assert by_column[NVME].session["in_capsule_bytes"] == "16384"
    secured = by_column[SECURED_NVME].proof
    assert secured is not None and secured.packets_sampled > 0 and not secured.cleartext_segments
    outcome.assert_nothing_is_left()
    # A fail-closed policy stands before the port of its column's transport.
    fail_closed = re.compile(r"policy .* proto 6 [sd]port (\d+) dir (in|out)$")
    closed = [found[1] for thing in outcome.made if (found := fail_closed.match(thing))]
    assert sorted(closed) == ["3260"] * 4 + ["4420"] * 4


def test_each_has_its_own_and_only_iscsi_its_daemon(tmp_path: Path) -> None:
    outcome = measure(World(), tmp_path / "run", NVME_ALONE)
    made, gone = ([thing.split()[0] for thing in things] for things in (outcome.made, outcome.gone))
    assert {"subsystem", "connection"} <= {*made}
    assert not {*made} & {"session", "node", "target", "backstore", "discovery-login"}
    assert not any(thing.startswith("daemon iscsid") for _, thing in outcome.world.history)
    assert gone.index("connection") < gone.index("subsystem") < gone.index("link")


@pytest.mark.parametrize("failure", [Failure.STATUS, Failure.HANG])
def test_whatever_step_fails_nothing_is_left(tmp_path: Path, failure: Failure) -> None:
    plan = flat.changed(BOTH, columns=(Column("local"), NVME))
    for step in range(1, 60, 4):
        world = World(fail_at=step, failure=failure)
        outcome = measure(world, tmp_path / f"{step}", plan)
        # A step that undoes something may be the one that fails: then it is reported.
        if not outcome.journal.leaks:
            assert not world.left and not outcome.journal.open_entries(), world.failed


def test_a_disk_that_is_another_makes_the_cell_invalid(tmp_path: Path) -> None:
    class Swapped(World):
        def text_of(self, path: str) -> str:
            is_late = any(command.argv[0] == "tc" for command in self.commands)
            return "another\n" if is_late and path.endswith("device/serial") else super().text_of(path)

    (bad,) = measure(Swapped(), tmp_path / "run", NVME_ALONE).records
    why = "expected the serial number of /dev/nvme0n1 to be harness-beef-0, found another"
    assert bad.status is Status.INVALID and (bad.reason or "").startswith(why)


def lacking(*modules: str) -> World:
    return World(broken=lambda c: c.argv[0] == "modprobe" and not {*modules}.isdisjoint(c.argv))


def prepared(world: World, plan: Plan = BOTH) -> dict[str, RequirementError]:
    return executor.prepare(plan, Hosts(target=world.host("target"), initiators=(world.host("initiator"),)))


def test_columns_whose_transport_the_kernel_lacks_are_skipped_with_the_reason(tmp_path: Path) -> None:
    plan = flat.changed(BOTH, lab_kernel="debian")
    unavailable = prepared(lacking("nvme_fabrics", "nvme_tcp"), plan)
    assert list(unavailable) == ["nvme-tcp"]
    outcome = measure(World(), tmp_path / "run", plan, unavailable=unavailable)
    why = "the initiator's kernel lacks nvme_fabrics, nvme_tcp for NVMe/TCP "
    why += "(the custom kernel has them: harness kernel build, then --lab-kernel custom)"
    skipped = dict.fromkeys((NVME, SECURED_NVME), (Status.SKIPPED, why))
    found = {record.column: (record.status, record.reason) for record in outcome.records}
    assert found == dict.fromkeys(COLUMNS, (Status.OK, None)) | skipped
    assert not any(thing.startswith("subsystem") for _, thing in outcome.world.history)


def test_modules_that_a_kernel_has_are_loaded_by_one_program_and_a_run_that_needs_others_is_refused() -> None:
    with pytest.raises(RequirementError, match="the target's kernel lacks nvmet, nvmet_tcp for NVMe/TCP"):
        prepared(lacking("nvmet", "nvmet_tcp"), NVME_ALONE)
    with pytest.raises(RequirementError, match="the initiator's kernel lacks veth"):
        prepared(lacking("veth"))
    for loaded in ("", "veth iscsi_tcp"):
        listed = "".join(f"{module}\n" for module in loaded.split())
        world = World(answers=[(("ls", "/sys/module"), (0, listed, ""))] if loaded else [])
        assert prepared(world) == {}
        (load,) = [command.argv for command in world.commands if command.argv[0] == "modprobe"]
        assert load[:2] == ("modprobe", "-a") and {"sch_netem", "nvmet_tcp", "xfrm_user"} <= {*load}
        assert {"veth", "iscsi_tcp"} - {*load} == {*loaded.split()}


def test_columns_of_transports_stand_side_by_side() -> None:
    asked = RunRequest(links=("local", "wired", "wifi"), ipsec=("off", "aes128gcm16"))
    made = make_plan(msgspec.structs.replace(asked, transports=("nvme-tcp", "iscsi", "nvme-tcp")))
    pairs = ((f"{of}.nvme-tcp", of) for of in ("wired", "wifi", "wired+aes128gcm16", "wifi+aes128gcm16"))
    assert [column.label for column in made.columns] == ["local", *itertools.chain(*pairs)]
    assert made.transports == ("nvme-tcp", "iscsi")
    assert make_plan(asked).transports == ("iscsi",)
    rules.check(made, "plan.json")


def test_a_transport_that_cannot_be_is_refused() -> None:
    of_iscsi = RunRequest(transports=("nvme-tcp",), iscsi=("InitialR2T=No",))
    for request, message in (
        (RunRequest(transports=("nvme",)), "nvme"),
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
@pytest.mark.parametrize("name", [each.name for each in transports.ALL])
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
