"""The capture: what is looked for, how frames are distinguished, and when a look is complete."""

from __future__ import annotations

import itertools
import signal
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from harness.model import ENDS, End, LinkProfile
from harness.model.errors import CommandFailed, HostLost
from harness.network.links import LinkPath
from harness.protection import capture as module
from harness.protection.capture import (
    PRIMES,
    Capture,
    CapturePoint,
    FrameReader,
    Seen,
    capture,
    expression,
    sampling,
)
from harness.protection.ipsec import IKE_PORT
from harness.protection.ipsec.layer import EspFrames
from tests.unit import fakes
from tests.unit.fakes import PCAP_HEADER, World, arp, esp, ethernet, ipv4, ipv6, pcap_record, vlan
from tests.unit.fakes.paths import WIRED, link_path

NEAR, FAR = "198.18.3.1", "198.18.3.2"
FRAMES = EspFrames(addresses=(bytes([198, 18, 3, 1]), bytes([198, 18, 3, 2])))
READER = FrameReader(frames=FRAMES, port=3260)
SEGMENT, PACKET = fakes.tcp(40000, 3260, NEAR, FAR), esp(7, 256, NEAR, FAR)
ESP, TCP = pcap_record(PACKET), pcap_record(SEGMENT)
ONE_ESP = Seen(numbers={7: {256}})
ONE_TCP = Seen(cleartext=1, clear_bytes=1514)
ONE_OF_EACH = Seen(numbers={7: {256}}, cleartext=1, clear_bytes=1514)


def profile(rate_bit_s: int | None = 10**9, delay_us: float = 0.0) -> LinkProfile:
    return msgspec.structs.replace(WIRED, rate_bit_s=rate_bit_s, delay_us=delay_us)


def path(world: World, *, is_shared: bool = False) -> LinkPath:
    return link_path(world, profile=profile(), port=3264 if is_shared else 3260, is_shared=is_shared)


def test_some_64_packets_are_kept_in_a_second_of_full_frames_or_of_four_packets_a_round_trip() -> None:
    """Of ESP's one in a power of two."""
    due = {1_000: 1, 10**6: 1, 2 * 10**6: 2, 50 * 10**6: 32, 54 * 10**6: 64, 10**8: 64, 10**9: 256, None: 256}
    assert {rate: sampling(profile(rate)) for rate in due} == due
    delayed = {(10**9, 50): 256, (10**9, 700): 32, (10**9, 1_000): 16, (10**9, 3_000): 8, (10**9, 10**6): 1}
    delayed |= {(50 * 10**6, 700): 32, (10**8, 10_000): 2, (10**10, 10_000): 2}
    assert {each: sampling(profile(*each)) for each in delayed} == delayed
    assert (sampling(profile(10**6, 0.5)), sampling(profile(None, 10_000))) == (1, 2)


def test_no_step_of_super_packets_passes_all_samples_by() -> None:
    """45 segments of 1460 bytes make the largest: each counts as one of the IP identifications."""
    for step in range(1, 46):
        for prime in PRIMES.values():
            if step % prime or prime == 1:
                assert any((1 + step * packet) % prime == 0 for packet in range(prime)), (step, prime)


def looked_for(end: End, one_in: int, *, protected: bool = True, is_shared: bool = False) -> str:
    return expression(path(World(), is_shared=is_shared), end, FRAMES, protected=protected, one_in=one_in)


def test_a_protected_column_samples_esp_and_keeps_whatever_else_is_on_its_link() -> None:
    """But what the peer sends it, which after decryption is shown a second time."""
    sample = "(ip proto 50 and ip[6:2] & 0x1fff = 0 and ip[24:4] & 0x3ff = 0)"
    for end, own, peer in zip(ENDS, (NEAR, FAR), (FAR, NEAR), strict=True):
        not_the_peer_s = f"not (ip src host {peer} and ip dst host {own})"
        assert looked_for(end, 1024) == f"{not_the_peer_s} and (not (ip proto 50) or {sample})"
    assert "ip[24:4] & 0x0 = 0" in looked_for("target", 1), "every packet"


def test_on_a_link_that_others_use_nothing_but_the_portal_s_traffic_is_kept() -> None:
    """A capture that is carried over SSH must not see what carries it."""
    sent = f"ip src host {FAR} and ip dst host {NEAR}"
    sample = "(ip proto 50 and ip[6:2] & 0x1fff = 0 and ip[24:4] & 0xf = 0)"
    portal = "(tcp port 3264 or (ip proto 6 and ip[6:2] & 0x1fff != 0))"
    found = looked_for("target", 16, is_shared=True)
    assert found == f"({sent} and ({sample} or {portal})) or (vlan and {sent} and {portal})"


def test_a_plain_column_samples_its_own_segments_and_keeps_the_first_and_the_last() -> None:
    sent = f"ip src host {NEAR} and ip dst host {FAR}"
    first_and_last = "tcp[tcpflags] & (tcp-syn|tcp-fin|tcp-rst) != 0"
    clear = f"({first_and_last} or ip[4:2] % 251 = 0))"
    own, shared = (looked_for("initiator", 256, protected=False, is_shared=each) for each in (False, True))
    assert own == f"{sent} and (ip proto 50 or (tcp port 3260 and {clear})"
    assert shared == f"{sent} and (tcp port 3264 and {clear}", "ESP may be another column's"


def classified(frame: bytes) -> Seen:
    seen = Seen()
    READER.tell(frame[: module.SNAP_BYTES], 100, seen)
    return seen


def udp(port: int, peer: str = FAR, *, source: int = 40000) -> bytes:
    return fakes.udp(source, port, NEAR, peer)


PORTS = struct.pack("!HH", 40000, 3260) + bytes(16)
IN_CLEAR = {
    "a segment to the portal": SEGMENT,
    "a segment of the portal's": fakes.tcp(3260, 40000, FAR, NEAR),
    "the same behind a VLAN tag": vlan(7, SEGMENT),
    "the same behind two": vlan(7, vlan(8, SEGMENT), 0x88A8),
    "the same over IPv6": ipv6(6, PORTS),
    "the same behind IP options": ipv4(6, PORTS, NEAR, FAR, options=bytes(8)),
    "its first fragment": fakes.tcp(40000, 3260, NEAR, FAR, fragment=0x2000),
    "a fragment behind the first, which has no ports": fakes.tcp(0, 0, NEAR, FAR, fragment=0x00B9),
}
QUOTED = bytes([3, 1]) + bytes(6)
"""ICMP: a router could not reach the target. The packet follows."""
CONTROL = {
    "a router's report on a protected packet": ipv4(1, QUOTED + PACKET[14:], "10.0.0.1", NEAR),
    "its report on IKE": ipv4(1, QUOTED + udp(IKE_PORT)[14:], "10.0.0.1", NEAR),
    "IKE": udp(IKE_PORT),
    "its answer": fakes.udp(IKE_PORT, 40000, FAR, NEAR),
    "ARP": arp(),
    "an access point's word to bridges": ethernet(6, b"\x00\x01\xaf\x81\x01\x00" + bytes(40)),
    "EAPOL": ethernet(0x888E, bytes(95)),
    "neighbour solicitation": ipv6(58, b"\x87" + bytes(31)),
    "report of multicast listeners": ipv6(0, b"\x3a\x00" + bytes(6) + b"\x8f" + bytes(31)),
}
OTHERS = {
    "another connection": fakes.tcp(40000, 22, NEAR, FAR),
    "ICMP": ipv4(1, bytes(40), NEAR, FAR),
    "a router's report on a segment in clear": ipv4(1, QUOTED + SEGMENT[14:], "10.0.0.1", NEAR),
    "IKE with somebody else": udp(IKE_PORT, "10.0.0.1"),
    "somebody else's IKE": udp(500, source=500),
    "another datagram": udp(53, source=5000),
    "another frame of LLC": ethernet(6, b"\xaa\xaa\x03\x00\x00\x00" + bytes(40)),
    "LLDP": ethernet(0x88CC, bytes(95)),
    "echo over IPv6": ipv6(58, b"\x80" + bytes(31)),
    "ESP over IPv6, which is not ours": ipv6(50, bytes(40)),
}
OTHER = Seen(other=1, clear_bytes=100)


def test_each_kind_of_frame_is_reported() -> None:
    clear, control = Seen(cleartext=1, clear_bytes=100), Seen(control=1, clear_bytes=100)
    for frames, seen in ((IN_CLEAR, clear), (CONTROL, control), (OTHERS, OTHER)):
        assert {name: classified(frame) for name, frame in frames.items()} == dict.fromkeys(frames, seen)
    for frame in (PACKET, vlan(7, PACKET)):
        assert classified(frame) == ONE_ESP
    # A fragment has no number.
    assert classified(ipv4(50, b"\xff" * 40, NEAR, FAR, fragment=0x00B9)) == Seen(numbers={0: {0}})


def test_a_frame_that_is_cut_short_anywhere_is_never_taken_for_control() -> None:
    report = CONTROL["a router's report on a protected packet"]
    for whole in (SEGMENT, vlan(1, udp(9, source=IKE_PORT)), PACKET, report):
        for length in range(len(whole)):
            assert classified(whole[:length]) in (OTHER, classified(whole)), length


def test_numbers_of_one_association_are_kept_together_and_what_is_seen_adds_up() -> None:
    seen = Seen()
    for spi, number in ((7, 256), (7, 512), (9, 256), (7, 512)):
        READER.tell(esp(spi, number, NEAR, FAR), 1514, seen)
    assert seen == Seen(numbers={7: {256, 512}, 9: {256}})
    assert (seen.sampled, seen.clear_frames) == (3, 0)
    seen = Seen(numbers={7: {256}}, cleartext=1, control=2, other=3, clear_bytes=600)
    more = {7: {512}, 8: {0}}
    seen.add(Seen(numbers=more, cleartext=10, control=20, other=30, clear_bytes=6000, fault="x"))
    more[7] = {256, 512}
    assert seen == Seen(numbers=more, cleartext=11, control=22, other=33, clear_bytes=6600, fault="x")
    assert seen.clear_frames == 66


def header(link_type: int, order: str = "<") -> bytes:
    return struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, link_type)


CUTS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "Ethernet": (1, lambda frame: frame),
    "cooked": (113, lambda frame: bytes(14) + frame[12:]),
    "raw": (101, lambda frame: frame[14:]),
    "raw, as BSD numbers it": (12, lambda frame: frame[14:]),
}


def test_files_of_each_kind_are_read_and_others_are_refused() -> None:
    frames = (SEGMENT, PACKET, CONTROL["neighbour solicitation"])
    for name, order in itertools.product(CUTS, "<>"):
        link_type, cut = CUTS[name]
        data, seen = b"".join(pcap_record(cut(frame), order=order) for frame in frames), Seen()
        assert READER.of_file(header(link_type, order)).count(data, seen) == (3, len(data)), name
        assert seen == Seen(numbers={7: {256}}, cleartext=1, control=1, clear_bytes=2 * 1514), name
    for data in (header(9), header(127), b"\x0a\x0d\x0d\x0a" + bytes(20)):
        with pytest.raises(CommandFailed, match="expected a capture of Ethernet frames or IP packets"):
            READER.of_file(data)


def test_a_record_that_is_not_whole_is_left_and_the_length_on_the_wire_is_counted() -> None:
    for length in range(len(TCP)):
        seen = Seen()
        assert READER.count(ESP + TCP[:length], seen) == (1, len(ESP))
        assert seen == ONE_ESP
    cut, seen = struct.pack("<IIII", 0, 0, 64, 9014) + SEGMENT[:64].ljust(64, b"\0"), Seen()
    assert READER.count(cut + ESP, seen) == (2, len(cut) + len(ESP))
    assert seen == Seen(numbers={7: {256}}, cleartext=1, clear_bytes=9014)


class Tcpdump:
    """Answers SIGUSR1 in its log with what it has captured, received and dropped."""

    ahead = 0
    """Frames that the kernel has taken and tcpdump has not."""
    signals = written = 0
    is_dead = is_stopped = False

    def __init__(self, file: Path, passed_by: int = 0, dropped: int = 0) -> None:
        self.file, self.passed_by, self.dropped = file, passed_by, dropped
        self.on_signal: Callable[[], None] = lambda: None
        file.write_bytes(PCAP_HEADER)
        file.with_suffix(".log").write_text("tcpdump: listening on x\n", encoding="utf-8")

    def write(self, data: bytes, frames: int = 1) -> None:
        self.written += frames
        append(self.file, data)

    def ended(self) -> bool:
        return self.is_dead

    def signal(self, number: int) -> None:
        assert number == signal.SIGUSR1
        if self.is_dead or self.is_stopped:
            return
        self.signals += 1
        received, s = self.written + self.ahead + self.passed_by, "" if self.written == 1 else "s"
        line = f"tcpdump: {self.written} packet{s} captured, {received} packets received by filter, "
        append(self.file.with_suffix(".log"), f"{line}{self.dropped} packets dropped by kernel\n".encode())
        self.on_signal()


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as stream:
        stream.write(data)


def tap(
    place: Path, name: str = "initiator", passed_by: int = 0, dropped: int = 0
) -> tuple[CapturePoint, Tcpdump]:
    daemon = Tcpdump(place / f"{name}.pcap", passed_by, dropped)
    made = CapturePoint(end=name, file=daemon.file, daemon=daemon, reader=READER)
    made.settle()
    return made, daemon


Both = tuple[Capture, Tcpdump, Tcpdump]


@pytest.fixture
def both(tmp_path: Path) -> Both:
    (near, first), (far, second) = tap(tmp_path, "initiator"), tap(tmp_path, "target")
    return Capture(taps=(near, far), one_in=64), first, second


def test_a_tcpdump_is_not_asked_before_it_says_that_it_listens(tmp_path: Path) -> None:
    file = tmp_path / "initiator-1.pcap"
    file.write_bytes(PCAP_HEADER)
    for log, listens in (("", False), ("tcpdump: listening on near0, link-type EN10MB (Ethernet)\n", True)):
        file.with_suffix(".log").write_text(log, encoding="utf-8")
        assert module._is_listening(file) is listens, "SIGUSR1 would kill it"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_DEADLINE_S", 0.2)


def look(made: CapturePoint) -> Seen:
    made.ask()
    return made.look()


def test_each_look_counts_what_has_come_since_the_last(tmp_path: Path) -> None:
    made, tcpdump = tap(tmp_path)
    assert look(made) == Seen()
    tcpdump.write(ESP)
    tcpdump.write(TCP)
    assert look(made) == ONE_OF_EACH
    assert look(made) == Seen()
    tcpdump.write(TCP)
    assert made.read() == ONE_TCP
    assert look(made) == Seen()
    # What came before there was a filter does not count.
    made, tcpdump = tap(tmp_path, passed_by=5, dropped=4)
    tcpdump.write(TCP)
    assert look(made) == ONE_TCP
    tcpdump.dropped = 6
    assert (look(made).fault or "").endswith(": the kernel dropped 2 frames")


def test_a_look_waits_for_what_is_still_on_its_way(tmp_path: Path) -> None:
    """tcpdump has counted it, but the file (of another machine) does not have all of it."""
    made, tcpdump = tap(tmp_path)
    tcpdump.write(ESP + TCP[:20], frames=2)
    tcpdump.on_signal = lambda: tcpdump.write(TCP[20:], frames=0)
    assert look(made) == ONE_OF_EACH
    # Or the kernel has it, and tcpdump has not.
    made, tcpdump = tap(tmp_path)
    tcpdump.ahead = 1

    def catch_up() -> None:
        if tcpdump.signals == 3:
            tcpdump.ahead = 0
            tcpdump.write(TCP)

    tcpdump.on_signal = catch_up
    assert (look(made), tcpdump.signals) == (ONE_TCP, 4)


def test_what_an_end_sent_counts_from_before_a_boot_and_after_it(tmp_path: Path, both: Both) -> None:
    made, _, before = both
    before.write(TCP)
    before.is_dead = True
    (tmp_path / "new").mkdir()
    begun, after = tap(tmp_path / "new", "target")
    made.begin = lambda ends: (begun,) if ends == ["target"] else ()
    made.again("target")
    assert made.taps[1] is begun and made.taps[0] is not begun
    after.write(ESP)
    assert made.look() == [Seen(), ONE_OF_EACH]
    assert made.look() == [Seen(), Seen()] and made.since_start == [0, 1]


def test_a_capture_that_cannot_be_relied_on_says_so_for_good(tmp_path: Path) -> None:
    for attribute, value, why in (
        ("is_dead", True, "tcpdump has ended"),
        ("is_stopped", True, "waited 0.2 s in vain for tcpdump"),
        ("dropped", 3, "the kernel dropped 3 frames"),
        ("ahead", 2, "only 1 of 3 frames came in 0.2 s"),
        ("written", 2, "only 1 of 2 frames came in 0.2 s"),
    ):
        made, tcpdump = tap(tmp_path)
        tcpdump.write(TCP)
        setattr(tcpdump, attribute, value)
        seen = look(made)
        assert seen.cleartext == 1, "what it did see counts"
        assert seen.fault == f"the capture of what the initiator sent is unreliable: {why}"
        assert look(made).fault == made.read().fault == seen.fault


def test_both_ends_are_asked_before_either_is_waited_for(both: Both) -> None:
    watched, first, second = both
    order: list[str] = []
    first.on_signal, second.on_signal = partial(order.append, "first"), partial(order.append, "second")
    first.write(ESP)
    second.write(TCP)
    assert watched.look() == [ONE_ESP, ONE_TCP]
    assert order == ["first", "second"]
    assert watched.since_start == [0, 1]
    first.write(TCP)
    watched.finish()
    assert watched.last == [ONE_TCP, Seen()]
    assert watched.since_start == [1, 1]


def test_of_a_host_that_is_lost_nothing_is_seen_any_more(both: Both) -> None:
    watched, _, second = both
    second.on_signal = mock.Mock(side_effect=HostLost("the target was lost"))
    with pytest.raises(HostLost):
        watched.look()
    watched.finish()
    assert watched.last == []


def test_after_the_last_look_all_counts_until_the_captures_end(both: Both) -> None:
    """tcpdump prints its counts once more when it is stopped."""
    watched, first, second = both
    watched.finish()
    first.write(TCP)
    second.dropped = 3
    second.signal(signal.SIGUSR1)
    watched.read_rest()
    fault = "the capture of what the target sent is unreliable: the kernel dropped 3 frames"
    assert watched.last == [Seen(), Seen(), ONE_TCP, Seen(fault=fault)]


def test_both_ends_are_captured_until_the_end(tmp_path: Path) -> None:
    world = World()
    with capture(path(world), tmp_path, FRAMES, protected=True) as watched:
        assert watched.one_in == 256
        assert [tap.file.name for tap in watched.taps] == ["initiator-1.pcap", "target-1.pcap"]
        assert watched.look() == [Seen(), Seen()]
        assert len(world.left) == 2
        append(watched.taps[1].file, TCP)
    assert world.left == set()
    assert watched.last == [Seen(), ONE_TCP]
    for end, iface, command in zip(ENDS, ("hbeefi3", "hbeeft3"), world.commands, strict=True):
        assert (command.host, command.argv[command.argv.index("-i") + 1]) == (end, iface)
        assert command.argv[-1] == looked_for(end, 256)


@pytest.mark.parametrize("looked", [True, False])
def test_a_column_that_comes_up_again_counts_no_frames_of_before(tmp_path: Path, looked: bool) -> None:
    world = World()
    with capture(path(world), tmp_path, FRAMES, protected=True) as first:
        for each in first.taps:
            append(each.file, ESP + TCP)
        if looked:
            assert [seen.cleartext for seen in first.look()] == [1, 1]
    before = {each.file: each.file.read_bytes() for each in first.taps}
    for number in (2, 3):
        names = [f"{end}-{number}" for end in ENDS]
        with capture(path(world), tmp_path, FRAMES, protected=True) as again:
            assert [each.file.name for each in again.taps] == [f"{name}.pcap" for name in names]
            assert again.look() == [Seen(), Seen()]
            assert {Path(thing.split()[-1]).name for thing in world.left} == {f"{name}.log" for name in names}
            append(again.taps[1].file, ESP)
            assert again.look() == [Seen(), ONE_ESP]
    assert {file: file.read_bytes() for file in before} == before, "they stay as they were"
