"""What a user can choose for a table, and the table itself as data."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Mapping

import msgspec

from harness.analysis.stats import Difference
from harness.model import Ciphers, Clock, Column, Family, LabKernel, Record, Status
from harness.model.errors import UsageError
from harness.model.escape import printable
from harness.parse.references import Reference

_ALSO = {"github": ("markdown", "md")}
"""Other words for choices, lower case."""


class Choice(enum.StrEnum):
    """Words that a user may type, in upper or lower case."""

    @classmethod
    def _missing_(cls, value: object) -> Choice:
        named = {choice.casefold(): choice for choice in cls} | {
            word: choice for choice in cls for word in _ALSO.get(choice, ())
        }
        typed = str(value).casefold()
        if typed in named:
            return named[typed]
        close = difflib.get_close_matches(typed, named, n=1)
        meant = f"did you mean {named[close[0]]}? " if close else ""
        raise UsageError(
            f"'{printable(str(value))}' is no {cls.__doc__}",
            hint=f"{meant}one of: {', '.join(map(str, cls))}",
        )


class Metric(Choice):
    """metric"""

    MB_S = "MB/s"
    MIB_S = "MiB/s"
    IOPS = "IOPS"
    MEAN = "mean"
    P50 = "p50"
    P99 = "p99"
    P99_9 = "p99.9"

    @property
    def is_latency(self) -> bool:
        return self is Metric.MEAN or self.is_percentile

    @property
    def is_percentile(self) -> bool:
        return self in (Metric.P50, Metric.P99, Metric.P99_9)

    @property
    def unit(self) -> str:
        return "µs" if self.is_latency else self.value

    @property
    def meaning(self) -> str:
        match self:
            case Metric.MB_S:
                return "MB/s (10^6 bytes per second)"
            case Metric.MIB_S:
                return "MiB/s (2^20 bytes per second)"
            case Metric.IOPS:
                return "IOPS"
            case Metric.MEAN:
                return "mean latency in µs"
            case _:
                return f"{self.value} latency in µs"


class Ratio(Choice):
    """ratio"""

    NONE = "none"
    LOCAL = "local"
    IPSEC = "ipsec"

    @property
    def baseline(self) -> str:
        return "local" if self is Ratio.LOCAL else "the same link without IPsec"


class TableFormat(Choice):
    """format"""

    PLAIN = "plain"
    GITHUB = "github"
    HTML = "html"
    CSV = "csv"
    LATEX = "latex"
    JSON = "json"


Block = tuple[str, int]
"""One repeat of every cell, measured close in time: the run's id and the number of the repeat."""


class Direction(enum.StrEnum):
    """The direction that a row shows. BOTH is the sum of a mixed workload's reads and writes."""

    READ = "read"
    WRITE = "write"
    BOTH = "read+write"
    SYNC = "fsync"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """``ratio`` is shown beside each value; ``reference`` adds its columns after the measured ones."""

    metric: Metric = Metric.MB_S
    ratio: Ratio = Ratio.NONE
    reference: Reference | None = None


class Setting(msgspec.Struct, frozen=True, order=True):
    """Where figures come from. Figures of two settings never share a column.

    ``kernel`` is "own" for the lab's own, with the release of one that was named, else empty. ``disk`` is the
    name of a modelled disk, or empty. ``ciphers`` is "portable" if the processor's instructions were not
    used, else empty.
    """

    source: str
    testbed: str
    clock: str
    kernel: str = ""
    disk: str = ""
    ciphers: str = ""

    @classmethod
    def of(cls, record: Record) -> Setting:
        return cls(
            source=record.source,
            testbed=str(record.testbed),
            clock=str(record.clock),
            kernel=f"{LabKernel.OWN} {record.other_kernel}".strip()
            if record.lab_kernel is LabKernel.OWN
            else "",
            disk=record.disk,
            ciphers=str(Ciphers.PORTABLE) if record.ciphers is Ciphers.PORTABLE else "",
        )

    @property
    def is_plain(self) -> bool:
        """Measured in real time, on Debian's or the machine's kernel, without a modelled disk."""
        return self.clock == Clock.REAL and not self.kernel and not self.disk


class TableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A measured column, or one of the reference if ``setting`` is None.

    ``heading`` is origin, title, remark and protection; each may be empty. ``label`` names the column in one
    word, behind its origin. ``is_memory``: behind it is a ramdisk, and no disk nor the model of one.
    """

    setting: Setting | None
    link: str
    protection: tuple[str, ...]
    transport: str | None
    ipsec_mode: str | None
    initiators: int = 1
    ip: Family | None = None
    is_unencrypted: bool = False
    is_memory: bool = False
    label: str
    heading: tuple[str, str, str, str]

    @property
    def name(self) -> str:
        """``wired+aes128gcm16``: as users type it, the same everywhere; empty for one of the reference."""
        return self.label.removeprefix(self.heading[0]).strip() if self.setting is not None else ""

    @property
    def headed(self) -> tuple[str, str, str, str, str]:
        """What stands above the column: its origin, its name, and that in words."""
        origin, title, remarks, protection = self.heading
        # A link without a title of its own is called by its name.
        if self.name and title.casefold() == self.link.casefold():
            title = ""
        return origin, self.name, title, remarks, protection

    @property
    def column(self) -> Column:
        return Column(self.link, self.protection, self.transport, self.initiators)

    @property
    def encrypted(self) -> bool | None:
        """None without protection."""
        return None if not self.protection else not self.is_unencrypted


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """``group`` and ``operation`` are the document's words for its eight workloads; only CSV still has
    them."""

    workload: str
    direction: Direction | None
    group: str
    operation: str

    @property
    def name(self) -> str:
        """The workload, with the direction if a workload has a row for each, or both added up."""
        direction = f"({self.direction})"
        return f"{self.workload} {direction}" if self.operation.endswith(direction) else self.workload


class TableCell(msgspec.Struct, frozen=True, kw_only=True):
    """``value`` is the median of the ``n`` samples that count, out of ``repeats``; None if none counts.

    ``low`` and ``high`` are as in ``stats.Summary``; ``spread`` is a part of the value. Ratios are medians of
    the ratios within blocks (the same repeat of the same run), and ``difference_from_no_ipsec`` is what
    ``stats.difference`` says about them. ``within_blocks`` are these ratios: to the same link without
    protection or, in a column without any, to the local disk. ``proof`` adds up ``Proof`` over the repeats
    behind the value, or over all repeats if there is no value. ``disturbed`` is the largest part that other
    programs took of one of the repeats behind the value (None: unknown). ``is_disturbed``: that is too much
    for the value to be used, and ``cause`` says who took it. Instead of a ratio, such a cell has ``bounds``:
    between which two it would be undisturbed. ``is_labs_own``: the lab limits it, and not the link that it
    imitates, as ``explain`` says. ``mark`` is the number of the cell's footnote.
    """

    status: Status
    n: int
    repeats: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    spread: float | None = None
    ratio_to_local: float | None = None
    ratio_to_no_ipsec: float | None = None
    difference_from_no_ipsec: Difference | None = None
    within_blocks: Mapping[Block, float] = {}
    bounds_to_local: tuple[float, float] | None = None
    bounds_to_no_ipsec: tuple[float, float] | None = None
    proof: dict[str, int | None] | None = None
    disturbed: float | None = None
    is_disturbed: bool = False
    cause: str = ""
    is_labs_own: bool = False
    runs: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    mark: int | None = None

    def ratio(self, to: Ratio) -> float | None:
        match to:
            case Ratio.NONE:
                return None
            case Ratio.LOCAL:
                return self.ratio_to_local
            case Ratio.IPSEC:
                return self.ratio_to_no_ipsec


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
    title: str
    marks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    footnotes: tuple[str, ...] = ()
