"""The answer of a run as one picture: what each column reaches and costs, and why, with what is lost."""

from __future__ import annotations

from harness.explain import knees
from harness.explain.curves import sentences
from harness.model.escape import printable
from harness.model.lines import counted, wrapped
from harness.report import draw
from harness.report.charts import Chart
from harness.report.conclusion import Conclusion
from harness.report.content import LoadedResults, columns
from harness.report.losses import losses
from harness.table import Metric

WIDTH = 552
"""In px: with its margins, and two pixels to each px, a PNG is 1200 wide, which forums show whole."""

MOST = 4
"""So many columns are drawn; the others are in the report."""

_LINE = 17


def answer(results: LoadedResults) -> list[Chart]:
    """One picture; none if there is nothing to say."""
    found = results.rest.answers if results.rest.records else []
    told = [*sentences(results.curves), *knees.sentences(results.knees)]
    parts: list[str] = []
    y = 0.0
    for sentence in told:
        y = _text(parts, y, sentence) + 6
    if found:
        for chart in losses(found[:MOST], columns(results.rest, results.rest.table(Metric.MB_S))):
            parts.append(draw.text(0, y + 14, chart.title, "b"))
            parts.append(draw.inset(0, y + 22, chart.width, chart.height, chart.body))
            y += 34 + chart.height
    for conclusion in found[:MOST]:
        y = _column(parts, y, conclusion)
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


def _column(parts: list[str], y: float, conclusion: Conclusion) -> float:
    parts.append(draw.text(0, y + 14, draw.shortened(conclusion.column.label, draw.fits(WIDTH)), "b"))
    return _text(parts, y + 28, conclusion.words) + 14
