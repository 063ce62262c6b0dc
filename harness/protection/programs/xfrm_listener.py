"""An xfrm listener at one end of a protected path: what ESP carried, what the interface counted, what is
blocked.

It runs on the host as root under the distribution's Python, in the network namespace of the end, as long as
the path is up. Without arguments it carries out one request, ``associations``: all that there are of a reqid.

SIGUSR1: report what all security associations of the path have carried. SIGUSR2: one attempt to connect like
the portal's traffic does. SIGURG: the same, and a dialogue in clear.

A security association that a rekey replaces takes its counters with it, but the kernel's last report of it
has them (xfrm_notify_sa() and build_expire() in net/xfrm/xfrm_user.c). `ip xfrm monitor` would print the
keys.

Arguments: interface, reqid, own address, own port (0: any), the peer's address and port.
"""

from __future__ import annotations

import errno
import signal
import socket
import struct
import sys
import time
from typing import Any

from harness.hosts.programs.answering import answer
from harness.hosts.programs.netlink import (
    NLM_F_DUMP,
    NLMSG_DONE,
    NLMSG_ERROR,
    RECEIVE_BYTES,
    attributes,
    message,
    messages,
)
from harness.protection.programs.watching import family_of, lines_of, report, watch

# linux/xfrm.h; SPIs and addresses are in the network's byte order.
NETLINK_XFRM = 6
NEW, DELETED, GET, EXPIRED, UPDATED = 0x10, 0x11, 0x12, 0x18, 0x1A
GROUPS = 1 << (2 - 1) | 1 << (3 - 1)
"""XFRMNLGRP_EXPIRE and XFRMNLGRP_SA."""

USERSA_INFO_BYTES, USERSA_ID_BYTES = 224, 24
XFRMA_ALG_AUTH, XFRMA_ALG_CRYPT, XFRMA_ENCAP, XFRMA_SA, XFRMA_REPLAY = 1, 2, 4, 6, 10
XFRMA_ALG_AEAD, XFRMA_ALG_AUTH_TRUNC, XFRMA_REPLAY_ESN = 18, 20, 23
MODES = ("transport", "tunnel")
PATIENCE_S = 0.1
"""How long the last report of an association that is gone may take."""

CONNECT_S = 1.0
"""How long to wait for an answer to an attempt to connect."""

DIALOGUE_S = 5.0
PDU_BYTES = 128
REQUEST, RESPONSE = 0, 1
"""Types: initialize connection request, and its response (NVMe/TCP Transport Specification 1.0, sections
3.6.2.2 and 3.6.2.3): the first PDU of each end of a connection in clear."""

State = dict[str, object]
Key = tuple[int, str]
"""SPI and destination."""


def address(info: bytes, at: int) -> str:
    """The address at an offset of a struct xfrm_usersa_info, whose family is at 212."""
    (family,) = struct.unpack_from("=H", info, 212)
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, info[at : at + 16])
    return socket.inet_ntoa(info[at : at + 4])


def key_of(info: bytes) -> Key:
    return int.from_bytes(info[72:76], "big"), address(info, 56)


def counters(info: bytes) -> tuple[int, int]:
    """Bytes and packets of a struct xfrm_usersa_info."""
    carried, packets = struct.unpack_from("=QQ", info, 160)
    return carried, packets


class Associations:
    """All ESP associations of a family with a reqid that exist or existed since the start."""

    def __init__(self, reqid: int, family: int = socket.AF_INET) -> None:
        self.reqid = reqid
        self.family = family
        self.events = opened(GROUPS)
        self.dumps = opened(0)
        self.last: dict[Key, State] = {}
        self.ended: set[Key] = set()
        self.missing: set[Key] = set()

    def of(self, info: bytes, more: dict[int, bytes]) -> State | None:
        """A struct xfrm_usersa_info and its attributes; None if it is not the path's, or has no keys yet."""
        names = [more[kind] for kind in (XFRMA_ALG_AEAD, XFRMA_ALG_CRYPT) if kind in more]
        names += [more[kind] for kind in (XFRMA_ALG_AUTH_TRUNC, XFRMA_ALG_AUTH) if kind in more][:1]
        if len(info) < USERSA_INFO_BYTES or not names:
            return None
        reqid, family, mode = struct.unpack_from("=IHB", info, 208)
        if (reqid, family, info[76]) != (self.reqid, self.family, socket.IPPROTO_ESP):
            return None
        sent = 0
        if XFRMA_REPLAY_ESN in more:
            _, low, _, high = struct.unpack_from("=4I", more[XFRMA_REPLAY_ESN])
            sent = high << 32 | low
        elif XFRMA_REPLAY in more:
            (sent,) = struct.unpack_from("=I", more[XFRMA_REPLAY])
        spi, destination = key_of(info)
        carried, packets = counters(info)
        encap = struct.unpack_from("!2xHH", more[XFRMA_ENCAP]) if XFRMA_ENCAP in more else ()
        return {
            "spi": spi,
            "source": address(info, 80),
            "destination": destination,
            "bytes": carried,
            "packets": packets,
            "sequence": sent,
            "algorithms": [name[:64].split(b"\0")[0].decode() for name in names],
            # Never the key itself, which follows.
            "cipher_bits": [*struct.unpack_from("=I", names[0], 64)],
            "udp_ports": list(encap),
            "mode": MODES[mode] if mode < len(MODES) else str(mode),
        }

    def take(self, kind: int, payload: bytes) -> None:
        """Note a message of the kernel's."""
        if kind in (NEW, UPDATED):
            key, found = key_of(payload), self.of(payload, dict(attributes(payload[USERSA_INFO_BYTES:])))
            if found is not None and key not in self.ended:
                self.last[key] = found
        elif kind == DELETED:
            more = dict(attributes(payload[USERSA_ID_BYTES:]))
            info = more.get(XFRMA_SA, b"")
            last = self.of(info, more)
            if last is not None:
                self.last[key_of(info)] = last
                self.ended.add(key_of(info))
        elif kind == EXPIRED and payload[USERSA_INFO_BYTES]:
            # struct xfrm_user_expire: the byte after the state says that this is its end. Its algorithms and
            # its sequence number are left out.
            # A state that was deleted comes back without keys for a while (net.core.xfrm_acq_expires), if its
            # policy names its SPI, and counts nothing.
            known = self.last.get(key_of(payload))
            if known is not None and key_of(payload) not in self.ended:
                carried, packets = counters(payload)
                sent = int(str(known["sequence"])) + packets - int(str(known["packets"]))
                known.update(bytes=carried, packets=packets, sequence=sent)
                self.ended.add(key_of(payload))

    def hear(self) -> None:
        """Note all that the kernel has reported by now."""
        while True:
            try:
                data = self.events.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                continue  # some messages were lost, and their associations will be missing
            for kind, payload in messages(data):
                self.take(kind, payload)

    def look(self) -> set[Key]:
        """Ask for all that exist now."""
        self.dumps.send(message(GET, NLM_F_DUMP))
        there: set[Key] = set()
        while True:
            for kind, payload in messages(self.dumps.recv(RECEIVE_BYTES)):
                if kind in (NLMSG_DONE, NLMSG_ERROR):
                    return there
                self.take(kind, payload)
                there.add(key_of(payload))

    def tell(self) -> list[State]:
        """All of them. One that is gone without a last report of the kernel's is ``missing``."""
        there = self.look()
        until = time.monotonic() + PATIENCE_S
        self.hear()
        while (gone := set(self.last) - there - self.ended) - self.missing and time.monotonic() < until:
            time.sleep(PATIENCE_S / 10)
            self.hear()
        self.missing = gone
        return [
            {**found, "ended": key in self.ended, "missing": key in gone} for key, found in self.last.items()
        ]


def opened(groups: int) -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_XFRM)
    made.bind((0, groups))
    return made


def blocked() -> int | None:
    """How many packets policies have stopped; None if the kernel does not count them."""
    try:
        return int(lines_of("/proc/net/xfrm_stat", "XfrmOutPolBlock").split()[1])
    except (OSError, IndexError):
        return None


def try_connect(own: tuple[str, int], peer: tuple[str, int]) -> dict[str, Any]:
    """Try to connect, once: the name of the error if it fails, and how many packets were blocked."""
    before = blocked()
    said = ""
    with socket.socket(family_of(peer[0])) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.settimeout(CONNECT_S)
        try:
            made.bind(own)
            made.connect(peer)
        except OSError as error:
            said = errno.errorcode.get(error.errno or errno.ETIMEDOUT, str(error))
    after = blocked()
    return {"error": said, "blocked": None if before is None or after is None else after - before}


def converse(own: tuple[str, int], peer: tuple[str, int]) -> dict[str, Any]:
    """Talk NVMe/TCP in clear with the xfrm listener at the other end: who has a port of its own listens."""
    try:
        (listen if own[1] else talk)(own, peer)
    except OSError as error:
        return {"error": f"{type(error).__name__}: {error}", "blocked": None}
    return {"error": "", "blocked": None}


def pdu(kind: int) -> bytes:
    return struct.pack("<BBBBI", kind, 0, PDU_BYTES, 0, PDU_BYTES).ljust(PDU_BYTES, b"\0")


def receive(connection: socket.socket) -> None:
    left = PDU_BYTES
    while left:
        got = len(connection.recv(left))
        if not got:
            raise ConnectionError("the other end closed the connection too early")
        left -= got


def listen(own: tuple[str, int], _peer: tuple[str, int]) -> None:
    with socket.create_server(own, family=family_of(own[0])) as listener:
        listener.settimeout(DIALOGUE_S)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(DIALOGUE_S)
            receive(connection)
            connection.sendall(pdu(RESPONSE))
            # Who hangs up first keeps the port for a minute, and this one is the portal's.
            connection.recv(1)


def talk(own: tuple[str, int], peer: tuple[str, int]) -> None:
    with connected(own, peer) as connection:
        connection.sendall(pdu(REQUEST))
        receive(connection)


def connected(own: tuple[str, int], peer: tuple[str, int]) -> socket.socket:
    """A connection, once the other end listens."""
    until = time.monotonic() + DIALOGUE_S
    while True:
        try:
            return socket.create_connection(peer, timeout=DIALOGUE_S, source_address=own)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def main(interface: str, reqid: str, own_address: str, own_port: str, address: str, port: str) -> None:
    own, peer = (own_address, int(own_port)), (address, int(port))
    family = family_of(address)
    known = Associations(int(reqid), family)
    watch(
        lambda: report(interface, lambda: {"states": known.tell()}, is_ipv6=family == socket.AF_INET6),
        {signal.SIGUSR2: lambda: try_connect(own, peer), signal.SIGURG: lambda: converse(own, peer)},
        ear=(known.events, known.hear),
    )


def associations(request: dict[str, Any]) -> dict[str, Any]:
    return {"states": Associations(request["reqid"], family_of(request["peer"])).tell()}


if __name__ == "__main__":
    if sys.argv[1:]:
        main(*sys.argv[1:])
    else:
        answer({"associations": associations})
