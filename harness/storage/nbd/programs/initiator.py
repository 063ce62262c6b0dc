"""Connects an initiator to an NBD export, reports what was negotiated, and disconnects.

One request on standard input (JSON), an answer on standard output. It runs by itself under the distribution's
Python, and needs no nbd-client. The handshake is the "fixed newstyle" of
doc/proto.md of NetworkBlockDevice/nbd. Netlink then hands the socket to the kernel (linux/nbd-netlink.h),
with a name of ours for what is behind it. By that name the disk is found again (``backend`` in its folder of
sysfs, Linux 5.14); one that is absent needs no disconnecting.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path
from typing import Any

from harness.hosts.programs.answering import PortalSilent, answer, folders_that_say, wait_until
from harness.hosts.programs.netlink import NLM_F_ACK, NetlinkFamily, attribute, nested

DISKS = Path("/sys/block")

# doc/proto.md: the handshake

GREETING = struct.Struct(">8s8sH")
OPTION = struct.Struct(">8sII")
REPLY = struct.Struct(">QIiI")
INIT_MAGIC, OPTION_MAGIC, REPLY_MAGIC = b"NBDMAGIC", b"IHAVEOPT", 0x3E889045565A9
FIXED_NEWSTYLE, NO_ZEROES = 1 << 0, 1 << 1
GO = 7
ACK, INFO = 1, 3
EXPORT, BLOCK_SIZE = 0, 3
"""Kinds of information: size and flags, which always come; and block sizes, which are asked for."""

READ_ONLY = 1 << 1
"""Of the transmission flags."""

BLOCK_BYTES = 512
"""Of the disk, unless the server takes no less than more."""


def received(connection: socket.socket, length: int) -> bytes:
    got = b""
    while len(got) < length:
        more = connection.recv(length - len(got))
        if not more:
            raise ConnectionError("the server ended the connection during the handshake")
        got += more
    return got


def handshake(connection: socket.socket, export: str) -> dict[str, int]:
    """What the server says of an export: its size, its flags, its block sizes."""
    magic, newstyle, offered = GREETING.unpack(received(connection, GREETING.size))
    if (magic, newstyle) != (INIT_MAGIC, OPTION_MAGIC) or not offered & FIXED_NEWSTYLE:
        raise ConnectionError("expected a server that speaks fixed newstyle NBD")
    connection.sendall(struct.pack(">I", offered & (FIXED_NEWSTYLE | NO_ZEROES)))
    name = export.encode()
    asked = struct.pack(f">I{len(name)}sHH", len(name), name, 1, BLOCK_SIZE)
    connection.sendall(OPTION.pack(OPTION_MAGIC, GO, len(asked)) + asked)
    found = {"smallest_block_bytes": 1}
    while True:
        magic, _option, kind, length = REPLY.unpack(received(connection, REPLY.size))
        said = received(connection, length)
        if magic != REPLY_MAGIC or kind not in (ACK, INFO):
            words = said.decode("utf-8", "replace") or f"reply {kind & 0xFFFFFFFF:#x}"
            raise ConnectionError(f"the server refused the export {export}: {words}")
        if kind == ACK:
            return found
        (what,) = struct.unpack_from(">H", said)
        if what == EXPORT:
            found["size_bytes"], found["flags"] = struct.unpack_from(">QH", said, 2)
        elif what == BLOCK_SIZE:
            (found["smallest_block_bytes"],) = struct.unpack_from(">I", said, 2)


# The kernel's side: generic netlink

CONNECT, DISCONNECT = 1, 2
# NBD_ATTR_*
INDEX, SIZE, BLOCK, TIMEOUT, SERVER_FLAGS, CLIENT_FLAGS, SOCKETS = range(1, 8)
BACKEND = 10
ITEM, FD = 1, 1
DESTROY_ON_DISCONNECT = 1 << 0


def number(kind: int, value: int, size: str = "Q") -> bytes:
    return attribute(kind, struct.pack(f"={size}", value))


def ask_kernel(command: int, payload: bytes) -> dict[int, bytes]:
    """What the kernel's nbd answers; OSError if it refuses."""
    try:
        family = NetlinkFamily("nbd")
    except FileNotFoundError as error:
        raise OSError("this kernel has no nbd: is the module loaded?") from error
    answers = family.ask(command, payload, NLM_F_ACK)
    return answers[0] if answers else {}


# Requests


def disks(backend: str) -> list[Path]:
    """The disks of a name of ours."""
    return folders_that_say(DISKS.glob("nbd*/backend"), backend)


def open_portal(request: dict[str, Any]) -> socket.socket:
    """A connection to the portal, over the interface that it is bound to."""
    family = socket.AF_INET6 if ":" in request["address"] else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    if request["bound_to"]:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, request["bound_to"].encode())
    # Otherwise the end of each write waits for the acknowledgement of what is before it (RFC 9293, 3.7.4).
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(request["within_s"])
    try:
        connection.connect((request["address"], request["port"]))
    except OSError as error:
        raise PortalSilent(error.strerror or f"nothing answered within {request['within_s']} s") from error
    return connection


def connect(request: dict[str, Any]) -> None:
    """Connect, hand the connection to the kernel, and wait for the disk. Where ``read_only`` is null, the
    server may be of either kind, and the kernel takes no writes."""
    with open_portal(request) as connection:
        found = handshake(connection, request["export"])
        if request["read_only"] is None:
            found["flags"] |= READ_ONLY
        elif bool(found["flags"] & READ_ONLY) is not request["read_only"]:
            wanted = "refuses" if request["read_only"] else "takes"
            raise ConnectionError(f"expected a server that {wanted} writes, found another")
        connection.settimeout(None)
        reported = ask_kernel(
            CONNECT,
            number(SIZE, found["size_bytes"])
            + number(BLOCK, max(BLOCK_BYTES, found["smallest_block_bytes"]))
            + number(TIMEOUT, request["loss_s"])
            + number(SERVER_FLAGS, found["flags"])
            + number(CLIENT_FLAGS, DESTROY_ON_DISCONNECT)
            + nested(SOCKETS, nested(ITEM, number(FD, connection.fileno(), "I")))
            + attribute(BACKEND, request["backend"].encode() + b"\0"),
        )
    disk = DISKS / f"nbd{struct.unpack('=I', reported[INDEX])[0]}"
    wait_until(lambda: (disk / "size").read_text().strip() != "0", f"{disk.name} did not get a size")
    # On a single processor the kernel chooses mq-deadline, which makes sequential I/Os that wait into one.
    (disk / "queue/scheduler").write_text("none")


QUEUE = (
    *("scheduler", "nr_requests", "max_sectors_kb", "max_hw_sectors_kb", "logical_block_size"),
    *("write_cache", "fua", "rotational", "discard_max_bytes"),
)


def tell(request: dict[str, Any]) -> dict[str, Any]:
    """The state of a connection: the flags and sizes that the server gave are in the disk's queue."""
    (disk,) = disks(request["backend"])
    agreed = {name: (disk / "queue" / name).read_text().strip() for name in QUEUE}
    # The kernel has a queue for each.
    agreed["connections"] = str(len(list((disk / "mq").iterdir())))
    agreed["read_only"] = (disk / "ro").read_text().strip()
    return {"disk": disk.name, "agreed": agreed}


def disconnect(request: dict[str, Any]) -> None:
    for disk in disks(request["backend"]):
        with contextlib.suppress(FileNotFoundError):
            ask_kernel(DISCONNECT, number(INDEX, int(disk.name.removeprefix("nbd")), "I"))
    wait_until(lambda: not disks(request["backend"]), f"a disk of {request['backend']} did not go")


if __name__ == "__main__":
    answer({"connect": connect, "tell": tell, "disconnect": disconnect})
