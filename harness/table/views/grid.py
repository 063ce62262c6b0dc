"""A small table as data, and as text in the formats of ``harness table``. Each escapes the names in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from harness.analysis import disturbance
from harness.model import Record, Status
from harness.model.escape import as_json, for_csv
from harness.model.probing import View
from harness.results.probe_records import ProbeRecord
from harness.table import TableFormat
from harness.table.notes import DISTURBED_SIGN
from harness.table.printed import PrintedRow, PrintedView
from harness.table.text import in_csv, laid_out


class GridColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column. Its ``key`` is for programs and reference data, and includes the unit. With ``is_probed``
    people see it only if some row has something there."""

    key: str
    heading: str
    decimals: int = 2
    is_probed: bool = False


class GridCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell: a figure, or a word for people; ``mark`` is its footnote's number, from 1.

    ``shown`` is what people read instead of the figure.

    ``disturbed`` is the largest part that other programs took of a probe behind the figure (None: unknown);
    ``sign`` says that it was too much.
    """

    value: float | None = None
    word: str | None = None
    shown: str = ""
    mark: int | None = None
    disturbed: float | None = None
    sign: str = ""

    def text(self, field: GridColumn) -> str:
        shown = self.shown if self.word is None else self.word
        if not shown and self.value is not None:
            shown = " ".join(filter(None, (f"{self.value:.{field.decimals}f}", self.sign)))
        shown = shown or "n/a"
        return shown if self.mark is None else f"{shown} [{self.mark}]"


class Footnotes:
    """The footnotes of a grid, each text once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> int:
        """The number of a footnote."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def figure(
        self, value: float, good: Sequence[Record | ProbeRecord], doubts: Iterable[str] = ()
    ) -> GridCell:
        """The cell of a figure of those records, with its ``doubts`` and with what disturbed them."""
        disturbed = disturbance.summary(good)
        texts = sorted({*doubts, f"{DISTURBED_SIGN}: {disturbed}"} if disturbed else doubts)
        return GridCell(
            value=value,
            mark=self.mark("; ".join(texts)) if texts else None,
            disturbed=max((part for r in good if (part := disturbance.share(r)) is not None), default=None),
            sign=DISTURBED_SIGN if disturbed else "",
        )

    def without_figure(self, status: Status, reason: str | None) -> GridCell:
        """The cell of something that was not measured."""
        return GridCell(word=status.upper(), mark=self.mark(reason or "no reason was kept"))


class GridRow(msgspec.Struct, frozen=True, kw_only=True):
    """One path, or one published set-up; it has as many ``labels`` as the grid."""

    labels: tuple[str, ...]
    entries: dict[str, GridCell]
    is_published: bool = False

    @property
    def disturbed(self) -> float | None:
        """The largest part that other programs took of one of its figures; None: unknown."""
        known = [entry.disturbed for entry in self.entries.values() if entry.disturbed is not None]
        return max(known, default=None)


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """``labels`` are the headings of the rows' labels. ``common`` are further ones that all rows share:
    people read once, programs in each row."""

    title: str
    view: View
    labels: tuple[str, ...]
    fields: tuple[GridColumn, ...]
    rows: tuple[GridRow, ...]
    common: dict[str, str] = {}
    footnotes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def render(grid: Grid, format: TableFormat) -> str:
    """The table as text, without a newline at its end."""
    match format:
        case TableFormat.JSON:
            return _json(grid)
        case TableFormat.CSV:
            return _csv(grid)
        case _:
            return _for_people(grid, format)


NOTHING = GridCell()


def _for_people(grid: Grid, format: TableFormat) -> str:
    fields = [
        field
        for field in grid.fields
        if not field.is_probed or any(field.key in row.entries for row in grid.rows)
    ]
    lines: list[Sequence[str] | None] = [
        [*row.labels, *(row.entries.get(field.key, NOTHING).text(field) for field in fields)]
        for row in grid.rows
    ]
    published = [row.is_published for row in grid.rows]
    if True in published and not published[0]:
        lines.insert(published.index(True), None)
    same = "; ".join(f"{label.lower()} {text}" for label, text in grid.common.items())
    return laid_out(
        format,
        grid.title,
        [*([label] for label in grid.labels), *(field.heading.split("|") for field in fields)],
        lines,
        (
            *(f"[{n}] {note}" for n, note in enumerate(grid.footnotes, 1)),
            *([f"All rows: {same}."] if same else []),
            *grid.notes,
        ),
        lefts=range(len(grid.labels)),
    )


def _csv(grid: Grid) -> str:
    keys = (field.key for field in grid.fields)
    lines = [[*(label.lower() for label in (*grid.labels, *grid.common)), *keys, "disturbed"]]
    for row in grid.rows:
        entries = [row.entries.get(field.key, NOTHING) for field in grid.fields]
        # A figure below 0 is none that a spreadsheet would take for a formula.
        values = [
            for_csv(entry.word) if entry.word else "" if entry.value is None else repr(entry.value)
            for entry in entries
        ]
        disturbed = "" if row.disturbed is None else repr(row.disturbed)
        lines.append([*map(for_csv, (*row.labels, *grid.common.values())), *values, disturbed])
    return in_csv(lines)


def _json(grid: Grid) -> str:
    document: PrintedView = {
        "view": grid.view,
        "title": grid.title,
        "rows": [_row_as_data(grid, row) for row in grid.rows],
        "footnotes": list(grid.footnotes),
        "notes": list(grid.notes),
    }
    return as_json(document)


def _row_as_data(grid: Grid, row: GridRow) -> PrintedRow:
    names = dict(zip(grid.labels, row.labels, strict=True)) | grid.common
    found = {
        **{name.lower(): text for name, text in names.items()},
        "published": row.is_published,
        "disturbed": row.disturbed,
        "values": {
            field.key: entry.word if entry.word is not None else entry.value
            for field in grid.fields
            if (entry := row.entries.get(field.key)) is not None
        },
    }
    return cast(PrintedRow, found)
