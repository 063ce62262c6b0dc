"""One I/O alone: whose work each ns of its time was.

A burst leaves one core, crosses the link and arrives at the other core in pieces, and a station that works on
one piece lets the one before it go on: it leaves at max(it arrived, the station was free) + the station's
work. Pieces of a burst are alike, so that this recursion (max-plus; Baccelli and others, Synchronization and
Linearity, 1992) has a closed form for its first and its last piece. TCP's window are tokens: a byte leaves
once the one a window before it was acknowledged. The commands of one I/O travel side by side, and share
stations and window.

Each time carries what it is made of, so that the last one has the critical path. Nothing of it is below 0,
and it adds up. A station whose work one burst's pieces hide from another's still has its own sum: no I/O
takes less than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from harness.model import ENDS, End

PIECE_BYTES = 32 << 10
"""In pieces of about this size an I/O crosses the stations: TCP's super-packets have up to 64 KiB, but no
more than a third of a window (``tcp_tso_win_divisor``)."""


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


class Bursts(msgspec.Struct, frozen=True, kw_only=True):
    """The bursts of one I/O in the order in which they are sent (``legs``), and what of their path counts.

    ``busy_ns`` is how long the busier direction of the link is occupied, or the medium if both share it;
    ``ways`` has each direction. ``r2ts`` is how often the target asks for data. ``window_bytes`` is TCP's;
    None: it never limits. ``least_link_ns`` is what the shortest packet of each round takes, which no core
    works meanwhile.
    """

    legs: tuple[Crossing, ...] = ()
    one_way_ns: float = 0.0
    least_link_ns: float = 0.0
    window_bytes: int | None
    busy_ns: float
    r2ts: int
    ways: dict[str, float] = {}
    is_shared: bool = False

    @property
    def round_trips(self) -> int:
        """How often one I/O goes there and back."""
        return self.r2ts + 1


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
    path: Bursts, work: Mapping[str, float], sealing: Mapping[str, float] = {}, idle_ns: float = 0.0
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
    path: Bursts,
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
    path: Bursts, cores: Mapping[End, float], idle_ns: float, *, is_one: bool
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
