"""The digital twin: the run's plan in virtual time, over what was measured, and what follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.analysis.interval import Interval, exact
from harness.explain import twin
from harness.model import Clock, Column, LabKernel, LinkProfile, Plan, Record, Status, TestbedKind
from harness.results.store import RunFolder
from tests.unit.explain.test_explain import US, cell, columns, evidence_of, key, known, measured, plan_of_them
from tests.unit.results_folder import WIRED, made_plan


def local(block_bytes: int, time_us: float) -> Any:
    span = exact(time_us * US)
    return cell(key=key(link="local"), path=None, block_bytes=block_bytes, time_ns=span, device_ns=span)


def plan_of(plan: Plan, **changes: Any) -> Plan:
    return known(twin.plan_of(plan, [cell(**changes), local(4096, 7), local(262144, 56)]))


def test_the_twin_is_the_plan_in_virtual_time() -> None:
    plan = made_plan(probes=True, repeats=6)
    made = plan_of(plan)
    assert made.setting.is_virtual and made.setting.clock is Clock.VIRTUAL and not made.probes
    assert (made.setting.testbed, made.setting.lab_kernel) == (TestbedKind.LAB, LabKernel.CUSTOM)
    assert made.repeats == 1
    assert (made.columns, made.jobs, made.links) == (plan.columns, plan.jobs, plan.links)
    assert plan_of(plan) == made
    assert twin.plan_of(made_plan(virtual_time=True), []) is None
    # Its disk takes as long as the local one.
    flash = known(known(plan_of(made_plan()).storage.disk).flash)
    # 64 pages, 8 at once: 56 us
    assert (flash.page_bytes, flash.page_us, flash.pages_at_once) == (4096, 7, 8)
    assert twin.disk_like([cell()]).flash is None


def test_real_links_are_set_as_they_were_found() -> None:
    real = LinkProfile(name="wired", title="x", emulated=False, interface="eth0", portal="192.0.2.1")
    columns = (Column("local"), Column("wired"), Column("wired", initiators=2))
    plan = made_plan(links={"wired": real}, columns=columns)
    made = plan_of(plan, rtt_ns=Interval(200 * US, 300 * US, 300 * US), rate_bit_s=10**9)
    link = made.links["wired"]
    assert (link.interface, link.portal, link.emulated, link.delay_us) == (None, None, True, 150)
    assert link.rate_bit_s == 10**9
    assert made.columns == (Column("local"), Column("wired"))
    # Of an unknown rate the twin would send in no time, and the difference would be a processor's.
    two = replace(plan, columns=(*columns, Column("other")), links={"wired": real, "other": WIRED})
    assert plan_of(two, rate_unknown="no interface says it").columns == (Column("local"), Column("other"))
    unknown = [replace(cell(), rate_unknown="no interface says it")]
    assert twin.plan_of(plan, unknown) is None, "without a link it tells nothing"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"virtual_time": True}, "virtual time"),
        ({"columns": (Column("local"),)}, "no column over a link"),
        ({"columns": (Column("local"), Column("wired"))}, "no link's rate is known"),
    ],
)
def test_a_run_without_a_twin_is_told_why(changes: dict[str, Any], why: str) -> None:
    plan = made_plan(**changes)
    assert twin.plan_of(plan, [replace(cell(), rate_unknown="no interface says it")]) is None
    assert why in twin.why_none(plan)


def kept(folder: Path, plan: Plan, records: list[Record]) -> RunFolder:
    run = RunFolder(folder / "r1")
    run.path.mkdir()
    inner = twin.folder_of(run)
    inner.save_plan(plan)
    for record in records:
        inner.save_record(record)
    return run


def test_a_twin_is_used_again_and_one_of_another_plan_is_not(tmp_path: Path) -> None:
    plan = plan_of_them(jobs=plan_of_them().jobs[:1])
    name = plan.jobs[0].name
    records = [measured(column.link, column.ipsec, 100, workload=name)[0] for column in plan.columns]
    run = kept(tmp_path, plan, records)
    assert twin.is_current(run, plan)
    twin.folder_of(run).save_record(replace(records[0], status=Status.INVALID))
    assert not twin.is_current(run, plan) and not twin.is_current(run, replace(plan, seed=7))
    assert not twin.folder_of(run).path.exists()


def test_what_the_twin_does_not_take_is_the_implementations(tmp_path: Path) -> None:
    of = (("local", "off", 50), ("wired", "off", 2400), ("wired", "aes128gcm16", 2450))
    virtual = [measured(*each, clock=Clock.VIRTUAL)[0] for each in of]
    plan = plan_of_them()
    times = twin.times(kept(tmp_path, plan, virtual))
    found = {name: twin.with_twin(each, times) for name, each in evidence_of(columns()).items()}
    plain, gcm = found["wired"], found["wired+aes128gcm16"]
    assert plain.ipsec_itself_ns is None
    assert known(plain.twin_ns).mid == pytest.approx(90 * US, rel=0.1)  # 2500 - 60 there, 2400 - 50 here
    assert gcm.ipsec_itself_ns == pytest.approx(50 * US, rel=0.01)
    assert found["local"].twin_ns is None
    assert twin.times(RunFolder(tmp_path / "none")) == {}
