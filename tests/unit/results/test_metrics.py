"""Figures of records: each is declared once, and tables, exports, the report and the help have it."""

from __future__ import annotations

import pytest

from harness.model.stalls import Stall
from harness.model.telemetry import ProcessorUse, Telemetry
from harness.report import render as page
from harness.report.content import LoadedResults
from harness.results.metrics import Metric
from harness.table import Options, build
from harness.table.export import rows
from tests.unit.table.test_table import cells_of, only, record, transfer

BUSY = Telemetry(
    processors=tuple(
        ProcessorUse(hosts=(host,), wall_ns=10**9, cores=4, busiest_core=busiest_core)
        for host, busiest_core in (("initiator", 0.41), ("target", 0.97))
    )
)

STALL = Stall(
    fault="link-down:5s",
    began_ns=0,
    ended_ns=5,
    late_ns=1,
    requests=9,
    late=2,
    unsent=0,
    longest_ns=9,
    stall_ns=5_200_000_000,
    over_ns=9,
)


def test_a_figure_that_is_declared_is_everywhere() -> None:
    times = {"mean_ns": 2000.0, "p50_ns": 1000.0, "p99_ns": 5000.0, "p99_9_ns": 9000.0}
    whole = record(workload="seq-read-4k", read=transfer(3.0, **times), telemetry=BUSY, stall=STALL)
    (row,) = rows([whole])
    report = page(LoadedResults(records=[whole]))
    for metric in Metric:
        figure = metric.figure
        (cell,) = cells_of(build([whole], Options(metric=metric)))
        assert (cell["metric"], cell["unit"]) == (metric, figure.unit)
        assert cell["value"] == pytest.approx(float(row[figure.column] or 0) / figure.scale) != 0, metric
        assert (f"> {figure.title}</label>" in report) is figure.in_report, metric


def test_how_busy_the_busiest_core_was_is_a_figure_of_both_directions() -> None:
    mixed = record(workload="mixed", read=transfer(3.0), write=transfer(1.0), telemetry=BUSY)
    table = build([mixed], Options(metric=Metric.CORE))
    assert [row.name for row in table.rows] == ["mixed (read+write)"]
    assert only(table).value == pytest.approx(97.0)
    assert "busy part of the busiest core in %" in table.title
    # A run that watched no core says so.
    bare = only(build([record()], Options(metric=Metric.CORE)))
    assert bare.reasons == ("busiest core: unknown in 1 of 1 repeats",)
