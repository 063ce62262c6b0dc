"""One end of a WireGuard or MACsec interface.

It runs on the host as root under the distribution's Python, in the network namespace of the end, and needs
no wireguard-tools: it configures and reads the kernel by generic netlink
(linux/wireguard.h, linux/if_macsec.h). Without arguments it carries out one request:

``open``   gives a WireGuard interface a fresh private key, which never leaves its host; prints the public one
``peer``   gives it its peer
``reach``  sends a packet to the peer through the interface, and receives one
``found``  tells an interface's port, its firewall mark and its peers, as somebody else has set them

With arguments (kind, interface, the one below it, and 4 or 6 for that link's IP) it reports on SIGUSR1 what
the interface has carried, and what the one below it has counted.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import time
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
from harness.protection.programs.watching import family_of, lines_of, report, watch

KEY_BYTES = 32
WG_GET, WG_SET = 0, 1
WG_IFNAME, WG_PRIVATE, WG_PUBLIC, WG_FLAGS, WG_PORT, WG_MARK, WG_PEERS = 2, 3, 4, 5, 6, 7, 8
WG_REPLACE_PEERS = 1
PEER_PUBLIC, PEER_FLAGS, PEER_ENDPOINT, PEER_HANDSHAKE, PEER_RX, PEER_TX, PEER_ALLOWED = 1, 3, 4, 6, 7, 8, 9
PEER_REPLACE_ALLOWED = 2
ALLOWED_FAMILY, ALLOWED_ADDRESS, ALLOWED_BITS = 1, 2, 3

MACSEC_GET = 0
MACSEC_IFINDEX, MACSEC_SECY, MACSEC_TXSAS, MACSEC_RXSCS, MACSEC_TX = 1, 4, 5, 6, 7
SA_NUMBER, SA_NEXT_PACKET = 1, 3
SECY_CIPHER, SECY_PROTECT, SECY_VALIDATE, SECY_ENCRYPT = 4, 6, 9, 10
STRICT = 2
RXSC_STATS = 4
TX_PACKETS, TX_BYTES, RX_BYTES, RX_PACKETS = 2, 4, 2, 5
"""Out…Encrypted, InOctetsDecrypted, InPktsOK: signed-only and invalid frames do not count."""

REACH_S = 8.0
"""How long to wait for the peer's answer; a lost handshake is sent again after 5 s."""


def number(value: bytes) -> int:
    """An unsigned integer in the machine's byte order."""
    return int.from_bytes(value, sys.byteorder)


def wireguard(interface: str) -> list[Attributes]:
    return NetlinkFamily("wireguard").ask(
        WG_GET, attribute(WG_IFNAME, interface.encode() + b"\0"), NLM_F_DUMP
    )


def open_wireguard(request: dict[str, Any]) -> dict[str, Any]:
    """Make the private key of an interface; its public key."""
    interface = request["interface"]
    body = attribute(WG_IFNAME, interface.encode() + b"\0")
    body += attribute(WG_PORT, struct.pack("=H", request["port"]))
    body += attribute(WG_PRIVATE, os.urandom(KEY_BYTES))  # the kernel clamps it (RFC 7748, section 5)
    NetlinkFamily("wireguard").ask(WG_SET, body, NLM_F_ACK)
    return {"public_key": wireguard(interface)[0][WG_PUBLIC].hex()}


def add_peer(request: dict[str, Any]) -> None:
    """Make an interface carry only packets to ``allowed``, and only to one peer.

    Without an ``address`` the peer is where its handshake comes from.
    """
    endpoint = b""
    if request["address"]:
        family = family_of(request["address"])
        where = struct.pack("=H", family) + struct.pack("!H", request["port"])
        address = socket.inet_pton(family, request["address"])
        # struct sockaddr_in ends with padding; sockaddr_in6 has a flow before the address and a scope after.
        rest = address + bytes(8) if family == socket.AF_INET else bytes(4) + address + bytes(4)
        endpoint = attribute(PEER_ENDPOINT, where + rest)
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
        endpoint,
        nested(PEER_ALLOWED, allowed),
    )
    body = attribute(WG_IFNAME, request["interface"].encode() + b"\0")
    body += attribute(WG_FLAGS, struct.pack("=I", WG_REPLACE_PEERS)) + nested(WG_PEERS, peer)
    NetlinkFamily("wireguard").ask(WG_SET, body, NLM_F_ACK)


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


def reach(request: dict[str, Any]) -> None:
    """Try to connect to a port that nobody listens on: its refusal also comes through the interface."""
    until = time.monotonic() + REACH_S
    while True:
        with socket.socket(family_of(request["peer"])) as made:
            made.settimeout(REACH_S)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, request["interface"].encode())
            try:
                made.bind((request["own"], 0))
                made.connect((request["peer"], request["port"]))
            except ConnectionRefusedError:
                pass
            except OSError as error:
                if time.monotonic() < until:
                    time.sleep(0.05)
                    continue
                raise TimeoutError(f"nothing came back through it from {request['peer']}: {error}") from None
        return


class WireGuardCounters:
    """What a WireGuard interface has carried: UDP datagrams (its handshakes too), and their payload."""

    def __init__(self, interface: str) -> None:
        self.family = NetlinkFamily("wireguard")
        self.interface = interface
        self.name = attribute(WG_IFNAME, interface.encode() + b"\0")

    def look(self) -> dict[str, Any]:
        found = {"tx_bytes": 0, "rx_bytes": 0}
        handshake_unix_s = 0
        for reported in self.family.ask(WG_GET, self.name, NLM_F_DUMP):
            for _, text in attributes(reported.get(WG_PEERS, b"")):
                peer = dict(attributes(text))
                found["tx_bytes"] += number(peer[PEER_TX])
                found["rx_bytes"] += number(peer[PEER_RX])
                handshake_unix_s = number(peer[PEER_HANDSHAKE][:8])
        # The kernel counts datagrams only for the whole interface.
        fields = lines_of("/proc/net/dev", self.interface + ":").partition(":")[2].split()
        found |= {"rx_packets": int(fields[1]), "tx_packets": int(fields[9])}
        return {**found, "numbers": {}, "agreed": {"handshake_unix_s": handshake_unix_s}}


class MacsecCounters:
    """What a MACsec interface has carried: frames that were encrypted, and their encrypted parts."""

    def __init__(self, interface: str) -> None:
        self.family = NetlinkFamily("macsec")
        self.interface, self.index = interface, socket.if_nametoindex(interface)

    def look(self) -> dict[str, Any]:
        all_of_them = self.family.ask(MACSEC_GET, b"", NLM_F_DUMP)
        mine = next((each for each in all_of_them if number(each[MACSEC_IFINDEX]) == self.index), None)
        if mine is None:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), self.interface)
        secy, sent = dict(attributes(mine[MACSEC_SECY])), dict(attributes(mine[MACSEC_TX]))
        agreed = {
            "cipher": number(secy[SECY_CIPHER]),
            "is_encrypting": bool(number(secy[SECY_PROTECT]) and number(secy[SECY_ENCRYPT])),
            "is_strict": number(secy[SECY_VALIDATE]) == STRICT,
        }
        found = {
            "tx_packets": number(sent[TX_PACKETS]),
            "tx_bytes": number(sent[TX_BYTES]),
            "rx_packets": 0,
            "rx_bytes": 0,
        }
        numbers = {}
        for _, text in attributes(mine.get(MACSEC_TXSAS, b"")):
            made = dict(attributes(text))
            numbers[number(made[SA_NUMBER])] = number(made[SA_NEXT_PACKET]) - 1
        for _, text in attributes(mine.get(MACSEC_RXSCS, b"")):
            got = dict(attributes(dict(attributes(text))[RXSC_STATS]))
            found["rx_packets"] += number(got[RX_PACKETS])
            found["rx_bytes"] += number(got[RX_BYTES])
        return {**found, "numbers": numbers, "agreed": agreed}


KINDS: dict[str, type[WireGuardCounters | MacsecCounters]] = {
    "wireguard": WireGuardCounters,
    "macsec": MacsecCounters,
}


def watch_interface(kind: str, interface: str, below: str, ip: str) -> None:
    counters = KINDS[kind](interface)
    watch(lambda: report(below, lambda: {"carried": counters.look()}, is_ipv6=ip == "6"))


if __name__ == "__main__":
    if sys.argv[1:]:
        watch_interface(*sys.argv[1:])
    else:
        answer({"open": open_wireguard, "peer": add_peer, "reach": reach, "found": found})
