"""From records to the matrix: its columns and rows, their order, and what each cell says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import msgspec

from harness.analysis import disturbance, shape, stats
from harness.model import (
    DEFAULT_TRANSPORT,
    LINK_LOCAL,
    PROTECTION_OFF,
    TRANSPORTS,
    UNENCRYPTED,
    Column,
    Plan,
    Proof,
    Record,
    Status,
)
from harness.model.errors import UsageError
from harness.parse.references import Reference
from harness.results.columns import CellKey, ColumnKey, by_column, in_order, is_memory, origins, rows_of
from harness.results.metrics import Direction, Metric, Of, directions_of, reader
from harness.table import notes
from harness.table.options import Block, Options, Table, TableCell, TableColumn

_ADDED_UP = tuple(
    field.name
    for field in msgspec.structs.fields(Proof)
    if field.name not in ("sampling", "tcp_retransmits", "air")
)

Grid = list[list[TableCell | None]]


def build(
    records: Sequence[Record],
    options: Options | None = None,
    plans: Mapping[str, Plan] | None = None,
    environments: Mapping[str, Mapping[str, Any]] | None = None,
    labs_own: Set[CellKey] = frozenset(),
) -> Table:
    """The matrix of ``records``. UsageError if there are none, or if the reference does not have the metric.

    ``plans`` and ``environments``, by run id, add to the notes what is known of the runs. They also order the
    rows and columns that are not the document's. ``labs_own`` are the cells whose figures are to be marked as
    the lab's own.
    """
    if not records:
        raise UsageError("there are no records to make a table from", hint="measure some with 'harness run'")
    options = options or Options()
    runs = dict.fromkeys(record.run_id for record in records)
    context = notes.Context(
        records=records,
        plans=[plans[run] for run in runs if plans and run in plans],
        environments=[environments[run] for run in runs if environments and run in environments],
    )
    samples = by_column(records)
    keys = in_order(samples, context.plans)
    columns = _headed(keys, samples, context.plans)
    rows = rows_of(records, options.metric, context.plans)
    is_rate = options.metric.figure.of is Of.TRANSFER
    grid: Grid = []
    for row in rows:
        read = reader(row.direction, options.metric)
        found = [_measured(_in_direction(samples[key].get(row.workload, ()), row.direction)) for key in keys]
        values = [_by_block(records, read) for records in found]
        line = [_cell(*cell, options.metric) for cell in zip(found, values, strict=True)]
        spans: list[_Spans] = [{} for _ in keys]
        if is_rate and any(cell is not None and cell.is_disturbed for cell in line):
            spans = [_spans(records, read) for records in found]
        for place, (key, cell) in enumerate(zip(keys, line, strict=True)):
            if cell is not None and CellKey(key, row.workload) in labs_own:
                line[place] = msgspec.structs.replace(cell, is_labs_own=True)
        grid.append(_with_ratios(keys, line, _undisturbed(line, values), spans))
    table = Table(options=options, columns=tuple(columns), rows=tuple(rows), cells=tuple(map(tuple, grid)))
    table = notes.marked(table)
    table = msgspec.structs.replace(
        table, title=notes.title(table), marks=notes.marks(table), notes=notes.legend(context, table)
    )
    return table if options.reference is None else with_reference(table, options.reference)


def _headed(
    keys: Sequence[ColumnKey],
    samples: Mapping[ColumnKey, Mapping[str, Sequence[Record]]],
    plans: Sequence[Plan],
) -> list[TableColumn]:
    told = origins(keys)
    titles = {}
    emulated = {}
    memory = {}
    for key in keys:
        column = key.column
        of_key = [record for cell in samples[key].values() for record in cell]
        title = next((record.link_title for record in of_key if record.link_title), "")
        runs = {record.run_id for record in of_key}
        memory[key] = is_memory(key, [plan for plan in plans if plan.run_id in runs])
        if memory[key] and column.is_local:
            title = title.replace("disk", "memory")
        titles[key] = title or ("Local" if column.is_local else column.link)
        emulated[key] = any(record.emulated for record in of_key)
    columns = []
    for key in keys:
        column, title = key.column, titles[key]
        if any(titles[other] == title and other.column.link != column.link for other in keys):
            title = f"{title} ({column.link})"
        protection = column.title
        if key.is_unencrypted:
            protection = f"{UNENCRYPTED} {'+'.join(column.protection)}"
        elif not column.protection and not column.is_local and key.setting.is_harness:
            protection = f"IPsec {PROTECTION_OFF}"
        origin = told[key.setting]
        remarks = ["emulated"] if emulated[key] else []
        remarks += [f"{column.initiators} initiators"] if column.initiators > 1 else []
        if column.protection and key.setting.ciphers and not origin:
            remarks.append(f"{key.setting.ciphers} ciphers")
        if column.transport not in (None, DEFAULT_TRANSPORT):
            remarks.append(TRANSPORTS.get(column.transport, column.transport))
        columns.append(
            TableColumn(
                key=key,
                column=column,
                is_memory=memory[key],
                label=f"{origin} {key.label}".strip(),
                heading=(origin, title, ", ".join(remarks), f"{protection} {key.mode}".rstrip()),
            )
        )
    return columns


def _in_direction(records: Sequence[Record], direction: Direction | None) -> Sequence[Record]:
    """Without those that have figures of other directions alone: a job of one name may read here, and write
    there."""
    if direction in (None, Direction.BOTH):
        return records
    return [record for record in records if not (found := directions_of(record)) or direction in found]


def _measured(records: Iterable[Record]) -> list[Record]:
    """The records in the order in which they were measured."""
    return sorted(records, key=lambda record: (record.started_unix_s, record.run_id, record.order))


_Blocks = Mapping[Block, float]
"""Values that count, by block."""


_Spans = Mapping[Block, tuple[float, float]]
"""By the same keys, between which two values each would be undisturbed."""


def _by_block(records: Iterable[Record], read: Callable[[Record], float | None]) -> _Blocks:
    return {
        (record.run_id, record.repeat): value
        for record in disturbance.counting(records)
        if (value := read(record)) is not None
    }


def _cell(records: Sequence[Record], blocks: _Blocks, metric: Metric) -> TableCell | None:
    if not records:
        return None
    good = disturbance.counting(records)
    values = list(blocks.values())
    reasons = notes.reasons(records)
    if len(values) < len(good):
        reasons += (notes.lacking(metric, good, len(good) - len(values), len(records)),)
    counted = good or records
    summary = stats.summarise(values) if values else None
    worst = disturbance.most_disturbed(good)
    known = [part for record in good if (part := disturbance.share(record)) is not None]
    is_disturbed = worst is not None and disturbance.is_disturbed(worst)
    return TableCell(
        status=Status.OK if good else notes.gravest(records),
        n=len(values),
        repeats=len(records),
        value=summary.median if summary else None,
        low=summary.low if summary else None,
        high=summary.high if summary else None,
        spread=summary.spread if summary and summary.n > 1 else None,
        proof=_added_up([proof for record in counted for proof in _proofs(record)]),
        disturbed=max(known, default=None),
        is_disturbed=is_disturbed,
        cause=disturbance.cause(worst) if worst is not None and is_disturbed else "",
        runs=tuple(dict.fromkeys(record.run_id for record in records)),
        reasons=reasons,
        warnings=(
            *dict.fromkeys(warning for record in records for warning in record.warnings),
            *shape.doubts(values),
        ),
    )


def _proofs(record: Record) -> list[Proof]:
    """The record's own proof, or those of its clients."""
    return [proof for proof in (record.proof, *(c.proof for c in record.clients)) if proof is not None]


def _added_up(proofs: Sequence[Proof]) -> dict[str, int | None] | None:
    if not proofs:
        return None
    total: dict[str, int | None] = {name: sum(getattr(proof, name) for proof in proofs) for name in _ADDED_UP}
    retransmits = [proof.tcp_retransmits for proof in proofs if proof.tcp_retransmits is not None]
    total["tcp_retransmits"] = sum(retransmits) if len(retransmits) == len(proofs) else None
    samplings = {proof.sampling for proof in proofs}
    total["sampling"] = samplings.pop() if len(samplings) == 1 else None
    return total


def _spans(records: Iterable[Record], read: Callable[[Record], float | None]) -> _Spans:
    return {
        (record.run_id, record.repeat): disturbance.undisturbed(value, record)
        for record in disturbance.counting(records)
        if (value := read(record)) is not None
    }


def _with_ratios(
    keys: Sequence[ColumnKey],
    line: Sequence[TableCell | None],
    blocks: Sequence[_Blocks],
    spans: Sequence[_Spans],
) -> list[TableCell | None]:
    baselines = {
        (key.setting, key.column): pair
        for key, pair in zip(keys, zip(blocks, spans, strict=True), strict=True)
        if not key.column.protection
    }
    nothing: tuple[_Blocks, _Spans] = {}, {}

    def related(key: ColumnKey, cell: TableCell | None, values: _Blocks, span: _Spans) -> TableCell | None:
        if cell is None or cell.value is None:
            return cell
        column, here = key.column, Column(LINK_LOCAL)
        local, local_span = nothing if column.is_local else baselines.get((key.setting, here), nothing)
        bare, bare_span = baselines.get((key.setting, column.bare), nothing) if column.protection else nothing
        to_local, to_bare = _ratio(values, local), _ratio(values, bare)
        return msgspec.structs.replace(
            cell,
            ratio_to_local=to_local,
            ratio_to_no_ipsec=to_bare,
            difference_from_no_ipsec=stats.difference(list(_ratios(values, bare).values())),
            within_blocks=_ratios(values, bare if column.protection else local),
            bounds_to_local=_bounds(span, local_span) if to_local is None else None,
            bounds_to_no_ipsec=_bounds(span, bare_span) if to_bare is None else None,
        )

    return list(itertools.starmap(related, zip(keys, line, blocks, spans, strict=True)))


def _undisturbed(line: Sequence[TableCell | None], blocks: Sequence[_Blocks]) -> list[_Blocks]:
    """The values that may be used for ratios."""
    return [
        {} if cell is not None and cell.is_disturbed else values
        for cell, values in zip(line, blocks, strict=True)
    ]


def _ratios(values: _Blocks, baseline: _Blocks) -> dict[Block, float]:
    """The ratio within each block in which both were measured; a value of zero has none."""
    return {
        block: value / baseline[block] for block, value in values.items() if value and baseline.get(block)
    }


def _ratio(values: _Blocks, baseline: _Blocks) -> float | None:
    """The median ratio within blocks. What the machine does to all cells of a block cannot change it.

    Without a common block, because repeats are missing or belong to other runs, the ratio of the medians.
    """
    within = _ratios(values, baseline)
    if within:
        return stats.median(list(within.values()))
    base = stats.median(list(baseline.values())) if baseline else 0.0
    return stats.median(list(values.values())) / base if values and base else None


def _bounds(span: _Spans, baseline: _Spans) -> tuple[float, float] | None:
    """Between which two the ratio would be undisturbed; None if nothing bounds it, or without a common block.

    In each block the least of one goes with the most of the other. The medians of that over the blocks, so
    that a block that was disturbed much does not widen them.
    """
    common = [block for block, (_, most) in span.items() if most and baseline.get(block, (0.0, 0.0))[0]]
    if not common:
        return None
    low = stats.median([span[block][0] / baseline[block][1] for block in common])
    high = stats.median([span[block][1] / baseline[block][0] for block in common])
    return (low, high) if low and math.isfinite(high) else None


def with_reference(table: Table, reference: Reference) -> Table:
    """The table with what was published, in its metric's unit; only a rate in bytes is converted."""
    metric = table.options.metric
    if metric not in (Metric.MB_S, Metric.MIB_S):
        raise UsageError(
            f"{reference.title} publishes {reference.unit} and has no {metric.figure.meaning}",
            hint="leave out --reference or take --metric MB/s",
        )
    unit = 1.0 if metric is Metric.MB_S else 2**20 / 1e6
    columns = list(table.columns)
    for published in reference.columns:
        column = Column(published.link, published.protection)
        protection = "" if published.link == LINK_LOCAL else f"IPsec {published.ipsec}"
        protection = "IPsec" if published.ipsec == "on" else protection
        columns.append(
            TableColumn(
                key=None,
                column=column,
                label=f"{reference.name} {column.label}",
                heading=(f"{reference.title}:", published.title, "", protection),
            )
        )
    nothing: tuple[None, ...] = (None,) * len(reference.columns)
    cells = tuple(
        (
            *line,
            *(
                value if value is None else TableCell(status=Status.OK, n=1, repeats=1, value=value / unit)
                for value in reference.rows.get(row.workload, nothing)
            ),
        )
        for row, line in zip(table.rows, table.cells, strict=True)
    )
    return msgspec.structs.replace(table, columns=tuple(columns), cells=cells)
