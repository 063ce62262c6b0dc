"""What a link lets through at most, from its profile alone: rate, round trips and framing.

The closed forms leave out disks, processors and ciphers: a cell far below its bound is limited by something
else. docs/theory.md has the formulas with their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.theory import Framing, Wire
from harness.model import LinkProfile
from harness.model.units import positive

if TYPE_CHECKING:
    from harness.analysis.wire import WireProtocol


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a cell can move, in bytes per second. None: the profile sets no such bound.

    ``in_flight_bytes`` is the number of bytes in flight, ``round_trips`` how often one I/O crosses the link
    and back. ``alone`` is true for a single request at a time: it takes at least a round trip plus the
    transfer of all its bytes.
    """

    in_flight_bytes: int
    round_trips: int
    by_round_trip: float | None
    by_rate: float | None
    alone: bool

    @property
    def bytes_per_s(self) -> float | None:
        found = [bound for bound in (self.by_round_trip, self.by_rate) if bound is not None]
        if self.alone and self.by_round_trip is not None and self.by_rate is not None:
            found.append(1 / (1 / (self.by_round_trip * self.round_trips) + 1 / self.by_rate))
        return min(found, default=None)


def of_cell(
    link: LinkProfile,
    framing: Framing | None,
    session: Mapping[str, str],
    transport: WireProtocol,
    *,
    depth: int,
    block_bytes: int,
    writes: bool,
) -> Bound:
    """The bound of I/Os of ``block_bytes``, ``depth`` at a time, in a session as negotiated."""
    piece = _piece_bytes(session, block_bytes)
    in_flight = depth * block_bytes
    if queue := transport.most_commands(session):
        in_flight = min(in_flight, queue * piece)
    trips = write_round_trips(session, transport, block_bytes) if writes else 1
    rtt_s = round_trip_s(link)
    goodput = goodput_bytes_per_s(link, framing)
    data = block_bytes / (block_bytes + transport.header_bytes(session, block_bytes))
    return Bound(
        in_flight_bytes=in_flight,
        round_trips=trips,
        by_round_trip=in_flight / (trips * rtt_s) if rtt_s else None,
        by_rate=goodput * data if goodput else None,
        alone=depth == 1,
    )


def write_round_trips(session: Mapping[str, str], transport: WireProtocol, block_bytes: int) -> int:
    """How often a write of ``block_bytes`` crosses the link and back, in a session as negotiated."""
    return transport.write_round_trips(session, _piece_bytes(session, block_bytes))


def _piece_bytes(session: Mapping[str, str], block_bytes: int) -> int:
    """The block layer splits a request that is larger than the target's commands; the pieces travel side by
    side."""
    limit_kib = positive(session, "max_sectors_kb")
    return min(block_bytes, limit_kib * 1024) if limit_kib else block_bytes


FULL = 0.965
"""From this part of its goodput on a link is full; TCP's options, VLANs and ESP's mode take the rest."""


def round_trip_s(link: LinkProfile) -> float | None:
    """One round trip of the idle link, without the time to send packets; None: the profile has no delay."""
    return 2e-6 * link.path_delay_us or None


def goodput_bytes_per_s(link: LinkProfile, framing: Framing | None = None) -> float | None:
    """TCP payload in full frames, one way. None: the link is unshaped, or its MTU is too small for any.

    ``framing`` is that of the column's protection. One that is unknown counts as none: the bound is then too
    high, never too low.
    """
    if link.rate_bit_s is None:
        return None
    wire = Wire(link=link, framing=framing)
    payload = wire.mss_bytes
    frame = wire.frame_bytes(payload) + link.frame_overhead_bytes
    return link.rate_bit_s / 8 * payload / frame if payload > 0 else None
