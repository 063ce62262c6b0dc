"""The answer of a run as one picture: what each column reaches and costs, and why, with what is lost."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from harness.explain import volumes
from harness.explain.curves import sentences
from harness.model.escape import printable
from harness.model.lines import counted, wrapped
from harness.report import draw, summary
from harness.report.charts import Chart
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
    rest = results.rest
    found = rest.answers if rest.records else []
    reported = [*sentences(results.curves), *results.section_sentences]
    parts: list[str] = []
    y = _sentences(parts, 0.0, reported)
    if found:
        for chart in losses(found[:MOST], columns(rest, rest.table(Metric.MB_S))):
            parts.append(draw.text(0, y + 14, chart.title, "b"))
            parts.append(draw.inset(0, y + 22, chart.width, chart.height, chart.body))
            y += 34 + chart.height
    answers = summary.said(found[:MOST], rest)
    wide = draw.fits(WIDTH)
    for each in answers:
        y = _sentences(parts, y, [each.circumstances, each.links])
        y = _table(parts, y, each.table(wide), "e")
        y = _sentences(parts, y, [each.legend])
        y = _table(parts, y, volumes.lines(rest.volumes, wide)) if len(answers) == 1 else y
        y = _sentences(parts, y, each.sentences) + 8
    if (left := len(found) - MOST) > 0:
        y = _sentences(parts, y, [f"{counted(left, 'more column')}: harness explain --summary"])
    reported += itertools.chain(*((each.circumstances, *each.sentences) for each in answers))
    return [
        Chart(
            title="What it costs, and why",
            description=" ".join(reported),
            width=WIDTH,
            height=y,
            body="".join(parts),
            headings=(),
            lines=(),
        )
    ] * bool(parts)


def _sentences(parts: list[str], y: float, said: Sequence[str]) -> float:
    """Where lines of text end that begin at ``y``; between two sentences is some room."""
    for words in filter(None, said):
        for line in wrapped(printable(words), draw.fits(WIDTH)):
            y += _LINE
            parts.append(draw.text(0, y - 4, line))
        y += 6
    return y


def _table(parts: list[str], y: float, lines: Sequence[str], classes: str = "") -> float:
    """The same of lines whose columns are two blanks apart. With the class ``e`` all but the first end where
    they do in the line, else they begin there."""
    for line in lines:
        y += _LINE
        for column in re.finditer(r"\S+(?: \S+)*", line):
            of_column = classes if column.start() > len(summary.GAP) else ""
            x = draw.width(line[: column.end() if of_column else column.start()])
            parts.append(draw.text(x, y - 4, column[0], of_column))
    return y + 6 * bool(lines)
