"""Said and tried: a forecast is held to the ratio of what was measured in turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.analysis.limit import ChangeKind, ChangeStep
from harness.explain.text import outcome_lines
from harness.model import Column, Job, Plan, Record, Status
from harness.questions.trial import tried as forecasts
from harness.questions.trial.section import SECTION, Forecast, Forecasts
from harness.results.measured import Measured
from tests.unit.observe.test_disturbance import disturbed
from tests.unit.results_folder import made_plan, write
from tests.unit.table.test_table import record

FIRST, ONE, EIGHT = "first", "rand-read-4k", "rand-read-4k-qd8"
WIRED = Column("wired")


def trying(run: str = FIRST, **changes: Any) -> Plan:
    """A plan that tries that 4K reads rise from 20 MB/s to 50, from 40 to 60."""
    whole: dict[str, Any] = {"run_id": run, "step": ChangeStep(ChangeKind.DEPTH, 8)}
    whole |= {"column": WIRED, "workload": ONE, "changed_column": WIRED, "changed_workload": EIGHT}
    whole |= {"before_mb_s": 20.0, "said_mb_s": 50.0, "least_mb_s": 40.0, "most_mb_s": 60.0}
    depths = ((ONE, "1"), (EIGHT, "8"))
    jobs = tuple(Job(name=name, options=(("bs", "4k"), ("iodepth", depth))) for name, depth in depths)
    forecast = Forecast(**whole | changes)
    cells = tuple(place for place in (forecast.unchanged, forecast.changed) if place)
    within = SECTION.within(Forecasts(forecasts=(forecast,)))
    return made_plan(jobs=jobs, columns=(WIRED,), cells=cells, sections=within)


def measured(*pairs: tuple[float, float]) -> list[Record]:
    """The rounds: MB/s without the change and with it."""
    return [
        record(rate, workload=name, repeat=repeat)
        for repeat, rates in enumerate(pairs, 1)
        for name, rate in zip((ONE, EIGHT), rates, strict=True)
    ]


def only(plan: Plan, records: list[Record]) -> forecasts.Tried:
    (found,) = forecasts.tried(plan, records)
    return found


def test_a_forecast_is_held_to_what_the_machine_did_meanwhile() -> None:
    # Half as fast as before, but the change helps as much as was said.
    found = only(trying(), measured((10, 25), (12, 30), (8, 20)))
    assert (found.now_mb_s, found.said_mb_s, found.mb_s) == pytest.approx((10, 25, 25))
    assert (found.least_mb_s, found.most_mb_s, found.error) == pytest.approx((20, 30, 1))
    assert found.is_within and not found.is_disturbed and found.tried_by == "r1"
    found = only(trying(), measured((20, 30), (20, 30)))
    assert not found.is_within and found.error == pytest.approx(50 / 30)
    records = measured((20, 30), (20, 30))
    outcome = forecasts.outcome(Measured(records=records, plans={"r1": trying()}))
    assert outcome is not None
    lines = outcome_lines(outcome)
    assert "wired rand-read-4k" in lines[2] and "50 (40 to 60)" in lines[2] and "outside" in lines[2]
    assert "0 of 1 forecast hit" in " ".join(lines[3:])
    assert "forecast / measured = 1.67" in " ".join(lines[3:])
    assert forecasts.outcome(Measured(records=[])) is None and forecasts.summary([]) == ""


def test_rounds_that_lack_one_of_the_two_do_not_count_in_the_ratio() -> None:
    records = [*measured((20, 50), (20, 50)), record(5.0, workload=ONE, repeat=3)]
    assert only(trying(), records).mb_s == pytest.approx(50)
    both = measured((20, 50))
    failed = [replace(each, status=Status.FAILED) for each in both]
    of_another = [replace(each, run_id="r2") for each in both]
    for lacking in (both[:1], failed, of_another):
        assert list(forecasts.tried(trying(), lacking)) == []
    records = measured((20, 50))
    records[1] = replace(records[1], telemetry=disturbed(0.5).telemetry)
    found = only(trying(), records)
    assert found.is_disturbed and forecasts.rows([found])[0][-1] == "within, disturbed"


def test_another_disk_is_held_to_the_figure_of_the_first_run() -> None:
    step = ChangeStep(ChangeKind.DEVICE, 0.5)
    plan = trying(step=step, changed_workload=ONE)
    assert plan.places == ((WIRED, ONE),)
    found = only(plan, measured((45, 1))[:1])
    assert (found.now_mb_s, found.said_mb_s, found.mb_s) == (20, 50, 45)


def test_the_first_run_knows_what_was_tried_next_to_it(tmp_path: Path) -> None:
    records = measured((20, 50))
    first = write(tmp_path, [replace(r, run_id=FIRST) for r in records], made_plan(FIRST))
    write(tmp_path, records, trying())
    # Another run, of another first one, and a damaged one.
    others = [replace(r, run_id="r2") for r in records]
    write(tmp_path, others, replace(trying(run="another"), run_id="r2"))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "plan.json").write_text(f'{{"forecasts":[{{"run_id":"{FIRST}"')
    tried_by = (["r1"], ["r1"], ["r1", "r2"])
    read = ([first], [tmp_path / "r1"], [first, tmp_path / "r1", tmp_path / "r2"])
    for folders, runs in zip(read, tried_by, strict=True):
        assert sorted(each.tried_by for each in forecasts.stored(Measured.read(folders))) == runs
