"""The proof: every way in which a cell's bytes may have gone elsewhere, and no other, fails it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest

from harness.analysis.theory import Esp, Wire, esp
from harness.hosts.black_box import BlackBoxHost
from harness.model import ENDS, IpsecMode, Proof
from harness.model.ranges import out_of_range
from harness.network.links import LinkPath
from harness.observe.counters import InterfaceCounters
from harness.protection import proof as module
from harness.protection.capture import PRIMES, Capture, Seen
from harness.protection.ipsec.layer import EspLayer
from harness.protection.layer import Said, Tally
from harness.protection.proof import CapturedLayer, EndCounters, Segments, collect, judge, snapshot
from harness.protection.xfrm_listener import ListenerReport, SaCounters, XfrmListeners
from tests.unit.fakes import PROC_NET_SNMP, FakeXfrmListener, World
from tests.unit.fakes.ipsec import association
from tests.unit.fakes.paths import WIRED, link_path

MIB = 1 << 20
IN_FLIGHT, SMALL_FRAME_BYTES = module.IN_FLIGHT, module.SMALL_FRAME_BYTES
NEAR, FAR = "198.18.0.1", "198.18.0.2"
GCM, CBC = ("rfc4106(gcm(aes))",), ("cbc(aes)", "hmac(sha256)")
ONE_IN = 64
OUT_SPI, IN_SPI = 1, 2
"""Of the initiator's association to the target, and of the one back."""

DATA_BYTES = 1400
READ_PACKETS, WRITE_PACKETS = 6000, 1500
READ, WRITTEN = READ_PACKETS * DATA_BYTES, WRITE_PACKETS * DATA_BYTES
"""What fio moved in every cell below: a full packet each, and for simplicity no bare ACKs."""

COUNTED_BYTES = DATA_BYTES + 32
"""Of each packet by its association: TCP's header and data."""

OLD = 1000
"""Packets that each association had carried before; each end had sent and received so many fragments."""

DUE = tuple((OLD + packets) // ONE_IN - OLD // ONE_IN for packets in (WRITE_PACKETS, READ_PACKETS))
"""Samples in the captures of initiator and target: every packet whose number is a multiple of ``ONE_IN``."""

SILENT = ListenerReport(before="", after="")
NOTHING = (Seen(), Seen())
Judged = tuple[Proof, list[str]]


def framing_of(algorithms: Sequence[str], mode: IpsecMode = IpsecMode.TRANSPORT) -> Esp:
    found = esp(algorithms, mode)
    assert found is not None
    return found


def link(world: World | None = None, *, is_shared: bool = False) -> LinkPath:
    return link_path(world or World(), 0, is_shared=is_shared)


def protection(
    algorithms: tuple[str, ...] = GCM, mode: IpsecMode = IpsecMode.TRANSPORT, report: ListenerReport = SILENT
) -> EspLayer:
    listeners = XfrmListeners(ends=(FakeXfrmListener(report),) * 2)
    return EspLayer(below=link(), algorithms=algorithms, mode=mode, listeners=listeners)


def test_charon_s_log_says_when(tmp_path: Path) -> None:
    log = tmp_path / "charon.log"
    log.write_text("1700000116.018 14[IKE] giving up after 5 retransmits\n\n00[DMN] of another kind\n")
    layer = dataclasses.replace(protection(), logs={"target": log})
    at_ns = 1_700_000_116_018 * 10**6
    assert [*layer.said()] == [Said("target", "charon", at_ns, "giving up after 5 retransmits")]


def watched(layer: EspLayer | None = None, path: LinkPath | None = None, **more: Any) -> CapturedLayer:
    """A layer over a path, or the bare path."""
    return CapturedLayer(**{"path": path or link(), "capture": capture(1, 1), "layer": layer, **more})


def capture(*since_start: int) -> Capture:
    return Capture(taps=(), one_in=ONE_IN, since_start=list(since_start))


def tally(number: int, states: Sequence[SaCounters], guard: EspLayer | None = None) -> Tally:
    """What ESP tells of one end that has these associations."""
    guard, report = guard or protection(), msgspec.structs.replace(SILENT, states=tuple(states))
    return protection(guard.algorithms, guard.mode, report).look()[number].tally


@dataclasses.dataclass
class NetworkPath:
    """What went one way in a cell: packets with data, each counted by sender, link and receiver."""

    packets: int
    counted_bytes: int = COUNTED_BYTES
    frame_bytes: int = 14 + framing_of(GCM).packet_bytes(20 + COUNTED_BYTES)
    received: int | None = None
    """How many of them ESP counted at the other end, if not all."""
    tx_more: tuple[int, int] = (0, 0)
    """Frames and bytes that the sender's interface counted besides them."""
    rx_more: tuple[int, int] = (0, 0)


@dataclasses.dataclass
class Cell:
    """A cell on a path, as its counters and captures tell of it; the fields are what is wrong with it."""

    to_target: NetworkPath = dataclasses.field(default_factory=lambda: NetworkPath(WRITE_PACKETS))
    to_initiator: NetworkPath = dataclasses.field(default_factory=lambda: NetworkPath(READ_PACKETS))
    seen: tuple[Seen, Seen] = dataclasses.field(default_factory=lambda: (Seen(), Seen()))
    """Besides the samples that are due."""
    unsampled: tuple[int, int] = (0, 0)
    """How many of the samples each capture lacks."""
    algorithms: tuple[str, ...] = GCM
    mode: IpsecMode = IpsecMode.TRANSPORT
    guard: EspLayer | None = None
    """If it expects another algorithm or mode."""
    missing: bool = False
    fragments: int = 0
    """How many frames more the target made of its packets, and the initiator took for them."""
    is_shared: bool = False
    segments: tuple[tuple[Segments | None, Segments | None], ...] = ((None, None), (None, None))
    reconnects: bool = False
    joined: int = 1
    """How many packets each sender's association counts as one: with segmentation offload."""

    def judge(self, *, read: int = READ, written: int = WRITTEN, **more: Any) -> Judged:
        seen = []
        for spi, way, lacking, also in zip(
            (OUT_SPI, IN_SPI), (self.to_target, self.to_initiator), self.unsampled, self.seen, strict=True
        ):
            due = range((OLD // ONE_IN + 1) * ONE_IN, OLD + way.packets + 1, ONE_IN)
            seen.append(Seen(numbers={spi: set(due[lacking:])}))
            seen[-1].add(also)
        at = watched(self.asked(), link(is_shared=self.is_shared), **more)
        counts = self.snapshots()
        return judge(at, *counts, seen, read_bytes=read, write_bytes=written, reconnects=self.reconnects)

    def asked(self) -> EspLayer:
        return self.guard or protection(self.algorithms, self.mode)

    def snapshots(self) -> tuple[list[EndCounters], list[EndCounters]]:
        """Both ends, at the beginning and at the end."""
        before, after = [], []
        idle = dataclasses.replace(self, to_target=NetworkPath(0), to_initiator=NetworkPath(0), missing=False)
        for number, (first, last) in enumerate(self.segments):
            out, into = (self.to_target, self.to_initiator)[:: -1 if number else 1]
            began = EndCounters(
                traffic=InterfaceCounters(rx_bytes=5, rx_packets=5, tx_bytes=5, tx_packets=5),
                retransmits=3,
                fragments_sent=OLD,
                fragments_received=OLD,
                tally=tally(number, idle.states(number), self.asked()),
                segments=first,
            )
            traffic = InterfaceCounters(
                rx_packets=5 + into.packets + into.rx_more[0],
                rx_bytes=5 + into.packets * into.frame_bytes + into.rx_more[1],
                tx_packets=5 + out.packets + out.tx_more[0],
                tx_bytes=5 + out.packets * out.frame_bytes + out.tx_more[1],
            )
            counted = tally(number, self.states(number), self.asked())
            more: Any = {"fragments_sent" if number else "fragments_received": OLD + self.fragments}
            more |= {"traffic": traffic, "tally": counted, "retransmits": 4, "segments": last}
            before.append(began)
            after.append(dataclasses.replace(began, **more))
        return before, after

    def states(self, number: int) -> list[SaCounters]:
        """Of both directions, as an end counts them. Its own are given super-packets with one header."""
        found = []
        for spi, source, destination, way in (
            (OUT_SPI, NEAR, FAR, self.to_target),
            (IN_SPI, FAR, NEAR, self.to_initiator),
        ):
            is_own = source == (NEAR, FAR)[number]
            packets = way.packets if is_own or way.received is None else way.received
            size_bytes = OLD * 50 + packets * way.counted_bytes
            within = packets // (self.joined if is_own else 1)
            size_bytes -= (packets - within) * (52 if self.mode is IpsecMode.TUNNEL else 32)
            stated: Any = {"packets": OLD + within, "sequence": OLD + packets, "missing": self.missing}
            stated |= {"algorithms": self.algorithms, "mode": self.mode}
            found.append(association(spi, source, destination, size_bytes, **stated))
        return found


def test_what_went_through_esp_is_proved() -> None:
    proof, reasons = Cell(seen=(Seen(control=2, clear_bytes=84), Seen(control=1, clear_bytes=42))).judge()
    assert reasons == []
    packets = READ_PACKETS + WRITE_PACKETS
    assert proof == Proof(
        link_bytes_initiator=packets * NetworkPath(0).frame_bytes,
        link_bytes_target=packets * NetworkPath(0).frame_bytes,
        protected_bytes=packets * COUNTED_BYTES,
        protected_bytes_initiator=packets * COUNTED_BYTES,
        protected_bytes_target=packets * COUNTED_BYTES,
        packets_sampled=sum(DUE),
        packets_expected=sum(DUE),
        sampling=ONE_IN,
        control_plane_frames=3,
        tcp_retransmits=2,
    )


def accounted(cell: Cell, moved: int) -> None:
    """All that the cell's interfaces counted is."""
    proof, reasons = cell.judge(read=moved, written=moved)
    assert (reasons, proof.unaccounted_frames, proof.unaccounted_bytes) == ([], 0, 0)


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
    framing, packets = framing_of(algorithms, mode), 10_000
    counted = data_bytes + 32 + (20 if mode is IpsecMode.TUNNEL else 0)
    frame_bytes = Wire(link=WIRED, framing=framing).frame_bytes(data_bytes)
    out, back = (NetworkPath(packets, counted, frame_bytes) for _ in range(2))
    cell = Cell(to_target=out, to_initiator=back, algorithms=algorithms, mode=mode)
    accounted(cell, packets * data_bytes)
    # And for no more than the padding of each packet besides: one frame that is larger is seen.
    out.tx_more = (0, packets * (framing.block_bytes - 1) + IN_FLIGHT * SMALL_FRAME_BYTES + 1)
    (reason,) = cell.judge(read=packets * data_bytes, written=packets * data_bytes)[1]
    assert reason.startswith("the initiator sent 0 frames (")


@pytest.mark.parametrize("mode", list(IpsecMode))
def test_headers_that_segmentation_offload_repeats_are_accounted_for(mode: IpsecMode) -> None:
    """Each packet on the link has its own, though ``esp4_offload`` gives a state 30 packets as one."""
    within = COUNTED_BYTES + (20 if mode is IpsecMode.TUNNEL else 0)
    frame_bytes = Wire(link=WIRED, framing=framing_of(GCM, mode)).frame_bytes(DATA_BYTES)
    out, back = (NetworkPath(packets, within, frame_bytes) for packets in (WRITE_PACKETS, READ_PACKETS))
    cell = Cell(to_target=out, to_initiator=back, mode=mode, joined=30)
    accounted(cell, WRITTEN)
    # And for no more than the longest header that TCP has.
    back.tx_more = (0, READ_PACKETS * (60 - 32 + 3) + IN_FLIGHT * SMALL_FRAME_BYTES)
    (reason,) = cell.judge()[1]
    assert reason.startswith("the target sent 0 frames (")


# Whatever the link carried, and ESP, IKE and ARP do not account for


@pytest.mark.parametrize("frames", [IN_FLIGHT, IN_FLIGHT + 1, 7437])
def test_each_interface_is_held_against_esp_in_each_direction(frames: int) -> None:
    """Frames that no capture has seen."""
    for way, counter, what in (
        ("to_target", "tx_more", "the initiator sent"),
        ("to_target", "rx_more", "the target received"),
        ("to_initiator", "tx_more", "the target sent"),
        ("to_initiator", "rx_more", "the initiator received"),
    ):
        cell = Cell()
        setattr(getattr(cell, way), counter, (frames, 66 * frames))
        proof, reasons = cell.judge()
        assert proof.unaccounted_frames == frames
        assert [reason.partition(" (")[0] for reason in reasons] == [f"{what} {frames} frames"] * (frames > 8)


@pytest.mark.parametrize(
    ("frames", "size_bytes", "said"),
    [
        # ESP is counted for longer than the interfaces, and its framing may take less than its bound.
        (9, 0, r"9 frames \(0 bytes\)"),
        (-3, MIB, r"0 frames \(10\d{5} bytes\)"),
        # Super-packets in clear.
        (IN_FLIGHT, IN_FLIGHT * 65_000, r"8 frames \(51\d{4} bytes\)"),
    ],
)
def test_a_reason_has_no_negative_figure(frames: int, size_bytes: int, said: str) -> None:
    (reason,) = Cell(to_target=NetworkPath(WRITE_PACKETS, tx_more=(frames, size_bytes))).judge()[1]
    assert re.fullmatch(f"the initiator sent {said} that neither ESP .*", reason)


def test_what_arrives_while_counters_are_read_is_nothing_lost_and_figures_are_each_end_s_own() -> None:
    proof, reasons = Cell(
        to_target=NetworkPath(WRITE_PACKETS, received=WRITE_PACKETS + 3, tx_more=(0, 100))
    ).judge()
    assert (reasons, proof.unaccounted_frames) == ([], 0)
    assert proof.protected_bytes_target - proof.protected_bytes_initiator == 3 * COUNTED_BYTES
    assert proof.link_bytes_initiator - proof.link_bytes_target == 100


def test_a_path_of_two_layers_carried_what_the_lesser_of_them_did() -> None:
    figures = {
        "link_bytes_initiator": (900, 901, 900),
        "link_bytes_target": (800, 801, 800),
        "protected_bytes": (700, 600, 600),
        "protected_bytes_initiator": (710, 610, 610),
        "protected_bytes_target": (720, 730, 720),
        "packets_sampled": (5, 5, 10),
        "packets_expected": (6, 6, 12),
        "sampling": (64, 64, 64),
        "cleartext_segments": (0, 7, 7),
        "control_plane_frames": (1, 1, 2),
        "other_frames": (0, 8, 8),
        "unaccounted_frames": (2, 3, 3),
        "unaccounted_bytes": (300, 200, 300),
        "rekeys": (1, 1, 2),
        "tcp_retransmits": (4, 9, 4),
    }
    outer, inner, whole = (
        msgspec.convert({name: each[number] for name, each in figures.items()}, Proof) for number in range(3)
    )
    assert module.of_all([outer, inner]) == whole


def test_what_the_captures_saw_before_any_protection_is_accounted_for() -> None:
    cell = Cell(seen=(Seen(control=30, clear_bytes=30 * 42), Seen()))
    cell.to_target.tx_more = cell.to_target.rx_more = (30, 30 * 42)
    cell.to_initiator.rx_more = (12, 12 * 42)  # what a router sent, which only the initiator's capture saw
    proof, reasons = cell.judge()
    assert (reasons, proof.control_plane_frames) == ([], 30)
    # What the other end sent does not account for what this one sent.
    cell.seen = cell.seen[1], cell.seen[0]
    assert [reason.partition(" (")[0] for reason in cell.judge()[1]] == ["the initiator sent 30 frames"]


def test_what_was_lost_on_the_way_may_have_been_counted_by_the_interface_before() -> None:
    way = NetworkPath(READ_PACKETS, received=READ_PACKETS - 100)
    cell, read = Cell(to_initiator=way), READ - 200 * DATA_BYTES
    proof, reasons = cell.judge(read=read)
    assert (reasons, proof.unaccounted_frames) == ([], 0)
    way.rx_more = (IN_FLIGHT + 1, 600)
    (reason,) = cell.judge(read=read)[1]
    assert reason.startswith(f"the initiator received {IN_FLIGHT + 1} frames")
    # A frame that was lost has at most the bytes of a full one: header and MTU.
    way.rx_more = (0, MIB)
    lost = cell.judge()[0].unaccounted_bytes
    full = 100 * (14 + WIRED.mtu_bytes)
    cell.to_initiator = NetworkPath(READ_PACKETS - 100, rx_more=(0, MIB + 100 * way.frame_bytes - full))
    assert lost == cell.judge()[0].unaccounted_bytes


def test_fragments_are_frames_more_and_so_they_are_for_who_puts_them_together() -> None:
    cell = Cell(fragments=500)
    cell.to_initiator.tx_more = cell.to_initiator.rx_more = (500, 500 * 34)
    proof, reasons = cell.judge()
    assert (reasons, proof.unaccounted_frames) == ([], 0)
    cell.fragments = 0
    said = [reason.partition(" (")[0] for reason in cell.judge()[1]]
    assert said == ["the initiator received 500 frames", "the target sent 500 frames"]


def test_few_frames_may_have_as_many_bytes_as_eight_small_ones() -> None:
    """Whatever the framing leaves open besides: 8 frames of 192 bytes, RFC 7143's NOP and its ACKs."""
    cell = Cell(to_target=NetworkPath(WRITE_PACKETS, tx_more=(0, MIB)))
    over = cell.judge()[0].unaccounted_bytes - 8 * 192
    cell.to_target.tx_more = (0, MIB - over)
    proof, reasons = cell.judge()
    assert (proof.unaccounted_bytes, reasons) == (1536, [])
    cell.to_target.tx_more = (0, MIB - over + 1)
    assert cell.judge()[1] == [
        "the initiator sent 0 frames (1537 bytes) that neither ESP nor what comes before it accounts for; 8 "
        "may be on the way"
    ]


def test_where_the_framing_is_not_known_frames_are_counted_all_the_same() -> None:
    cell = Cell(algorithms=("cbc(camellia)", "hmac(sha512)"))
    for tx_more, reasons in (((0, 10 * MIB), 0), ((IN_FLIGHT + 1, 0), 1)):
        cell.to_target.tx_more = tx_more
        assert len(cell.judge()[1]) == reasons


def test_over_a_radio_headers_are_longer() -> None:
    """QoS data, CCMP, LLC with SNAP, and what aligns them (IEEE Std 802.11, 9.3.2.1)."""
    header_bytes = 26 + 8 + 8 + 2
    cell = Cell()
    for way in (cell.to_target, cell.to_initiator):
        way.frame_bytes += header_bytes - 14
    assert len(cell.judge()[1]) == 4
    assert cell.judge(header_bytes=header_bytes)[1] == []


def test_each_direction_has_to_be_covered_by_esp_at_each_end() -> None:
    most_read, most_written = READ_PACKETS * COUNTED_BYTES, WRITE_PACKETS * COUNTED_BYTES
    for read, written, ends in (
        *((most_read, 0, 0), (most_read + 1, 0, 2)),
        *((0, most_written, 0), (0, most_written + 1, 2)),
    ):
        reasons = Cell().judge(read=read, written=written)[1]
        assert ["but ESP carried only" in reason for reason in reasons] == [True] * ends
    # What only one end counted is not covered.
    way = NetworkPath(READ_PACKETS, received=READ_PACKETS // 2)
    assert Cell(to_initiator=way).judge()[1] == [
        f"fio read {READ} and wrote {WRITTEN} bytes, but ESP carried only {most_read // 2} to the initiator "
        f"and only {most_written} from it"
    ]


@pytest.mark.parametrize("way", ["to_target", "to_initiator"])
def test_each_interface_has_to_have_carried_it_each_way(way: str) -> None:
    """Whatever the other direction has carried."""
    cell = Cell()
    getattr(cell, way).frame_bytes = 100
    seen = [Seen(cleartext=9), Seen(cleartext=9)]
    _, reasons = judge(watched(), *cell.snapshots(), seen, read_bytes=READ, write_bytes=WRITTEN)
    for reason, end in zip(reasons, ENDS, strict=True):
        said = f"fio read {READ} and wrote {WRITTEN} bytes, but the {end}'s interface received only "
        assert reason.startswith(said)


def judged_rekeyed(times: int, *, reported: bool = True, lacking: int = 0, cleartext: int = 0) -> Judged:
    """What went to the target, in so many associations more; with each the counters begin anew."""
    before, after = Cell().snapshots()
    part, (_, back) = WRITE_PACKETS // (times + 1), Cell().states(0)
    parts = [(OLD, WRITE_PACKETS - times * part), *[(0, part)] * times]
    states = []
    for number, (old, packets) in enumerate(parts):
        gone: Any = {"ended" if reported else "missing": number < times}
        size_bytes = old * 50 + packets * COUNTED_BYTES
        states.append(
            association(OUT_SPI + 10 * number, NEAR, FAR, size_bytes, packets=old + packets, **gone)
        )
    samples = {
        state.spi: set(range((old // ONE_IN + 1) * ONE_IN, state.sequence + 1, ONE_IN))
        for state, (old, _) in zip([*states, back], [*parts, (OLD, 0)], strict=True)
    }
    after = [
        dataclasses.replace(end, tally=tally(number, [*states, back])) for number, end in enumerate(after)
    ]
    seen = [Seen(cleartext=cleartext), Seen(numbers={IN_SPI: samples.pop(IN_SPI)})]
    seen[0].numbers = samples
    for _ in range(lacking):
        samples[OUT_SPI].pop()
    return judge(watched(protection()), before, after, seen, read_bytes=READ, write_bytes=WRITTEN)


@pytest.mark.parametrize("times", [0, 1, 2, 9])
def test_a_rekey_does_not_end_the_counting(times: int) -> None:
    proof, reasons = judged_rekeyed(times)
    assert (reasons, proof.rekeys) == ([], times)
    assert proof.protected_bytes == (READ_PACKETS + WRITE_PACKETS) * COUNTED_BYTES
    assert proof.packets_sampled == proof.packets_expected > 0


def test_a_rekey_excuses_nothing_such_as_an_association_that_is_gone_without_a_last_word() -> None:
    assert judged_rekeyed(2, cleartext=1)[1] == ["1 cleartext segments of the portal were on the link"]
    (reason,) = judged_rekeyed(2, lacking=1)[1]
    assert "lacks 1 of the" in reason
    for count, reasons in ((1, judged_rekeyed(1, reported=False)[1]), (2, Cell(missing=True).judge()[1])):
        assert reasons == [
            f"{count} security associations of the {end} are gone, and the kernel did not report what they "
            "had carried"
            for end in ENDS
        ]


@pytest.mark.parametrize(
    ("algorithms", "mode"),
    [
        (("ecb(cipher_null)", "hmac(sha256)"), IpsecMode.TRANSPORT),
        (GCM, IpsecMode.TUNNEL),
        ((*GCM, "hmac(sha256)"), IpsecMode.TRANSPORT),
        (("gcm(aes)",), IpsecMode.TRANSPORT),
        (("xrfc4106(gcm(aes))",), IpsecMode.TRANSPORT),
    ],
)
def test_another_algorithm_or_mode_than_agreed_on_fails_the_cell(
    algorithms: tuple[str, ...], mode: IpsecMode
) -> None:
    """Compared as names, in whatever order."""
    reasons = Cell(guard=protection(), algorithms=algorithms, mode=mode).judge()[1]
    found = f"rfc4106(gcm(aes)) in transport mode, found {' + '.join(algorithms)} in {mode} mode"
    assert [said for said in reasons if "found" in said] == [f"expected {found} on the {end}" for end in ENDS]
    cell = Cell(guard=protection(CBC), algorithms=CBC[::-1])
    for way in (cell.to_target, cell.to_initiator):
        way.frame_bytes = Wire(link=WIRED, framing=framing_of(CBC)).frame_bytes(DATA_BYTES)
    assert cell.judge()[1] == []


def test_one_cleartext_segment_of_either_end_condemns_the_cell_and_so_does_whatever_is_no_esp() -> None:
    for near, far in ((1, 0), (0, 1), (3, 4)):
        seen = (Seen(cleartext=near, clear_bytes=66 * near), Seen(cleartext=far, clear_bytes=66 * far))
        proof, reasons = Cell(seen=seen).judge()
        assert reasons == [f"{near + far} cleartext segments of the portal were on the link"]
        assert proof.cleartext_segments == near + far
    for first, named in (("", ""), ("ICMPv6 of type 128", " (the first was ICMPv6 of type 128)")):
        proof, reasons = Cell(seen=(Seen(), Seen(other=2, first_other=first, clear_bytes=200))).judge()
        assert reasons == [f"2 frames on the link were neither ESP nor IKE, ARP or the like{named}"]
        assert proof.other_frames == 2


def test_a_capture_that_cannot_be_relied_on_fails_the_cell() -> None:
    fault = "the capture of what the target sent is unreliable: tcpdump has ended"
    assert Cell(seen=(Seen(), Seen(fault=fault))).judge()[1] == [fault]
    assert plain((Seen(cleartext=1), Seen(cleartext=1, fault=fault))) == [fault]


def lacks(end: str, count: int, due: int) -> list[str]:
    return [f"the capture of what the {end} sent lacks {count} of the {due} ESP packets that it should have"]


def test_every_sampled_packet_has_to_be_in_the_capture_of_who_sent_it() -> None:
    for lacking in (1, 20):
        assert Cell(unsampled=(lacking, 0)).judge()[1] == lacks("initiator", lacking, DUE[0])
        assert Cell(unsampled=(0, lacking)).judge()[1] == lacks("target", lacking, DUE[1])
    # A capture that saw nothing fails the cell as soon as one packet was due.
    sent = 2 * ONE_IN - OLD % ONE_IN - 1
    cell = Cell(to_target=NetworkPath(sent), unsampled=(10**6, 0))
    assert cell.judge(written=0)[1] == lacks("initiator", 1, 1)
    cell.to_target = NetworkPath(sent - ONE_IN)
    proof, reasons = cell.judge(written=0)
    assert reasons == [] and proof.packets_expected == DUE[1], "no packet of the initiator's was due"


def test_what_never_reached_the_link_is_not_in_the_capture() -> None:
    """Lost in the sender's queue: then the other end's ESP did not count it. But never more than half."""
    cell, read = (
        Cell(to_initiator=NetworkPath(READ_PACKETS, received=READ_PACKETS - 5)),
        READ - 6 * DATA_BYTES,
    )
    for lacking, reasons in ((5, []), (6, lacks("target", 6, DUE[1]))):
        cell.unsampled = (0, lacking)
        assert cell.judge(read=read)[1] == reasons
    for due, excused in ((24, 12), (25, 13)):
        cell = Cell(to_target=NetworkPath(WRITE_PACKETS + (due - DUE[0]) * ONE_IN, received=0))
        for lacking in (excused, excused + 1, due):
            cell.unsampled = (lacking, 0)
            expected = lacks("initiator", lacking, due) if lacking > excused else []
            assert cell.judge(written=0)[1] == expected


def test_of_large_sequence_numbers_the_link_carries_the_lower_half() -> None:
    """RFC 4303, section 2.2.1."""
    start, blank = (1 << 32) - 2 * ONE_IN, EndCounters()
    before, after = (
        EndCounters(
            tally=tally(0, [association(OUT_SPI, NEAR, FAR, 0, packets=start + packets)]),
            traffic=InterfaceCounters(tx_packets=packets),
        )
        for packets in (0, 4 * ONE_IN)
    )
    seen = [Seen(numbers={OUT_SPI: {(start + ONE_IN * n) & 0xFFFFFFFF for n in range(1, 5)}}), Seen()]
    shots = (before, blank), (after, blank)
    proof, reasons = judge(watched(protection()), *shots, seen, read_bytes=0, write_bytes=0)
    assert proof.packets_expected == 4
    assert not any("lacks" in reason for reason in reasons)


def test_what_waits_in_a_queue_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was counted when it was encrypted, and leaves after the link's delay."""
    shots = Cell(to_target=NetworkPath(ONE_IN), to_initiator=NetworkPath(0)).snapshots()
    due = OLD // ONE_IN * ONE_IN + ONE_IN
    last = [Seen(numbers={OUT_SPI: {due}}), Seen(cleartext=1)]
    late = mock.Mock(one_in=ONE_IN, look=mock.Mock(side_effect=[[Seen(), Seen()], [Seen(), Seen()], last]))
    now_s = [100.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    def monotonic() -> float:
        sleep(1e-6)
        return now_s[0]

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic, sleep=sleep))
    seen = collect(watched(protection(), capture=late), *shots)
    assert seen == [Seen(numbers={OUT_SPI: {due}}), Seen(cleartext=1)]
    assert late.look.call_count == 3
    assert now_s[0] < 100.1, "and no longer"
    now_s[0] = 100.0
    slow = dataclasses.replace(link(), profile=msgspec.structs.replace(WIRED, delay_us=250_000.0))
    never = mock.Mock(one_in=ONE_IN, look=lambda: [Seen(), Seen()])
    assert collect(watched(protection(), slow, capture=never), *shots) == [Seen(), Seen()], "but not for ever"
    assert now_s == [pytest.approx(101.5, abs=0.02)], "a second, and the way there and back"
    once = mock.Mock(look=mock.Mock(side_effect=[[Seen(), Seen()], AssertionError("nothing is due")]))
    assert collect(watched(capture=once), *shots) == [Seen(), Seen()]


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
    used = InterfaceCounters(rx_bytes=moved, tx_bytes=moved, rx_packets=frames, tx_packets=frames)
    shots = [EndCounters()] * 2, [EndCounters(traffic=used)] * 2
    bare = watched(path=link(is_shared=is_shared), capture=capture(*since_start))
    proof, reasons = judge(bare, *shots, seen, read_bytes=moved, write_bytes=written)
    assert proof.protected_bytes == proof.unaccounted_frames == proof.tcp_retransmits == 0
    return reasons


@pytest.mark.parametrize("seen", [(Seen(numbers={7: {1}}), Seen()), (Seen(), Seen(numbers={7: {1}}))])
def test_esp_of_either_end_on_a_plain_column_condemns_the_cell(seen: tuple[Seen, Seen]) -> None:
    assert plain() == []
    assert plain(seen) == ["IPsec is off, but 1 ESP packets were on the link"]
    # Where others use the link it may be another column's.
    assert plain(seen, is_shared=True) == []


@pytest.mark.parametrize("is_shared", [False, True])
def test_each_capture_has_to_have_seen_the_portal_in_clear(is_shared: bool) -> None:
    for since_start, ends in (((0, 1), ENDS[:1]), ((1, 0), ENDS[1:]), ((0, 0), ENDS)):
        assert plain(NOTHING, since_start=since_start, is_shared=is_shared) == [
            f"the capture of what the {end} sent lacks the beginning of the portal's connection"
            for end in ends
        ]


def test_and_in_each_cell_where_samples_were_due() -> None:
    one_in = PRIMES[ONE_IN]
    enough = 32 * one_in  # Each frame is kept by chance: that none is has a probability of e**-32.
    missed = [
        f"expected the portal's TCP segments in the capture of what the {end} sent, found none: it keeps one "
        f"of {one_in}, of {enough + 1} frames or more"
        for end in ENDS
    ]
    assert plain(NOTHING, frames=enough) == [], "too little to say"
    assert plain(NOTHING, frames=enough + 1) == missed
    # On a link that others use, what they send says nothing: as many frames as what fio moved takes at least.
    assert plain(NOTHING, frames=10 * enough, is_shared=True) == []
    least = (enough + 1) * 65536
    for written, reasons in ((0, []), (1, missed)):
        found = plain(NOTHING, frames=10 * enough, is_shared=True, moved=least - 1, written=written)
        assert found == reasons


# On a link that others use, the portal's connection is held against ESP


def shared(near: tuple[int, int] = (0, 0), far: tuple[int, int] = (0, 0), port: int = 40000) -> Cell:
    """``near`` and ``far`` are segments more than packets, sent and received, at the two ends."""
    counts = ((WRITE_PACKETS, READ_PACKETS, *near), (READ_PACKETS, WRITE_PACKETS, *far))
    first = Segments(ports=frozenset({40000}), sent=70, received=80)
    segments = tuple(
        (first, Segments(ports=frozenset({port}), sent=70 + out + sent, received=80 + into + received))
        for out, into, sent, received in counts
    )
    cell = Cell(is_shared=True, segments=segments)
    for way in (cell.to_target, cell.to_initiator):
        way.tx_more = way.rx_more = (10**6, 10**9)  # an SSH connection, say
    return cell


@pytest.mark.parametrize("more", [(0, 0), (-3, -3)], ids=["none", "ESP is counted for longer"])
def test_what_others_send_on_the_link_is_no_concern(more: tuple[int, int]) -> None:
    proof, reasons = shared(near=more, far=more).judge()
    assert (reasons, proof.unaccounted_frames, proof.unaccounted_bytes) == ([], 0, 0)


@pytest.mark.parametrize("more", [IN_FLIGHT, IN_FLIGHT + 1])
def test_each_segment_has_to_be_an_esp_packet_at_each_end(more: int) -> None:
    for cell, what in (
        (shared(near=(more, 0)), "the portal's connections of the initiator sent"),
        (shared(near=(0, more)), "the portal's connections of the initiator received"),
        (shared(far=(more, 0)), "the portal's connections of the target sent"),
        (shared(far=(0, more)), "the portal's connections of the target received"),
    ):
        proof, reasons = cell.judge()
        assert proof.unaccounted_frames == more
        accounts = "that neither ESP nor what comes before it accounts for; 8 may be on the way"
        assert reasons == [f"{what} {more} segments {accounts}"] * (more > IN_FLIGHT)


def test_segments_that_a_policy_dropped_need_no_esp_packet() -> None:
    """As of a fault at the initiator's own end, which TCP goes on to send into."""
    cell = shared(near=(32 + IN_FLIGHT, 0))
    before, after = cell.snapshots()
    seen = [Seen(numbers={spi: {*range(OLD, 10 * OLD)}}) for spi in (OUT_SPI, IN_SPI)]
    for dropped, is_ok in ((32, True), (31, False)):
        after[0] = dataclasses.replace(after[0], dropped=dropped)
        at = watched(cell.asked(), link(is_shared=True))
        _, reasons = judge(at, before, after, seen, read_bytes=READ, write_bytes=WRITTEN)
        assert (reasons == []) is is_ok, reasons


def test_a_connection_that_was_replaced_or_seen_but_once_cannot_be_counted() -> None:
    near, far = shared().segments
    other = shared(port=40001).segments
    for segments, ends in (
        (other, ENDS),
        (((None, None), (None, None)), ENDS),
        (((None, near[1]), far), ENDS[:1]),
        (((near[0], None), far), ENDS[:1]),
    ):
        assert dataclasses.replace(shared(), segments=segments).judge()[1] == [
            f"expected the same connections to the portal at the {end} from the beginning of the cell to its "
            "end, found none or others (ss)"
            for end in ends
        ]
    # A cell with a fault is one in which they may be.
    assert dataclasses.replace(shared(), segments=other, reconnects=True).judge()[1] == []


def test_an_end_that_has_booted_says_nothing_of_before() -> None:
    before, after = Cell().snapshots()
    after[1] = dataclasses.replace(after[1], traffic=InterfaceCounters(rx_bytes=7), boots=1)
    seen = [Seen(cleartext=100), Seen(fault="tcpdump has ended")]
    proof, reasons = judge(watched(), before, after, seen, read_bytes=READ, write_bytes=WRITTEN)
    assert reasons == [] and proof.at_one_end
    ours, theirs = module.interfaces(link(), before, after)
    assert ours.rx_bytes > 0 and theirs.rx_bytes == 7


def test_a_capture_that_began_again_after_a_boot_testifies_against_a_protection() -> None:
    before, after = Cell().snapshots()
    after[1] = module.EndCounters(boots=1)
    due = range((OLD // ONE_IN + 1) * ONE_IN, OLD + WRITE_PACKETS + 1, ONE_IN)
    sent = Seen(numbers={OUT_SPI: {*due}})
    for near, far, said in (
        (sent, Seen(), ""),
        (sent, Seen(cleartext=2), "2 cleartext segments of the portal were sent by the target, which has"),
        (sent, Seen(fault="tcpdump has ended"), "tcpdump has ended"),
        # While it boots, nobody answers ARP for it: what was protected does not leave.
        (Seen(numbers={OUT_SPI: {*due[len(due) // 2 :]}}), Seen(), ""),
        (Seen(), Seen(), f"the initiator sent lacks {len(due)} of the {len(due)} ESP packets"),
    ):
        proof, reasons = judge(
            watched(protection()), before, after, [near, far], read_bytes=READ, write_bytes=WRITTEN
        )
        assert proof.at_one_end and len(reasons) == bool(said) and said in "".join(reasons)


def test_counters_that_go_backwards_are_a_replacement_and_no_negative_figure() -> None:
    seen = [
        Seen(numbers={spi: set(range(ONE_IN, OLD + packets + 1, ONE_IN))})
        for spi, packets in ((OUT_SPI, WRITE_PACKETS), (IN_SPI, READ_PACKETS))
    ]
    moved: dict[str, Any] = {"read_bytes": READ, "write_bytes": WRITTEN}
    ifaces = ["the interface hbeefi0 at the initiator", "the interface hbeeft0 at the target"]
    less: dict[str, Any]
    for less, what in (
        ({"tally": Tally()}, ["ESP at the initiator and the target"]),
        ({"traffic": InterfaceCounters()}, ifaces),
    ):
        before, after = Cell().snapshots()
        after = [dataclasses.replace(end, **less, retransmits=0) for end in after]
        words = "went backwards within the cell, so what they count was replaced or removed"
        expected = [f"the counters of {each} {words}" for each in what]
        proof, reasons = judge(watched(protection()), before, after, seen, **moved)
        assert reasons == expected, "nothing can be compared with such counters"
        assert out_of_range(proof) is None
        clear = [Seen(numbers=seen[0].numbers, cleartext=1, fault="x"), seen[1]]
        _, reasons = judge(watched(protection()), before, after, clear, **moved)
        assert reasons == ["x", *expected, "1 cleartext segments of the portal were on the link"]
    # An interface that is replaced without protection is reported as well.
    before, after = Cell().snapshots()
    after[1] = dataclasses.replace(after[1], traffic=InterfaceCounters())
    proof, (reason,) = judge(watched(), before, after, NOTHING, **moved)
    assert "hbeeft0 at the target went backwards" in reason
    assert out_of_range(proof) is None


def test_every_reason_is_given_at_once() -> None:
    seen = (Seen(cleartext=4, fault="x"), Seen(other=5))
    cell = Cell(seen=seen, unsampled=(1, 1), missing=True, guard=protection(), algorithms=("gcm(aes)",))
    cell.to_target.tx_more = (100, 100)
    assert len(cell.judge(read=10**12)[1]) == 1 + 2 + 2 * 3 + 1 + 1 + 2 + 1


# Where the counters come from

DEV = "hbeefi0: 1000    10     0     0     0     0     0     0    30     3     0     0     0     0     0\n"
PROC_NET_DEV = f"""\
Inter-| Receive | Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier
    lo: 999     9     0     0     0     0     0     0   999     9     0     0     0     0     0
{DEV}xhbeefi0: 5     1     0     0     0     0     0     0     5     1     0     0     0     0     0
hbeeft0:7000    10     0     0     0     0     0     0   400     3     0     0     0     0     0
"""


def test_without_ipsec_files_are_read_and_nobody_is_asked() -> None:
    world = World(secret_files={"/proc/net/dev": PROC_NET_DEV, "/proc/net/snmp": PROC_NET_SNMP})
    near, far = snapshot(watched(path=link(world)), begins=True)
    assert world.commands == []
    assert near.traffic == InterfaceCounters(rx_bytes=1000, rx_packets=10, tx_bytes=30, tx_packets=3)
    assert (far.traffic.rx_bytes, far.traffic.tx_bytes) == (7000, 400)
    assert (near.retransmits, near.tally) == (17, Tally())
    gone, _ = snapshot(watched(path=link_path(world, 0, initiator_iface="hbeefi9")), begins=True)
    assert gone.traffic == InterfaceCounters(), "an interface that is gone has carried nothing"


SNMP = "Ip: FragOKs FragCreates ReasmReqds ReasmOKs\nIp: 3 9 8 2\nTcp: RetransSegs\nTcp: 5\n"
STATES = (association(OUT_SPI, NEAR, FAR, 10),)
REPORT = ListenerReport(before=DEV, states=STATES, after=DEV.replace("1000", "2000"), snmp=SNMP)
SNMP6 = "Ip6FragOKs 1\nIp6FragCreates    \t6\nIp6ReasmReqds 9\nIp6ReasmOKs 2\nIcmp6InMsgs 77\n"


def reported(path: LinkPath, report: ListenerReport = REPORT, *, begins: bool = True) -> EndCounters:
    """The initiator's counters, of both ends with such an xfrm listener."""
    near, far = snapshot(watched(protection(report=report), path), begins=begins)
    assert near.segments == far.segments
    return near


@pytest.mark.parametrize(
    ("snmp", "sent", "received", "retransmits"),
    [(SNMP, 6, 6, 5), (SNMP + SNMP6, 6 + 5, 6 + 7, 5), (SNMP6, 5, 7, 0), ("", 0, 0, 0)],
    ids=["IPv4", "both", "IPv6", "none"],
)
def test_counts_of_ipv6_are_added_to_those_of_ipv4(
    snmp: str, sent: int, received: int, retransmits: int
) -> None:
    """Their lines are /proc/net/snmp6's, which an xfrm listener appends."""
    near = reported(link(), msgspec.structs.replace(REPORT, snmp=snmp))
    assert (near.fragments_sent, near.fragments_received, near.retransmits) == (sent, received, retransmits)


@pytest.mark.parametrize(("begins", "counted"), [(True, 2000), (False, 1000)])
def test_esp_is_counted_for_longer_than_the_interfaces(begins: bool, counted: int) -> None:
    """Where a cell begins its interfaces are read last, where it ends first."""
    world = World()
    near = reported(link(world), begins=begins)
    assert world.commands == [], "ss is asked only where others use the link"
    assert near == EndCounters(
        traffic=InterfaceCounters(rx_bytes=counted, rx_packets=10, tx_bytes=30, tx_packets=3),
        retransmits=5,
        fragments_sent=6,
        fragments_received=6,
        tally=tally(0, STATES),
    )


SS = """\
0      0         198.18.0.1:43210      198.18.0.2:3260   \n\
\t cubic wscale:7,7 rto:204 rtt:0.1/0.05 mss:1408 bytes_sent:9 segs_out:12 segs_in:34 data_segs_out:7
"""
ONE = Segments(ports=frozenset({43210}), sent=12, received=34)


@pytest.mark.parametrize("begins", [True, False])
def test_on_a_link_that_others_use_ss_is_asked_for_the_portal_s_connection(begins: bool) -> None:
    world = World(answers=[(("ss",), (0, SS, ""))])
    assert reported(link(world, is_shared=True), begins=begins).segments == ONE
    assert [(command.host, command.argv[4:]) for command in world.commands] == [
        ("initiator", ("src", NEAR, "dst", f"{FAR}:3260")),
        ("target", ("src", f"{FAR}:3260", "dst", NEAR)),
    ]


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        # NVMe/TCP has a connection for each queue.
        (SS + SS.replace("43210", "43212"), Segments(ports=frozenset({43210, 43212}), sent=24, received=68)),
        # ss(8) shows an address with the interface that a socket is bound to.
        (SS.replace("198.18.0.1:", "198.18.0.1%eth0:"), ONE),
        ("", None),
        (SS.replace("segs_in:34", ""), None),
        (SS + SS.replace("segs_in:34", ""), None),
        ("ss: not found\n", None),
    ],
    ids=["two", "bound", "none", "no counters", "no counters of one", "no ss"],
)
def test_what_ss_answers_is_read_or_is_none(text: str, segments: Segments | None) -> None:
    world = World(answers=[(("ss",), (127 if "not found" in text else 0, text, ""))])
    assert reported(link(world, is_shared=True)).segments == segments


def test_a_proof_of_before_can_be_read() -> None:
    """Records of older runs lack the newer counts."""
    old = b'{"link_bytes_initiator":1,"link_bytes_target":2,"protected_bytes":3,"rekeys":1}'
    assert msgspec.json.decode(old, type=Proof).unaccounted_frames == 0


def at_one_end(
    *, received: int = READ, in_clear: int = 1, layer: EspLayer | None = None, before_this: int = 1
) -> Judged:
    """A cell that read, and the proof of it at the initiator's end, where the target is only reached."""
    path = link_path(World(), 0, is_shared=True, target=BlackBoxHost())
    captures = Capture(taps=(), one_in=1, since_start=[before_this])
    carried = tally(0, [association(IN_SPI, FAR, NEAR, 1, packets=READ_PACKETS)])
    first, last = (Segments(ports=frozenset({4444}), sent=n, received=n) for n in (0, READ_PACKETS))
    after = EndCounters(
        traffic=InterfaceCounters(rx_bytes=received, tx_packets=10_000, rx_packets=10_000),
        tally=carried if layer else Tally(),
        segments=last,
    )
    one, before = watched(layer, path, capture=captures), EndCounters(segments=first)
    return judge(one, (before,), (after,), [Seen(cleartext=in_clear)], read_bytes=READ, write_bytes=0)


def test_one_end_proves_as_strictly_as_two() -> None:
    proof, reasons = at_one_end()
    assert reasons == []
    assert proof.at_one_end and proof.link_bytes == (READ,) and proof.link_bytes_target == 0
    _, (less,) = at_one_end(received=READ - 1)
    assert "the initiator's interface received only" in less and "target" not in less
    _, (nothing,) = at_one_end(in_clear=0)
    assert "expected the portal's TCP segments" in nothing
    _, (late,) = at_one_end(before_this=0)
    assert "lacks the beginning of the portal's connection" in late
    proof, reasons = at_one_end(layer=protection(), in_clear=2)
    assert proof.at_one_end and "2 cleartext segments of the portal were on the link" in reasons


def test_of_the_end_that_is_not_seen_nothing_is_read_and_it_excuses_nothing() -> None:
    path = link_path(World(), 0, is_shared=True, target=BlackBoxHost())
    (near,) = snapshot(watched(path=path), begins=True)
    assert near.segments is None
    assert len(module.interfaces(path, (near,), (near,))) == 1
    alone: Any = object()
    assert module._pairs([alone]) == [(alone, None)]
    assert module._lost(alone, None) == 0
