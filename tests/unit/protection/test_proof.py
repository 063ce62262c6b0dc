"""The proof: every way in which a cell's bytes may have gone elsewhere, and no other, fails it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from harness.analysis.theory import Esp, Wire, esp
from harness.hosts.unseen import Unseen
from harness.model import ENDS, End, IpsecMode, Proof
from harness.model.ranges import out_of_range
from harness.network.links import LinkPath
from harness.observe.counters import InterfaceCounters
from harness.protection import proof as module
from harness.protection.capture import PRIMES, Capture, Seen, Tap
from harness.protection.ipsec.layer import EspLayer
from harness.protection.layer import Tally
from harness.protection.proof import (
    IN_FLIGHT,
    SMALL_FRAME_BYTES,
    CapturedLayer,
    EndCounters,
    Segments,
    collect,
    judge,
    snapshot,
)
from harness.protection.witness import SaCounters, Witnesses, WitnessReport
from tests.unit.fakes import PROC_NET_SNMP, FakeWitness, IdleDaemon, World
from tests.unit.fakes.ipsec import association
from tests.unit.fakes.paths import WIRED, link_path

MIB = 1 << 20
NEAR, FAR = "198.18.0.1", "198.18.0.2"
GCM = ("rfc4106(gcm(aes))",)
CBC = ("cbc(aes)", "hmac(sha256)")
ONE_IN = 64
OUT_SPI, IN_SPI = 1, 2
"""Of the initiator's association to the target, and of the one back."""

DATA_BYTES = 1400
READ_PACKETS, WRITE_PACKETS = 6000, 1500
READ, WRITTEN = READ_PACKETS * DATA_BYTES, WRITE_PACKETS * DATA_BYTES
"""What fio moved in every cell below: a full packet each, and for simplicity no bare ACKs."""

OLD = 1000
"""Packets that each association had carried before."""

OLD_FRAGMENTS = 2 * OLD
"""That each end had sent before, and as many that it had received."""

DUE = tuple((OLD + packets) // ONE_IN - OLD // ONE_IN for packets in (WRITE_PACKETS, READ_PACKETS))
"""Samples in the captures of initiator and target: every packet whose number is a multiple of ``ONE_IN``."""


class Snapshot(NamedTuple):
    """Both ends at one moment."""

    initiator: EndCounters
    target: EndCounters


def looked(watched: CapturedLayer, *, begins: bool) -> Snapshot:
    return Snapshot(*snapshot(watched, begins=begins))


def framing_of(algorithms: Sequence[str], mode: IpsecMode) -> Esp:
    found = esp(algorithms, mode)
    assert found is not None
    return found


def link(*, is_shared: bool = False, world: World | None = None) -> LinkPath:
    return link_path(world or World(), 0, is_shared=is_shared)


def protection(
    algorithms: tuple[str, ...] = GCM,
    mode: IpsecMode = IpsecMode.TRANSPORT,
    witnesses: Witnesses | None = None,
) -> EspLayer:
    nobody = FakeWitness(WitnessReport(before="", states=(), after="", snmp=""))
    return EspLayer(
        below=link(),
        algorithms=algorithms,
        mode=mode,
        witnesses=witnesses or Witnesses(ends=(nobody, nobody)),
    )


def watched(
    layer: EspLayer | None = None,
    *,
    seen_since_start: tuple[int, int] = (1, 1),
    captures: Capture | None = None,
    path: LinkPath | None = None,
    header_bytes: int = 14,
) -> CapturedLayer:
    """A layer over a path, or the bare path."""
    return CapturedLayer(
        path=path or link(),
        capture=captures or capture(*seen_since_start),
        layer=layer,
        header_bytes=header_bytes,
    )


def tally(end: End, states: Sequence[SaCounters], guard: EspLayer | None = None) -> Tally:
    """What ESP tells of one end that has these associations."""
    report = WitnessReport(before="", states=tuple(states), after="", snmp="")
    witness = FakeWitness(report)
    asked = dataclasses.replace(guard or protection(), witnesses=Witnesses(ends=(witness, witness)))
    return asked.look()[ENDS.index(end)].tally


@dataclasses.dataclass
class Way:
    """What went one way in a cell: packets with data, each counted by sender, link and receiver."""

    packets: int
    counted_bytes: int = DATA_BYTES + 32
    """Of each packet by its association: TCP's header and data."""
    frame_bytes: int = 14 + framing_of(GCM, IpsecMode.TRANSPORT).packet_bytes(20 + 32 + DATA_BYTES)
    received: int | None = None
    """How many of them ESP counted at the other end, if not all."""
    tx_more: tuple[int, int] = (0, 0)
    """Frames and bytes that the sender's interface counted besides them."""
    rx_more: tuple[int, int] = (0, 0)

    def sent(self) -> tuple[int, int]:
        return self.packets, self.packets * self.counted_bytes

    def got(self) -> tuple[int, int]:
        packets = self.packets if self.received is None else self.received
        return packets, packets * self.counted_bytes


@dataclasses.dataclass
class Cell:
    """A cell on a path, as its counters and captures tell of it; the fields are what is wrong with it."""

    to_target: Way = dataclasses.field(default_factory=lambda: Way(WRITE_PACKETS))
    to_initiator: Way = dataclasses.field(default_factory=lambda: Way(READ_PACKETS))
    seen: tuple[Seen, Seen] = dataclasses.field(default_factory=lambda: (Seen(), Seen()))
    """Besides the samples that are due."""
    unsampled: tuple[int, int] = (0, 0)
    """How many of the samples each capture lacks."""
    algorithms: tuple[str, ...] = GCM
    mode: str = "transport"
    missing: bool = False
    fragments: int = 0
    """How many frames more the target made of its packets, and the initiator took for them."""
    is_shared: bool = False
    segments: tuple[tuple[Segments | None, Segments | None], ...] | None = None
    since_start: tuple[int, int] = (1, 1)
    joined: int = 1
    """How many packets each sender's association counts as one: with segmentation offload."""

    def judge(
        self,
        guard: EspLayer | None = None,
        *,
        read: int = READ,
        written: int = WRITTEN,
        header_bytes: int = 14,
    ) -> tuple[Proof, list[str]]:
        guard = guard or protection()
        before, after = self.snapshots(guard)
        seen = list(self.seen)
        for number, spi in enumerate((OUT_SPI, IN_SPI)):
            packets = (self.to_target, self.to_initiator)[number].packets
            due = list(range((OLD // ONE_IN + 1) * ONE_IN, OLD + packets + 1, ONE_IN))
            sampled = Seen(numbers={spi: set(due[self.unsampled[number] :])})
            sampled.add(seen[number])
            seen[number] = sampled
        at = watched(
            guard,
            seen_since_start=self.since_start,
            path=link(is_shared=self.is_shared),
            header_bytes=header_bytes,
        )
        return judge(at, before, after, seen, read_bytes=read, write_bytes=written)

    def snapshots(self, guard: EspLayer | None = None) -> tuple[Snapshot, Snapshot]:
        segments = self.segments or ((None, None), (None, None))
        near = self._end("initiator", guard)
        far = self._end("target", guard)
        near = dataclasses.replace(near, fragments_received=OLD_FRAGMENTS + self.fragments)
        far = dataclasses.replace(far, fragments_sent=OLD_FRAGMENTS + self.fragments)
        began = EndCounters(
            traffic=InterfaceCounters(rx_bytes=5, rx_packets=5, tx_bytes=5, tx_packets=5),
            retransmits=3,
            fragments_sent=OLD_FRAGMENTS,
            fragments_received=OLD_FRAGMENTS,
        )
        old = self._states((OLD, OLD * 50), (OLD, OLD * 50), missing=False)
        ends: tuple[End, End] = ("initiator", "target")
        first, second = (
            dataclasses.replace(began, segments=segments[number][0], tally=tally(end, old, guard))
            for number, end in enumerate(ends)
        )
        return (
            Snapshot(initiator=first, target=second),
            Snapshot(
                initiator=dataclasses.replace(near, segments=segments[0][1]),
                target=dataclasses.replace(far, segments=segments[1][1]),
            ),
        )

    def states(self, end: End) -> tuple[SaCounters, ...]:
        """Of both directions, as an end counts them when the cell ends."""
        out, back = self.to_target, self.to_initiator
        is_near = end == "initiator"
        to_target = out.sent() if is_near else out.got()
        to_initiator = back.got() if is_near else back.sent()
        states = self._states(
            (OLD + to_target[0], OLD * 50 + to_target[1]),
            (OLD + to_initiator[0], OLD * 50 + to_initiator[1]),
            missing=self.missing,
        )
        sends = OUT_SPI if is_near else IN_SPI
        return tuple(self._super_packets(state) if state.spi == sends else state for state in states)

    def _super_packets(self, state: SaCounters) -> SaCounters:
        """As its sender counts it if it is given super-packets, with one header of TCP each."""
        within = (state.packets - OLD) // self.joined
        repeated = state.packets - OLD - within
        header_bytes = 32 + (20 if self.mode == IpsecMode.TUNNEL else 0)
        return msgspec.structs.replace(
            state, packets=OLD + within, bytes=state.bytes - repeated * header_bytes
        )

    def _end(self, end: End, guard: EspLayer | None) -> EndCounters:
        outward, inward = self.to_target, self.to_initiator
        if end == "target":
            outward, inward = inward, outward
        return EndCounters(
            traffic=InterfaceCounters(
                rx_packets=5 + inward.packets + inward.rx_more[0],
                rx_bytes=5 + inward.packets * inward.frame_bytes + inward.rx_more[1],
                tx_packets=5 + outward.packets + outward.tx_more[0],
                tx_bytes=5 + outward.packets * outward.frame_bytes + outward.tx_more[1],
            ),
            retransmits=4,
            fragments_sent=OLD_FRAGMENTS,
            fragments_received=OLD_FRAGMENTS,
            tally=tally(end, self.states(end), guard),
        )

    def _states(
        self, to_target: tuple[int, int], to_initiator: tuple[int, int], *, missing: bool
    ) -> tuple[SaCounters, ...]:
        return tuple(
            association(
                spi,
                source,
                destination,
                carried,
                packets=packets,
                algorithms=self.algorithms,
                mode=self.mode,
                missing=missing,
            )
            for spi, source, destination, (packets, carried) in (
                (OUT_SPI, NEAR, FAR, to_target),
                (IN_SPI, FAR, NEAR, to_initiator),
            )
        )


def capture(*since_start: int, one_in: int = ONE_IN) -> Capture:
    taps = [
        Tap(end=end, file=Path("/dev/null"), daemon=IdleDaemon(), reader=None)  # type: ignore[arg-type]
        for end in ("initiator", "target")
    ]
    return Capture(taps=(taps[0], taps[1]), one_in=one_in, since_start=list(since_start))


def test_what_went_through_esp_is_proved() -> None:
    proof, reasons = Cell(seen=(Seen(control=2, clear_bytes=84), Seen(control=1, clear_bytes=42))).judge()
    assert reasons == []
    packets = READ_PACKETS + WRITE_PACKETS
    assert proof == Proof(
        link_bytes_initiator=packets * Way(0).frame_bytes,
        link_bytes_target=packets * Way(0).frame_bytes,
        protected_bytes=packets * (DATA_BYTES + 32),
        protected_bytes_initiator=packets * (DATA_BYTES + 32),
        protected_bytes_target=packets * (DATA_BYTES + 32),
        packets_sampled=sum(DUE),
        packets_due=sum(DUE),
        sampling=ONE_IN,
        control_frames=3,
        tcp_retransmits=2,
    )


def test_without_a_retransmission_there_is_none() -> None:
    guard = protection()
    before, after = Cell().snapshots(guard)
    same = Snapshot(*(dataclasses.replace(end, retransmits=3) for end in after))
    proof, _ = judge(watched(guard), before, same, [Seen(), Seen()], read_bytes=READ, write_bytes=WRITTEN)
    assert proof.tcp_retransmits == 0


@pytest.mark.parametrize("mode", list(IpsecMode))
@pytest.mark.parametrize(
    "algorithms",
    [GCM, CBC, ("rfc7539esp(chacha20,poly1305)",), ("ecb(cipher_null)", "hmac(sha256)")],
    ids=" ".join,
)
@pytest.mark.parametrize("data_bytes", [0, 1, 48, 512, 1399, 1400, 1401, 1402, 1403])
def test_the_framing_of_every_proposal_accounts_for_packets_of_every_size(
    algorithms: tuple[str, ...], mode: IpsecMode, data_bytes: int
) -> None:
    """``Wire.frame_bytes`` is what virtual time measures to the byte (docs/theory.md)."""
    frame_bytes = Wire(link=WIRED, framing=framing_of(algorithms, mode)).frame_bytes(data_bytes)
    counted = data_bytes + 32 + (20 if mode is IpsecMode.TUNNEL else 0)
    packets = 10_000
    ways = [Way(packets, counted_bytes=counted, frame_bytes=frame_bytes) for _ in range(2)]
    guard = protection(algorithms, mode)
    moved = packets * data_bytes
    cell = Cell(to_target=ways[0], to_initiator=ways[1], algorithms=algorithms, mode=mode.value)
    proof, reasons = cell.judge(guard, read=moved, written=moved)
    assert (reasons, proof.unaccounted_frames, proof.unaccounted_bytes) == ([], 0, 0)
    # And for no more than the padding of each packet besides: one frame that is larger is seen.
    largest_padding = framing_of(algorithms, mode).block_bytes - 1
    ways[0].tx_more = (0, packets * largest_padding + IN_FLIGHT * SMALL_FRAME_BYTES + 1)
    _, reasons = cell.judge(guard, read=moved, written=moved)
    assert len(reasons) == 1 and reasons[0].startswith("the initiator sent 0 frames (")


@pytest.mark.parametrize("mode", list(IpsecMode))
def test_headers_that_segmentation_offload_repeats_are_accounted_for(mode: IpsecMode) -> None:
    """Each packet on the link has its own, though ``esp4_offload`` gives a state 30 packets as one."""
    within = DATA_BYTES + 32 + (20 if mode is IpsecMode.TUNNEL else 0)
    frame_bytes = Wire(link=WIRED, framing=framing_of(GCM, mode)).frame_bytes(DATA_BYTES)
    ways = [Way(packets, within, frame_bytes) for packets in (WRITE_PACKETS, READ_PACKETS)]
    cell = Cell(to_target=ways[0], to_initiator=ways[1], mode=mode.value, joined=30)
    proof, reasons = cell.judge(protection(mode=mode))
    assert (reasons, proof.unaccounted_frames, proof.unaccounted_bytes) == ([], 0, 0)
    # And for no more than the longest header that TCP has.
    ways[1].tx_more = (0, READ_PACKETS * (60 - 32 + 3) + IN_FLIGHT * SMALL_FRAME_BYTES)
    _, reasons = cell.judge(protection(mode=mode))
    assert len(reasons) == 1 and reasons[0].startswith("the target sent 0 frames (")


# Whatever the link carried, and ESP, IKE and ARP do not account for


@pytest.mark.parametrize(
    ("way", "counter", "what"),
    [
        ("to_target", "tx_more", "the initiator sent"),
        ("to_target", "rx_more", "the target received"),
        ("to_initiator", "tx_more", "the target sent"),
        ("to_initiator", "rx_more", "the initiator received"),
    ],
)
def test_each_interface_is_held_against_esp_in_each_direction(way: str, counter: str, what: str) -> None:
    """Frames that no capture has seen."""
    for frames, is_proved in ((IN_FLIGHT, True), (IN_FLIGHT + 1, False), (7437, False)):
        cell = Cell()
        setattr(getattr(cell, way), counter, (frames, 66 * frames))
        proof, reasons = cell.judge()
        assert proof.unaccounted_frames == frames
        assert (reasons == []) is is_proved, frames
        if not is_proved:
            assert [reason.startswith(f"{what} {frames} frames (") for reason in reasons] == [True]
            assert f"{IN_FLIGHT} may be on the way" in reasons[0]


@pytest.mark.parametrize(
    ("frames", "size_bytes", "said"),
    [(9, 0, r"9 frames \(0 bytes\)"), (-3, MIB, r"0 frames \(10\d{5} bytes\)")],
)
def test_a_reason_has_no_negative_figure(frames: int, size_bytes: int, said: str) -> None:
    """ESP is counted for longer than the interfaces, and its framing may take less than its bound."""
    cell = Cell()
    cell.to_target.tx_more = (frames, size_bytes)
    (reason,) = cell.judge()[1]
    assert re.fullmatch(f"the initiator sent {said} that neither ESP .*", reason)


def test_what_arrives_while_counters_are_read_is_nothing_lost() -> None:
    cell = Cell(to_target=Way(WRITE_PACKETS, received=WRITE_PACKETS + 3))
    proof, reasons = cell.judge()
    assert (reasons, proof.unaccounted_frames) == ([], 0)
    # Each end's own figures: the target's ESP counted three packets more.
    assert proof.protected_bytes_target - proof.protected_bytes_initiator == 3 * (DATA_BYTES + 32)


def test_the_bytes_on_the_link_are_each_end_s_own() -> None:
    proof, _ = Cell(to_target=Way(WRITE_PACKETS, tx_more=(0, 100))).judge()
    assert proof.link_bytes_initiator == proof.link_bytes_target + 100


def test_a_path_of_two_layers_carried_what_the_lesser_of_them_did() -> None:
    outer = Proof(
        link_bytes_initiator=900,
        link_bytes_target=800,
        protected_bytes=700,
        protected_bytes_initiator=710,
        protected_bytes_target=720,
        packets_sampled=5,
        packets_due=6,
        sampling=64,
        control_frames=1,
        unaccounted_frames=2,
        unaccounted_bytes=300,
        rekeys=1,
        tcp_retransmits=4,
    )
    inner = msgspec.structs.replace(
        outer,
        link_bytes_initiator=901,
        link_bytes_target=801,
        protected_bytes=600,
        protected_bytes_initiator=610,
        protected_bytes_target=730,
        unaccounted_frames=3,
        unaccounted_bytes=200,
        cleartext_segments=7,
        other_frames=8,
        tcp_retransmits=9,
    )
    assert module.of_all([outer, inner]) == Proof(
        link_bytes_initiator=900,
        link_bytes_target=800,
        protected_bytes=600,
        protected_bytes_initiator=610,
        protected_bytes_target=720,
        packets_sampled=10,
        packets_due=12,
        sampling=64,
        cleartext_segments=7,
        control_frames=2,
        other_frames=8,
        unaccounted_frames=3,
        unaccounted_bytes=300,
        rekeys=2,
        tcp_retransmits=4,
    )


def test_super_packets_in_clear_are_few_frames_and_many_bytes() -> None:
    cell = Cell()
    cell.to_initiator.tx_more = (IN_FLIGHT, IN_FLIGHT * 65_000)
    proof, reasons = cell.judge()
    assert reasons == [
        f"the target sent {IN_FLIGHT} frames ({proof.unaccounted_bytes} bytes) that neither ESP nor what "
        f"comes before it accounts for; {IN_FLIGHT} may be on the way"
    ]
    padding = READ_PACKETS * 3
    assert IN_FLIGHT * 65_000 - padding <= proof.unaccounted_bytes <= IN_FLIGHT * 65_000


def test_what_the_captures_saw_before_any_protection_is_accounted_for() -> None:
    cell = Cell(seen=(Seen(control=30, clear_bytes=30 * 42), Seen()))
    cell.to_target.tx_more = cell.to_target.rx_more = (30, 30 * 42)
    cell.to_initiator.rx_more = (12, 12 * 42)  # what a router sent, which only the initiator's capture saw
    proof, reasons = cell.judge()
    assert (reasons, proof.control_frames) == ([], 30)


def test_what_was_lost_on_the_way_may_have_been_counted_by_the_interface_before() -> None:
    cell = Cell()
    cell.to_initiator.received = READ_PACKETS - 100
    proof, reasons = cell.judge(read=READ - 200 * DATA_BYTES)
    assert (reasons, proof.unaccounted_frames) == ([], 0)
    cell.to_initiator.rx_more = (IN_FLIGHT + 1, 600)
    _, reasons = cell.judge(read=READ - 200 * DATA_BYTES)
    assert len(reasons) == 1 and reasons[0].startswith(f"the initiator received {IN_FLIGHT + 1} frames")


def test_fragments_are_frames_more() -> None:
    cell = Cell(fragments=500)
    cell.to_initiator.tx_more = (500, 500 * 34)
    cell.to_initiator.rx_more = (0, 0)
    proof, reasons = cell.judge()
    assert (reasons, proof.unaccounted_frames) == ([], 0)


def test_so_they_are_for_who_puts_them_together() -> None:
    cell = Cell(fragments=500)
    cell.to_initiator.tx_more = cell.to_initiator.rx_more = (500, 500 * 34)
    proof, reasons = cell.judge()
    assert (reasons, proof.unaccounted_frames) == ([], 0)
    cell.fragments = 0
    proof, reasons = cell.judge()
    assert [reason.partition(" (")[0] for reason in reasons] == [
        "the initiator received 500 frames",
        "the target sent 500 frames",
    ]


def test_few_frames_may_have_as_many_bytes_as_eight_small_ones() -> None:
    """Whatever the framing leaves open besides: 8 frames of 192 bytes, RFC 7143's NOP and its ACKs."""
    cell = Cell()
    cell.to_target.tx_more = (0, MIB)
    over = cell.judge()[0].unaccounted_bytes - 8 * 192
    cell.to_target.tx_more = (0, MIB - over)
    proof, reasons = cell.judge()
    assert (proof.unaccounted_bytes, reasons) == (1536, [])
    cell.to_target.tx_more = (0, MIB - over + 1)
    assert cell.judge()[1] == [
        "the initiator sent 0 frames (1537 bytes) that neither ESP nor what comes before it accounts for; 8 "
        "may be on the way"
    ]


def test_what_the_other_end_sent_in_clear_does_not_account_for_what_this_one_sent() -> None:
    cell = Cell(seen=(Seen(), Seen(control=30, clear_bytes=30 * 42)))
    cell.to_target.tx_more = (30, 30 * 42)
    _, reasons = cell.judge()
    assert [reason.partition(" (")[0] for reason in reasons] == ["the initiator sent 30 frames"]


def test_a_frame_that_was_lost_has_at_most_the_bytes_of_a_full_one() -> None:
    """An interface may count what the protection behind it does not get: header and MTU of each."""
    way = Way(READ_PACKETS, received=READ_PACKETS - 100, rx_more=(0, MIB))
    lost = Cell(to_initiator=way).judge()[0].unaccounted_bytes
    full = 100 * (14 + WIRED.mtu_bytes)
    way = Way(READ_PACKETS - 100, rx_more=(0, MIB + 100 * way.frame_bytes - full))
    assert lost == Cell(to_initiator=way).judge()[0].unaccounted_bytes


def test_where_the_framing_is_not_known_frames_are_counted_all_the_same() -> None:
    algorithms = ("cbc(camellia)", "hmac(sha512)")
    cell = Cell(algorithms=algorithms)
    cell.to_target.tx_more = (0, 10 * MIB)
    assert cell.judge(protection(algorithms))[1] == []
    cell.to_target.tx_more = (IN_FLIGHT + 1, 0)
    assert len(cell.judge(protection(algorithms))[1]) == 1


def test_over_a_radio_headers_are_longer() -> None:
    """QoS data, CCMP, LLC with SNAP, and what aligns them (IEEE Std 802.11, 9.3.2.1)."""
    assert module.RADIO_HEADER_BYTES == 26 + 8 + 8 + 2
    cell = Cell()
    for way in (cell.to_target, cell.to_initiator):
        way.frame_bytes += module.RADIO_HEADER_BYTES - 14
    assert len(cell.judge()[1]) == 4
    assert cell.judge(header_bytes=module.RADIO_HEADER_BYTES)[1] == []


# What fio moved


@pytest.mark.parametrize(
    ("read", "written", "ends"),
    [
        (READ_PACKETS * (DATA_BYTES + 32), 0, 0),
        (READ_PACKETS * (DATA_BYTES + 32) + 1, 0, 2),
        (0, WRITE_PACKETS * (DATA_BYTES + 32), 0),
        (0, WRITE_PACKETS * (DATA_BYTES + 32) + 1, 2),
    ],
)
def test_each_direction_has_to_be_covered_by_esp_at_each_end(read: int, written: int, ends: int) -> None:
    _, reasons = Cell().judge(read=read, written=written)
    assert len([reason for reason in reasons if "but ESP carried only" in reason]) == len(reasons) == ends


def test_what_only_one_end_counted_is_not_covered() -> None:
    cell = Cell()
    cell.to_initiator.received = READ_PACKETS // 2
    _, reasons = cell.judge()
    carried = READ_PACKETS // 2 * (DATA_BYTES + 32)
    assert reasons == [
        f"fio read {READ} and wrote {WRITTEN} bytes, but ESP carried only {carried} to the initiator and "
        f"only {WRITE_PACKETS * (DATA_BYTES + 32)} from it"
    ]


@pytest.mark.parametrize("way", ["to_target", "to_initiator"])
def test_each_interface_has_to_have_carried_it_each_way(way: str) -> None:
    """Whatever the other direction has carried."""
    cell = Cell()
    getattr(cell, way).frame_bytes = 100
    seen = [Seen(cleartext=9), Seen(cleartext=9)]
    _, reasons = judge(watched(), *cell.snapshots(), seen, read_bytes=READ, write_bytes=WRITTEN)
    assert [
        reason.startswith(f"fio read {READ} and wrote {WRITTEN} bytes, but the ") for reason in reasons
    ] == [
        True,
        True,
    ]
    assert all("'s interface received only " in reason for reason in reasons)


# Rekeys


def rekeyed(cell: Cell, times: int, *, reported: bool = True) -> dict[End, list[SaCounters]]:
    """What went to the target, in so many associations more; with each the counters begin anew."""

    def states(end: End) -> list[SaCounters]:
        (out,) = (state for state in cell.states(end) if state.spi == OUT_SPI)
        others = [state for state in cell.states(end) if state.spi != OUT_SPI]
        grown = out.packets - OLD
        parts = [grown // (times + 1)] * times
        parts.insert(0, grown - sum(parts))
        found = [
            association(
                out.spi + 10 * number,
                out.source,
                out.destination,
                part * (DATA_BYTES + 32) + (OLD * 50 if not number else 0),
                packets=part + (OLD if not number else 0),
                ended=number < times and reported,
                missing=number < times and not reported,
            )
            for number, part in enumerate(parts)
        ]
        return [*found, *others]

    return {end: states(end) for end in ENDS}


def judged_rekeyed(
    times: int, *, reported: bool = True, lacking: int = 0, cleartext: int = 0
) -> tuple[Proof, list[str]]:
    before, after = Cell().snapshots()
    states = rekeyed(Cell(), times, reported=reported)
    after = Snapshot(
        initiator=dataclasses.replace(after.initiator, tally=tally("initiator", states["initiator"])),
        target=dataclasses.replace(after.target, tally=tally("target", states["target"])),
    )
    seen = []
    for end, address in zip(ENDS, (NEAR, FAR), strict=True):
        ours = [state for state in states[end] if state.source == address]
        samples = {
            state.spi: {
                number
                for number in range((OLD if state.spi in (OUT_SPI, IN_SPI) else 0) + 1, state.sequence + 1)
                if number % ONE_IN == 0
            }
            for state in ours
        }
        seen.append(Seen(numbers=samples))
    for _ in range(lacking):
        max(seen[0].numbers.values(), key=len).pop()
    seen[1].cleartext = cleartext
    return judge(watched(protection()), before, after, seen, read_bytes=READ, write_bytes=WRITTEN)


@pytest.mark.parametrize("times", [0, 1, 2, 9])
def test_a_rekey_does_not_end_the_counting(times: int) -> None:
    proof, reasons = judged_rekeyed(times)
    assert reasons == []
    assert proof.rekeys == times
    assert proof.protected_bytes == (READ_PACKETS + WRITE_PACKETS) * (DATA_BYTES + 32)
    assert proof.packets_sampled == proof.packets_due > 0


def test_a_rekey_excuses_nothing() -> None:
    assert judged_rekeyed(2, cleartext=1)[1] == ["1 cleartext segments of the portal were on the link"]
    (reason,) = judged_rekeyed(2, lacking=1)[1]
    assert "lacks 1 of the" in reason


def test_an_association_that_is_gone_without_a_last_word_fails_the_cell() -> None:
    _, reasons = judged_rekeyed(1, reported=False)
    assert reasons == [
        f"1 security associations of the {end} are gone, and the kernel did not report what they had carried"
        for end in ("initiator", "target")
    ]
    _, reasons = Cell(missing=True).judge()
    assert len(reasons) == 2 and all(
        reason.startswith("2 security associations of the ") for reason in reasons
    )


# What the associations are


@pytest.mark.parametrize(
    ("algorithms", "mode"),
    [
        (("ecb(cipher_null)", "hmac(sha256)"), "transport"),
        (GCM, "tunnel"),
        (("rfc4106(gcm(aes))", "hmac(sha256)"), "transport"),
        (("gcm(aes)",), "transport"),
        (("xrfc4106(gcm(aes))",), "transport"),
    ],
)
def test_another_algorithm_or_mode_than_agreed_on_fails_the_cell(
    algorithms: tuple[str, ...], mode: str
) -> None:
    """Compared as names, in whatever order."""
    _, reasons = Cell(algorithms=algorithms, mode=mode).judge()
    said = [reason for reason in reasons if "in transport mode, found" in reason]
    assert len(said) == 2
    assert said[0] == (
        f"expected rfc4106(gcm(aes)) in transport mode, found {' + '.join(algorithms)} in {mode} mode "
        "on the initiator"
    )


def test_the_order_of_names_does_not_matter() -> None:
    cell = Cell(algorithms=CBC[::-1])
    frame_bytes = Wire(link=WIRED, framing=framing_of(CBC, IpsecMode.TRANSPORT)).frame_bytes(DATA_BYTES)
    for way in (cell.to_target, cell.to_initiator):
        way.frame_bytes = frame_bytes
    assert cell.judge(protection(CBC))[1] == []


# The captures


@pytest.mark.parametrize(("near", "far"), [(1, 0), (0, 1), (3, 4)])
def test_one_cleartext_segment_of_either_end_condemns_the_cell(near: int, far: int) -> None:
    proof, reasons = Cell(
        seen=(Seen(cleartext=near, clear_bytes=66 * near), Seen(cleartext=far, clear_bytes=66 * far))
    ).judge()
    assert reasons == [f"{near + far} cleartext segments of the portal were on the link"]
    assert proof.cleartext_segments == near + far


def test_so_does_whatever_else_is_neither_esp_nor_comes_before_it() -> None:
    proof, reasons = Cell(seen=(Seen(), Seen(other=2, clear_bytes=200))).judge()
    assert reasons == ["2 frames on the link were neither ESP nor IKE, ARP or the like"]
    assert proof.other_frames == 2


def test_the_first_frame_that_does_not_belong_is_named() -> None:
    _, reasons = Cell(seen=(Seen(), Seen(other=1, first_other="ICMPv6 of type 128", clear_bytes=86))).judge()
    assert reasons == [
        "1 frames on the link were neither ESP nor IKE, ARP or the like (the first was ICMPv6 of type 128)"
    ]


@pytest.mark.parametrize("guard", [protection(), None], ids=["protected", "plain"])
def test_a_capture_that_cannot_be_relied_on_fails_the_cell(guard: EspLayer | None) -> None:
    fault = "the capture of what the target sent cannot be relied on: tcpdump has ended"
    cell = Cell(seen=(Seen(), Seen(fault=fault)))
    if guard is not None:
        assert cell.judge(guard)[1] == [fault]
        return
    assert plain((Seen(cleartext=1), Seen(cleartext=1, fault=fault))) == [fault]


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("lacking", [1, 20])
def test_every_sampled_packet_has_to_be_in_the_capture_of_who_sent_it(end: int, lacking: int) -> None:
    unsampled = (lacking, 0) if end == 0 else (0, lacking)
    _, reasons = Cell(unsampled=unsampled).judge()
    assert reasons == [
        f"the capture of what the {ENDS[end]} sent lacks {lacking} of the {DUE[end]} ESP packets that must "
        "be in it"
    ]


def test_a_capture_that_saw_nothing_fails_the_cell_as_soon_as_one_packet_was_due() -> None:
    sent = 2 * ONE_IN - OLD % ONE_IN - 1
    cell = Cell(to_target=Way(sent))
    cell.unsampled = (10**6, 0)
    _, reasons = cell.judge(written=0)
    assert reasons == [
        "the capture of what the initiator sent lacks 1 of the 1 ESP packets that must be in it"
    ]
    cell.to_target = Way(ONE_IN - OLD % ONE_IN - 1)
    proof, reasons = cell.judge(written=0)
    assert reasons == [] and proof.packets_due == DUE[1], "no packet of the initiator's was due"


def test_what_never_reached_the_link_is_not_in_the_capture() -> None:
    """Lost in the sender's queue: then the other end's ESP did not count it. But never more than half."""
    cell = Cell(unsampled=(0, 5))
    cell.to_initiator.received = READ_PACKETS - 5
    read = READ - 6 * DATA_BYTES
    assert cell.judge(read=read)[1] == []
    cell.unsampled = (0, 6)
    assert len(cell.judge(read=read)[1]) == 1
    cell.unsampled, cell.to_initiator.received = (0, DUE[1]), 0
    assert any(f"lacks {DUE[1]} of the {DUE[1]}" in reason for reason in cell.judge(read=0)[1])


@pytest.mark.parametrize(("due", "excused"), [(24, 12), (25, 13)])
def test_a_link_that_lost_everything_excuses_half_of_the_samples(due: int, excused: int) -> None:
    cell = Cell(to_target=Way(WRITE_PACKETS + (due - DUE[0]) * ONE_IN, received=0))
    cell.unsampled = (excused, 0)
    assert cell.judge(written=0)[1] == []
    cell.unsampled = (excused + 1, 0)
    assert cell.judge(written=0)[1] == [
        f"the capture of what the initiator sent lacks {excused + 1} of the {due} ESP packets that must be "
        "in it"
    ]


def test_of_large_sequence_numbers_the_link_carries_the_lower_half() -> None:
    """RFC 4303, section 2.2.1."""
    start = (1 << 32) - 2 * ONE_IN
    before, after = (
        EndCounters(
            tally=tally("initiator", [association(OUT_SPI, NEAR, FAR, 0, packets=start + packets)]),
            traffic=InterfaceCounters(tx_packets=packets),
        )
        for packets in (0, 4 * ONE_IN)
    )
    blank = EndCounters()
    shots = Snapshot(initiator=before, target=blank), Snapshot(initiator=after, target=blank)
    seen = [Seen(numbers={OUT_SPI: {(start + ONE_IN * n) & 0xFFFFFFFF for n in range(1, 5)}}), Seen()]
    proof, reasons = judge(watched(protection()), *shots, seen, read_bytes=0, write_bytes=0)
    assert proof.packets_due == 4
    assert not any("lacks" in reason for reason in reasons)


class Looks(Capture):
    """A capture whose looks show one thing after another."""

    def __init__(self, *looks: Sequence[Seen]) -> None:
        super().__init__(taps=capture(1, 1).taps, one_in=ONE_IN)
        self.looks = [list(each) for each in looks]

    def look(self) -> list[Seen]:
        return self.looks.pop(0) if self.looks else [Seen(), Seen()]


def test_what_waits_in_a_queue_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was counted when it was encrypted, and leaves after the link's delay."""
    cell = Cell(to_target=Way(ONE_IN), to_initiator=Way(0))
    before, after = cell.snapshots()
    due = OLD // ONE_IN * ONE_IN + ONE_IN
    late = Looks([Seen(), Seen()], [Seen(), Seen()], [Seen(numbers={OUT_SPI: {due}}), Seen(cleartext=1)])
    now_s = [100.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    def monotonic() -> float:
        sleep(1e-6)
        return now_s[0]

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic, sleep=sleep))
    seen = collect(watched(protection(), captures=late), before, after)
    assert seen == [Seen(numbers={OUT_SPI: {due}}), Seen(cleartext=1)]
    assert late.looks == []
    assert now_s[0] < 100.1, "and no longer"
    now_s[0] = 100.0
    slow = dataclasses.replace(link(), profile=msgspec.structs.replace(WIRED, delay_us=250_000.0))
    never = watched(protection(), captures=Looks(), path=slow)
    assert collect(never, before, after) == [Seen(), Seen()], "but not for ever"
    assert now_s == [pytest.approx(101.5, abs=0.02)], "a second, and the way there and back"
    once = Looks([Seen(), Seen()], [Seen(cleartext=1), Seen()])
    assert collect(watched(captures=once), before, after) == [Seen(), Seen()]


# Columns without IPsec: the same kind of capture has to see what is in clear


def plain(
    seen: tuple[Seen, Seen] = (Seen(cleartext=4), Seen(cleartext=4)),
    *,
    since_start: tuple[int, int] = (9, 9),
    frames: int = 1000,
    is_shared: bool = False,
    moved: int = 1000,
    written: int = 0,
) -> list[str]:
    """``moved`` bytes each way at most, which the interfaces counted to the byte."""
    empty = EndCounters()
    used = InterfaceCounters(rx_bytes=moved, tx_bytes=moved, rx_packets=frames, tx_packets=frames)
    full = EndCounters(traffic=used)
    shots = Snapshot(initiator=empty, target=empty), Snapshot(initiator=full, target=full)
    bare = watched(seen_since_start=since_start, path=link(is_shared=is_shared))
    proof, reasons = judge(bare, *shots, seen, read_bytes=moved, write_bytes=written)
    assert proof.protected_bytes == proof.unaccounted_frames == 0
    return reasons


def test_a_plain_column_needs_no_esp() -> None:
    assert plain() == []


@pytest.mark.parametrize("seen", [(Seen(numbers={7: {1}}), Seen()), (Seen(), Seen(numbers={7: {1}}))])
def test_esp_of_either_end_on_a_plain_column_condemns_the_cell(seen: tuple[Seen, Seen]) -> None:
    assert plain(seen) == ["IPsec is off, but 1 ESP packets were on the link"]
    # Where others use the link it may be another column's.
    assert plain(seen, is_shared=True) == []


@pytest.mark.parametrize(
    ("since_start", "ends"),
    [((0, 1), ["initiator"]), ((1, 0), ["target"]), ((0, 0), ["initiator", "target"])],
)
@pytest.mark.parametrize("is_shared", [False, True])
def test_each_capture_has_to_have_seen_the_portal_in_clear(
    since_start: tuple[int, int], ends: list[str], is_shared: bool
) -> None:
    reasons = plain((Seen(), Seen()), since_start=since_start, is_shared=is_shared)
    assert reasons == [
        f"the capture of what the {end} sent lacks the beginning of the portal's connection" for end in ends
    ]


def test_and_in_each_cell_where_samples_were_due() -> None:
    one_in = PRIMES[ONE_IN]
    enough = 32 * one_in  # Each frame is kept by chance: that none is has a probability of e**-32.
    nothing = (Seen(), Seen())
    assert plain(nothing, frames=enough) == [], "too little to say"
    assert plain(nothing, frames=enough + 1) == [
        f"expected the portal's TCP segments in the capture of what the {end} sent, found none: it "
        f"keeps one of {one_in}, of {enough + 1} frames or more"
        for end in ("initiator", "target")
    ]
    # On a link that others use, what they send says nothing: as many frames as what fio moved takes at least.
    assert plain(nothing, frames=10 * enough, is_shared=True) == []
    least = (enough + 1) * 65536
    assert plain(nothing, frames=10 * enough, is_shared=True, moved=least - 1) == []
    assert plain(nothing, frames=10 * enough, is_shared=True, moved=least - 1, written=1) == [
        f"expected the portal's TCP segments in the capture of what the {end} sent, found none: it "
        f"keeps one of {one_in}, of {enough + 1} frames or more"
        for end in ("initiator", "target")
    ]


# On a link that others use, the portal's connection is held against ESP


def shared(near: tuple[int, int] = (0, 0), far: tuple[int, int] = (0, 0), port: int = 40000) -> Cell:
    """``near`` and ``far`` are segments more than packets, sent and received, at the two ends."""
    counts = (
        ((WRITE_PACKETS, READ_PACKETS), near),
        ((READ_PACKETS, WRITE_PACKETS), far),
    )
    cell = Cell(
        is_shared=True,
        segments=tuple(
            (
                Segments(ports=frozenset({40000}), sent=70, received=80),
                Segments(ports=frozenset({port}), sent=70 + out + more[0], received=80 + into + more[1]),
            )
            for (out, into), more in counts
        ),
    )
    for way in (cell.to_target, cell.to_initiator):
        way.tx_more = way.rx_more = (10**6, 10**9)  # an SSH connection, say
    return cell


def test_what_others_send_on_the_link_is_no_concern() -> None:
    proof, reasons = shared().judge()
    assert (reasons, proof.unaccounted_frames, proof.unaccounted_bytes) == ([], 0, 0)


@pytest.mark.parametrize(
    ("end", "number", "what"),
    [
        ("near", 0, "the portal's connections of the initiator sent"),
        ("near", 1, "the portal's connections of the initiator received"),
        ("far", 0, "the portal's connections of the target sent"),
        ("far", 1, "the portal's connections of the target received"),
    ],
)
def test_each_segment_has_to_be_an_esp_packet_at_each_end(end: str, number: int, what: str) -> None:
    for more, is_proved in ((IN_FLIGHT, True), (IN_FLIGHT + 1, False)):
        counts = (more, 0) if number == 0 else (0, more)
        proof, reasons = (shared(near=counts) if end == "near" else shared(far=counts)).judge()
        assert proof.unaccounted_frames == more
        assert (reasons == []) is is_proved
        if not is_proved:
            assert reasons == [
                f"{what} {more} segments that neither ESP nor what comes before it accounts for; "
                f"{IN_FLIGHT} may be on the way"
            ]


def test_esp_is_counted_for_longer_than_the_connection() -> None:
    proof, reasons = shared(near=(-3, -3), far=(-3, -3)).judge()
    assert (reasons, proof.unaccounted_frames) == ([], 0)


def test_a_connection_that_was_replaced_cannot_be_counted() -> None:
    wanted = "expected the same connections to the portal at the initiator from the beginning of the cell to"
    assert wanted in shared(port=40001).judge()[1][0]
    cell = shared()
    cell.segments = ((None, None), (None, None))
    assert len(cell.judge()[1]) == 2


@pytest.mark.parametrize("moment", [0, 1])
def test_a_connection_that_was_seen_but_once_cannot_be_counted(moment: int) -> None:
    cell = shared()
    near, far = cell.segments or ()
    cell.segments = ((None, near[1]) if moment == 0 else (near[0], None), far)
    assert cell.judge()[1] == [
        "expected the same connections to the portal at the initiator from the beginning of the cell to its "
        "end, found none or others (ss)"
    ]


@pytest.mark.parametrize(
    ("less", "reason"),
    [
        (
            {"tally": Tally()},
            "the counters of ESP at the initiator and the target went backwards within the cell, so what "
            "they count was replaced or removed",
        ),
        (
            {"traffic": InterfaceCounters()},
            "the counters of the interface hbeefi0 at the initiator went backwards within the cell, so what "
            "they count was replaced or removed; the counters of the interface hbeeft0 at the target went "
            "backwards within the cell, so what they count was replaced or removed",
        ),
    ],
    ids=["protection", "interface"],
)
def test_counters_that_go_backwards_are_a_replacement_and_no_negative_figure(
    less: dict[str, Any], reason: str
) -> None:
    guard = protection()
    before, after = Cell().snapshots(guard)
    after = Snapshot(
        initiator=dataclasses.replace(after.initiator, **less, retransmits=0),
        target=dataclasses.replace(after.target, **less, retransmits=0),
    )
    near, far = (
        Seen(numbers={spi: set(range(ONE_IN, OLD + packets + 1, ONE_IN))})
        for spi, packets in ((OUT_SPI, WRITE_PACKETS), (IN_SPI, READ_PACKETS))
    )
    proof, reasons = judge(watched(guard), before, after, [near, far], read_bytes=READ, write_bytes=WRITTEN)
    assert "; ".join(reasons) == reason, "nothing can be compared with such counters"
    assert out_of_range(proof) is None
    near.add(Seen(cleartext=1, fault="x"))
    seen = [near, far]
    _, reasons = judge(watched(guard), before, after, seen, read_bytes=READ, write_bytes=WRITTEN)
    assert reasons == ["x", *reason.split("; "), "1 cleartext segments of the portal were on the link"]


def test_an_interface_that_is_replaced_without_protection_is_reported_as_well() -> None:
    before, after = Cell().snapshots()
    after = after._replace(target=dataclasses.replace(after.target, traffic=InterfaceCounters()))
    proof, reasons = judge(watched(), before, after, [Seen(), Seen()], read_bytes=READ, write_bytes=WRITTEN)
    assert len(reasons) == 1 and "hbeeft0 at the target went backwards" in reasons[0]
    assert out_of_range(proof) is None


def test_every_reason_is_given_at_once() -> None:
    cell = Cell(
        seen=(Seen(cleartext=4, fault="x"), Seen(other=5)),
        unsampled=(1, 1),
        missing=True,
        algorithms=("gcm(aes)",),
    )
    cell.to_target.tx_more = (100, 100)
    _, reasons = cell.judge(read=10**12)
    assert len(reasons) == 1 + 2 + 2 * 3 + 1 + 1 + 2 + 1


# Where the counters come from

DEV = "hbeefi0: 1000    10     0     0     0     0     0     0    30     3     0     0     0     0     0\n"
PROC_NET_DEV = f"""\
Inter-| Receive | Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier
    lo: 999     9     0     0     0     0     0     0   999     9     0     0     0     0     0
{DEV}xhbeefi0: 5     1     0     0     0     0     0     0     5     1     0     0     0     0     0
hbeeft0:7000    10     0     0     0     0     0     0   400     3     0     0     0     0     0
"""


class Files(World):
    def text_of(self, path: str) -> str:
        return {"/proc/net/dev": PROC_NET_DEV, "/proc/net/snmp": PROC_NET_SNMP}[path]


def test_without_ipsec_files_are_read_and_nobody_is_asked() -> None:
    world = Files()
    now = looked(watched(path=link(world=world)), begins=True)
    assert world.commands == []
    assert now.initiator.traffic == InterfaceCounters(rx_bytes=1000, rx_packets=10, tx_bytes=30, tx_packets=3)
    assert (now.target.traffic.rx_bytes, now.target.traffic.tx_bytes) == (7000, 400)
    assert (now.initiator.retransmits, now.initiator.tally) == (17, Tally())


def test_an_interface_that_is_gone_has_carried_nothing() -> None:
    gone = dataclasses.replace(link(world=Files()), initiator_iface="hbeefi9")
    assert looked(watched(path=gone), begins=True).initiator.traffic == InterfaceCounters()


SNMP = "Ip: FragOKs FragCreates ReasmReqds ReasmOKs\nIp: 3 9 8 2\nTcp: RetransSegs\nTcp: 5\n"
STATES = (association(OUT_SPI, NEAR, FAR, 10),)
REPORT = WitnessReport(before=DEV, states=STATES, after=DEV.replace("1000", "2000"), snmp=SNMP)
SNMP6 = "Ip6FragOKs 1\nIp6FragCreates    \t6\nIp6ReasmReqds 9\nIp6ReasmOKs 2\nIcmp6InMsgs 77\n"


@pytest.mark.parametrize(
    ("snmp", "sent", "received", "retransmits"),
    [(SNMP, 6, 6, 5), (SNMP + SNMP6, 6 + 5, 6 + 7, 5), (SNMP6, 5, 7, 0), ("", 0, 0, 0)],
    ids=["IPv4", "both", "IPv6", "none"],
)
def test_counts_of_ipv6_are_added_to_those_of_ipv4(
    snmp: str, sent: int, received: int, retransmits: int
) -> None:
    """Their lines are /proc/net/snmp6's, which a witness appends."""
    witness = FakeWitness(msgspec.structs.replace(REPORT, snmp=snmp))
    guard = protection(witnesses=Witnesses(ends=(witness, witness)))
    near = looked(watched(guard), begins=True).initiator
    assert (near.fragments_sent, near.fragments_received, near.retransmits) == (sent, received, retransmits)


@pytest.mark.parametrize(("begins", "counted"), [(True, 2000), (False, 1000)])
def test_esp_is_counted_for_longer_than_the_interfaces(begins: bool, counted: int) -> None:
    """Where a cell begins its interfaces are read last, where it ends first."""
    guard = protection(witnesses=Witnesses(ends=(FakeWitness(REPORT), FakeWitness(REPORT))))
    world = World()
    near = looked(watched(guard, path=link(world=world)), begins=begins).initiator
    assert world.commands == [], "ss is asked only where others use the link"
    assert near == EndCounters(
        traffic=InterfaceCounters(rx_bytes=counted, rx_packets=10, tx_bytes=30, tx_packets=3),
        retransmits=5,
        fragments_sent=6,
        fragments_received=6,
        tally=tally("initiator", STATES),
    )


SS = """\
0      0         198.18.0.1:43210      198.18.0.2:3260   \n\
\t cubic wscale:7,7 rto:204 rtt:0.1/0.05 mss:1408 bytes_sent:9 segs_out:12 segs_in:34 data_segs_out:7
"""


@pytest.mark.parametrize("begins", [True, False])
def test_on_a_link_that_others_use_ss_is_asked_for_the_portal_s_connection(begins: bool) -> None:
    world = World(answers=[(("ss",), (0, SS, ""))])
    guard = protection(witnesses=Witnesses(ends=(FakeWitness(REPORT), FakeWitness(REPORT))))
    now = looked(watched(guard, path=link(is_shared=True, world=world)), begins=begins)
    assert (
        now.initiator.segments
        == now.target.segments
        == Segments(ports=frozenset({43210}), sent=12, received=34)
    )
    assert [(command.host, command.argv[4:]) for command in world.commands] == [
        ("initiator", ("src", NEAR, "dst", f"{FAR}:3260")),
        ("target", ("src", f"{FAR}:3260", "dst", NEAR)),
    ]


@pytest.mark.parametrize(
    "text",
    ["", SS.replace("segs_in:34", ""), SS + SS.replace("segs_in:34", ""), "ss: not found\n"],
    ids=["none", "no counters", "no counters of one", "no ss"],
)
def test_any_other_answer_of_ss_is_none(text: str) -> None:
    world = World(answers=[(("ss",), (127 if "not found" in text else 0, text, ""))])
    guard = protection(witnesses=Witnesses(ends=(FakeWitness(REPORT), FakeWitness(REPORT))))
    assert (
        looked(watched(guard, path=link(is_shared=True, world=world)), begins=True).initiator.segments is None
    )


def test_nvme_tcp_has_a_connection_for_each_queue() -> None:
    world = World(answers=[(("ss",), (0, SS + SS.replace("43210", "43212"), ""))])
    guard = protection(witnesses=Witnesses(ends=(FakeWitness(REPORT), FakeWitness(REPORT))))
    found = looked(watched(guard, path=link(is_shared=True, world=world)), begins=True).initiator.segments
    assert found == Segments(ports=frozenset({43210, 43212}), sent=24, received=68)


def test_an_interface_s_name_may_be_that_of_an_alias() -> None:
    """ss(8) shows an address with the interface that a socket is bound to."""
    bound = SS.replace("198.18.0.1:", "198.18.0.1%eth0:")
    world = World(answers=[(("ss",), (0, bound, ""))])
    guard = protection(witnesses=Witnesses(ends=(FakeWitness(REPORT), FakeWitness(REPORT))))
    found = looked(watched(guard, path=link(is_shared=True, world=world)), begins=True).initiator.segments
    assert found == Segments(ports=frozenset({43210}), sent=12, received=34)


def test_a_proof_of_before_can_be_read() -> None:
    """Records of older runs lack the newer counts."""
    old = b'{"link_bytes_initiator":1,"link_bytes_target":2,"protected_bytes":3,"rekeys":1}'
    assert msgspec.json.decode(old, type=Proof).unaccounted_frames == 0


def at_one_end(
    *, received: int = READ, in_clear: int = 1, layer: EspLayer | None = None, before_this: int = 1
) -> tuple[Proof, list[str]]:
    """A cell that read, and the proof of it at the initiator's end, where the target is only reached."""
    path = link_path(World(), 0, is_shared=True, target=Unseen())
    captures = Capture(taps=(), one_in=1, since_start=[before_this])
    carried = tally("initiator", [association(IN_SPI, FAR, NEAR, 1, packets=READ_PACKETS)])
    segments = [Segments(ports=frozenset({4444}), sent=n, received=n) for n in (0, READ_PACKETS)]
    before = EndCounters(segments=segments[0])
    after = EndCounters(
        traffic=InterfaceCounters(rx_bytes=received, tx_packets=10_000, rx_packets=10_000),
        tally=carried if layer else Tally(),
        segments=segments[1],
    )
    one = CapturedLayer(path=path, capture=captures, layer=layer)
    return judge(one, (before,), (after,), [Seen(cleartext=in_clear)], read_bytes=READ, write_bytes=0)


def test_a_target_that_is_only_reached_leaves_the_proof_of_one_end() -> None:
    proof, reasons = at_one_end()
    assert reasons == []
    assert proof.at_one_end and proof.link_bytes == (READ,) and proof.link_bytes_target == 0


def test_one_end_proves_as_strictly_as_two() -> None:
    _, (less,) = at_one_end(received=READ - 1)
    assert "the initiator's interface received only" in less and "target" not in less
    _, (nothing,) = at_one_end(in_clear=0)
    assert "expected the portal's TCP segments" in nothing
    _, (late,) = at_one_end(before_this=0)
    assert "lacks the beginning of the portal's connection" in late
    proof, reasons = at_one_end(layer=protection(), in_clear=2)
    assert proof.at_one_end and "2 cleartext segments of the portal were on the link" in reasons


def test_no_peer_excuses_what_an_end_that_is_seen_alone_lacks() -> None:
    alone: Any = object()
    assert module._pairs([alone]) == [(alone, None)]
    assert module._lost(alone, None) == 0


def test_nothing_is_read_of_the_end_that_is_not_seen() -> None:
    world = World()
    path = link_path(world, 0, is_shared=True, target=Unseen())
    (near,) = snapshot(CapturedLayer(path=path, capture=capture(1, 1)), begins=True)
    assert near.segments is None
    assert len(module.interfaces(path, (near,), (near,))) == 1
