"""One end of a MACsec interface.

It runs on the host as root under the distribution's Python, in the network namespace of the end, and reads
the kernel by generic netlink (linux/if_macsec.h). With arguments (interface, the one below it, and 4 or 6 for
that link's IP) it reports on SIGUSR1 what the interface has carried, and what the one below it has counted.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import Any

from harness.hosts.programs.netlink import NLM_F_DUMP, NetlinkFamily, attributes
from harness.protection.programs.overlay import number, watch_interface

MACSEC_GET = 0
MACSEC_IFINDEX, MACSEC_SECY, MACSEC_TXSAS, MACSEC_RXSCS, MACSEC_TX = 1, 4, 5, 6, 7
SA_NUMBER, SA_NEXT_PACKET = 1, 3
SECY_CIPHER, SECY_PROTECT, SECY_VALIDATE, SECY_ENCRYPT = 4, 6, 9, 10
STRICT = 2
RXSC_STATS = 4
TX_PACKETS, TX_BYTES, RX_BYTES, RX_PACKETS = 2, 4, 2, 5
"""Out…Encrypted, InOctetsDecrypted, InPktsOK: signed-only and invalid frames do not count."""


class MacsecCounters:
    """What a MACsec interface has carried: frames that were encrypted, and their encrypted parts."""

    def __init__(self, interface: str) -> None:
        self.family = NetlinkFamily("macsec")
        self.interface, self.index = interface, socket.if_nametoindex(interface)

    def look(self) -> dict[str, Any]:
        all_of_them = self.family.ask(MACSEC_GET, b"", NLM_F_DUMP)
        mine = next((each for each in all_of_them if number(each[MACSEC_IFINDEX]) == self.index), None)
        if mine is None:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), self.interface)
        secy, sent = dict(attributes(mine[MACSEC_SECY])), dict(attributes(mine[MACSEC_TX]))
        agreed = {
            "cipher": number(secy[SECY_CIPHER]),
            "is_encrypting": bool(number(secy[SECY_PROTECT]) and number(secy[SECY_ENCRYPT])),
            "is_strict": number(secy[SECY_VALIDATE]) == STRICT,
        }
        found = {
            "tx_packets": number(sent[TX_PACKETS]),
            "tx_bytes": number(sent[TX_BYTES]),
            "rx_packets": 0,
            "rx_bytes": 0,
        }
        numbers = {}
        for _, text in attributes(mine.get(MACSEC_TXSAS, b"")):
            made = dict(attributes(text))
            numbers[number(made[SA_NUMBER])] = number(made[SA_NEXT_PACKET]) - 1
        for _, text in attributes(mine.get(MACSEC_RXSCS, b"")):
            got = dict(attributes(dict(attributes(text))[RXSC_STATS]))
            found["rx_packets"] += number(got[RX_PACKETS])
            found["rx_bytes"] += number(got[RX_BYTES])
        return {**found, "numbers": numbers, "agreed": agreed}


if __name__ == "__main__":
    watch_interface(MacsecCounters(sys.argv[1]).look, *sys.argv[2:])
