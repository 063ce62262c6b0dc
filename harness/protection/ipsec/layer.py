"""ESP as a layer of a path: its packets on the wire, and what its security associations have carried."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from harness.analysis import theory
from harness.model import End, IpsecMode
from harness.network.links import LinkPath
from harness.protection.ipsec import IKE_PORT
from harness.protection.ipsec.witness import Report, Witnesses, received, sent
from harness.protection.layer import ETHERTYPE_IPV4, HEADER_BYTES, Carried, Due, Look, Tally, due_by_number

IPPROTO_UDP, IPPROTO_ESP = 17, 50
TITLE = "ESP"


@dataclass(frozen=True, kw_only=True)
class EspFrames:
    """IP protocol 50, numbered by SPI (RFC 4303, section 2), and IKE, between two ``addresses``."""

    addresses: tuple[bytes, bytes]

    @classmethod
    def between(cls, path: LinkPath) -> EspFrames:
        near, far = path.initiator_address, path.target_address
        return cls(addresses=(IPv4Address(near).packed, IPv4Address(far).packed))

    @property
    def own(self) -> str:
        return "ip proto 50"

    def sample(self, one_in: int) -> str:
        # The sequence number is the second word of ESP, after an IP header of 20 bytes.
        return f"(ip proto 50 and ip[6:2] & 0x1fff = 0 and ip[24:4] & {one_in - 1:#x} = 0)"

    def received(self, _end: End) -> str:
        return ""

    def number(self, ethertype: int, packet: bytes) -> tuple[int, int] | None:
        """SPI and sequence number; 0 and 0 for a fragment after the first."""
        if ethertype != ETHERTYPE_IPV4 or packet[9] != IPPROTO_ESP:
            return None
        if struct.unpack_from("!H", packet, 6)[0] & 0x1FFF:
            return 0, 0
        spi, number = struct.unpack_from("!II", packet, 4 * (packet[0] & 0xF))
        return spi, number

    def is_control(self, ethertype: int, packet: bytes) -> bool:
        if ethertype != ETHERTYPE_IPV4 or packet[9] != IPPROTO_UDP:
            return False
        ports = struct.unpack_from("!HH", packet, 4 * (packet[0] & 0xF))
        return {packet[12:16], packet[16:20]} == set(self.addresses) and IKE_PORT in ports


@dataclass(frozen=True, kw_only=True)
class EspLayer:
    """A tunnel between the ends of ``below``, its proposal, and the witnesses that report what it carried."""

    below: LinkPath
    algorithms: tuple[str, ...]
    mode: IpsecMode
    witnesses: Witnesses
    agreed: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return TITLE

    @property
    def within(self) -> LinkPath:
        """The same path: IPsec adds no addresses of its own."""
        return self.below

    @property
    def header_bytes(self) -> int:
        return HEADER_BYTES

    def look(self) -> tuple[Look, Look]:
        near, far = self.witnesses.look()
        return (
            self._look("initiator", near, self.below.initiator_address),
            self._look("target", far, self.below.target_address),
        )

    def _look(self, end: End, report: Report, own: str) -> Look:
        states = report.states
        out, into = sent(states, own), received(states, own)
        tally = Tally(
            out=out,
            into=into,
            numbers={state.spi: state.sequence for state in states if state.source == own},
            faults=tuple(self._faults(end, report)),
        )
        return Look(before=report.before, tally=tally, after=report.after, snmp=report.snmp)

    def _faults(self, end: End, report: Report) -> Iterator[str]:
        wrong = {
            f"{' + '.join(state.algorithms)} in {state.mode} mode"
            for state in report.states
            if (sorted(state.algorithms), state.mode) != (sorted(self.algorithms), self.mode)
        }
        if wrong:
            wanted = f"{' + '.join(self.algorithms)} in {self.mode} mode"
            yield f"expected {wanted}, found {', '.join(sorted(wrong))} on the {end}"
        if missing := sum(state.missing for state in report.states):
            yield (
                f"{missing} security associations of the {end} are gone, and the kernel did not report what "
                "they had carried"
            )

    def due(self, before: Tally, after: Tally, one_in: int) -> Due:
        return due_by_number(before, after, one_in)

    @property
    def framing(self) -> theory.Esp | None:
        """None if it is unknown."""
        return theory.known_esp(self.algorithms, self.mode)

    def frame_bytes(self, carried: Carried, fragments: int, header_bytes: int) -> int | None:
        """Padding counts with the most that it can be (RFC 4303, section 2.4)."""
        framing = self.framing
        if framing is None:
            return None
        kept = 0 if self.mode is IpsecMode.TUNNEL else theory.IPV4_HEADER_BYTES
        around = header_bytes + kept + framing.outer_bytes
        around += theory.ESP_TRAILER_BYTES + framing.block_bytes - 1
        around_fragment = header_bytes + theory.IPV4_HEADER_BYTES
        return carried.bytes + carried.packets * around + fragments * around_fragment
