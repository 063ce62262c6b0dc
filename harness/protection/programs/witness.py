"""A witness at one end of a protected path: what ESP carried, what the interface counted, what is blocked.

It runs on the host as root under the distribution's Python, in the network namespace of the end, as long as
the path is up, and starts no process when it is asked. SIGUSR1: report what all security associations of the
path have carried. SIGUSR2: a knock, one attempt to connect like the portal's traffic does. Each answer is a
line of JSON on standard output; the first one comes unasked.

A security association that a rekey replaces takes its counters with it, but the kernel's last report of it
has them (xfrm_notify_sa() and build_expire() in net/xfrm/xfrm_user.c). `ip xfrm monitor` would print the
keys.

Arguments: interface, reqid, own address, own port (0: any), the peer's address and port.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import time

# linux/netlink.h and linux/xfrm.h; all numbers are in the machine's own byte order, except SPIs and
# addresses.
NETLINK_XFRM = 6
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 0x2, 0x3
NEW, DELETED, GET, EXPIRED, UPDATED = 0x10, 0x11, 0x12, 0x18, 0x1A
GROUPS = 1 << (2 - 1) | 1 << (3 - 1)
"""XFRMNLGRP_EXPIRE and XFRMNLGRP_SA."""

HEADER_BYTES = 16
USERSA_INFO_BYTES, USERSA_ID_BYTES = 224, 24
XFRMA_ALG_AUTH, XFRMA_ALG_CRYPT, XFRMA_SA, XFRMA_REPLAY = 1, 2, 6, 10
XFRMA_ALG_AEAD, XFRMA_ALG_AUTH_TRUNC, XFRMA_REPLAY_ESN = 18, 20, 23
MODES = ("transport", "tunnel")
RECEIVE_BYTES = 1 << 18
PATIENCE_S = 0.1
"""How long the last report of an association that is gone may take."""

KNOCK_S = 1.0
"""How long to wait for an answer to a knock."""

State = dict[str, object]
Key = tuple[int, str]
"""SPI and destination."""


def messages(data: bytes) -> list[tuple[int, bytes]]:
    """The netlink messages in ``data``: type and payload."""
    found = []
    while len(data) >= HEADER_BYTES:
        length, kind = struct.unpack_from("=IH", data)
        if length < HEADER_BYTES:
            break
        found.append((kind, data[HEADER_BYTES:length]))
        data = data[(length + 3) & ~3 :]
    return found


def attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def address(info: bytes, at: int) -> str:
    """The address at an offset of a struct xfrm_usersa_info, whose family is at 212."""
    (family,) = struct.unpack_from("=H", info, 212)
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, info[at : at + 16])
    return socket.inet_ntoa(info[at : at + 4])


def key_of(info: bytes) -> Key:
    return int.from_bytes(info[72:76], "big"), address(info, 56)


def family_of(text: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in text else socket.AF_INET


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
        return {
            "spi": spi,
            "source": address(info, 80),
            "destination": destination,
            "bytes": carried,
            "packets": packets,
            "sequence": sent,
            "algorithms": [name[:64].split(b"\0")[0].decode() for name in names],
            "mode": MODES[mode] if mode < len(MODES) else str(mode),
        }

    def take(self, kind: int, payload: bytes) -> None:
        """Note a message of the kernel's."""
        if kind in (NEW, UPDATED):
            key, found = key_of(payload), self.of(payload, attributes(payload[USERSA_INFO_BYTES:]))
            if found is not None and key not in self.ended:
                self.last[key] = found
        elif kind == DELETED:
            more = attributes(payload[USERSA_ID_BYTES:])
            info = more.get(XFRMA_SA, b"")
            last = self.of(info, more)
            if last is not None:
                self.last[key_of(info)] = last
                self.ended.add(key_of(info))
        elif kind == EXPIRED and payload[USERSA_INFO_BYTES]:
            # struct xfrm_user_expire: the byte after the state says that this is its end. Its algorithms and
            # its sequence number are left out.
            known = self.last.get(key_of(payload))
            if known is not None:
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
        self.dumps.send(struct.pack("=IHHII", HEADER_BYTES, GET, NLM_F_REQUEST | NLM_F_DUMP, 1, 0))
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


def lines_of(path: str, beginning: str) -> str:
    """The lines of a file that begin so, apart from blanks."""
    with open(path) as file:  # noqa: PTH123
        return "".join(line for line in file if line.lstrip().startswith(beginning))


def blocked() -> int | None:
    """How many packets policies have stopped; None if the kernel does not count them."""
    try:
        return int(lines_of("/proc/net/xfrm_stat", "XfrmOutPolBlock").split()[1])
    except (OSError, IndexError):
        return None


def knock(own: tuple[str, int], peer: tuple[str, int]) -> dict[str, object]:
    """Try to connect, once: the name of the error if it fails, and how many packets were blocked."""
    before = blocked()
    said = ""
    with socket.socket(family_of(peer[0])) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.settimeout(KNOCK_S)
        try:
            made.bind(own)
            made.connect(peer)
        except OSError as error:
            said = errno.errorcode.get(error.errno or errno.ETIMEDOUT, str(error))
    after = blocked()
    return {"error": said, "blocked": None if before is None or after is None else after - before}


def main(interface: str, reqid: str, own: str, own_port: str, peer: str, peer_port: str) -> None:
    known = Associations(int(reqid), family_of(peer))
    asked, wake = os.pipe()
    os.set_blocking(asked, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda _number, _frame: None)
    questions = bytes([signal.SIGUSR1])
    while True:
        for question in questions:
            if question == signal.SIGUSR2:
                answer = knock((own, int(own_port)), (peer, int(peer_port)))
            else:
                # The interface before and after: what passes between the two readings is in the associations.
                answer = {"before": lines_of("/proc/net/dev", interface + ":"), "states": known.tell()}
                answer["after"] = lines_of("/proc/net/dev", interface + ":")
                snmp = lines_of("/proc/net/snmp", "Ip:") + lines_of("/proc/net/snmp", "Tcp:")
                if family_of(peer) == socket.AF_INET6:
                    snmp += lines_of("/proc/net/snmp6", "Ip6")
                answer["snmp"] = snmp
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        select.select([asked, known.events.fileno()], [], [])
        known.hear()
        try:
            questions = os.read(asked, RECEIVE_BYTES)
        except BlockingIOError:
            questions = b""


if __name__ == "__main__":
    main(*sys.argv[1:])
