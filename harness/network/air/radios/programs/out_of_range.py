"""Keep the simulated radios of this kernel out of each other's range, for as long as this runs.

It runs on the host as root under the distribution's Python. It registers as what decides which radio hears a
frame (linux/mac80211_hwsim.h; the kernel's mac80211_hwsim.h says which attributes), and lets none hear any:
each sender is told that nobody acknowledged. When it ends, all hear all again.
"""

from __future__ import annotations

import struct
import sys

from harness.hosts.programs.netlink import (
    NLM_F_ACK,
    RECEIVE_BYTES,
    NetlinkFamily,
    attribute,
    attributes,
    message,
    messages,
)

REGISTER, FRAME, TX_INFO_FRAME = 1, 2, 3
TRANSMITTER, FLAGS, SIGNAL, TX_INFO, COOKIE = 2, 4, 6, 7, 8


def lost(frame: bytes) -> bytes:
    """The attributes of the answer to those of a frame: without the flag for an acknowledgement."""
    found = dict(attributes(frame))
    answer = b"".join(attribute(kind, found[kind]) for kind in (TRANSMITTER, FLAGS, TX_INFO, COOKIE))
    return answer + attribute(SIGNAL, struct.pack("=i", 0))


def main() -> None:
    family = NetlinkFamily("MAC80211_HWSIM")
    family.ask(REGISTER, b"", NLM_F_ACK)
    sys.stdout.write("registered\n")
    sys.stdout.flush()
    while True:
        for kind, payload in messages(family.socket.recv(RECEIVE_BYTES)):
            if kind == family.number and payload[0] == FRAME:
                body = struct.pack("=BBH", TX_INFO_FRAME, 1, 0) + lost(payload[4:])
                family.socket.send(message(family.number, 0, body))


if __name__ == "__main__":
    main()
