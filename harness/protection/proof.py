"""Proof that a cell's bytes took the path that its column names, from the counters of both ends and the
captures.

Each layer of protection is proved by itself, on the path below it. The proof is closed: whatever an interface
carried must be the layer's, by the kernel's own count of what it protected, or a frame that the captures have
seen and that comes before any protection. Where others use the link as well, the segments of the portal's
connection take the place of the interface's frames.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from harness.hosts import Host, of_each
from harness.model import ENDS, Proof, addresses
from harness.model.telemetry import InterfaceUse
from harness.network import links
from harness.network.links import LinkPath
from harness.observe.counters import NOTHING, InterfaceCounters, traffic
from harness.protection.capture import PRIMES, Capture, Seen
from harness.protection.layer import HEADER_BYTES, Carried, Due, EndCounts, Layer, Tally

ENOUGH_SAMPLES = 32
"""How many samples must be expected before their absence proves something: chance has a probability of
e**-32."""

LARGEST_FRAME_BYTES = 1 << 16
"""As captured: segmentation offload splits frames only after that."""

IN_FLIGHT = 8
"""Frames that may be on the way between two counters, or that may pass between the readings of the two: at
the beginning and at the end of a cell an iSCSI NOP with its answer (RFC 7143, section 11.18), and both
ACKs."""

SMALL_FRAME_BYTES = 192
"""The most that such a frame has: headers of Ethernet, protection, IP, TCP and iSCSI, IV, padding, check
value."""

SETTLE_S = 1.0
"""How long a sampled packet may wait in a queue after its state has counted it."""

_SNMP6 = re.compile(r"^Ip6(\w+)\s+(\d+)$", re.MULTILINE)
_DROPPED = re.compile(r"^Xfrm(?:OutPolBlock|OutNoStates)\s+(\d+)$", re.MULTILINE)
"""What a policy stopped, or what found no association (Documentation/networking/xfrm_proc.rst)."""


@dataclass(frozen=True, kw_only=True)
class CapturedLayer:
    """One layer of a column's path, with the capture below it; without protection, the whole path.

    ``portal`` is the path on which the portal's connection runs, within all layers. ``header_bytes`` is the
    most that an interface of ``path`` counts of a frame before its packet. If ``is_hidden``, its packets are
    protected again before they leave by that interface, so no capture sees them.
    """

    path: LinkPath
    capture: Capture
    layer: Layer | None = None
    portal: LinkPath | None = None
    header_bytes: int = HEADER_BYTES
    is_hidden: bool = False


@dataclass(frozen=True, kw_only=True)
class Segments:
    """What the portal's TCP connections have sent and received; the initiator's ``ports`` identify them.

    iSCSI's session has one here, NVMe/TCP's one for each queue.
    """

    ports: frozenset[int]
    sent: int
    received: int


@dataclass(frozen=True, kw_only=True)
class EndCounters:
    """One end of a link at one moment. Each fragment is one more packet on the link than the host made or
    took. What it ``dropped`` by its IPsec policies never left."""

    boots: int = 0
    traffic: InterfaceCounters = NOTHING
    retransmits: int = 0
    fragments_sent: int = 0
    fragments_received: int = 0
    dropped: int = 0
    tally: Tally = field(default_factory=Tally)
    segments: Segments | None = None


def snapshot(watched: CapturedLayer, *, begins: bool) -> tuple[EndCounters, ...]:
    """Read all counters that a proof compares, at the beginning or at the end of a cell: of each end that is
    seen, the initiator's first.

    Interfaces are read last at the beginning and first at the end, so the protection is counted for longer.
    So a frame that passes while they are read never looks as if the protection did not account for it.
    """
    path, layer = watched.path, watched.layer
    ends = links.ends(path)
    segments: list[Segments | None] = [None] * len(ends)
    wants_segments = path.is_shared and layer is not None
    if wants_segments and not begins:
        segments = _segments(watched.portal or path)
    looks = layer.look() if layer is not None else [_unprotected_end(host) for _, host, *_ in ends]
    if wants_segments and begins:
        segments = _segments(watched.portal or path)
    return tuple(
        _counters(look, iface, host.boots, begins=begins, segments=found)
        for look, (_, host, iface, *_), found in zip(looks, ends, segments, strict=True)
    )


def _unprotected_end(host: Host) -> EndCounts:
    devices, snmp = host.read_files(["/proc/net/dev", "/proc/net/snmp"])
    return EndCounts(before=devices, tally=Tally(), after=devices, snmp=snmp)


def _counters(
    look: EndCounts, iface: str, boots: int, *, begins: bool, segments: Segments | None
) -> EndCounters:
    counts = _snmp(look.snmp)
    return EndCounters(
        boots=boots,
        traffic=traffic(look.after if begins else look.before).get(iface, NOTHING),
        retransmits=counts.get("RetransSegs", 0),
        fragments_sent=counts.get("FragCreates", 0) - counts.get("FragOKs", 0),
        fragments_received=counts.get("ReasmReqds", 0) - counts.get("ReasmOKs", 0),
        dropped=sum(map(int, _DROPPED.findall(look.snmp))),
        tally=look.tally,
        segments=segments,
    )


def _snmp(proc_net_snmp: str) -> dict[str, int]:
    """The counters of IP and TCP: a line of names, then one of figures, each after the protocol's name.

    Those of IPv6, each on a line of its own (/proc/net/snmp6), have the same names and are added.
    """
    found: dict[str, int] = {}
    lines = [line.split() for line in proc_net_snmp.splitlines() if line.startswith(("Ip:", "Tcp:"))]
    for names, numbers in zip(lines[::2], lines[1::2], strict=False):
        found |= {name: int(number) for name, number in zip(names[1:], numbers[1:], strict=True)}
    for name, number in _SNMP6.findall(proc_net_snmp):
        found[name] = found.get(name, 0) + int(number)
    return found


def _segments(path: LinkPath) -> list[Segments | None]:
    """The portal's connections at each end by ss(8); None where ss lists none, or does not count."""
    near = addresses.bracketed(path.initiator_address)
    ways = dict(links.portal_connections(path).values())

    def segments(host: Host) -> Segments | None:
        text = host.run(["ss", "-tinH", "state", "established", *ways[host]], check=False).stdout
        ports = re.findall(rf"(?<![\d.]){re.escape(near)}(?:%\S+)?:(\d+)\b", text)
        sent, received = ([int(n) for n in re.findall(rf"\bsegs_{way}:(\d+)", text)] for way in ("out", "in"))
        if not ports or not len(ports) == len(sent) == len(received):
            return None
        return Segments(ports=frozenset(map(int, ports)), sent=sum(sent), received=sum(received))

    return of_each([*ways], segments)


def interfaces(
    path: LinkPath, before: Sequence[EndCounters], after: Sequence[EndCounters]
) -> tuple[InterfaceUse, ...]:
    """What the interfaces of its ends counted between two snapshots, or since a boot in between."""
    return tuple(
        (was.traffic if was.boots == now.boots else NOTHING).grown(now.traffic, host.name, iface)
        for was, now, (_, host, iface, *_) in zip(before, after, links.ends(path), strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class EndChange:
    """One end of a path between two snapshots: its protection, its interface, and its capture."""

    name: str
    has_booted: bool
    peer_has_booted: bool
    out: Carried
    into: Carried
    use: InterfaceUse
    seen: Seen
    fragments_sent: int
    fragments_received: int
    dropped: int
    due: Due
    """The number of packets that the capture of its transmissions must have."""
    segments: tuple[Segments | None, Segments | None]
    faults: tuple[str, ...]
    went_back: tuple[str, ...]
    """What counted less at the end than at the beginning."""
    rekeys: int
    retransmits: int

    @property
    def samples_due(self) -> int:
        return self.due.total

    @property
    def samples_missing(self) -> int:
        return self.due.missing(self.seen.numbers)


def _ends(
    watched: CapturedLayer,
    before: Sequence[EndCounters],
    after: Sequence[EndCounters],
    seen: Sequence[Seen],
) -> tuple[EndChange, ...]:
    """Each end that is seen, the initiator's first."""
    found = []
    uses = interfaces(watched.path, before, after)
    one_in = watched.capture.one_in
    layer = watched.layer
    title = layer.title if layer is not None else ""
    have_booted = [was.boots != now.boots for was, now in zip(before, after, strict=True)]
    for number, (name, was, now) in enumerate(zip(ENDS, before, after, strict=False)):
        due = Due()
        if layer is not None and not watched.is_hidden:
            due = layer.due(was.tally, now.tally, one_in)
        pairs = ((was.tally.out, now.tally.out), (was.tally.into, now.tally.into))
        went_back = [f"the interface {uses[number].interface}"] * was.traffic.went_back(now.traffic)
        went_back += [title] * any(first.went_back(last) for first, last in pairs)
        found.append(
            EndChange(
                name=name,
                has_booted=have_booted[number],
                peer_has_booted=any(have_booted) and not have_booted[number],
                out=was.tally.out.grown(now.tally.out),
                into=was.tally.into.grown(now.tally.into),
                use=uses[number],
                seen=seen[number],
                fragments_sent=now.fragments_sent - was.fragments_sent,
                fragments_received=now.fragments_received - was.fragments_received,
                dropped=max(0, now.dropped - was.dropped),
                due=due,
                segments=(was.segments, now.segments),
                faults=now.tally.faults,
                went_back=tuple(went_back),
                rekeys=sum(stream not in was.tally.numbers for stream in now.tally.numbers),
                retransmits=max(0, now.retransmits - was.retransmits),
            )
        )
    return tuple(found)


def _pairs(ends: Sequence[EndChange]) -> list[tuple[EndChange, EndChange | None]]:
    """Each end with its peer, None if that is not seen."""
    return list(zip(ends, [*ends[1:], *ends[:1]] if len(ends) > 1 else [None], strict=True))


def collect(
    watched: CapturedLayer, before: Sequence[EndCounters], after: Sequence[EndCounters]
) -> list[Seen]:
    """What the captures have seen of a cell, up to all that its counters say was sent."""
    seen = watched.capture.look()
    until = time.monotonic() + SETTLE_S + 2e-6 * watched.path.profile.path_delay_us
    while watched.layer is not None and time.monotonic() < until:
        if not any(_lacks_samples(*pair) for pair in _pairs(_ends(watched, before, after, seen))):
            break
        time.sleep(0.01)
        for sofar, later in zip(seen, watched.capture.look(), strict=True):
            sofar.add(later)
    return seen


def _lost(end: EndChange | None, peer: EndChange | None) -> int:
    """How many of the protected packets that an end sent did not reach the other, as far as both are seen."""
    return max(0, end.out.packets - peer.into.packets) if end is not None and peer is not None else 0


def _lacks_samples(end: EndChange, peer: EndChange | None) -> bool:
    """Whether a capture lacks more of its due packets than the link can have lost before them."""
    # While a peer boots, ARP is not answered: packets that were protected do not leave.
    lost = end.out.packets if end.peer_has_booted else _lost(end, peer)
    excused = min(lost, -(-end.samples_due // 2))
    return end.samples_missing > excused


def judge(
    watched: CapturedLayer,
    before: Sequence[EndCounters],
    after: Sequence[EndCounters],
    seen: Sequence[Seen],
    *,
    read_bytes: int,
    write_bytes: int,
    reconnects: bool = False,
) -> tuple[Proof, list[str]]:
    """Compare what fio moved with what the path saw; ``seen`` is what ``collect`` collected.

    With ``reconnects`` the portal's connections may be others at the end. Returns the proof and the reasons
    why it fails (empty: it holds). Data that fio read flows from target to initiator, and that direction's
    counters at both ends must cover it; where only one end is seen, at that.
    """
    path, layer, capture = watched.path, watched.layer, watched.capture
    all_ends = _ends(watched, before, after, seen)
    # Who has booted in between does not know what was before, and its capture ended with it. One that began
    # again, before its fail-closed policies, only testifies against it.
    ends = tuple(end for end in all_ends if not end.has_booted)
    looked_at = all_ends if layer is not None else ends
    reasons = [end.seen.fault for end in looked_at if end.seen.fault]
    reasons += [
        f"{end.seen.cleartext} cleartext segments of the portal were sent by the {end.name}, which has booted"
        for end in looked_at
        if end.has_booted and end.seen.cleartext
    ]
    balances = list(_balances(watched, layer, ends)) if layer is not None else []
    proof = _proof(ends, capture, balances)
    if went_back := list(_went_back(ends)):
        # Nothing can be compared with these, but what the captures saw counts.
        clear = _unprotected_frames(path, layer, ends, proof, reconnects) if layer is not None else ()
        return proof, [*reasons, *went_back, *clear]
    moved = f"fio read {read_bytes} and wrote {write_bytes} bytes"
    moves = ((read_bytes, write_bytes), (write_bytes, read_bytes))
    flows = [(end, *move) for end, move in zip(ends, moves, strict=False)]
    for end, got, gave in flows:
        if end.use.rx_bytes < got or end.use.tx_bytes < gave:
            reasons.append(
                f"{moved}, but the {end.name}'s interface received only {end.use.rx_bytes} and sent only "
                f"{end.use.tx_bytes}"
            )
    if layer is None:
        reasons += _unprotected(path, ends, capture, read_bytes + write_bytes)
        return proof, reasons
    for end, got, gave in flows:
        reasons += end.faults
        if end.into.bytes < got or end.out.bytes < gave:
            reasons.append(
                f"{moved}, but {layer.title} carried only {end.into.bytes} to the {end.name} and only "
                f"{end.out.bytes} from it"
            )
    reasons += _unprotected_frames(path, layer, ends, proof, reconnects)
    reasons += [reason for balance in balances for reason in balance.reasons(layer.title)]
    return proof, reasons


def _went_back(ends: Sequence[EndChange]) -> Iterator[str]:
    """Reasons for counters that went backwards, each with the ends where they did."""
    for what in dict.fromkeys(what for end in ends for what in end.went_back):
        where = " and the ".join(end.name for end in ends if what in end.went_back)
        yield (
            f"the counters of {what} at the {where} went backwards within the cell, so what they count was "
            "replaced or removed"
        )


def of_all(proofs: Sequence[Proof]) -> Proof:
    """The proof of a path from those of its layers, the outermost first.

    Each layer must have carried everything, so the one that carried least counts.
    """
    return msgspec.structs.replace(
        proofs[0],
        **{name: how([getattr(proof, name) for proof in proofs]) for how, names in OF_ALL for name in names},
    )


OF_ALL: tuple[tuple[Callable[[list[int]], int], tuple[str, ...]], ...] = (
    (min, ("protected_bytes", "protected_bytes_initiator", "protected_bytes_target")),
    (max, ("unaccounted_frames", "unaccounted_bytes")),
    (
        sum,
        ("packets_sampled", "packets_expected", "cleartext_segments", "control_plane_frames", "other_frames"),
    ),
    (sum, ("rekeys",)),
)
"""How a path's figures come of its layers'; all others are the outermost's."""


def _proof(ends: Sequence[EndChange], capture: Capture, balances: Sequence[Balance]) -> Proof:
    linked = [end.use.rx_bytes + end.use.tx_bytes for end in ends]
    protected = [end.out.bytes + end.into.bytes for end in ends]
    return Proof(
        at_one_end=len(ends) == 1,
        link_bytes_initiator=linked[0],
        link_bytes_target=sum(linked[1:]),
        protected_bytes=min(protected),
        protected_bytes_initiator=protected[0],
        protected_bytes_target=sum(protected[1:]),
        packets_sampled=sum(end.seen.sampled for end in ends),
        packets_expected=sum(end.samples_due for end in ends),
        sampling=capture.one_in,
        cleartext_segments=sum(end.seen.cleartext for end in ends),
        control_plane_frames=sum(end.seen.control for end in ends),
        other_frames=sum(end.seen.other for end in ends),
        unaccounted_frames=max([0, *(balance.frames for balance in balances)]),
        unaccounted_bytes=max([0, *(balance.bytes or 0 for balance in balances)]),
        rekeys=ends[0].rekeys,
        tcp_retransmits=sum(end.retransmits for end in ends),
    )


def _unprotected_frames(
    path: LinkPath, layer: Layer, ends: Sequence[EndChange], proof: Proof, reconnects: bool
) -> Iterator[str]:
    """Reasons against a protected column: frames that may not be on the link, or packets that are missing."""
    if proof.cleartext_segments:
        yield f"{proof.cleartext_segments} cleartext segments of the portal were on the link"
    if proof.other_frames:
        what = f"neither {layer.title} nor IKE, ARP or the like"
        first = next((end.seen.first_other for end in ends if end.seen.first_other), "")
        first_words = f" (the first was {first})" if first else ""
        yield f"{proof.other_frames} frames on the link were {what}{first_words}"
    for end, peer in _pairs(ends):
        if _lacks_samples(end, peer):
            yield (
                f"the capture of what the {end.name} sent lacks {end.samples_missing} of the "
                f"{end.samples_due} {layer.title} packets that it should have"
            )
    if reconnects or not path.is_shared:
        return
    for end in ends:
        if None in end.segments or len({each.ports for each in end.segments if each}) != 1:
            yield (
                f"expected the same connections to the portal at the {end.name} from the beginning of the "
                "cell to its end, found none or others (ss)"
            )


def _unprotected(path: LinkPath, ends: Sequence[EndChange], capture: Capture, moved: int) -> Iterator[str]:
    """Reasons against an unprotected column: ESP on the link, or a capture that does not see cleartext."""
    protected = sum(end.seen.sampled for end in ends)
    # On a shared path ESP may belong to another column, or to somebody else.
    if protected and not path.is_shared:
        yield f"IPsec is off, but {protected} ESP packets were on the link"
    one_in = PRIMES[capture.one_in]
    for end, in_all in zip(ends, capture.since_start, strict=False):
        frames = moved // LARGEST_FRAME_BYTES if path.is_shared else end.use.tx_packets
        if not in_all:
            yield f"the capture of what the {end.name} sent lacks the beginning of the portal's connection"
        elif not end.seen.cleartext and frames > ENOUGH_SAMPLES * one_in:
            yield (
                f"expected the portal's TCP segments in the capture of what the {end.name} sent, found none: "
                f"it keeps one of {one_in}, of {frames} frames or more"
            )


@dataclass(frozen=True, kw_only=True)
class Balance:
    """What one end counted in one direction minus what accounts for it; ``bytes`` is None if unknown.

    Up to ``IN_FLIGHT`` frames may be on the way, with at most ``SMALL_FRAME_BYTES`` each.
    """

    what: str
    frames: int
    bytes: int | None
    units: str = "frames"

    def reasons(self, title: str) -> Iterator[str]:
        is_more = self.bytes is not None and self.bytes > IN_FLIGHT * SMALL_FRAME_BYTES
        if self.frames > IN_FLIGHT or is_more:
            size = "" if self.bytes is None else f" ({max(0, self.bytes)} bytes)"
            yield (
                f"{self.what} {max(0, self.frames)} {self.units}{size} that neither {title} nor what comes "
                f"before it accounts for; {IN_FLIGHT} may be on the way"
            )


def _balances(watched: CapturedLayer, layer: Layer, ends: Sequence[EndChange]) -> Iterator[Balance]:
    """What interfaces counted one way, without what was seen in clear, compared with the layer; on a link
    that others use the portal's segments."""
    for end, peer in _pairs(ends):
        if watched.path.is_shared or peer is None:
            yield from _connection(end) if layer.counts_segments else ()
            continue
        use, received, lost_here = end.use, [end.seen, peer.seen], _lost(peer, end)
        # What the peer sent in clear is received here, and so is what routers and switches send. The peer
        # counted what was lost, and this end's protection did not; its interface may have counted that.
        for what, packets, size_bytes, carried, fragments, clear, lost in (
            ("sent", use.tx_packets, use.tx_bytes, end.out, end.fragments_sent, received[:1], 0),
            ("received", use.rx_packets, use.rx_bytes, end.into, end.fragments_received, received, lost_here),
        ):
            accounted = fragments + carried.packets + lost + sum(seen.clear_frames for seen in clear)
            most = layer.frame_bytes(carried, fragments, watched.header_bytes)
            if most is not None:
                most += lost * (watched.header_bytes + watched.path.profile.mtu_bytes)
                most += sum(seen.clear_bytes for seen in clear)
            yield Balance(
                what=f"the {end.name} {what}",
                frames=packets - accounted,
                bytes=None if most is None else size_bytes - most,
            )


def _connection(end: EndChange) -> Iterator[Balance]:
    """The portal's segments compared with the layer, which carries nothing else on a link that others use.

    A segment is counted before it is protected, also when it is sent again, and when a policy drops it.
    """
    was, now = end.segments
    if was is None or now is None:
        return
    for what, segments, carried in (
        ("sent", now.sent - was.sent - end.dropped, end.out),
        ("received", now.received - was.received, end.into),
    ):
        yield Balance(
            what=f"the portal's connections of the {end.name} {what}",
            frames=segments - carried.packets,
            bytes=None,
            units="segments",
        )
