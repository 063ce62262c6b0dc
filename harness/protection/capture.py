"""Captures of what was really on the link: tcpdump(8) at both ends, as long as a column is up.

Each end captures what it sends, because in tunnel mode the kernel shows taps a received packet a second time,
after decryption. Together the two captures see every frame once, as it left. Protected packets are sampled by
their number, so it is known which packets must be there. Cleartext is sampled only in columns without
protection. Where the link is the run's own, captures of protected columns keep everything that is not
protected.

On SIGUSR1 tcpdump prints how many frames it has taken from the kernel and how many the kernel dropped. So
each look is complete: it ends when every frame that had passed until then is in the file.
"""

from __future__ import annotations

import contextlib
import re
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.hosts import Daemon, Host, runner
from harness.model import IPV6, End, LinkProfile
from harness.model.errors import CommandFailed, HostLost
from harness.network import links
from harness.network.links import LinkPath
from harness.protection.layer import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    IPPROTO_FRAGMENT,
    Frames,
    of_ip,
    within_ip,
)

SNAP_BYTES = 144
"""Bytes kept of each frame: two VLAN tags, IPv6 with its hop-by-hop options or an ICMPv6 error, and what
distinguishes packets."""

PCAP_HEADER_BYTES = 24
RECORD_HEADER_BYTES = 16
BYTE_ORDERS = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}
"""By the first bytes of a pcap file: it has the byte order of the machine that captured."""

ETHERTYPE_AT = {1: 12, 113: 14}
"""By link type (pcap-linktype(7)): Ethernet, and Linux's cooked capture, for links without a header of their
own."""

RAW_IP = (12, 101)
ETHERTYPE_ARP, ETHERTYPE_EAPOL = 0x0806, 0x888E
VLAN_TAGS = (0x8100, 0x88A8)
IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6 = 1, 6, 17, 58
NEIGHBOUR_DISCOVERY = (*range(130, 138), 143)
"""Types of ICMPv6 by which hosts and routers find each other: RFC 2710, 3810 and 4861."""

ICMP_ERRORS = {IPPROTO_ICMP: (3, 11), IPPROTO_ICMPV6: (1, 2, 3)}
"""Types by which a router says that it did not pass a packet on: unreachable, too large, too many hops. After
8 bytes the packet follows, or its beginning: RFC 792 and 4443."""

ICMP_BYTES = 8

LLC_BYTES = 6
LAYER_2_UPDATE = b"\x00\x01\xaf\x81\x01\x00"
"""What an access point sends for bridges to learn where a station is that associates: IEEE 802.11F, 6.3, and
cfg80211_send_layer2_update() of net/wireless/util.c. Its length stands where others have an EtherType."""

SAMPLES_PER_S = 64
MOST_SPARSE = 256
PRIMES = {1: 1, 2: 2, 4: 3, 8: 7, 16: 13, 32: 31, 64: 61, 128: 127, 256: 251}
"""Cleartext is sampled by the identification field of its IP header, which grows by up to 45 at once where
frames are captured before they are split. Such steps could miss a power of two for ever, but not these
primes. IPv6's header has no such field: there it is the sum of TCP's two numbers, which grows with all data
of either end."""

LISTENING = b": listening on "
LOOK_DEADLINE_S = START_DEADLINE_S = 10.0
POLL_S = 0.002
ASK_AGAIN_S = 0.05

_COUNTS = re.compile(
    r"(\d+) packets? captured\W+(\d+) packets? received by filter\W+(\d+) packets? dropped by kernel"
)


@dataclass(kw_only=True)
class Seen:
    """Frames that one end sent since the last look, and why that cannot be relied on (``fault``).

    ``numbers`` are those of the sampled protected packets, by what numbers them (an SPI). ``cleartext``
    counts the portal's TCP segments. ``control`` counts what comes before any protection: IKE, ARP and the
    like, including received ones. ``other`` is the rest, and ``first_other`` says what the first of them was.
    ``clear_bytes`` is the length of all frames that are not protected.
    """

    numbers: dict[int, set[int]] = field(default_factory=dict)
    cleartext: int = 0
    control: int = 0
    other: int = 0
    first_other: str = field(default="", compare=False)
    clear_bytes: int = 0
    fault: str | None = None

    @property
    def sampled(self) -> int:
        """The number of protected packets."""
        return sum(map(len, self.numbers.values()))

    @property
    def clear_frames(self) -> int:
        return self.cleartext + self.control + self.other

    def add(self, later: Seen) -> None:
        for stream, numbers in later.numbers.items():
            self.numbers.setdefault(stream, set()).update(numbers)
        self.cleartext += later.cleartext
        self.control += later.control
        self.other += later.other
        self.first_other = self.first_other or later.first_other
        self.clear_bytes += later.clear_bytes
        self.fault = self.fault or later.fault


def sampling(profile: LinkProfile) -> int:
    """The capture keeps one protected packet in this many: a power of two up to 256.

    It leaves some 64 a second of what the link is likely to carry. Each packet that is kept wakes tcpdump,
    which costs the machine under test; too few would prove nothing. With one request at a time there are
    about four packets for each round trip, whatever the rate allows.
    """
    packets_per_s = (profile.rate_bit_s or 10**10) / (1538 * 8)
    if profile.path_delay_us:
        packets_per_s = min(packets_per_s, 4e6 / (2 * profile.path_delay_us))
    sparse = max(1, int(packets_per_s / SAMPLES_PER_S))
    return min(MOST_SPARSE, 1 << (sparse.bit_length() - 1))


def _portal(path: LinkPath) -> str:
    """The pcap-filter(7) of a portal's segments, whatever their addresses."""
    # Fragments after the first have no ports (RFC 791, section 3.2; RFC 8200, section 4.5).
    later = "ip proto 6 and ip[6:2] & 0x1fff != 0"
    if path.ip == IPV6:
        later = f"ip6[6] = {IPPROTO_FRAGMENT} and ip6[40] = {IPPROTO_TCP} and ip6[42:2] & 0xfff8 != 0"
    return f"(tcp port {path.port} or ({later}))"


def expression(
    path: LinkPath,
    end: End,
    frames: Frames,
    *,
    protected: bool,
    one_in: int,
    within: LinkPath | None = None,
    has_tags: bool = True,
) -> str:
    """The pcap-filter(7) of a column at one end.

    It selects what the end sends by address. `outbound` would select all frames, but libpcap filters the
    first ones again in user space, where it does not know their direction. Where others use the link as well,
    the capture looks only at the portal's traffic: a capture of the SSH connection that carries the capture
    would never end. What somebody else has set up sends to other addresses than the portal's, which is that
    of the path ``within``; in clear it may leave from any address, if a route is gone. Without ``has_tags``
    the interface is not of Ethernet, and libpcap refuses to look for VLANs.
    """
    own, peer = next((own, peer) for each, _, _, own, peer in links.ends(path) if each == end)
    ip = "ip6" if path.ip == IPV6 else "ip"
    sent = f"{ip} src host {own} and {ip} dst host {peer}"
    portal = _portal(path)
    if not protected:
        # The first and the last segments of every connection, and a sample of the others.
        sample = f"(tcp[tcpflags] & (tcp-syn|tcp-fin|tcp-rst) != 0 or ip[4:2] % {PRIMES[one_in]} = 0)"
        if path.ip == IPV6:
            sample = f"(ip6[53] & (tcp-syn|tcp-fin|tcp-rst) != 0 or {_numbers()} % {PRIMES[one_in]} = 0)"
        clear = f"(tcp port {path.port} and {sample})"
        return f"{sent} and {clear}" if path.is_shared else f"{sent} and ({frames.own} or {clear})"
    sample, others = frames.sample(one_in), frames.received(end)
    if within is not None:
        to = f"{'ip6' if within.ip == IPV6 else 'ip'} dst host {within.target_address}"
        clear = f"({to} and {_portal(within)})"
        tagged = f" or (vlan and {clear})" if has_tags else ""
        return f"({f'not {others}' if others else sent} and {sample}) or {clear}{tagged}"
    if path.is_shared:
        mine = f"({sent} and ({sample} or {portal}))"
        if others:
            mine = f"(not {others} and {sample}) or ({sent} and {portal})"
        # `vlan` makes all that follows it look after a tag, so it comes last.
        return f"{mine} or (vlan and {sent} and {portal})"
    received = f"({ip} src host {peer} and {ip} dst host {own})"
    if others:
        received = f"({received} or {others})"
    return f"not {received} and (not ({frames.own}) or {sample})"


def _numbers() -> str:
    """Sequence and acknowledgement number of TCP over IPv6 (RFC 9293, section 3.1), added up."""
    return f"({within_ip(IPV6, 'tcp', 4, 4)} + {within_ip(IPV6, 'tcp', 8, 4)})"


@dataclass(frozen=True, kw_only=True)
class FrameReader:
    """Classifies frames. ``link_type`` is that of a pcap file, ``order`` its byte order for struct."""

    frames: Frames
    port: int
    link_type: int = 1
    order: str = "<"

    def of_file(self, header: bytes) -> FrameReader:
        """A reader for a file that begins so. CommandFailed if it is of no known kind."""
        order = BYTE_ORDERS.get(header[:4])
        (link_type,) = struct.unpack_from(f"{order or '<'}I", header, 20)
        if order is None or link_type not in (*ETHERTYPE_AT, *RAW_IP):
            raise CommandFailed(
                f"expected a capture of Ethernet frames or IP packets, found one of link type {link_type}",
                hint="name an interface that tcpdump shows as EN10MB, LINUX_SLL or RAW",
            )
        return FrameReader(frames=self.frames, port=self.port, link_type=link_type, order=order)

    def count(self, data: bytes, seen: Seen) -> tuple[int, int]:
        """Count the whole pcap records in ``data``; returns how many there were and how many bytes they
        took."""
        position = frames = 0
        while position + RECORD_HEADER_BYTES <= len(data):
            captured, length = struct.unpack_from(f"{self.order}II", data, position + 8)
            end = position + RECORD_HEADER_BYTES + captured
            if end > len(data):
                break
            self.tell(data[position + RECORD_HEADER_BYTES : end], length, seen)
            position = end
            frames += 1
        return frames, position

    def tell(self, frame: bytes, length: int, seen: Seen) -> None:
        """Count one frame of ``length`` bytes, of which ``frame`` is the beginning."""
        try:
            kind, packet = self._network(frame)
            number = self.frames.number(kind, packet)
            if number is not None:
                stream, place = number
                seen.numbers.setdefault(stream, set()).add(place)
                return
            if self._is_portal(kind, packet):
                seen.cleartext += 1
            elif self._is_control(kind, packet):
                seen.control += 1
            else:
                seen.first_other = seen.first_other or _named(kind, packet)
                seen.other += 1
        except (struct.error, IndexError):
            # A frame that nothing accounts for.
            seen.other += 1
            seen.first_other = seen.first_other or "too short for what it claims to be"
        seen.clear_bytes += length

    def _network(self, frame: bytes) -> tuple[int, bytes]:
        """The type of a frame, after its VLAN tags (IEEE Std 802.1Q, 9.4), and what it carries."""
        if self.link_type in RAW_IP:
            return (ETHERTYPE_IPV6 if frame[0] >> 4 == 6 else ETHERTYPE_IPV4), frame
        at = ETHERTYPE_AT[self.link_type]
        (kind,) = struct.unpack_from("!H", frame, at)
        while kind in VLAN_TAGS:
            at += 4
            (kind,) = struct.unpack_from("!H", frame, at)
        return kind, frame[at + 2 :]

    def _is_portal(self, kind: int, packet: bytes) -> bool:
        found = of_ip(kind, packet)
        if found is None or found[0] != IPPROTO_TCP:
            return False
        _, rest, offset = found
        return offset > 0 or self.port in struct.unpack_from("!HH", rest)

    def _is_control(self, kind: int, packet: bytes) -> bool:
        if self.frames.is_control(kind, packet):
            return True
        if (found := of_ip(kind, packet)) is not None:
            protocol, rest, offset = found
            if not offset and rest[0] in ICMP_ERRORS.get(protocol, ()):
                # Nothing is in clear there that was not before.
                quoted = rest[ICMP_BYTES:]
                return self.frames.number(kind, quoted) is not None or self.frames.is_control(kind, quoted)
            return protocol == IPPROTO_ICMPV6 and rest[0] in NEIGHBOUR_DISCOVERY
        is_update = kind == LLC_BYTES and packet.startswith(LAYER_2_UPDATE)
        return is_update or kind in (ETHERTYPE_ARP, ETHERTYPE_EAPOL)


def _named(kind: int, packet: bytes) -> str:
    """What a frame is, for people: ``UDP 68 to 67 over IPv4``, ``EtherType 0x88cc``."""
    found = of_ip(kind, packet)
    if found is None:
        return f"EtherType {kind:#06x}"
    protocol, rest, offset = found
    over = "IPv6" if kind == ETHERTYPE_IPV6 else "IPv4"
    if offset or protocol not in (IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6):
        return f"protocol {protocol} over {over}"
    if protocol == IPPROTO_ICMPV6:
        return f"ICMPv6 of type {rest[0]}"
    name = "TCP" if protocol == IPPROTO_TCP else "UDP"
    return "{} {} to {} over {}".format(name, *struct.unpack_from("!HH", rest), over)


@dataclass(kw_only=True)
class CapturePoint:
    """The capture at one end: its growing file, and how far that has been read."""

    end: str
    file: Path
    daemon: Daemon
    reader: FrameReader
    frames: int = 0
    """How many frames have been read."""
    fault: str | None = None
    earlier: Seen = field(default_factory=Seen)
    """What another one saw, and nobody has read yet."""
    _offset: int = PCAP_HEADER_BYTES
    _reported: int = 0
    """How much of tcpdump's log has been read."""
    _passed_by: int = 0
    """What tcpdump counts as received and does not capture: it came before the filter was set."""
    _dropped_before: int = 0
    """What was dropped until then: without a filter, tcpdump also receives everything that others send."""

    @property
    def log(self) -> Path:
        return self.file.with_suffix(".log")

    def ask(self) -> None:
        self.daemon.signal(signal.SIGUSR1)

    def read(self) -> Seen:
        """What was added to the file since the last time."""
        with self.file.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        seen, self.earlier = self.earlier, Seen()
        seen.fault = self.fault
        frames, taken = self.reader.count(data, seen)
        self.frames += frames
        self._offset += taken
        return seen

    def look(self) -> Seen:
        """All that was sent until now."""
        seen = self.read()
        if self.fault is None:
            try:
                self._complete(seen)
            except CommandFailed as error:
                self._blame(error)
        seen.add(self.read())
        return seen

    def read_rest(self) -> Seen:
        """What was sent until tcpdump was stopped, at which it prints its counts a last time."""
        if self.fault is None and (counts := self._printed()) is not None:
            try:
                self._require_all(counts[2])
            except CommandFailed as error:
                self._blame(error)
        return self.read()

    def settle(self) -> None:
        """Note what came before the filter was set; once, when the capture has begun."""
        self.ask()
        captured, received, self._dropped_before = self._counts()
        self._passed_by = max(0, received - captured)

    def _complete(self, seen: Seen) -> None:
        until = time.monotonic() + LOOK_DEADLINE_S
        captured, received, dropped = self._counts()
        self._require_all(dropped)
        while self.frames < captured or received - captured > self._passed_by:
            if time.monotonic() > until:
                raise CommandFailed(f"only {self.frames} of {received} frames came in {LOOK_DEADLINE_S:g} s")
            is_behind = self.frames >= captured
            time.sleep(ASK_AGAIN_S if is_behind else POLL_S)
            seen.add(self.read())
            if is_behind:
                self.ask()
                captured, received, dropped = self._counts()

    def _counts(self) -> tuple[int, int, int]:
        """tcpdump's answer: how many frames it has captured, received and not received."""
        counts: tuple[int, int, int] | None = None

        def answered() -> bool:
            nonlocal counts
            counts = self._printed()
            return counts is not None or self.daemon.ended()

        runner.await_condition(answered, deadline_s=LOOK_DEADLINE_S, what="tcpdump", interval_s=POLL_S)
        if counts is None or self.daemon.ended():
            raise CommandFailed("tcpdump has ended")
        return counts

    def _printed(self) -> tuple[int, int, int] | None:
        """The newest counts in tcpdump's log since the last time; None if there are none."""
        found = list(_COUNTS.finditer(self.log.read_text(encoding="utf-8", errors="replace"), self._reported))
        if not found:
            return None
        self._reported = found[-1].end()
        captured, received, dropped = map(int, found[-1].groups())
        return captured, received, dropped

    def _require_all(self, dropped: int) -> None:
        """CommandFailed if tcpdump says that the kernel dropped any frame since the capture began."""
        if dropped > self._dropped_before:
            raise CommandFailed(f"the kernel dropped {dropped - self._dropped_before} frames")

    def _blame(self, error: CommandFailed) -> None:
        self.fault = f"the capture of what the {self.end} sent is unreliable: {error.message}"


@dataclass(kw_only=True)
class Capture:
    """The captures of the ends that are seen, the initiator's first; they keep one frame in ``one_in``.
    ``begin`` begins those of some ends."""

    taps: tuple[CapturePoint, ...]
    one_in: int
    begin: Callable[[Sequence[End]], tuple[CapturePoint, ...]] = lambda _ends: ()
    since_start: list[int] = field(default_factory=lambda: [0, 0])
    """The portal's segments in clear that each end has sent since the capture began."""
    last: list[Seen] = field(default_factory=list)
    """What was seen by ``finish``, and after that until the captures ended."""

    def again(self, end: End) -> None:
        """Watch an end that has booted anew, with which its tcpdump ended. What that had seen counts."""
        (ended,) = (tap for tap in self.taps if tap.end == end)
        (begun,) = self.begin([end])
        begun.earlier.add(ended.read())
        self.taps = tuple(begun if tap is ended else tap for tap in self.taps)

    def look(self) -> list[Seen]:
        """What the ends have sent since the last time, up to now and, but for a boot, without a gap."""
        for tap in self.taps:
            tap.ask()
        return self._counted([tap.look() for tap in self.taps])

    def finish(self) -> None:
        """Look a last time, before the path's protection is taken down."""
        # What a lost host saw is out of reach.
        with contextlib.suppress(HostLost):
            self.last += self.look()

    def read_rest(self) -> None:
        """Read what is left, once the tcpdumps have ended."""
        self.last += self._counted([tap.read_rest() for tap in self.taps])

    def _counted(self, found: list[Seen]) -> list[Seen]:
        for number, seen in enumerate(found):
            self.since_start[number] += seen.cleartext
        return found


def _is_listening(file: Path) -> bool:
    """Whether a tcpdump has begun. Before it prints that, SIGUSR1 would kill it, although the file has its
    header."""
    said = file.with_suffix(".log").read_bytes()
    return LISTENING in said and file.stat().st_size >= PCAP_HEADER_BYTES


def _begun(reader: FrameReader, host: Host, file: Path, daemon: Daemon) -> FrameReader:
    """A reader for the file of a tcpdump, once that has begun. CommandFailed if it does not."""
    runner.await_condition(
        lambda: daemon.ended() or _is_listening(file),
        deadline_s=START_DEADLINE_S,
        what=f"tcpdump on the {host.name} to begin",
    )
    if daemon.ended():
        said = runner.tail(file.with_suffix(".log"))
        raise CommandFailed(f"tcpdump on the {host.name} ended while it started: {said}")
    with file.open("rb") as stream:
        return reader.of_file(stream.read(PCAP_HEADER_BYTES))


@contextlib.contextmanager
def capture(
    path: LinkPath,
    folder: Path,
    frames: Frames,
    *,
    protected: bool,
    within: LinkPath | None = None,
    has_tags: bool = True,
) -> Iterator[Capture]:
    """Watch both ends of a path while the context lasts; the files stay as raw output.

    ``frames`` are those of the protection above it, or of one that must be absent. ``within`` and
    ``has_tags`` are as for ``expression``.
    """
    one_in = sampling(path.profile)
    reader = FrameReader(frames=frames, port=path.port)
    made: Capture | None = None
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: made.read_rest() if made is not None else None)

        def begin(ends: Sequence[End]) -> tuple[CapturePoint, ...]:
            # A column that comes up again, after a bad cell or in a resumed run, gets new files: in the
            # earlier ones, old frames would count as new.
            number = 1
            while any((folder / f"{end}-{number}.pcap").exists() for end in ends):
                number += 1
            running: list[tuple[End, Host, Path, Daemon]] = []
            for end, host, iface, *_ in links.ends(path):
                if end not in ends:
                    continue
                file = folder / f"{end}-{number}.pcap"
                wanted = expression(
                    path, end, frames, protected=protected, one_in=one_in, within=within, has_tags=has_tags
                )
                daemon = stack.enter_context(
                    host.daemon(
                        ["tcpdump", "-i", iface, "-p", "-n", "-U", "--immediate-mode", "-Z", "root"]
                        + ["-s", str(SNAP_BYTES), "-w", "-", wanted],
                        log=file.with_suffix(".log"),
                        output=file,
                        ready=lambda: True,
                        deadline_s=START_DEADLINE_S,
                    )
                )
                running.append((end, host, file, daemon))
            # Only now: each takes a while to start, and of that most is waiting.
            taps = [
                CapturePoint(end=end, file=file, daemon=daemon, reader=_begun(reader, host, file, daemon))
                for end, host, file, daemon in running
            ]
            for tap in taps:
                tap.settle()
            return tuple(taps)

        made = Capture(taps=begin([end for end, *_ in links.ends(path)]), one_in=one_in, begin=begin)
        yield made
