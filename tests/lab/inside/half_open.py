"""Logins left halfway, and connections that say nothing: how long they keep the right initiator out."""

from __future__ import annotations

import contextlib
import socket
import time

from tests.lab.inside.kernel import sh
from tests.lab.inside.libiscsi import FIRST, OUR_URL, OURS, targets

NOBODY = "iqn.2003-01.org.example:nobody"
LOGIN_S = 15.0
"""Linux's TA_LOGIN_TIMEOUT: so long LIO waits for the first request of a connection, one after the other."""


def request(initiator: str, session: int) -> bytes:
    """A Login Request of the security stage that offers CHAP (RFC 7143, sections 11.12 and 12.1)."""
    keys = {"InitiatorName": initiator, "TargetName": OURS, "SessionType": "Normal", "AuthMethod": "CHAP"}
    data = b"".join(f"{key}={value}\0".encode() for key, value in keys.items())
    header = bytearray(48)
    header[0] = 0x43
    header[5:8] = len(data).to_bytes(3, "big")
    header[8:14] = b"\x80\0\0\0\0" + bytes([session])
    return bytes(header) + data + bytes(-len(data) % 4)


def log_in(count: int, other: str | None) -> tuple[float, str]:
    """How long the right initiator took to be let in or refused, in seconds, and what was said, while so many
    connections have asked to log in under another name, or said nothing."""
    with contextlib.ExitStack() as stack:
        for number in range(count):
            there = stack.enter_context(socket.create_connection(("127.0.0.1", 3260)))
            if other is not None:
                there.sendall(request(other, number))
        time.sleep(1)
        began = time.monotonic()
        said = sh("timeout", "100", "iscsi-inq", "-i", FIRST, OUR_URL, check=False)
        return time.monotonic() - began, said


def main() -> None:
    with targets():
        for what, count, other, expected, least_s, most_s in (
            ("nobody else", 0, None, "Peripheral", 0, 5),
            ("4 logins of others left halfway", 4, NOBODY, "Peripheral", 0, 5),
            ("2 silent connections", 2, None, "Peripheral", LOGIN_S, 2 * LOGIN_S + 5),
            ("1 login with the right names left halfway", 1, FIRST, "Service unavailable", 0, LOGIN_S + 5),
            ("nobody else any more", 0, None, "Peripheral", 0, 5),
        ):
            took_s, said = log_in(count, other)
            print(f"{what}: {expected} after {took_s:.1f} s")
            assert expected in said and least_s < took_s < most_s, (what, took_s, said)


if __name__ == "__main__":
    main()
