"""One end of a WireGuard interface.

It runs on the host as root under the distribution's Python, in the network namespace of the end, and needs
no wireguard-tools: it configures and reads the kernel by generic netlink (linux/wireguard.h). Without
arguments it carries out one request:

``open``   gives an interface a fresh private key, or one that it had; prints the public one
``tell``   prints the private key, for ``open`` after a boot
``peer``   gives it its peer
``change`` changes its peer for a while: where it is, or the preshared key
``found``  tells an interface's port, its firewall mark and its peers, as somebody else has set them

With arguments (interface, the one below it, and 4 or 6 for that link's IP) it reports on SIGUSR1 what the
interface has carried, and what the one below it has counted.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Any

from harness.hosts.programs.answering import answer
from harness.hosts.programs.netlink import (
    NLM_F_ACK,
    NLM_F_DUMP,
    Attributes,
    NetlinkFamily,
    attribute,
    attributes,
    nested,
)
from harness.protection.programs.overlay import number, watch_interface
from harness.protection.programs.watching import family_of, lines_of

KEY_BYTES = 32
WG_GET, WG_SET = 0, 1
WG_IFNAME, WG_PRIVATE, WG_PUBLIC, WG_FLAGS, WG_PORT, WG_MARK, WG_PEERS = 2, 3, 4, 5, 6, 7, 8
WG_REPLACE_PEERS = 1
PEER_PUBLIC, PEER_PRESHARED, PEER_FLAGS, PEER_ENDPOINT, PEER_HANDSHAKE = 1, 2, 3, 4, 6
PEER_RX, PEER_TX, PEER_ALLOWED = 7, 8, 9
PEER_REPLACE_ALLOWED, PEER_UPDATE_ONLY = 2, 4
ALLOWED_FAMILY, ALLOWED_ADDRESS, ALLOWED_BITS = 1, 2, 3


def wireguard(interface: str) -> list[Attributes]:
    return NetlinkFamily("wireguard").ask(
        WG_GET, attribute(WG_IFNAME, interface.encode() + b"\0"), NLM_F_DUMP
    )


def open_wireguard(request: dict[str, Any]) -> dict[str, Any]:
    """Make the private key of an interface, if it is not given; its public key."""
    interface = request["interface"]
    key = bytes.fromhex(request.get("private_key", "")) or os.urandom(KEY_BYTES)
    body = attribute(WG_IFNAME, interface.encode() + b"\0")
    body += attribute(WG_PORT, struct.pack("=H", request["port"]))
    body += attribute(WG_PRIVATE, key)  # the kernel clamps it (RFC 7748, section 5)
    NetlinkFamily("wireguard").ask(WG_SET, body, NLM_F_ACK)
    return {"public_key": wireguard(interface)[0][WG_PUBLIC].hex()}


def tell_key(request: dict[str, Any]) -> dict[str, Any]:
    return {"private_key": wireguard(request["interface"])[0][WG_PRIVATE].hex()}


def add_peer(request: dict[str, Any]) -> None:
    """Make an interface carry only packets to ``allowed``, and only to one peer.

    Without an ``address`` the peer is where its handshake comes from.
    """
    family = family_of(request["allowed"])
    allowed_address = socket.inet_pton(family, request["allowed"])
    allowed = nested(
        0,
        attribute(ALLOWED_FAMILY, struct.pack("=H", family)),
        attribute(ALLOWED_ADDRESS, allowed_address),
        attribute(ALLOWED_BITS, bytes([8 * len(allowed_address)])),
    )
    peer = nested(
        0,
        attribute(PEER_PUBLIC, bytes.fromhex(request["public_key"])),
        attribute(PEER_FLAGS, struct.pack("=I", PEER_REPLACE_ALLOWED)),
        endpoint(request),
        nested(PEER_ALLOWED, allowed),
    )
    set_peer(request["interface"], peer, attribute(WG_FLAGS, struct.pack("=I", WG_REPLACE_PEERS)))


def endpoint(request: dict[str, Any]) -> bytes:
    """Where a peer is; nothing without an ``address``."""
    if not request.get("address"):
        return b""
    family = family_of(request["address"])
    where = struct.pack("=H", family) + struct.pack("!H", request["port"])
    address = socket.inet_pton(family, request["address"])
    # struct sockaddr_in ends with padding; sockaddr_in6 has a flow before the address and a scope after.
    rest = address + bytes(8) if family == socket.AF_INET else bytes(4) + address + bytes(4)
    return attribute(PEER_ENDPOINT, where + rest)


def set_peer(interface: str, peer: bytes, *more: bytes) -> None:
    body = attribute(WG_IFNAME, interface.encode() + b"\0") + b"".join(more) + nested(WG_PEERS, peer)
    NetlinkFamily("wireguard").ask(WG_SET, body, NLM_F_ACK)


def change_peer(request: dict[str, Any]) -> None:
    """Change an interface's peer, if it is still there, and keep its session: its ``address`` and ``port``,
    or its ``preshared`` key (hexadecimal; zeros are none, linux/wireguard.h)."""
    interface = request["interface"]
    changed = endpoint(request)
    if "preshared" in request:
        changed += attribute(PEER_PRESHARED, bytes.fromhex(request["preshared"]))
    for _, text in attributes(wireguard(interface)[0].get(WG_PEERS, b"")):
        key = attribute(PEER_PUBLIC, dict(attributes(text))[PEER_PUBLIC])
        flags = attribute(PEER_FLAGS, struct.pack("=I", PEER_UPDATE_ONLY))
        set_peer(interface, nested(0, key, flags, changed))


def found(request: dict[str, Any]) -> dict[str, Any]:
    """An interface's port and mark; of each peer its networks, and where it is, "" if that is unknown."""
    answers = wireguard(request["interface"])
    peers = []
    # The kernel splits a long list over several answers, and a long peer as well.
    for _, text in (each for answered in answers for each in attributes(answered.get(WG_PEERS, b""))):
        peer = dict(attributes(text))
        allowed = [dict(attributes(each)) for _, each in attributes(peer.get(PEER_ALLOWED, b""))]
        where = peer.get(PEER_ENDPOINT, b"")
        address, port = "", 0
        if where:
            family, port = struct.unpack_from("=H", where)[0], struct.unpack_from("!H", where, 2)[0]
            at, size = (4, 4) if family == socket.AF_INET else (8, 16)
            address = socket.inet_ntop(family, where[at : at + size])
        networks = [
            f"{socket.inet_ntop(number(each[ALLOWED_FAMILY]), each[ALLOWED_ADDRESS])}/{each[ALLOWED_BITS][0]}"
            for each in allowed
        ]
        peers.append({"networks": networks, "address": address, "port": port})
    return {"port": number(answers[0][WG_PORT]), "mark": number(answers[0][WG_MARK]), "peers": peers}


class WireGuardCounters:
    """What a WireGuard interface has carried: UDP datagrams (its handshakes too), and their payload."""

    def __init__(self, interface: str) -> None:
        self.family = NetlinkFamily("wireguard")
        self.interface = interface
        self.name = attribute(WG_IFNAME, interface.encode() + b"\0")

    def look(self) -> dict[str, Any]:
        found = {"tx_bytes": 0, "rx_bytes": 0}
        handshake_unix_ns = 0
        for reported in self.family.ask(WG_GET, self.name, NLM_F_DUMP):
            for _, text in attributes(reported.get(WG_PEERS, b"")):
                peer = dict(attributes(text))
                found["tx_bytes"] += number(peer[PEER_TX])
                found["rx_bytes"] += number(peer[PEER_RX])
                seconds, ns = struct.unpack("=qq", peer[PEER_HANDSHAKE])
                handshake_unix_ns = seconds * 10**9 + ns
        # The kernel counts datagrams only for the whole interface.
        fields = lines_of("/proc/net/dev", self.interface + ":").partition(":")[2].split()
        found |= {"rx_packets": int(fields[1]), "tx_packets": int(fields[9])}
        return {**found, "numbers": {}, "agreed": {"handshake_unix_ns": handshake_unix_ns}}


if __name__ == "__main__":
    if sys.argv[1:]:
        watch_interface(WireGuardCounters(sys.argv[1]).look, *sys.argv[2:])
    else:
        does = {"open": open_wireguard, "tell": tell_key, "peer": add_peer, "change": change_peer}
        answer({**does, "found": found})
