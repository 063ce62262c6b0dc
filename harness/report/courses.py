"""The pictures of bandwidth over the time of a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.report import draw
from harness.report.charts import LEFT, LINEAR_UP_TO, TOP, WIDTH, Chart, horizontal, row_name
from harness.report.content import ColumnFacts, Origin
from harness.results import overtime
from harness.results.overtime import Course
from harness.table.options import Table, TableRow

_BOTTOM = 230.0
_MARKS = 8
"""Marks along a curve, so that it can be identified without colour."""


def courses(table: Table, facts: Sequence[ColumnFacts], folders: Mapping[str, Path]) -> list[Chart]:
    """For each workload with a log, a curve for each column. ``table`` has the metric MB/s.

    More than ``draw.SERIES`` columns are split over several pictures with the same axes.
    """
    found = []
    for row in table.rows:
        curves = [
            (fact, course)
            for fact in facts
            if (course := overtime.of_cell(fact.samples.get(row.workload, ()), folders)) is not None
        ]
        groups = [curves[first : first + draw.SERIES] for first in range(0, len(curves), draw.SERIES)]
        for number, group in enumerate(groups, 1):
            part = f", {number} of {len(groups)}" if len(groups) > 1 else ""
            found.append(_over_time(row, group, [course for _, course in curves], f"{row_name(row)}{part}"))
    return found


def _over_time(
    row: TableRow, curves: Sequence[tuple[ColumnFacts, Course]], all_curves: Sequence[Course], title: str
) -> Chart:
    rates = [rate for course in all_curves for rate in (*course.low, *course.high) if rate > 0]
    x = draw.linear([_end_s(course) for course in all_curves], LEFT, WIDTH - 12)
    spread_out = max(rates, default=1.0) / min(rates, default=1.0) > LINEAR_UP_TO
    y = draw.logarithmic(rates, _BOTTOM, TOP) if spread_out else draw.linear(rates, _BOTTOM, TOP)
    parts = horizontal(y, [(tick, draw.amount(tick / 1e6)) for tick in y.ticks()])
    for tick in x.ticks():
        parts.append(draw.line(x.at(tick), TOP, x.at(tick), _BOTTOM, "gr"))
        parts.append(draw.text(x.at(tick), _BOTTOM + 14, f"{tick:g}", "m mu"))
    axis = f"s since the start; MB/s{', logarithmic axis' if spread_out else ''}"
    parts.append(draw.text((LEFT + WIDTH) / 2, _BOTTOM + 30, axis, "m mu"))
    lines = []
    for index, (fact, course) in enumerate(curves):
        name = fact.name
        middles = [x.at(course.interval_s * (place + 0.5)) for place in range(len(course.median))]
        if course.repeats > 1:
            outline = [*zip(middles, map(y.at, course.high), strict=True)]
            outline += [*zip(reversed(middles), map(y.at, reversed(course.low)), strict=True)]
            parts.append(draw.area(outline, f"f{index}"))
        places = [(at, y.at(rate)) for at, rate in zip(middles, course.median, strict=True)]
        dashed = " da" if fact.origin is Origin.VIRTUAL else ""
        parts.append(draw.path(places, f"li s{index}{dashed}", name))
        step = -(-len(places) // _MARKS)
        for place in range(step // 2, len(places), step):
            after = f"{course.interval_s * (place + 0.5):.2f} s after the start"
            tip = f"{name}: {_mb_s(course.median[place])} MB/s {after}"
            parts.append(draw.marker(index, *places[place], f"f{index} {fact.origin}", tip, 2.8))
        lx, ly = LEFT - 40 + (index % 2) * (WIDTH - 30) / 2, _BOTTOM + 50 + 16 * (index // 2)
        parts.append(draw.marker(index, lx, ly - 4, f"f{index} {fact.origin}"))
        parts.append(draw.text(lx + 10, ly, draw.shortened(f"{fact.origin.sign} {name}", 30)))
        lines.append((name, *_figures(course)))
    return Chart(
        title=title,
        description="bandwidth over the time of a measurement, a curve for each column; the table below has "
        "the figures",
        height=_BOTTOM + 44 + 16 * -(-len(curves) // 2),
        body="".join(parts),
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
        row=row_name(row),
    )


def _figures(course: Course) -> tuple[str, ...]:
    state = course.state
    return (
        str(course.repeats),
        *map(_mb_s, course.fifths),
        "n/a" if state is None else f"{100 * state.range:.1f} %",
        "n/a" if state is None else f"{100 * state.rise:+.1f} %",
        "too short to tell" if state is None else "yes" if state.attained else "no",
        "n/a" if course.settled_s is None else f"{course.settled_s:.1f} s",
    )


def _end_s(course: Course) -> float:
    return course.interval_s * len(course.median)


def _mb_s(rate: float) -> str:
    return f"{rate / 1e6:.2f}"
