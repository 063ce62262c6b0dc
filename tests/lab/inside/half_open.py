"""Logins left halfway, and connections that say nothing: how long they keep the right initiator out."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

from tests.lab.inside.kernel import sh
from tests.lab.inside.libiscsi import FIRST, OUR_URL, OURS, targets

NOBODY = "iqn.2003-01.org.example:nobody"
LOGIN_S = 15.0
"""Linux's TA_LOGIN_TIMEOUT: so long LIO waits for the first request of a connection, one after the other."""


@contextlib.contextmanager
def connected(count: int, initiator: str | None) -> Iterator[None]:
    """So many connections to our portal, which have asked to log in under that name, or said nothing."""
    with contextlib.ExitStack() as stack:
        for number in range(count):
            there = stack.enter_context(socket.create_connection(("127.0.0.1", 3260)))
            if initiator is not None:
                there.sendall(request(initiator, number))
        time.sleep(1)
        yield


def request(initiator: str, session: int) -> bytes:
    """A Login Request of the security stage that offers CHAP (RFC 7143, sections 11.12 and 12.1)."""
    keys = {"InitiatorName": initiator, "TargetName": OURS, "SessionType": "Normal", "AuthMethod": "CHAP"}
    data = b"".join(f"{key}={value}\0".encode() for key, value in keys.items())
    header = bytearray(48)
    header[0] = 0x43
    header[5:8] = len(data).to_bytes(3, "big")
    header[8:14] = b"\x80\0\0\0\0" + bytes([session])
    return bytes(header) + data + bytes(-len(data) % 4)


def log_in() -> tuple[float, str]:
    """How long the right initiator took to be let in or refused, in seconds, and what was said."""
    began = time.monotonic()
    said = sh("timeout", "100", "iscsi-inq", "-i", FIRST, OUR_URL, check=False)
    return time.monotonic() - began, said


def main() -> None:
    with targets():
        for initiator, count in ((None, 0), (NOBODY, 4)):
            with connected(count, initiator):
                took_s, said = log_in()
            assert "Peripheral" in said and took_s < 5, (count, took_s, said)
        with connected(2, None):
            took_s, said = log_in()
        print(f"2 silent connections: let in after {took_s:.1f} s")
        assert "Peripheral" in said and LOGIN_S < took_s < 2 * LOGIN_S + 5, (took_s, said)
        with connected(1, FIRST):
            took_s, said = log_in()
        print(f"1 login with the right names left halfway: refused after {took_s:.1f} s")
        assert "Service unavailable" in said and took_s < LOGIN_S + 5, (took_s, said)
        took_s, said = log_in()
        assert "Peripheral" in said and took_s < 5, (took_s, said)


if __name__ == "__main__":
    main()
