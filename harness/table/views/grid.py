"""A small table as data, and as text in the formats of ``harness table``. Each escapes the names in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import msgspec
from tabulate import SEPARATING_LINE, tabulate

from harness.model import Status
from harness.model.escape import as_json, for_csv, for_html, for_latex, for_markdown, printable
from harness.table import TableFormat

Escape = Callable[[str], str]


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A column. Its ``key`` is for programs and reference data, and includes the unit. With ``is_probed``
    people see it only if some row has something there."""

    key: str
    heading: str
    decimals: int = 2
    is_probed: bool = False


class Entry(msgspec.Struct, frozen=True, kw_only=True):
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

    def text(self, field: Field) -> str:
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

    def without_figure(self, status: Status, reason: str | None) -> Entry:
        """The cell of something that was not measured."""
        return Entry(word=status.upper(), mark=self.mark(reason or "no reason was kept"))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One path, or one published set-up; it has as many ``labels`` as the grid."""

    labels: tuple[str, ...]
    entries: dict[str, Entry]
    is_published: bool = False

    @property
    def disturbed(self) -> float | None:
        """The largest part that other programs took of one of its figures; None: unknown."""
        known = [entry.disturbed for entry in self.entries.values() if entry.disturbed is not None]
        return max(known, default=None)


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """``labels`` are the headings of the rows' labels. ``common`` are further ones that all rows share:
    people are told once, programs in each row."""

    title: str
    view: str
    labels: tuple[str, ...]
    fields: tuple[Field, ...]
    rows: tuple[Row, ...]
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
        case TableFormat.PLAIN:
            return _tabulated(grid, "simple", printable)
        case TableFormat.GITHUB:
            return _tabulated(grid, "github", for_markdown)
        case TableFormat.HTML:
            return _tabulated(grid, "unsafehtml", for_html)
        case TableFormat.LATEX:
            return _tabulated(grid, "latex_raw", for_latex)


NOTHING = Entry()


def _fields(grid: Grid) -> list[Field]:
    """The columns that people see."""
    return [
        field
        for field in grid.fields
        if not field.is_probed or any(field.key in row.entries for row in grid.rows)
    ]


def _lines(grid: Grid) -> list[list[str]]:
    return [
        [*row.labels, *(row.entries.get(field.key, NOTHING).text(field) for field in _fields(grid))]
        for row in grid.rows
    ]


def _tabulated(grid: Grid, style: str, escape: Escape) -> str:
    lines: list[Any] = [[escape(text) for text in line] for line in _lines(grid)]
    published = [row.is_published for row in grid.rows]
    if style == "simple" and True in published and not published[0]:
        lines.insert(published.index(True), SEPARATING_LINE)
    # A heading has several lines only where the format allows it.
    glue = "\n" if style == "simple" else " "
    headings = [
        *map(escape, grid.labels),
        *(glue.join(escape(part) for part in field.heading.split("|")) for field in _fields(grid)),
    ]
    text = tabulate(
        lines,
        headers=headings,
        tablefmt=style,
        disable_numparse=True,
        colalign=["left"] * len(grid.labels) + ["right"] * len(_fields(grid)),
    )
    same = "; ".join(f"{label.lower()} {text}" for label, text in grid.common.items())
    below = [
        *(f"[{n}] {note}" for n, note in enumerate(grid.footnotes, 1)),
        *([f"All rows: {same}."] if same else []),
        *grid.notes,
    ]
    paragraph = {"unsafehtml": "<p>{}</p>", "latex_raw": "{}\\\\"}.get(style, "{}")
    parts = [paragraph.format(escape(grid.title)), "", text, ""]
    separator = "\n\n" if style == "github" else "\n"
    parts.append(separator.join(paragraph.format(escape(note)) for note in below))
    return "\n".join(line.rstrip() for line in "\n".join(parts).split("\n")).rstrip()


def _csv(grid: Grid) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = (field.key for field in grid.fields)
    labels = (*grid.labels, *grid.common)
    writer.writerow([*(label.lower() for label in labels), *keys, "disturbed"])
    for row in grid.rows:
        entries = [row.entries.get(field.key, NOTHING) for field in grid.fields]
        # A figure below 0 is none that a spreadsheet would take for a formula.
        values = [
            for_csv(entry.word) if entry.word else "" if entry.value is None else repr(entry.value)
            for entry in entries
        ]
        disturbed = "" if row.disturbed is None else repr(row.disturbed)
        writer.writerow([*map(for_csv, (*row.labels, *grid.common.values())), *values, disturbed])
    return out.getvalue().rstrip("\n")


def _json(grid: Grid) -> str:
    return as_json(
        {
            "view": grid.view,
            "title": grid.title,
            "rows": [
                {
                    **{name.lower(): text for name, text in zip(grid.labels, row.labels, strict=True)},
                    **{name.lower(): text for name, text in grid.common.items()},
                    "published": row.is_published,
                    "disturbed": row.disturbed,
                    "values": {
                        field.key: entry.word if entry.word is not None else entry.value
                        for field in grid.fields
                        if (entry := row.entries.get(field.key)) is not None
                    },
                }
                for row in grid.rows
            ],
            "footnotes": list(grid.footnotes),
            "notes": list(grid.notes),
        }
    )
