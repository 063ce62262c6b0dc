"""Loss is drawn as loss: from zero, with its interval; and it is said first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.report import ChartKind, draw, load, render
from harness.report.charts import WIDTH
from harness.report.losses import OF_BARE, OF_LINK, headline
from harness.report.picture import drawn

FIGURES = Path(__file__).parents[3] / "docs" / "figures"


def test_bars_are_as_long_as_what_is_lost_and_the_table_has_the_figures() -> None:
    shown = load([FIGURES / "make-run"])
    of_link, of_bare = drawn(ChartKind.LOSS, shown)
    assert (of_link.title, of_bare.title) == (OF_LINK, OF_BARE)
    for chart in (of_link, of_bare):
        lost = [float(line[1]) for line in chart.lines]
        wide = [int(px) for px in re.findall(r'<rect class="f[^>]* width="(\d+)"', chart.body)]
        assert [px / max(wide) for px in wide] == pytest.approx([each / max(lost) for each in lost], abs=0.02)
        # What is lost is what can be seen, also where 96 % are kept.
        assert max(wide) > 0.8 * draw.FINE * WIDTH
    by_name = {line[0]: line[1:4] for line in of_bare.lines}
    known = {
        f"{answer.column.label}, {loss.size}": loss.compared
        for answer in shown.answers
        for loss in answer.shown
        if loss.compared is not None
    }
    assert by_name.keys() == known.keys()
    for name, shown_as in by_name.items():
        found = known[name]
        assert found.interval is not None
        ends = [100 * (1 - end) for end in (found.ratio, *reversed(found.interval))]
        assert [float(each) for each in shown_as] == pytest.approx(ends, abs=0.06)


def zero_of(path: str) -> list[int]:
    """The lengths of upright strokes, if a path is of nothing else."""
    found = re.findall(r"M(\d+) (\d+) (\d+) (\d+)", path)
    return [int(y) - int(b) for a, b, x, y in found] if all(a == x for a, _, x, _ in found) else []


def test_what_is_not_shown_has_no_bar_but_its_interval() -> None:
    shown = load([FIGURES / "protections"])
    _, of_bare = drawn(ChartKind.LOSS, shown)
    without = [line for line in of_bare.lines if not line[1]]
    assert without and all("not shown" in line[-1] and line[2] and line[3] for line in without)
    assert of_bare.body.count("<rect") == len(of_bare.lines) - len(without)
    # Zero is marked at each bar, and not through the names.
    (zero,) = (path for path in re.findall(r'class="wh" d="([^"]*)"', of_bare.body) if zero_of(path))
    assert len(zero_of(zero)) == len(of_bare.lines) and max(zero_of(zero)) < 20 * draw.FINE


def test_the_page_begins_with_the_loss_what_it_is_about_and_the_limit() -> None:
    shown = load([FIGURES / "make-run"])
    first, about, reached, limit = headline(shown.answers)
    assert first.startswith("IPsec aes128gcm16 over wired costs 2.4 % at 256K")
    assert "iSCSI over Gigabit Ethernet 1 Gbit/s (wired)" in about and "IPsec aes128gcm16" in about
    assert "wired reaches 88 to 90 % of the link at 256K" in reached
    assert limit == "Limited by the link's rate at 256K; the round trip at 4K."
    text = render(shown)
    assert text.index(first) < text.index("Xeon") < text.index("<nav")
    assert headline([]) == []


def test_a_column_has_one_colour_in_all_pictures() -> None:
    shown = load([FIGURES / "make-run"])
    (wired,) = (place for (_, column), place in shown.places.items() if column.label == "wired")
    (of_link, _), (bars, *_) = drawn(ChartKind.LOSS, shown), drawn(ChartKind.BARS, shown)
    for body in (of_link.body, bars.body):
        assert f'class="{draw.series(wired)} em"' in body
    for kind in (ChartKind.PERCENTILES, ChartKind.ROOFLINE):
        chart = drawn(kind, shown)[0]
        assert f'<g class="{draw.series(wired)} em">' in chart.body
