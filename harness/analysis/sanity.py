"""Impossible figures: faster than the link, or than the disk behind it.

Pure functions: a record, and what its plan and its run say about the link and the local disk.
(``protection.proof`` finds data that was not on the wire at all.) Each bound errs towards accepting a figure.
A figure beyond a known rate makes a cell invalid. A figure that is only beyond other measurements gives a
warning, because those vary and have caches of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from harness.analysis import disturbance
from harness.analysis.theory import ETHERNET_HEADER_BYTES
from harness.model import (
    LINK_LOCAL,
    ClientPart,
    DiskProfile,
    Duplex,
    Io,
    Latency,
    LinkProfile,
    Record,
    Status,
)

TOLERANCE = 0.02
"""What clocks, and frames at the beginning and end of a measurement, may add to a link's figure."""

LOCAL_MARGIN = 0.10
"""How much faster than the local disk a figure must be to be more than noise."""


def check(
    record: Record,
    *,
    link: LinkProfile | None = None,
    disk: DiskProfile | None = None,
    local: Sequence[Record] = (),
) -> Record:
    """The record with what is impossible or unlikely about it: reasons, which make it invalid, and warnings.

    ``link`` is the profile of its link, or None; ``disk`` is the modelled disk below the target, or None.
    ``local`` are the run's records so far of the same workload on the same storage without a network, in any
    status. Each of several initiators has its own link, so together they may well be faster than one that
    uses the disk itself.
    """
    reasons = _beyond_model(record, disk) if disk is not None else []
    warnings: list[str] = []
    if record.column.link != LINK_LOCAL:
        for part in record.clients or (record,):
            reasons += _beyond_link(part, link) if link is not None else []
        if record.column.initiators == 1:
            good = [other for other in disturbance.quiet(local) if other.column.link == LINK_LOCAL]
            warnings = _beyond_disk(record, good) + _below_local(record, good)
    known = [record.reason] if record.reason is not None else []
    return msgspec.structs.replace(
        record,
        status=Status.INVALID if reasons and record.status is Status.OK else record.status,
        reason="; ".join([*known, *dict.fromkeys(reasons)]) or None,
        warnings=(*record.warnings, *warnings),
    )


def contradictions(record: Record) -> list[str]:
    """What a record says against itself, which no measurement does: somebody edited or damaged it.

    Each sentence compares what the harness wrote of one fact in two places. A figure that is unknown in one
    of them is not compared.
    """
    found = []
    for part in record.clients or (record,):
        moved = sum(io.bytes for io in _sides(part))
        if part.proof is not None and record.column.link != LINK_LOCAL:
            crossed = min(part.proof.link_bytes)
            if moved > crossed:
                found.append(f"fio moved {moved} bytes, but only {crossed} crossed the link")
    sides = _sides(record)
    longest_ns = max((io.runtime_ns for io in sides), default=0)
    if record.fio_ns and longest_ns != record.fio_ns:
        found.append(f"fio measured for {record.fio_ns} ns, but its I/Os took {longest_ns} ns")
    for io in sides:
        # Twice, because the size is the workload's, and the bytes are fio's.
        if record.workload.block_bytes and io.bytes > 2 * io.ios * record.workload.block_bytes:
            found.append(f"{io.ios} I/Os of {record.workload.block_bytes} bytes moved {io.bytes} bytes")
        found += _out_of_order(io.latency)
    return found


def _out_of_order(latency: Latency) -> Iterator[str]:
    pairs = (
        ("min", latency.min_ns, "mean", latency.mean_ns),
        ("mean", latency.mean_ns, "max", latency.max_ns),
        ("p50", latency.p50_ns, "p99", latency.p99_ns),
        ("p99", latency.p99_ns, "p99.9", latency.p99_9_ns),
    )
    for name, low, other, high in pairs:
        # fio prints the mean with six decimals.
        if low is not None and high is not None and low > high + 1:
            yield f"its {name} latency ({low:g} ns) is above its {other} ({high:g} ns)"


def pre_existing(link: LinkProfile, ends: Iterable[Mapping[str, object]]) -> LinkProfile:
    """A link over real interfaces, as fast as the slower Ethernet card; ``ends`` describe the interfaces.

    Other interfaces (bridges, bonds, virtual ones) report a speed that they do not keep to.
    """
    speeds = [
        speed
        for end in ends
        if end.get("kind") == "ethernet" and isinstance(speed := end.get("speed_mbit_s"), int) and speed > 0
    ]
    return msgspec.structs.replace(link, rate_bit_s=min(speeds) * 10**6) if speeds else link


def _beyond_link(record: Record | ClientPart, link: LinkProfile) -> list[str]:
    found = []
    if link.rate_bit_s is not None:
        # Not TCP's bound: netem charges a super-packet of 64 KB the headers of one frame (network.links).
        frame_bytes = link.mtu_bytes + ETHERNET_HEADER_BYTES
        share = frame_bytes / (frame_bytes + link.frame_overhead_bytes)
        most = link.rate_bit_s / 8 * share
        rates = [io.bytes_per_s for io in _sides(record)]
        rate = sum(rates) if link.duplex is Duplex.HALF else max(rates, default=0.0)
        if rate > most * (1 + TOLERANCE):
            found.append(f"measured {_mb_s(rate)}, but the link carries at most {_mb_s(most)}")
    round_trip_ns = 2000 * max(0.0, link.path_delay_us - link.jitter_us) * (1 - TOLERANCE)
    lowest = min((io.latency.min_ns for io in _sides(record) if io.latency.min_ns is not None), default=None)
    if lowest is not None and lowest < round_trip_ns:
        found.append(
            f"an I/O took {lowest / 1000:.1f} us, but the link's round trip alone takes "
            f"{2 * link.path_delay_us:g} us"
        )
    return found


def _beyond_model(record: Record, disk: DiskProfile) -> list[str]:
    """The rate of a modelled disk is known. (One with moving parts may have read ahead before.)"""
    found = []
    for io in _sides(record):
        if disk.moving is not None:
            rate, ahead = float(disk.moving.rate_bytes_s), disk.moving.read_ahead_bytes
        elif disk.flash is not None:
            rate, ahead = disk.flash.pages_at_once * disk.flash.page_bytes * 1e6 / disk.flash.page_us, 0
        else:
            return []
        if io.bytes - ahead > rate * io.runtime_ns / 1e9 * (1 + TOLERANCE):
            found.append(f"measured {_mb_s(io.bytes_per_s)}, but the disk moves at most {_mb_s(rate)}")
    return found


def _beyond_disk(record: Record, local: Sequence[Record]) -> list[str]:
    """Writes that are faster than the fastest to the same disk without a network may not be on the disk."""
    rates = [other.write.bytes_per_s for other in local if other.write is not None]
    if record.write is None or not rates or record.write.bytes_per_s <= max(rates) * (1 + LOCAL_MARGIN):
        return []
    return ["writes are faster than to the disk without a network: something in between may cache them"]


def _below_local(record: Record, local: Sequence[Record]) -> list[str]:
    found = []
    for direction in ("read", "write"):
        mean = _mean_ns(getattr(record, direction))
        means = [value for other in local if (value := _mean_ns(getattr(other, direction))) is not None]
        if mean is not None and means and mean < min(means) * (1 - LOCAL_MARGIN):
            found.append(f"a {direction} takes less time than without the network: something may cache it")
    return found


def _sides(record: Record | ClientPart) -> list[Io]:
    return [io for io in (record.read, record.write) if io is not None]


def _mean_ns(io: Io | None) -> float | None:
    return io.latency.mean_ns if io is not None else None


def _mb_s(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.2f} MB/s"
