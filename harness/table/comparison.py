"""Two sets of results, cell by cell: is B faster or slower than A, and how sure is that?

Pure functions: records in, verdicts out. Cells are matched by setting, column and workload;
``harness.analysis.ratios`` does the statistics.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import structs

from harness.analysis import disturbance, stats
from harness.analysis.ratios import (
    BETWEEN_RUNS,
    BETWEEN_RUNS_OF_MEMORY,
    FEWEST,
    LEVEL,
    MEMORY_BYTES_S,
    Judgement,
    Ratio,
    judge,
    ratio_of,
    repeats_needed,
)
from harness.analysis.schedule import throughput_bytes_s
from harness.model import FIO_SOURCE, Column, Record
from harness.model.choices import Choice
from harness.model.errors import UsageError
from harness.model.escape import as_json, for_markdown, printable
from harness.model.lines import capital, counted, listed
from harness.model.units import as_part
from harness.results.columns import ColumnKey, TableRow, by_column, in_order, rows_of
from harness.results.measured import Measured
from harness.results.metrics import Metric, in_direction, reader
from harness.table import notes
from harness.table.options import TableFormat
from harness.table.printed import PrintedComparedCell, PrintedComparison
from harness.table.text import laid_out, note_lines, number

MOST = 4
"""So many cells that differ are named above the table."""

MARGIN = 0.05
"""By default, smaller differences than this do not matter."""


TALLIED = (Judgement.SLOWER, Judgement.FASTER, Judgement.EQUIVALENT, Judgement.INCONCLUSIVE)
"""The order in which the cells of each verdict are counted above the table."""


class CompareFormat(Choice):
    """format"""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


class ComparedCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell on both sides: medians in the metric's unit, the ratio B/A, and the verdict.

    ``p`` is adjusted for all cells of the comparison. ``reason`` says why the verdict is inconclusive. If a
    side has no sample, ``ratio`` is None; ``is_disturbed`` says whether disturbance is the cause.
    """

    key: ColumnKey
    row: TableRow
    n_a: int
    n_b: int
    a: float | None
    b: float | None
    ratio: Ratio | None
    p: float | None
    verdict: Judgement
    reason: str | None = None
    is_disturbed: bool = False

    @property
    def name(self) -> str:
        return f"{self.key.label} {self.row.name}"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All cells that both sides have, in the table's order, and notes about them.

    ``missing`` is what kept cells from being judged, and what to do; it is printed below how many have each
    verdict, and above the table. Empty: all were.
    """

    metric: Metric
    margin: float
    a: tuple[str, ...]
    b: tuple[str, ...]
    cells: tuple[ComparedCell, ...]
    notes: tuple[str, ...]
    missing: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Judgement, int]:
        """How many cells have each verdict."""
        found = Counter(cell.verdict for cell in self.cells)
        return {verdict: found[verdict] for verdict in TALLIED}

    @property
    def tally(self) -> str:
        """As text: ``4 slower, 0 faster, 31 equivalent, 5 inconclusive``. ``counts`` has the numbers."""
        return ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())

    @property
    def is_judged(self) -> bool:
        """Whether there is a verdict on any cell."""
        return any(cell.verdict is not Judgement.INCONCLUSIVE for cell in self.cells)

    def slower_by(self, part: float | str) -> list[ComparedCell]:
        """The cells with the verdict slower whose B/A itself is at least ``part`` (0.05 or 5%) worse than 1;
        their interval may reach closer to 1. Empty also if no cell was judged: see ``is_judged``.

        UsageError for another part.
        """
        part = as_part(part)
        higher = self.metric.figure.higher_is_better
        return [
            cell
            for cell in self.cells
            if cell.verdict is Judgement.SLOWER
            and cell.ratio is not None
            and (cell.ratio.ratio <= 1 - part if higher else cell.ratio.ratio >= 1 + part)
        ]

    @property
    def disturbed(self) -> list[ComparedCell]:
        """The cells without a verdict because all repeats of a side were disturbed."""
        return [cell for cell in self.cells if cell.is_disturbed]


def compare(a: Measured, b: Measured, metric: Metric = Metric.MB_S, margin: float = MARGIN) -> Comparison:
    """B against A. UsageError if they have no cell in common, or are the same results.

    ``margin`` is a part: cells whose interval is within it of 1 are equivalent. Faster and slower do not
    need it.
    """
    for name, side in (("A", a), ("B", b)):
        if not side.records:
            raise UsageError(f"{name} has no cells to compare", hint="measure some with harness run")
    # What `harness share` made of a run has its figures, and not all of its words.
    figures = {(record.run_id, record.fio_ns, record.read, record.write) for record in a.records}
    for record in b.records:
        if (record.run_id, record.fio_ns, record.read, record.write) in figures:
            raise UsageError(
                f"expected two different sets of results, found run {printable(record.run_id)} in both",
                hint="name two runs, such as results/RUN-1 results/RUN-2",
            )
    columns_a, columns_b = map(by_column, _as_one(_columns_of(a, b), _columns_of(b, a)))
    plans = [*a.plans.values(), *b.plans.values()]
    rows = rows_of([*a.records, *b.records], metric, plans)
    keys = in_order([key for key in columns_a if key in columns_b], plans)
    in_a, in_b = _with_direction(columns_a, rows), _with_direction(columns_b, rows)
    cells = [
        _cell(key, row, in_a[key, row], in_b[key, row], metric)
        for key in keys
        for row in rows
        if (key, row) in in_a and (key, row) in in_b
    ]
    if not cells:
        raise UsageError(
            f"A and B have no cell in common: A is {_described(columns_a)}, B is {_described(columns_b)}",
            hint="compare runs of the same links, proposals and workloads in one testbed",
        )
    compared = [cell.ratio for cell in cells if cell.ratio is not None]
    judged = iter(judge(compared, margin=margin, higher_is_better=metric.figure.higher_is_better))
    for index, cell in enumerate(cells):
        if cell.ratio is not None:
            verdict, p = next(judged)
            reason = _why_open(cell.ratio, margin) if verdict is Judgement.INCONCLUSIVE else None
            cells[index] = structs.replace(cell, verdict=verdict, p=p, reason=reason)
    return Comparison(
        metric=metric,
        margin=margin,
        a=tuple(a.runs),
        b=tuple(b.runs),
        cells=tuple(cells),
        notes=tuple(_notes(a, b, cells, metric, margin, _alone(in_a, in_b))),
        missing=tuple(_missing(cells, margin)),
    )


def _columns_of(side: Measured, other: Measured) -> Sequence[Record]:
    """The records of a side. If each side is one plain fio output, both get the same column.

    So they do if each side was measured on one of the lab's custom kernels: then the kernel is what is
    compared.
    """
    kernels = [
        {record.setting.release for record in found.records if record.setting.is_custom}
        for found in (side, other)
    ]
    if all(len(names) == 1 for names in kernels):
        return [
            structs.replace(record, setting=structs.replace(record.setting, other_kernel=None))
            for record in side.records
        ]
    files = [{record.column.link for record in found.records} for found in (side, other)]
    plain = all(record.setting.source == FIO_SOURCE for found in (side, other) for record in found.records)
    if not (plain and all(len(names) == 1 for names in files)):
        return side.records
    return [
        structs.replace(record, column=structs.replace(record.column, link="fio")) for record in side.records
    ]


def _as_one(a: Sequence[Record], b: Sequence[Record]) -> tuple[Sequence[Record], Sequence[Record]]:
    """Both sides; where one is a file on another machine's file system, and the other has one column over a
    network (without protection, or in all), with a column in common for these two."""
    of_each = []
    for records in (a, b):
        columns = {
            record.column
            for record in records
            if record.setting.is_harness and (record.column.has_path or record.column.filesystem)
        }
        of_each.append({column for column in columns if not column.protection} or columns)
    if any(len(columns) != 1 for columns in of_each):
        return a, b
    (one,), (other,) = of_each
    if one == other or not (one.filesystem or other.filesystem):
        return a, b
    common = Column(f"{other.label} against {one.label}", transport=None)
    return (
        [structs.replace(each, column=common) if each.column == one else each for each in a],
        [structs.replace(each, column=common) if each.column == other else each for each in b],
    )


def _cell(
    key: ColumnKey, row: TableRow, in_a: Sequence[Record], in_b: Sequence[Record], metric: Metric
) -> ComparedCell:
    read = reader(row.direction, metric)
    a, b = _samples(in_a, read), _samples(in_b, read)
    ratio = None
    if a and b:
        ratio = ratio_of(_values(a), _values(b), between=_between(a, b), is_tail=metric.figure.is_tail)
    without = [(name, of) for name, of, samples in (("A", in_a, a), ("B", in_b, b)) if not samples]
    return ComparedCell(
        key=key,
        row=row,
        n_a=len(a),
        n_b=len(b),
        a=stats.median(_values(a)) if a else None,
        b=stats.median(_values(b)) if b else None,
        ratio=ratio,
        p=None,
        verdict=Judgement.INCONCLUSIVE,
        reason="; ".join(f"{name}: {_why_none(records, metric)}" for name, records in without) or None,
        is_disturbed=any(disturbance.summary(records) for _, records in without),
    )


def _why_none(records: Sequence[Record], metric: Metric) -> str:
    """Why no repeat of a cell has a figure to compare."""
    said = [*notes.reasons(records), disturbance.summary(records)]
    return ", ".join(filter(None, said)) or f"no {metric} above zero"


def _why_open(ratio: Ratio, margin: float) -> str:
    """Why a cell with a ratio is inconclusive."""
    if ratio.low is None:
        return "too few repeats for an interval"
    return f"neither faster nor slower, and the interval reaches beyond {100 * margin:g} % of 1"


_Samples = list[tuple[Record, float]]


def _values(samples: _Samples) -> list[float]:
    return [value for _, value in samples]


def _samples(records: Sequence[Record], read: Callable[[Record], float | None]) -> _Samples:
    """The samples for conclusions, in the order of measurement, without disturbed ones."""
    found = [
        (record, value)
        for record in disturbance.quiet(records)
        if (value := read(record)) is not None and value > 0
    ]
    return sorted(found, key=lambda sample: (sample[0].started_unix_s, sample[0].run_id, sample[0].order))


def _between(a: _Samples, b: _Samples) -> float:
    """What runs add to the scatter of their repeats: nothing where a run repeats exactly."""
    if all(record.setting.is_virtual for record, _ in (*a, *b)):
        return 0.0
    runs = [len({record.run_id for record, _ in side}) for side in (a, b)]
    is_memory = any(throughput_bytes_s(record) > MEMORY_BYTES_S for record, _ in (*a, *b))
    each = BETWEEN_RUNS_OF_MEMORY if is_memory else BETWEEN_RUNS
    return each * math.hypot(*(1 / math.sqrt(count) for count in runs))


_Cells = Mapping[tuple[ColumnKey, TableRow], Sequence[Record]]


def _with_direction(
    columns: Mapping[ColumnKey, Mapping[str, Sequence[Record]]], rows: Sequence[TableRow]
) -> _Cells:
    """The cells of a side: a job of one name may read here, and write there."""
    cells = {
        (key, row): in_direction(of_column.get(row.workload, ()), row.direction)
        for key, of_column in columns.items()
        for row in rows
    }
    return {place: records for place, records in cells.items() if records}


def _alone(in_a: _Cells, in_b: _Cells) -> Iterable[str]:
    for name, side, other in (("A", in_a, in_b), ("B", in_b, in_a)):
        alone = [f"{key.setting.name} {key.label} {row.name}" for key, row in side if (key, row) not in other]
        if alone:
            yield f"Only in {name}, and not compared: {listed(alone)}."


def _described(cells: Mapping[ColumnKey, Mapping[str, object]]) -> str:
    settings = dict.fromkeys(key.setting.name for key in cells)
    names = [f"{key.label} {workload}" for key, workloads in cells.items() for workload in workloads]
    return printable(f"of {' and '.join(settings)} ({listed(names)})")


def _missing(cells: Sequence[ComparedCell], margin: float) -> Iterable[str]:
    """What keeps cells from being judged, and what to do about it: nothing if all of them are."""
    left = [cell for cell in cells if cell.verdict is Judgement.INCONCLUSIVE]
    if not left:
        return
    everything = len(left) == len(cells)
    yield f"{'None' if everything else 'Not all'} of {len(cells)} cells could be judged" + (
        "." if everything else f": {len(left)} inconclusive."
    )
    disturbed = [cell.name for cell in left if cell.is_disturbed]
    if disturbed:
        yield (
            f"Other programs disturbed every repeat of a side in {_counted(disturbed)}: "
            "measure again on a quiet machine."
        )
    without = [cell.name for cell in left if cell.ratio is None and not cell.is_disturbed]
    if without:
        yield f"A side has no figure in {_counted(without)}: the notes say why."
    few = [cell for cell in left if cell.ratio is not None and cell.ratio.low is None]
    if few:
        yield (
            f"Fewer than {FEWEST} usable repeats on a side cannot show a difference, in "
            f"{_counted([cell.name for cell in few])} ({_repeats(few)}): measure both sides with --repeats "
            f"{stats.REPEATS}."
        )
    wide = [cell for cell in left if cell.ratio is not None and cell.ratio.low is not None]
    if wide:
        needed = [repeats_needed(cell.ratio, margin) for cell in wide if cell.ratio is not None]
        known = [repeats for repeats in needed if repeats is not None]
        yield (
            f"The interval is too wide to tell a difference of {100 * margin:g} % from none, in "
            f"{_counted([cell.name for cell in wide])} ({_repeats(wide)}): "
            + (f"measure both sides with --repeats {max(known)}" if known else "")
            + (", or " if known and len(known) < len(wide) else "")
            + ("compare several runs a side (a folder of them)" if len(known) < len(wide) else "")
            + "."
        )


def _counted(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'cell')}: {listed(names)}"


def _repeats(cells: Sequence[ComparedCell]) -> str:
    """The numbers of repeats on both sides: ``A 3, B 2 to 3``."""
    sides = {"A": [cell.n_a for cell in cells], "B": [cell.n_b for cell in cells]}
    ends = {name: dict.fromkeys(map(str, (min(found), max(found)))) for name, found in sides.items()}
    return ", ".join(f"{name} {' to '.join(each)}" for name, each in ends.items())


def _notes(
    a: Measured,
    b: Measured,
    cells: Sequence[ComparedCell],
    metric: Metric,
    margin: float,
    alone: Iterable[str],
) -> Iterable[str]:
    ratios = [cell.ratio for cell in cells if cell.ratio is not None]
    together = f", adjusted for {len(ratios)} cells (Benjamini-Hochberg)" if len(ratios) > 1 else ""
    yield (
        f"{Judgement.FASTER}, {Judgement.SLOWER}: false alarms at most {100 * LEVEL:.0f} %{together}. "
        f"{Judgement.EQUIVALENT}: the interval lies within "
        f"{100 * margin:g} % of 1. {Judgement.INCONCLUSIVE}: neither."
    )
    if any(ratio.more for ratio in ratios):
        yield (
            f"The interval includes {BETWEEN_RUNS:.0%} of variation from run to run "
            f"({BETWEEN_RUNS_OF_MEMORY:.0%} for memory)."
        )
    cut = [cell.name for cell in cells if cell.ratio is not None and cell.ratio.warm_up]
    if cut:
        yield f"The first repeats of both sides were left out as warm-up in: {listed(cut)}."
    alike = [cell.name for cell in cells if cell.ratio is not None and cell.ratio.inflation >= 2]
    if alike:
        yield f"Successive repeats are correlated, so two or more count as one, in: {listed(alike)}."
    for name, side in (("A", a), ("B", b)):
        lost = len(side.records) - len(disturbance.quiet(side.records))
        if lost:
            of = counted(len(side.records), "measurement")
            yield f"{lost} of {of} of {name} {'does' if lost == 1 else 'do'} not count: see 'harness table'."
    kernels = [notes.kernels_of(side.plans.values()) for side in (a, b)]
    if all(kernels) and kernels[0] != kernels[1]:
        yield f"A ran on {kernels[0]}, B on {kernels[1]}."
    yield from notes.differences(
        [*a.plans.values(), *b.plans.values()], [*a.environments.values(), *b.environments.values()]
    )
    yield from notes.file_systems([*a.records, *b.records], [*a.plans.values(), *b.plans.values()])
    yield from notes.completions([*a.records, *b.records], metric)
    yield from alone
    yield from (f"{cell.name} has no ratio: {cell.reason}." for cell in cells if cell.ratio is None)


def render(found: Comparison, format: CompareFormat = CompareFormat.TEXT, width: int | None = None) -> str:
    """``found`` as text without a newline at its end; names in it are escaped.

    A plain title and plain notes are wrapped at ``width`` characters; None: not at all.
    """
    if format is CompareFormat.JSON:
        return as_json(_as_data(found))
    is_markdown = format is CompareFormat.MARKDOWN
    text = laid_out(
        TableFormat.MARKDOWN if is_markdown else TableFormat.TEXT,
        f"{found.metric.figure.meaning}: B ({listed(found.b)}) against A ({listed(found.a)})",
        [[heading] for heading in ("", "A", "B", "B/A", "95 % interval", "repeats", "verdict")],
        [_line(cell, found.metric) for cell in found.cells],
        found.notes,
        lefts=(0, 6),
        width=width,
    )
    said = (f"B against A: {found.tally}.", *_differing(found.cells), *found.missing)
    if is_markdown:
        return f"**{for_markdown(' '.join(said))}**\n\n{text}"
    above = [line for note in said for line in note_lines(printable(note), width)]
    return "\n".join((*above, "", text))


def _differing(cells: Sequence[ComparedCell]) -> Iterable[str]:
    """Which cells are slower, and which faster; nothing of one cell, whose line says it."""
    for verdict in (Judgement.SLOWER, Judgement.FASTER) if len(cells) > 1 else ():
        if names := [cell.name for cell in cells if cell.verdict is verdict]:
            yield f"{capital(verdict)}: {listed(names, MOST)}."


def _line(cell: ComparedCell, metric: Metric) -> list[str]:
    values = ["—" if value is None else number(value, metric) for value in (cell.a, cell.b)]
    counting, shown, interval = cell.ratio or cell, "—", "—"
    if ratio := cell.ratio:
        shown = f"{ratio.ratio:.3f}"
        interval = "—" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"
    return [cell.name, *values, shown, interval, f"{counting.n_a} + {counting.n_b}", cell.verdict]


def _as_data(found: Comparison) -> PrintedComparison:
    return {
        "a": {"runs": list(found.a)},
        "b": {"runs": list(found.b)},
        "metric": found.metric,
        "unit": found.metric.figure.unit,
        "margin": found.margin,
        "tally": found.counts,
        "cells": list(map(_cell_as_data, found.cells)),
        "missing": list(found.missing),
        "notes": list(found.notes),
    }


def _cell_as_data(cell: ComparedCell) -> PrintedComparedCell:
    known = {
        "workload": cell.row.workload,
        "direction": cell.row.direction,
        "setting": cell.key.setting,
        "column": cell.key.column,
        "encrypted": cell.key.is_encrypted,
        "ratio": cell.ratio and cell.ratio.ratio,
        "p": cell.ratio and cell.ratio.p,
        "p_adjusted": cell.p,
    }
    # The others are called as in the cell, or in its ratio.
    return cast(
        PrintedComparedCell,
        {
            name: known[name] if name in known else getattr(cell, name, getattr(cell.ratio, name, None))
            for name in PrintedComparedCell.__annotations__
        },
    )
