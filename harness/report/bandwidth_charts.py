"""The pictures of bandwidth over the time of a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.report import draw
from harness.report.charts import (
    BOTTOM,
    LEFT,
    TOP,
    WIDTH,
    Chart,
    Curve,
    horizontal,
    in_mb_s,
    plotted,
    remark,
    scale_of,
    vertical,
)
from harness.report.content import ColumnFacts
from harness.results import bandwidth_series
from harness.results.bandwidth_series import BandwidthSeries
from harness.table.options import Table

_POINTS = 40
"""The most that a curve has; where there are more, neighbours are drawn as one."""

_MARKS = 5
"""Marks along a curve, so that it can be identified without colour."""


def courses(table: Table, facts: Sequence[ColumnFacts], folders: Mapping[str, Path]) -> list[Chart]:
    """For each workload with a log, a curve for each column. ``table`` has the metric MB/s.

    More than ``draw.SERIES`` columns are split over several pictures with the same axes.
    """
    found: list[Chart] = []
    for row in table.rows:
        known = [
            (fact, course.coarser(_POINTS))
            for fact in facts
            if (course := bandwidth_series.of_cell(fact.samples.get(row.workload, ()), folders)) is not None
        ]
        rates = [rate for _, course in known for rate in (*course.low, *course.high) if rate > 0]
        x = draw.linear([course.interval_s * len(course.median) for _, course in known], LEFT, WIDTH - 12)
        y = scale_of(rates, BOTTOM, TOP)
        found += plotted(
            [_curve(fact, course, x, y) for fact, course in known],
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


def _curve(fact: ColumnFacts, course: BandwidthSeries, x: draw.Scale, y: draw.Scale) -> Curve:
    after_s = [course.interval_s * (place + 0.5) for place in range(len(course.median))]
    high, middle, low = (
        [(x.at(s), y.at(rate)) for s, rate in zip(after_s, rates, strict=True)]
        for rates in (course.high, course.median, course.low)
    )
    step = -(-len(middle) // _MARKS)
    return Curve(
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
