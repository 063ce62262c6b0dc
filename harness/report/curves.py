"""The pictures with a curve for each column: latency by percentile, bandwidth over time, and runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.analysis import disturbance, stats
from harness.analysis.stats import Summary
from harness.model import Plan
from harness.model.histogram import Histogram
from harness.model.units import format_ns
from harness.report import draw
from harness.report.charts import LEFT, TOP, WIDTH, Chart, horizontal, in_mb_s, legend, series, vertical
from harness.report.content import ColumnFacts, Origin, planned_s
from harness.results import bandwidth_series, distributions
from harness.results.bandwidth_series import BandwidthSeries
from harness.results.columns import TableRow
from harness.results.metrics import Direction, Metric, reader
from harness.table.options import Table
from harness.table.text import number

LINEAR_UP_TO = 20
"""Up to this ratio of highest to lowest value, a linear axis shows both curves. Bars always have one, from
zero: they are there to be compared."""

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999)
_MARKED = (50, 90, 99, 99.9, 99.99)


_POINTS = 40
"""The most that a curve has; where there are more, neighbours are drawn as one."""

LEAST_S, LEAST_POINTS = 4.95, 20
"""A shorter measurement with fewer points has no course to look at. fio's last interval ends a bit early."""

_MARKS = 5
"""Marks along a curve, so that it can be identified without colour."""


_TICKS = 3
"""The most runs that have their names below a picture."""

_Points = dict[str, Summary]
"""What a column's runs gave, by run id."""


class _Curve(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn of a column: a line through ``places``, in px, what is around it, and marks with their
    tooltips. ``figures`` stand behind the column's name in the table below the picture."""

    fact: ColumnFacts
    places: Sequence[tuple[float, float]]
    marks: Sequence[tuple[float, float, str]]
    around: str = ""
    figures: tuple[str, ...]


BOTTOM = 230.0
"""Of the axis of a picture with curves."""


def _plotted(
    curves: Sequence[_Curve],
    behind: Sequence[str],
    *,
    row: TableRow,
    description: str,
    axis: str,
    headings: tuple[str, ...],
) -> list[Chart]:
    """Pictures of the curves of a row, with what is ``behind`` them: several with the same axes if one would
    have two curves of one colour."""
    found = []

    def of_colours(curve: _Curve) -> int:
        return curve.fact.place // draw.SERIES

    groups = [list(group) for _, group in itertools.groupby(sorted(curves, key=of_colours), of_colours)]
    for number_of, group in enumerate(groups, 1):
        part = f", {number_of} of {len(groups)}" if len(groups) > 1 else ""
        parts = [*behind, draw.text((LEFT + WIDTH) / 2, BOTTOM + 30, axis, "m mu")]
        for curve in group:
            fact = curve.fact
            line = draw.path(curve.places, "li da" if fact.origin.look is Origin.VIRTUAL else "li")
            parts.append(series(fact, curve.around, line, draw.marks(fact.place, curve.marks)))
        marks, high = legend([curve.fact for curve in group], BOTTOM + 50)
        found.append(
            Chart(
                title=f"{row.name}{part}",
                description=description,
                height=BOTTOM + 44 + high,
                body="".join([*parts, *marks]),
                headings=("column", *headings),
                lines=tuple((curve.fact.name, *curve.figures) for curve in group),
                row=row.name,
            )
        )
    return found


def scale_of(values: Sequence[float], start: float, end: float) -> draw.Scale:
    """The scale that shows curves through all of ``values``, which are above 0."""
    if max(values, default=1.0) / min(values, default=1.0) > LINEAR_UP_TO:
        return draw.logarithmic(values, start, end)
    return draw.linear(values, start, end)


def remark(scale: draw.Scale) -> str:
    """What the axis of a scale says behind its unit."""
    return ", logarithmic axis" if scale.log else ""


def percentiles(table: Table, facts: Sequence[ColumnFacts], folders: Mapping[str, Path]) -> list[Chart]:
    """Latency by percentile for each workload and direction: all I/Os of all repeats together.

    ``table`` has a latency metric, so that reads and writes have rows of their own.
    """
    found: list[Chart] = []
    for row in table.rows:
        if row.direction not in (Direction.READ, Direction.WRITE):
            continue
        writes = row.direction is Direction.WRITE
        known = [
            (fact, distribution, _latencies_us(distribution.histogram))
            for fact in facts
            if (
                distribution := distributions.of_cell(
                    fact.samples.get(row.workload, ()), folders, writes=writes
                )
            )
        ]
        if not known:
            continue
        last = max(q for _, _, curve in known for q in curve)
        x = draw.Scale(low=0.0, high=_nines(last) * 1.03, start=LEFT, end=WIDTH - 12)
        y = draw.logarithmic([us for _, _, curve in known for us in curve.values()], BOTTOM, TOP)
        curves = []
        for fact, distribution, curve in known:
            places = {q: (x.at(_nines(q)), y.at(us)) for q, us in curve.items()}
            value_text = {q: format_ns(1e3 * us) for q, us in curve.items()}
            curves.append(
                _Curve(
                    fact=fact,
                    places=[*places.values()],
                    marks=[
                        (*place, f"{q:g} %: {value_text[q]}")
                        for q, place in places.items()
                        if q in _MARKED or q == max(places)
                    ],
                    figures=(
                        str(distribution.histogram.count),
                        f"{distribution.merged} of {distribution.repeats}",
                        *(value_text.get(q, "") for q in PERCENTILES),
                    ),
                )
            )
        found += _plotted(
            curves,
            [
                *horizontal(y, [(tick, format_ns(1e3 * tick)) for tick in y.ticks()]),
                *vertical([(x.at(_nines(q)), f"{q:g}") for q in _MARKED if q <= last], TOP, BOTTOM),
            ],
            row=row,
            description="latency by percentile, one curve for each column",
            axis="percentile of I/Os",
            headings=("I/Os", "repeats merged", *(f"{q:g} %" for q in PERCENTILES)),
        )
    return found


def _latencies_us(histogram: Histogram) -> dict[float, float]:
    """Latencies in µs by percentile, as far as there are I/Os beyond one."""
    count = histogram.count
    shown = [q for q in PERCENTILES if q <= 50 or (100 - q) / 100 * count >= 1]
    return {q: ns / 1000 for q, ns in zip(shown, histogram.percentiles_ns(shown), strict=True)}


def _nines(q: float) -> float:
    """A percentile's position: the median at 0.3, 99 at 2, 99.9 at 3."""
    return -math.log10(1 - q / 100)


def courses(table: Table, facts: Sequence[ColumnFacts], folders: Mapping[str, Path]) -> list[Chart]:
    """For each workload with a log, a curve for each column. ``table`` has the metric MB/s."""
    found: list[Chart] = []
    for row in table.rows:
        known = [
            (fact, course.coarser(_POINTS))
            for fact in facts
            if (course := bandwidth_series.of_cell(fact.samples.get(row.workload, ()), folders)) is not None
            and (len(course.median) >= LEAST_POINTS or course.interval_s * len(course.median) >= LEAST_S)
        ]
        if not known:
            continue
        rates = [rate for _, course in known for rate in (*course.low, *course.high) if rate > 0]
        x = draw.linear([course.interval_s * len(course.median) for _, course in known], LEFT, WIDTH - 12)
        y = scale_of(rates, BOTTOM, TOP)
        found += _plotted(
            [_course(fact, course, x, y) for fact, course in known],
            [
                *horizontal(y, [(tick, draw.amount(tick / 1e6)) for tick in y.ticks()]),
                *vertical([(x.at(tick), f"{tick:g}") for tick in x.ticks()], TOP, BOTTOM),
            ],
            row=row,
            description="bandwidth over the time of a measurement, a curve for each column",
            axis=f"s since the start; MB/s{remark(y)}",
            headings=(
                "repeats",
                *(f"part {n} of 5 [MB/s]" for n in range(1, 6)),
                "range",
                "rise",
                "steady",
                "steady after",
            ),
        )
    return found


def _course(fact: ColumnFacts, course: BandwidthSeries, x: draw.Scale, y: draw.Scale) -> _Curve:
    after_s = [course.interval_s * (place + 0.5) for place in range(len(course.median))]
    high, middle, low = (
        [(x.at(s), y.at(rate)) for s, rate in zip(after_s, rates, strict=True)]
        for rates in (course.high, course.median, course.low)
    )
    step = -(-len(middle) // _MARKS)
    return _Curve(
        fact=fact,
        places=middle,
        marks=[
            (*middle[place], f"{after_s[place]:.1f} s: {draw.amount(course.median[place] / 1e6)} MB/s")
            for place in range(step // 2, len(middle), step)
        ],
        around=draw.area([*high, *reversed(low)]) if course.repeats > 1 else "",
        figures=_figures(course),
    )


def _figures(course: BandwidthSeries) -> tuple[str, ...]:
    state = course.state
    return (
        str(course.repeats),
        *map(in_mb_s, course.fifths),
        "n/a" if state is None else f"{100 * state.range:.1f} %",
        "n/a" if state is None else f"{100 * state.rise:+.1f} %",
        "too short to tell" if state is None else "yes" if state.attained else "no",
        "n/a" if course.settled_s is None else f"{course.settled_s:.1f} s",
    )


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
        found += _plotted(
            [
                _trend(fact, {run: of_run[run] for run in runs if run in of_run}, at, y, metric)
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


def _trend(
    fact: ColumnFacts, of_run: _Points, at: Mapping[str, float], y: draw.Scale, metric: Metric
) -> _Curve:
    whiskers = [
        ((at[run], y.at(point.low)), (at[run], y.at(point.high)))
        for run, point in of_run.items()
        if point.n > 1
    ]
    places = {run: (at[run], y.at(point.median)) for run, point in of_run.items()}
    return _Curve(
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
