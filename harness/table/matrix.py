"""From records to the matrix: its columns and rows, their order, and what each cell says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import msgspec

from harness.analysis import disturbance, duet, shape, stats
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
from harness.model.telemetry import CPU_SATURATED
from harness.model.units import format_rate
from harness.parse.references import Reference
from harness.results.columns import (
    CellKey,
    ColumnKey,
    by_column,
    in_order,
    is_memory,
    origins,
    rate_bit_s,
    rows_of,
)
from harness.results.metrics import Metric, Of, in_direction, reader
from harness.table import notes
from harness.table.options import Options, Round, Table, TableCell, TableColumn

_ADDED_UP = tuple(
    field.name
    for field in msgspec.structs.fields(Proof)
    if field.name not in ("sampling", "tcp_retransmits", "air", "at_one_end")
)


def build(
    records: Sequence[Record],
    options: Options | None = None,
    plans: Mapping[str, Plan] | None = None,
    environments: Mapping[str, Mapping[str, Any]] | None = None,
    lab_limited: Set[CellKey] = frozenset(),
) -> Table:
    """The matrix of ``records``. UsageError if there are none, or if the reference does not have the metric.

    ``plans`` and ``environments``, by run id, add to the notes what is known of the runs. They also order the
    rows and columns that are not the article's. ``lab_limited`` are the cells whose figures are to be marked
    as the lab's own.
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
    grid = []
    for row in rows:
        read = reader(row.direction, options.metric)
        line = []
        for key, column in zip(keys, columns, strict=True):
            of_cell = in_direction(samples[key].get(row.workload, ()), row.direction)
            cell = _cell(
                # In the order in which they were measured.
                sorted(of_cell, key=lambda record: (record.started_unix_s, record.run_id, record.order)),
                read,
                options.metric,
                is_lab_limited=CellKey(key, row.workload) in lab_limited,
                # Memory is as fast as the core that reads it.
                normal=CPU_SATURATED if column.is_memory and key.column.is_local else None,
            )
            line.append(cell)
        grid.append(tuple(_with_ratios(keys, line, is_rate=options.metric.figure.of is Of.TRANSFER)))
    table = Table(options=options, columns=tuple(columns), rows=tuple(rows), cells=tuple(grid))
    table = notes.marked(table)
    table = msgspec.structs.replace(
        table, title=notes.title(table), marks=notes.marks(context, table), notes=notes.legend(context, table)
    )
    return table if options.reference is None else with_reference(table, options.reference)


def _headed(
    keys: Sequence[ColumnKey],
    samples: Mapping[ColumnKey, Mapping[str, Sequence[Record]]],
    plans: Sequence[Plan],
) -> list[TableColumn]:
    named = origins(keys)
    records = {key: [record for cell in samples[key].values() for record in cell] for key in keys}
    memory, titles, rates = {}, {}, {}
    for key in keys:
        runs = {record.run_id for record in records[key]}
        memory[key] = is_memory(key, [plan for plan in plans if plan.run_id in runs])
        title = next((record.link_title for record in records[key] if record.link_title), "")
        if memory[key] and key.column.is_local:
            title = title.replace("disk", "memory")
        titles[key] = title or ("Local" if key.column.is_local else key.column.link)
        bit_s = None if key.column.is_local else rate_bit_s(records[key], plans)
        rates[key] = "" if bit_s is None else format_rate(bit_s)
    columns = []
    for key in keys:
        column, title = key.column, titles[key]
        if any(titles[other] == title and other.column.link != column.link for other in keys):
            title = f"{title} ({column.link})"
        if rates[key] not in title:
            title += f"{',' if ', ' in title else ''} {rates[key]}"
        protection = column.title
        if key.is_unencrypted:
            protection = f"{UNENCRYPTED} {'+'.join(column.protection)}"
        elif not column.protection and column.has_path and key.setting.is_harness:
            protection = f"IPsec {PROTECTION_OFF}"
        origin = named[key.setting]
        remarks = ["emulated"] if any(record.emulated for record in records[key]) else []
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
                rate=rates[key],
            )
        )
    return columns


def _cell(
    records: Sequence[Record],
    read: Callable[[Record], float | None],
    metric: Metric,
    *,
    is_lab_limited: bool,
    normal: str | None = None,
) -> TableCell | None:
    """A cell from its records; None without any. Warnings that begin with what is ``normal`` are none."""
    if not records:
        return None
    good = disturbance.counting(records)
    rounds = {
        (record.run_id, record.repeat): disturbance.undisturbed(value, record)
        for record in good
        if (value := read(record)) is not None
    }
    values = [value for value, _ in rounds.values()]
    reasons = notes.reasons(records)
    if len(values) < len(good):
        reasons += (notes.lacking(metric, good, len(good) - len(values), len(records)),)
    counted = good or records
    summary = stats.summarise(values) if values else None
    scattered = summary if len(values) > 1 else None
    worst = disturbance.most_disturbed(good)
    known = [part for record in good if (part := disturbance.share(record)) is not None]
    is_disturbed = worst is not None and disturbance.is_disturbed(worst)
    return TableCell(
        status=Status.OK if good else notes.gravest(records),
        n=len(values),
        repeats=len(records),
        value=summary.median if summary else None,
        low=scattered.low if scattered else None,
        high=scattered.high if scattered else None,
        spread=scattered.spread if scattered else None,
        proof=_added_up([proof for record in counted for proof in _proofs(record)]),
        disturbed=max(known, default=None),
        is_disturbed=is_disturbed,
        cause=disturbance.cause(worst) if worst is not None and is_disturbed else "",
        is_lab_limited=is_lab_limited,
        rounds=rounds,
        samples={
            (record.run_id, record.repeat): duet.Side.of(value, record)
            for record in records
            if record.status is Status.OK and (value := read(record))
        }
        if metric.figure.of is Of.TRANSFER
        else {},
        runs=tuple(dict.fromkeys(record.run_id for record in records)),
        reasons=reasons,
        warnings=(
            *dict.fromkeys(
                warning
                for record in records
                for warning in record.warnings
                if normal is None or not warning.startswith(normal)
            ),
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
    if at_one_end := sum(proof.at_one_end for proof in proofs):
        total |= {"at_one_end": at_one_end, "link_bytes_target": None, "protected_bytes_target": None}
    return total


def _with_ratios(
    keys: Sequence[ColumnKey], line: Sequence[TableCell | None], *, is_rate: bool
) -> Iterable[TableCell | None]:
    """The cells of a row with what they are compared to. ``is_rate``: more is better, so that disturbance can
    only have lowered their values."""
    bare = {
        (key.setting, key.column): cell
        for key, cell in zip(keys, line, strict=True)
        if not key.column.protection
    }
    for key, cell in zip(keys, line, strict=True):
        if cell is None or cell.value is None:
            yield cell
            continue
        column = key.column
        local = None if column.is_local else bare.get((key.setting, Column(LINK_LOCAL)))
        plain = bare.get((key.setting, column.bare)) if column.protection else None
        baseline = plain if column.protection else local
        yield msgspec.structs.replace(
            cell,
            ratio_to_local=_ratio(cell, local),
            ratio_to_unprotected=_ratio(cell, plain),
            difference_from_unprotected=stats.difference(
                stats.ratio_interval(list(_within_rounds(cell, plain).values()))
            ),
            within_rounds=_within_rounds(cell, baseline),
            bounds=_bounds(cell, baseline) if is_rate else None,
            pairs=_pairs(cell, baseline),
        )


def _within_rounds(cell: TableCell, baseline: TableCell | None) -> dict[Round, float]:
    """The ratio within each round in which both were measured; a value of zero has none."""
    if baseline is None or cell.is_disturbed or baseline.is_disturbed:
        return {}
    return {
        one: value / baseline.rounds[one][0]
        for one, (value, _) in cell.rounds.items()
        if value and one in baseline.rounds and baseline.rounds[one][0]
    }


def _ratio(cell: TableCell, baseline: TableCell | None) -> float | None:
    """The median ratio within rounds. What the machine does to all cells of a round cannot change it.

    Without a common round, because repeats are missing or belong to other runs, the ratio of the medians.
    """
    if within := _within_rounds(cell, baseline):
        return stats.median(list(within.values()))
    if baseline is None or cell.is_disturbed or baseline.is_disturbed or cell.value is None:
        return None
    return cell.value / baseline.value if baseline.value else None


def _bounds(cell: TableCell, baseline: TableCell | None) -> tuple[float, float] | None:
    """Between which two the ratio of disturbed values would be undisturbed; None if nothing bounds it, or
    without a common round.

    In each round the least of one goes with the most of the other. The medians of that over the rounds, so
    that a round that was disturbed much does not widen them.
    """
    if baseline is None or not (cell.is_disturbed or baseline.is_disturbed):
        return None
    of, to = cell.rounds, baseline.rounds
    common = [one for one, (_, most) in of.items() if most and to.get(one, (0.0, 0.0))[0]]
    if not common:
        return None
    low = stats.median([of[one][0] / to[one][1] for one in common])
    high = stats.median([of[one][1] / to[one][0] for one in common])
    return (low, high) if low and math.isfinite(high) else None


def _pairs(cell: TableCell, baseline: TableCell | None) -> tuple[duet.Pair, ...]:
    """All repeats of each round that has both, disturbed or not."""
    found = baseline.samples if baseline is not None else {}
    return tuple((sample, found[one]) for one, sample in cell.samples.items() if one in found)


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
