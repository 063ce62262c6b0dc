"""The pictures of curves: each with their asymptotes, response curves, and heat maps over two axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from harness.analysis.limit import Limit
from harness.analysis.response import PREDICTED, Asymptotes
from harness.analysis.schedule import Place
from harness.explain.limits import RULES
from harness.model import Column, Latency
from harness.model.units import format_ns
from harness.report import draw
from harness.report.charts import LEFT, TOP, WIDTH, Chart, horizontal, keyed, vertical
from harness.report.content import Places
from harness.report.curves import BOTTOM, remark, scale_of
from harness.results.axes import AXES, Curve
from harness.results.curves import MeasuredCurve
from harness.table.curves import cell

LEGENDS = (
    "Marks: measured. Dashed: interpolated, with the 90 % prediction interval. Thin: the two asymptotes, "
    "latency and busiest part.",
    "Filled marks: mean. Empty marks, dashed: p99. Each mark is one measured load.",
    f"MB/s; {PREDICTED}: estimated. Colour and letter: the likely limit; an estimated point has that of the "
    "nearest measured point on its side of the knee.",
)
"""What is said of the three kinds of picture, in words."""

LOADS = frozenset({"depth", "jobs"})
"""Axes along which there is a response curve."""

THIN = 'li" style="stroke-width:1.4'
_FEW_LEVELS = 3
_ROOM_PX = 30.0
"""Of a label below a picture; and the width of a heat map's cell, at least."""
_HIGH_PX = 31.0

Along = list[tuple[float, Place]]
There = Mapping[str, float]


class _Picture(msgspec.Struct, frozen=True):
    """What one picture shows: curves that differ in protection alone, along ``axis``, where the other axes
    are ``there``."""

    title: str
    axis: str
    there: There
    lines: Sequence[tuple[MeasuredCurve, Along]]
    places: Places

    def place(self, curve: MeasuredCurve) -> int:
        """What a line's colour and marks follow from."""
        record = next(iter(curve.records.values()))
        return self.places[record.setting.distinct, record.column]

    @property
    def values(self) -> list[float]:
        return sorted({value for _, line in self.lines for value, _ in line})


def _pictures(
    found: Sequence[MeasuredCurve], axes: Mapping[tuple[str, ...], str], places: Places
) -> Iterator[_Picture]:
    """Along the axis that ``axes`` names for a curve's axes: at the ends and the middle of the others."""
    groups: dict[tuple[Column, str, tuple[tuple[str, float], ...], str], list[MeasuredCurve]] = {}
    for each in found:
        if each.axes in axes:
            key = (each.curve.column.bare, each.curve.workload, each.curve.fixed, axes[each.axes])
            groups.setdefault(key, []).append(each)
    for (bare, workload, fixed, axis), curves in groups.items():
        others = [name for name in curves[0].axes if name != axis]
        kept = [curves[0].values(name) for name in others]
        ends = [dict.fromkeys((each[0], each[len(each) // 2], each[-1])) for each in kept]
        name = Curve(bare, workload, fixed).name
        for values in itertools.product(*ends):
            there = dict(zip(others, values, strict=True))
            lines = [(each, line) for each in curves if len(line := each.along(axis, there)) > 1]
            where = "".join(f", {other} {AXES[other].shown(value)}" for other, value in there.items())
            for part in range(0, len(lines), draw.SERIES):
                yield _Picture(f"{name}{where}", axis, there, lines[part : part + draw.SERIES], places)


def curves(found: Sequence[MeasuredCurve], places: Places) -> list[Chart]:
    """Throughput along the first axis of each curve, with a line for each protection."""
    axes = {each.axes: each.axes[0] for each in found if each.axes}
    return [_curve(each) for each in _pictures(found, axes, places)]


def _curve(shown: _Picture) -> Chart:
    x = draw.logarithmic(shown.values, LEFT, WIDTH - 12, room=1.05)
    ends = [
        end
        for curve, line in shown.lines
        for _, place in line
        for end in (curve.at(place).low, curve.at(place).high)
    ]
    y = draw.logarithmic(ends, BOTTOM, TOP, room=1.2)
    parts = [*_levels(y), *vertical(_labels(shown.axis, shown.values, x), TOP, BOTTOM)]
    for curve, line in shown.lines:
        number = shown.place(curve)
        at = [(x.at(value), curve.at(place), place) for value, place in line]
        around = [(px, y.at(e.high)) for px, e, _ in at] + [(px, y.at(e.low)) for px, e, _ in reversed(at)]
        drawn = [draw.area(around)] if curve.scatter else []
        if (asymptotes := curve.fitted.asymptotes) is not None:
            drawn += _bounds(asymptotes, curve, line, x, y)
        steps = [(a, b, a[2] in curve.rates and b[2] in curve.rates) for a, b in itertools.pairwise(at)]
        for is_known, alike in itertools.groupby(steps, lambda step: step[2]):
            first, *others = alike
            through = [*first[:2], *(end for _, end, _ in others)]
            drawn.append(
                draw.path([(px, y.at(e.mid)) for px, e, _ in through], "li" if is_known else "li da")
            )
        known = [(px, y.at(e.mid), place) for px, e, place in at if place in curve.rates]
        tips = [
            (px, py, f"{_where(shown.axis, curve, place)}: {cell(curve, place)} MB/s")
            for px, py, place in known
        ]
        drawn.append(draw.marks(number, tips, 3.4))
        parts.append(draw.group(draw.series(number), curve.label, *drawn))
        parts += [draw.text(px, py - 6, "!", "m") for px, py, place in known if place in curve.disturbed]
    return _framed(
        shown,
        parts,
        axis=f"{AXES[shown.axis].title}; MB/s{remark(y)}",
        description="throughput along an axis, with intervals and asymptotes, a line for each protection",
        headings=[f"{curve.label} [MB/s]" for curve, _ in shown.lines],
        figures=[{value: _interval(curve, place) for value, place in line} for curve, line in shown.lines],
    )


def _bounds(
    asymptotes: Asymptotes,
    curve: MeasuredCurve,
    line: Sequence[tuple[float, Place]],
    x: draw.Scale,
    y: draw.Scale,
) -> Iterator[str]:
    """Two thin lines, where they are within the picture."""
    rates = [(at, asymptotes.bounds_bytes_s(curve.surface.point(place))) for at, place in line if at > 0]
    for bound, name in enumerate(("bound by latency", "bound by the busiest part")):
        line_px = [(x.at(at), y.at(rate[bound])) for at, rate in rates if rate[bound] <= y.high]
        if line_px:
            yield draw.path(line_px, THIN, name)


def _levels(y: draw.Scale) -> list[str]:
    found = y.ticks()
    if len(found) < _FEW_LEVELS:
        found = msgspec.structs.replace(y, log=False).ticks()
    return horizontal(y, [(tick, draw.amount(tick / 1e6)) for tick in found])


def _labels(axis: str, values: Sequence[float], x: draw.Scale) -> list[tuple[float, str]]:
    """As many values of an axis as have room below it, with the first and the last."""
    every = [(x.at(value), AXES[axis].shown(value)) for value in values]
    room = max([_ROOM_PX, *(draw.width(words) + 4 for _, words in every)])
    found = every[:1]
    for place, words in every[1:]:
        if place - found[-1][0] >= room and (every[-1][0] - place >= room or place == every[-1][0]):
            found.append((place, words))
    return found


def _where(axis: str, curve: MeasuredCurve, place: Place) -> str:
    return f"{axis} {AXES[axis].shown(curve.grid[place][axis])}"


def _interval(curve: MeasuredCurve, place: Place) -> str:
    """MB/s, with the interval of what was not measured; one sample has none."""
    if place in curve.rates:
        return cell(curve, place)
    at = curve.at(place)
    return f"{cell(curve, place)} [{at.low / 1e6:.4g}, {at.high / 1e6:.4g}]"


def _framed(
    shown: _Picture,
    parts: Sequence[str],
    *,
    axis: str,
    description: str,
    headings: Sequence[str],
    figures: Sequence[Mapping[float, str]],
) -> Chart:
    """The picture with what stands below it: the axis, and the names of lines with their marks."""
    entries = [
        (draw.series(place), place, each.side + (each.curve.column.title or "without protection"))
        for each, _ in shown.lines
        for place in [shown.place(each)]
    ]
    is_plain = len(shown.lines) == 1 and not shown.lines[0][0].curve.column.protection
    marks, high = keyed([] if is_plain else entries, BOTTOM + 50)
    return Chart(
        title=shown.title,
        description=description,
        height=BOTTOM + 44 + high,
        body="".join([*parts, draw.text((LEFT + WIDTH) / 2, BOTTOM + 30, axis, "m mu"), *marks]),
        headings=(AXES[shown.axis].title, *headings),
        lines=tuple(
            (AXES[shown.axis].shown(value), *(each.get(value, "") for each in figures))
            for value in shown.values
        ),
    )


def responses(found: Sequence[MeasuredCurve], places: Places) -> list[Chart]:
    """Latency by throughput, as the load grows: a mean and a p99 for each protection."""
    axes = {each.axes: axis for each in found for axis in each.axes[::-1] if axis in LOADS}
    charts = (_response(each) for each in _pictures(found, axes, places))
    return [chart for chart in charts if chart is not None]


def _response(shown: _Picture) -> Chart | None:
    points = [
        [
            (value, curve.rates[place], mean_ns, p99_ns)
            for value, place in line
            if place in curve.records
            for mean_ns, p99_ns in [_latency(curve, place)]
            if mean_ns is not None
        ]
        for curve, line in shown.lines
    ]
    if not any(points):
        return None
    x = scale_of([rate for of in points for _, rate, *_ in of], LEFT, WIDTH - 12)
    all_ns = [ns for of in points for _, _, *both in of for ns in both if ns]
    y = draw.logarithmic(all_ns, BOTTOM, TOP)
    parts = [
        *horizontal(y, [(tick, format_ns(tick)) for tick in y.ticks()]),
        *vertical([(x.at(tick), draw.amount(tick / 1e6)) for tick in x.ticks(5)], TOP, BOTTOM),
    ]
    figures = []
    for (curve, _), of in zip(shown.lines, points, strict=True):
        number, drawn = shown.place(curve), list[str]()
        for which, line, marks in ((2, "li", "me"), (3, "li da", 'me" style="fill-opacity:0')):
            at = [
                (x.at(each[1]), y.at(ns), f"{shown.axis} {AXES[shown.axis].shown(each[0])}: {format_ns(ns)}")
                for each in of
                if (ns := each[which])
            ]
            drawn += [
                draw.path([place[:2] for place in at], line),
                draw.group(marks, "mean" if which == 2 else "p99", draw.marks(number, at, 3.4)),
            ]
        parts.append(draw.group(draw.series(number), curve.label, *drawn))
        figures.append(
            {
                value: f"{rate / 1e6:.4g} MB/s, {format_ns(mean)}, {format_ns(p99) if p99 else 'n/a'}"
                for value, rate, mean, p99 in of
            }
        )
    return _framed(
        shown,
        parts,
        axis="MB/s and latency, logarithmic axes" if x.log else "MB/s; latency, logarithmic axis",
        description="mean and p99 latency by throughput as the load grows, lines for each protection",
        headings=[f"{curve.label}: throughput, mean, p99" for curve, _ in shown.lines],
        figures=figures,
    )


def _latency(curve: MeasuredCurve, place: Place) -> tuple[float | None, float | None]:
    """Mean and p99 of the slower direction."""
    record = curve.records[place]
    both = [io.latency for io in (record.read, record.write) if io is not None]
    slower = max(both, key=lambda each: each.mean_ns or 0.0, default=Latency())
    return slower.mean_ns, slower.p99_ns


def heat_maps(found: Sequence[MeasuredCurve], limits: Mapping[str, Mapping[Place, Limit]]) -> list[Chart]:
    """For each curve with two axes or more, its figures in a grid, in the colours of what limits them:
    ``limits`` of the points of each run."""
    charts = []
    for curve in found:
        if len(curve.axes) < 2:
            continue
        first, second, *others = curve.axes
        run = next(iter(curve.records.values())).run_id
        of_points = _limits(curve, limits.get(run, {}))
        rows, columns = (
            (first, second) if len(curve.values(first)) >= len(curve.values(second)) else (second, first)
        )
        ends = [dict.fromkeys((v[0], v[len(v) // 2], v[-1])) for v in map(curve.values, others)]
        for values in itertools.product(*ends):
            there = dict(zip(others, values, strict=True))
            charts.append(_heat_map(curve, rows, columns, there, of_points))
    return charts


def _heat_map(
    curve: MeasuredCurve, rows: str, columns: str, there: There, limits: Mapping[Place, Limit]
) -> Chart:
    places = {
        (point[rows], point[columns]): place
        for place, point in curve.grid.items()
        if all(point[name] == value for name, value in there.items())
    }
    across, down = curve.values(columns), curve.values(rows)
    names = [AXES[rows].shown(value) for value in down]
    left = max(map(draw.width, names)) + 8
    wide = max(_ROOM_PX, (WIDTH - left - 2) / len(across))
    top = 34.0
    best = max(curve.at(place).mid for place in places.values())
    seen = [limit for limit in Limit if limit in {limits[place] for place in places.values()}]
    if seen == [Limit.UNKNOWN]:
        seen = []
    reported: dict[tuple[float, float], str] = {}
    parts = [draw.text(0, 12, rows, "mu"), draw.text(left + wide * len(across) / 2, 12, columns, "m mu")]
    step = math.ceil(max(draw.width(AXES[columns].shown(value)) for value in across) / wide)
    heads = [(left + (n + 0.5) * wide, top - 6, AXES[columns].shown(value)) for n, value in enumerate(across)]
    parts.append(draw.texts(heads[::step], "m"))
    parts.append(
        draw.texts([(left - 6, top + (n + 0.6) * _HIGH_PX, name) for n, name in enumerate(names)], "e")
    )
    for (row, column), place in places.items():
        x, y = left + across.index(column) * wide, top + down.index(row) * _HIGH_PX
        limit = limits[place]
        part = 0.04 + 0.5 * curve.at(place).mid / best
        kind, ink = _looks(limit) if seen else (f'f0" style="fill-opacity:{part:.2f};stroke-opacity:.4', "m")
        reported[row, column] = f"{_interval(curve, place)}, {_words(limit)}"
        tip = f"{_where(rows, curve, place)}, {_where(columns, curve, place)}: {reported[row, column]}"
        parts.append(draw.rect(x, y, wide, _HIGH_PX, kind, tip))
        is_known = place in curve.rates
        sign = "!" if place in curve.disturbed else "" if is_known else PREDICTED
        value = f"{sign}{_short(curve.at(place).mid / 1e6)}"
        parts.append(draw.text(x + wide / 2, y + 13, value, f"{ink} b" if is_known else ink))
        parts.append(draw.text(x + wide / 2, y + 27, RULES[limit].letter if seen else "", ink))
    bottom = top + len(down) * _HIGH_PX
    for number, limit in enumerate(seen):
        x, y = 4 + (number % 2) * WIDTH / 2, bottom + 10 + 20 * (number // 2)
        kind, ink = _looks(limit)
        parts += [draw.rect(x, y, 16, 16, kind), draw.text(x + 8, y + 12, RULES[limit].letter, ink)]
        parts.append(draw.text(x + 22, y + 12, _words(limit)))
    where = "".join(f", {name} {AXES[name].shown(value)}" for name, value in there.items())
    return Chart(
        title=f"{curve.name}{where}",
        description=f"MB/s by {rows} and {columns}; colour and letter: the likely limit",
        height=bottom + 12 + 20 * -(-len(seen) // 2),
        width=max(WIDTH, left + wide * len(across) + 2),
        body="".join(parts),
        headings=(f"{rows} \\ {columns}", *(AXES[columns].shown(value) for value in across)),
        lines=tuple(
            (name, *(reported.get((row, column), "") for column in across))
            for name, row in zip(names, down, strict=True)
        ),
    )


def _looks(limit: Limit) -> tuple[str, str]:
    """The classes of a limit's cell, and of text on it."""
    part = RULES[limit].part
    return (f"{part} pa", "m in") if part else ("gr", "m")


def _words(limit: Limit) -> str:
    return RULES[limit].short or limit.replace("-", " ")


def _short(value: float) -> str:
    return f"{value / 1000:.1f}k" if value >= 999.5 else f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def _limits(curve: MeasuredCurve, limits: Mapping[Place, Limit]) -> dict[Place, Limit]:
    """The limit of each point: its own, or that of the nearest one that the same asymptote bounds."""
    asymptotes = curve.fitted.asymptotes
    ranks = {axis: {value: n for n, value in enumerate(curve.values(axis))} for axis in curve.axes}
    at = {place: [ranks[axis][point[axis]] for axis in curve.axes] for place, point in curve.grid.items()}
    sides: dict[bool, list[Place]] = {False: [], True: []}

    def side(place: Place) -> bool:
        return asymptotes is not None and asymptotes.is_latency(curve.surface.point(place))

    for place in curve.rates:
        sides[side(place)].append(place)
    found = {place: limits.get(place, Limit.UNKNOWN) for place in curve.rates}
    for place in curve.estimates:
        alike = sides[side(place)]
        near = min(alike, key=lambda each: math.dist(at[each], at[place]), default=place)
        found[place] = found.get(near, Limit.UNKNOWN)
    return found
