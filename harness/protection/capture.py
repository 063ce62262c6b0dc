"""What was really on the link: tcpdump(8) at both ends, for as long as a column is up.

Each end captures what it sends, because in tunnel mode the kernel shows a received packet to taps a second
time after it has been decrypted; together the two see every frame once, as it left. Protected packets are
sampled by their number, so that it is known which are due; cleartext is sampled in columns without protection
alone. Where the link is the run's own, captures of protected columns keep whatever is not protected.

tcpdump says on SIGUSR1 what it has taken from the kernel and what the kernel dropped. So each look is
complete: it ends when every frame that had passed until then is in the file.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.hosts import Daemon, Host, runner
from harness.model import End, LinkProfile
from harness.model.errors import CommandFailed, HostLost
from harness.network.links import LinkPath
from harness.protection.layer import ETHERTYPE_IPV4, Frames

SNAP_BYTES = 96
"""Of each frame: two VLAN tags, IPv6 and its hop-by-hop options, and what tells one packet from another."""

PCAP_HEADER_BYTES = 24
RECORD_HEADER_BYTES = 16
BYTE_ORDERS = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}
"""By the first bytes of a pcap file: it has the byte order of who captured."""

ETHERTYPE_AT = {1: 12, 113: 14}
"""By link type (pcap-linktype(7)): Ethernet, and what Linux cooks up where it has no header of its own."""

RAW_IP = (12, 101)
ETHERTYPE_ARP, ETHERTYPE_IPV6, ETHERTYPE_EAPOL = 0x0806, 0x86DD, 0x888E
VLAN_TAGS = (0x8100, 0x88A8)
IPPROTO_TCP, IPPROTO_ICMPV6, HOP_BY_HOP = 6, 58, 0
NEIGHBOUR_DISCOVERY = (*range(130, 138), 143)
"""Types of ICMPv6 by which hosts and routers find each other: RFC 2710, 3810 and 4861."""

SAMPLES_PER_S = 64
MOST_SPARSE = 256
PRIMES = {1: 1, 2: 2, 4: 3, 8: 7, 16: 13, 32: 31, 64: 61, 128: 127, 256: 251}
"""Cleartext is sampled by the identification of its IP header, which grows by up to 45 at once where frames
are captured before they are split. A power of two could be stepped over for ever, these cannot."""

LISTENING = b": listening on "
LOOK_DEADLINE_S = 10.0
POLL_S = 0.002
ASK_AGAIN_S = 0.05

_COUNTS = re.compile(
    r"(\d+) packets? captured\W+(\d+) packets? received by filter\W+(\d+) packets? dropped by kernel"
)


@dataclass(kw_only=True)
class Seen:
    """Frames that one end sent since the last look, and why that cannot be relied on (``fault``).

    ``numbers`` are those of the protected packets sampled, by what numbers them (an SPI). ``cleartext``
    counts the portal's TCP segments. ``control`` is what comes before any protection: IKE, ARP and their
    like, received ones too. ``other`` is the rest. ``clear_bytes`` is the length of all frames that are not
    protected.
    """

    numbers: dict[int, set[int]] = field(default_factory=dict)
    cleartext: int = 0
    control: int = 0
    other: int = 0
    clear_bytes: int = 0
    fault: str | None = None

    @property
    def sampled(self) -> int:
        """How many protected packets there are."""
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
        self.clear_bytes += later.clear_bytes
        self.fault = self.fault or later.fault


def sampling(profile: LinkProfile) -> int:
    """Of how many protected packets one is kept: a power of two up to 256.

    It leaves some 64 a second of what the link can be expected to carry. Each kept packet wakes tcpdump,
    which the machine under test pays for; too few would prove nothing. One request at a time makes about
    four packets a round trip, whatever the rate allows.
    """
    packets_per_s = (profile.rate_bit_s or 10**10) / (1538 * 8)
    if profile.path_delay_us:
        packets_per_s = min(packets_per_s, 4e6 / (2 * profile.path_delay_us))
    sparse = max(1, int(packets_per_s / SAMPLES_PER_S))
    return min(MOST_SPARSE, 1 << (sparse.bit_length() - 1))


def expression(path: LinkPath, end: End, frames: Frames, *, protected: bool, one_in: int) -> str:
    """The pcap-filter(7) of a column at one end.

    What it sends is told by its address: `outbound` would say it of all frames, but libpcap filters the first
    ones once more by itself, and cannot tell it of those. Where others use the link as well, only the
    portal's traffic is looked at: a capture of the SSH connection that carries the capture would never end.
    """
    own, peer = path.initiator_address, path.target_address
    if end == "target":
        own, peer = peer, own
    sent = f"ip src host {own} and ip dst host {peer}"
    # Fragments behind the first have no ports (RFC 791, section 3.2).
    portal = f"(tcp port {path.port} or (ip proto 6 and ip[6:2] & 0x1fff != 0))"
    if not protected:
        # Of every connection the first and the last segments, and of the others a sample.
        sample = f"(tcp[tcpflags] & (tcp-syn|tcp-fin|tcp-rst) != 0 or ip[4:2] % {PRIMES[one_in]} = 0)"
        clear = f"(tcp port {path.port} and {sample})"
        return f"{sent} and {clear}" if path.is_shared else f"{sent} and ({frames.own} or {clear})"
    sample, others = frames.sample(one_in), frames.received(end)
    if path.is_shared:
        mine = f"({sent} and ({sample} or {portal}))"
        if others:
            mine = f"(not {others} and {sample}) or ({sent} and {portal})"
        # `vlan` has all that follows it look behind a tag, so it comes last.
        return f"{mine} or (vlan and {sent} and {portal})"
    received = f"(ip src host {peer} and ip dst host {own})"
    if others:
        received = f"({received} or {others})"
    return f"not {received} and (not ({frames.own}) or {sample})"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Tells frames apart. ``link_type`` is that of a pcap file, ``order`` its byte order for struct."""

    frames: Frames
    port: int
    link_type: int = 1
    order: str = "<"

    def of_file(self, header: bytes) -> Reader:
        """For a file that begins so. CommandFailed if it is of no known kind."""
        order = BYTE_ORDERS.get(header[:4])
        (link_type,) = struct.unpack_from(f"{order or '<'}I", header, 20)
        if order is None or link_type not in (*ETHERTYPE_AT, *RAW_IP):
            raise CommandFailed(
                f"expected a capture of Ethernet frames or IP packets, found one of link type {link_type}",
                hint="name an interface that tcpdump shows as EN10MB, LINUX_SLL or RAW",
            )
        return Reader(frames=self.frames, port=self.port, link_type=link_type, order=order)

    def count(self, data: bytes, seen: Seen) -> tuple[int, int]:
        """Count the whole pcap records in ``data``; returns how many they were and the bytes they took."""
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
                seen.other += 1
        except (struct.error, IndexError):
            # Too short for what it says it is: nothing that is accounted for.
            seen.other += 1
        seen.clear_bytes += length

    def _network(self, frame: bytes) -> tuple[int, bytes]:
        """The type of a frame, behind its VLAN tags (IEEE Std 802.1Q, 9.4), and what it carries."""
        if self.link_type in RAW_IP:
            return (ETHERTYPE_IPV6 if frame[0] >> 4 == 6 else ETHERTYPE_IPV4), frame
        at = ETHERTYPE_AT[self.link_type]
        (kind,) = struct.unpack_from("!H", frame, at)
        while kind in VLAN_TAGS:
            at += 4
            (kind,) = struct.unpack_from("!H", frame, at)
        return kind, frame[at + 2 :]

    def _transport(self, kind: int, packet: bytes) -> tuple[int, bytes]:
        """The protocol of an IP packet, and what it carries; of IPv6, behind hop-by-hop options."""
        if kind == ETHERTYPE_IPV4:
            return packet[9], packet[4 * (packet[0] & 0xF) :]
        protocol, rest = packet[6], packet[40:]
        if protocol == HOP_BY_HOP:
            protocol, rest = rest[0], rest[8 * (rest[1] + 1) :]
        return protocol, rest

    def _is_portal(self, kind: int, packet: bytes) -> bool:
        if kind not in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
            return False
        protocol, rest = self._transport(kind, packet)
        if protocol != IPPROTO_TCP:
            return False
        is_rest = kind == ETHERTYPE_IPV4 and struct.unpack_from("!H", packet, 6)[0] & 0x1FFF
        return bool(is_rest) or self.port in struct.unpack_from("!HH", rest)

    def _is_control(self, kind: int, packet: bytes) -> bool:
        if self.frames.is_control(kind, packet):
            return True
        if kind == ETHERTYPE_IPV6:
            protocol, rest = self._transport(kind, packet)
            return protocol == IPPROTO_ICMPV6 and rest[0] in NEIGHBOUR_DISCOVERY
        return kind in (ETHERTYPE_ARP, ETHERTYPE_EAPOL)


@dataclass(kw_only=True)
class Tap:
    """The capture at one end: its growing file, and how far that has been read."""

    end: str
    file: Path
    daemon: Daemon
    reader: Reader
    frames: int = 0
    """How many have been read."""
    fault: str | None = None
    _offset: int = PCAP_HEADER_BYTES
    _told: int = 0
    """How much of tcpdump's log has been read."""
    _passed_by: int = 0
    """What tcpdump counts as received and does not capture: it came before there was a filter."""
    _dropped_before: int = 0
    """What was dropped until then: without a filter, all that others send is received as well."""

    @property
    def log(self) -> Path:
        return self.file.with_suffix(".log")

    def ask(self) -> None:
        self.daemon.signal(signal.SIGUSR1)

    def read(self) -> Seen:
        """What is in the file since the last time."""
        with self.file.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        seen = Seen(fault=self.fault)
        frames, taken = self.reader.count(data, seen)
        self.frames += frames
        self._offset += taken
        return seen

    def look(self) -> Seen:
        """What has been sent until it was asked, all of it."""
        seen = self.read()
        if self.fault is None:
            try:
                self._complete(seen)
            except CommandFailed as error:
                self.fault = f"the capture of what the {self.end} sent cannot be relied on: {error.message}"
        seen.add(self.read())
        return seen

    def settle(self) -> None:
        """Take what came before the filter for what it is; once, when the capture has begun."""
        self.ask()
        captured, received, self._dropped_before = self._counts()
        self._passed_by = max(0, received - captured)

    def _complete(self, seen: Seen) -> None:
        until = time.monotonic() + LOOK_DEADLINE_S
        captured, received, dropped = self._counts()
        if dropped > self._dropped_before:
            raise CommandFailed(f"{dropped - self._dropped_before} frames were dropped")
        while self.frames < captured or received - captured > self._passed_by:
            if time.monotonic() > until:
                raise CommandFailed(f"of {received} frames {self.frames} came within {LOOK_DEADLINE_S:g} s")
            is_behind = self.frames >= captured
            time.sleep(ASK_AGAIN_S if is_behind else POLL_S)
            seen.add(self.read())
            if is_behind:
                self.ask()
                captured, received, dropped = self._counts()

    def _counts(self) -> tuple[int, int, int]:
        """What tcpdump answers: how many frames it has captured, received and not received."""
        counts: list[str] = []

        def answered() -> bool:
            found = list(_COUNTS.finditer(self.log.read_text(encoding="utf-8", errors="replace"), self._told))
            if found:
                counts[:] = found[-1].groups()
                self._told = found[-1].end()
            return bool(found) or self.daemon.ended()

        runner.await_condition(answered, deadline_s=LOOK_DEADLINE_S, what="tcpdump", interval_s=POLL_S)
        if self.daemon.ended():
            raise CommandFailed("tcpdump has ended")
        captured, received, dropped = map(int, counts)
        return captured, received, dropped


@dataclass(kw_only=True)
class Capture:
    """The captures of both ends, the initiator's first, of which ``one_in`` frames was sampled."""

    taps: tuple[Tap, Tap]
    one_in: int
    since_start: list[int] = field(default_factory=lambda: [0, 0])
    """The portal's segments in clear that each end has sent since the capture began."""
    last: list[Seen] = field(default_factory=list)
    """What ``finish`` saw."""

    def glance(self) -> list[Seen]:
        """What is in the files and has not been looked at."""
        return self._counted([tap.read() for tap in self.taps])

    def look(self) -> list[Seen]:
        """What both ends have sent since the last time, up to now and without a gap."""
        for tap in self.taps:
            tap.ask()
        return self._counted([tap.look() for tap in self.taps])

    def finish(self) -> None:
        """Look a last time, before what protects the path is taken down."""
        # What a host saw that is lost is not to be had.
        with contextlib.suppress(HostLost):
            self.last = self.look()

    def _counted(self, found: list[Seen]) -> list[Seen]:
        for number, seen in enumerate(found):
            self.since_start[number] += seen.cleartext
        return found


def _is_listening(file: Path) -> bool:
    """Whether a tcpdump has begun. Until it says so SIGUSR1 kills it, though the file has its header."""
    said = file.with_suffix(".log").read_bytes()
    return LISTENING in said and file.stat().st_size >= PCAP_HEADER_BYTES


@contextlib.contextmanager
def capture(path: LinkPath, folder: Path, frames: Frames, *, protected: bool) -> Iterator[Capture]:
    """Watch both ends of a path for the length of the context; the files stay as raw output.

    ``frames`` are those of the protection above it, or of one that has to be absent.
    """
    one_in = sampling(path.profile)
    # A column that comes up again, after a bad cell or in a resumed run, gets files of its own: in those of
    # before, old frames would be taken for new ones.
    number = next(n for n in itertools.count(1) if not (folder / f"initiator-{n}.pcap").exists())
    ends: tuple[tuple[End, Host, str], ...] = (
        ("initiator", path.initiator, path.initiator_iface),
        ("target", path.target, path.target_iface),
    )
    reader = Reader(frames=frames, port=path.port)
    with contextlib.ExitStack() as stack:
        taps = []
        for end, host, iface in ends:
            file = folder / f"{end}-{number}.pcap"
            wanted = expression(path, end, frames, protected=protected, one_in=one_in)
            daemon = stack.enter_context(
                host.daemon(
                    ["tcpdump", "-i", iface, "-p", "-n", "-U", "--immediate-mode", "-Z", "root"]
                    + ["-s", str(SNAP_BYTES), "-w", "-", wanted],
                    log=file.with_suffix(".log"),
                    output=file,
                    ready=functools.partial(_is_listening, file),
                    deadline_s=10,
                )
            )
            with file.open("rb") as stream:
                header = stream.read(PCAP_HEADER_BYTES)
            taps.append(Tap(end=end, file=file, daemon=daemon, reader=reader.of_file(header)))
            taps[-1].settle()
        near, far = taps
        yield Capture(taps=(near, far), one_in=one_in)
