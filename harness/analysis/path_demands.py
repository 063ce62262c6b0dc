"""What one I/O asks of the path: its dialogue's packets, and the times that follow from them alone."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from harness.analysis import theory, wire
from harness.analysis.critical_path import Bursts, Crossing, critical_path
from harness.analysis.theory import Burst, Dialogue, Framing, IoDirection, Wire
from harness.analysis.wire.iscsi import WINDOW_BYTES, cut
from harness.model import ENDS, Duplex, End, LinkProfile
from harness.model.units import positive

LEAST_TIMEOUT_NS, PROBE_NS, TAIL = 200e6, 8e6, 3
"""What TCP waits before it sends again what nobody acknowledged: of a packet on its own (TCP_RTO_MIN in
include/net/tcp.h), and of the last of several, of which so many have too few behind them to tell
(TCP_TIMEOUT_MIN: two jiffies, at 250 a second; RFC 8985, section 7)."""


class Sealed(msgspec.Struct, frozen=True):
    """What one end encrypts for one I/O and the other decrypts: packets with data, without bare ACKs."""

    by: End
    packets: int
    bytes: int


class Demands(Bursts, frozen=True, kw_only=True):
    """Times of one I/O, in ns. The first five add up to its time at depth 1, without device and processors:
    they are the critical path.

    - ``round_trip_ns``: one round trip. ``transport_ns``: headers, and the round trips of R2Ts.
    - ``window_ns``: waits for ACKs in the middle of a burst that does not fit into the TCP window.
    - ``link_ns``: the data in full TCP segments. ``framing_ns``: extra wire time of the same dialogue
      with protection.
    - ``more_trips_ns``: of ``transport_ns``, the round trips.
    - ``lost_ns``: what waiting for lost packets takes of one I/O alone; of it until others tell of it
      (``lost_again_ns``), and for probes (``lost_probes_ns``).
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
    window_each_ns: float
    mss_bytes: int
    packets: int = 0
    full_packets: int = 0
    sealed: tuple[Sealed, ...] = ()
    lost_ns: float = 0.0
    lost_again_ns: float = 0.0
    lost_probes_ns: float = 0.0
    more_trips_ns: float = 0.0

    def lost_at_ns(self, depth: int) -> float:
        """What waiting for lost packets adds to the time between two completions: one connection waits for
        all of them, and the more is in flight, the more seldom for a probe."""
        return self.lost_ns if depth == 1 else self.lost_again_ns + self.lost_probes_ns / depth

    @property
    def alone_ns(self) -> float:
        """All that a single I/O pays for."""
        return self.round_trip_ns + self.window_ns + self.link_ns + self.transport_ns + self.framing_ns

    def least_ns(self, depth: int) -> float:
        """The least time between two completions with so many in flight, whatever processors and disks do."""
        return max(self.alone_ns / depth, self.busy_ns, self.window_each_ns)

    def is_window_narrow(self, depth: int) -> bool:
        """Whether TCP's window limits: at depth 1 its waits are longer than a round trip, at greater depth it
        is tighter than the link."""
        return self.window_ns > self.round_trip_ns if depth == 1 else self.window_each_ns > self.busy_ns

    def scaled(self, factor: float) -> Demands:
        """All times multiplied by a factor, but for those of single legs."""
        return msgspec.structs.replace(self, **{name: getattr(self, name) * factor for name in _TIMES})


_TIMES = tuple(name for name in Demands.__struct_fields__ if name.endswith("_ns"))


def dialogue_of(transport: str, agreed: Mapping[str, str], direction: IoDirection) -> Dialogue | None:
    """How the two ends talk; None if the record does not have what they agreed on.

    What waits for a narrow window fills up segments, which saves 1 % of the packets; that is left out.
    """
    return wire.transport(transport).dialogue(agreed, direction, WINDOW_BYTES)


def of_session(
    link: LinkProfile,
    framing: Framing | None,
    transport: str,
    session: Mapping[str, str],
    direction: IoDirection,
    block_bytes: int,
) -> Demands | None:
    """What an I/O takes by what the ends agreed on, and the window of the link or of the transport's
    sockets; None if too little of it is known."""
    window_bytes = link.tcp_window_bytes or wire.transport(transport).window_bytes
    dialogue = dialogue_of(transport, session, direction)
    if dialogue is None:
        return None
    return of_dialogue(
        link,
        framing,
        dialogue,
        direction,
        block_bytes,
        command_bytes=positive(session, "max_sectors_kb") * 1024 or None,
        window_bytes=window_bytes,
    )


@functools.lru_cache(maxsize=1024)
def of_dialogue(
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
    # On a shared medium the ACKs take their turn; otherwise they pass in the other direction.
    shared = link.duplex is Duplex.HALF
    acks_s = sum(_acks_s(plain, bursts) for bursts in without) if shared else 0.0
    acks_framed_s = sum(_acks_s(wire, bursts) for bursts in within) if shared else 0.0
    data_s = plain.serialisation_s(theory.segmented([(block_bytes, False)], plain.mss_bytes))
    data_s += _stored_s(plain, without) + acks_s
    bare_s, framed_s = _sent_s(plain, without) + acks_s, _sent_s(wire, within) + acks_framed_s
    delay_ns = link.path_delay_us * 1e3
    rtt_ns = 2 * delay_ns + 1e9 * wire.serialisation_s([wire.mss_bytes, 0])
    most_bytes = _in_flight(link, wire.mss_bytes, rtt_ns, window_bytes)
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
    lost_ns, again_ns, probes_ns = _lost_ns(link, within, rtt_ns)
    legs = tuple(_legs(wire, within, acks_framed_s))
    of_rounds = itertools.groupby(legs, key=lambda leg: leg.round)
    made = Demands(
        least_link_ns=sum(min(leg.one_ns for leg in of_round) for _, of_round in of_rounds),
        round_trip_ns=2 * delay_ns,
        window_ns=0.0,
        link_ns=0.0,
        transport_ns=0.0,
        framing_ns=0.0,
        busy_ns=(sum(ways.values()) if shared else max(ways.values())) * 1e9,
        window_each_ns=block_bytes / most_bytes * rtt_ns if most_bytes else 0.0,
        r2ts=max(map(len, within)) // 2 - 1,
        mss_bytes=wire.mss_bytes,
        window_bytes=most_bytes,
        packets=packets,
        full_packets=full_packets,
        sealed=tuple(_sealed(wire, framing, end, within) for end in ENDS) if framing is not None else (),
        lost_ns=lost_ns,
        lost_again_ns=again_ns,
        lost_probes_ns=probes_ns,
        one_way_ns=delay_ns,
        ways={end: 1e9 * time_s for end, time_s in ways.items()},
        legs=legs,
        is_shared=shared,
    )
    # The link's part of the critical path is data, then the protection's framing, then headers.
    alone = critical_path(made, {})
    trips_ns, more_trips_ns = min(2 * delay_ns, alone.delay_ns), max(0.0, alone.delay_ns - 2 * delay_ns)
    link_ns = min(1e9 * data_s, alone.link_ns)
    framing_ns = min(max(0.0, 1e9 * (framed_s - bare_s)), alone.link_ns - link_ns)
    return msgspec.structs.replace(
        made,
        round_trip_ns=trips_ns,
        window_ns=alone.window_ns,
        link_ns=link_ns,
        transport_ns=alone.link_ns - link_ns - framing_ns + more_trips_ns,
        more_trips_ns=more_trips_ns,
        framing_ns=framing_ns,
    )


def _in_flight(link: LinkProfile, mss_bytes: int, rtt_ns: float, window_bytes: int | None) -> int | None:
    """How much TCP has in flight at most: its window (RFC 9293, section 3.8.6), or what losses leave of it:
    CUBIC's average (RFC 9438, section 5.1), or Reno's where that is more (Mathis and others, 1997)."""
    part = link.loss_percent / 100
    if part <= 0:
        return window_bytes
    segments = max(math.sqrt(1.5 / part), 1.054 * (1e-9 * rtt_ns / part) ** 0.75, 1.0)
    lossy = int(segments * mss_bytes)
    return min(lossy, window_bytes) if window_bytes else lossy


def _lost_ns(
    link: LinkProfile, dialogues: Sequence[Sequence[Burst]], rtt_ns: float
) -> tuple[float, float, float]:
    """How long an I/O waits for lost packets on average, alone and with others in flight.

    What follows a lost packet tells of it, and it is sent again within a round trip, in which what came
    after it waits. The last packets of a burst wait for a probe if nothing else is in flight, and a packet
    on its own for TCP's timeout. Returned are the sum for one I/O alone, the first part, and the probes.
    """
    part = link.loss_percent / 100
    bursts = [len(burst.segments) for dialogue in dialogues for burst in dialogue]
    again_ns = part * sum(bursts) * rtt_ns
    probes_ns = part * PROBE_NS * sum(min(count, TAIL) for count in bursts)
    of_one_ns = part * (LEAST_TIMEOUT_NS - PROBE_NS) * bursts.count(1) if len(dialogues) == 1 else 0.0
    return again_ns + probes_ns + of_one_ns, again_ns, probes_ns


def _legs(wire: Wire, dialogues: Sequence[Sequence[Burst]], acks_s: float) -> Iterator[Crossing]:
    """All bursts, in the order in which they are sent: of each round that of the first command first."""
    sizes = [
        [(burst, sum(map(wire.frame_bytes, burst.segments))) for burst in bursts] for bursts in dialogues
    ]
    frames = sum(len(burst.segments) for bursts in dialogues for burst in bursts)
    whole = sum(size for of in sizes for _, size in of)
    for number, of_round in enumerate(itertools.zip_longest(*sizes)):
        for command, each in enumerate(of_round):
            if each is not None:
                burst, size = each
                segments = burst.segments
                yield Crossing(
                    by=burst.by,
                    command=command,
                    round=number,
                    bytes=sum(segments),
                    packets=len(segments),
                    # As much work for packets as for bytes: no list tells them apart for a burst.
                    part=(len(segments) / frames + size / whole) / 2,
                    link_ns=1e9 * (wire.serialisation_s(segments) + acks_s * len(segments) / frames),
                    stored_ns=1e9 * wire.stored_s(segments),
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
