"""Protections other than the ESP proposals of ``ipsec/``: names, places in a stack, bytes they add to
packets.

Readers of results need only this; the code that sets one up is in ``protection/``.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

WIREGUARD: Final = "wireguard"
MACSEC: Final = "macsec"
MACSEC_MKA: Final = "macsec-mka"
TLS: Final = "tls"
TUNNEL: Final = "tunnel"
"""Of a program in user space, which is known and whose packets nobody counts."""

UDP_HEADER_BYTES = 8
"""RFC 768."""

WIREGUARD_HEADER_BYTES = 16
"""The paper's section 5.4.6: type, three zeros, the receiver's index and the counter."""

WIREGUARD_BLOCK_BYTES = 16
"""The paper's section 5.4.6: what the packet is padded to."""

POLY1305_BYTES = 16
"""RFC 8439, section 2.8."""

SECTAG_BYTES = 2 + 1 + 1 + 4 + 8
"""802.1AE, clause 9.3: EtherType, TCI and AN, short length, packet number, and the SCI, which Linux sends
unless told not to."""

ICV_BYTES = 16
"""802.1AE, clause 14.5."""


class StackPlace(enum.IntEnum):
    """Where in a stack a protection is, from the outside."""

    LINK = 0
    """Over Ethernet."""

    INTERFACE = 1
    """Over IP, as an interface of its own."""

    WITHIN = 2
    """Within both, because it keeps the path's addresses, so a protection within it could not be recognised.
    So do proposals."""


class Encapsulation(msgspec.Struct, frozen=True, kw_only=True):
    """A protection for people, in a stack, and around packets. ``cipher`` and ``description`` are for lists.

    Each packet grows by ``around_bytes`` of headers and check values, with ``has_ip`` also by a header of the
    link's IP, after it was padded to a multiple of ``pads_to_bytes``, but not beyond what passes. Of what
    surrounds it ``sealed_bytes`` are encrypted. The link's MTU shrinks by ``takes_bytes``. ``is_queued``: a
    worker encrypts, so for TCP packets have not been sent until then. With ``pre_existing`` no run makes it,
    and what it makes of packets is unknown.
    """

    title: str
    place: StackPlace
    cipher: str = ""
    description: str = ""
    around_bytes: int = 0
    has_ip: bool = False
    sealed_bytes: int = 0
    pads_to_bytes: int = 1
    takes_bytes: int = 0
    is_queued: bool = False
    pre_existing: bool = False

    def inner_mtu_bytes(self, mtu_bytes: int) -> int:
        """The longest IP packet that fits, where ``mtu_bytes`` fit without it."""
        return mtu_bytes - self.takes_bytes


_MACSEC = Encapsulation(
    title="MACsec",
    place=StackPlace.LINK,
    cipher="AES-128-GCM",
    description="IEEE 802.1AE, on each Ethernet frame; keys set by the run",
    around_bytes=SECTAG_BYTES + ICV_BYTES,
    sealed_bytes=2,  # the frame's own EtherType, with what it announces
    takes_bytes=SECTAG_BYTES + ICV_BYTES,  # as Linux has it (macsec_newlink() in drivers/net/macsec.c)
)

PROTECTIONS: Final = {
    WIREGUARD: Encapsulation(
        title="WireGuard",
        place=StackPlace.INTERFACE,
        cipher="ChaCha20-Poly1305",
        description="a tunnel over UDP",
        around_bytes=UDP_HEADER_BYTES + WIREGUARD_HEADER_BYTES + POLY1305_BYTES,
        has_ip=True,
        # Not beyond the interface's MTU (calculate_skb_padding(), drivers/net/wireguard/send.c).
        pads_to_bytes=WIREGUARD_BLOCK_BYTES,
        # As the kernel (wg_setup() in drivers/net/wireguard/device.c) and wg-quick(8) take it off: the outer
        # header may be IPv6's.
        takes_bytes=80,
        is_queued=True,  # wg_packet_encrypt_worker(); ESP and MACsec do that while it is sent
    ),
    MACSEC: _MACSEC,
    MACSEC_MKA: msgspec.structs.replace(
        _MACSEC, title="MACsec (MKA)", description="the same, keys agreed by MKA (IEEE 802.1X)"
    ),
    # It makes nothing of packets: its records are part of the stream (analysis/wire/nvme.py).
    TLS: Encapsulation(
        title="TLS", place=StackPlace.WITHIN, cipher="AES-128-GCM", description="TLS 1.3; NVMe/TCP only"
    ),
    TUNNEL: Encapsulation(title="tunnel", place=StackPlace.INTERFACE, pre_existing=True),
}
"""By the names of columns."""

MADE: Final = tuple(name for name, each in PROTECTIONS.items() if not each.pre_existing)
"""Those that a run can bring up."""

NESTING: Final = tuple(
    tuple(name for name, each in PROTECTIONS.items() if each.place is place) for place in StackPlace
)
"""Which can be at each place, from the outside."""


def protocol(protection: str) -> str:
    """The protocol of a protection's packets on the wire."""
    return PROTECTIONS[protection].title if protection in PROTECTIONS else "ESP"
