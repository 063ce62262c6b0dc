"""What goes over the wire for one I/O, in closed form: by transport, and what protections make of packets.

Pure: nothing here runs, reads or asks anything. Whoever reads results needs it, and whoever measures.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.analysis import theory
from harness.model import IPV4, Column, Family, IpsecMode, LinkProfile, Proposal, kinds
from harness.model.kinds import OfKinds
from harness.model.protections import PROTECTIONS, Encapsulation


class WireProtocol(abc.ABC):
    """What the two ends of a transport send, by what they agreed on, in the transport's own words.

    ``remedy`` says by which setting fewer round trips or headers would do, for one I/O; "" if none helps.
    ``window_bytes`` is what a connection has in flight at most by Linux's defaults, because the initiator
    sets the size of its buffers; None: they grow as they have to. A parameter that is unknown counts as if it
    let everything through.
    """

    name: ClassVar[str]
    remedy: ClassVar[str] = ""
    window_bytes: ClassVar[int | None] = None

    @abc.abstractmethod
    def dialogue(
        self, agreed: Mapping[str, str], direction: theory.IoDirection, window_bytes: int
    ) -> theory.Dialogue | None:
        """What the two ends send for one I/O; None if too little of what they agreed on is known."""

    @abc.abstractmethod
    def most_commands(self, agreed: Mapping[str, str]) -> int:
        """How many commands may be in flight; 0: unknown."""

    @abc.abstractmethod
    def header_bytes(self, agreed: Mapping[str, str], data_bytes: int) -> int:
        """The transport's headers for this much data, in its direction."""


_BY_NAME: OfKinds[WireProtocol] = OfKinds(__name__, kinds.folders(kinds.TRANSPORTS))


class UnknownWire(WireProtocol):
    """Of results whose transport is not here: nothing is known of what goes over the wire."""

    name = ""

    def dialogue(self, agreed: Mapping[str, str], direction: theory.IoDirection, window_bytes: int) -> None:
        del agreed, direction, window_bytes

    def most_commands(self, agreed: Mapping[str, str]) -> int:
        del agreed
        return 0

    def header_bytes(self, agreed: Mapping[str, str], data_bytes: int) -> int:
        del agreed, data_bytes
        return 0


def transport(name: str) -> WireProtocol:
    return _BY_NAME.get(name) or UnknownWire()


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
        return self._padded_bytes(cleartext_bytes) + self.by.sealed_bytes if self.by.has_cipher else 0

    def inner_mtu_bytes(self, mtu_bytes: int) -> int:
        return self.by.inner_mtu_bytes(mtu_bytes)


def framing_of_column(
    column: Column, proposals: Mapping[str, Proposal], link: LinkProfile
) -> theory.Framing | None:
    """What a column's protection makes of packets on its link; None if that is not known, or for none."""
    return framing_of(
        column.protection, proposals, column.mode or IpsecMode.TRANSPORT, link.mtu_bytes, link.ip
    )


def framing_of(
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
