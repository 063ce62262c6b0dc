"""The pictures of several runs: how each cell changed from one to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from harness.analysis import disturbance, stats
from harness.analysis.stats import Summary
from harness.model import Plan
from harness.report import draw
from harness.report.charts import (
    BOTTOM,
    LEFT,
    TOP,
    WIDTH,
    Chart,
    Curve,
    horizontal,
    plotted,
    remark,
    scale_of,
)
from harness.report.content import ColumnFacts, planned_s
from harness.results.metrics import Metric, reader
from harness.table.options import Table
from harness.table.text import number

_TICKS = 3
"""The most runs that have their names below a picture."""

_Points = dict[str, Summary]
"""What a column's runs gave, by run id."""


def trends(table: Table, facts: Sequence[ColumnFacts], plans: Mapping[str, Plan]) -> list[Chart]:
    """For each row, a curve over the runs for each column that at least two runs have measured undisturbed.

    The runs stand in the order in which they were planned.
    """
    metric = table.options.metric
    found: list[Chart] = []
    for row in table.rows:
        read = reader(row.direction, metric)
        known = []
        for fact in facts:
            values: dict[str, list[float]] = {}
            for record in disturbance.quiet(fact.samples.get(row.workload, ())):
                if (value := read(record)) is not None:
                    values.setdefault(record.run_id, []).append(value)
            if len(values) > 1:
                known.append((fact, {run: stats.summarise(each) for run, each in values.items()}))
        measured = {run for _, points in known for run in points}
        runs = sorted(measured, key=lambda run: (planned_s(plans.get(run)), run))
        points = [point for _, of_run in known for point in of_run.values()]
        y = scale_of([end for point in points for end in (point.low, point.high) if end > 0], BOTTOM, TOP)
        at = {run: LEFT + (place + 0.5) * (WIDTH - LEFT - 12) / len(runs) for place, run in enumerate(runs)}
        named = runs[:: -(-len(runs) // _TICKS)] if runs else []
        found += plotted(
            [
                _curve(fact, {run: of_run[run] for run in runs if run in of_run}, at, y, metric)
                for fact, of_run in known
            ],
            [
                *horizontal(y, [(tick, draw.amount(tick)) for tick in y.ticks()]),
                draw.texts([(at[run], BOTTOM + 14, short(run)) for run in named], "m mu"),
            ],
            row=row,
            description=f"{metric.figure.meaning} over runs, a curve for each column",
            axis=f"runs; {metric.figure.unit}{remark(y)}",
            headings=tuple(runs),
        )
    return found


def _curve(
    fact: ColumnFacts, of_run: _Points, at: Mapping[str, float], y: draw.Scale, metric: Metric
) -> Curve:
    whiskers = [
        ((at[run], y.at(point.low)), (at[run], y.at(point.high)))
        for run, point in of_run.items()
        if point.n > 1
    ]
    places = {run: (at[run], y.at(point.median)) for run, point in of_run.items()}
    return Curve(
        fact=fact,
        places=[*places.values()],
        marks=[
            (*place, f"{run}: {_tip(of_run[run], metric)} {metric.figure.unit}")
            for run, place in places.items()
        ],
        around=draw.lines(whiskers, "li") if whiskers else "",
        figures=tuple(_tip(of_run[run], metric) if run in of_run else "" for run in at),
    )


def short(run: str) -> str:
    """A run's day and time, if its name begins with them: ``11-22 17:28``."""
    try:
        return f"{datetime.strptime(run[:15], '%Y%m%d-%H%M%S').replace(tzinfo=UTC):%m-%d %H:%M}"
    except ValueError:
        return draw.shortened(run, 11)


def _tip(point: Summary, metric: Metric) -> str:
    middle, low, high = (number(value, metric) for value in (point.median, point.low, point.high))
    return middle if point.n == 1 else f"{middle} [{low}, {high}]"
