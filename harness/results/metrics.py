"""What tables, comparisons, exports and the report's matrix can show of a record, and in which direction.

A figure is declared once, as a ``Metric``; all of them have it from there.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from harness.model import Io, Latency, Record, Status
from harness.model.choices import Choice
from harness.model.telemetry import BUSIEST_CORE


class Of(enum.Enum):
    """What of a record a figure is read from, and so which rows it has.

    Those of transfers are added up over the directions of a mixed workload. Latencies of different
    operations never are. A record's own figure has no direction.
    """

    TRANSFER = Io
    LATENCY = Latency
    RECORD = Record


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """How a figure is read and shown.

    ``read`` takes what ``of`` says, and gives the figure as exports have it, in ``column``; None: unknown.
    ``scale`` of that are one ``unit`` of tables. ``title`` names it in few words, ``meaning`` in full. From
    ``whole_from`` on it has no ``decimals``. ``is_percentile``: fio must have reported it of all jobs
    together. ``is_tail``: a repeat's is what few of its I/Os had, or one core (``analysis.ratios``).
    ``in_report``: the report's matrix has it.
    """

    of: Of
    read: Callable[[Any], float | None]
    column: str
    unit: str
    title: str
    meaning: str
    scale: float = 1
    decimals: int = 2
    whole_from: float = math.inf
    higher_is_better: bool = False
    is_percentile: bool = False
    is_tail: bool = False
    in_report: bool = True


def _bytes(unit: str, scale: float, words: str, *, in_report: bool) -> Figure:
    return Figure(
        of=Of.TRANSFER,
        read=operator.attrgetter("bytes_per_s"),
        column="bandwidth_bytes_s",
        unit=unit,
        title=unit,
        meaning=f"{unit} ({words} bytes per second)",
        scale=scale,
        higher_is_better=True,
        in_report=in_report,
    )


def _latency(
    name: str, *, is_percentile: bool = True, is_tail: bool = False, in_report: bool = True
) -> Figure:
    field = f"{name.replace('.', '_')}_ns"
    return Figure(
        of=Of.LATENCY,
        read=operator.attrgetter(field),
        column=f"latency_{field}",
        unit="µs",
        title=f"{name} latency",
        meaning=f"{name} latency in µs",
        scale=1000,
        decimals=1,
        is_percentile=is_percentile,
        is_tail=is_tail,
        in_report=in_report,
    )


class Metric(Choice):
    """metric"""

    figure: Figure

    # Of a declared one alone; a word that a user types finds it without.
    def __new__(cls, name: str, *declared: Figure) -> Metric:
        made = str.__new__(cls, name)
        made._value_ = name
        (made.figure,) = declared
        return made

    MB_S = "MB/s", _bytes("MB/s", 1e6, "10^6", in_report=True)
    MIB_S = "MiB/s", _bytes("MiB/s", 2**20, "2^20", in_report=False)
    IOPS = (
        "IOPS",
        Figure(
            of=Of.TRANSFER,
            read=operator.attrgetter("iops"),
            column="iops",
            unit="IOPS",
            title="IOPS",
            meaning="IOPS",
            whole_from=10,
            higher_is_better=True,
        ),
    )
    MEAN = "mean", _latency("mean", is_percentile=False, in_report=False)
    P50 = "p50", _latency("p50")
    P99 = "p99", _latency("p99", is_tail=True)
    P99_9 = "p99.9", _latency("p99.9", is_tail=True, in_report=False)
    CORE = (
        "core",
        Figure(
            of=Of.RECORD,
            read=lambda record: BUSIEST_CORE.of(record.telemetry) if record.telemetry else None,
            column=BUSIEST_CORE.name,
            unit="%",
            title="busiest core",
            meaning="busy part of the busiest core in %",
            scale=0.01,
            decimals=1,
            is_tail=True,
            in_report=False,
        ),
    )
    STALL = (
        "stall",
        Figure(
            of=Of.RECORD,
            read=lambda record: record.stall.lasted_ns if record.stall else None,
            column="stall_ns",
            unit="s",
            title="stall",
            meaning="how long I/O stood still around a fault, in s",
            scale=1e9,
            is_tail=True,
            in_report=False,
        ),
    )


class Direction(enum.StrEnum):
    """The direction that a row shows. ``read+write`` is the sum of a mixed workload's reads and writes."""

    READ = "read"
    WRITE = "write"
    BOTH = "read+write"
    SYNC = "fsync"


def directions_of(record: Record) -> frozenset[Direction]:
    """What a record has figures of; empty if it is not ok."""
    if record.status is not Status.OK:
        return frozenset()
    reads = record.read is not None and record.read.bytes > 0
    writes = record.write is not None and record.write.bytes > 0
    has = {Direction.READ: reads, Direction.WRITE: writes, Direction.SYNC: record.sync_latency is not None}
    return frozenset(direction for direction, is_there in has.items() if is_there)


def in_direction(records: Sequence[Record], direction: Direction | None) -> Sequence[Record]:
    """Without those that have figures of other directions alone: a job of one name may read here, and write
    there."""
    if direction in (None, Direction.BOTH):
        return records
    return [record for record in records if not (found := directions_of(record)) or direction in found]


def parts_of(found: set[frozenset[Direction]], metric: Metric) -> list[Direction]:
    """Rates of a mixed workload are added up in one row. Latencies of different operations never are, nor are
    those of records that read or write alone."""
    is_latency = metric.figure.of is Of.LATENCY
    transfers = {directions - {Direction.SYNC} for directions in found} - {frozenset()}
    if not is_latency and len(transfers) == 1 and len(next(iter(transfers))) > 1:
        return [Direction.BOTH]
    every = frozenset().union(*(found if is_latency else transfers))
    return [direction for direction in Direction if direction in every]


def reader(direction: Direction | None, metric: Metric) -> Callable[[Record], float | None]:
    """The function that reads a row's figure from a record, in the metric's unit; None if it has none."""
    read, scale = metric.figure.read, metric.figure.scale
    names = (str(direction),) if direction in (Direction.READ, Direction.WRITE) else ("read", "write")

    def of_record(record: Record) -> float | None:
        found: Record | Latency | None = record
        if metric.figure.of is Of.LATENCY and direction is Direction.SYNC:
            found = record.sync_latency
        elif metric.figure.of is Of.LATENCY:
            io = record.read if direction is Direction.READ else record.write
            found = io.latency if io is not None else None
        value = None if found is None else read(found)
        return None if value is None else value / scale

    def transfer(record: Record) -> float | None:
        sides = [getattr(record, name) for name in names]
        if any(io is None or not io.runtime_ns for io in sides):
            return None
        return sum((read(io) or 0.0) / scale for io in sides)

    return transfer if metric.figure.of is Of.TRANSFER else of_record
