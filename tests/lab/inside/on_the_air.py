"""Two stations on simulated radios: associated, encrypted, and sharing the air. Needs the lab's own kernel.

`python -m tests.lab.inside.on_the_air STANDARD SECURITY`
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from pathlib import Path
from typing import cast

from harness.hosts import Host, NamespaceHost
from harness.hosts.journal import Journal
from harness.model import Duplex, LinkProfile, Security, Standard
from harness.network import wifi, wireless
from harness.network.links import LinkPlace
from harness.network.wifi import Network, Radios

RATE_BIT_S = 50_000_000
PROFILE = LinkProfile(
    name="air", title="", emulated=True, rate_bit_s=RATE_BIT_S, delay_us=700, duplex=Duplex.HALF
)
SECONDS = 2.0
LEAST = 0.6
"""Of the rate, for what stands in frames' headers and waits for the air."""

TRIES = 6
"""A busy machine makes it slower, so the best of a few; faster than the air it never is."""

FOLDER = Path("/run/wifi")
SENDER = """
import contextlib, socket, sys
with contextlib.suppress(OSError), socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    while True:
        peer.sendall(bytes(1 << 16))
"""
"""Sends until its peer has had enough."""


def flow(server: socket.socket, host: Host) -> float:
    """Bytes a second that ``host`` sends to ``server`` over TCP."""
    address, port = server.getsockname()
    sender = threading.Thread(
        target=host.run, args=([sys.executable, "-c", SENDER, address, str(port)],), daemon=True
    )
    sender.start()
    peer, _ = server.accept()
    started, took_s, received = time.monotonic(), 0.0, 0
    with peer:
        while took_s < SECONDS and (data := peer.recv(1 << 20)):
            received += len(data)
            took_s = time.monotonic() - started
    sender.join(timeout=120)
    return received / took_s


def main(standard: str, security: str) -> None:
    near = NamespaceHost("initiator")
    journal = Journal(FOLDER / "journal.jsonl")
    FOLDER.mkdir()
    network = Network(ssid="harness-t", standard=cast(Standard, standard), security=Security(security))
    with journal.hold(near, Radios(3)):
        # Twice, as a column that failed comes up again: on the radios that it had.
        for number in (1, 2):
            reported = carry(near, journal, network, FOLDER / f"air-{number}.pcap")
            sys.stdout.write("; ".join(map(str, reported)) + "\n")
    assert not journal.leaks and not journal.open_entries(), journal.leaks
    assert not Path("/sys/module/mac80211_hwsim").exists()


def carry(near: Host, journal: Journal, network: Network, heard_file: Path) -> list[object]:
    """Associate, send, and see what the air bore; returns what is worth telling."""
    reported: list[object] = []
    with contextlib.ExitStack() as stack:
        wifi.place_radio(near, 2, "hts0", None)
        started = time.monotonic()
        path, found = stack.enter_context(
            wifi.bring_up(
                LinkPlace(journal, near, PROFILE, tag="test", index=0), network, folder=FOLDER, logs=FOLDER
            )
        )
        reported.append(f"associated in {time.monotonic() - started:.2f} s: {found}")
        assert found.management_frames_protected == (network.security is Security.WPA3)
        heard = stack.enter_context(
            wifi.sniffer(near, "hts0", network.frequency_mhz, found.bssid, file=heard_file)
        )
        best_bit_s = 0.0
        with socket.create_server((path.initiator_address, 0)) as server:
            for _ in range(TRIES):
                rate_bit_s = 8 * flow(server, path.target)
                reported.append(f"{rate_bit_s / 1e6:.1f} of {RATE_BIT_S / 1e6:.0f} Mbit/s")
                assert rate_bit_s < RATE_BIT_S
                best_bit_s = max(best_bit_s, rate_bit_s)
                if best_bit_s > LEAST * RATE_BIT_S:
                    break
        assert best_bit_s > LEAST * RATE_BIT_S
        air = heard.look()
        reported.append(air)
        if network.security is Security.OPEN:
            assert air.clear > 100 and not air.protected, air
        else:
            assert air.protected > 100 and not air.clear, air
        assert wireless.observe(near, path.initiator_iface).bssid == found.bssid
        assert network.secret not in "".join(f.read_text() for f in FOLDER.glob("*.log"))
    return reported


if __name__ == "__main__":
    main(*sys.argv[1:])
