"""The pictures of where the time goes: a verdict for each bar, colours that all can tell apart."""

from __future__ import annotations

import itertools
import re

import msgspec
import pytest

from harness.explain import explain
from harness.explain.text import Explained
from harness.explain.waterfall import PARTS
from harness.model.units import format_ns
from harness.report import draw
from harness.report.charts import WIDTH
from harness.report.waterfalls import waterfalls
from tests.unit.explain.test_explain import columns, plan_of_them


def bars(body: str) -> list[tuple[float, float]]:
    """Where each bar begins and ends, in px."""
    found: dict[str, list[tuple[float, float]]] = {}
    rect = rf'<rect class="[^"]+" x="(\d+)" y="(\d+)" width="(\d+)" height="{18 * draw.FINE}">'
    for x, y, width in re.findall(rect, body):
        start = int(x) / draw.FINE
        found.setdefault(y, []).append((start, start + int(width) / draw.FINE))
    return [(parts[0][0], parts[-1][1]) for parts in found.values()]


EXPLAINED: list[Explained] = explain(columns(), {"r1": plan_of_them()})


def test_each_bar_is_the_whole_of_its_time_with_its_verdict_below_and_names_on_wide_parts() -> None:
    (chart,) = waterfalls(EXPLAINED)
    times = [format_ns(cell.verdict.whole_ns) for cell in EXPLAINED if cell.verdict.whole_ns]
    # The fastest takes a five hundredth of the slowest's time, and its parts are as easy to see.
    starts, ends = zip(*bars(chart.body), strict=True)
    assert starts == (4.0,) * 4 and ends == pytest.approx((WIDTH - 4,) * 4, abs=1)
    assert re.findall(r">([\d.]+ [mµn]?s)</text>", chart.body) == times
    assert dict(chart.says)["wired+aes128gcm16"] == "limited by crypto work (confidence medium)"
    assert len(chart.says) == len(chart.lines)
    assert re.search(r'<text class="in"[^>]*>crypto( \d+%)?</text>', chart.body)


def test_parts_that_add_up_to_more_go_on_beyond_a_line() -> None:
    parts = {"link": 15_000, "crypto": 5_000, "rest": -10_000}
    (*_, last) = EXPLAINED
    over = msgspec.structs.replace(last.verdict, whole_ns=10_000, waterfall_ns=parts)
    (chart,) = waterfalls([msgspec.structs.replace(last, verdict=over)])
    ((start, end),) = bars(chart.body)
    (line,) = re.findall(r'<path class="wh" d="M(\d+) ', chart.body)
    assert int(line) / draw.FINE - start == pytest.approx((end - start) / 2, abs=0.5)
    assert "10.0 µs more than was measured" in chart.body
    assert chart.lines[0][1:-1] == ("10.0", "15.0", "5.0", "-10.0")


DICHROMATS = {
    "protanope": "0.152286 1.052583 -0.204868 | 0.114503 0.786281 0.099216 | -0.003882 -0.048116 1.051998",
    "deuteranope": "0.367322 0.860646 -0.227968 | 0.280085 0.672501 0.047413 | -0.01182 0.04294 0.968881",
    "tritanope": "1.255528 -0.076749 -0.178779 | -0.078411 0.930809 0.147602 | 0.004733 0.691367 0.3039",
    "nobody": "1 0 0 | 0 1 0 | 0 0 1",
}
"""What they see of linear red, green and blue: Machado, Oliveira and Fernandes 2009, severity 1."""


def lab(colour: str, who: str) -> tuple[float, float, float]:
    """CIE 1976 L*a*b* (D65) of what somebody sees of a colour in sRGB."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    seen = [[float(number) for number in row.split()] for row in DICHROMATS[who].split("|")]
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, linear, strict=True)))) for row in seen
    )
    x, y, z = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116
        for value in (
            (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
            0.2126 * red + 0.7152 * green + 0.0722 * blue,
            (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("who", DICHROMATS)
def test_parts_are_distinguished_by_everybody(who: str) -> None:
    for (one, a), (other, b) in itertools.combinations(draw.PARTS.items(), 2):
        distance = sum((p - q) ** 2 for p, q in zip(lab(a, who), lab(b, who), strict=True)) ** 0.5
        assert distance >= 15, (one, other)
    assert set(draw.PARTS) == {*PARTS} - {"queue", "rest"}
    assert not set(draw.PARTS.values()) & {*draw.LIGHT.values(), *draw.DARK.values()}
    # A name on a part can be read.
    ink = lab(draw.INK, "nobody")[0]
    assert all(lab(colour, "nobody")[0] - ink > 45 for colour in draw.PARTS.values())
