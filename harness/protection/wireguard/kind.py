"""WireGuard: an interface of the kernel's at both ends, over UDP
(https://www.wireguard.com/papers/wireguard.pdf).

Keys are made for the run, by the kernel of each end; private ones never leave it, unless the target boots
anew (``KeptKey``). Only the initiator is told
where its peer is, as behind a firewall, and only one UDP port is open on the target. No package is needed:
``programs/interface.py`` speaks with the kernel itself, which since Linux 5.6 has the module ``wireguard``.

A killed run leaves the interface, which takes its keys, addresses and routes along, and the fail-closed
policies.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from harness.hosts import Host
from harness.hosts.journal import Breaks, Resource
from harness.hosts.undo import UndoStep
from harness.model import ENDS, IPV4, End, Family, addresses
from harness.model.errors import CommandFailed
from harness.model.protections import PROTECTIONS, UDP_HEADER_BYTES
from harness.network import links, sysctls
from harness.network.links import LinkPath
from harness.protection import layer, overlay
from harness.protection.kind import Found, Leg, Protection, Underlay
from harness.protection.layer import Due, Said, Tally, of_ip, within_ip
from harness.protection.overlay import Overlay
from harness.protection.xfrm_listener import ListenerReport

WIREGUARD = "wireguard"

FIRST_PORT = 0x4800
"""UDP. The path's index is added, and 256 for each overlay below. The machine's own may have 51820."""

IPPROTO_UDP = 17

DATA = 4
"""The type of messages that carry packets (the paper's section 5.4.6)."""

REDIRECTS = "/proc/sys/net/ipv4/conf/all/send_redirects"
"""The kernel sets it to 0 with each interface that comes up, and never back (``wg_open()`` in
drivers/net/wireguard/device.c)."""

CIPHER = "chacha20poly1305"
"""There is one (RFC 8439), in the kernel's lib/crypto, by no name in /proc/crypto."""


ask = functools.partial(overlay.ask, room=__package__, program=overlay.PROGRAM)
"""Has ``programs/interface.py`` do something on a host."""


class KeptKey(msgspec.Struct):
    """The private key of an interface, in this process's memory while its host boots anew.

    A server has its key on a disk, and comes back with it; no secret of a run is ever on one. A new key would
    have to be told to the initiator, whose session would end then: the stall would not be a server's.
    """

    interface: str
    private_key: str = ""

    def __repr__(self) -> str:
        return f"KeptKey({self.interface!r})"

    def acquire(self, host: Host) -> None:
        self.private_key = ask(host, "tell", interface=self.interface)["private_key"]

    def undo(self) -> tuple[UndoStep, ...]:
        """Nothing to do: it was read."""
        return ()


def port(path: LinkPath, level: int) -> int:
    return FIRST_PORT + 256 * level + path.index


# On the wire


@dataclass(frozen=True, kw_only=True)
class WireGuardFrames(layer.Frames):
    """UDP from ``port`` to ``peer_port``, or to the same, numbered by the receiver's index and a counter
    (section 5.4.6)."""

    port: int
    peer_port: int = 0
    family: Family = IPV4

    @property
    def _ports(self) -> tuple[int, int]:
        return self.port, self.peer_port or self.port

    @property
    def own(self) -> str:
        return "udp and src port {} and dst port {}".format(*self._ports)

    def sample(self, one_in: int) -> str:
        # By the lowest byte of the counter, which is behind the UDP header, the type and the index.
        kind, counter = (within_ip(self.family, "udp", at) for at in (8, 16))
        return f"({self.own} and {kind} = {DATA} and {counter} & {one_in - 1:#x} = 0)"

    def number(self, ethertype: int, packet: bytes) -> tuple[int, int] | None:
        datagram = self._datagram(ethertype, packet)
        if datagram is None or datagram[0] != DATA:
            return None
        index, counter = struct.unpack_from("<4xIQ", datagram)
        return index, counter

    def is_control(self, ethertype: int, packet: bytes) -> bool:
        """A handshake; filters leave it out, for it is counted with what is carried."""
        return self._datagram(ethertype, packet) is not None

    def _datagram(self, ethertype: int, packet: bytes) -> bytes | None:
        """The payload of one of its packets, which are never split: the interface's MTU leaves them room."""
        found = of_ip(ethertype, packet, (self.family,))
        if found is None or found[0] != IPPROTO_UDP or found[2]:
            return None
        if struct.unpack_from("!HH", found[1]) != self._ports:
            return None
        return found[1][UDP_HEADER_BYTES:]


# As a kind of protection

UNNUMBERED = 4
"""This many packets of a cell may be handshakes, one each way as it begins and ends."""


@dataclass(frozen=True, kw_only=True)
class WireGuardDriver(Overlay):
    """WireGuard in a run."""

    NAME = WIREGUARD
    ROOM = __package__
    IS_BOUND = False
    SEALED_BYTES = PROTECTIONS[WIREGUARD].around_bytes - UDP_HEADER_BYTES
    # It counts messages with their padding (wg_packet_consume_data_done(), receive.c).
    HEADER_BYTES = SEALED_BYTES + PROTECTIONS[WIREGUARD].pads_to_bytes - 1

    def frames(self, underlay: Underlay) -> WireGuardFrames:
        return WireGuardFrames(port=port(underlay.below, underlay.level), family=underlay.below.ip)

    @contextlib.contextmanager
    def keyed(self, underlay: Underlay, within: LinkPath) -> Iterator[Breaks]:
        number, keys = port(underlay.below, underlay.level), {}
        with contextlib.ExitStack() as stack:
            for end, host, iface, *_ in links.ends(within):
                stack.enter_context(sysctls.set_to(self.run.journal, host, (REDIRECTS,), "0"))
                keys[end] = ask(host, "open", interface=iface, port=number)["public_key"]

            def introduce(end: End) -> None:
                """Tell an end who its peer is."""
                _, host, iface, _, allowed = links.ends(within)[ENDS.index(end)]
                # The target learns where its peer is from the handshake.
                where = underlay.below.target_address if end == "initiator" else ""
                ask(
                    host,
                    "peer",
                    interface=iface,
                    public_key=keys[overlay.peer_of(end)],
                    address=where,
                    port=number,
                    allowed=allowed,
                )

            for end in ENDS:
                introduce(end)
            target, iface = within.target, within.target_iface
            kept = KeptKey(iface)

            def again() -> None:
                ask(target, "open", interface=iface, port=number, private_key=kept.private_key)
                introduce("target")
                overlay.open_end(within, "target")

            stack.enter_context(self.run.journal.each_boot(target, again, kept))
            overlay.open_up(within)

            def breaks() -> Mapping[str, tuple[Host, Resource]]:
                from harness.protection.wireguard import faults  # here, because most runs break nothing

                return faults.of_peer(underlay.below, within, number)

            yield breaks

    def agreed(self, reports: Sequence[ListenerReport], _underlay: Underlay) -> dict[str, str]:
        if not all(report.carried.agreed["handshake_unix_ns"] for report in reports):
            raise CommandFailed("expected a WireGuard handshake at both ends, found none")
        return {"algorithm": CIPHER}

    @staticmethod
    def said(reports: Sequence[ListenerReport]) -> Iterator[Said]:
        """Only of the last handshake, which the kernel knows; one that has booted is not asked."""
        for end, report in zip(ENDS, reports, strict=True):
            if at_ns := int(report.carried.agreed.get("handshake_unix_ns", 0)):
                yield Said(end, PROTECTIONS[WIREGUARD].title, at_ns, "handshake")

    @staticmethod
    def due(before: Tally, after: Tally, one_in: int) -> Due:
        """The kernel does not export its packet counters, so the samples due are derived from the number of
        packets."""
        packets = before.out.grown(after.out).packets
        return Due(count=max(0, (packets - UNNUMBERED) // one_in - 1))


def recognise(leg: Leg) -> Found | str | None:
    """The peer of an interface to which packets to an address go: that of the longest prefix."""
    iface = leg.device.name
    if leg.device.linkinfo.info_kind != WIREGUARD or not leg.address:
        return None
    reported, there = ask(leg.host, "found", interface=iface), ipaddress.ip_address(leg.address)
    fits = [
        (network.prefixlen, peer)
        for peer in reported["peers"]
        for network in map(ipaddress.ip_network, peer["networks"])
        if there in network
    ]
    if not fits:
        return f"{iface} has no peer for {leg.address}"
    _, peer = max(fits, key=lambda each: each[0])
    if not peer["address"]:
        return f"{iface} has no endpoint for its peer {leg.address}"
    family = addresses.family_of(peer["address"])
    return Found(
        name=WIREGUARD,
        frames=WireGuardFrames(port=reported["port"], peer_port=peer["port"], family=family),
        watch=WireGuardDriver.watched,
        peer=peer["address"],
        mark=reported["mark"],
        agreed={"algorithm": CIPHER, "interface": iface},
    )


OFFERED = (
    Protection(
        name=WIREGUARD,
        kinds=lambda run: {WIREGUARD: WireGuardDriver(run=run)},
        modules=(WIREGUARD,),
        trials=lambda host, _role, _folder: overlay.trial(
            host, WIREGUARD, (WIREGUARD,), "ip link add name above type wireguard"
        ),
        recognise=recognise,
    ),
)
