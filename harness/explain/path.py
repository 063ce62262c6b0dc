"""What framing and round trips of a path take for one I/O: times in closed form.

A single I/O pays for all of it in sequence (``theory``). With many I/Os in flight, each direction of the link
carries all frames that go its way. So the busier direction counts (``busy_ns``), and the delay is shared.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import msgspec

from harness.analysis import theory, wire
from harness.analysis.interval import Interval
from harness.analysis.theory import Burst, Dialogue, Framing, IoDirection, Wire
from harness.analysis.wire.iscsi import WINDOW_BYTES, cut
from harness.model import ENDS, Duplex, End, LinkProfile
from harness.model.units import positive


class Sealed(msgspec.Struct, frozen=True):
    """What one end encrypts for one I/O and the other decrypts: packets with data, without bare ACKs."""

    by: End
    packets: int
    bytes: int


class Demands(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one I/O, in ns. The first five add up to its time at depth 1, without device and processors.

    - ``round_trip_ns``: one round trip. ``transport_ns``: headers, and the round trips of R2Ts.
    - ``window_ns``: waits for ACKs in the middle of a burst that does not fit into the TCP window.
    - ``link_ns``: the data in full TCP segments. ``framing_ns``: extra wire time of the same dialogue
      with protection.
    - ``busy_ns``: how long the busier direction is occupied; both together if they share the medium.
    - ``window_each_ns``: the least time per I/O that the window allows, at any depth.
    - ``packets``: how many the ends hand to the link, both ways with bare ACKs; a super-packet of TCP is one,
      but what is protected is cut up before. ``full_packets``: the same where others wait. Without protection
      these wait for the link, so that TCP fills up what it adds (tcp_autocorking); with one they wait for a
      core, so that who receives in a thread (``theory.Dialogue``) acknowledges a burst once at most.
    - ``sealed``: what there is to encrypt; empty without protection.
    """

    round_trip_ns: float
    window_ns: float
    link_ns: float
    transport_ns: float
    framing_ns: float
    busy_ns: float
    window_each_ns: float
    r2ts: int
    mss_bytes: int
    window_bytes: int | None
    packets: int = 0
    full_packets: int = 0
    sealed: tuple[Sealed, ...] = ()

    @property
    def round_trips(self) -> int:
        """How often one I/O goes there and back."""
        return self.r2ts + 1

    @property
    def alone_ns(self) -> float:
        """All that a single I/O pays for."""
        return self.round_trip_ns + self.window_ns + self.link_ns + self.transport_ns + self.framing_ns

    def is_window_narrow(self, depth: int) -> bool:
        """Whether TCP's window limits: at depth 1 its waits are longer than a round trip, at greater depth it
        is tighter than the link."""
        return self.window_ns > self.round_trip_ns if depth == 1 else self.window_each_ns > self.busy_ns

    def scaled(self, factor: float) -> Demands:
        """All times multiplied by a factor."""
        return msgspec.structs.replace(self, **{name: getattr(self, name) * factor for name in _TIMES})


_TIMES = tuple(name for name in Demands.__struct_fields__ if name.endswith("_ns"))


def measured_link(profile: LinkProfile, rtt_ns: Interval | None, rate_bit_s: int | None) -> LinkProfile:
    """A real link as it was found: half a ping's time each way, and the rate that its interfaces say.

    What one TCP stream reached is no rate of a link: a core, a window or a loss may have held it back. An
    emulated link is what its profile says. In the lab a ping takes longer than that, because the processor
    has to wake up; an I/O that follows another does not wait for that.
    """
    if profile.interface is None:
        return profile
    delay_us = profile.delay_us if rtt_ns is None else rtt_ns.mid / 2000
    return msgspec.structs.replace(profile, delay_us=delay_us, rate_bit_s=rate_bit_s)


def dialogue_of(
    transport: str, agreed: Mapping[str, str], direction: IoDirection, window_bytes: int | None
) -> Dialogue | None:
    """How the two ends talk; None if the record does not have what they agreed on."""
    return wire.transport(transport).dialogue(agreed, direction, window_bytes or WINDOW_BYTES)


def agreed_demands(
    link: LinkProfile,
    framing: Framing | None,
    transport: str,
    session: Mapping[str, str],
    direction: IoDirection,
    block_bytes: int,
) -> Demands | None:
    """``demands`` by what the ends agreed on, and the window of the link or of the transport's sockets; None
    if too little of it is known."""
    window_bytes = link.tcp_window_bytes or wire.transport(transport).window_bytes
    dialogue = dialogue_of(transport, session, direction, window_bytes)
    if dialogue is None:
        return None
    return demands(
        link,
        framing,
        dialogue,
        direction,
        block_bytes,
        command_bytes=positive(session, "max_sectors_kb") * 1024 or None,
        window_bytes=window_bytes,
    )


@functools.lru_cache(maxsize=1024)
def demands(
    link: LinkProfile,
    framing: Framing | None,
    dialogue: Dialogue,
    direction: IoDirection,
    block_bytes: int,
    *,
    command_bytes: int | None = None,
    window_bytes: int | None = None,
) -> Demands:
    """What ``block_bytes`` take, as commands of at most ``command_bytes`` that travel side by side."""
    plain, wire = Wire(link=link), Wire(link=link, framing=framing)
    commands = list(cut(block_bytes, command_bytes or block_bytes))
    without = [dialogue.bursts(plain, direction, length) for length in commands]
    within = [dialogue.bursts(wire, direction, length) for length in commands]
    bare_s, alone_s = _sent_s(plain, without), _sent_s(wire, within)
    # On a shared medium the ACKs take their turn; otherwise they pass in the other direction.
    shared = link.duplex is Duplex.HALF
    acks_s = sum(_acks_s(plain, bursts) for bursts in without) if shared else 0.0
    acks_framed_s = sum(_acks_s(wire, bursts) for bursts in within) if shared else 0.0
    data_s = plain.serialisation_s(theory.segmented([(block_bytes, False)], plain.mss_bytes))
    delay_s = link.path_delay_us * 1e-6
    data_s += _stored_s(plain, without)
    longest = max(map(len, within))
    rtt_s = 2 * delay_s + wire.serialisation_s([wire.mss_bytes, 0])
    stalls_s = each_s = 0.0
    if window_bytes is not None:
        # RFC 9293, section 3.8.6: no more than a window is in flight, so one window's bytes per round trip.
        turn_s = wire.serialisation_s([wire.mss_bytes] * max(1, window_bytes // wire.mss_bytes))
        # Commands travel side by side, and share the window.
        side_by_side = itertools.zip_longest(*within)
        lengths = [sum(sum(burst.segments) for burst in turn if burst) for turn in side_by_side]
        stalls_s = sum((-(-max(1, length) // window_bytes) - 1) for length in lengths) * max(
            0.0, rtt_s - turn_s
        )
        each_s = block_bytes / window_bytes * rtt_s
    ways = {"initiator": acks_framed_s / 2, "target": acks_framed_s / 2} if shared else {}
    bare = [theory.acks(bursts, wire.mss_bytes)[0] for bursts in within]
    for bursts, counts in zip(within, bare, strict=True):
        for burst in bursts:
            ways[burst.by] = ways.get(burst.by, 0.0) + wire.serialisation_s(burst.segments)
        if not shared:
            for end, count in counts.items():
                ways[end] = ways.get(end, 0.0) + wire.serialisation_s([0] * count)
    if framing is None:
        packets, full_packets = _super_packets(link, dialogue, direction, commands)
    else:
        segments = sum(len(burst.segments) for bursts in within for burst in bursts)
        packets = segments + sum(sum(counts.values()) for counts in bare)
        full_packets = segments + sum(
            min(count, sum(burst.by != end for burst in bursts)) if end in dialogue.threads else count
            for bursts, counts in zip(within, bare, strict=True)
            for end, count in counts.items()
        )
    return Demands(
        round_trip_ns=2 * delay_s * 1e9,
        window_ns=stalls_s * 1e9,
        link_ns=(data_s + acks_s) * 1e9,
        transport_ns=(bare_s - data_s + (longest - 2) * delay_s) * 1e9,
        framing_ns=(alone_s - bare_s + acks_framed_s - acks_s) * 1e9,
        busy_ns=(sum(ways.values()) if shared else max(ways.values())) * 1e9,
        window_each_ns=each_s * 1e9,
        r2ts=longest // 2 - 1,
        mss_bytes=wire.mss_bytes,
        window_bytes=window_bytes,
        packets=packets,
        full_packets=full_packets,
        sealed=tuple(_sealed(wire, framing, end, within) for end in ENDS) if framing is not None else (),
    )


SUPER_PACKET_BYTES = 65535
"""The longest packet of IPv4, and of GSO (GSO_LEGACY_MAX_SIZE in include/linux/netdevice.h)."""


def _super_packets(
    link: LinkProfile, dialogue: Dialogue, direction: IoDirection, commands: list[int]
) -> tuple[int, int]:
    """How many super-packets with their ACKs, as they are written, and if TCP fills up all after a burst's
    first. What is longer than a segment is acknowledged at once (``theory.Receiver``)."""
    wire = Wire(link=msgspec.structs.replace(link, mtu_bytes=SUPER_PACKET_BYTES))
    bursts = [burst.segments for length in commands for burst in dialogue.bursts(wire, direction, length)]
    filled = [(first, *cut(sum(rest), wire.mss_bytes)) for first, *rest in bursts]
    segment_bytes = Wire(link=link).mss_bytes
    written, full = (
        sum(1 + (length > segment_bytes) for burst in each for length in burst) for each in (bursts, filled)
    )
    return written, full


def _sealed(wire: Wire, framing: Framing, end: End, dialogues: list[list[Burst]]) -> Sealed:
    lengths = [
        wire.headers_bytes + data_bytes
        for dialogue in dialogues
        for burst in dialogue
        if burst.by == end
        for data_bytes in burst.segments
    ]
    return Sealed(by=end, packets=len(lengths), bytes=sum(map(framing.sealed_bytes, lengths)))


def _stored_s(wire: Wire, dialogues: list[list[Burst]]) -> float:
    """What the hops of a link add: each receives a whole frame before it sends the frame on."""
    return sum(wire.stored_s(burst.segments) for dialogue in dialogues for burst in dialogue)


def _sent_s(wire: Wire, dialogues: list[list[Burst]]) -> float:
    """How long bursts take from the first byte sent until the last has arrived, without propagation."""
    serial_s = sum(wire.serialisation_s(burst.segments) for dialogue in dialogues for burst in dialogue)
    return serial_s + _stored_s(wire, dialogues)


def _acks_s(wire: Wire, dialogue: list[Burst]) -> float:
    return wire.serialisation_s([0] * sum(theory.acks(dialogue, wire.mss_bytes)[0].values()))
