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
    Ciphers,
    Column,
    Io,
    IpsecMode,
    LabKernel,
    Latency,
    Plan,
    Proof,
    Record,
    Status,
    is_unencrypted,
)
from harness.model.errors import UsageError
from harness.parse.references import Reference
from harness.table import notes
from harness.table.options import (
    Block,
    Direction,
    Metric,
    Options,
    Setting,
    Table,
    TableCell,
    TableColumn,
    TableRow,
)

DOCUMENT_WORKLOADS = {
    f"{pattern}-{operation}-{size.lower()}": (group, f"Uncached {operation.title()} [{size} blocks]")
    for pattern, group in (("seq", "Sequential"), ("rand", "Random"))
    for operation in ("write", "read")
    for size in ("4K", "256K")
}
"""The document's eight rows in its order: group and operation, in the document's words."""

_KNOWN_LINKS = (LINK_LOCAL, "wired", "wifi")
_LATENCY_FIELDS = {
    Metric.MEAN: "mean_ns",
    Metric.P50: "p50_ns",
    Metric.P99: "p99_ns",
    Metric.P99_9: "p99_9_ns",
}
_ADDED_UP = (
    "protected_bytes",
    "protected_bytes_initiator",
    "protected_bytes_target",
    "packets_sampled",
    "packets_due",
    "cleartext_segments",
    "control_frames",
    "other_frames",
    "unaccounted_frames",
    "unaccounted_bytes",
    "rekeys",
    "link_bytes_initiator",
    "link_bytes_target",
)

Grid = list[list[TableCell | None]]


class ColumnKey(msgspec.Struct, frozen=True):
    """What the samples of a column have in common."""

    setting: Setting
    link: str
    protection: tuple[str, ...]
    transport: str | None
    ipsec_mode: str | None
    initiators: int
    is_unencrypted: bool = False

    @property
    def column(self) -> Column:
        return Column(self.link, self.protection, self.transport, self.initiators)

    @property
    def label(self) -> str:
        """The name for people, without the setting."""
        name = self.column.shown(is_unencrypted=self.is_unencrypted)
        return name if self.ipsec_mode in (None, IpsecMode.TRANSPORT) else f"{name} {self.ipsec_mode}"


def build(
    records: Sequence[Record],
    options: Options | None = None,
    plans: Mapping[str, Plan] | None = None,
    environments: Mapping[str, Mapping[str, Any]] | None = None,
    labs_own: Set[tuple[str, str]] = frozenset(),
) -> Table:
    """The matrix of ``records``. UsageError if there are none, or if the reference does not have the metric.

    ``plans`` and ``environments``, by run id, add to the notes what is known of the runs. They also order the
    rows and columns that are not the document's. ``labs_own`` are the cells, by the column's label and the
    workload, whose figures are to be marked as the lab's own.
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
    grid: Grid = []
    for row in rows:
        read = reader(row.direction, options.metric)
        found = [_measured(_in_direction(samples[key].get(row.workload, ()), row.direction)) for key in keys]
        values = [_by_block(records, read) for records in found]
        line = [_cell(*cell, options.metric) for cell in zip(found, values, strict=True)]
        spans: list[_Spans] = [{} for _ in keys]
        if not options.metric.is_latency and any(cell is not None and cell.is_disturbed for cell in line):
            spans = [_spans(records, read) for records in found]
        for place, (column, cell) in enumerate(zip(columns, line, strict=True)):
            if cell is not None and (column.label, row.workload) in labs_own:
                line[place] = msgspec.structs.replace(cell, is_labs_own=True)
        grid.append(_with_ratios(keys, line, _undisturbed(line, values), spans))
    grid, footnotes = notes.marked(grid)
    title, marks = notes.title(options, grid), notes.marks(options, columns, rows, grid)
    legend = notes.legend(context, options, columns, rows, grid)
    if options.reference is not None:
        columns += _reference_columns(options.reference)
        for row, line in zip(rows, grid, strict=True):
            line += _reference_cells(options.reference, row.workload, options.metric)
    return Table(
        options=options,
        columns=tuple(columns),
        rows=tuple(rows),
        cells=tuple(map(tuple, grid)),
        title=title,
        marks=marks,
        notes=legend,
        footnotes=footnotes,
    )


def by_column(records: Iterable[Record]) -> dict[ColumnKey, dict[str, list[Record]]]:
    """The records of each column, by workload, in their order."""
    samples: dict[ColumnKey, dict[str, list[Record]]] = {}
    keys: dict[tuple[object, ...], ColumnKey] = {}
    for record in records:
        mode = record.ipsec_mode or IpsecMode.TRANSPORT.value if record.column.has_ipsec else None
        kernel = (
            record.lab_kernel is LabKernel.OWN,
            record.other_kernel,
            record.ciphers is Ciphers.PORTABLE,
        )
        where = (record.source, record.testbed, record.clock, *kernel, record.disk)
        column = (record.link, record.protection, record.transport, mode, record.initiators)
        facts = (*where, *column)
        key = keys.get(facts)
        if key is None:
            key = keys[facts] = ColumnKey(Setting.of(record), *column)
            samples[key] = {}
        samples[key].setdefault(record.workload, []).append(record)
    # A column's first record may have failed before anything was negotiated.
    return {
        msgspec.structs.replace(key, is_unencrypted=_is_unencrypted(cells.values())): cells
        for key, cells in samples.items()
    }


def _is_unencrypted(cells: Iterable[Sequence[Record]]) -> bool:
    return any(is_unencrypted(record.encrypts, record.agreed) for records in cells for record in records)


def in_order(found: Iterable[ColumnKey], plans: Iterable[Plan]) -> list[ColumnKey]:
    """By setting and link, so that what a link costs with and without protection stands side by side: local,
    wired, wifi and the rest as planned; then by transport; then without protection, and with each."""
    keys = list(found)
    columns = [column for plan in plans for column in plan.columns] + [key.column for key in keys]
    links = list(dict.fromkeys(column.link for column in columns))
    protections = list(dict.fromkeys(column.protection for column in columns))
    transports = list(dict.fromkeys([None, *(column.transport for column in columns)]))

    def place(key: ColumnKey) -> tuple[object, ...]:
        name = key.link.partition(":")[0]
        known = _KNOWN_LINKS.index(name) if name in _KNOWN_LINKS else len(_KNOWN_LINKS)
        return (
            key.setting,
            known,
            links.index(key.link),
            transports.index(key.transport),
            bool(key.protection),
            protections.index(key.protection),
            key.ipsec_mode or "",
            key.initiators,
        )

    return sorted(keys, key=place)


def _headed(
    keys: Sequence[ColumnKey],
    samples: Mapping[ColumnKey, Mapping[str, Sequence[Record]]],
    plans: Sequence[Plan],
) -> list[TableColumn]:
    several = len({key.setting for key in keys}) > 1
    titles = {}
    emulated = {}
    ip_of = {}
    memory = {}
    for key in keys:
        of_key = [record for cell in samples[key].values() for record in cell]
        title = next((record.link_title for record in of_key if record.link_title), "")
        runs = {record.run_id for record in of_key}
        memory[key] = is_memory(key, [plan for plan in plans if plan.run_id in runs])
        if memory[key] and key.link == LINK_LOCAL:
            title = title.replace("disk", "memory")
        ip_of[key] = None if key.link == LINK_LOCAL else next((record.ip for record in of_key), None)
        titles[key] = title or ("Local" if key.link == LINK_LOCAL else key.link)
        emulated[key] = any(record.emulated for record in of_key)
    columns = []
    for key in keys:
        title = titles[key]
        if any(titles[other] == title and other.link != key.link for other in keys):
            title = f"{title} ({key.link})"
        mode = "" if key.ipsec_mode in (None, IpsecMode.TRANSPORT) else f" {key.ipsec_mode}"
        says_ipsec = key.link != LINK_LOCAL and key.setting.source == notes.HARNESS_SOURCE
        protection = f"{key.column.title}{mode}"
        if key.is_unencrypted:
            protection = f"{UNENCRYPTED} {'+'.join(key.protection)}{mode}"
        elif not key.protection and says_ipsec:
            protection = f"IPsec {PROTECTION_OFF}"
        origin = notes.setting_name(key.setting) if several or not key.setting.is_plain else ""
        remarks = ["emulated"] if emulated[key] else []
        remarks += [f"{key.initiators} initiators"] if key.initiators > 1 else []
        if key.protection and key.setting.ciphers and not origin:
            remarks.append(f"{key.setting.ciphers} ciphers")
        if key.transport not in (None, DEFAULT_TRANSPORT):
            remarks.append(TRANSPORTS.get(key.transport, key.transport))
        columns.append(
            TableColumn(
                setting=key.setting,
                link=key.link,
                protection=key.protection,
                transport=key.transport,
                ipsec_mode=key.ipsec_mode,
                initiators=key.initiators,
                ip=ip_of[key],
                is_unencrypted=key.is_unencrypted,
                is_memory=memory[key],
                label=f"{origin} {key.label}".strip(),
                heading=(origin, title, ", ".join(remarks), protection),
            )
        )
    return columns


def is_memory(key: ColumnKey, plans: Sequence[Plan]) -> bool:
    """Whether a column's storage is memory, by the plans of its runs; what has no plan may be a disk."""
    return bool(plans) and all(plan.is_memory(key.link) for plan in plans)


def rows_of(records: Iterable[Record], metric: Metric, plans: Iterable[Plan]) -> list[TableRow]:
    """The document's rows first, in its order; then others as planned, then as found."""
    shown: dict[str, set[frozenset[Direction]]] = {}
    for record in records:
        found = shown.setdefault(record.workload, set())
        if directions := _directions(record):
            found.add(directions)
    planned = [workload.name for plan in plans for workload in plan.workloads]
    names = [name for name in dict.fromkeys([*DOCUMENT_WORKLOADS, *planned, *shown]) if name in shown]
    documents = any(name in DOCUMENT_WORKLOADS for name in names)
    rows = []
    for name in names:
        group, operation = DOCUMENT_WORKLOADS.get(name, ("Other" if documents else "", name))
        parts = _parts_of(shown[name], metric)
        # Without a good record the workload's directions are unknown: one row gives the reason.
        for direction in parts or (None,):
            suffix = f" ({direction})" if len(parts) > 1 or direction is Direction.BOTH else ""
            rows.append(
                TableRow(workload=name, direction=direction, group=group, operation=f"{operation}{suffix}")
            )
    return rows


def _directions(record: Record) -> frozenset[Direction]:
    """What a record has figures of; empty if it is not ok."""
    if record.status is not Status.OK:
        return frozenset()
    reads = record.read is not None and record.read.bytes > 0
    writes = record.write is not None and record.write.bytes > 0
    has = {Direction.READ: reads, Direction.WRITE: writes, Direction.SYNC: record.sync_latency is not None}
    return frozenset(direction for direction, is_there in has.items() if is_there)


def _in_direction(records: Sequence[Record], direction: Direction | None) -> Sequence[Record]:
    """Without those that have figures of other directions alone: a job of one name may read here, and write
    there."""
    if direction in (None, Direction.BOTH):
        return records
    return [record for record in records if not (found := _directions(record)) or direction in found]


def _parts_of(found: set[frozenset[Direction]], metric: Metric) -> list[Direction]:
    """Rates of a mixed workload are added up in one row. Latencies of different operations never are, nor are
    those of records that read or write alone."""
    transfers = {directions - {Direction.SYNC} for directions in found} - {frozenset()}
    if not metric.is_latency and len(transfers) == 1 and len(next(iter(transfers))) > 1:
        return [Direction.BOTH]
    every = frozenset().union(*(found if metric.is_latency else transfers))
    return [direction for direction in Direction if direction in every]


def reader(direction: Direction | None, metric: Metric) -> Callable[[Record], float | None]:
    """The function that reads a row's figure from a record, in the metric's unit; None if it has none."""
    if metric.is_latency:
        field = _LATENCY_FIELDS[metric]

        def latency_us(record: Record) -> float | None:
            found: Latency | None = record.sync_latency
            if direction is not Direction.SYNC:
                io = record.read if direction is Direction.READ else record.write
                found = io.latency if io is not None else None
            value: float | None = getattr(found, field, None)
            return None if value is None else value / 1000

        return latency_us

    rate_of = _rate(metric)
    reads, writes = direction is not Direction.WRITE, direction is not Direction.READ

    def rate(record: Record) -> float | None:
        total = 0.0
        if reads:
            if record.read is None or not record.read.runtime_ns:
                return None
            total += rate_of(record.read)
        if writes:
            if record.write is None or not record.write.runtime_ns:
                return None
            total += rate_of(record.write)
        return total

    return rate


def _rate(metric: Metric) -> Callable[[Io], float]:
    match metric:
        case Metric.IOPS:
            return lambda io: io.iops
        case Metric.MIB_S:
            return lambda io: io.bytes_per_s / 2**20
        case _:
            return lambda io: io.bytes_per_s / 1e6


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
        if not key.protection
    }
    nothing: tuple[_Blocks, _Spans] = {}, {}

    def related(key: ColumnKey, cell: TableCell | None, values: _Blocks, span: _Spans) -> TableCell | None:
        if cell is None or cell.value is None:
            return cell
        here = Column(LINK_LOCAL)
        local, local_span = baselines.get((key.setting, here), nothing) if key.link != LINK_LOCAL else nothing
        unprotected = msgspec.structs.replace(key.column, protection=())
        bare, bare_span = baselines.get((key.setting, unprotected), nothing) if key.protection else nothing
        to_local, to_bare = _ratio(values, local), _ratio(values, bare)
        return msgspec.structs.replace(
            cell,
            ratio_to_local=to_local,
            ratio_to_no_ipsec=to_bare,
            difference_from_no_ipsec=stats.difference(list(_ratios(values, bare).values())),
            within_blocks=_ratios(values, bare if key.protection else local),
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


def _reference_columns(reference: Reference) -> list[TableColumn]:
    def protection(link: str, proposal: str) -> str:
        if proposal == "on":
            return "IPsec"
        return "" if link == LINK_LOCAL else f"IPsec {proposal}"

    return [
        TableColumn(
            setting=None,
            link=column.link,
            protection=column.protection,
            transport=None,
            ipsec_mode=None,
            label=f"{reference.name} {Column(column.link, column.protection).label}",
            heading=(f"{reference.title}:", column.title, "", protection(column.link, column.ipsec)),
        )
        for column in reference.columns
    ]


def _reference_cells(reference: Reference, workload: str, metric: Metric) -> list[TableCell | None]:
    """The published values of a row in the metric's unit. Only a rate in bytes is converted."""
    if metric not in (Metric.MB_S, Metric.MIB_S):
        raise UsageError(
            f"{reference.title} publishes {reference.unit} and has no {metric.meaning}",
            hint="leave out --reference or take --metric MB/s",
        )
    unit = 1.0 if metric is Metric.MB_S else 2**20 / 1e6
    published = reference.rows.get(workload)
    if published is None:
        return [None] * len(reference.columns)
    return [TableCell(status=Status.OK, n=1, repeats=1, value=value / unit) for value in published]
