"""The parameters of probes: a struct for each kind of probe."""

from __future__ import annotations

import enum

import msgspec

from harness.model.errors import UsageError
from harness.model.ranges import Count
from harness.model.units import shown

LONGEST_S = 3600
MOST_COUNT = 10_000_000
SMALLEST_DATAGRAM_BYTES, LARGEST_DATAGRAM_BYTES = 8, 65_507


class Socket(enum.StrEnum):
    """Whether a client keeps one socket for all its round trips, or opens and closes one for each."""

    KEPT = "kept"
    REOPENED = "reopened"


class Flood(enum.StrEnum):
    """What sends echo requests faster than they are answered: ping -f, or hping3."""

    PING = "ping"
    HPING3 = "hping3"


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag="ping", forbid_unknown_fields=True):
    """Echo requests, one each ``interval_s``, on the idle path or while TCP fills it (``loaded``)."""

    count: int = 10
    interval_s: float = 1.0
    payload_bytes: int = 56
    loaded: bool = False

    @property
    def name(self) -> str:
        return f"ping-{_milliseconds(self.interval_s)}{'-loaded' if self.loaded else ''}"


class Tcp(msgspec.Struct, frozen=True, kw_only=True, tag="tcp", forbid_unknown_fields=True):
    """iperf3 over TCP, from the initiator to the target or back (``reverse``)."""

    duration_s: int = 10
    streams: int = 1
    reverse: bool = False

    @property
    def name(self) -> str:
        streams = f"-x{self.streams}" if self.streams > 1 else ""
        return f"tcp{streams}{'-reverse' if self.reverse else ''}"


class Udp(msgspec.Struct, frozen=True, kw_only=True, tag="udp", forbid_unknown_fields=True):
    """iperf3 over UDP, sending ``rate_bit_s``, in datagrams of ``payload_bytes`` (None: iperf3's choice)."""

    duration_s: int = 10
    rate_bit_s: int = 10_000_000_000
    payload_bytes: int | None = None

    @property
    def name(self) -> str:
        return f"udp-{self.rate_bit_s / 1e6:g}m"


class PacketRate(msgspec.Struct, frozen=True, kw_only=True, tag="packet-rate", forbid_unknown_fields=True):
    """Floods of echo requests, by one process and by more at once, until their sum stops growing."""

    tool: Flood = Flood.PING
    duration_s: int = 3
    most_at_once: int = 8

    @property
    def name(self) -> str:
        return f"pps-{self.tool}"


class Forwarding(msgspec.Struct, frozen=True, kw_only=True, tag="forwarding", forbid_unknown_fields=True):
    """A flood that nobody answers, and how much of it each hop lets through."""

    duration_s: int = 3

    @property
    def name(self) -> str:
        return "pps-forwarding"


class UdpLatency(msgspec.Struct, frozen=True, kw_only=True, tag="udp-latency", forbid_unknown_fields=True):
    """A datagram there and back, ``count`` times."""

    payload_bytes: int = 1024
    count: int = 100_000
    socket: Socket = Socket.KEPT

    @property
    def name(self) -> str:
        return f"udp-latency-{self.payload_bytes}-{self.socket}"


class Cipher(msgspec.Struct, frozen=True, kw_only=True, tag="cipher", forbid_unknown_fields=True):
    """The cipher and integrity check of an ESP proposal, stand-alone, in each kernel of the path; nothing is
    sent.

    ``algorithms`` are the kernel's names. ``key_bits`` is the length of the cipher's key, None if its keys
    have one length.
    """

    algorithms: tuple[str, ...]
    key_bits: Count | None = None

    @property
    def name(self) -> str:
        return "cipher"


Probe = Ping | Tcp | Udp | PacketRate | Forwarding | UdpLatency | Cipher


def _milliseconds(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1e3:g}ms"


def check(probe: Probe) -> None:
    """UsageError for parameters that no tool could use."""
    if isinstance(probe, Cipher):
        raise UsageError(
            "the cipher probe sends no packets, so it cannot be part of a probe profile",
            hint="harness run measures ciphers together with its cells",
        )
    if isinstance(probe, Ping | UdpLatency):
        _within("count", probe.count, 1, MOST_COUNT)
    if isinstance(probe, Ping):
        _within("interval_s", probe.interval_s, 0.0001, LONGEST_S)
        _within("count x interval_s", probe.count * probe.interval_s, 0, LONGEST_S)
        _within("payload_bytes", probe.payload_bytes, 16, LARGEST_DATAGRAM_BYTES)
    elif isinstance(probe, UdpLatency):
        _within("payload_bytes", probe.payload_bytes, SMALLEST_DATAGRAM_BYTES, LARGEST_DATAGRAM_BYTES)
    else:
        _within("duration_s", probe.duration_s, 1, LONGEST_S)
    if isinstance(probe, Udp):
        _within("rate_bit_s", probe.rate_bit_s, 1000, 10**12)
    if isinstance(probe, Udp) and probe.payload_bytes is not None:
        _within("payload_bytes", probe.payload_bytes, 16, LARGEST_DATAGRAM_BYTES)
    if isinstance(probe, Tcp):
        _within("streams", probe.streams, 1, 128)
    if isinstance(probe, PacketRate):
        _within("most_at_once", probe.most_at_once, 1, 64)


def _within(what: str, value: float, least: float, most: float) -> None:
    # Written so that NaN, which TOML has, is also refused.
    if not least <= value <= most:
        raise UsageError(f"a probe's {what}: expected {least:g} to {most:g}, found {shown(str(value))}")
