"""One I/O as packets through stations: what each works on it, and how long it takes.

Stations are the ends' cores, each direction of the link (or the air, which both share) and the device. A
burst of a transport's dialogue (``theory.Dialogue``) leaves one core, crosses the link and arrives at the
other core in pieces, and a station that works on one piece lets the one before it go on: it leaves at
max(it arrived, the station was free) + the station's work. Pieces of a burst are alike, so that this
recursion (max-plus; Baccelli and others, Synchronization and Linearity, 1992) has a closed form for its
first and its last piece. TCP's window are tokens: a byte leaves once the one a window before it was
acknowledged. The commands of one I/O travel side by side, and share stations and window.

Each time carries what it is made of, so that the last one has the critical path: whose work each ns of it
was. Nothing of it is below 0, and it adds up. A station whose work one burst's pieces hide from another's
still has its own sum: no I/O takes less than that.

Of many in flight (``each_ns``) the time between two completions lies between the asymptotic bounds of a
closed network and that of a batch (Lazowska and others, Quantitative System Performance, 1984, chapter 5).
All of it grows with each station's work, so more rate, a cheaper operation, a wider window or a deeper
queue never make an I/O slower.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from harness.analysis import theory, wire
from harness.analysis.limit import Limit
from harness.analysis.queueing import mean_value_ns
from harness.analysis.theory import Burst, Dialogue, Framing, IoDirection, Wire
from harness.analysis.wire.iscsi import WINDOW_BYTES, cut
from harness.model import ENDS, Duplex, End, LinkProfile
from harness.model.units import positive

PIECE_BYTES = 32 << 10
"""In pieces of about this size an I/O crosses the stations: TCP's super-packets have up to 64 KiB, but no
more than a third of a window (``tcp_tso_win_divisor``)."""

LEAST_TIMEOUT_NS, PROBE_NS, TAIL = 200e6, 8e6, 3
"""What TCP waits before it sends again what nobody acknowledged: of a packet on its own (TCP_RTO_MIN in
include/net/tcp.h), and of the last of several, of which so many have too few behind them to tell
(TCP_TIMEOUT_MIN: two jiffies, at 250 a second; RFC 8985, section 7)."""


class Sealed(msgspec.Struct, frozen=True):
    """What one end encrypts for one I/O and the other decrypts: packets with data, without bare ACKs."""

    by: End
    packets: int
    bytes: int


class Crossing(NamedTuple):
    """A burst on its way: of which ``command``, and of which ``round`` of its dialogue. ``part`` is its
    part of all work on packets, ``link_ns`` how long it occupies the link and ``stored_ns`` what hops
    add."""

    by: End
    command: int
    round: int
    bytes: int
    packets: int
    part: float
    link_ns: float
    stored_ns: float

    @property
    def pieces(self) -> float:
        return max(1.0, self.bytes / PIECE_BYTES)

    @property
    def one_ns(self) -> float:
        """Of its shortest piece: a packet, with all hops."""
        return self.link_ns / max(self.pieces, float(self.packets)) + self.stored_ns


class Demands(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one I/O, in ns. The first five add up to its time at depth 1, without device and processors:
    they are the critical path.

    - ``round_trip_ns``: one round trip. ``transport_ns``: headers, and the round trips of R2Ts.
    - ``window_ns``: waits for ACKs in the middle of a burst that does not fit into the TCP window.
    - ``link_ns``: the data in full TCP segments. ``framing_ns``: extra wire time of the same dialogue
      with protection.
    - ``least_link_ns``: what the shortest packet of each round takes, which no core works meanwhile.
    - ``more_trips_ns``: of ``transport_ns``, the round trips.
    - ``lost_ns``: what waiting for lost packets takes of one I/O alone; of it until others tell of it
      (``lost_again_ns``), and for probes (``lost_probes_ns``).
    - ``busy_ns``: how long the busier direction is occupied; both together if they share the medium. ``ways``
      has each of them.
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
    lost_ns: float = 0.0
    lost_again_ns: float = 0.0
    lost_probes_ns: float = 0.0
    one_way_ns: float = 0.0
    more_trips_ns: float = 0.0
    least_link_ns: float = 0.0
    ways: dict[str, float] = {}
    legs: tuple[Crossing, ...] = ()
    is_shared: bool = False

    def lost_at_ns(self, depth: int) -> float:
        """What waiting for lost packets adds to the time between two completions: one connection waits for
        all of them, and the more is in flight, the more seldom for a probe."""
        return self.lost_ns if depth == 1 else self.lost_again_ns + self.lost_probes_ns / depth

    @property
    def round_trips(self) -> int:
        """How often one I/O goes there and back."""
        return self.r2ts + 1

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
    dialogue = dialogue_of(transport, session, direction)
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


class CriticalPath(NamedTuple):
    """The time of one I/O, and whose each ns of it was: the cores' at each end, the link's, of propagation,
    of what a core idles in each round trip, and of waiting for TCP's window."""

    whole_ns: float
    initiator_ns: float = 0.0
    target_ns: float = 0.0
    link_ns: float = 0.0
    delay_ns: float = 0.0
    idle_ns: float = 0.0
    window_ns: float = 0.0

    @property
    def core_ns(self) -> float:
        return self.initiator_ns + self.target_ns

    def after(self, part: int, ns: float) -> CriticalPath:
        """So much later, by what has that number among the fields."""
        if not ns:
            return self
        values = [*self]
        values[0] += ns
        values[part] += ns
        return CriticalPath(*values)

    def towards(self, later: CriticalPath, part: float) -> CriticalPath:
        """What lies between two times of alike pieces."""
        return CriticalPath(*(a + part * (b - a) for a, b in zip(self, later, strict=True)))


_CORE: Mapping[End, int] = {"initiator": 1, "target": 2}
_LINK, _DELAY, _IDLE, _WINDOW = 3, 4, 5, 6
_OTHER: Mapping[End, End] = {"initiator": "target", "target": "initiator"}
_START = CriticalPath(0.0)


class _Stage(NamedTuple):
    """How long a station works on a burst: ``one_ns`` on the first piece, and on the last once that is there;
    on all but one of them, one after another, ``others_ns``."""

    one_ns: float
    others_ns: float

    def through(
        self, part: int, first: CriticalPath, last: CriticalPath
    ) -> tuple[CriticalPath, CriticalPath]:
        """When the first and the last piece leave that arrive then, the first at a station that is free."""
        first = first.after(part, self.one_ns)
        return first, max(first.after(part, self.others_ns), last.after(part, self.one_ns))


class _Sent(NamedTuple):
    """A burst on the link: from which byte of its way to which, and when that began and ended."""

    begin: float
    end: float
    start: CriticalPath
    last: CriticalPath


def critical_path(
    path: Demands, work: Mapping[str, float], sealing: Mapping[str, float] = {}, idle_ns: float = 0.0
) -> CriticalPath:
    """One I/O alone over the path.

    ``work`` is what each end's core works on its packets, by the end, or under "core" that of one core with
    both ends, and ``sealing`` what protections have of it; ``idle_ns`` is what a round trip takes besides.
    """
    cores, sealed = (
        {end: found["core"] / 2 if "core" in found else found.get(end, 0.0) for end in ENDS}
        for found in (work, sealing)
    )
    free: dict[tuple[End, str], CriticalPath] = {}
    done: dict[int, CriticalPath] = {}
    sent: dict[End, list[_Sent]] = {end: [] for end in ENDS}
    for leg in path.legs:
        by, to = leg.by, _OTHER[leg.by]
        works = cores[by] * leg.part, cores[to] * leg.part
        secret = sealed[by] * leg.part, sealed[to] * leg.part
        # Encryption and the link let go packet by packet, all else piece by piece.
        pieces = leg.pieces
        packets = max(pieces, float(leg.packets))
        sender_ns, receiver_ns = (
            (ns - of_packets) / pieces + of_packets / packets
            for ns, of_packets in zip(works, secret, strict=True)
        )
        link = _Stage(leg.link_ns / packets, leg.link_ns - leg.link_ns / packets)
        receiver = _Stage(receiver_ns, works[1] - works[1] / pieces)
        begin = max(done.get(leg.command, _START), free.get((by, "sends"), _START))
        first = begin.after(_CORE[by], sender_ns)
        last = free[by, "sends"] = begin.after(_CORE[by], works[0])
        first, last = _onto_link(path, leg, link, max(first, free.get((by, "link"), _START)), last, sent[by])
        free[by, "link"] = last
        first, last = (
            each.after(_DELAY, path.one_way_ns).after(_LINK, leg.stored_ns).after(_IDLE, idle_ns / 2)
            for each in (first, last)
        )
        # The other packets of the first piece come as the slowest of the three lets them go.
        most_ns, slowest = max((secret[0], _CORE[by]), (leg.link_ns, _LINK), (secret[1], _CORE[to]))
        first = first.after(slowest, most_ns / pieces - most_ns / packets)
        first = max(first, free.get((to, "receives"), _START))
        first, last = receiver.through(_CORE[to], first, last)
        free[to, "receives"] = done[leg.command] = last
    alone = max(done.values(), default=_START)
    return max([alone, *_sums(path, cores, idle_ns / 2, is_one="core" in work)])


def _onto_link(
    path: Demands,
    leg: Crossing,
    link: _Stage,
    first: CriticalPath,
    last: CriticalPath,
    sent: list[_Sent],
) -> tuple[CriticalPath, CriticalPath]:
    """When the first and the last piece have left that the sender has ready then. A byte goes once that of a
    window before it has been acknowledged, a round trip after it had left."""
    begin = sent[-1].end if sent else 0.0
    end, most = begin + leg.bytes, path.window_bytes
    trip_ns = 2 * path.one_way_ns
    if most is None or end <= most:
        start = first
        first, last = link.through(_LINK, first, last)
        sent.append(_Sent(begin, end, start, last))
        return first, last
    piece = leg.bytes / leg.pieces
    start = max(first, _acknowledged(sent, min(begin, begin + piece - most), trip_ns))
    # More than a window goes in turns, of which each waits for the one before it.
    turns, of_piece = (-(-round(size) // most) - 1 for size in (leg.bytes, piece))
    each_ns = max(0.0, trip_ns - most / leg.bytes * leg.link_ns)
    of_turns = (leg.bytes - turns * most) / leg.bytes * leg.link_ns
    first, last = link.through(_LINK, start.after(_WINDOW, of_piece * each_ns), last)
    last = max(
        last,
        start.after(_LINK, of_turns).after(_WINDOW, turns * trip_ns),
        _acknowledged(sent, end - (turns + 1) * most, trip_ns).after(_WINDOW, turns * trip_ns),
    )
    sent.append(_Sent(begin, end, start, last))
    return first, last


def _acknowledged(sent: Sequence[_Sent], byte: float, trip_ns: float) -> CriticalPath:
    """When all up to a byte has been acknowledged."""
    if byte <= 0:
        return _START
    each = next(each for each in reversed(sent) if each.begin < byte)
    left = each.start.towards(each.last, (byte - each.begin) / (each.end - each.begin))
    return left.after(_WINDOW, trip_ns)


def _sums(
    path: Demands, cores: Mapping[End, float], idle_ns: float, *, is_one: bool
) -> Iterator[CriticalPath]:
    """What one station works in all, with the least that it waits for others: each round of bursts crosses
    the link once."""
    rounds = 2 * path.round_trips
    waits = CriticalPath(
        rounds * (path.one_way_ns + idle_ns) + path.least_link_ns,
        link_ns=path.least_link_ns,
        delay_ns=rounds * path.one_way_ns,
        idle_ns=rounds * idle_ns,
    )
    if is_one:
        yield waits.after(_CORE["initiator"], cores["initiator"]).after(_CORE["target"], cores["target"])
    else:
        yield from (waits.after(_CORE[end], ns) for end, ns in cores.items())
    if path.is_shared:
        yield (_START.after(_LINK, path.busy_ns).after(_DELAY, 2 * path.one_way_ns).after(_IDLE, 2 * idle_ns))


class CellDemands(msgspec.Struct, frozen=True, kw_only=True):
    """What one I/O asks of the stations, in ns; of a mix each direction is one, with its ``share``.

    ``work`` is what each end's core works on packets and bytes (``critical_path``), and ``whole`` what it
    works before the first packet or after the last. ``sealing`` is what protections have of ``work``.
    ``device_ns`` is the disk's, ``idle_ns`` what round trips take besides link and work, ``path`` None
    without a network.
    """

    path: Demands | None = None
    work: Mapping[str, float] = {}
    sealing: Mapping[str, float] = {}
    whole: Mapping[str, float] = {}
    device_ns: float = 0.0
    idle_ns: float = 0.0
    share: float = 1.0


class Each(msgspec.Struct, frozen=True, kw_only=True):
    """The time between two completions, what limits, and the parts of the time that one I/O is in flight, in
    ns: ``queue`` is its wait for stations that others keep busy. ``utilization`` is that of what limits."""

    ns: float
    limited_by: Limit
    utilization: float
    parts: dict[str, float]


def each(cells: Sequence[CellDemands], depth: int, waits: float) -> Each:
    """What I/Os take with so many in flight, of which those that began together leave together: ``waits`` is
    how far from the asymptotic bound (0) towards a batch (1)."""
    served = [_served(cell, depth) for cell in cells]
    parts = _mixed(cells, [{**of, **_critical(cell)} for cell, of in zip(cells, served, strict=True)])
    lost_ns = parts.get("lost_packets", 0.0) / depth
    alone_ns = sum(ns for name, ns in parts.items() if name != "lost_packets")
    found = bounds(cells)
    servers = [ns for limit, ns in found.items() if limit is not Limit.WINDOW]
    full_ns = max(servers)
    least_ns = max(alone_ns / depth, *found.values())
    found[Limit.LATENCY] = alone_ns / depth
    if depth == 1:
        found[Limit.LATENCY] = sum(parts.get(name, 0.0) for name in _WAITED)
    limit = max(found, key=found.__getitem__)
    batch_ns = (max(alone_ns, full_ns) + (depth - 1) * full_ns) / depth
    most_ns = min(batch_ns, mean_value_ns(alone_ns, servers, depth))
    each_ns = least_ns + waits * max(0.0, most_ns - least_ns) + lost_ns
    if len(cells) > 1:
        # A mix takes no longer than as many of one kind after those of the other.
        all_of = (msgspec.structs.replace(cell, share=1.0) for cell in cells)
        in_turn = [each([cell], depth, waits).ns for cell in all_of]
        each_ns = min(each_ns, sum(cell.share * ns for cell, ns in zip(cells, in_turn, strict=True)))
    # Of one alone what overlaps shows once; while others are in flight each station's service does.
    all_served, critical_ns = _mixed(cells, served), sum(parts.values())
    hidden_ns, left_ns = sum(all_served.values()) - critical_ns, depth * each_ns - critical_ns
    shown = min(1.0, max(0.0, left_ns / hidden_ns)) if hidden_ns > 0 else 0.0
    parts = {name: ns + shown * (all_served[name] - ns) for name, ns in parts.items()}
    return Each(
        ns=each_ns,
        limited_by=limit,
        utilization=found[limit] / each_ns,
        parts={**parts, "queue": max(0.0, depth * each_ns - sum(parts.values()))},
    )


_WAITED = ("round_trip", "window", "idle", "lost_packets", "transport")
"""What nothing works meanwhile."""


def bounds(cells: Sequence[CellDemands]) -> dict[Limit, float]:
    """The least time per I/O at any depth: how long one occupies the busiest core, the busiest direction of
    the link and the device, and how long TCP's window takes to let its bytes go."""
    cores, ways = dict[str, float](), dict[str, float]()
    for cell in cells:
        for end in {*cell.work, *cell.whole}:
            ns = cell.work.get(end, 0.0) + cell.whole.get(end, 0.0)
            cores[end] = cores.get(end, 0.0) + cell.share * ns
        if cell.path is not None:
            of_way = {"": cell.path.busy_ns} if cell.path.is_shared or not cell.path.ways else cell.path.ways
            for way, ns in of_way.items():
                ways[way] = ways.get(way, 0.0) + cell.share * ns
    return {
        Limit.CPU: max(cores.values(), default=0.0),
        Limit.LINK: max(ways.values(), default=0.0),
        Limit.DEVICE: sum(cell.share * cell.device_ns for cell in cells),
        Limit.WINDOW: sum(cell.share * cell.path.window_each_ns for cell in cells if cell.path is not None),
    }


def path_least_ns(cells: Sequence[CellDemands], depth: int) -> float:
    """``Demands.least_ns`` of a mix: each direction of the link carries its own part of it."""
    found = bounds(cells)
    alone_ns = sum(cell.share * cell.path.alone_ns for cell in cells if cell.path is not None)
    return max(alone_ns / depth, found[Limit.LINK], found[Limit.WINDOW])


def _mixed(cells: Sequence[CellDemands], parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for cell, of_one in zip(cells, parts, strict=True):
        for name, ns in of_one.items():
            found[name] = found.get(name, 0.0) + cell.share * ns
    return found


def _critical(cell: CellDemands) -> dict[str, float]:
    """The parts of which one I/O alone has less than is served, because others go on meanwhile: those of the
    critical path over the link, with the cores' work before and after it."""
    path, whole = cell.path, cell.whole
    if path is None:
        return {}
    found = critical_path(path, cell.work, cell.sealing, cell.idle_ns / max(1, path.round_trips))
    # The link's part is data, headers and framing alike; beyond one round trip others are the transport's.
    on_link_ns = path.alone_ns - path.round_trip_ns - path.window_ns - path.more_trips_ns
    of_link = found.link_ns / on_link_ns if on_link_ns > 0 else 0.0
    more_trips_ns = max(0.0, found.delay_ns - path.round_trip_ns)
    work = {"core": found.core_ns, "initiator": found.initiator_ns, "target": found.target_ns}
    return {
        "link": of_link * path.link_ns,
        "round_trip": min(path.round_trip_ns, found.delay_ns),
        "window": found.window_ns,
        "transport": of_link * (path.transport_ns - path.more_trips_ns) + more_trips_ns,
        "framing": of_link * path.framing_ns,
        "idle": found.idle_ns,
        **_work(cell, {end: whole.get(end, 0.0) + ns for end, ns in work.items()}),
    }


def _served(cell: CellDemands, depth: int) -> dict[str, float]:
    """What each takes of one I/O, whatever goes on at the same time."""
    path, ends = cell.path, {*cell.work, *cell.whole}
    work = _work(cell, {end: cell.work.get(end, 0.0) + cell.whole.get(end, 0.0) for end in ends})
    if path is None:
        return {"device": cell.device_ns, **work}
    return {
        "device": cell.device_ns,
        "link": path.link_ns,
        "round_trip": path.round_trip_ns,
        "window": path.window_ns,
        "transport": path.transport_ns,
        "framing": path.framing_ns,
        "lost_packets": depth * path.lost_at_ns(depth),
        "idle": cell.idle_ns,
        **work,
    }


def _work(cell: CellDemands, ns: Mapping[str, float]) -> dict[str, float]:
    """By its part's name: one core's is ``cpu``, and that of two has the end before it."""
    if "core" in {*cell.work, *cell.whole} or cell.path is None:
        return {"cpu": ns.get("core", 0.0) if "core" in ns else sum(ns.values())}
    return {f"{end}_cpu": ns.get(end, 0.0) for end in ENDS}


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
