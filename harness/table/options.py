"""What a user can choose for a table, and the table itself as data."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from harness.analysis.duet import Pair, Side
from harness.analysis.stats import Difference
from harness.model import Column, Setting, Status
from harness.model.choices import Choice
from harness.parse.references import Reference
from harness.results.columns import ColumnKey, TableRow
from harness.results.metrics import Metric


class RatioTo(Choice):
    """ratio"""

    NONE = "none"
    LOCAL = "local"
    UNPROTECTED = "unprotected"

    @property
    def baseline(self) -> str:
        return "local" if self is RatioTo.LOCAL else "the same link unprotected"


class TableFormat(Choice):
    """format"""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    CSV = "csv"
    LATEX = "latex"
    JSON = "json"


Round = tuple[str, int]
"""One repeat of every cell, measured close in time: the run's id and the number of the repeat."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """``ratio`` is shown next to each value; ``reference`` adds its columns after the measured ones."""

    metric: Metric = Metric.MB_S
    ratio: RatioTo = RatioTo.NONE
    reference: Reference | None = None


class TableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A measured column, or one of the reference if ``key`` is None.

    ``heading`` is origin, title, remark and protection; each may be empty. ``rate`` is that of its link,
    which is in the title; empty if it is not known. ``label`` names the column in one word, behind its
    origin. ``is_memory``: behind it is a ramdisk, and no disk nor the model of one.
    """

    key: ColumnKey | None
    column: Column
    is_memory: bool = False
    label: str
    heading: tuple[str, str, str, str]
    rate: str = ""

    @property
    def setting(self) -> Setting | None:
        return self.key.setting if self.key is not None else None

    @property
    def name(self) -> str:
        """``wired+aes128gcm16``: as users type it, the same everywhere; empty for one of the reference."""
        return self.label.removeprefix(self.heading[0]).strip() if self.key is not None else ""

    @property
    def headed(self) -> tuple[str, str, str, str, str]:
        """What stands above the column: its origin, its name, and that in words."""
        origin, title, remarks, protection = self.heading
        # A link without a title of its own is called by its name.
        if (
            self.name
            and title.casefold().removesuffix(f" {self.rate}".casefold()) == self.column.link.casefold()
        ):
            title = self.rate
        return origin, self.name, title, remarks, protection


class TableCell(msgspec.Struct, frozen=True, kw_only=True):
    """What ``printed.PrintedCell`` describes, and what only other views show.

    ``low`` and ``high`` are as in ``stats.Summary``, None of one sample; ``spread`` is a part of the value.
    Ratios are medians of the ratios within rounds, and ``difference_from_unprotected`` is what
    ``stats.difference`` says about them. ``within_rounds`` are these ratios: to the same link without
    protection or, in a column without any, to the local disk. ``rounds`` are the values behind the cell's,
    each with the most that it would be undisturbed. ``cause`` says who disturbed it; instead of a ratio it
    then has ``bounds``, between which two that of ``within_rounds`` would be undisturbed. ``samples`` are all
    that are ok, disturbed or not, and ``pairs`` those of both in each round. ``mark`` is the number of the
    cell's footnote.
    """

    status: Status
    n: int
    repeats: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    spread: float | None = None
    ratio_to_local: float | None = None
    ratio_to_unprotected: float | None = None
    difference_from_unprotected: Difference | None = None
    rounds: Mapping[Round, tuple[float, float]] = {}
    within_rounds: Mapping[Round, float] = {}
    bounds: tuple[float, float] | None = None
    samples: Mapping[Round, Side] = {}
    pairs: tuple[Pair, ...] = ()
    proof: dict[str, int | None] | None = None
    disturbed: float | None = None
    is_disturbed: bool = False
    cause: str = ""
    is_lab_limited: bool = False
    runs: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    mark: int | None = None

    def ratio(self, to: RatioTo) -> float | None:
        return {RatioTo.LOCAL: self.ratio_to_local, RatioTo.UNPROTECTED: self.ratio_to_unprotected}.get(to)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The matrix; ``cells[row][column]`` is None where nothing was measured.

    ``title`` stands above it; below it stand the ``footnotes``, numbered from 1, what each sign in its cells
    means (``marks``, of those that occur), and then the ``notes``.
    All text is unescaped: renderers escape it.
    """

    options: Options
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    cells: tuple[tuple[TableCell | None, ...], ...]
    title: str = ""
    marks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    footnotes: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """That of the cells' values: ``MB/s``, ``µs``."""
        return self.options.metric.figure.unit
