"""What a table can show of a record: its metrics, and in which direction."""

from __future__ import annotations

import enum
from collections.abc import Callable

from harness.model import Io, Latency, Record, Status
from harness.model.choices import Choice


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


class Direction(enum.StrEnum):
    """The direction that a row shows. BOTH is the sum of a mixed workload's reads and writes."""

    READ = "read"
    WRITE = "write"
    BOTH = "read+write"
    SYNC = "fsync"


_LATENCY_FIELDS = {
    Metric.MEAN: "mean_ns",
    Metric.P50: "p50_ns",
    Metric.P99: "p99_ns",
    Metric.P99_9: "p99_9_ns",
}


def directions_of(record: Record) -> frozenset[Direction]:
    """What a record has figures of; empty if it is not ok."""
    if record.status is not Status.OK:
        return frozenset()
    reads = record.read is not None and record.read.bytes > 0
    writes = record.write is not None and record.write.bytes > 0
    has = {Direction.READ: reads, Direction.WRITE: writes, Direction.SYNC: record.sync_latency is not None}
    return frozenset(direction for direction, is_there in has.items() if is_there)


def parts_of(found: set[frozenset[Direction]], metric: Metric) -> list[Direction]:
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
