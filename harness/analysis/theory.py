"""One I/O at a time over a network, in closed form: the frames it takes, and their time.

This is what the matrix shows when processors cost nothing: framing, serialisation, propagation, round trips,
and the disk. Virtual time (docs/lab.md) measures the same; docs/theory.md compares the two. Each
transport defines what its ends send for an I/O (``Dialogue``).

Assumptions: one command is in flight; there is no loss; TCP's windows have reached their final size (RFC
5681's slow start is over) and hold at least the link's bandwidth times its delay; each direction has the
whole rate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from harness.model import IPV4, IPV6, End, Family, IpsecMode, LinkProfile

IoDirection = Literal["read", "write"]

ETHERNET_HEADER_BYTES = 14
IP_HEADER_BYTES: dict[Family, int] = {IPV4: 20, IPV6: 40}
"""RFC 791, without options; RFC 8200, section 3, without extensions."""

TCP_HEADER_BYTES = 32
"""RFC 9293: 20 bytes; and RFC 7323's timestamps with their two bytes of padding, in every segment."""

ESP_HEADER_BYTES = 8
"""RFC 4303, sections 2.1 and 2.2: SPI and sequence number."""

ESP_TRAILER_BYTES = 2
"""RFC 4303, sections 2.5 and 2.6: pad length and next header."""

CIPHERS = {
    "ecb(cipher_null)": (0, 4),  # RFC 2410; RFC 4303, section 2.4 aligns to 4 bytes
    "cbc(aes)": (16, 16),  # RFC 3602, sections 2.1 and 3
    "cbc(des3_ede)": (8, 8),  # RFC 2451, sections 2.4 and 3
    "rfc4106(gcm(aes))": (8, 4),  # RFC 4106, sections 3.1 and 3.2
    "rfc7539esp(chacha20,poly1305)": (8, 4),  # RFC 7634, section 2
}
"""Bytes of IV in every packet, and the block that the encrypted part is padded to, by the kernel's name."""

CHECK_VALUES = {
    "hmac(sha1)": 12,  # RFC 2404
    "hmac(sha256)": 16,  # RFC 4868, section 2.3
    "rfc4106(gcm(aes))": 16,  # RFC 4106, section 3: strongSwan's aes128gcm16
    "rfc7539esp(chacha20,poly1305)": 16,  # RFC 7634, section 2
}
"""Bytes of the ICV, by the kernel's name."""


FULL = 0.965
"""From this part of its goodput on a link is full; TCP's options, VLANs and ESP's mode take the rest."""


class Framing(Protocol):
    """How a protection frames an IP packet. Lengths are those after the Ethernet header."""

    def packet_bytes(self, cleartext_bytes: int) -> int:
        """The length of the protected packet for an IP packet of this length."""
        ...

    def sealed_bytes(self, cleartext_bytes: int) -> int:
        """The length of its encrypted part, with padding; 0 without a cipher."""
        ...

    def inner_mtu_bytes(self, mtu_bytes: int) -> int:
        """The longest IP packet that fits, if ``mtu_bytes`` fit without protection."""
        ...

    @property
    def is_queued(self) -> bool:
        """Whether packets wait for a worker that encrypts them: for TCP they have not been sent yet."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Stacked:
    """Nested protections; the first is the outermost."""

    layers: tuple[Framing, ...]

    def packet_bytes(self, cleartext_bytes: int) -> int:
        for layer in reversed(self.layers):
            cleartext_bytes = layer.packet_bytes(cleartext_bytes)
        return cleartext_bytes

    def sealed_bytes(self, cleartext_bytes: int) -> int:
        """The sum over all of them: a protected packet is an ordinary packet to the next."""
        sealed = 0
        for layer in reversed(self.layers):
            sealed += layer.sealed_bytes(cleartext_bytes)
            cleartext_bytes = layer.packet_bytes(cleartext_bytes)
        return sealed

    def inner_mtu_bytes(self, mtu_bytes: int) -> int:
        for layer in self.layers:
            mtu_bytes = layer.inner_mtu_bytes(mtu_bytes)
        return mtu_bytes

    @property
    def is_queued(self) -> bool:
        return any(layer.is_queued for layer in self.layers)


@dataclass(frozen=True, kw_only=True)
class Esp:
    """ESP's framing of a packet: tunnel mode wraps the whole packet, transport mode its payload.

    Both IP headers of tunnel mode are of the same ``family``.
    """

    mode: IpsecMode
    iv_bytes: int
    block_bytes: int
    icv_bytes: int
    family: Family = IPV4
    is_queued = False

    @property
    def _kept_bytes(self) -> int:
        """The IP header that stays in front."""
        return 0 if self.mode is IpsecMode.TUNNEL else IP_HEADER_BYTES[self.family]

    @property
    def outer_bytes(self) -> int:
        """All bytes before and after the padded part, without the IP header that transport mode keeps."""
        tunnel = IP_HEADER_BYTES[self.family] if self.mode is IpsecMode.TUNNEL else 0
        return tunnel + ESP_HEADER_BYTES + self.iv_bytes + self.icv_bytes

    def sealed_bytes(self, cleartext_bytes: int) -> int:
        """The bytes encrypted of an IP packet of that length, including padding and trailer."""
        padded = cleartext_bytes - self._kept_bytes + ESP_TRAILER_BYTES
        return padded + -padded % self.block_bytes

    def packet_bytes(self, cleartext_bytes: int) -> int:
        """The length of the ESP packet that carries an IP packet of that length."""
        return self._kept_bytes + self.outer_bytes + self.sealed_bytes(cleartext_bytes)

    def inner_mtu_bytes(self, mtu_bytes: int) -> int:
        """The longest IP packet that still fits when it is wrapped (Linux: xfrm_state_mtu())."""
        kept = self._kept_bytes
        room = mtu_bytes - self.outer_bytes - kept
        return room - room % self.block_bytes + kept - ESP_TRAILER_BYTES


def esp(kernel_algorithms: Sequence[str], mode: IpsecMode, family: Family = IPV4) -> Esp | None:
    """The framing of a proposal (``Proposal.kernel_algorithms``); None if an algorithm is unknown."""
    lengths = next((CIPHERS[name] for name in kernel_algorithms if name in CIPHERS), None)
    icv_bytes = CHECK_VALUES.get(kernel_algorithms[-1]) if kernel_algorithms else None
    if lengths is None or icv_bytes is None:
        return None
    iv_bytes, block_bytes = lengths
    return Esp(mode=mode, iv_bytes=iv_bytes, block_bytes=block_bytes, icv_bytes=icv_bytes, family=family)


class Dialogue(Hashable, Protocol):
    """A transport's dialogue: what its ends negotiated, and so what each sends for one I/O.

    ``window_bytes`` is what the target may have in flight: the smaller of the initiator's receive window and
    its own congestion window. ``threads`` are the ends that take what arrives in a thread, and not while it
    is received: on a full core that comes late, for all of a burst at once, and TCP acknowledges that alone.
    """

    @property
    def window_bytes(self) -> int: ...

    @property
    def threads(self) -> tuple[End, ...]: ...

    def bursts(self, wire: Wire, direction: IoDirection, block_bytes: int) -> list[Burst]:
        """What the ends send for one I/O, in order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A link and its protection."""

    link: LinkProfile
    framing: Framing | None = None

    @property
    def mss_bytes(self) -> int:
        """The most data in a segment (RFC 9293, section 3.7.1), after protection's part of the MTU."""
        mtu_bytes = self.link.mtu_bytes
        if self.framing is not None:
            mtu_bytes = self.framing.inner_mtu_bytes(mtu_bytes)
        return mtu_bytes - self.headers_bytes

    @property
    def headers_bytes(self) -> int:
        """Those of IP and TCP."""
        return IP_HEADER_BYTES[self.link.ip] + TCP_HEADER_BYTES

    @property
    def goodput_bytes_s(self) -> float | None:
        """TCP's data in full frames, one way; None if the link is unshaped, or its MTU too small for any.

        A framing that is unknown counts as none: this is then too high, never too low.
        """
        if self.link.rate_bit_s is None or self.mss_bytes <= 0:
            return None
        frame_bytes = self.frame_bytes(self.mss_bytes) + self.link.frame_overhead_bytes
        return self.link.rate_bit_s / 8 * self.mss_bytes / frame_bytes

    def frame_bytes(self, data_bytes: int) -> int:
        """The Ethernet frame of a segment, as an interface counts it: without preamble, gap and FCS."""
        packet_bytes = self.headers_bytes + data_bytes
        if self.framing is not None:
            packet_bytes = self.framing.packet_bytes(packet_bytes)
        return ETHERNET_HEADER_BYTES + packet_bytes

    def serialisation_s(self, segments: Sequence[int]) -> float:
        """How long these segments occupy the medium, one after another."""
        if self.link.rate_bit_s is None:
            return 0.0
        overhead_bytes = self.link.frame_overhead_bytes
        occupied = sum(self.frame_bytes(data_bytes) + overhead_bytes for data_bytes in segments)
        return 8 * occupied / self.link.rate_bit_s

    def one_way_s(self, segments: Sequence[int]) -> float:
        """The time from the first byte sent until the last segment has arrived.

        A frame has arrived when all of it has (store and forward), and the next follows without a gap. So all
        are serialised, and the propagation counts once.
        """
        return self.link.path_delay_us * 1e-6 + self.serialisation_s(segments) + self.stored_s(segments)

    def stored_s(self, segments: Sequence[int]) -> float:
        """The time that hops add to a burst: each receives a whole frame before it sends the frame on.

        While it sends one frame it receives the next, so only the longest frame of a burst counts again.
        """
        hops = self.link.hops
        if hops is None or not segments:
            return 0.0
        return hops.count * self.serialisation_s([max(segments)])


def segmented(
    writes: Sequence[tuple[int, bool]],
    mss_bytes: int,
    window_bytes: int | None = None,
    *,
    corks: bool = False,
) -> list[int]:
    """The segments that TCP makes of ``writes`` (bytes, whether more follows) that come all at once.

    Without Nagle's algorithm (both ends set TCP_NODELAY) each write leaves at once, so its last segment is
    short. With "more follows" (MSG_MORE) data that does not fill a segment waits. Data that does not fit into
    the window waits too, and later writes fill its segments up.

    ``corks``: earlier segments still wait on this host, so data that does not fill one waits for them, and
    later writes fill it up (Documentation/networking/ip-sysctl.rst, tcp_autocorking).
    """
    segments: list[int] = []
    sent = 0
    in_flight = 0
    for length, more_follows in writes:
        left = length
        while left:
            if len(segments) == sent or segments[-1] == mss_bytes:
                segments.append(0)
            taken = min(left, mss_bytes - segments[-1])
            segments[-1] += taken
            left -= taken
        while sent < len(segments):
            is_short = sent == len(segments) - 1 and segments[sent] < mss_bytes
            is_waiting = is_short and (more_follows or (corks and sent > 0))
            is_beyond = window_bytes is not None and in_flight + segments[sent] > window_bytes
            if is_waiting or is_beyond:
                break
            in_flight += segments[sent]
            sent += 1
    return segments


@dataclass(kw_only=True)
class Receiver:
    """When Linux acknowledges (RFC 9293, section 3.8.6.3: at least every second full segment).

    It acknowledges at once when more than one full segment waits, or two short ones. It guesses the size of a
    full segment from what arrives (tcp_measure_rcv_mss(), __tcp_ack_snd_check(), tcp_cleanup_rbuf()). All
    else waits for data in the other direction, and here there always is some.
    """

    full_bytes: int
    last_bytes: int = 0
    waiting_bytes: int = 0
    has_short: bool = False

    def answers(self, data_bytes: int, *, pushed: bool) -> bool:
        """Whether a segment of this length gets an ACK of its own."""
        previous, self.last_bytes = self.last_bytes, 0
        two_short = False
        self.waiting_bytes += data_bytes
        if data_bytes >= self.full_bytes:
            self.full_bytes = data_bytes
            self.has_short |= pushed
        elif self._may_be_full(data_bytes, pushed) and data_bytes == previous:
            self.full_bytes = self.last_bytes = data_bytes
        else:
            if self._may_be_full(data_bytes, pushed):
                self.last_bytes = data_bytes
            two_short, self.has_short = self.has_short, True
        if self.waiting_bytes > self.full_bytes or two_short:
            self.answered()
            return True
        return False

    @staticmethod
    def _may_be_full(data_bytes: int, pushed: bool) -> bool:
        # TCP_MSS_DEFAULT and TCP_MIN_MSS, minus the options, which the kernel counts as data here.
        return data_bytes + TCP_HEADER_BYTES >= 536 + 20 or (
            not pushed and data_bytes + TCP_HEADER_BYTES >= 88 + 20
        )

    def answered(self) -> None:
        """An ACK has left, alone or with data."""
        self.waiting_bytes, self.has_short = 0, False


@dataclass(frozen=True, kw_only=True)
class Burst:
    """What one end sends without waiting for the other."""

    by: End
    segments: tuple[int, ...]
    ends: frozenset[int]
    """Indexes of the segments that end a write: those have PSH set."""

    after_disk: bool = False


def sent(
    wire: Wire, dialogue: Dialogue, by: End, writes: Sequence[tuple[int, bool]], *, after_disk: bool = False
) -> Burst:
    """The burst that an end sends for ``writes`` (see ``segmented``)."""
    segments = segmented(
        writes,
        wire.mss_bytes,
        dialogue.window_bytes if by == "target" else None,
        corks=wire.framing is not None and wire.framing.is_queued,
    )
    short = {n for n, length in enumerate(segments) if length < wire.mss_bytes}
    ends = frozenset(short | {len(segments) - 1})
    return Burst(by=by, segments=tuple(segments), ends=ends, after_disk=after_disk)


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one I/O sends in one direction: frames, how many of them are bare ACKs, and their bytes.

    ``frame_bytes`` are those that an interface counts; ``wire_bytes`` are those that they take on the medium.
    """

    frames: int
    acks: int
    frame_bytes: int
    wire_bytes: int


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What one I/O takes."""

    to_target: Traffic
    to_initiator: Traffic
    time_s: float
    round_trips: int


def predict(
    wire: Wire, dialogue: Dialogue, *, direction: IoDirection, block_bytes: int, device_s: float
) -> Prediction:
    """One I/O of ``block_bytes``; ``device_s`` is the disk's time for it, as one command.

    ValueError if the window is smaller than bandwidth times delay: then the target would wait for ACKs in the
    middle of a burst, which this model does not cover.
    """
    rate_bit_s = wire.link.rate_bit_s
    round_trip_s = wire.one_way_s([wire.mss_bytes]) + wire.one_way_s([0])
    if rate_bit_s is not None and dialogue.window_bytes < rate_bit_s / 8 * round_trip_s:
        raise ValueError(f"a window of {dialogue.window_bytes} bytes does not fill the link")
    bursts = dialogue.bursts(wire, direction, block_bytes)
    bare, in_front = acks(bursts, wire.mss_bytes)
    ack_s = wire.serialisation_s([0])
    time_s = 0.0
    for burst, ack_is_in_front in zip(bursts, in_front, strict=True):
        # The ACK leaves before the burst; it leaves while the disk works, if the burst waits for the disk.
        before_s = device_s if burst.after_disk else 0.0
        time_s += max(before_s, ack_s if ack_is_in_front else 0.0) + wire.one_way_s(burst.segments)
    ways = {}
    for end, peer in (("initiator", "target"), ("target", "initiator")):
        segments = [length for burst in bursts if burst.by == end for length in burst.segments]
        segments += [0] * bare[end]
        frame_bytes = sum(map(wire.frame_bytes, segments))
        ways[peer] = Traffic(
            frames=len(segments),
            acks=bare[end],
            frame_bytes=frame_bytes,
            wire_bytes=frame_bytes + len(segments) * wire.link.frame_overhead_bytes,
        )
    return Prediction(
        to_target=ways["target"],
        to_initiator=ways["initiator"],
        time_s=time_s,
        round_trips=sum(burst.by == "target" for burst in bursts),
    )


SETTLING_IOS = 8


def acks(dialogue: Sequence[Burst], mss_bytes: int) -> tuple[dict[str, int], list[bool]]:
    """What is acknowledged during one I/O of many, once the ends' guesses have settled.

    Returns how many bare ACKs each end sends; and for each burst, whether an ACK leaves just before it,
    because the last segment of the burst that it answers is acknowledged at once.
    """
    ends = {end: Receiver(full_bytes=mss_bytes) for end in ("initiator", "target")}
    count: dict[str, int] = {}
    in_front: list[bool] = []
    is_answered = False
    for _ in range(SETTLING_IOS):
        count, in_front = dict.fromkeys(ends, 0), []
        for burst in dialogue:
            receiver = "target" if burst.by == "initiator" else "initiator"
            in_front.append(is_answered)
            ends[burst.by].answered()
            for place, length in enumerate(burst.segments):
                is_answered = ends[receiver].answers(length, pushed=place in burst.ends)
                count[receiver] += is_answered
    return count, in_front
