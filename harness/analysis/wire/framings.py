"""What protections make of packets: their headers, padding and check values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis import theory
from harness.model import IPV4, Column, Family, IpsecMode, LinkProfile, Proposal
from harness.model.protections import PROTECTIONS, Encapsulation


@dataclass(frozen=True, kw_only=True)
class Encapsulated:
    """Packets in a protection that is no ESP proposal, on a link where ``mtu_bytes`` pass."""

    by: Encapsulation
    mtu_bytes: int
    family: Family

    @property
    def is_queued(self) -> bool:
        return self.by.is_queued

    def _padded_bytes(self, cleartext_bytes: int) -> int:
        room_bytes = max(0, self.inner_mtu_bytes(self.mtu_bytes) - cleartext_bytes)
        return cleartext_bytes + min(-cleartext_bytes % self.by.pads_to_bytes, room_bytes)

    def packet_bytes(self, cleartext_bytes: int) -> int:
        ip_bytes = theory.IP_HEADER_BYTES[self.family] if self.by.has_ip else 0
        return self._padded_bytes(cleartext_bytes) + self.by.around_bytes + ip_bytes

    def sealed_bytes(self, cleartext_bytes: int) -> int:
        return self._padded_bytes(cleartext_bytes) + self.by.sealed_bytes

    def inner_mtu_bytes(self, mtu_bytes: int) -> int:
        return self.by.inner_mtu_bytes(mtu_bytes)


def of_column(column: Column, proposals: Mapping[str, Proposal], link: LinkProfile) -> theory.Framing | None:
    """What a column's protection makes of packets on its link; None if that is not known, or for none."""
    return of(column.protection, proposals, column.mode or IpsecMode.TRANSPORT, link.mtu_bytes, link.ip)


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
        if (known := PROTECTIONS.get(name)) is not None:
            made = Encapsulated(by=known, mtu_bytes=mtu_bytes, family=family) if known.is_known else None
        else:
            proposal = proposals.get(name)
            made = theory.esp(proposal.kernel_algorithms, mode, family) if proposal is not None else None
        if made is None:
            return None
        layers.append(made)
        mtu_bytes = made.inner_mtu_bytes(mtu_bytes)
    if not layers:
        return None
    return layers[0] if len(layers) == 1 else theory.Stacked(layers=tuple(layers))
