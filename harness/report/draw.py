"""Drawing in SVG: scales, ticks, text and marks, with classes that get their colours from a style sheet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from harness.explain.limits import RULES
from harness.model.escape import for_page, printable

_COLOURS: Mapping[str, tuple[str, str]] = {
    "page": ("#ffffff", "#14171b"),
    "text": ("#1a1d21", "#e8eaed"),
    "muted": ("#565d66", "#a4acb6"),
    "grid": ("#dfe3e8", "#343a42"),
    "heat0": ("#ffffff", "#14171b"),
    "heat1": ("#9cc9f0", "#1d588c"),
    "c0": ("#0067a5", "#5cb3ee"),
    "c1": ("#c24e00", "#ff9255"),
    "c2": ("#007a58", "#45cfa4"),
    "c3": ("#a8457f", "#ec9ccb"),
    "c4": ("#8a6500", "#e6bd45"),
    "c5": ("#2a8fc4", "#97d8f7"),
    "c6": ("#6a45a0", "#bb9bea"),
    "c7": ("#5a5a5a", "#bdbdbd"),
}
"""Okabe and Ito's hues in their order, dark or light enough for text on the page's colour: those of the light
theme, and of the dark one."""

LIGHT: Mapping[str, str] = {name: light for name, (light, _) in _COLOURS.items()}
DARK: Mapping[str, str] = {name: dark for name, (_, dark) in _COLOURS.items()}

PARTS: Mapping[str, str] = {rule.part: rule.colour for rule in RULES.values() if rule.colour}
"""Of the parts of an I/O's time, after Paul Tol's scheme "light"."""

INK = "#111111"
"""Of text on a part."""

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

_CHARACTER = 7.3  # width of a character at 12 px, of the wider ones

FINE = 2
"""Units of a picture's SVG to a px: so its coordinates are whole numbers, which are short, and as exact as an
eye can see. Functions here take px, and what they write is in these units."""


def style(colours: Mapping[str, str]) -> str:
    """The style sheet of all charts; ``colours`` are CSS colours or references to some."""
    series = "".join(f".f{n}{{fill:{colours[f'c{n}']};stroke:{colours[f'c{n}']}}}" for n in range(SERIES))

    def wide(*px: float) -> str:
        return " ".join(f"{FINE * each:g}" for each in px)

    return (
        f"svg{{fill:{colours['text']};stroke-width:{wide(1)};"
        f"font:{wide(12)}px system-ui,'DejaVu Sans',sans-serif}}"
        f".mu{{fill:{colours['muted']}}}.e{{text-anchor:end}}.m{{text-anchor:middle}}.b{{font-weight:600}}"
        f".gr{{stroke:{colours['grid']};fill:none}}"
        f"{series}.li{{fill:none;stroke-width:{wide(1.8)}}}"
        f".wh{{stroke:{colours['text']};fill:none;stroke-width:{wide(1.2)}}}"
        f".ha{{stroke:{colours['page']};fill:none;stroke-width:{wide(3.6)}}}"
        f".bo{{stroke:{colours['muted']};fill:none;stroke-width:{wide(1.4)}}}"
        f".da{{stroke-dasharray:{wide(5, 3)}}}"
        ".ra{fill-opacity:.14;stroke:none}"
        f".me{{fill-opacity:1;stroke-width:{wide(1.2)}}}"
        f".em{{fill-opacity:.3;stroke-width:{wide(1.2)}}}"
        f".vi{{fill-opacity:0;stroke-width:{wide(1.4)};stroke-dasharray:{wide(3, 2)}}}"
        f".pa{{stroke:{colours['text']};stroke-width:{wide(0.6)}}}.in{{fill:{INK}}}"
        + "".join(f".{part}{{fill:{colour}}}" for part, colour in PARTS.items())
    )


def series(place: int) -> str:
    """The class of a column's colour."""
    return f"f{place % SERIES}"


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


ROOM = 1.15
"""A logarithmic scale goes so far beyond its values, as a factor."""


def logarithmic(values: Sequence[float], start: float, end: float, *, room: float = ROOM) -> Scale:
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


def shortened(label: str, most: int) -> str:
    """At most ``most`` characters. The middle is cut, because names mostly differ at their ends."""
    label = printable(label)
    if len(label) <= most:
        return label
    tail = (most - 1) // 2
    return f"{label[: most - 1 - tail]}…{label[-tail:]}"


def width(words: str) -> float:
    """The most px that a text takes."""
    return len(words) * _CHARACTER


def fits(width: float) -> int:
    """How many characters of text fit into ``width`` px."""
    return max(4, int(width / _CHARACTER))


def text(x: float, y: float, content: str, classes: str = "") -> str:
    kind = f' class="{classes}"' if classes else ""
    return f'<text{kind} x="{round(FINE * x)}" y="{round(FINE * y)}">{for_page(content)}</text>'


def texts(found: Iterable[tuple[float, float, str]], classes: str) -> str:
    """Several texts with the same classes."""
    return group(classes, "", *itertools.starmap(text, found))


def lines(ends: Sequence[tuple[tuple[float, float], tuple[float, float]]], classes: str) -> str:
    """Straight lines, each between two points."""
    return f'<path class="{classes}" d="{"".join(map(_through, ends))}"/>'


def path(points: Sequence[tuple[float, float]], classes: str, tip: str = "") -> str:
    end = f">{title(tip)}</path>" if tip else "/>"
    return f'<path class="{classes}" d="{_through(points)}"{end}'


def area(points: Sequence[tuple[float, float]]) -> str:
    """A closed shape in the colour of its group."""
    return f'<path class="ra" d="{_through(points)}z"/>'


def rect(x: float, y: float, width: float, height: float, classes: str, tip: str = "") -> str:
    at, down, wide, high = (round(FINE * px) for px in (x, y, width, height))
    drawn = f'<rect class="{classes}" x="{at}" y="{down}" width="{wide}" height="{high}"'
    return f"{drawn}>{title(tip)}</rect>" if tip else f"{drawn}/>"


def _through(points: Sequence[tuple[float, float]]) -> str:
    """Lines through points, from the first one on."""
    return f"M{' '.join(f'{round(FINE * x)} {round(FINE * y)}' for x, y in points)}" if points else ""


def title(tip: str) -> str:
    """The tooltip of a mark: browsers show it without any script."""
    return f"<title>{for_page(tip)}</title>" if tip else ""


def group(classes: str, name: str, *drawn: str) -> str:
    """What belongs together. The page's script puts ``name`` before the tooltips in it."""
    kind = f' class="{classes}"' if classes else ""
    return f"<g{kind}>{title(name)}{''.join(drawn)}</g>"


def inset(x: float, y: float, width: float, height: float, body: str) -> str:
    """A picture within another one."""
    at, down, wide, high = (f"{FINE * px:g}" for px in (x, y, width, height))
    return f'<svg x="{at}" y="{down}" width="{wide}" height="{high}">{body}</svg>'


def marks(shape: int, places: Iterable[tuple[float, float, str]], size: float = 2.8) -> str:
    """One of ``SERIES`` shapes around each of several points, with their tooltips."""
    return "".join(_mark(shape, x, y, size, title(tip)) for x, y, tip in places)


def _mark(shape: int, x: float, y: float, size: float, inner: str) -> str:
    corners = _CORNERS.get(shape % SERIES)
    end = f">{inner}</{'circle' if corners is None else 'path'}>" if inner else "/>"
    if corners is None:
        return f'<circle cx="{round(FINE * x)}" cy="{round(FINE * y)}" r="{FINE * size:g}"{end}'
    return f'<path d="{_through([(x + size * dx, y + size * dy) for dx, dy in corners])}z"{end}'


def mixed(colours: Mapping[str, str], part: float) -> str:
    """The colour of a heat map's cell, from 0 to 1."""

    def channels(colour: str) -> list[int]:
        return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]

    pairs = zip(channels(colours["heat0"]), channels(colours["heat1"]), strict=True)
    return "#" + "".join(f"{round(low + part * (high - low)):02x}" for low, high in pairs)
