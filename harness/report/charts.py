"""The pictures of a report. Each is drawn once, and also holds its figures as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.analysis import bounds, disturbance
from harness.analysis.histogram import Histogram
from harness.model import ISCSI, LINK_LOCAL, PROTECTION_OFF, UNENCRYPTED, LinkProfile, Status
from harness.report import draw
from harness.report.content import ColumnFacts, Origin
from harness.results import distributions
from harness.results.distributions import Distribution
from harness.storage import transports
from harness.table import Metric
from harness.table.options import Choice, Direction, Table, TableCell, TableColumn, TableRow
from harness.table.text import marked_value, number

WIDTH = 440
"""Width of every picture, in px: as much as a telephone shows."""

LEFT = 58
_LABELS = 164
_VALUES = 74
TOP = 12
_BAR = 21
LINEAR_UP_TO = 20
"""Up to this ratio of highest to lowest bar, a linear axis shows both."""

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999)
_MARKED = (50, 90, 99, 99.9, 99.99)


class Kind(Choice):
    """kind of picture"""

    MATRIX = "matrix"
    BARS = "bars"
    PERCENTILES = "percentiles"
    OVER_TIME = "over-time"
    ROOFLINE = "roofline"
    WATERFALL = "waterfall"


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """``body`` is SVG without its root, ``description`` says in words what the picture shows.

    ``headings`` and ``lines`` are the figures behind it. ``row`` names the row of the matrix that it belongs
    to, or is empty.
    """

    title: str
    description: str
    height: float
    body: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    row: str = ""
    width: float = WIDTH


def row_name(row: TableRow) -> str:
    """A row's name in one line."""
    return f"{row.group}: {row.operation}" if row.group and row.group != "Other" else row.operation


def goodness(cells: Sequence[TableCell | None], metric: Metric) -> list[float | None]:
    """How each value compares with the best of its row, on a log scale: 1 is the best, 0 a thousandth of
    it."""
    values = [cell.value for cell in cells if cell is not None and cell.value]
    best = min(values, default=0.0) if metric.is_latency else max(values, default=0.0)

    def of(cell: TableCell | None) -> float | None:
        if cell is None or cell.value is None:
            return None
        if not cell.value or not best:
            return 0.0
        return max(0.0, 1 - abs(math.log10(cell.value / best)) / 3)

    return [of(cell) for cell in cells]


def describe(cell: TableCell | None, metric: Metric) -> str:
    """All that a table knows of a cell, for the tooltip."""
    if cell is None:
        return "not measured"
    parts = [marked_value(cell, metric) + (f" {metric.unit}" if cell.value is not None else "")]
    if cell.is_disturbed:
        taken = disturbance.percent(cell.disturbed)
        parts.append(f"disturbed, do not use: other programs took {taken} of the time ({cell.cause})")
    if cell.low is not None and cell.high is not None and cell.n > 1:
        kind = "95 % interval of the median" if cell.n >= 6 else "lowest and highest"
        parts.append(f"{kind}: {number(cell.low, metric)} to {number(cell.high, metric)}")
    parts.append(f"{cell.n} of {cell.repeats} repeats count")
    if cell.ratio_to_local is not None:
        parts.append(f"{cell.ratio_to_local:.3g} times local")
    if cell.ratio_to_no_ipsec is not None:
        parts.append(f"{cell.ratio_to_no_ipsec:.3g} times the same link without IPsec")
    if cell.difference_from_no_ipsec is not None:
        parts.append(f"difference from the same link without IPsec: {cell.difference_from_no_ipsec}")
    if cell.proof and cell.proof["protected_bytes"]:
        seen = cell.proof["cleartext_segments"]
        parts.append(f"proof: {cell.proof['protected_bytes']} protected bytes, {seen} segments in the clear")
    parts += [*cell.reasons, *(f"warning: {warning}" for warning in cell.warnings)]
    return "; ".join(parts)


def matrix(table: Table, facts: Sequence[ColumnFacts]) -> list[Chart]:
    """The matrix as a heat map, in one picture whose width depends on its columns."""
    room = max((len(row_name(row)) for row in table.rows), default=0)
    labels, wide, high, head = min(330.0, 20 + room * 6.9), 122.0, 24.0, 76.0
    metric = table.options.metric
    parts = []
    for index, fact in enumerate(facts):
        x = labels + index * wide + wide / 2
        heading = [*fact.column.heading[:2], fact.column.heading[3].removeprefix("IPsec ")]
        for place, words in enumerate((f"{fact.origin.sign} {fact.origin}", *filter(None, heading))):
            short = draw.shortened(words, draw.fits(wide - 4))
            parts.append(draw.text(x, head - 58 + 15 * place, short, "m" + (" mu" if not place else "")))
    for number_of_row, (row, cells) in enumerate(zip(table.rows, table.cells, strict=True)):
        y = head + number_of_row * high
        parts.append(draw.text(0, y + 16, draw.shortened(row_name(row), draw.fits(labels - 8))))
        shades = goodness(cells, metric)
        for index, fact in enumerate(facts):
            cell, shade = cells[index], shades[index]
            x = labels + index * wide
            name = f"{row_name(row)}, {fact.name}: {describe(cell, metric)}"
            fill = draw.mixed(draw.LIGHT, shade) if shade is not None else "none"
            parts.append(
                f'<rect class="gr" style="fill:{fill}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" '
                f'height="{high:.1f}">{draw.title(name)}</rect>'
            )
            parts.append(
                draw.text(x + wide - 6, y + 16, "—" if cell is None else marked_value(cell, metric), "e")
            )
    height = head + len(table.rows) * high + 8
    return [
        Chart(
            title=table.title,
            description="darker is faster (log scale, relative to the row's best)",
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
    values = [
        value
        for _, cell in cells
        if cell is not None
        for value in (cell.low, cell.value, cell.high)
        if value is not None
    ]
    above = [value for value in values if value > 0]
    start, end = _LABELS, WIDTH - _VALUES
    spread_out = max(above) / min(above) > LINEAR_UP_TO
    scale = draw.logarithmic(above, start, end, room=1.6) if spread_out else draw.linear(above, start, end)
    colours = _colours([fact for fact, _ in cells])
    bottom = TOP + _BAR * len(cells)
    parts = []
    for tick in scale.ticks(5):
        x = scale.at(tick)
        parts.append(draw.line(x, TOP - 4, x, bottom, "gr"))
        parts.append(draw.text(x, bottom + 14, draw.amount(tick), "m mu"))
    lines = []
    for place, (fact, cell) in enumerate(cells):
        y = TOP + _BAR * place
        label = draw.shortened(f"{fact.origin.sign} {fact.name}", draw.fits(_LABELS - 6))
        parts.append(draw.text(_LABELS - 6, y + 14, label, "e"))
        lines.append((fact.name, str(fact.origin), *_figures(cell, metric)))
        if cell is None or cell.value is None:
            why = "not measured" if cell is None else cell.status.upper()
            parts.append(draw.text(_LABELS + 4, y + 14, why, "mu"))
            continue
        tip = draw.title(f"{fact.name}: {describe(cell, metric)}")
        x = scale.at(cell.value) if cell.value else start
        parts.append(
            f'<rect class="f{colours[fact.column.protection]} {fact.origin}" x="{start}" y="{y + 3}" '
            f'width="{max(0.5, x - start):.1f}" height="{_BAR - 7}">{tip}</rect>'
        )
        if cell.low and cell.high and cell.n > 1:
            parts += _whisker(scale.at(cell.low), scale.at(cell.high), y + _BAR / 2 - 0.5)
        parts.append(draw.text(WIDTH - 4, y + 14, marked_value(cell, metric), "e b"))
    axis = f"{metric.unit}{', logarithmic axis' if spread_out else ''}"
    parts.append(draw.text((start + end) / 2, bottom + 30, axis, "m mu"))
    return Chart(
        title=row_name(row),
        description=f"bars of {metric.meaning} by column, with intervals; the table below has the figures",
        height=bottom + 36,
        body="".join(parts),
        headings=("column", "origin", f"median [{metric.unit}]", "low", "high", "samples", "remarks"),
        lines=tuple(lines),
        row=row_name(row),
    )


def _whisker(low: float, high: float, y: float) -> list[str]:
    """An interval across a bar, with a halo of the page's colour to stand out from the bar's."""
    strokes = [(low, y, high, y), *((x, y - 4, x, y + 4) for x in (low, high))]
    return [draw.line(*stroke, classes) for classes in ("ha", "wh") for stroke in strokes]


def _figures(cell: TableCell | None, metric: Metric) -> tuple[str, ...]:
    if cell is None:
        return ("", "", "", "0", "not measured")
    ends = [number(value, metric) if value is not None else "" for value in (cell.low, cell.high)]
    figures = ["" if cell.value is None else marked_value(cell, metric), *ends]
    return (*figures, str(cell.n), "; ".join([*cell.reasons, *cell.warnings]))


def _protection(column: TableColumn) -> str:
    """What protects a column, for a legend."""
    if column.is_unencrypted:
        return f"{UNENCRYPTED} {'+'.join(column.protection)}"
    return column.column.title or f"IPsec {PROTECTION_OFF}"


def _colours(facts: Sequence[ColumnFacts]) -> dict[tuple[str, ...], int]:
    """The number of a series for each protection, and for none."""
    protections = dict.fromkeys(fact.column.protection for fact in facts)
    return {protection: number % draw.SERIES for number, protection in enumerate(protections)}


def percentiles(table: Table, facts: Sequence[ColumnFacts], folders: Mapping[str, Path]) -> list[Chart]:
    """Latency by percentile for each workload and direction: all I/Os of all repeats together.

    ``table`` has a latency metric, so that reads and writes have rows of their own. More than ``draw.SERIES``
    columns are split over several pictures with the same axes.
    """
    found = []
    for row in table.rows:
        if row.direction not in (Direction.READ, Direction.WRITE):
            continue
        writes = row.direction is Direction.WRITE
        curves = [
            (fact, distribution)
            for fact in facts
            if (
                distribution := distributions.of_cell(
                    fact.samples.get(row.workload, ()), folders, writes=writes
                )
            )
        ]
        if not curves:
            continue
        values = [us for _, curve in curves for _, us in _curve(curve.histogram)]
        groups = [curves[first : first + draw.SERIES] for first in range(0, len(curves), draw.SERIES)]
        for number_of, group in enumerate(groups, 1):
            part = f", {number_of} of {len(groups)}" if len(groups) > 1 else ""
            found.append(_curves_of(row, group, values, title=f"{row_name(row)}{part}"))
    return found


def _curve(histogram: Histogram) -> list[tuple[float, float]]:
    """Percentiles and latencies in µs, as far as there are I/Os beyond a percentile."""
    count = histogram.count
    shown = [q for q in PERCENTILES if q <= 50 or (100 - q) / 100 * count >= 1]
    return [(q, us / 1000) for q, us in zip(shown, histogram.percentiles_ns(shown), strict=True)]


def _nines(q: float) -> float:
    """A percentile's position: the median at 0.3, 99 at 2, 99.9 at 3."""
    return -math.log10(1 - q / 100)


def _curves_of(
    row: TableRow,
    curves: Sequence[tuple[ColumnFacts, Distribution]],
    values: Sequence[float],
    title: str,
) -> Chart:
    legend = 16 * -(-len(curves) // 2)
    bottom = 230.0
    points = [_curve(distribution.histogram) for _, distribution in curves]
    last = max(q for curve in points for q, _ in curve)
    x = draw.Scale(low=0.0, high=_nines(last) * 1.03, start=LEFT, end=WIDTH - 12)
    y = draw.logarithmic(values, bottom, TOP)
    parts = horizontal(y, [(tick, draw.microseconds(tick)) for tick in y.ticks()])
    for q in _MARKED:
        if q <= last:
            at = x.at(_nines(q))
            parts.append(draw.line(at, TOP, at, bottom, "gr"))
            parts.append(draw.text(at, bottom + 14, f"{q:g}", "m mu"))
    parts.append(draw.text((LEFT + WIDTH) / 2, bottom + 30, "percentile of I/Os", "m mu"))
    lines = []
    for index, ((fact, distribution), curve) in enumerate(zip(curves, points, strict=True)):
        name = fact.name
        places = [(x.at(_nines(q)), y.at(us)) for q, us in curve]
        dashed = " da" if fact.origin is Origin.VIRTUAL else ""
        parts.append(draw.path(places, f"li s{index}{dashed}", name))
        for (q, us), (px, py) in zip(curve, places, strict=True):
            tip = f"{name}: {q:g} % of I/Os within {draw.microseconds(us)}"
            parts.append(draw.marker(index, px, py, f"f{index} {fact.origin}", tip, 2.8))
        lx, ly = LEFT - 40 + (index % 2) * (WIDTH - 30) / 2, bottom + 50 + 16 * (index // 2)
        parts.append(draw.marker(index, lx, ly - 4, f"f{index} {fact.origin}"))
        parts.append(draw.text(lx + 10, ly, draw.shortened(f"{fact.origin.sign} {name}", 30)))
        known = dict(curve)
        lines.append(
            (
                name,
                str(distribution.histogram.count),
                f"{distribution.merged} of {distribution.repeats}",
                *(draw.microseconds(known[q]) if q in known else "" for q in PERCENTILES),
            )
        )
    return Chart(
        title=title,
        description="latency by percentile, one curve for each column; the table below has the figures",
        height=bottom + 44 + legend,
        body="".join(parts),
        headings=("column", "I/Os", "repeats merged", *(f"{q:g} %" for q in PERCENTILES)),
        lines=tuple(lines),
        row=row_name(row),
    )


def horizontal(y: draw.Scale, ticks: Sequence[tuple[float, str]]) -> list[str]:
    parts = []
    for tick, label in ticks:
        parts.append(draw.line(LEFT, y.at(tick), WIDTH - 12, y.at(tick), "gr"))
        parts.append(draw.text(LEFT - 5, y.at(tick) + 4, label, "e mu"))
    return parts


class _Dot(msgspec.Struct, frozen=True, kw_only=True):
    """A cell below its roof; rates in bytes per second."""

    fact: ColumnFacts
    name: str
    bound: bounds.Bound
    depth: int
    block_bytes: int
    rate: float


def roofline(table: Table, facts: Sequence[ColumnFacts]) -> list[Chart]:
    """For each link with a profile: its cells by bytes in flight, below what the link lets through.

    ``table`` has the metric MB/s.
    """
    by_link: dict[tuple[object, LinkProfile], list[_Dot]] = {}
    for index, fact in enumerate(facts):
        if fact.link is None or fact.column.link == LINK_LOCAL:
            continue
        dots = list(_dots(table, fact, index))
        if dots and any(dot.bound.bytes_per_s for dot in dots):
            by_link.setdefault((fact.column.setting, fact.link), []).extend(dots)
    return [_roof_of(link, dots) for (_, link), dots in by_link.items()]


def _dots(table: Table, fact: ColumnFacts, index: int) -> Iterator[_Dot]:
    if fact.column.initiators > 1:
        return  # the bounds are those of one initiator's link
    for row, cells in zip(table.rows, table.cells, strict=True):
        cell, workload = cells[index], fact.workloads.get(row.workload)
        records = [r for r in fact.samples.get(row.workload, ()) if r.status is Status.OK]
        block = next((record.block_bytes for record in records), None)
        if cell is None or not cell.value or cell.is_disturbed or workload is None or not block:
            continue
        if fact.link is None:
            continue
        depth = bounds.depth_of(workload)
        bound = bounds.of_cell(
            fact.link,
            fact.framing,
            records[0].session,
            transports.named(fact.column.transport or ISCSI).overheads(records[0].session),
            depth=depth,
            block_bytes=block,
            writes=row.direction is Direction.WRITE,
        )
        yield _Dot(
            fact=fact, name=row_name(row), bound=bound, depth=depth, block_bytes=block, rate=cell.value * 1e6
        )


def _roof_of(link: LinkProfile, dots: Sequence[_Dot]) -> Chart:
    bottom = 240.0
    flying = [float(dot.bound.in_flight_bytes) for dot in dots]
    rtt_s, rate = bounds.round_trip_s(link), bounds.goodput_bytes_per_s(link)
    x = draw.logarithmic(flying, LEFT, WIDTH - 12, room=3.0)
    tops = [dot.rate for dot in dots] + ([rate] if rate else [])
    y = draw.logarithmic([min(dot.rate for dot in dots), max(tops)], bottom, TOP, room=1.8)
    parts = horizontal(y, [(tick, f"{draw.amount(tick / 1e6)} MB/s") for tick in y.ticks(7)])
    for kib in (2**n for n in range(0, 21, 2)):
        if x.low <= kib * 1024 <= x.high:
            at = x.at(kib * 1024)
            parts.append(draw.line(at, TOP, at, bottom, "gr"))
            parts.append(draw.text(at, bottom + 14, f"{kib}K" if kib < 1024 else f"{kib // 1024}M", "m mu"))
    axis = "bytes in flight: queue depth \N{MULTIPLICATION SIGN} block"
    parts.append(draw.text((LEFT + WIDTH) / 2, bottom + 30, axis, "m mu"))
    parts += _roofs(x, y, rtt_s, rate)
    colours = _colours([dot.fact for dot in dots])
    for dot in dots:
        most = dot.bound.bytes_per_s
        tip = f"{dot.fact.name}, {dot.name}: {draw.amount(dot.rate / 1e6)} MB/s at depth {dot.depth}" + (
            f", {_reached(dot)} of the link's bound of {draw.amount(most / 1e6)} MB/s" if most else ""
        )
        number_of = colours[dot.fact.column.protection]
        px, py = x.at(dot.bound.in_flight_bytes), y.at(dot.rate)
        parts.append(draw.marker(number_of, px, py, f"f{number_of} {dot.fact.origin}", tip, 4.2))
    names = {dot.fact.column.protection: _protection(dot.fact.column) for dot in dots}
    for index, (protection, number_of) in enumerate(colours.items()):
        lx, ly = LEFT - 40 + (index % 2) * (WIDTH - 30) / 2, bottom + 50 + 16 * (index // 2)
        parts.append(draw.marker(number_of, lx, ly - 4, f"f{number_of} measured"))
        parts.append(draw.text(lx + 10, ly, draw.shortened(names.get(protection, ""), 30)))
    return Chart(
        title=f"{link.title} ({link.name})",
        description=(
            "each cell's rate by its bytes in flight, below the bounds by round trip and by rate; "
            "the table below has the figures"
        ),
        height=bottom + 44 + 16 * -(-len(colours) // 2),
        body="".join(parts),
        headings=ROOF_HEADINGS,
        lines=tuple(map(_roof_line, dots)),
    )


ROOF_HEADINGS = (
    "column",
    "row",
    "queue depth",
    "block [bytes]",
    "round trips",
    "median [MB/s]",
    "bound by round trip [MB/s]",
    "bound by rate [MB/s]",
    "bound [MB/s]",
    "reached",
)


def _roof_line(dot: _Dot) -> tuple[str, ...]:
    return (
        dot.fact.name,
        dot.name,
        str(dot.depth),
        str(dot.block_bytes),
        str(dot.bound.round_trips),
        f"{dot.rate / 1e6:.2f}",
        _mb_s(dot.bound.by_round_trip),
        _mb_s(dot.bound.by_rate),
        _mb_s(dot.bound.bytes_per_s),
        _reached(dot),
    )


def _reached(dot: _Dot) -> str:
    """How much it is of what the link allows, if that is known."""
    most = dot.bound.bytes_per_s
    return f"{100 * dot.rate / most:.0f} %" if most else ""


def _roofs(x: draw.Scale, y: draw.Scale, rtt_s: float | None, rate: float | None) -> list[str]:
    """The bounds of a link: by round trip, by rate, and for a single request at a time, which pays for
    both."""
    parts = []
    if rtt_s:
        # Only where the line is within the picture: the scale would bend it along the border.
        low, high = max(x.low, y.low * rtt_s), min(x.high, y.high * rtt_s)
        if low < high:
            ends = [(x.at(low), y.at(low / rtt_s)), (x.at(high), y.at(high / rtt_s))]
            parts.append(draw.path(ends, "bo", f"one round trip of {draw.microseconds(1e6 * rtt_s)} an I/O"))
    if rate:
        level = [(x.at(x.low), y.at(rate)), (x.at(x.high), y.at(rate))]
        parts.append(draw.path(level, "bo", f"rate of the link in full frames: {_mb_s(rate)} MB/s"))
        parts.append(draw.text(WIDTH - 14, y.at(rate) - 4, f"{_mb_s(rate)} MB/s", "e mu"))
    if rtt_s and rate:
        steps = [x.low * (x.high / x.low) ** (n / 32) for n in range(33)]
        curve = [(at, 1 / (rtt_s / at + 1 / rate)) for at in steps]
        shown = [(x.at(at), y.at(value)) for at, value in curve if value >= y.low]
        parts.append(draw.path(shown, "bo da", "one request at a time: round trip and transfer in turn"))
    return parts


def _mb_s(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e6:.2f}"
