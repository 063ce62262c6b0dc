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
from harness.protection.programs.watching import lines_of

MACSEC_GET = 0
MACSEC_IFINDEX, MACSEC_SECY, MACSEC_TXSAS, MACSEC_RXSCS, MACSEC_TX = 1, 4, 5, 6, 7
SA_NUMBER, SA_NEXT_PACKET = 1, 3
SECY_CIPHER, SECY_PROTECT, SECY_VALIDATE, SECY_ENCRYPT = 4, 6, 9, 10
STRICT = 2
RXSC_STATS = 4
TX_PACKETS, TX_BYTES, RX_BYTES, RX_PACKETS = 2, 4, 2, 5
"""Out…Encrypted, InOctetsDecrypted, InPktsOK: signed-only and invalid frames do not count."""
MACS_BYTES = 12
"""What the interface counts of each frame that was not encrypted: its addresses."""


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
        numbers = {}
        for _, text in attributes(mine.get(MACSEC_TXSAS, b"")):
            made = dict(attributes(text))
            numbers[number(made[SA_NUMBER])] = number(made[SA_NEXT_PACKET]) - 1
        got = [
            dict(attributes(dict(attributes(text))[RXSC_STATS]))
            for _, text in attributes(mine.get(MACSEC_RXSCS, b""))
        ]
        channels = tuple(sum(number(each[what]) for each in got) for what in (RX_PACKETS, RX_BYTES))
        # A receiving channel goes with its counters when the peer does not answer MKA. The interface's stay.
        fields = lines_of("/proc/net/dev", self.interface + ":").partition(":")[2].split()
        packets = int(fields[1])
        in_all = (packets, int(fields[0]) - MACS_BYTES * packets)
        rx_packets, rx_bytes = in_all if packets > channels[0] else channels
        found = {
            "tx_packets": number(sent[TX_PACKETS]),
            "tx_bytes": number(sent[TX_BYTES]),
            "rx_packets": rx_packets,
            "rx_bytes": rx_bytes,
        }
        return {**found, "numbers": numbers, "agreed": agreed}


if __name__ == "__main__":
    watch_interface(MacsecCounters(sys.argv[1]).look, *sys.argv[2:])
