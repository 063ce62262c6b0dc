"""Records for other programs: one row for each record and direction, in columns that do not change.

docs/export.md describes the columns. What is unknown is empty (null), never zero.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from harness import __version__
from harness.analysis import bounds, disturbance
from harness.model import (
    COMPLETION,
    ENDS,
    LINK_LOCAL,
    Io,
    Latency,
    Plan,
    Proof,
    Record,
    drivers,
    is_unencrypted,
)
from harness.model.choices import Choice
from harness.model.errors import lacks_package
from harness.model.escape import for_csv, in_ascii, printable
from harness.results import machine


class ExportFormat(Choice):
    """format of an export"""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"
    INFLUX = "influx"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a record, or a record that moved nothing, without a direction."""

    run_id: str
    testbed: str
    source: str
    clock: str
    link: str
    link_title: str
    emulated: bool
    protection: str
    transport: str | None
    ipsec: str
    ipsec_mode: str | None
    encrypted: bool | None
    initiators: int
    workload: str
    direction: str | None
    repeat: int
    order: int
    status: str
    reason: str | None
    warnings: str
    started_unix_s: float | None
    wall_ns: int
    fio_ns: int
    block_bytes: int | None
    bytes: int | None = None
    ios: int | None = None
    runtime_ns: int | None = None
    bandwidth_bytes_s: float | None = None
    iops: float | None = None
    latency_mean_ns: float | None = None
    latency_min_ns: float | None = None
    latency_max_ns: float | None = None
    latency_stddev_ns: float | None = None
    latency_p50_ns: float | None = None
    latency_p99_ns: float | None = None
    latency_p99_9_ns: float | None = None
    link_bytes_initiator: int | None = None
    link_bytes_target: int | None = None
    protected_bytes: int | None = None
    cipher_driver: str | None = None
    cleartext_segments: int | None = None
    rekeys: int | None = None
    tcp_retransmits: int | None = None
    schema: int
    ciphers: str | None = None
    disturbed: float | None = None
    others_waited: float | None = None
    others_stolen: float | None = None
    others_processors: float | None = None
    initiator_processor: str | None = None
    initiator_cores: int | None = None
    initiator_frequency_mhz: float | None = None
    initiator_governor: str | None = None
    initiator_hypervisor: str | None = None
    initiator_load: float | None = None
    initiator_memory_bytes: int | None = None
    initiator_kernel: str | None = None
    initiator_distribution: str | None = None
    target_processor: str | None = None
    target_cores: int | None = None
    target_frequency_mhz: float | None = None
    target_governor: str | None = None
    target_hypervisor: str | None = None
    target_load: float | None = None
    target_memory_bytes: int | None = None
    target_kernel: str | None = None
    target_distribution: str | None = None
    harness_version: str | None = None
    profile: str | None = None
    storage: str | None = None
    queue_depth: int | None = None
    jobs: int | None = None
    round_trip_p50_ns: float | None = None
    busiest_core: float | None = None
    column: str
    is_disturbed: bool
    lab_kernel: str | None = None
    kernel: str | None = None
    disk: str | None = None
    initiator_host: str | None = None
    target_host: str | None = None
    ip: int | None = None
    others_suspended_ns: int | None = None
    percentiles_of: str | None = None


COLUMNS = Row.__struct_fields__

TAGS = (
    "run_id",
    "testbed",
    "source",
    "clock",
    "link",
    "protection",
    "transport",
    "ipsec",
    "ipsec_mode",
    "initiators",
    "workload",
    "direction",
    "repeat",
    "status",
    "column",
    "lab_kernel",
    "disk",
)
_MEASUREMENT = "harness"
_INFLUX_ESCAPES = str.maketrans({",": r"\,", "=": r"\=", " ": r"\ "})


def rows(
    records: Iterable[Record],
    environments: Mapping[str, Mapping[str, Any]] | None = None,
    plans: Mapping[str, Plan] | None = None,
) -> Iterator[Row]:
    """The rows of each record: its reads, its writes, its synchronisations.

    ``environments`` and ``plans``, by run id, say on which machines the records were made, and how.
    """
    machines = {run: _machines(environment) for run, environment in (environments or {}).items()}
    for record in records:
        parts: list[tuple[str | None, Io | None, Latency | None]] = []
        parts += [("read", record.read, record.read.latency)] if record.read else []
        parts += [("write", record.write, record.write.latency)] if record.write else []
        parts += [("fsync", None, record.sync_latency)] if record.sync_latency else []
        known = machines.get(record.run_id, {}) | _planned((plans or {}).get(record.run_id), record)
        for direction, moved, latency in parts or [(None, None, None)]:
            yield _row(record, direction, moved, latency or Latency(), known)


def _planned(plan: Plan | None, record: Record) -> dict[str, Any]:
    """What a run's plan says of a record, by the names of the columns."""
    if plan is None:
        return {}
    workload = next((each for each in plan.workloads if each.name == record.workload), None)
    jobs = 0 if workload is None else bounds.positive(dict(workload.options), "numjobs") or 1
    return {
        "harness_version": plan.harness_version or None,
        "profile": plan.profile or None,
        "storage": str(plan.backing.kind),
        "queue_depth": bounds.depth_of(workload) // jobs if workload is not None else None,
        "jobs": jobs or None,
        **_hosts(plan, record),
    }


def _hosts(plan: Plan, record: Record) -> dict[str, Any]:
    """The machines as they were typed; the lab has none."""
    if plan.machines is None:
        return {}
    initiators = ", ".join(plan.machines.initiators[: record.initiators])
    return {"initiator_host": initiators or None, "target_host": plan.machines.target or None}


def _machines(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the machines of both ends and of the kernel that measured, by the columns' names."""
    hosts = {name: fact for name, fact in environment.items() if name != machine.MACHINE}
    return {
        f"{host}_{name}": fact
        for host in ENDS
        for name, fact in msgspec.structs.asdict(machine.machine_of(environment, host)).items()
    } | {"kernel": machine.machine_of(hosts, ENDS[0]).kernel}


def _row(
    record: Record, direction: str | None, moved: Io | None, latency: Latency, known: Mapping[str, Any]
) -> Row:
    beside = record.beside
    hottest = [use.hottest for use in beside.processors if use.hottest is not None] if beside else []
    proof: Proof | None = record.proof
    others = disturbance.worst(record)
    return Row(
        run_id=record.run_id,
        testbed=record.testbed.value,
        source=record.source,
        clock=record.clock,
        link=record.link,
        link_title=record.link_title,
        emulated=record.emulated,
        protection="+".join(record.protection),
        transport=record.transport,
        ipsec=record.column.ipsec,
        # Earlier versions wrote ESP's mode beside other protections as well.
        ipsec_mode=record.ipsec_mode if record.column.has_ipsec else None,
        encrypted=None if not record.protection else not is_unencrypted(record.encrypts, record.agreed),
        initiators=record.initiators,
        workload=record.workload,
        direction=direction,
        repeat=record.repeat,
        order=record.order,
        status=record.status.value,
        reason=record.reason,
        warnings="; ".join(record.warnings),
        started_unix_s=record.started_unix_s or None,
        wall_ns=record.wall_ns,
        fio_ns=record.fio_ns,
        block_bytes=record.block_bytes,
        bytes=moved.bytes if moved else None,
        ios=moved.ios if moved else None,
        runtime_ns=moved.runtime_ns if moved else None,
        bandwidth_bytes_s=moved.bytes_per_s if moved and moved.runtime_ns else None,
        iops=moved.iops if moved and moved.runtime_ns else None,
        latency_mean_ns=latency.mean_ns,
        latency_min_ns=latency.min_ns,
        latency_max_ns=latency.max_ns,
        latency_stddev_ns=latency.stddev_ns,
        latency_p50_ns=latency.p50_ns,
        latency_p99_ns=latency.p99_ns,
        latency_p99_9_ns=latency.p99_9_ns,
        link_bytes_initiator=proof.link_bytes_initiator if proof else None,
        link_bytes_target=proof.link_bytes_target if proof else None,
        protected_bytes=proof.protected_bytes if proof else None,
        cipher_driver=drivers(record.agreed) or None,
        cleartext_segments=proof.cleartext_segments if proof else None,
        rekeys=proof.rekeys if proof else None,
        tcp_retransmits=proof.tcp_retransmits if proof else None,
        schema=record.schema,
        ciphers=str(record.ciphers) if record.ciphers is not None else None,
        disturbed=disturbance.share(record),
        others_waited=others.waited if others else None,
        others_stolen=others.stolen if others else None,
        others_processors=others.processors if others else None,
        round_trip_p50_ns=beside.round_trips.p50_ns if beside and beside.round_trips else None,
        busiest_core=max(hottest, default=None),
        column=record.column.label,
        is_disturbed=disturbance.is_disturbed(record),
        lab_kernel=None if record.lab_kernel is None else record.lab_kernel.value,
        disk=record.disk or None,
        ip=record.ip if record.link != LINK_LOCAL else None,
        others_suspended_ns=others.suspended_ns if others else None,
        percentiles_of=None
        if latency.p50_ns is None
        else COMPLETION
        if latency.percentiles == COMPLETION
        else "lat",
        **known,
    )


def encode(
    records: Iterable[Record],
    format: ExportFormat,
    environments: Mapping[str, Mapping[str, Any]] | None = None,
    plans: Mapping[str, Plan] | None = None,
) -> bytes:
    """All rows in ``format``. RequirementError if the package that writes the format is missing."""
    found = list(rows(records, environments, plans))
    match format:
        case ExportFormat.CSV:
            return _csv(found)
        case ExportFormat.JSONL:
            return "".join(in_ascii(msgspec.json.encode(row).decode()) + "\n" for row in found).encode()
        case ExportFormat.INFLUX:
            return "".join(f"{_influx(row)}\n" for row in found).encode()
        case ExportFormat.PARQUET:
            return _parquet(found)


def _csv(found: Sequence[Row]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in found:
        writer.writerow([_csv_value(getattr(row, name)) for name in COLUMNS])
    return out.getvalue().encode()


def _csv_value(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return for_csv(value)
        case _:
            return str(value)


def _influx(row: Row) -> str:
    """A point of line protocol, v2: tags identify the row, everything else is a field.

    Its time is the start of the measurement, in ns. If that is unknown, the line has none.
    """
    tags = [(name, value) for name in TAGS if (value := getattr(row, name)) is not None]
    names = "".join(f",{name}={text}" for name, value in tags if (text := _tag(str(value))))
    fields = [(name, getattr(row, name)) for name in COLUMNS if name not in TAGS]
    values = ",".join(f"{name}={_field(value)}" for name, value in fields if value not in (None, ""))
    # Exact: a product of floats would be off by some 100 ns.
    time = f" {round(Fraction(row.started_unix_s) * 10**9)}" if row.started_unix_s else ""
    return f"{_MEASUREMENT}{names} {values}{time}"


def _tag(text: str) -> str:
    """A backslash at the end would escape what follows, and the protocol cannot escape it: it is removed."""
    return printable(text).rstrip("\\").translate(_INFLUX_ESCAPES)


def _field(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value}i"
        case str():
            escaped = printable(value).replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        case _:
            return repr(value)


def _parquet(found: Sequence[Row]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise lacks_package("Parquet", "pyarrow", "take --to csv or jsonl") from error
    kinds = {
        "str": pyarrow.string(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
    }
    # From the declared types, so that an empty column has the same type as always.
    schema = pyarrow.schema(
        [(name, kinds[str(Row.__annotations__[name]).removesuffix(" | None")]) for name in COLUMNS],
        metadata={"harness_version": __version__, "columns": "docs/export.md of storage-network-harness"},
    )
    table = pyarrow.Table.from_pylist([msgspec.structs.asdict(row) for row in found], schema=schema)
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink)
    return bytes(sink.getvalue())
