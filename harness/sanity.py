"""Figures that cannot be: faster than the link, or than the disk behind it.

Pure: a record, and what its plan and its run say of the link and of the local disk. Data that was
not on the wire at all is the matter of ``harness.proof``. Each bound errs towards letting a figure pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.model import LINK_LOCAL, Duplex, Io, LinkProfile, Record, Status

ETHERNET_HEADER_BYTES = 14
TOLERANCE = 0.02
"""What clocks, and frames at the beginning and end of a measurement, may add to a link."""

LOCAL_MARGIN = 0.10
"""What the network would have to make faster for it to be no noise."""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """``reasons`` make a cell invalid, ``warnings`` stay beside its number; sentences without a full stop."""

    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check(record: Record, *, link: LinkProfile | None, local: Sequence[Record] = ()) -> Findings:
    """What is impossible or odd about a measured record.

    ``link`` is the profile of its link, None if it has none. ``local`` are records of the same
    workload without a network, of the same run: as many as there are by now, in any status.
    """
    if record.link == LINK_LOCAL:
        return Findings()
    good = [other for other in local if other.link == LINK_LOCAL and other.status is Status.OK]
    reasons = [*_beyond_link(record, link)] if link is not None else []
    return Findings(
        reasons=(*reasons, *_beyond_disk(record, good)),
        warnings=tuple(_below_local(record, good)),
    )


def _beyond_link(record: Record, link: LinkProfile) -> list[str]:
    found = []
    if link.rate_bit_s is not None:
        # No bound of TCP's: netem charges a super-packet of 64 KB the headers of one frame (harness.links).
        frame_bytes = link.mtu_bytes + ETHERNET_HEADER_BYTES
        share = frame_bytes / (frame_bytes + link.frame_overhead_bytes)
        most = link.rate_bit_s / 8 * share
        rates = [io.bytes_per_s for io in _sides(record)]
        rate = sum(rates) if link.duplex is Duplex.HALF else max(rates, default=0.0)
        if rate > most * (1 + TOLERANCE):
            found.append(f"{_mb_s(rate)} were measured, but the link carries at most {_mb_s(most)}")
    round_trip_ns = 2000 * max(0.0, link.path_delay_us - link.jitter_us) * (1 - TOLERANCE)
    lowest = min((io.latency.min_ns for io in _sides(record) if io.latency.min_ns is not None), default=None)
    if lowest is not None and lowest < round_trip_ns:
        found.append(
            f"an I/O took {lowest / 1000:.1f} us, but the link's round trip alone takes "
            f"{2 * link.path_delay_us:g} us"
        )
    return found


def _beyond_disk(record: Record, local: Sequence[Record]) -> list[str]:
    """Writes that are faster than the fastest to the same disk without a network were not written to it."""
    rates = [other.write.bytes_per_s for other in local if other.write is not None]
    if record.write is None or not rates or record.write.bytes_per_s <= max(rates) * (1 + LOCAL_MARGIN):
        return []
    return [
        f"{_mb_s(record.write.bytes_per_s)} were written, but the disk took at most {_mb_s(max(rates))} "
        "without a network: something on the way keeps writes back"
    ]


def _below_local(record: Record, local: Sequence[Record]) -> list[str]:
    found = []
    for direction in ("read", "write"):
        mean = _mean_ns(getattr(record, direction))
        means = [value for other in local if (value := _mean_ns(getattr(other, direction))) is not None]
        if mean is not None and means and mean < min(means) * (1 - LOCAL_MARGIN):
            found.append(
                f"a {direction} takes {mean / 1000:.1f} us over the network, but {min(means) / 1000:.1f} us "
                "without it: something on the way may cache"
            )
    return found


def _sides(record: Record) -> list[Io]:
    return [io for io in (record.read, record.write) if io is not None]


def _mean_ns(io: Io | None) -> float | None:
    return io.latency.mean_ns if io is not None else None


def _mb_s(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.2f} MB/s"
