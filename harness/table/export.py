"""Records for other programs: one row for each record and direction, in columns that do not change.

``ROW`` describes the columns. What is unknown is empty (null), never zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, cast, get_args, get_type_hints

import msgspec

from harness.analysis import disturbance
from harness.analysis.response import Estimate
from harness.analysis.schedule import Place
from harness.model import (
    COMPLETION,
    ENDS,
    Io,
    Latency,
    LinkProfile,
    Plan,
    Record,
    Status,
    Workload,
    drivers,
    is_unencrypted,
)
from harness.model.choices import Choice
from harness.model.errors import lacks_package
from harness.model.escape import for_csv, in_ascii, printable
from harness.model.telemetry import OBSERVED, BackgroundLoad, Observed, Unit
from harness.results import machine
from harness.results.axes import AXES, workloads
from harness.results.columns import workload_of
from harness.results.curves import MeasuredCurve
from harness.results.metrics import Metric, Of
from harness.table import openmetrics
from harness.table.text import in_csv
from harness.version import __version__


class ExportFormat(Choice):
    """format of an export"""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"
    INFLUX = "influx"
    OPENMETRICS = "openmetrics"


Value = str | int | float | None
Row = dict[str, Value]
"""What is exported of a line, by the columns' names."""


class ExportLine(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One direction of a record, or a record that moved nothing, without a direction; with its run's plan,
    the machines of both ends, the kernel that measured, and the curve of a sweep. With ``estimate`` the
    record is a point of the curve that was not measured."""

    record: Record
    direction: str | None
    moved: Io | None
    latency: Latency
    plan: Plan | None
    initiator: machine.Machine
    target: machine.Machine
    measured_by: machine.Machine
    curve: str | None = None
    estimate: Estimate | None = None

    @property
    def link(self) -> LinkProfile | None:
        """As the plan has it."""
        return self.plan.links.get(self.record.column.link) if self.plan is not None else None

    @functools.cached_property
    def background_load(self) -> BackgroundLoad | None:
        """What other programs took at the end that they disturbed most."""
        return disturbance.worst(self.record)

    @functools.cached_property
    def workload(self) -> Workload | None:
        """As the plan has it."""
        if self.plan is None:
            return None
        job = next((each for each in self.plan.jobs if each.name == self.record.workload.name), None)
        return workload_of(self.record, job)

    @property
    def initiators(self) -> str:
        """The machines as they were typed; the lab has none."""
        machines = self.plan and self.plan.machines
        return ", ".join(machines.initiators[: self.record.column.initiators]) if machines else ""


class ExportColumn(msgspec.Struct, frozen=True):
    """A column: its name, its type, and how it is read from a line.

    A tag tells lines apart, for line protocol.
    """

    name: str
    kind: type
    read: Callable[[ExportLine], Value]
    is_tag: bool = False


def _observed(each: Observed) -> ExportColumn:
    kind = int if each.unit is Unit.COUNT else float
    return ExportColumn(
        each.name, kind, lambda of: each.of(of.record.telemetry) if of.record.telemetry else None
    )


_OBSERVED = {each.name: _observed(each) for each in OBSERVED}


def _figure(metric: Metric) -> ExportColumn:
    """The column of a figure of tables, as it is read: without their units."""
    of, read = metric.figure.of, metric.figure.read

    def value(line: ExportLine) -> Value:
        match of:
            case Of.TRANSFER:
                return read(line.moved) if line.moved and line.moved.runtime_ns else None
            case Of.LATENCY:
                return read(line.latency)
            case Of.RECORD:
                return read(line.record)

    return ExportColumn(metric.figure.column, float, value)


def _of(
    kind: type, place: str, *names: str, prefix: str = "", is_tag: bool = False
) -> Iterator[ExportColumn]:
    """Columns of one type that have the names of what they show, a part of a line: ``place`` leads there, by
    attributes from the line on. They are empty where it leads nowhere."""
    for name in names:
        yield _named(prefix + name, kind, f"{place}.{name}", is_tag=is_tag)


def _named(name: str, kind: type, place: str, *, is_tag: bool = False) -> ExportColumn:
    return ExportColumn(name, kind, functools.partial(_at, place), is_tag)


def _at(path: str, line: ExportLine) -> Value:
    found: Any = line
    for name in path.split("."):
        if found is None:
            return None
        found = getattr(found, name)
    return None if found == "" else cast(Value, found)


def _seen_at_target(line: ExportLine) -> int | None:
    """Nothing, if of the target only the portal is known."""
    proof = line.record.proof
    return None if proof is None or proof.at_one_end else proof.link_bytes_target


def _encrypted(line: ExportLine) -> bool | None:
    record = line.record
    return not is_unencrypted(record.encrypts, record.agreed) if record.column.has_known_cipher else None


def _percentiles_of(line: ExportLine) -> str | None:
    if line.latency.p50_ns is None:
        return None
    return COMPLETION if line.latency.percentiles == COMPLETION else "lat"


def _axis(name: str, read: Callable[[LinkProfile], float | None]) -> ExportColumn:
    """The place of a link on an axis of sweeps, in the unit of ``AXES``; those of workloads have columns."""

    def value(of: ExportLine) -> float | None:
        found = read(of.link) if of.link is not None else None
        return None if found is None else float(found)

    return ExportColumn(f"link_{name}", float, value)


_PLACED = (
    *_of(str, "record", "run_id", is_tag=True),
    *_of(str, "record.setting", "testbed", "source", is_tag=True),
    # A column that everybody reads already: no row of another clock is compared with it.
    ExportColumn("clock", str, lambda of: of.record.setting.time, is_tag=True),
    *_of(str, "record.column", "link", is_tag=True),
    *_of(str, "record", "link_title"),
    *_of(bool, "record", "emulated"),
    ExportColumn("protection", str, lambda of: "+".join(of.record.column.protection), is_tag=True),
    *_of(str, "record.column", "transport", "ipsec", is_tag=True),
    *_of(str, "record.column", "mode", prefix="ipsec_", is_tag=True),
    ExportColumn("encrypted", bool, _encrypted),
    *_of(int, "record.column", "initiators", is_tag=True),
    ExportColumn("workload", str, lambda of: of.record.workload.name, is_tag=True),
    ExportColumn("direction", str, lambda of: of.direction, is_tag=True),
    *_of(int, "record", "repeat", is_tag=True),
    *_of(int, "record", "order"),
    *_of(str, "record", "status", is_tag=True),
    *_of(str, "record", "reason"),
    ExportColumn("warnings", str, lambda of: "; ".join(of.record.warnings)),
    ExportColumn("started_unix_s", float, lambda of: of.record.started_unix_s or None),
    *_of(int, "record", "wall_ns", "fio_ns"),
    *_of(int, "record.workload", "block_bytes"),
    *_of(int, "moved", "bytes", "ios", "runtime_ns"),
    _figure(Metric.MB_S),
    _figure(Metric.IOPS),
    _figure(Metric.MEAN),
    *_of(float, "latency", "min_ns", "max_ns", "stddev_ns", prefix="latency_"),
    _figure(Metric.P50),
    _figure(Metric.P99),
    _figure(Metric.P99_9),
    *_of(int, "record.proof", "link_bytes_initiator"),
    ExportColumn("link_bytes_target", int, _seen_at_target),
    *_of(int, "record.proof", "protected_bytes"),
    ExportColumn("cipher_driver", str, lambda of: drivers(of.record.agreed) or None),
    *_of(int, "record.proof", "cleartext_segments", "rekeys", "tcp_retransmits"),
    *_of(int, "record", "schema"),
    *_of(str, "record.setting", "ciphers"),
    ExportColumn("disturbed", float, lambda of: disturbance.share(of.record)),
    *_of(float, "background_load", "waited", "stolen", "used", prefix="background_"),
    *(
        _named(f"{host}_{name}", get_args(kind)[0], f"{host}.{name}")
        for host in ENDS
        for name, kind in get_type_hints(machine.Machine).items()
    ),
    *_of(str, "plan", "harness_version", "profile"),
    _named("storage", str, "plan.storage.backing.kind"),
    _named("queue_depth", int, "workload.depth"),
    *_of(int, "workload", "numjobs"),
    _OBSERVED.pop("round_trip_p50_ns"),
    _OBSERVED.pop("busiest_core"),
    ExportColumn("column", str, lambda of: of.record.column.label, is_tag=True),
    ExportColumn("is_disturbed", bool, lambda of: disturbance.is_disturbed(of.record)),
    *_of(str, "record.setting", "lab_kernel", is_tag=True),
    *_of(str, "measured_by", "kernel"),
    *_of(str, "record.setting", "disk", is_tag=True),
    _named("initiator_host", str, "initiators"),
    _named("target_host", str, "plan.machines.target"),
    ExportColumn("ip", int, lambda of: of.record.column.ip if of.record.column.has_path else None),
    *_of(int, "background_load", "suspended_ns", prefix="background_"),
    ExportColumn("percentiles_of", str, _percentiles_of),
    *_OBSERVED.values(),
    ExportColumn("curve", str, lambda of: of.curve),
    _named("bandwidth_low_bytes_s", float, "estimate.low"),
    _named("bandwidth_high_bytes_s", float, "estimate.high"),
    *(_axis(name, axis.of_link) for name, axis in AXES.items() if axis.of_link is not None),
    ExportColumn("is_estimated", bool, lambda of: of.estimate is not None),
)
"""The columns whose place is known: before another one is added here, figures that stand behind them are."""

_NAMES = {field.name for field in _PLACED}
EXPORTED = (
    *_PLACED,
    *{field.name: field for field in map(_figure, Metric) if field.name not in _NAMES}.values(),
)
"""All columns; figures of tables that have no place yet are the last. ``ROW`` describes them."""

ROW = """One direction of a record, or a point of a sweep that was not measured. Units are part of the names.
Null is unknown. New columns come at the end. Tags (of line protocol, labels of OpenMetrics): run_id, testbed,
source, clock, link, protection, transport, ipsec, ipsec_mode, initiators, workload, direction, repeat,
status, column, lab_kernel, disk.

Use only rows whose ``status`` is ok and whose ``is_disturbed`` is false. Do not compare rows that differ in
``testbed``, ``source``, ``clock``, ``lab_kernel``, ``ciphers`` or ``disk``. ``run_id`` is the run; of a plain
fio output, its file. ``testbed`` is lab, host or machines. ``source`` is the measuring tool. ``clock`` is
real, virtual, or predicted from a CPU cost file. ``link`` is the link's name, local for the initiator's own
disk. ``link_title`` is the link's name for people. ``emulated`` says whether the link imitates a medium that
is not there. ``protection`` is what protects the link, joined by +. ``transport`` is null for the local disk.
``ipsec`` is the ESP proposal, or off. ``ipsec_mode`` is transport or tunnel, null without IPsec.
``encrypted`` is null without protection, and where nobody can tell. ``initiators`` is how many measured at
once; the figures are their totals. ``workload`` is the name of a section of the job file. ``direction`` is
read, write, fsync (latency alone), or null if nothing was moved. ``repeat`` counts from 1, ``order`` from 0.
``status`` is ok, failed, skipped, invalid or estimated, and ``reason`` says why. ``warnings`` are separated
by semicolons. ``started_unix_s`` is when fio was started. ``wall_ns`` is the time of the whole cell,
``fio_ns`` what fio measured. ``block_bytes`` is the size of an I/O. ``bytes``, ``ios`` and ``runtime_ns`` are
of this direction: bytes and I/Os that fio moved, and its run time. ``bandwidth_bytes_s`` and ``iops`` are
over ``runtime_ns``. ``latency_mean_ns``, ``latency_min_ns``, ``latency_max_ns`` and ``latency_stddev_ns`` are
over this record's I/Os. ``latency_p50_ns``, ``latency_p99_ns`` and ``latency_p99_9_ns`` are of this record's
I/Os; percentiles of several records cannot be averaged. ``percentiles_of`` is lat (total latency) or clat
(without the time of submission). ``link_bytes_initiator``, ``link_bytes_target`` and ``protected_bytes`` are
what the interfaces and the protection carried, counted for the whole record, both directions.
``cleartext_segments`` is how many TCP segments of the portal a capture saw outside the protection; without
IPsec, those in its samples. ``rekeys`` is how often the security associations were replaced.
``tcp_retransmits`` is how many segments both ends sent again. ``schema`` is the version of the record's file
after conversion. ``cipher_driver`` names the kernel's crypto drivers. ``ciphers`` is accelerated or generic
(the lab's). ``disturbed`` is the part of the measurement that other programs took, 0 to 1; ``is_disturbed``
says whether it is too much. What begins with background_ is of the machine that other programs disturbed
most. ``background_waited`` is the part of the time, 0 to 1, in which the run's programs (on real machines any
program) were ready and did not run. ``background_stolen`` is the part that a hypervisor gave to others, 0 to
1. ``background_used`` is the part of all cores that other programs used, 0 to 1. ``background_suspended_ns``
is how long the machine slept or the run was stopped. ``initiator_processor`` and ``target_processor`` are the
processors' names; in the lab, both ends are the machine that it runs on. ``initiator_frequency_mhz`` and
``target_frequency_mhz`` are the means of their cores when the run began. ``initiator_load`` and
``target_load`` are of the minute before the run. ``profile`` is the job file. ``storage`` is what the target
exports: ramdisk, file or block (a device). ``queue_depth`` is how many I/Os each fio job keeps in flight.
``numjobs`` is how many fio jobs of the workload ran at the same time. ``round_trip_p50_ns``,
``round_trip_p99_ns`` and ``round_trips_lost_percent`` are of the idle path, just before the cell.
``busiest_core`` and ``all_cores`` are busy parts while fio ran, 0 to 1. ``drops`` and ``errors`` are of all
interfaces of the path and its hops, both directions. ``column`` is link, protection, transport and number of
initiators, as in tables. ``kernel`` is the one that measured: the lab's, or the initiator's. ``disk`` is the
modelled disk below the target. ``initiator_host`` and ``target_host`` are the machines as they were typed
(``ssh://root@server``), several with commas; null in the lab. ``ip`` is the version, 4 or 6. ``curve`` is the
sweep's curve that the row is a point of. ``link_rtt`` (s), ``link_rate`` (bit/s), ``link_loss`` (0 to 1),
``link_window`` and ``link_mtu`` (bytes) are the link's place on the axes of sweeps. ``bandwidth_low_bytes_s``
and ``bandwidth_high_bytes_s`` are the interval that has 90 % of what would be measured. If ``is_estimated``,
the point was not measured.
"""
"""What a row is, and its columns, as docstrings say it: docs/schemas/export.json is made from it."""

COLUMNS = tuple(column.name for column in EXPORTED)
TAGS = tuple(column.name for column in EXPORTED if column.is_tag)
_MEASUREMENT = "harness"
_INFLUX_ESCAPES = str.maketrans({",": r"\,", "=": r"\=", " ": r"\ "})


def rows(
    records: Iterable[Record],
    environments: Mapping[str, Mapping[str, Any]] | None = None,
    plans: Mapping[str, Plan] | None = None,
    curves: Sequence[MeasuredCurve] = (),
) -> Iterator[Row]:
    """The rows of each record, by ``COLUMNS``: its reads, its writes, its synchronisations. Then those of the
    points of ``curves`` that were not measured.

    ``environments`` and ``plans``, by run id, say on which machines the records were made, and how.
    """
    names = {
        (run, place): each.curve.name for each in curves for place in each.grid for run in each.runs_of(place)
    }
    machines = {run: _machines(environment) for run, environment in (environments or {}).items()}
    for record in records:
        parts: list[tuple[str | None, Io | None, Latency | None]] = []
        parts += [("read", record.read, record.read.latency)] if record.read else []
        parts += [("write", record.write, record.write.latency)] if record.write else []
        parts += [("fsync", None, record.sync_latency)] if record.sync_latency else []
        for direction, moved, latency in parts or [(None, None, None)]:
            line = ExportLine(
                record=record,
                direction=direction,
                moved=moved,
                latency=latency or Latency(),
                plan=(plans or {}).get(record.run_id),
                curve=names.get((record.run_id, (record.column, record.workload.name))),
                estimate=None,
                **machines.get(record.run_id) or _machines({}),
            )
            yield {field.name: field.read(line) for field in EXPORTED}
    for each in curves:
        for place, estimate in each.estimates.items():
            plan = (plans or {})[each.runs_of(place)[0]]
            yield _estimated(each, place, estimate, plan, machines.get(plan.run_id) or _machines({}))


ESTIMATED = "estimated"
"""The status of a point that was not measured."""


def _estimated(
    curve: MeasuredCurve,
    place: Place,
    estimate: Estimate,
    plan: Plan,
    machines: Mapping[str, machine.Machine],
) -> Row:
    """The row of a point that was not measured: its throughput, and nothing that a measurement has."""
    workload, like = workloads(plan.jobs)[place[1]], next(iter(curve.records.values()))
    record = Record(
        run_id=plan.run_id,
        setting=like.setting,
        column=place[0],
        workload=workload,
        repeat=0,
        order=0,
        status=Status.SKIPPED,
        emulated=like.emulated,
        link_title=plan.links[place[0].link].title if place[0].link in plan.links else like.link_title,
        encrypts=like.encrypts,
    )
    direction = None if workload.direction == "both" else workload.direction
    line = ExportLine(
        record=record,
        direction=direction,
        moved=None,
        latency=Latency(),
        plan=plan,
        curve=curve.curve.name,
        estimate=estimate,
        **machines,
    )
    row = {field.name: field.read(line) for field in EXPORTED}
    iops = estimate.mid / workload.block_bytes if workload.block_bytes else None
    row |= dict.fromkeys(("repeat", "order", "wall_ns", "fio_ns", "disturbed", "is_disturbed"))
    return row | {"status": ESTIMATED, "bandwidth_bytes_s": estimate.mid, "iops": iops}


def _machines(environment: Mapping[str, Any]) -> dict[str, machine.Machine]:
    """The machines of both ends, and what the end that measures says of itself."""
    hosts = {name: fact for name, fact in environment.items() if name != machine.MACHINE}
    return {host: machine.machine_of(environment, host) for host in ENDS} | {
        "measured_by": machine.machine_of(hosts, ENDS[0])
    }


def encode(
    records: Iterable[Record],
    format: ExportFormat,
    environments: Mapping[str, Mapping[str, Any]] | None = None,
    plans: Mapping[str, Plan] | None = None,
    curves: Sequence[MeasuredCurve] = (),
) -> bytes:
    """All rows in ``format``. RequirementError if the package that writes the format is missing."""
    found = list(rows(records, environments, plans, curves))
    match format:
        case ExportFormat.CSV:
            lines = ([_csv_value(value) for value in row.values()] for row in found)
            return in_csv([COLUMNS, *lines]).encode() + b"\n"
        case ExportFormat.JSONL:
            return "".join(in_ascii(msgspec.json.encode(row).decode()) + "\n" for row in found).encode()
        case ExportFormat.INFLUX:
            return "".join(f"{_influx(row)}\n" for row in found).encode()
        case ExportFormat.OPENMETRICS:
            return openmetrics.written(found, {each.name: each.kind for each in EXPORTED}, TAGS)
        case ExportFormat.PARQUET:
            return _parquet(found)


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
    # A backslash at the end would escape what follows, and the protocol cannot escape it: it is removed.
    tags = ((name, printable(str(row[name])).rstrip("\\")) for name in TAGS if row[name] is not None)
    names = "".join(f",{name}={text.translate(_INFLUX_ESCAPES)}" for name, text in tags if text)
    fields = [(name, value) for name, value in row.items() if name not in TAGS]
    values = ",".join(f"{name}={_field(value)}" for name, value in fields if value not in (None, ""))
    started_s = row["started_unix_s"]
    # Exact: a product of floats would be off by some 100 ns.
    time = f" {round(Fraction(started_s) * 10**9)}" if isinstance(started_s, float) else ""
    return f"{_MEASUREMENT}{names} {values}{time}"


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
        raise lacks_package("Parquet", "pyarrow", "take --format csv or jsonl") from error
    kinds = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
    }
    # From the declared types, so that an empty column has the same type as always.
    schema = pyarrow.schema(
        [(field.name, kinds[field.kind]) for field in EXPORTED],
        metadata={
            "harness_version": __version__,
            "columns": "docs/schemas/export.json of storage-network-harness",
        },
    )
    table = pyarrow.Table.from_pylist([*found], schema=schema)
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink)
    return bytes(sink.getvalue())
