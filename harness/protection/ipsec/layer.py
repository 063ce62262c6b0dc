"""ESP as a layer of a path: its packets on the wire, and what its security associations have carried."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import msgspec

from harness.analysis import theory
from harness.model import IPV4, IPV6, End, Family, IpsecMode
from harness.model.protections import CHARON, UDP_HEADER_BYTES
from harness.network import links
from harness.network.links import LinkPath
from harness.protection.ipsec import IKE_PORT
from harness.protection.layer import (
    FRAGMENT_BYTES,
    IPPROTO_FRAGMENT,
    IPV6_BYTES,
    Carried,
    EndCounts,
    Frames,
    Layer,
    Said,
    Tally,
    of_ip,
    within_ip,
)
from harness.protection.xfrm_listener import ListenerReport, XfrmListeners, received, sent

IPPROTO_UDP, IPPROTO_ESP = 17, 50
TITLE = "ESP"
_LOGGED = re.compile(r"^(\d+)\.(\d{3}) \d+\[\w+\] (.*)$", re.MULTILINE)
"""Of charon's log: the time, the thread and what it is about, the message (``charon.running``)."""

TCP_HEADER_BYTES = 60
"""The most that its four bits for the length can say."""


@dataclass(frozen=True, kw_only=True)
class EspFrames(Frames):
    """IP protocol 50, numbered by SPI (RFC 4303, section 2), and IKE, between two ``addresses``.

    ``udp_ports`` are the sender's and the receiver's where it is in UDP (RFC 3948).
    """

    addresses: tuple[bytes, bytes]
    family: Family = IPV4
    udp_ports: tuple[int, ...] = ()

    @classmethod
    def between(cls, path: LinkPath) -> EspFrames:
        near, far = path.initiator_address, path.target_address
        return cls(addresses=(ip_address(near).packed, ip_address(far).packed), family=path.ip)

    @property
    def own(self) -> str:
        if self.udp_ports:
            return "udp and src port {} and dst port {}".format(*self.udp_ports)
        # This finds it in IPv6's fragments as well.
        return "ip6 proto 50" if self.family == IPV6 else "ip proto 50"

    def sample(self, one_in: int) -> str:
        if self.udp_ports:
            # IKE's messages have zeros where ESP has its SPI.
            spi, number = (within_ip(self.family, "udp", at, 4) for at in (8, 12))
            return f"({self.own} and {spi} != 0 and {number} & {one_in - 1:#x} = 0)"
        if self.family == IPV6:
            number = within_ip(self.family, "esp", 4, 4)
            whole = f"ip6[6] = {IPPROTO_ESP} and {number} & {one_in - 1:#x} = 0"
            first = f"ip6[6] = {IPPROTO_FRAGMENT} and ip6[40] = {IPPROTO_ESP} and ip6[42:2] & 0xfff8 = 0"
            return f"(({whole}) or ({first} and ip6[52:4] & {one_in - 1:#x} = 0))"
        # The sequence number is the second word of ESP, after an IP header of 20 bytes.
        return f"(ip proto 50 and ip[6:2] & 0x1fff = 0 and ip[24:4] & {one_in - 1:#x} = 0)"

    def number(self, ethertype: int, packet: bytes) -> tuple[int, int] | None:
        """SPI and sequence number; 0 and 0 for a fragment after the first."""
        found = of_ip(ethertype, packet, (self.family,))
        if found is None or found[0] != (IPPROTO_UDP if self.udp_ports else IPPROTO_ESP):
            return None
        _, rest, offset = found
        if self.udp_ports:
            if offset or struct.unpack_from("!HH", rest) != self.udp_ports or not any(rest[8:12]):
                return None
            rest = rest[UDP_HEADER_BYTES:]
        if offset:
            return 0, 0
        spi, number = struct.unpack_from("!II", rest)
        return spi, number

    def is_control(self, ethertype: int, packet: bytes) -> bool:
        found = of_ip(ethertype, packet, (self.family,))
        if found is None or found[0] != IPPROTO_UDP or found[2]:
            return False
        size = len(self.addresses[0])
        end = 12 + 2 * size if self.family == IPV4 else IPV6_BYTES
        ends = {packet[end - 2 * size : end - size], packet[end - size : end]}
        return ends == set(self.addresses) and IKE_PORT in struct.unpack_from("!HH", found[1])


@dataclass(frozen=True, kw_only=True)
class EspLayer(Layer):
    """A tunnel between the ends of ``below``, its proposal, and the xfrm listeners that report what it
    carried."""

    algorithms: tuple[str, ...]
    mode: IpsecMode
    listeners: XfrmListeners
    logs: Mapping[End, Path] = field(default_factory=dict)
    """What charon says at each end."""

    @property
    def title(self) -> str:
        return TITLE

    def said(self) -> Iterator[Said]:
        for end, log in self.logs.items():
            text = log.read_text(encoding="utf-8", errors="replace")
            for seconds, ms, line in _LOGGED.findall(text):
                yield Said(end, CHARON, int(seconds) * 10**9 + int(ms) * 10**6, line)

    def look(self) -> tuple[EndCounts, ...]:
        return tuple(
            self._look(end, report, own)
            for (end, _, _, own, _), report in zip(links.ends(self.below), self.listeners.look(), strict=True)
        )

    def _look(self, end: End, report: ListenerReport, own: str) -> EndCounts:
        # Somebody else's associations may have the same reqid, such as none, and other ends.
        ends = {self.below.initiator_address, self.below.target_address}
        states = [state for state in report.states if {state.source, state.destination} == ends]
        report = msgspec.structs.replace(report, states=tuple(states))
        out, into = sent(states, own), received(states, own)
        tally = Tally(
            out=out,
            into=into,
            numbers={state.spi: state.sequence for state in states if state.source == own},
            faults=tuple(self._faults(end, report)),
        )
        return EndCounts(before=report.before, tally=tally, after=report.after, snmp=report.snmp)

    def _faults(self, end: End, report: ListenerReport) -> Iterator[str]:
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

    @property
    def framing(self) -> theory.Esp | None:
        """None if it is unknown."""
        return theory.esp(self.algorithms, self.mode, self.below.ip)

    def frame_bytes(self, carried: Carried, fragments: int, header_bytes: int) -> int | None:
        """Padding counts with the most that it can be (RFC 4303, section 2.4), and so does a header of TCP
        (RFC 9293, section 3.1)."""
        framing = self.framing
        if framing is None:
            return None
        ip_bytes = theory.IP_HEADER_BYTES[self.below.ip]
        kept = 0 if self.mode is IpsecMode.TUNNEL else ip_bytes
        around = header_bytes + kept + framing.outer_bytes
        around += theory.ESP_TRAILER_BYTES + framing.block_bytes - 1
        around_fragment = header_bytes + ip_bytes
        if self.below.ip == IPV6:
            around_fragment += FRAGMENT_BYTES
        repeated = TCP_HEADER_BYTES + (ip_bytes if self.mode is IpsecMode.TUNNEL else 0)
        return (
            carried.bytes
            + carried.packets * around
            + carried.repeated_headers * repeated
            + fragments * around_fragment
        )
