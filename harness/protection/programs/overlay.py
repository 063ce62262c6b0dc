"""What the programs of interfaces over a link have in common; by itself it carries out one request:

``reach``  sends a packet to the peer through the interface, and receives one

It runs on the host as root under the distribution's Python, in the network namespace of the end.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from harness.hosts.programs.answering import answer
from harness.protection.programs.watching import family_of, report, watch

REACH_S = 8.0
"""How long to wait for the peer's answer; a lost handshake is sent again after 5 s."""


def number(value: bytes) -> int:
    """An unsigned integer in the machine's byte order."""
    return int.from_bytes(value, sys.byteorder)


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


def watch_interface(look: Callable[[], dict[str, Any]], below: str, ip: str) -> None:
    """Report on SIGUSR1 what an interface has carried, by ``look``, and what the one below it has counted;
    ``ip`` is 4 or 6, for that link's IP."""
    watch(lambda: report(below, lambda: {"carried": look()}, is_ipv6=ip == "6"))


if __name__ == "__main__":
    answer({"reach": reach})
