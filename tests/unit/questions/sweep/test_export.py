"""What programs get of a sweep: its points, also those that were not measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import harness as api
from harness.report import load
from harness.results.measured import Measured
from harness.table.export import ExportFormat, encode, rows
from tests.unit.command import harness
from tests.unit.questions.sweep.test_sentences import records_of
from tests.unit.questions.sweep.test_sweep import planned
from tests.unit.report.test_answer import reported
from tests.unit.table.test_export import families
from tests.unit.test_schemas import strict

FIGURES = Path(__file__).parents[4] / "docs" / "figures"
STORED = FIGURES / "sweep-virtual"


def test_a_sweep_has_its_axes_and_the_points_that_were_not_measured() -> None:
    plan = planned("rtt=0.1ms..50ms", "depth=1..16", ipsec=("off",))
    records = records_of(plan, lambda at, _: 4096 * at["depth"] / (100e-6 + at["rtt"]))
    found = Measured(records=records, plans={plan.run_id: plan})
    (curve,) = found.curves
    exported = list(rows(found.records, plans=found.plans, curves=found.curves))
    assert {row["curve"] for row in exported} == {"wired rand-read, block 4K"}
    places = {(row["link_rtt"], row["queue_depth"]) for row in exported}
    assert places == {(point["rtt"], point["depth"]) for point in curve.grid.values()}
    estimated = [row for row in exported if row["status"] == "estimated"]
    assert len(estimated) == len(curve.estimates) == len(exported) - len(found.records) > 0
    for row in estimated:
        low, value, high = (row[f"bandwidth_{each}bytes_s"] for each in ("low_", "", "high_"))
        assert isinstance(low, float) and isinstance(value, float) and isinstance(high, float)
        assert low < value < high and row["iops"] == pytest.approx(value / 4096)
        nothing = dict.fromkeys(("repeat", "bytes", "is_disturbed"))
        assert row.items() >= {**nothing, "direction": "read"}.items()
    for format in ExportFormat:
        assert encode(found.records, format, plans=found.plans, curves=found.curves).count(b"estimated") > 0


def test_a_stored_sweep_has_432_rows() -> None:
    swept = Measured.read([STORED])
    made = encode(swept.records, ExportFormat.OPENMETRICS, swept.environments, swept.plans, swept.curves)
    assert len(families(made)["harness_is_estimated"]) == 432
    frame = api.open_results(STORED).to_pandas()
    assert frame["is_estimated"].dtype == "bool"
    assert len(frame[~frame["is_estimated"]]) == len(swept.records) == len(frame) - 345
    assert {*frame[frame["is_estimated"]]["status"]} == {"estimated"}
    validator = strict("export")
    done = harness("export", str(STORED), "--format", "jsonl", cwd=FIGURES)
    exported = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["status"] for row in exported} == {"ok", "estimated"}
    for row in exported:
        validator.validate(row)
    assert "the peak fills the link" in reported(load([STORED]))[1]
