"""Two runs next to each other: by how much B differs from A in each cell, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report import draw
from harness.report.charts import EDGE, WIDTH, Chart, vertical, whisker
from harness.report.content import Places
from harness.table.comparison import ComparedCell, Comparison
from harness.table.text import number

HEADINGS = ("cell", "A", "B", "difference [%]", "low", "high", "repeats", "verdict")
_ROW, _TOP = 30, 12


def differences(found: Comparison, places: Places) -> list[Chart]:
    """One picture: a mark for each cell that both have, in the colour of its column of B. Those over
    a network come first."""
    of_b = {column: place for (_, column), place in places.items()}
    ordered = sorted(found.cells, key=lambda cell: cell.key.column.is_local)
    cells = [cell for cell in ordered if cell.ratio is not None]
    if not cells:
        return []
    ends = [end for cell in cells for end in _changes(cell) if end is not None]
    reach = 1.05 * max([1.0, *map(abs, ends)])
    scale = draw.Scale(low=-reach, high=reach, start=EDGE, end=WIDTH - EDGE)
    bottom = _TOP + _ROW * len(cells)
    inner = [tick for tick in scale.ticks(5) if abs(tick) < 0.9 * reach]
    parts = vertical([(scale.at(tick), f"{tick:+g}" if tick else "0") for tick in inner], _TOP - 4, bottom)
    # Not through the names.
    zero = [(scale.at(0), _TOP + _ROW * place) for place in range(len(cells))]
    parts.append(draw.lines([((x, y + 13), (x, y + 27)) for x, y in zero], "wh"))
    for place, cell in enumerate(cells):
        y = _TOP + _ROW * place
        change, low, high = _changes(cell)
        figure = f"{change:+.1f} %"
        room = draw.fits(WIDTH - 3 * EDGE) - len(figure)
        parts.append(draw.text(EDGE, y + 10, draw.shortened(cell.name, room)))
        parts.append(draw.text(WIDTH - EDGE, y + 10, figure, "e b"))
        if low is not None and high is not None:
            parts.append(draw.lines(whisker(scale.at(low), scale.at(high), y + 20), "wh"))
        number_of = of_b.get(cell.key.column, 0)
        mark = draw.marks(number_of, [(scale.at(change or 0.0), y + 20, f"{cell.name}: {cell.verdict}")], 3.8)
        parts.append(draw.group(draw.series(number_of), "", mark))
    parts.append(draw.text(WIDTH / 2, bottom + 30, f"B compared with A, % of {found.metric}", "m mu"))
    return [
        Chart(
            title="B compared with A",
            description="difference between each cell of B and of A, with 95 % intervals",
            height=bottom + 36,
            body="".join(parts),
            headings=HEADINGS,
            lines=tuple(_line(cell, found) for cell in ordered),
        )
    ]


def _changes(cell: ComparedCell) -> Sequence[float | None]:
    """The change in percent, and both ends of its interval."""
    ratio = cell.ratio
    if ratio is None:
        return None, None, None
    return [None if part is None else 100 * (part - 1) for part in (ratio.ratio, ratio.low, ratio.high)]


def _line(cell: ComparedCell, found: Comparison) -> tuple[str, ...]:
    values = ["" if value is None else number(value, found.metric) for value in (cell.a, cell.b)]
    changes = ["" if change is None else f"{change:+.1f}" for change in _changes(cell)]
    return (cell.name, *values, *changes, f"{cell.n_a} + {cell.n_b}", str(cell.verdict))
