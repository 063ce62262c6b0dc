"""Drawing in SVG: scales, ticks, text and marks, with classes that get their colours from a style sheet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from harness.model.escape import for_html, printable

LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "text": "#1a1d21",
    "muted": "#565d66",
    "grid": "#dfe3e8",
    "heat0": "#ffffff",
    "heat1": "#9cc9f0",
    "c0": "#0067a5",
    "c1": "#c24e00",
    "c2": "#007a58",
    "c3": "#a8457f",
    "c4": "#8a6500",
    "c5": "#2a8fc4",
    "c6": "#6a45a0",
    "c7": "#5a5a5a",
}
DARK: Mapping[str, str] = {
    "page": "#14171b",
    "text": "#e8eaed",
    "muted": "#a4acb6",
    "grid": "#343a42",
    "heat0": "#14171b",
    "heat1": "#1d588c",
    "c0": "#5cb3ee",
    "c1": "#ff9255",
    "c2": "#45cfa4",
    "c3": "#ec9ccb",
    "c4": "#e6bd45",
    "c5": "#97d8f7",
    "c6": "#bb9bea",
    "c7": "#bdbdbd",
}
"""Okabe and Ito's hues in their order, dark or light enough for text on the page's colour."""

SERIES = 8
"""How many series one picture can show, each with a colour and a shape of its own."""

_CORNERS: Mapping[int, Sequence[tuple[float, float]]] = {
    1: [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    2: [(0, -1.3), (1.2, 0.9), (-1.2, 0.9)],
    3: [(0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)],
    4: [(0, 1.3), (1.2, -0.9), (-1.2, -0.9)],
    5: [(-0.5, -1.3), (0.5, -1.3), (0.5, 1.3), (-0.5, 1.3)],
    6: [(-1.3, -0.5), (1.3, -0.5), (1.3, 0.5), (-1.3, 0.5)],
    7: [(-1.2, -1.2), (1.2, -1.2), (0, 0), (1.2, 1.2), (-1.2, 1.2), (0, 0)],
}
"""Shapes of marks, by series; series 0 has a circle."""

_CHARACTER = 6.7  # width of a character at 11 px, of the wider ones


def style(colours: Mapping[str, str]) -> str:
    """The style sheet of all charts; ``colours`` are CSS colours or references to some."""
    series = "".join(
        f".s{n}{{stroke:{colours[f'c{n}']}}}.f{n}{{fill:{colours[f'c{n}']};stroke:{colours[f'c{n}']}}}"
        for n in range(SERIES)
    )
    return (
        f".tx{{fill:{colours['text']};font:11px system-ui,'DejaVu Sans',sans-serif}}"
        f".mu{{fill:{colours['muted']}}}.e{{text-anchor:end}}.m{{text-anchor:middle}}.b{{font-weight:600}}"
        f".gr{{stroke:{colours['grid']};fill:none}}"
        f".li{{fill:none;stroke-width:1.8}}.wh{{stroke:{colours['text']};fill:none;stroke-width:1.2}}"
        f".ha{{stroke:{colours['page']};fill:none;stroke-width:3.6}}"
        f".bo{{stroke:{colours['muted']};fill:none;stroke-width:1.4}}.da{{stroke-dasharray:5 3}}"
        f".do{{stroke-dasharray:1.5 2.5}}{series}.ra{{fill-opacity:.14;stroke:none}}"
        ".measured{fill-opacity:1;stroke-width:1.2}.emulated{fill-opacity:.3;stroke-width:1.2}"
        ".virtual{fill-opacity:0;stroke-width:1.4;stroke-dasharray:3 2}"
    )


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Maps values to positions, in px. Logarithmic scales take only values above 0."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The position of ``value``; a value beyond an end of the scale gets the position of that end."""
        value = min(max(value, self.low), self.high)
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values on the scale: 1, 2 or 5 times a power of ten, or only powers of ten."""
        if not self.log:
            step = _round_step((self.high - self.low) / most)
            first, last = math.ceil(self.low / step), math.floor(self.high / step + 1e-9)
            return [number * step for number in range(first, last + 1)]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for factors in ((1, 2, 5), (1, 3), (1,)):
            found = [f * 10.0**d for d in range(first, last + 1) for f in factors]
            found = [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]
            if len(found) <= most:
                return found
        return found[:: -(-len(found) // most)]


def linear(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale from 0 to the highest of ``values``, with some room."""
    return Scale(low=0.0, high=max(values, default=0.0) * 1.02 or 1.0, start=start, end=end)


def logarithmic(values: Sequence[float], start: float, end: float, *, room: float = 1.15) -> Scale:
    """A scale from below the lowest of ``values`` above 0 to beyond the highest."""
    above = [value for value in values if value > 0] or [1.0]
    return Scale(low=min(above) / room, high=max(above) * room, start=start, end=end, log=True)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def amount(value: float) -> str:
    """A figure for a tick or a tooltip: three digits, and k, M or G for thousands."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (limit if unit != 'k' else 1e3):.3g}{unit}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def microseconds(value: float) -> str:
    """A latency given in µs, with the unit that suits it."""
    for limit, unit in ((1e6, "s"), (1e3, "ms")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g} µs"


def shortened(label: str, most: int) -> str:
    """At most ``most`` characters. The middle is cut, because names mostly differ at their ends."""
    label = printable(label)
    if len(label) <= most:
        return label
    tail = (most - 1) // 2
    return f"{label[: most - 1 - tail]}…{label[-tail:]}"


def fits(width: float) -> int:
    """How many characters of text fit into ``width`` px."""
    return max(4, int(width / _CHARACTER))


def text(x: float, y: float, content: str, classes: str = "") -> str:
    return f'<text class="{f"tx {classes}".strip()}" x="{x:.1f}" y="{y:.1f}">{for_html(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    return f'<line class="{classes}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def path(points: Sequence[tuple[float, float]], classes: str, tip: str = "") -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{classes}" points="{places}">{title(tip)}</polyline>'


def area(points: Sequence[tuple[float, float]], classes: str) -> str:
    """A closed shape without a mark of its own."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon class="ra {classes}" points="{places}"/>'


def title(tip: str) -> str:
    """The tooltip of a mark: browsers show it without any script."""
    return f"<title>{for_html(tip)}</title>" if tip else ""


def marker(shape: int, x: float, y: float, classes: str, tip: str = "", size: float = 4.0) -> str:
    """One of ``SERIES`` shapes around a point."""
    corners = _CORNERS.get(shape % SERIES)
    if corners is None:
        return f'<circle class="{classes}" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}">{title(tip)}</circle>'
    places = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners)
    return f'<polygon class="{classes}" points="{places}">{title(tip)}</polygon>'


def mixed(colours: Mapping[str, str], part: float) -> str:
    """The colour of a heat map's cell, from 0 to 1."""

    def channels(colour: str) -> list[int]:
        return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]

    pairs = zip(channels(colours["heat0"]), channels(colours["heat1"]), strict=True)
    return "#" + "".join(f"{round(low + part * (high - low)):02x}" for low, high in pairs)
