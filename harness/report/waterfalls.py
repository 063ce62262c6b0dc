"""The waterfall of each cell as a picture: where the time of one I/O goes, column by column."""

from __future__ import annotations

from collections.abc import Sequence

from harness.explain import Explained, sentence
from harness.explain.text import short
from harness.explain.waterfall import PARTS
from harness.report import draw
from harness.report.charts import WIDTH, Chart

_COLOURS = {
    "device": 7,
    "link": 0,
    "round_trip": 5,
    "window": 5,
    "transport": 2,
    "framing": 3,
    "crypto": 1,
    "cpu": 6,
}
"""The number of a series for each part that has a cause; waiting and unexplained time have only outlines."""

_LABELS = 164
_TOTALS = 74
_TOP = 8
_BAR = 21
_LEGEND_ACROSS = 5
_LEGEND_LINE = 16


def waterfalls(cells: Sequence[Explained]) -> list[Chart]:
    """A picture for each workload, with a bar for each column that has a figure."""
    rows: dict[str, list[Explained]] = {}
    for cell in cells:
        if cell.verdict.waterfall_ns and cell.verdict.whole_ns:
            rows.setdefault(cell.evidence.workload, []).append(cell)
    return [_of_row(workload, found) for workload, found in rows.items()]


def _of_row(workload: str, cells: Sequence[Explained]) -> Chart:
    names = [name for name in PARTS if any(cell.verdict.waterfall_ns.get(name) for cell in cells)]
    several = len({cell.evidence.setting for cell in cells}) > 1
    parts = []
    lines = []
    for place, cell in enumerate(cells):
        y = _TOP + _BAR * place
        name = cell.evidence.column if several else cell.evidence.label
        label = draw.shortened(name, draw.fits(_LABELS - 6))
        parts.append(draw.text(_LABELS - 6, y + 14, label, "e"))
        parts += _bar(cell, y)
        whole_ns = cell.verdict.whole_ns or 0
        parts.append(draw.text(WIDTH - 4, y + 14, draw.microseconds(whole_ns / 1e3), "e b"))
        figures = [_figure(cell.verdict.waterfall_ns.get(name)) for name in names]
        lines.append((cell.evidence.column, _figure(whole_ns), *figures, sentence(cell)))
    bottom = _TOP + _BAR * len(cells)
    for place, name in enumerate(names):
        x = 4 + place % _LEGEND_ACROSS * (WIDTH - 8) / _LEGEND_ACROSS
        y = bottom + 6 + place // _LEGEND_ACROSS * _LEGEND_LINE
        parts.append(f'<rect class="{_class(name)}" x="{x:.1f}" y="{y:.1f}" width="9" height="9"/>')
        parts.append(draw.text(x + 13, y + 9, short(name, cells), "mu"))
    return Chart(
        title=workload,
        description="parts of the time in which one I/O is in flight; the table below has the figures",
        height=bottom + 12 + _LEGEND_LINE * -(-len(names) // _LEGEND_ACROSS),
        body="".join(parts),
        headings=("column", "all [µs]", *(f"{short(name, cells)} [µs]" for name in names), "verdict"),
        lines=tuple(lines),
    )


def _bar(cell: Explained, y: float) -> list[str]:
    """One cell's parts side by side. If they add up to more than was measured, they are scaled to fit."""
    found = {name: ns for name in PARTS if (ns := cell.verdict.waterfall_ns.get(name, 0)) > 0}
    scale = (WIDTH - _TOTALS - _LABELS) / (sum(found.values()) or 1)
    x, drawn = float(_LABELS), []
    for name, part_ns in found.items():
        wide = part_ns * scale
        share = part_ns / (cell.verdict.whole_ns or 1)
        tip = f"{cell.evidence.column}, {short(name, [cell])}: {_figure(part_ns)} µs, {share:.0%}"
        drawn.append(
            f'<rect class="{_class(name)}" x="{x:.1f}" y="{y + 3}" width="{wide:.1f}" '
            f'height="{_BAR - 7}">{draw.title(tip)}</rect>'
        )
        x += wide
    return drawn


def _class(name: str) -> str:
    return f"f{_COLOURS[name]} measured" if name in _COLOURS else "bo"


def _figure(time_ns: int | None) -> str:
    return "" if time_ns is None else f"{time_ns / 1000:.1f}"
