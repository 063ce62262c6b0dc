"""One layer of a path: what every kind of protection reports to the modules that capture, prove and explain.

A layer stands between two paths: the one ``below``, whose frames it makes, and the one ``within``, which it
protects. IPsec keeps the path that it is given; a protection that is an interface of its own makes another.
So a stack of protections is a fold over a column's names, the outermost on the wire first.
"""

from __future__ import annotations

import abc
import struct
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from harness.hosts.journal import Breaks
from harness.model import IPV4, IPV6, End, Family
from harness.network.links import LinkPath

HEADER_BYTES = 14
"""Of Ethernet, in front of each packet."""

ETHERTYPE_IPV4, ETHERTYPE_IPV6 = 0x0800, 0x86DD
HOP_BY_HOP, IPPROTO_FRAGMENT = 0, 44
FRAGMENT_BYTES = 8
"""RFC 8200, section 4.5: the header of a fragment."""

IPV6_BYTES = 40
"""RFC 8200, section 3: the header of a packet, where no extension follows it."""


def within_ip(family: Family, protocol: str, at: str | int, size: int = 1) -> str:
    """``size`` bytes at ``at`` of the TCP, UDP or ESP in a packet, for pcap-filter(7).

    What it calls ``tcp[…]`` is IPv4's alone.
    """
    width = f":{size}" if size > 1 else ""
    if family == IPV4:
        return f"{protocol}[{at}{width}]"
    whole = IPV6_BYTES + at if isinstance(at, int) else f"{IPV6_BYTES} + {at}"
    return f"ip6[{whole}{width}]"


def of_ip(
    ethertype: int, packet: bytes, families: Container[Family] = (IPV4, IPV6)
) -> tuple[int, bytes, int] | None:
    """What an IP packet carries: the protocol, its bytes, and their offset in the whole packet.

    None for what is not IP of these families. An offset above 0 is that of a fragment after the first.
    IndexError or struct.error if it is too short.
    """
    if ethertype == ETHERTYPE_IPV4 and IPV4 in families:
        (fragment,) = struct.unpack_from("!H", packet, 6)
        return packet[9], packet[4 * (packet[0] & 0xF) :], 8 * (fragment & 0x1FFF)
    if ethertype != ETHERTYPE_IPV6 or IPV6 not in families:
        return None
    protocol, rest, offset = packet[6], packet[IPV6_BYTES:], 0
    if protocol == HOP_BY_HOP:
        protocol, rest = rest[0], rest[8 * (rest[1] + 1) :]
    if protocol == IPPROTO_FRAGMENT:
        (fragment,) = struct.unpack_from("!H", rest, 2)
        protocol, rest, offset = rest[0], rest[FRAGMENT_BYTES:], fragment & 0xFFF8
    return protocol, rest, offset


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What was carried one way: packets as they were on the link, bytes as the protection counts them.

    ``repeated_headers`` is how many of the packets have TCP and IP headers that ``bytes`` does not count:
    with segmentation offload a protection counts those of a super-packet once.
    """

    packets: int = 0
    bytes: int = 0
    repeated_headers: int = 0

    def grown(self, later: Carried) -> Carried:
        """What was added until ``later``: nothing where it counts less, see ``went_back``."""
        return Carried(
            packets=max(0, later.packets - self.packets),
            bytes=max(0, later.bytes - self.bytes),
            repeated_headers=later.repeated_headers - self.repeated_headers,
        )

    def went_back(self, later: Carried) -> bool:
        """Whether ``later`` counts less: then the peer, association or connection is another one, or gone."""
        return later.packets < self.packets or later.bytes < self.bytes


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What the protection of one end says at one moment. ``out`` and ``into`` have grown since it was made.

    ``numbers`` has the number of the last packet sent, by what numbers them (an SPI); it is empty where that
    is unknown. ``faults`` say what is not as it was agreed on.
    """

    out: Carried = Carried()
    into: Carried = Carried()
    numbers: Mapping[int, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EndCounts:
    """One end at one moment: the tally, and its interface below by /proc/net/dev before and after that.

    ``snmp`` are the lines of /proc/net/snmp for IP and TCP, of /proc/net/snmp6 over IPv6, and of
    /proc/net/xfrm_stat for what goes out.
    """

    before: str
    tally: Tally
    after: str
    snmp: str = ""


@dataclass(frozen=True, kw_only=True)
class Due:
    """The sampled packets that a capture has to hold: those of these numbers, or just so many."""

    numbers: Mapping[int, range] = field(default_factory=dict)
    count: int = 0

    @property
    def total(self) -> int:
        return self.count + sum(map(len, self.numbers.values()))

    def missing(self, sampled: Mapping[int, set[int]]) -> int:
        lacking = max(0, self.count - sum(map(len, sampled.values())))
        # On the wire a number has 32 bits, whatever the kernel counts.
        return lacking + sum(
            number & 0xFFFFFFFF not in sampled.get(stream, ())
            for stream, numbers in self.numbers.items()
            for number in numbers
        )


def due_by_number(before: Tally, after: Tally, one_in: int) -> Due:
    """Every packet between two tallies whose number is a multiple of ``one_in``."""
    return Due(
        numbers={
            stream: range((before.numbers.get(stream, 0) // one_in + 1) * one_in, last + 1, one_in)
            for stream, last in after.numbers.items()
        }
    )


class Frames(Protocol):
    """Which frames of a link are a protection's own: for a capture's filter, and for who reads it."""

    @property
    def own(self) -> str:
        """The pcap-filter(7) of all of them."""
        ...

    def sample(self, one_in: int) -> str:
        """The same for one in so many that carry packets, a power of two up to 256: by their number."""
        ...

    def received(self, end: End, /) -> str:
        """The same for those that come in at an end, where their IP addresses are ambiguous; or empty."""
        del end
        return ""

    def number(self, ethertype: int, packet: bytes) -> tuple[int, int] | None:
        """What numbers a packet, and its number; None if it is not one that carries packets.

        struct.error or IndexError if it is too short.
        """
        ...

    def is_control(self, ethertype: int, packet: bytes, /) -> bool:
        """Whether it belongs to the agreement before any protection, such as IKE."""
        del ethertype, packet
        return False


class Said(NamedTuple):
    """What a daemon or kernel, the ``source`` of an ``end``, said; ``at_ns`` is since 1970 by its clock."""

    end: End
    source: str
    at_ns: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Layer(abc.ABC):
    """A protection that is up. ``agreed`` goes into the record, and may be filled in later.

    ``inner`` is the path that it makes, None if there are no further addresses.
    """

    below: LinkPath
    inner: LinkPath | None = None
    agreed: dict[str, str] = field(default_factory=dict)
    breaks: Breaks = dict

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """What its packets are called."""

    @property
    def within(self) -> LinkPath:
        return self.inner or self.below

    @property
    def header_bytes(self) -> int:
        """The most that an interface of the path within counts of a frame besides its packet."""
        return HEADER_BYTES

    @property
    def counts_segments(self) -> bool:
        """Whether it counts each segment of TCP that it carries as a packet."""
        return True

    @abc.abstractmethod
    def look(self) -> tuple[EndCounts, ...]:
        """The ends of ``links.ends`` now, the initiator's first. CommandFailed if one does not answer."""

    def said(self) -> Iterator[Said]:
        """What its daemons have said until now, or its kernels of new keys."""
        yield from ()

    def due(self, before: Tally, after: Tally, one_in: int) -> Due:
        """What the capture of what an end sent has to hold of the time between two of its tallies."""
        return due_by_number(before, after, one_in)

    @abc.abstractmethod
    def frame_bytes(self, carried: Carried, fragments: int, header_bytes: int, /) -> int | None:
        """The most that an interface counts for what was carried; None if that is not known.

        ``fragments`` of its packets are further frames; ``header_bytes`` are in front of each packet.
        """
