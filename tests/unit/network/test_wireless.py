"""WiFi: iw's words of many versions and drivers, and what a change of the association means."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from harness.hosts import NamespaceHost
from harness.model import WifiState
from harness.model.errors import RequirementError
from harness.network import wireless

HOST = NamespaceHost("initiator")

# iw 5.19 on mac80211_hwsim, 802.11ac.
LINK = """\
Connected to 02:00:00:00:01:00 (on hti0)
\tSSID: harness-ab12
\tfreq: 5180
\tRX: 264933596 bytes (174353 packets)
\tsignal: -27 dBm
\trx bitrate: 13.0 MBit/s VHT-MCS 1 VHT-NSS 1
\ttx bitrate: 26.0 MBit/s VHT-MCS 3 VHT-NSS 1
"""
INFO = """\
Interface hti0
\taddr 02:00:00:00:00:00
\ttype managed
\tchannel 36 (5180 MHz), width: 80 MHz, center1: 5210 MHz
"""
STATION = """\
Station 02:00:00:00:01:00 (on hti0)
\trx bytes:\t264933596
\tsignal:  \t-29 [-31, -33] dBm
\tsignal avg:\t-30 dBm
\ttx bitrate:\t65.0 MBit/s MCS 7
\trx bitrate:\t58.5 MBit/s MCS 6
"""
ACCESS_POINT = """\
Interface htt0
\taddr 02:00:00:00:01:00
\tssid harness-ab12
\ttype AP
\tchannel 6 (2437 MHz), width: 20 MHz (no HT), center1: 2437 MHz
"""
NOT_CONNECTED = "Not connected.\n"

# iw 6.17, links of an 802.11be access point, of which one is in use.
LINKS = """\
Connected to 68:51:34:7c:32:05 (on wlan0)
\tSSID: office
\tLink 0 BSSID 68:51:34:7c:32:05
\t\tfreq: 6295.0
\tLink 2 BSSID 68:51:34:7c:31:f5
\t\tfreq: 2462.0
MLD 68:51:34:7c:32:05 stats:
\tsignal: 0 dBm
\trx bitrate: 1441.1 MBit/s 80MHz EHT-MCS 13 EHT-NSS 2 EHT-GI 0
"""
LINKS_INFO = """\
Interface wlan0
\taddr e8:bf:b8:73:9a:48
\ttype managed
\tMLD with links:
\t - link ID  0 link addr 46:4e:e4:c6:8a:7e
\t   channel 69 (6295 MHz), width: 80 MHz, center1: 6305 MHz
"""


def parse(link: str = "", info: str = "", stations: str = "") -> WifiState:
    return wireless.parse(link, info, stations, unix_s=1.0)


def test_a_station() -> None:
    where = {"bssid": "02:00:00:00:01:00", "ssid": "harness-ab12", "frequency_mhz": 5180, "channel": 36}
    rates = {"tx_bit_s": 26_000_000, "tx_mode": "VHT-MCS 3 VHT-NSS 1"}
    rates |= {"rx_bit_s": 13_000_000, "rx_mode": "VHT-MCS 1 VHT-NSS 1"}
    found = msgspec.to_builtins(parse(LINK, INFO, STATION))
    assert found == {"unix_s": 1.0, **where, "width_mhz": 80, "signal_dbm": -27, **rates}
    # Its entry fills in what an old iw leaves out.
    lines = LINK.splitlines(True)
    link = "".join(line for line in lines if "rx bitrate" not in line and "signal" not in line)
    state = parse(link, INFO, f"Station 02:00:00:00:00:77 (on hti0)\n\tsignal: -80 dBm\n{STATION}")
    assert (state.rx_bit_s, state.rx_mode, state.signal_dbm) == (58_500_000, "MCS 6", -29)
    assert state.tx_bit_s == 26_000_000


def test_an_access_point_has_its_own_bssid_and_the_rates_of_its_only_station() -> None:
    state = parse(NOT_CONNECTED, ACCESS_POINT, STATION)
    assert (state.bssid, state.ssid) == ("02:00:00:00:01:00", "harness-ab12")
    assert (state.channel, state.width_mhz, state.frequency_mhz) == (6, 20, 2437)
    assert (state.signal_dbm, state.tx_bit_s) == (-29, 65_000_000)
    assert parse(NOT_CONNECTED, ACCESS_POINT, STATION + STATION).tx_bit_s is None
    # No association has nothing else.
    authenticated = f"Authenticated with 02:00:00:00:01:00 (on hti0)\n{NOT_CONNECTED}"
    for link in (NOT_CONNECTED, authenticated, "command failed: No such device (-19)\n", ""):
        assert parse(link, INFO, "") == WifiState(unix_s=1.0), link


def test_rates_and_names() -> None:
    for bit_s, rate, mode in (
        (54_000_000, "54.0 MBit/s", None),
        (866_700_000, "866.7 MBit/s ", "VHT-MCS 9 80MHz short GI VHT-NSS 2"),
        (1_200_900_000, "1200.9 MBit/s ", "80MHz HE-MCS 11 HE-NSS 2 HE-GI 0 HE-DCM 0"),
        (286_700_000, "286.7 MBit/s ", "HE-MCS 11 HE-NSS 2 HE-GI 0 HE-DCM 0"),
        (144_400_000, "144.4 MBit/s ", "MCS 15 short GI"),
        (None, "(unknown) MCS 253", None),
        (None, "(unknown)", None),
    ):
        state = parse(LINK.replace("26.0 MBit/s VHT-MCS 3 VHT-NSS 1", rate + (mode or "")), INFO)
        assert (state.tx_bit_s, state.tx_mode) == (bit_s, mode)
    # An SSID is text, or stays as iw escapes it.
    for escaped, ssid in (
        ("my network", "my network"),
        (r"\x20my network\x20", " my network "),
        (r"caf\xc3\xa9", "café"),
        (r"a\x5cx20b", r"a\x20b"),
        (r"\xff\xfe", r"\xff\xfe"),
        (r"\x1b[31mred\x0a", r"\x1b[31mred\x0a"),
        ("", None),
    ):
        assert parse(LINK.replace("harness-ab12", escaped), INFO).ssid == ssid


def test_6_ghz_a_frequency_with_an_offset_and_several_links() -> None:
    info = INFO.replace("36 (5180 MHz), width: 80 MHz", "37 (6135 MHz), width: 160 MHz")
    # A channel of another time than the frequency says nothing of it.
    for mhz, channel, width_mhz in ((6135, 37, 160), (5500, None, None)):
        state = parse(LINK.replace("freq: 5180", f"freq: {mhz}.0"), info)
        assert (state.frequency_mhz, state.channel, state.width_mhz) == (mhz, channel, width_mhz)
    # Several links have the channel in use, whatever their order.
    state = parse(LINKS, LINKS_INFO)
    assert (state.bssid, state.frequency_mhz, state.channel) == ("68:51:34:7c:32:05", 6295, 69)
    assert state.signal_dbm is None, "nobody receives a milliwatt"
    assert (state.rx_bit_s, state.rx_mode) == (1_441_100_000, "80MHz EHT-MCS 13 EHT-NSS 2 EHT-GI 0")
    assert parse(LINKS, "").frequency_mhz is None


def test_a_watch_sees_before_meanwhile_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    iw = tmp_path / "iw"
    for name, text in (("link", LINK), ("info", INFO), ("station", STATION)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    iw.write_text(f'#!/bin/sh\ntest "$1 $2" = "dev wlan0" && cat {tmp_path}/$3\n', encoding="utf-8")
    iw.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    began = time.time()
    with wireless.watch(HOST, "wlan0", tmp_path / "iw.txt") as watch:
        assert len(watch()) == 1
        deadline = time.monotonic() + 60
        while len(watch()) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        (tmp_path / "link").write_text(NOT_CONNECTED, encoding="utf-8")
    states = watch()
    expected = parse(LINK, INFO, STATION)
    assert [msgspec.structs.replace(state, unix_s=1.0) for state in states[:2]] == [expected] * 2
    assert states[-1].bssid is None
    times = [state.unix_s for state in states]
    assert times == sorted(times) and began - 0.1 <= times[0] and times[-1] <= time.time() + 0.1
    assert times[1] - times[0] >= 1.0
    assert wireless.observe(HOST, "wlan0").ssid is None
    with wireless.watch(HOST, "wlan0", tmp_path / "brief.txt", is_brief=True) as watch:
        time.sleep(1.2)
        assert len(watch()) == 1
    assert len(watch()) == 2


def test_without_a_radio_or_iw_nothing_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not wireless.is_wireless(HOST, "lo")
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setattr("harness.hosts.runner.environment", lambda _extra=None: {"PATH": str(tmp_path)})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequirementError, match=r"wlan0 of the initiator is WiFi.*package iw"):
        wireless.observe(HOST, "wlan0")


def states(**changes: object) -> list[WifiState]:
    """Five looks, of which the third is as said."""
    seen = [parse(LINK, INFO, STATION)] * 5
    seen[2] = msgspec.structs.replace(seen[2], **changes)
    return seen


def test_another_association_makes_a_cell_invalid_and_another_rate_or_signal_is_worth_a_warning() -> None:
    before = "the WiFi channel changed: 36 (5180 MHz, 80 MHz wide), then"
    roamed = "WiFi roamed from one access point to another: 02:00:00:00:01:00, then 02:00:00:00:02:00"
    changes: dict[str, dict[str, object]] = {
        "WiFi was not associated in 1 of 5 reports": {"bssid": None},
        roamed: {"bssid": "02:00:00:00:02:00"},
        r"the network (SSID) changed: harness-ab12, then ev\x1bil": {"ssid": "ev\x1bil"},
        f"{before} 40 (5200 MHz, 80 MHz wide)": {"frequency_mhz": 5200.0, "channel": 40},
        f"{before} 36 (5180 MHz, 20 MHz wide)": {"width_mhz": 20},
    }
    for reason, changed in changes.items():
        assert wireless.judge(states(**changed)) == ([reason], [])
    changes = {
        "the WiFi transmit rate went from 6.5 to 26 Mbit/s": {"tx_bit_s": 6.5e6},
        "the WiFi receive rate went from 13 to 866.7 Mbit/s": {"rx_bit_s": 866.7e6},
        "the WiFi signal went from -70 to -27 dBm": {"signal_dbm": -70.0},
    }
    for warning, changed in changes.items():
        assert wireless.judge(states(**changed)) == ([], [warning])
    assert wireless.judge(states()) == ([], [])
    assert wireless.judge(states(tx_bit_s=26e6 * 1.2, rx_bit_s=13e6 / 1.2, signal_dbm=-32.0)) == ([], [])
    assert wireless.judge(states(tx_bit_s=None, rx_bit_s=None, signal_dbm=None)) == ([], [])
    # The rate before and after says nothing, and what was not seen is not proved.
    seen = states()
    seen[0] = seen[-1] = msgspec.structs.replace(seen[0], rx_bit_s=1e6)
    assert wireless.judge(seen) == wireless.judge(seen[:2]) == ([], [])
    assert wireless.judge([]) == (["expected reports on the WiFi association, found none"], [])
