"""The pictures of bandwidth over the time of a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.report import draw
from harness.report.charts import (
    LEFT,
    TOP,
    WIDTH,
    Chart,
    horizontal,
    in_mb_s,
    legend,
    line_of,
    remark,
    scale_of,
    series,
    together,
    vertical,
)
from harness.report.content import ColumnFacts
from harness.results import overtime
from harness.results.columns import TableRow
from harness.results.overtime import Course
from harness.table.options import Table

_BOTTOM = 230.0
_POINTS = 40
"""The most that a curve has; where there are more, neighbours are drawn as one."""

_MARKS = 5
"""Marks along a curve, so that it can be identified without colour."""


def courses(table: Table, facts: Sequence[ColumnFacts], folders: Mapping[str, Path]) -> list[Chart]:
    """For each workload with a log, a curve for each column. ``table`` has the metric MB/s.

    More than ``draw.SERIES`` columns are split over several pictures with the same axes.
    """
    found = []
    for row in table.rows:
        curves = [
            (fact, course.coarser(_POINTS))
            for fact in facts
            if (course := overtime.of_cell(fact.samples.get(row.workload, ()), folders)) is not None
        ]
        for part, group in together(curves):
            found.append(_over_time(row, group, [course for _, course in curves], f"{row.name}{part}"))
    return found


def _over_time(
    row: TableRow, curves: Sequence[tuple[ColumnFacts, Course]], all_curves: Sequence[Course], title: str
) -> Chart:
    rates = [rate for course in all_curves for rate in (*course.low, *course.high) if rate > 0]
    x = draw.linear([course.interval_s * len(course.median) for course in all_curves], LEFT, WIDTH - 12)
    y = scale_of(rates, _BOTTOM, TOP)
    parts = horizontal(y, [(tick, draw.amount(tick / 1e6)) for tick in y.ticks()])
    parts += vertical([(x.at(tick), f"{tick:g}") for tick in x.ticks()], TOP, _BOTTOM)
    axis = f"s since the start; MB/s{remark(y)}"
    parts.append(draw.text((LEFT + WIDTH) / 2, _BOTTOM + 30, axis, "m mu"))
    lines = []
    for fact, course in curves:
        drawn = []
        middles = [x.at(course.interval_s * (place + 0.5)) for place in range(len(course.median))]
        if course.repeats > 1:
            outline = [*zip(middles, map(y.at, course.high), strict=True)]
            outline += [*zip(reversed(middles), map(y.at, reversed(course.low)), strict=True)]
            drawn.append(draw.area(outline))
        places = [(at, y.at(rate)) for at, rate in zip(middles, course.median, strict=True)]
        drawn.append(draw.path(places, line_of(fact)))
        step = -(-len(places) // _MARKS)
        marked = []
        for place in range(step // 2, len(places), step):
            after = f"{course.interval_s * (place + 0.5):.1f} s"
            marked.append((*places[place], f"{after}: {draw.amount(course.median[place] / 1e6)} MB/s"))
        parts.append(series(fact, *drawn, draw.marks(fact.place, marked)))
        lines.append((fact.name, *_figures(course)))
    marks, high = legend([fact for fact, _ in curves], _BOTTOM + 50)
    return Chart(
        title=title,
        description="bandwidth over the time of a measurement, a curve for each column",
        height=_BOTTOM + 44 + high,
        body="".join([*parts, *marks]),
        headings=(
            "column",
            "repeats",
            *(f"part {n} of 5 [MB/s]" for n in range(1, 6)),
            "range",
            "rise",
            "steady",
            "steady after",
        ),
        lines=tuple(lines),
        row=row.name,
    )


def _figures(course: Course) -> tuple[str, ...]:
    state = course.state
    return (
        str(course.repeats),
        *map(in_mb_s, course.fifths),
        "n/a" if state is None else f"{100 * state.range:.1f} %",
        "n/a" if state is None else f"{100 * state.rise:+.1f} %",
        "too short to tell" if state is None else "yes" if state.attained else "no",
        "n/a" if course.settled_s is None else f"{course.settled_s:.1f} s",
    )
