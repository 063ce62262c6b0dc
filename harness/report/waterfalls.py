"""The waterfall of each cell as a picture: where the time of one I/O goes, column by column."""

from __future__ import annotations

from collections.abc import Sequence

from harness.explain.text import Explained, sentence, short
from harness.explain.waterfall import PARTS
from harness.model.units import format_ns
from harness.report import draw
from harness.report.charts import WIDTH, Chart
from harness.report.conclusion import limits

_EDGE = 4
_TOP = 2
_LABEL = 17
_BAR = 18
_ROW = 42
"""A column's name and time, below them its bar, and some room."""

_LEGEND_ACROSS = 3
_LEGEND_LINE = 17


def waterfalls(cells: Sequence[Explained]) -> list[Chart]:
    """A picture for each workload, with a bar for each column that has a figure.

    Each bar is as long as the picture, whatever its time, which stands above its end: on one axis the parts
    of a fast column next to a slow one would be nothing.
    """
    rows: dict[str, list[Explained]] = {}
    for cell in cells:
        if cell.verdict.waterfall_ns and cell.verdict.whole_ns:
            rows.setdefault(cell.evidence.workload, []).append(cell)
    return [_of_row(workload, found) for workload, found in rows.items()]


def _of_row(workload: str, cells: Sequence[Explained]) -> Chart:
    known = [name for name in PARTS if any(cell.verdict.waterfall_ns.get(name) for cell in cells)]
    several = len({cell.evidence.origin for cell in cells}) > 1
    bottom = _TOP + _ROW * len(cells)
    parts, lines, says = [], [], []
    names, times, words = [], [], []
    tips: dict[str, str] = {}
    for place, cell in enumerate(cells):
        y = _TOP + _ROW * place
        name = cell.evidence.name if several else cell.evidence.key.label
        whole_ns = cell.verdict.whole_ns or 0
        time = format_ns(whole_ns)
        label = draw.shortened(name, draw.fits(WIDTH - 2 * _EDGE) - len(time) - 2)
        names.append((_EDGE, y + 13, label))
        times.append((WIDTH - _EDGE, y + 13, time))
        # All parts together may be more than the measured time.
        longest_ns = max(cell.verdict.whole_ns or 1, sum(_parts(cell).values()))
        bar, named = _bar(cell, y + _LABEL, (WIDTH - 2 * _EDGE) / longest_ns)
        words.append(named)
        parts.append(draw.group("", cell.evidence.name, bar))
        figures = [_figure(cell.verdict.waterfall_ns.get(name)) for name in known]
        # What is missing is often the same for many columns.
        verdict = sentence(cell)
        first = tips.setdefault(verdict, name)
        verdict = verdict if first == name else f"as for {first}"
        lines.append((cell.evidence.name, _figure(whole_ns), *figures, verdict))
        says.append((name, limits([cell])))
    for place, part in enumerate(known):
        at = _EDGE + place % _LEGEND_ACROSS * (WIDTH - 2 * _EDGE) / _LEGEND_ACROSS
        y = bottom + 8 + place // _LEGEND_ACROSS * _LEGEND_LINE
        parts.append(draw.rect(at, y, 10, 10, _class(part)))
        parts.append(draw.text(at + 14, y + 10, short(part, cells), "mu"))
    parts += [draw.texts(names, ""), draw.texts(times, "e b"), draw.group("m", "", *words)]
    return Chart(
        title=workload,
        description="parts of the time in which one I/O is in flight",
        height=bottom + 12 + _LEGEND_LINE * -(-len(known) // _LEGEND_ACROSS),
        body="".join(parts),
        headings=("column", "all [µs]", *(f"{short(name, cells)} [µs]" for name in known), "verdict"),
        lines=tuple(lines),
        row=workload,
        says=tuple(says),
    )


def _parts(cell: Explained) -> dict[str, int]:
    """The parts that take time, in their order."""
    return {name: ns for name in PARTS if (ns := cell.verdict.waterfall_ns.get(name, 0)) > 0}


def _bar(cell: Explained, y: float, scale: float) -> tuple[str, str]:
    """One cell's parts side by side, ``scale`` px a ns, and a line where the measured time ends before them;
    and the names of the parts that have room for them."""
    found, whole_ns = _parts(cell), cell.verdict.whole_ns or 1
    x, drawn, names = float(_EDGE), [], []
    for name, part_ns in found.items():
        wide, words = part_ns * scale, short(name, [cell])
        share = f"{part_ns / whole_ns:.0%}"
        tip = f"{words}: {_figure(part_ns)} µs, {share}"
        drawn.append(draw.rect(x, y, wide, _BAR, _class(name), tip))
        if room := [each for each in (f"{words} {share}", words) if draw.width(each) < wide]:
            names.append(draw.text(x + wide / 2, y + 13, room[0], "in" if name in draw.PARTS else "mu"))
        x += wide
    over_ns = sum(found.values()) - whole_ns
    if over_ns > whole_ns / 100:
        end = _EDGE + whole_ns * scale
        tip = f"the parts add up to {_figure(over_ns)} µs more than was measured"
        drawn.append(draw.path([(end, y - 4), (end, y + _BAR + 4)], "wh", tip))
    return "".join(drawn), "".join(names)


def _class(name: str) -> str:
    return f"pa {name}" if name in draw.PARTS else "bo"


def _figure(time_ns: int | None) -> str:
    return "" if time_ns is None else f"{time_ns / 1000:.1f}"
