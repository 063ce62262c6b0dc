"""Two stations on simulated radios: associated, encrypted, and sharing the air. Needs the custom kernel.

`python -m tests.lab.inside.on_the_air STANDARD SECURITY`
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import cast

from harness.hosts import Host, NamespaceHost
from harness.hosts.journal import Journal
from harness.model import Duplex, LinkProfile, Security, Standard
from harness.network import wireless
from harness.network.air.radios import wifi
from harness.network.air.radios.wifi import Network, Radios
from harness.network.links import LinkPlace
from tests.lab.inside.kernel import SERVER, assert_rate

RATE_BIT_S = 50_000_000
PROFILE = LinkProfile(
    name="air", title="", emulated=True, rate_bit_s=RATE_BIT_S, delay_us=700, duplex=Duplex.HALF
)
PORT = 5000
LEAST = 0.6
"""Of the rate, for what stands in frames' headers and waits for the air."""

TRIES_S = (2.0,) * 6
FOLDER = Path("/run/wifi")


def main(standard: str, security: str) -> None:
    near = NamespaceHost("initiator")
    journal = Journal(FOLDER / "journal.jsonl")
    FOLDER.mkdir()
    network = Network(ssid="harness-t", standard=cast(Standard, standard), security=Security(security))
    with journal.hold(near, Radios(3)):
        # Twice, as a column that failed comes up again: on the radios that it had.
        for number in (1, 2):
            carry(near, journal, network, FOLDER / f"air-{number}.pcap")
    assert not journal.leaks and not journal.open_entries(), journal.leaks
    assert not Path("/sys/module/mac80211_hwsim").exists()


def carry(near: Host, journal: Journal, network: Network, heard_file: Path) -> None:
    """Associate, send, and see what the air bore."""
    place = LinkPlace(journal, near, PROFILE, tag="test", index=0)
    with contextlib.ExitStack() as stack:
        wifi.place_radio(near, 2, "hts0", None)
        started = time.monotonic()
        path, found, _ = stack.enter_context(wifi.bring_up(place, network, folder=FOLDER, logs=FOLDER))
        print(f"associated in {time.monotonic() - started:.2f} s: {found}")
        assert found.management_frames_protected == (network.security is Security.WPA3)
        heard = stack.enter_context(
            wifi.sniffer(near, "hts0", network.frequency_mhz, found.bssid, file=heard_file)
        )
        log = heard_file.with_suffix(".txt")  # of its own, for it is ready when it says so
        serve = [sys.executable, "-c", SERVER, str(PORT)]
        stack.enter_context(
            path.target.daemon(serve, log=log, ready=lambda: "listening" in log.read_text(), deadline_s=60)
        )
        to, least = (path.target_address, PORT), LEAST * RATE_BIT_S
        assert_rate(to, (-1,), RATE_BIT_S, TRIES_S, least=least, most=RATE_BIT_S)
        air = heard.look()
        print(air)
        if network.security is Security.OPEN:
            assert air.clear > 100 and not air.protected, air
        else:
            assert air.protected > 100 and not air.clear, air
        assert wireless.observe(near, path.initiator_iface).bssid == found.bssid
        assert network.secret not in "".join(f.read_text() for f in FOLDER.glob("*.log"))


if __name__ == "__main__":
    main(*sys.argv[1:])
