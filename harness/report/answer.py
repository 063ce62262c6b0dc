"""The answer of a run as one picture: what each column reaches and costs, and why, with its bars."""

from __future__ import annotations

from harness.explain import knees
from harness.explain.curves import sentences
from harness.model.escape import printable
from harness.model.lines import counted, wrapped
from harness.report import draw
from harness.report.charts import Chart
from harness.report.conclusion import Conclusion, Loss
from harness.report.content import LoadedResults

WIDTH = 552
"""In px: with its margins, and two pixels to each px, a PNG is 1200 wide, which forums show whole."""

MOST = 4
"""So many columns are drawn; the others are in the report."""

_LINE = 17
_BAR = 20
_BAR_WIDTH = 200


def answer(results: LoadedResults) -> list[Chart]:
    """One picture; none if there is nothing to say."""
    found = results.rest.answers if results.rest.records else []
    told = [*sentences(results.curves), *knees.sentences(results.knees)]
    parts: list[str] = []
    y = 0.0
    for sentence in told:
        y = _text(parts, y, sentence) + 6
    for place, conclusion in enumerate(found[:MOST]):
        y = _column(parts, y, conclusion, place)
    if (left := len(found) - MOST) > 0:
        y = _text(parts, y, f"{counted(left, 'more column')}: harness explain --summary")
    return [
        Chart(
            title="What it costs, and why",
            description=" ".join([*told, *(f"{each.column.label}: {each.words}" for each in found[:MOST])]),
            width=WIDTH,
            height=y,
            body="".join(parts),
            headings=(),
            lines=(),
        )
    ] * bool(parts)


def _text(parts: list[str], y: float, words: str) -> float:
    """Where lines of text end that begin at ``y``."""
    for line in wrapped(printable(words), draw.fits(WIDTH)):
        y += _LINE
        parts.append(draw.text(0, y - 4, line))
    return y


def _column(parts: list[str], y: float, conclusion: Conclusion, place: int) -> float:
    parts.append(draw.text(0, y + 14, draw.shortened(conclusion.column.label, draw.fits(WIDTH)), "b"))
    y += 24
    if drawn := [loss for loss in conclusion.shown if loss.is_part]:
        parts.append(draw.text(0, y + 10, f"throughput; a whole bar is {conclusion.whole}", "mu"))
        y += _LINE
        for loss in drawn:
            parts += _bar(y, loss, place)
            y += _BAR
    return _text(parts, y + 4, conclusion.words) + 14


def _bar(y: float, loss: Loss, place: int) -> list[str]:
    """As in the report: of several cells the least is filled, and the outline is 100 %."""
    least, most = (min(1.0, part(loss.kept)) * _BAR_WIDTH for part in (min, max))
    series = draw.series(place)
    return [
        draw.rect(0, y, least, 13, f"{series} me"),
        draw.rect(least, y, most - least, 13, f"{series} em"),
        draw.rect(0, y, _BAR_WIDTH, 13, "bo"),
        draw.text(_BAR_WIDTH + 10, y + 11, draw.shortened(loss.brief, draw.fits(WIDTH - _BAR_WIDTH - 10))),
    ]
