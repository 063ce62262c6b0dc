"""The pictures of several runs: how each cell changed from one to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from harness.analysis import disturbance, stats
from harness.analysis.stats import Summary
from harness.model import Plan
from harness.report import draw
from harness.report.charts import (
    LEFT,
    TOP,
    WIDTH,
    Chart,
    horizontal,
    legend,
    line_of,
    remark,
    scale_of,
    series,
    together,
)
from harness.report.content import ColumnFacts, planned_s
from harness.results.columns import TableRow
from harness.results.metrics import Metric, reader
from harness.table.options import Table
from harness.table.text import number

_BOTTOM = 230.0
_TICKS = 3
"""The most runs that have their names below a picture."""

_Points = dict[str, Summary]
"""What a column's runs gave, by run id."""


def trends(table: Table, facts: Sequence[ColumnFacts], plans: Mapping[str, Plan]) -> list[Chart]:
    """For each row, a curve over the runs for each column that at least two runs have measured undisturbed.

    The runs stand in the order in which they were planned.
    """
    found = []
    for row in table.rows:
        read = reader(row.direction, table.options.metric)
        curves = []
        for fact in facts:
            values: dict[str, list[float]] = {}
            for record in disturbance.quiet(fact.samples.get(row.workload, ())):
                if (value := read(record)) is not None:
                    values.setdefault(record.run_id, []).append(value)
            if len(values) > 1:
                curves.append((fact, {run: stats.summarise(each) for run, each in values.items()}))
        found_in = {run for _, points in curves for run in points}
        runs = sorted(found_in, key=lambda run: (planned_s(plans.get(run)), run))
        for part, group in together(curves):
            found.append(_of_row(row, group, runs, table.options.metric, f"{row.name}{part}"))
    return found


def _of_row(
    row: TableRow,
    curves: Sequence[tuple[ColumnFacts, _Points]],
    runs: Sequence[str],
    metric: Metric,
    title: str,
) -> Chart:
    points = [point for _, of_run in curves for point in of_run.values()]
    ends = [value for point in points for value in (point.low, point.high) if value > 0]
    y = scale_of(ends, _BOTTOM, TOP)
    at = {run: LEFT + (place + 0.5) * (WIDTH - LEFT - 12) / len(runs) for place, run in enumerate(runs)}
    parts = horizontal(y, [(tick, draw.amount(tick)) for tick in y.ticks()])
    named = runs[:: -(-len(runs) // _TICKS)]
    parts.append(draw.texts([(at[run], _BOTTOM + 14, short(run)) for run in named], "m mu"))
    axis = f"runs; {metric.figure.unit}{remark(y)}"
    parts.append(draw.text((LEFT + WIDTH) / 2, _BOTTOM + 30, axis, "m mu"))
    lines = []
    for fact, of_run in curves:
        known = [run for run in runs if run in of_run]
        drawn = [draw.path([(at[run], y.at(of_run[run].median)) for run in known], line_of(fact))]
        whiskers = [
            ((at[run], y.at(of_run[run].low)), (at[run], y.at(of_run[run].high)))
            for run in known
            if of_run[run].n > 1
        ]
        if whiskers:
            drawn.append(draw.lines(whiskers, "li"))
        tips = [
            (
                at[run],
                y.at(of_run[run].median),
                f"{run}: {_told(of_run[run], metric)} {metric.figure.unit}",
            )
            for run in known
        ]
        parts.append(series(fact, *drawn, draw.marks(fact.place, tips)))
        lines.append((fact.name, *(_told(of_run[run], metric) if run in of_run else "" for run in runs)))
    marks, high = legend([fact for fact, _ in curves], _BOTTOM + 50)
    return Chart(
        title=title,
        description=f"{metric.figure.meaning} over runs, a curve for each column",
        height=_BOTTOM + 44 + high,
        body="".join([*parts, *marks]),
        headings=("column", *runs),
        lines=tuple(lines),
        row=row.name,
    )


def short(run: str) -> str:
    """A run's day and time, if its name begins with them: ``11-22 17:28``."""
    try:
        return f"{datetime.strptime(run[:15], '%Y%m%d-%H%M%S').replace(tzinfo=UTC):%m-%d %H:%M}"
    except ValueError:
        return draw.shortened(run, 11)


def _told(point: Summary, metric: Metric) -> str:
    middle, low, high = (number(value, metric) for value in (point.median, point.low, point.high))
    return middle if point.n == 1 else f"{middle} [{low}, {high}]"
