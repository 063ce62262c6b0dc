"""Proof that a cell's bytes took the path its column names: counters of both ends, and the capture.

Of a protected path the proof is closed: whatever an interface carried has to be ESP, by the kernel's count of
each security association, or a frame that the captures have seen and that comes before any protection. Where
others use the link as well, the same holds for the segments of the portal's connection in place of the frames
of the interface.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.analysis import theory
from harness.hosts import Host
from harness.model import ENDS, IpsecMode, Proof
from harness.model.beside import InterfaceUse
from harness.network.links import LinkPath
from harness.observe.counters import NOTHING, Traffic, traffic
from harness.protection.capture import PRIMES, Capture, Seen
from harness.protection.ipsec.witness import Association, Esp, Report, Witnesses, received, sent

ENOUGH_SAMPLES = 32
"""So many are to be expected before it proves something that there is none: by chance that is e**-32."""

LARGEST_FRAME_BYTES = 1 << 16
"""As captured: frames are only split behind that, by segmentation offload."""

IN_FLIGHT = 8
"""Frames that may be on the way between two counters, or pass while one is read after the other: at the
beginning and at the end of a cell a NOP of iSCSI with its answer (RFC 7143, section 11.18), and both ACKs."""

SMALL_FRAME_BYTES = 192
"""Such a frame at most: headers of Ethernet, tunnel, ESP, IP, TCP and iSCSI, IV, padding and check value."""

RADIO_HEADER_BYTES = 44
"""IEEE Std 802.11, 9.3.2.1: QoS data 26, CCMP 8, LLC/SNAP 8 and 2 to align them, in place of Ethernet's."""

SETTLE_S = 1.0
"""How long a sampled packet may wait in a queue after its state has counted it."""

_SEGMENTS = re.compile(r"\bsegs_(out|in):(\d+)")


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What a column's ESP has to be, and who tells what it carried."""

    algorithms: tuple[str, ...]
    mode: IpsecMode
    witnesses: Witnesses
    header_bytes: int = theory.ETHERNET_HEADER_BYTES
    """The most that an interface counts of a frame in front of its IP packet."""

    @property
    def framing(self) -> theory.Esp | None:
        """None if it is not known."""
        try:
            return theory.esp(self.algorithms, self.mode)
        except KeyError:
            return None


@dataclass(frozen=True, kw_only=True)
class Segments:
    """What the portal's TCP connection has sent and received; the initiator's ``port`` tells it apart."""

    port: int
    sent: int
    received: int


@dataclass(frozen=True, kw_only=True)
class EndCounters:
    """One end of a link at one moment. Fragments are packets more on the link than the host made or took."""

    traffic: Traffic = NOTHING
    retransmits: int = 0
    fragments_sent: int = 0
    fragments_received: int = 0
    states: tuple[Association, ...] = ()
    segments: Segments | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Both ends at one moment."""

    initiator: EndCounters
    target: EndCounters


def snapshot(path: LinkPath, protection: Protection | None, *, begins: bool) -> Snapshot:
    """Read all counters that a proof compares, where a cell begins or where it ends.

    Interfaces are read last where it begins and first where it ends, so that ESP is counted for longer: what
    passes while they are read never looks as if ESP did not account for it.
    """
    near = (path.initiator, path.initiator_iface)
    far = (path.target, path.target_iface)
    if protection is None:
        return Snapshot(initiator=_counters(*near), target=_counters(*far))
    segments: dict[str, Segments | None] = dict.fromkeys(ENDS)
    if path.is_shared and not begins:
        segments = _segments(path)
    reports = protection.witnesses.look()
    if path.is_shared and begins:
        segments = _segments(path)
    ends = {
        end: _reported(report, iface, begins=begins, segments=segments[end])
        for end, report, (_, iface) in zip(ENDS, reports, (near, far), strict=True)
    }
    return Snapshot(initiator=ends["initiator"], target=ends["target"])


def _counters(host: Host, iface: str) -> EndCounters:
    devices, snmp = host.read_files(["/proc/net/dev", "/proc/net/snmp"])
    return EndCounters(
        traffic=traffic(devices).get(iface, NOTHING), retransmits=_snmp(snmp).get("RetransSegs", 0)
    )


def _reported(report: Report, iface: str, *, begins: bool, segments: Segments | None) -> EndCounters:
    counts = _snmp(report.snmp)
    return EndCounters(
        traffic=traffic(report.after if begins else report.before).get(iface, NOTHING),
        retransmits=counts.get("RetransSegs", 0),
        fragments_sent=counts.get("FragCreates", 0) - counts.get("FragOKs", 0),
        fragments_received=counts.get("ReasmReqds", 0) - counts.get("ReasmOKs", 0),
        states=report.states,
        segments=segments,
    )


def _snmp(proc_net_snmp: str) -> dict[str, int]:
    """The counters of IP and TCP: a line of names, then one of numbers, each behind the protocol's name."""
    found: dict[str, int] = {}
    lines = [line.split() for line in proc_net_snmp.splitlines() if line.startswith(("Ip:", "Tcp:"))]
    for names, numbers in zip(lines[::2], lines[1::2], strict=False):
        found |= {name: int(number) for name, number in zip(names[1:], numbers[1:], strict=True)}
    return found


def _segments(path: LinkPath) -> dict[str, Segments | None]:
    """What ss(8) tells of the portal's connection at each end, None where it tells of none, or of several."""
    portal = f"{path.target_address}:{path.port}"
    words = {
        "initiator": ["src", path.initiator_address, "dst", portal],
        "target": ["src", portal, "dst", path.initiator_address],
    }
    found: dict[str, Segments | None] = {}
    for end, host in (("initiator", path.initiator), ("target", path.target)):
        text = host.run(["ss", "-tinH", "state", "established", *words[end]], check=False).stdout
        counts = {name: int(number) for name, number in _SEGMENTS.findall(text)}
        ports = re.findall(rf"(?<![\d.]){re.escape(path.initiator_address)}(?:%\S+)?:(\d+)\b", text)
        found[end] = None
        if len(ports) == 1 and len(counts) == 2:
            found[end] = Segments(port=int(ports[0]), sent=counts["out"], received=counts["in"])
    return found


def interfaces(path: LinkPath, before: Snapshot, after: Snapshot) -> tuple[InterfaceUse, ...]:
    """What the interfaces of both ends counted between two snapshots."""
    return (
        before.initiator.traffic.grown(after.initiator.traffic, path.initiator.name, path.initiator_iface),
        before.target.traffic.grown(after.target.traffic, path.target.name, path.target_iface),
    )


@dataclass(frozen=True, kw_only=True)
class End:
    """What one end of a path did between two snapshots: its ESP, its interface, and its capture."""

    name: str
    out: Esp
    into: Esp
    use: InterfaceUse
    seen: Seen
    fragments_sent: int
    fragments_received: int
    due: dict[int, range]
    """The sequence numbers of what it sent that are sampled, by SPI."""
    segments: tuple[Segments | None, Segments | None]
    states: tuple[Association, ...]
    rekeys: int
    retransmits: int

    @property
    def samples_due(self) -> int:
        return sum(map(len, self.due.values()))

    @property
    def samples_missing(self) -> int:
        return sum(
            number & 0xFFFFFFFF not in self.seen.esp.get(spi, ())
            for spi, numbers in self.due.items()
            for number in numbers
        )


def _ends(
    path: LinkPath, before: Snapshot, after: Snapshot, seen: Sequence[Seen], one_in: int
) -> tuple[End, End]:
    """Both ends, the initiator's first."""
    found = []
    uses = interfaces(path, before, after)
    for number, (name, address) in enumerate(
        (("initiator", path.initiator_address), ("target", path.target_address))
    ):
        was, now = ((before.initiator, after.initiator), (before.target, after.target))[number]
        began = {state.spi: state.sequence for state in was.states}
        ours = [state for state in now.states if state.source == address]
        found.append(
            End(
                name=name,
                out=sent(was.states, address).grown(sent(now.states, address)),
                into=received(was.states, address).grown(received(now.states, address)),
                use=uses[number],
                seen=seen[number],
                fragments_sent=now.fragments_sent - was.fragments_sent,
                fragments_received=now.fragments_received - was.fragments_received,
                due={
                    state.spi: range(
                        (began.get(state.spi, 0) // one_in + 1) * one_in, state.sequence + 1, one_in
                    )
                    for state in ours
                },
                segments=(was.segments, now.segments),
                states=now.states,
                rekeys=sum(state.spi not in began for state in ours),
                retransmits=now.retransmits - was.retransmits,
            )
        )
    return found[0], found[1]


def collect(
    path: LinkPath, before: Snapshot, after: Snapshot, capture: Capture, *, protected: bool
) -> list[Seen]:
    """What the captures of both ends have seen of a cell, with all that its counters say was sent."""
    seen = capture.look()
    until = time.monotonic() + SETTLE_S + 2e-6 * path.profile.path_delay_us
    while protected and time.monotonic() < until:
        near, far = _ends(path, before, after, seen, capture.one_in)
        if not any(_lacks_samples(end, peer) for end, peer in ((near, far), (far, near))):
            break
        time.sleep(0.01)
        for sofar, later in zip(seen, capture.look(), strict=True):
            sofar.add(later)
    return seen


def _lost(end: End, peer: End) -> int:
    """How many of the ESP packets that an end sent the other did not get."""
    return max(0, end.out.packets - peer.into.packets)


def _lacks_samples(end: End, peer: End) -> bool:
    """Whether a capture lacks more of what was due than the link can have lost before it passed."""
    excused = min(_lost(end, peer), -(-end.samples_due // 2))
    return end.samples_missing > excused


def judge(
    path: LinkPath,
    before: Snapshot,
    after: Snapshot,
    seen: Sequence[Seen],
    capture: Capture,
    protection: Protection | None,
    *,
    read_bytes: int,
    write_bytes: int,
) -> tuple[Proof, list[str]]:
    """Compare what fio moved with what the path saw; ``seen`` is what ``collect`` collected.

    Returns the proof and the reasons why it fails (empty: it holds). Data that fio read flows from target to
    initiator, and has to be covered by that direction's counters at both ends.
    """
    near, far = _ends(path, before, after, seen, capture.one_in)
    reasons = [end.seen.fault for end in (near, far) if end.seen.fault]
    balances = list(_balances(path, near, far, protection)) if protection is not None else []
    proof = _proof(near, far, capture, balances)
    moved = f"fio read {read_bytes} and wrote {write_bytes} bytes"
    flows = ((near, read_bytes, write_bytes), (far, write_bytes, read_bytes))
    for end, got, gave in flows:
        if end.use.rx_bytes < got or end.use.tx_bytes < gave:
            reasons.append(
                f"{moved}, but the {end.name}'s interface received only {end.use.rx_bytes} and sent only "
                f"{end.use.tx_bytes}"
            )
    if protection is None:
        reasons += _unprotected(path, (near, far), capture, read_bytes + write_bytes)
        return proof, reasons
    for end, got, gave in flows:
        reasons += _wrong_states(end, protection)
        if end.into.bytes < got or end.out.bytes < gave:
            reasons.append(
                f"{moved}, but ESP brought the {end.name} only {end.into.bytes} and took from it only "
                f"{end.out.bytes}"
            )
    reasons += _unprotected_frames(path, near, far, proof)
    reasons += [reason for balance in balances for reason in balance.reasons()]
    return proof, reasons


def _proof(near: End, far: End, capture: Capture, balances: Sequence[Balance]) -> Proof:
    return Proof(
        link_bytes_initiator=near.use.rx_bytes + near.use.tx_bytes,
        link_bytes_target=far.use.rx_bytes + far.use.tx_bytes,
        protected_bytes=min(end.out.bytes + end.into.bytes for end in (near, far)),
        protected_bytes_initiator=near.out.bytes + near.into.bytes,
        protected_bytes_target=far.out.bytes + far.into.bytes,
        packets_sampled=sum(end.seen.sampled for end in (near, far)),
        packets_due=sum(end.samples_due for end in (near, far)),
        sampling=capture.one_in,
        cleartext_segments=sum(end.seen.cleartext for end in (near, far)),
        control_frames=sum(end.seen.control for end in (near, far)),
        other_frames=sum(end.seen.other for end in (near, far)),
        unaccounted_frames=max([0, *(balance.frames for balance in balances)]),
        unaccounted_bytes=max([0, *(balance.bytes or 0 for balance in balances)]),
        rekeys=near.rekeys,
        tcp_retransmits=near.retransmits + far.retransmits,
    )


def _unprotected_frames(path: LinkPath, near: End, far: End, proof: Proof) -> Iterator[str]:
    """What the captures at both ends have that a protected path may not have, or lack."""
    if proof.cleartext_segments:
        yield f"{proof.cleartext_segments} cleartext segments of the portal were on the link"
    if proof.other_frames:
        yield f"{proof.other_frames} frames on the link were neither ESP nor IKE, ARP or their like"
    for end, peer in ((near, far), (far, near)):
        if _lacks_samples(end, peer):
            yield (
                f"the capture of what the {end.name} sent lacks {end.samples_missing} of the "
                f"{end.samples_due} ESP packets that were due in it"
            )
    if not path.is_shared:
        return
    for end in (near, far):
        if None in end.segments or len({each.port for each in end.segments if each}) != 1:
            yield (
                f"one connection to the portal was expected at the {end.name} from the beginning of the cell "
                "to its end, and ss tells of none or of another"
            )


def _unprotected(path: LinkPath, ends: tuple[End, End], capture: Capture, moved: int) -> Iterator[str]:
    """What speaks against a column without IPsec: ESP, or a capture that does not see what is in clear."""
    esp = sum(end.seen.sampled for end in ends)
    # On a shared path it may be another column's, or somebody else's.
    if esp and not path.is_shared:
        yield f"IPsec is off, but {esp} ESP packets were on the link"
    one_in = PRIMES[capture.one_in]
    for end, in_all in zip(ends, capture.since_start, strict=True):
        frames = moved // LARGEST_FRAME_BYTES if path.is_shared else end.use.tx_packets
        if not in_all:
            yield f"the capture of what the {end.name} sent lacks the beginning of the portal's connection"
        elif not end.seen.cleartext and frames > ENOUGH_SAMPLES * one_in:
            yield (
                f"the {end.name} sent {frames} frames or more, and the capture of one in {one_in} holds none "
                "of the portal's"
            )


def _wrong_states(end: End, protection: Protection) -> Iterator[str]:
    wrong = {
        f"{' + '.join(state.algorithms)} in {state.mode} mode"
        for state in end.states
        if (sorted(state.algorithms), state.mode) != (sorted(protection.algorithms), protection.mode)
    }
    if wrong:
        yield (
            f"{' + '.join(protection.algorithms)} in {protection.mode} mode was agreed on, but the "
            f"{end.name} has {', '.join(sorted(wrong))}"
        )
    if missing := sum(state.missing for state in end.states):
        yield (
            f"{missing} security associations of the {end.name} are gone, and the kernel did not tell what "
            "they had carried"
        )


@dataclass(frozen=True, kw_only=True)
class Balance:
    """What one end counted in one direction less what accounts for it; ``bytes`` is None if it is not known.

    Up to ``tolerated`` frames, and as many bytes as these have at most, may be on the way.
    """

    what: str
    frames: int
    bytes: int | None
    tolerated: int
    frame_bytes: int
    units: str = "frames"

    def reasons(self) -> Iterator[str]:
        is_more = self.bytes is not None and self.bytes > self.tolerated * self.frame_bytes
        if self.frames > self.tolerated or is_more:
            size = "" if self.bytes is None else f" ({max(0, self.bytes)} bytes)"
            yield (
                f"{self.what} {max(0, self.frames)} {self.units}{size} more than ESP and what comes before "
                f"it account for; {self.tolerated} may be on the way"
            )


def _balances(path: LinkPath, near: End, far: End, protection: Protection) -> Iterator[Balance]:
    for end, peer in ((near, far), (far, near)):
        if path.is_shared:
            yield from _connection(end)
            continue
        clear_frames = end.seen.clear_frames
        clear_bytes = end.seen.clear_bytes
        yield _balance(
            f"the {end.name} sent",
            end.use.tx_packets - end.fragments_sent - clear_frames,
            end.use.tx_bytes - clear_bytes,
            end.out,
            end.fragments_sent,
            0,
            path,
            protection,
        )
        # What the peer sent in clear comes in here, and what routers and switches say.
        clear_frames += peer.seen.clear_frames
        clear_bytes += peer.seen.clear_bytes
        yield _balance(
            f"the {end.name} received",
            end.use.rx_packets - end.fragments_received - clear_frames,
            end.use.rx_bytes - clear_bytes,
            end.into,
            end.fragments_received,
            _lost(peer, end),
            path,
            protection,
        )


def _balance(
    what: str,
    frames: int,
    size_bytes: int,
    esp: Esp,
    fragments: int,
    lost: int,
    path: LinkPath,
    protection: Protection,
) -> Balance:
    """What an interface counted one way, without what was seen in clear, against ESP.

    ``lost`` packets were counted by the sender and not by the receiver's ESP: its interface may have counted
    them. Padding is taken for what it may be at most (RFC 4303, section 2.4).
    """
    framing = protection.framing
    left = None
    if framing is not None:
        kept = 0 if protection.mode is IpsecMode.TUNNEL else theory.IPV4_HEADER_BYTES
        around = protection.header_bytes + kept + framing.outer_bytes
        around += theory.ESP_TRAILER_BYTES + framing.block_bytes - 1
        around_fragment = protection.header_bytes + theory.IPV4_HEADER_BYTES
        left = size_bytes - esp.bytes - esp.packets * around - fragments * around_fragment
        left -= lost * (protection.header_bytes + path.profile.mtu_bytes)
    return Balance(
        what=what,
        frames=frames - esp.packets - lost,
        bytes=left,
        tolerated=IN_FLIGHT,
        frame_bytes=SMALL_FRAME_BYTES,
    )


def _connection(end: End) -> Iterator[Balance]:
    """The portal's segments against ESP, which on a link that others use as well carries nothing else.

    A segment is counted before it is protected, also when it is sent again.
    """
    was, now = end.segments
    if was is None or now is None:
        return
    for what, segments, esp in (
        ("sent", now.sent - was.sent, end.out),
        ("received", now.received - was.received, end.into),
    ):
        yield Balance(
            what=f"the portal's connection of the {end.name} {what}",
            frames=segments - esp.packets,
            bytes=None,
            tolerated=IN_FLIGHT,
            frame_bytes=0,
            units="segments",
        )
