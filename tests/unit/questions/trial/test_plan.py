"""From a forecast to a plan that tries it: only those cells, with the change and without."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harness import model
from harness.analysis.interval import Interval, exact
from harness.analysis.limit import ChangeKind, ChangeStep, Limit
from harness.analysis.schedule import Schedule, order_of_cells
from harness.explain.remedy import Change
from harness.explain.text import Explained
from harness.explain.verdict import Confidence, Verdict
from harness.model import Column, DiskProfile, Flash, LabKernel, Plan
from harness.model.errors import UsageError
from harness.parse.jobfile import described
from harness.planning import duration
from harness.questions.trial.plan import make_plans
from harness.questions.trial.section import SECTION, Forecast, Forecasts
from harness.results import planned, rules
from harness.results.columns import ColumnKey
from tests import flat
from tests.unit.explain.test_explain import US, cell
from tests.unit.results_folder import WIFI, WIRED, made_plan

DEPTH, RATE = ChangeStep(ChangeKind.DEPTH, 8), ChangeStep(ChangeKind.RATE, 2)
DEVICE = ChangeStep(ChangeKind.DEVICE, 0.5)
FLASH = DiskProfile(name="slow", title="slow", flash=Flash(page_bytes=4096, page_us=100, pages_at_once=1))
OWN = {"lab_kernel": LabKernel.CUSTOM}
MACHINES: dict[str, Any] = {
    "links": {"wired": msgspec.structs.replace(WIRED, interface="eth0", emulated=False)},
    "testbed": model.TestbedKind.MACHINES,
    "machines": model.Machines(target="ssh://root@server", initiators=("local",)),
}


def said(
    plan: Plan, step: ChangeStep, link: str = "wired", workload: str = "rand-read-4k", *protection: str
) -> Explained:
    """A cell of 100 us that would take 40, from 30 to 50."""
    key = ColumnKey(plan.setting, Column(link, protection))
    evidence = cell(key=key, workload=workload, block_bytes=4096, time_ns=exact(100 * US))
    each_ns = Interval(30 * US, 40 * US, 50 * US)
    change = Change(step=step, what=step.words, each_ns=each_ns, limited_by=Limit.CPU, how="")
    verdict = Verdict(limited_by=Limit.LINK, confidence=Confidence.HIGH, reason="x", change=change)
    return Explained(evidence=evidence, verdict=verdict)


def forecasts_of(plan: Plan) -> tuple[Forecast, ...]:
    return SECTION.of(plan).forecasts


def test_a_deeper_queue_and_a_faster_link_share_a_plan_of_just_their_cells() -> None:
    plan = made_plan()
    cells = [said(plan, DEPTH), said(plan, RATE, "wifi", "seq-read-256k", "aes128gcm16")]
    (made,) = make_plans(plan, cells)
    assert made.run_id != plan.run_id and forecasts_of(made)[0].run_id == plan.run_id
    assert [f"{column.label} {workload}" for column, workload in made.places] == [
        *("wired rand-read-4k", "wired rand-read-4k-qd8", "wifi+aes128gcm16 seq-read-256k"),
        "wifi-rate100m+aes128gcm16 seq-read-256k",
    ]
    rates = {name: link.rate_bit_s for name, link in made.links.items()}
    assert rates == {"wired": 10**9, "wifi": 50_000_000, "wifi-rate100m": 100_000_000}
    first = forecasts_of(made)[0]
    found = (first.before_mb_s, first.said_mb_s, first.least_mb_s, first.most_mb_s)
    assert found == pytest.approx((40.96, 102.4, 81.92, 136.53), abs=0.01)
    deep = next(job for job in made.jobs if job.name == "rand-read-4k-qd8")
    assert described(deep).in_flight == 8 and dict(deep.options)["ioengine"] == "libaio"


def test_its_rounds_have_each_cell_once_with_the_change_and_without() -> None:
    plan = made_plan(repeats=3)
    (made,) = make_plans(plan, [said(plan, DEPTH), said(plan, RATE)])
    cells = order_of_cells(made)
    # The unchanged cell is that of both.
    assert len(cells) == 3 * 3 == Schedule(made).expected
    for repeat in range(3):
        block = cells[3 * repeat : 3 * repeat + 3]
        assert {(each.column, each.workload) for each in block} == {*made.places}
    assert duration.run_s(made) < duration.run_s(msgspec.structs.replace(made, cells=(), sections={}))


def test_another_disk_has_a_plan_of_its_own() -> None:
    plan = made_plan(disk=FLASH, **OWN)
    first, second = make_plans(plan, [said(plan, DEPTH), said(plan, DEVICE, workload="seq-read-4k")])
    assert first.storage.disk == FLASH and forecasts_of(first)[0].unchanged is not None
    assert second.storage.disk is not None and second.storage.disk.flash is not None
    assert (second.storage.disk.flash.page_us, second.setting.disk) == (50, "slow-half")
    assert forecasts_of(second)[0].unchanged is None and len(second.places) == 1


def test_what_cannot_be_made_is_not_tried() -> None:
    unshaped = msgspec.structs.replace(WIRED, rate_bit_s=None)
    radio = msgspec.structs.replace(WIFI, name="wired", radio="802.11n")
    impossible: tuple[tuple[dict[str, Any], ChangeStep], ...] = (
        ({"links": {"wired": unshaped}}, RATE),
        (MACHINES, RATE),
        ({"links": {"wired": radio}, **OWN}, RATE),
        ({}, DEVICE),
        ({"disk": DiskProfile(name="ram", title="x"), **OWN}, DEVICE),
    )
    for changes, step in impossible:
        plan = made_plan(columns=(Column("wired"),), **changes)
        assert make_plans(plan, [said(plan, step)]) == [], changes
    # Nor is a cell of another run or without a forecast.
    plan = made_plan()
    found = said(plan, DEPTH)
    bare = msgspec.structs.replace(found, verdict=msgspec.structs.replace(found.verdict, change=None))
    assert make_plans(plan, [bare, said(plan, DEPTH, "wan"), said(plan, DEPTH, workload="other")]) == []
    # The load of an open loop is what was asked for, whatever would help.
    options = (("bs", "4k"), ("io_submit_mode", "offload"), ("rate_process", "poisson"))
    open_loop = made_plan(jobs=(model.Job(name="rand-read-4k", options=options),))
    assert make_plans(open_loop, [said(open_loop, DEPTH)]) == []


def test_real_machines_try_a_deeper_queue_with_the_options_typed_again() -> None:
    backing = model.Backing(kind=model.BackingKind.FILE, size_bytes=1 << 27, path=planned.default_file("r1"))
    plan = made_plan(columns=(Column("wired"),), backing=backing, **MACHINES)
    (made,) = make_plans(plan, [said(plan, DEPTH)])
    # Its own new file, not that of the first run.
    assert made.storage.backing.path == planned.default_file(made.run_id)
    assert planned.outside(made) == [("--target", "ssh://root@server"), ("--link", "wired=eth0")]


def test_a_plan_that_tries_what_it_does_not_measure_is_refused() -> None:
    plan = made_plan()
    (made,) = make_plans(plan, [said(plan, DEPTH)])
    (forecast,) = forecasts_of(made)
    wrongs: list[dict[str, Any]] = [{"workload": "other"}, {"changed_column": Column("elsewhere")}]
    wrongs += [{"run_id": "../x"}, {"before_mb_s": 0.0}, {"least_mb_s": -1.0}]
    for wrong in wrongs:
        damaged = msgspec.structs.replace(forecast, **wrong)
        with pytest.raises(UsageError):
            rules.check(flat.changed(made, sections=SECTION.within(Forecasts(forecasts=(damaged,)))))
