"""Talks NVMe/TCP in clear, on purpose, so that a capture can be seen to recognise it.

Usage: clear.py listen ADDRESS PORT, which prints a line when it is ready; and
clear.py talk OWN-ADDRESS ADDRESS PORT. Each end sends the first PDU of a connection (NVMe/TCP Transport
Specification 1.0, sections 3.6.2.2 and 3.6.2.3); no target takes part. This file runs by itself under the
distribution's Python, perhaps on another machine: it imports nothing of the harness.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable

DEADLINE_S = 5
PDU_BYTES = 128
REQUEST, RESPONSE = 0, 1
"""Types: initialize connection request, and its response."""


def pdu(kind: int) -> bytes:
    header = struct.pack("<BBBBI", kind, 0, PDU_BYTES, 0, PDU_BYTES)
    return header.ljust(PDU_BYTES, b"\0")


def receive(connection: socket.socket) -> None:
    left = PDU_BYTES
    while left:
        got = len(connection.recv(left))
        if not got:
            sys.exit("the other end hung up before it had said all")
        left -= got


def listen(address: str, port: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, int(port)), family=family) as listener:
        listener.settimeout(DEADLINE_S)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(DEADLINE_S)
            receive(connection)
            connection.sendall(pdu(RESPONSE))
            # Who hangs up first keeps the port for a minute, and this one is the portal's.
            connection.recv(1)


def talk(own: str, address: str, port: str) -> None:
    to = (address, int(port))
    with socket.create_connection(to, timeout=DEADLINE_S, source_address=(own, 0)) as connection:
        connection.sendall(pdu(REQUEST))
        receive(connection)


ACTIONS: dict[str, Callable[..., None]] = {"listen": listen, "talk": talk}

try:
    ACTIONS[sys.argv[1]](*sys.argv[2:])
except OSError as error:
    sys.exit(f"{type(error).__name__}: {error}")
