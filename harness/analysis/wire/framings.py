"""What protections make of packets: their headers, padding and check values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis import theory
from harness.analysis.theory import IP_HEADER_BYTES
from harness.model import IPV4, MACSEC, MACSEC_MKA, TLS, WIREGUARD, Family, IpsecMode, Proposal

SECTAG_BYTES = 2 + 1 + 1 + 4 + 8
"""802.1AE, clause 9.3: EtherType, TCI and AN, short length, packet number, and the SCI, which Linux sends
unless told not to."""

ICV_BYTES = 16
"""802.1AE, clause 14.5."""

ETHERTYPE_BYTES = 2
"""The frame's own EtherType is encrypted with what it announces."""

UDP_HEADER_BYTES = 8
"""RFC 768."""

HEADER_BYTES = 16
"""The paper's section 5.4.6: type, three zeros, the receiver's index and the counter."""

TAG_BYTES = 16
"""RFC 8439, section 2.8: Poly1305's."""

BLOCK_BYTES = 16
"""The paper's section 5.4.6: what the packet is padded to."""


def around_bytes(family: Family) -> int:
    """Of each packet on a link that speaks so, beside what is encrypted."""
    return IP_HEADER_BYTES[family] + UDP_HEADER_BYTES + HEADER_BYTES + TAG_BYTES


USUAL_OVERHEAD_BYTES = 80
"""What the kernel (``wg_setup()`` in drivers/net/wireguard/device.c) and wg-quick(8) take off a link's MTU:
the outer header may be IPv6's. So do users' tunnels, and ours."""


@dataclass(frozen=True, kw_only=True)
class Macsec:
    """It adds as much to every packet, and pads none."""

    is_queued = False

    def packet_bytes(self, cleartext_bytes: int) -> int:
        return cleartext_bytes + SECTAG_BYTES + ICV_BYTES

    def sealed_bytes(self, cleartext_bytes: int) -> int:
        return cleartext_bytes + ETHERTYPE_BYTES

    def inner_mtu_bytes(self, mtu_bytes: int) -> int:
        """As Linux has it (``macsec_newlink()`` in drivers/net/macsec.c)."""
        return mtu_bytes - SECTAG_BYTES - ICV_BYTES


@dataclass(frozen=True, kw_only=True)
class WireGuard:
    """A packet is padded, but not beyond the interface's MTU (``calculate_skb_padding()``,
    drivers/net/wireguard/send.c), and wrapped.

    A worker encrypts it (``wg_packet_encrypt_worker()``); ESP and MACsec do that while it is sent.
    """

    mtu_bytes: int
    family: Family = IPV4
    is_queued = True

    def packet_bytes(self, cleartext_bytes: int) -> int:
        return self.sealed_bytes(cleartext_bytes) + around_bytes(self.family)

    def sealed_bytes(self, cleartext_bytes: int) -> int:
        return min(cleartext_bytes + -cleartext_bytes % BLOCK_BYTES, self.mtu_bytes)

    def inner_mtu_bytes(self, mtu_bytes: int) -> int:
        return mtu_bytes - USUAL_OVERHEAD_BYTES


def wireguard(mtu_bytes: int, family: Family = IPV4) -> WireGuard:
    """For a link of that MTU."""
    return WireGuard(mtu_bytes=mtu_bytes - USUAL_OVERHEAD_BYTES, family=family)


@dataclass(frozen=True, kw_only=True)
class Tls:
    """It makes nothing of packets: its records are part of the stream (``wire.nvme``)."""

    is_queued = False

    def packet_bytes(self, cleartext_bytes: int) -> int:
        return cleartext_bytes

    def sealed_bytes(self, cleartext_bytes: int) -> int:
        return cleartext_bytes

    def inner_mtu_bytes(self, mtu_bytes: int) -> int:
        return mtu_bytes


def of(
    protection: Sequence[str],
    proposals: Mapping[str, Proposal],
    mode: IpsecMode,
    mtu_bytes: int,
    family: Family = IPV4,
) -> theory.Framing | None:
    """What a stack makes of packets on a link with that MTU; None if that is not known, or for none."""
    layers: list[theory.Framing] = []
    for name in protection:
        made: theory.Framing | None
        if name in (MACSEC, MACSEC_MKA):
            made = Macsec()
        elif name == TLS:
            made = Tls()
        elif name == WIREGUARD:
            made = wireguard(mtu_bytes, family)
        else:
            proposal = proposals.get(name)
            made = (
                theory.known_esp(proposal.kernel_algorithms, mode, family) if proposal is not None else None
            )
        if made is None:
            return None
        layers.append(made)
        mtu_bytes = made.inner_mtu_bytes(mtu_bytes)
    if not layers:
        return None
    return layers[0] if len(layers) == 1 else theory.Stacked(layers=tuple(layers))
