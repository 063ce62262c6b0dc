"""Tables as text, and the matrix: six formats of the same table. Each escapes the names in it."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec
from tabulate import SEPARATING_LINE, tabulate

from harness.model import Status
from harness.model.escape import as_json, for_csv, for_html, for_latex, for_markdown, printable
from harness.model.lines import wrapped
from harness.results.metrics import Metric
from harness.table.notes import caution, sign_of
from harness.table.options import RatioTo, Table, TableCell, TableColumn, TableFormat

_HEADING_WIDTH = 12
_TIMES = "\N{MULTIPLICATION SIGN}"
_FILLER = "\ue000"  # no name contains it: it is not printable
_RATE = re.compile(r"([0-9.]+) (\S?bit/s)")
_GAP = 2  # columns that tabulate's "simple" leaves between two columns


def render(table: Table, format: TableFormat = TableFormat.TEXT, width: int | None = None) -> str:
    """``table`` as text without a newline at its end.

    A plain table wider than ``width`` characters has spreads in whole percent, and names of columns in two
    lines. If it is too wide for that, it is printed in blocks of columns, one below the other, each with the
    rows' names. None: no limit.
    """
    match format:
        case TableFormat.TEXT:
            return _plain(table, width)
        case TableFormat.CSV:
            return _csv(table)
        case TableFormat.JSON:
            return _json(table)
        case _:
            lines = [
                [row.name, *(" ".join(filter(None, _parts(table, cell))) for cell in cells)]
                for row, cells in zip(table.rows, table.cells, strict=True)
            ]
            headings = [[""], *([part for part in column.headed if part] for column in table.columns)]
            return laid_out(format, table.title, headings, lines, _notes(table))


class _Layout(msgspec.Struct, frozen=True):
    """How a format takes a table: its name in tabulate, what makes text harmless there, a heading of several
    lines, what is between two of these, and a paragraph and a note below the table."""

    style: str
    escape: Callable[[str], str]
    newline: str
    heading: str = "{}"
    paragraph: str = "{}"
    note: str = "{}"
    between_notes: str = "\n"


_LAYOUTS = {
    TableFormat.TEXT: _Layout("simple", printable, "\n"),
    TableFormat.MARKDOWN: _Layout("pipe", for_markdown, ", ", note="- {}"),
    TableFormat.HTML: _Layout("unsafehtml", for_html, "<br>", paragraph="<p>{}</p>", note="<p>{}</p>"),
    TableFormat.LATEX: _Layout(
        "latex_raw", for_latex, r"\\", heading=r"\shortstack[r]{{{}}}", between_notes="\n\n"
    ),
}


def laid_out(
    format: TableFormat,
    title: str,
    headings: Sequence[Sequence[str]],
    lines: Iterable[Sequence[str] | None],
    notes: Iterable[str],
    *,
    lefts: Iterable[int] = (0,),
    width: int | None = None,
) -> str:
    """Text for people of a title, a table and notes below it, in ``format``, which is neither CSV nor JSON.

    A heading has one or more lines. None among ``lines`` is a rule in plain text, and nothing elsewhere. The
    columns ``lefts`` are aligned left, all others right. A plain title and plain notes are wrapped at
    ``width`` characters; None: not at all.
    """
    layout = _LAYOUTS[format]
    is_plain = format is TableFormat.TEXT

    def heading(parts: Sequence[str]) -> str:
        text = layout.newline.join(map(layout.escape, parts))
        return layout.heading.format(text) if len(parts) > 1 else text

    body: list[Any] = [
        SEPARATING_LINE if line is None else list(map(layout.escape, line))
        for line in lines
        if line is not None or is_plain
    ]
    text = tabulate(
        body,
        headers=list(map(heading, headings)),
        tablefmt=layout.style,
        disable_numparse=True,
        colalign=["left" if place in lefts else "right" for place in range(len(headings))],
    )
    room = width if is_plain else None
    above = "\n".join(note_lines(layout.paragraph.format(layout.escape(title)), room))
    below = layout.between_notes.join(
        line for note in notes for line in note_lines(layout.note.format(layout.escape(note)), room)
    )
    return _trimmed("\n\n".join((above, text, below)))


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip()


def number(value: float, metric: Metric) -> str:
    """A value for people, with the metric's decimals; a value below 0.1 has two digits."""
    if 0 < value < 0.1:
        return f"{value:.2g}"
    decimals = 0 if value >= metric.figure.whole_from else metric.figure.decimals
    return f"{value:.{decimals}f}"


def marked_value(cell: TableCell, metric: Metric) -> str:
    """What a cell shows: its value, with a sign if it was disturbed or is the lab's own, or its status."""
    if cell.value is None:
        return cell.status.upper()
    return f"{number(cell.value, metric)} {caution(cell)}".rstrip()


def percent(spread: float, *, whole: bool = False) -> str:
    """A spread for people: two digits, or all digits from a hundred percent on; or no fractions."""
    return f"±{100 * spread:.1f}%" if spread < 0.0995 and not whole else f"±{100 * spread:.0f}%"


def _times(ratio: float) -> str:
    return f"{_TIMES}{ratio:.3f}" if ratio >= 0.0005 else f"{_TIMES}{ratio:.1g}"


def _parts(
    table: Table, cell: TableCell | None, *, is_narrow: bool = False
) -> tuple[str, str, str, str, str, str]:
    """Value or status, sign of caution, spread, ratio, sign of no difference and mark of a cell. Each is
    empty if there is none.

    A ratio replaces the spread, because five columns must fit into a terminal.
    """
    if cell is None:
        return "—", "", "", "", "", ""
    mark = "" if cell.mark is None else f"[{cell.mark}]"
    if cell.value is None:
        return ("n/a" if cell.status is Status.OK else cell.status.upper()), "", "", "", "", mark
    ratio = cell.ratio(table.options.ratio)
    spread = cell.spread if table.options.ratio is RatioTo.NONE else None
    return (
        number(cell.value, table.options.metric),
        caution(cell),
        "" if spread is None else percent(spread, whole=is_narrow),
        "" if ratio is None else _times(ratio),
        sign_of(cell),
        mark,
    )


def _notes(table: Table) -> list[str]:
    return [
        *(f"[{n}] {text}" for n, text in enumerate(table.footnotes, 1)),
        *table.marks,
        *table.notes,
    ]


def _plain(table: Table, width: int | None) -> str:
    blocks = _blocks(table, width, is_narrow=False)
    if len(blocks) > 1:
        blocks = min(blocks, _blocks(table, width, is_narrow=True), key=len)
    notes = [line for note in _notes(table) for line in note_lines(printable(note), width)]
    return _trimmed("\n".join([printable(table.title), "", "\n\n".join(blocks), "", *notes]))


class _PrintedColumn(msgspec.Struct, frozen=True):
    """A column: the lines of each part of its heading, and its cells."""

    column: TableColumn
    heading: list[list[str]]
    body: list[str]

    @property
    def width(self) -> int:
        return _GAP + max(map(len, (*itertools.chain.from_iterable(self.heading), *self.body)))


def _blocks(table: Table, width: int | None, *, is_narrow: bool) -> list[str]:
    """The columns that are printed side by side: all if they fit, else as many of one setting as fit."""
    labels = [printable(row.name) for row in table.rows]
    room = math.inf if width is None else width - max(map(len, labels))
    drawn = [
        _PrintedColumn(
            column, _heading(column, is_narrow=is_narrow), _aligned(table, place, is_narrow=is_narrow)
        )
        for place, column in enumerate(table.columns)
    ]
    if sum(each.width for each in drawn) <= room:
        return [_block(labels, drawn)]
    blocks = [drawn[:1]]
    for each in drawn[1:]:
        fits = sum(other.width for other in (*blocks[-1], each)) <= room
        if fits and each.column.setting == blocks[-1][0].column.setting:
            blocks[-1].append(each)
        else:
            blocks.append([each])
    return [_block(labels, block) for block in blocks]


def _block(labels: Sequence[str], block: Sequence[_PrintedColumn]) -> str:
    """Origins, names, titles, remarks and IPsec each begin at the same height."""
    heights = [max(map(len, parts)) for parts in zip(*(each.heading for each in block), strict=True)]
    headings = [
        "\n".join(
            line
            for part, height in zip(each.heading, heights, strict=True)
            for line in part + [""] * (height - len(part))
        )
        for each in block
    ]
    # Not as tabulate's headers, which it makes wider by two blanks.
    lines: list[Any] = [["", *headings], SEPARATING_LINE, *zip(labels, *(e.body for e in block), strict=True)]
    aligned = ["left"] + ["right"] * len(block)
    text = tabulate(lines, tablefmt="simple", disable_numparse=True, colalign=aligned)
    return "\n".join(text.splitlines()[1:-1]).replace(_FILLER, " ")


def note_lines(note: str, width: int | None) -> list[str]:
    """The lines of a note, none longer than ``width``; with None, one line."""
    return [note] if width is None else wrapped(note, width, "    ")


def _heading(column: TableColumn, *, is_narrow: bool) -> list[list[str]]:
    """Each part of a heading in lines; in a narrow table a long name has a line for each protection."""
    origin, name, *words = column.headed
    if is_narrow and len(name) > _HEADING_WIDTH:
        name = name.replace("+", " +")
    # A rate and its unit stay together.
    parts = (_RATE.sub(rf"\1{_FILLER}\2", printable(part)) for part in (origin, name, *words))
    return [
        textwrap.wrap(part, _HEADING_WIDTH, break_long_words=False, break_on_hyphens=place != 1)
        for place, part in enumerate(parts)
    ]


def _aligned(table: Table, column: int, *, is_narrow: bool) -> list[str]:
    """The cells of a column. In cells with a figure, spreads, ratios and marks are aligned."""
    lines = [(line[column], _parts(table, line[column], is_narrow=is_narrow)) for line in table.cells]
    measured = [parts for cell, parts in lines if cell and cell.value is not None]
    widths = [max((len(parts[i]) for parts in measured), default=0) for i in range(1, 6)]

    def padded(value: str, *rest: str) -> str:
        fields = [text.rjust(width) for text, width in zip(rest, widths, strict=True) if width]
        # tabulate would strip the blanks that keep the place.
        return " ".join([value, *fields]).replace(" ", _FILLER)

    return [
        padded(*parts) if cell and cell.value is not None else " ".join(filter(None, parts))
        for cell, parts in lines
    ]


def _csv(table: Table) -> str:
    """For each column its value, low, high, n and disturbed part, unrounded. Instead of a missing value, the
    reasons. ``group`` and ``operation`` are names of earlier versions for what ``workload`` names: they go
    with the release after this one."""
    ratio = table.options.ratio
    further: dict[str, Callable[[TableCell], float | None]] = {
        "low": lambda cell: cell.low,
        "high": lambda cell: cell.high,
        "n": lambda cell: cell.n,
    }
    if ratio is not RatioTo.NONE:
        further[f"ratio to {ratio.baseline}"] = lambda cell: cell.ratio(ratio)
    further["disturbed"] = lambda cell: cell.disturbed
    header = ["group", "operation", "workload"]
    for column in table.columns:
        header.append(for_csv(f"{column.label} [{table.options.metric.figure.unit}]"))
        header += [for_csv(f"{column.label} {name}") for name in further] if column.key else []
    lines = [header]
    for row, cells in zip(table.rows, table.cells, strict=True):
        line = [for_csv(row.group), for_csv(row.operation), for_csv(row.workload)]
        for column, cell in zip(table.columns, cells, strict=True):
            line.append(_csv_value(cell))
            if column.key:
                line += [_figure(get(cell) if cell else None) for get in further.values()]
        lines.append(line)
    return in_csv(lines)


def in_csv(lines: Iterable[Sequence[str]]) -> str:
    """Lines of comma-separated values (RFC 4180, but with line feeds), without one at the end."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue().rstrip("\n")


def _csv_value(cell: TableCell | None) -> str:
    if cell is None:
        return ""
    return "; ".join(map(for_csv, cell.reasons)) if cell.value is None else _figure(cell.value)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"


def _json(table: Table) -> str:
    """Every cell with all that is known of it; docs/results.md describes the fields."""
    from harness.table.printed import PrintedCell, PrintedTable, PublishedFigure

    unit = table.options.metric.figure.unit
    cells: list[PrintedCell] = []
    published: list[PublishedFigure] = []
    for row, line in zip(table.rows, table.cells, strict=True):
        for column, cell in zip(table.columns, line, strict=True):
            if cell is None:
                continue
            of, key = column.column, column.key
            if key is None:
                published.append(
                    {"workload": row.workload, "name": of.label, "value": cell.value, "unit": unit}
                )
                continue
            where = {
                "workload": row.workload,
                "setting": key.setting,
                "column": key.column,
                "encrypted": key.is_encrypted,
                "direction": row.direction,
                "unit": unit,
                "metric": table.options.metric,
            }
            # The others are called as in the table's cell.
            names = PrintedCell.__annotations__
            found = {name: where[name] if name in where else getattr(cell, name) for name in names}
            cells.append(cast(PrintedCell, found))
    document: PrintedTable = {"cells": cells}
    reference = table.options.reference
    if reference is not None:
        document["reference"] = {
            "name": reference.name,
            "title": reference.title,
            "source": reference.source,
            "cells": published,
        }
    return as_json(document)
