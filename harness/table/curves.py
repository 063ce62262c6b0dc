"""Curves as text: a table for each, with what was measured and what lies between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tabulate import tabulate

from harness.analysis.response import PREDICTED
from harness.analysis.schedule import Place
from harness.results.axes import AXES
from harness.results.curves import MeasuredCurve
from harness.table.notes import Context, alike, origins

DOUBTED = "*"
"""The sign of a point with a warning of its own."""


def render(curves: Sequence[MeasuredCurve]) -> str:
    """MB/s along the first axis, with a column for each value of the second."""
    tables = [table for curve in curves for table in _tables(curve)]
    if any(curve.disturbed for curve in curves):
        tables.append("!: disturbed by other programs; estimates next to it are doubtful too")
    if any(curve.estimates for curve in curves):
        tables.append(f"{PREDICTED}: interpolated between measured points")
    if reported := doubts(curves):
        tables.append("\n".join(reported))
    foreign = [
        each
        for curve in curves
        for place, record in curve.records.items()
        if not record.setting.is_harness
        for each in curve.repeats.get(place, (record,))
    ]
    if any(curve.repeats for curve in curves):
        most = max(len(each) for curve in curves for each in curve.repeats.values())
        tables.append(f"Median of up to {most} repeats of a point.")
    if foreign:
        tables.append("\n".join(origins(Context(records=foreign, plans=[], environments=[]))))
    return "\n\n".join(tables)


def doubts(curves: Sequence[MeasuredCurve]) -> list[str]:
    """The warnings about points, each once, with how many points have it; those of marked points first."""
    warned = alike(
        (warning, (warning in curve.doubts.get(place, ()), curve, place))
        for curve in curves
        for place, record in curve.records.items()
        for warning in record.warnings
    )
    count = sum(len(curve.records) for curve in curves)
    lines = []
    for warning, where in warned.items():
        is_marked, curve, place = where[0]
        point = " and ".join(f"{axis} {AXES[axis].shown(curve.grid[place][axis])}" for axis in curve.axes)
        first = f", the first {curve.curve.name} at {point}" if len(where) < count else ""
        lines.append((not is_marked, f"Warning ({len(where)} of {count} points{first}): {warning}"))
    return [f"{'' if unmarked else f'{DOUBTED}: '}{line}" for unmarked, line in sorted(lines)]


def _tables(curve: MeasuredCurve) -> Iterator[str]:
    rows_of, columns_of, *others = (*curve.axes, "", "")[: max(2, len(curve.axes))]
    fixed = sorted({tuple(point[name] for name in others if name) for point in curve.grid.values()})
    for there in fixed:
        places = {
            (point[rows_of], point[columns_of] if columns_of else 0.0): place
            for place, point in curve.grid.items()
            if tuple(point[name] for name in others if name) == there
        }
        rows = sorted({row for row, _ in places})
        columns = sorted({column for _, column in places})
        heading = [rows_of, *(AXES[columns_of].shown(c) if columns_of else "MB/s" for c in columns)]
        lines = [
            [AXES[rows_of].shown(row), *(cell(curve, places.get((row, column))) for column in columns)]
            for row in rows
        ]
        name = "".join(f", {n} {AXES[n].shown(v)}" for n, v in zip(others, there, strict=False))
        unit = f" (MB/s; {columns_of} in columns)" if columns_of else ""
        table = tabulate(lines, heading, disable_numparse=True, stralign="right")
        yield f"{curve.curve.name}{name}{unit}\n{table}"


def cell(curve: MeasuredCurve, place: Place | None) -> str:
    """MB/s at a point, with its signs; empty for none."""
    if place is None:
        return ""
    found = curve.at(place)
    sign = "" if place in curve.rates else PREDICTED
    signs = f"{'!' if place in curve.disturbed else ''}{DOUBTED if place in curve.doubts else ''}"
    return f"{sign}{found.mid / 1e6:.4g}{signs}"
