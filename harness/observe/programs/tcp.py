"""The established TCP connections to a portal, as ss(8) shows them (``ss -tinHO``), asked of the kernel.

Only what ``observe.connections`` reads (sock_diag(7); ``struct tcp_info`` in linux/tcp.h).
"""

from __future__ import annotations

import socket
import struct

from harness.hosts.programs.netlink import (
    NLM_F_DUMP,
    NLMSG_DONE,
    NLMSG_ERROR,
    RECEIVE_BYTES,
    attributes,
    message,
    messages,
)

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
ESTABLISHED = 1
INET_DIAG_INFO = 2
ABOUT_BYTES = 72
"""``struct inet_diag_msg``."""

COUNTS = {"bytes_sent": 200, "bytes_retrans": 208, "bytes_received": 128}
"""Where ``tcp_info`` has a count of 64 bits."""

TIMES_US = {"busy": 168, "rwnd_limited": 176, "sndbuf_limited": 184}
NONE_YET_US = 0xFFFFFFFF
"""The least round trip before there is one."""


def established(near: str, portal: str, port: str) -> str:
    """A line for each. OSError if the kernel refuses."""
    family = socket.AF_INET6 if ":" in portal else socket.AF_INET
    wanted = struct.pack("!H", int(port)) + b"".join(
        socket.inet_pton(family, address).ljust(16, b"\0") for address in (near, portal)
    )
    asked = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 1 << ESTABLISHED)
    asked += bytes(2) + wanted[:2] + bytes(32 + 4 + 8)
    lines: list[str] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(message(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, asked))
        while True:
            for kind, payload in messages(kernel.recv(RECEIVE_BYTES)):
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    return "".join(lines)
                info = dict(attributes(payload[ABOUT_BYTES:])).get(INET_DIAG_INFO)
                if payload[6:40] == wanted and info:
                    lines.append(f"{_words(info.ljust(256, bytes(1)))}\n")


def _words(info: bytes) -> str:
    """``tcp_info`` in ss's words, which leaves out what is zero."""
    window, trip_us, deviation_us = struct.unpack_from("=3I", info, 64)
    (least_us,) = struct.unpack_from("=I", info, 148)
    counts = {name: struct.unpack_from("=Q", info, at)[0] for name, at in COUNTS.items()}
    times_ms = {name: struct.unpack_from("=Q", info, at)[0] // 1000 for name, at in TIMES_US.items()}
    found = {
        "rtt": trip_us and f"{trip_us / 1000:g}/{deviation_us / 1000:g}",
        **counts,
        **{name: ms and f"{ms}ms" for name, ms in times_ms.items()},
        "rcv_ssthresh": window,
        "minrtt": least_us != NONE_YET_US and least_us and f"{least_us / 1000:g}",
    }
    return " ".join(f"{name}:{value}" for name, value in found.items() if value)
