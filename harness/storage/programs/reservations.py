"""Asks a logical unit for its persistent reservations (SPC-4, section 6.15): one request on standard input
(JSON).

This program runs by itself under the distribution's Python, perhaps on another machine. It only reads.
"""

from __future__ import annotations

import struct
from typing import Any

from harness.hosts.programs.answering import answer
from harness.storage.programs.reread import PAGE_BYTES, Volume

PERSISTENT_RESERVE_IN = 0x5E
ACTIONS = {"keys": 0, "reservation": 1, "full": 3}


def read(request: dict[str, Any]) -> dict[str, tuple[int, str]]:
    """Of each action the command's status, and its data as hexadecimal digits."""
    volume = Volume(request["path"])
    volume.scsi(bytes(6))  # TEST UNIT READY: the first command may be told what has changed (unit attention)
    found = {}
    for name, action in ACTIONS.items():
        command = struct.pack(">BB5xHx", PERSISTENT_RESERVE_IN, action, PAGE_BYTES)
        status, data = volume.command(command, PAGE_BYTES)
        found[name] = status, data.hex()
    return found


if __name__ == "__main__":
    answer({"read": read})
