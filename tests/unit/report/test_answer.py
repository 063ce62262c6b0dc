"""The answer as a picture: the sentences of the report, with their bars, as wide as forums show."""

from __future__ import annotations

import html
import re
import struct
from pathlib import Path

import pytest

from harness.explain import volumes
from harness.model.errors import UsageError
from harness.report import ChartKind, answer, draw, load, picture, render, summary
from harness.report.content import LoadedResults
from harness.table import Metric
from tests.unit.report.test_report import results
from tests.unit.table.test_table import record

FIGURES = Path(__file__).parents[3] / "docs" / "figures"


def reported(shown: LoadedResults) -> tuple[str, str]:
    """The picture, and its words."""
    svg = picture(ChartKind.ANSWER, shown, Metric.MB_S, Path("x.svg")).decode()
    return svg, " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)).replace("&#x27;", "'")


def test_it_and_the_page_say_what_the_terminal_says() -> None:
    shown = load([FIGURES / "make-run"])
    svg, words = reported(shown)
    (said,) = summary.said(shown.answers, shown)
    page = html.unescape(render(shown))
    for sentence in (said.circumstances, said.legend, *said.sentences):
        assert sentence in words and sentence in page
    rows = [" ".join(line.split()) for line in said.table(draw.fits(answer.WIDTH))]
    assert len(rows) > 5 and all(row in words for row in rows)
    # So are the table's figures, and what disks keep.
    cells = re.findall(r"<t[dh][^>]*>([^<]*)", page[page.index('<section id="answer"') :])
    figures = [figure for block in said.blocks for line in block.figures for figure in line]
    disks = [cell for table in volumes.tables(shown.volumes) for row in table for cell in row]
    assert len(disks) == 16 and {*figures, *disks, *(each.strip() for each in said.titles)} <= {*cells}
    # A bar for each loss, in the colour that its column has in all pictures.
    assert (
        len(re.findall(r'<rect class="f\d em"', svg)) == sum(len(each.shown) for each in shown.answers) == 8
    )
    assert all(len(re.findall(rf'<rect class="f{place} em"', svg)) == 2 for place in range(1, 5))
    shown = load([FIGURES / "protections"])
    left = len(shown.answers) - answer.MOST
    assert left > 0 and f"{left} more columns: harness explain --summary" in reported(shown)[1]


def test_a_png_is_as_wide_as_forums_show() -> None:
    png = picture(ChartKind.ANSWER, load([FIGURES / "ladder"]), Metric.MB_S, Path("x.png"))
    assert struct.unpack(">I", png[16:20]) == (1200,)
    # There is none of a disk alone.
    with pytest.raises(UsageError, match="nothing for a picture of answer"):
        reported(results([record(link="local")]))
