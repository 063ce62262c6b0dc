"""Netlink (netlink(7)), and its generic families by name, for stand-alone programs on a host.

All numbers are in the machine's own byte order.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

NETLINK_GENERIC = 16
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLMSG_ERROR, NLMSG_DONE = 0x2, 0x3
GENL_ID_CTRL, CTRL_CMD_GETFAMILY = 0x10, 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 1, 2
NESTED, TYPE_MASK = 0x8000, 0x3FFF
HEADER_BYTES, GENERIC_BYTES = 16, 4
RECEIVE_BYTES = 1 << 18

Attributes = dict[int, bytes]


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *inner: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(inner))


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each; what is cut short is left."""
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        yield kind & TYPE_MASK, data[4:length]
        data = data[(length + 3) & ~3 :]


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and payload of each; what is cut short is left."""
    while len(data) >= HEADER_BYTES:
        length, kind = struct.unpack_from("=IH", data)
        if length < HEADER_BYTES:
            break
        yield kind, data[HEADER_BYTES:length]
        data = data[(length + 3) & ~3 :]


def message(kind: int, flags: int, payload: bytes = b"") -> bytes:
    """A request."""
    return struct.pack("=IHHII", HEADER_BYTES + len(payload), kind, NLM_F_REQUEST | flags, 1, 0) + payload


class NetlinkFamily:
    """A family of generic netlink. FileNotFoundError if the kernel has none of that name."""

    def __init__(self, name: str) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.number = GENL_ID_CTRL
        asked = attribute(CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0")
        (found,) = self.ask(CTRL_CMD_GETFAMILY, asked, NLM_F_ACK)
        (self.number,) = struct.unpack("=H", found[CTRL_ATTR_FAMILY_ID])

    def ask(self, command: int, body: bytes, flags: int) -> list[Attributes]:
        """The attributes of each answer; OSError if the kernel refuses."""
        self.socket.send(message(self.number, flags, struct.pack("=BBH", command, 1, 0) + body))
        answers: list[Attributes] = []
        while True:
            for kind, payload in messages(self.socket.recv(RECEIVE_BYTES)):
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    (refused,) = struct.unpack_from("=i", payload)
                    if refused:
                        raise OSError(-refused, os.strerror(-refused))
                    return answers
                answers.append(dict(attributes(payload[GENERIC_BYTES:])))
