"""The pictures of a report. Each is drawn once, and also holds its figures as a table."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from harness.analysis import disturbance
from harness.analysis.path_demands import Demands
from harness.analysis.theory import Wire
from harness.explain.evidence import Evidence
from harness.explain.text import Explained
from harness.model import LinkProfile
from harness.model.choices import Choice
from harness.model.lines import counted
from harness.model.units import format_ns
from harness.report import draw
from harness.report.content import ColumnFacts, Origin
from harness.results.columns import CellKey, TableRow
from harness.results.machine import without_side
from harness.results.metrics import Of
from harness.table import Metric
from harness.table.notes import DISTURBED_SIGN, LAB_SIGN
from harness.table.options import Table, TableCell
from harness.table.text import marked_value, number

WIDTH = 352
"""Width of every picture, in px: what a telephone of 375 px shows between the margins, so that text
is as large there as it is drawn."""

LEFT = 64
TOP = 12
EDGE = 4
_BAR = 34
"""Height of a column's name with its figure, and of its bar below them."""


_LONG = 40
"""A name with more characters is cut."""


class ChartKind(Choice):
    """kind of picture"""

    ANSWER = "answer"
    LOSS = "loss"
    MATRIX = "matrix"
    BARS = "bars"
    PERCENTILES = "percentiles"
    OVER_TIME = "over-time"
    ROOFLINE = "roofline"
    WATERFALL = "waterfall"
    TRENDS = "trends"
    DIFFERENCES = "differences"
    CURVES = "curves"
    RESPONSE = "response"
    HEAT_MAP = "heat-map"
    FAULTS = "faults"


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """``body`` is SVG without its root, ``description`` says in words what the picture shows.

    ``headings`` and ``lines`` are the figures behind it. ``row`` names the row of the matrix that it belongs
    to, or is empty. ``says`` are a column's name and a sentence about it each, to stand below the picture.
    """

    title: str
    description: str
    height: float
    body: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    row: str = ""
    says: tuple[tuple[str, str], ...] = ()
    width: float = WIDTH


SHADES = "the stronger the colour, the faster (log scale, relative to the row's best)"
"""What the colours of a matrix say: on a dark page the stronger ones are lighter."""


def goodness(cells: Sequence[TableCell | None], metric: Metric) -> list[float | None]:
    """How each value compares with the best of its row, on a log scale: 1 is the best, 0 a thousandth of
    it."""
    values = [cell.value for cell in cells if cell is not None and cell.value]
    best = (max if metric.figure.higher_is_better else min)(values, default=0.0)

    def of(cell: TableCell | None) -> float | None:
        if cell is None or cell.value is None:
            return None
        if not cell.value or not best:
            return 0.0
        return max(0.0, 1 - abs(math.log10(cell.value / best)) / 3)

    return [of(cell) for cell in cells]


def signs(table: Table) -> list[str]:
    """What the signs mean that pictures show next to a figure, as far as they occur."""
    shown = (f"{DISTURBED_SIGN}:", f"{LAB_SIGN}:")
    return [mark for mark in table.marks if mark.startswith(shown)]


def describe(cell: TableCell | None, metric: Metric) -> str:
    """What a table knows of a cell, for the tooltip next to its value."""
    if cell is None:
        return "not measured"
    parts = []
    if cell.is_disturbed:
        parts.append(f"disturbed, do not use: {disturbance.in_words(cell.disturbed or 0.0, cell.cause)}")
    if cell.is_lab_limited:
        parts.append("limited by the lab, not by the emulated link")
    if cell.low is not None and cell.high is not None:
        kind = "95 % interval of the median: " if cell.n >= 6 else ""
        parts.append(f"{kind}{number(cell.low, metric)} to {number(cell.high, metric)}")
    parts.append(
        counted(cell.n, "repeat") if cell.n == cell.repeats else f"{cell.n} of {cell.repeats} repeats count"
    )
    if cell.ratio_to_local is not None:
        parts.append(f"{cell.ratio_to_local:.3g} times local")
    if cell.ratio_to_unprotected is not None:
        shown = (
            f" ({cell.difference_from_unprotected})" if cell.difference_from_unprotected is not None else ""
        )
        parts.append(f"{cell.ratio_to_unprotected:.3g} times unprotected{shown}")
    if cell.proof and cell.proof["protected_bytes"]:
        seen = cell.proof["cleartext_segments"]
        parts.append(f"proof: {cell.proof['protected_bytes']} protected bytes, {seen} segments in the clear")
    parts += [*cell.reasons, *(f"warning: {warning}" for warning in cell.warnings)]
    return "; ".join(parts)


def matrix(table: Table, facts: Sequence[ColumnFacts], colours: Mapping[str, str]) -> list[Chart]:
    """The matrix as a heat map, in one picture whose width depends on its columns."""
    room = max((len(row.name) for row in table.rows), default=0)
    labels, high, head = min(330.0, 20 + room * 6.9), 24.0, 76.0
    names = [fact.column.name for fact in facts if len(fact.column.name) < _LONG]
    wide = max([122.0, *(draw.width(name) + 8 for name in names)])
    metric = table.options.metric
    parts = []
    for index, fact in enumerate(facts):
        x = labels + index * wide + wide / 2
        heading = [fact.column.heading[0], fact.column.name, fact.column.heading[1]]
        for place, words in enumerate((f"{fact.origin.sign} {fact.origin}", *filter(None, heading))):
            short = draw.shortened(words, draw.fits(wide - 4))
            parts.append(draw.text(x, head - 58 + 15 * place, short, "m" + (" mu" if not place else "")))
    for number_of_row, (row, cells) in enumerate(zip(table.rows, table.cells, strict=True)):
        y = head + number_of_row * high
        parts.append(draw.text(0, y + 16, draw.shortened(row.name, draw.fits(labels - 8))))
        shades = goodness(cells, metric)
        for index, fact in enumerate(facts):
            cell, shade = cells[index], shades[index]
            x = labels + index * wide
            name = f"{row.name}, {fact.name}: {describe(cell, metric)}"
            fill = draw.mixed(colours, shade) if shade is not None else "none"
            parts.append(draw.rect(x, y, wide, high, f'gr" style="fill:{fill}', name))
            parts.append(
                draw.text(x + wide - 6, y + 16, "—" if cell is None else marked_value(cell, metric), "e")
            )
    height = head + len(table.rows) * high + 8
    return [
        Chart(
            title=table.title,
            description=SHADES,
            height=height,
            width=max(WIDTH, labels + len(facts) * wide + 4),
            body="".join(parts),
            headings=(),
            lines=(),
        )
    ]


def bars(table: Table, facts: Sequence[ColumnFacts]) -> list[Chart]:
    """For each row with a figure, a bar with its interval for each column."""
    found = []
    for row, cells in zip(table.rows, table.cells, strict=True):
        measured = list(zip(facts, cells, strict=False))
        if any(cell is not None and cell.value for _, cell in measured):
            found.append(_bars_of(row, measured, table.options.metric))
    return found


def _bars_of(row: TableRow, cells: Sequence[tuple[ColumnFacts, TableCell | None]], metric: Metric) -> Chart:
    start, end = EDGE, WIDTH - EDGE
    scale = draw.linear(_to_compare(cells, metric), start, end)
    bottom = TOP + _BAR * len(cells)
    parts = vertical([(scale.at(tick), draw.amount(tick)) for tick in _inner(scale)], TOP - 4, bottom)
    lines, names, figures, whiskers, cuts = [], [], [], [], []
    for place, (fact, cell) in enumerate(cells):
        y = TOP + _BAR * place
        value_text = "not measured" if cell is None else marked_value(cell, metric)
        label = draw.shortened(
            f"{fact.origin.sign} {fact.name}", draw.fits(WIDTH - 4 * EDGE) - len(value_text)
        )
        names.append((start, y + 10, label))
        lines.append((fact.name, str(fact.origin), *_figures(cell, metric)))
        if cell is None or cell.value is None:
            parts.append(draw.text(end, y + 10, value_text, "e mu"))
            continue
        figures.append((end, y + 10, value_text))
        is_cut = cell.value > scale.high
        x = scale.at(cell.value)
        # A whole name and the figure stand above the bar.
        tip = f"{fact.name}: {value_text} {metric.figure.unit}" if fact.name not in label else ""
        parts.append(draw.rect(start, y + 15, max(0.5, x - start), 13, looks(fact), tip))
        if is_cut:
            # A gap in the bar, near its end, says that it goes on.
            cuts += [((x - gap, y + 29), (x - gap + 4, y + 14)) for gap in (16, 20)]
        elif cell.low is not None and cell.high is not None:
            whiskers += whisker(scale.at(cell.low), scale.at(cell.high), y + 21.5)
    # A halo of the page's colour lets an interval stand out from its bar.
    parts += [draw.lines(whiskers, classes) for classes in ("ha", "wh") if whiskers]
    parts += [draw.lines(cuts, "ha")] if cuts else []
    parts += [draw.texts(names, ""), draw.texts(figures, "e b")]
    parts.append(draw.text((start + end) / 2, bottom + 30, metric.figure.unit, "m mu"))
    return Chart(
        title=row.name,
        description=f"bars of {metric.figure.meaning} by column, with intervals",
        height=bottom + 36,
        body="".join(parts),
        headings=("column", "origin", f"median [{metric.figure.unit}]", "low", "high", "samples", "remarks"),
        lines=tuple(lines),
        row=row.name,
    )


def _to_compare(cells: Sequence[tuple[ColumnFacts, TableCell | None]], metric: Metric) -> list[float]:
    """The values that the axis of bars reaches to. Memory without a network, which moves fifty times as much
    as any link, is left out where there are others."""
    known = [(fact.origin, cell) for fact, cell in cells if cell is not None and cell.value is not None]
    others = [
        cell for origin, cell in known if origin is not Origin.MEMORY or metric.figure.of is not Of.TRANSFER
    ]
    found = [(cell.value, cell.high) for cell in others or [cell for _, cell in known]]
    return [value for ends in found for value in ends if value is not None]


def _inner(scale: draw.Scale) -> list[float]:
    """Ticks whose labels are wholly within the picture."""
    room = draw.width(draw.amount(scale.high)) / 2
    return [tick for tick in scale.ticks(5) if room < scale.at(tick) < WIDTH - room]


def whisker(low: float, high: float, y: float) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The strokes of an interval across a bar."""
    return [((low, y), (high, y)), *(((x, y - 4), (x, y + 4)) for x in (low, high))]


def _figures(cell: TableCell | None, metric: Metric) -> tuple[str, ...]:
    if cell is None:
        return ("", "", "", "0", "not measured")
    ends = [number(value, metric) if value is not None else "" for value in (cell.low, cell.high)]
    figures = ["" if cell.value is None else marked_value(cell, metric), *ends]
    return (*figures, str(cell.n), "; ".join([*cell.reasons, *cell.warnings]))


def legend(facts: Sequence[ColumnFacts], top: float) -> tuple[list[str], float]:
    """The columns of a picture with their marks, below ``top``; and the height of that."""
    return keyed([(looks(fact), fact.place, f"{fact.origin.sign} {fact.name}") for fact in facts], top)


def keyed(entries: Sequence[tuple[str, int, str]], top: float) -> tuple[list[str], float]:
    """The same of anything: the classes of a mark, its shape, and its name. Two stand side by side, if all
    names have the room."""
    half = (WIDTH - 30) / 2
    across = 2 if all(draw.width(name) <= half - 24 for _, _, name in entries) else 1
    parts = []
    for number_of, (classes, shape, name) in enumerate(entries):
        x, y = 16 + (number_of % across) * half, top + 16 * (number_of // across)
        parts.append(draw.group(classes, "", draw.marks(shape, [(x, y - 4, "")], 4)))
        parts.append(draw.text(x + 10, y, draw.shortened(name, draw.fits(WIDTH - x - 14))))
    return parts, 16.0 * -(-len(entries) // across)


def looks(fact: ColumnFacts) -> str:
    """The classes of what is drawn of a column."""
    return f"{draw.series(fact.place)} {fact.origin.look.value[:2]}"


def series(fact: ColumnFacts, *drawn: str) -> str:
    """What is drawn of a column, in its colour."""
    return draw.group(looks(fact), fact.name, *drawn)


def horizontal(y: draw.Scale, ticks: Sequence[tuple[float, str]]) -> list[str]:
    """Grid lines with their labels."""
    places = [(y.at(tick), label) for tick, label in ticks]
    return [
        draw.lines([((LEFT, at), (WIDTH - 12, at)) for at, _ in places], "gr"),
        draw.texts([(LEFT - 5, at + 4, label) for at, label in places], "e mu"),
    ]


def vertical(ticks: Sequence[tuple[float, str]], top: float, bottom: float) -> list[str]:
    """Grid lines at places in px, with their labels."""
    return [
        draw.lines([((at, top), (at, bottom)) for at, _ in ticks], "gr"),
        draw.texts([(at, bottom + 14, label) for at, label in ticks], "m mu"),
    ]


class _Dot(msgspec.Struct, frozen=True):
    """A cell below its roof; ``rate`` is in bytes per second."""

    fact: ColumnFacts
    name: str
    evidence: Evidence
    rate: float

    @property
    def depth(self) -> int:
        return self.evidence.depth or 1

    @property
    def in_flight_bytes(self) -> float:
        return float(self.depth * (self.evidence.block_bytes or 0))

    def allowed(self, ns_of: Callable[[Demands], float]) -> float | None:
        """Bytes per second, if an I/O takes at least what ``ns_of`` the path says; None for no time."""
        path = self.evidence.path
        mb_s = None if path is None else self.evidence.rate(ns_of(path))
        return None if mb_s is None else 1e6 * mb_s

    @property
    def most(self) -> float | None:
        return self.allowed(lambda path: path.least_ns(self.depth))


def roofline(table: Table, facts: Sequence[ColumnFacts], cells: Sequence[Explained]) -> list[Chart]:
    """For each link with a profile: its cells by bytes in flight, below what the link lets through.

    ``table`` has the metric MB/s; ``cells`` are those of the same records.
    """
    known = {cell.evidence.cell: cell.evidence for cell in cells}
    by_link: dict[tuple[object, LinkProfile], list[_Dot]] = {}
    for index, fact in enumerate(facts):
        key = fact.column.key
        if key is None or fact.link is None or key.column.is_local:
            continue
        dots = list(_dots(table, fact, index, known))
        if dots and (fact.link.rate_bit_s or fact.link.path_delay_us or any(dot.most for dot in dots)):
            by_link.setdefault((without_side(key.setting), fact.link), []).extend(dots)
    alike = Counter((link.title, link.name) for _, link in by_link)
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for (_, link), dots in by_link.items():
        name = link.title, link.name
        seen[name] += 1
        # A link may have been another one in another run or setting.
        part = f", {seen[name]} of {alike[name]}" if alike[name] > 1 else ""
        found.append(_roof_of(link, dots, title=f"{link.title} ({link.name}){part}"))
    return found


def _dots(table: Table, fact: ColumnFacts, index: int, known: Mapping[CellKey, Evidence]) -> Iterator[_Dot]:
    for row, cells in zip(table.rows, table.cells, strict=True):
        cell = cells[index]
        evidence = known.get(CellKey(fact.column.key, row.workload)) if fact.column.key else None
        if not cell or not cell.value or cell.is_disturbed or evidence is None:
            continue
        if evidence.depth and evidence.block_bytes:
            yield _Dot(fact, row.name, evidence, cell.value * 1e6)


def _roof_of(link: LinkProfile, dots: Sequence[_Dot], title: str) -> Chart:
    bottom = 240.0
    flying = [dot.in_flight_bytes for dot in dots]
    rtt_s, rate = 2e-6 * link.path_delay_us, Wire(link=link).goodput_bytes_s
    x = draw.logarithmic(flying, LEFT, WIDTH - 12, room=3.0)
    tops = [dot.rate for dot in dots] + ([rate] if rate else [])
    y = draw.logarithmic([min(dot.rate for dot in dots), max(tops)], bottom, TOP, room=1.8)
    parts = horizontal(y, [(tick, f"{draw.amount(tick / 1e6)} MB/s") for tick in y.ticks(7)])
    blocks = [kib for kib in (2**n for n in range(0, 21, 2)) if x.low <= kib * 1024 <= x.high]
    ticks = [(x.at(kib * 1024), f"{kib}K" if kib < 1024 else f"{kib // 1024}M") for kib in blocks]
    parts += vertical(ticks, TOP, bottom)
    axis = "bytes in flight: queue depth \N{MULTIPLICATION SIGN} block"
    parts.append(draw.text((LEFT + WIDTH) / 2, bottom + 30, axis, "m mu"))
    parts += _roofs(x, y, rtt_s, rate)
    for place, group in itertools.groupby(dots, lambda dot: dot.fact.place):
        of_column = list(group)
        fact = of_column[0].fact
        marked = [(x.at(dot.in_flight_bytes), y.at(dot.rate), _tip(dot)) for dot in of_column]
        parts.append(series(fact, draw.marks(place, marked, 4.2)))
    marks, high = legend(list({dot.fact.place: dot.fact for dot in dots}.values()), bottom + 50)
    return Chart(
        title=title,
        description="each cell's rate by its bytes in flight, with the limits set by round trip and goodput",
        height=bottom + 44 + high,
        body="".join([*parts, *marks]),
        headings=tuple(_ROOF),
        lines=tuple(tuple(read(dot) for read in _ROOF.values()) for dot in dots),
    )


def _tip(dot: _Dot) -> str:
    most = dot.most
    what = "one request at a time allows" if dot.depth == 1 else "the link allows"
    return f"{dot.name}: {draw.amount(dot.rate / 1e6)} MB/s at depth {dot.depth}" + (
        f", {_reached(dot)} of the {draw.amount(most / 1e6)} MB/s that {what}" if most else ""
    )


def _reached(dot: _Dot) -> str:
    """How much it is of what the link allows, if that is known."""
    most = dot.most
    return f"{100 * dot.rate / most:.0f} %" if most else ""


_ROOF: Mapping[str, Callable[[_Dot], str]] = {
    "column": lambda dot: dot.fact.name,
    "row": lambda dot: dot.name,
    "queue depth": lambda dot: str(dot.depth),
    "block [bytes]": lambda dot: str(dot.evidence.block_bytes),
    "round trips": lambda dot: str(dot.evidence.path.round_trips) if dot.evidence.path is not None else "",
    "median [MB/s]": lambda dot: in_mb_s(dot.rate),
    "bound by round trip [MB/s]": lambda dot: in_mb_s(
        dot.allowed(lambda path: path.round_trips * path.round_trip_ns / dot.depth)
    ),
    "goodput in its frames [MB/s]": lambda dot: in_mb_s(dot.allowed(lambda path: path.busy_ns)),
    "bound [MB/s]": lambda dot: in_mb_s(dot.most),
    "reached": _reached,
}
"""The figures behind a roofline, by their headings."""


def _roofs(x: draw.Scale, y: draw.Scale, rtt_s: float, rate: float | None) -> list[str]:
    """The bounds of a link: by round trip, its goodput, and one request at a time, which pays for both."""
    parts = []
    if rtt_s:
        # Only where the line is within the picture: the scale would bend it along the border.
        low, high = max(x.low, y.low * rtt_s), min(x.high, y.high * rtt_s)
        if low < high:
            ends = [(x.at(low), y.at(low / rtt_s)), (x.at(high), y.at(high / rtt_s))]
            parts.append(draw.path(ends, "bo", f"one round trip of {format_ns(1e9 * rtt_s)} an I/O"))
    if rate:
        level = [(x.at(x.low), y.at(rate)), (x.at(x.high), y.at(rate))]
        parts.append(draw.path(level, "bo", f"the link's goodput: {in_mb_s(rate)} MB/s"))
        parts.append(draw.text(WIDTH - 14, y.at(rate) - 4, f"goodput {in_mb_s(rate)} MB/s", "e mu"))
    if rtt_s and rate:
        steps = [x.low * (x.high / x.low) ** (n / 32) for n in range(33)]
        curve = [(at, 1 / (rtt_s / at + 1 / rate)) for at in steps]
        shown = [(x.at(at), y.at(value)) for at, value in curve if value >= y.low]
        parts.append(draw.path(shown, "bo da", "one request at a time: round trip and transfer in turn"))
    return parts


def in_mb_s(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e6:.2f}"
