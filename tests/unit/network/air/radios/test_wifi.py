"""WiFi before anything is on the air: what both ends are told, what they agreed on, what a sniffer heard."""

from __future__ import annotations

import signal
import struct
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from harness.hosts.faults import Killed
from harness.hosts.programs.netlink import attribute, attributes
from harness.model import AirProof, Security
from harness.model.errors import CommandFailed, DeviceRefused
from harness.model.ranges import out_of_range
from harness.network.air.radios import wifi
from harness.network.air.radios.programs.out_of_range import lost
from harness.network.air.radios.wifi import Air, Network, Radios, WifiAssociation
from tests.unit.fakes import World
from tests.unit.fakes.paths import link_path

WPA2 = Network(ssid="harness-ab12", standard="802.11n", security=Security.WPA2)
WPA3 = Network(ssid="harness-ab12", standard="802.11ax", security=Security.WPA3)
OPEN = Network(ssid="harness-ab12", standard="802.11ac", security=Security.OPEN)

STATUS = (
    "bssid=02:00:00:00:01:00\nfreq=2437\nssid=harness-ab12\nid=0\nmode=station\nwifi_generation=4\n"
    "pairwise_cipher=CCMP\ngroup_cipher=CCMP\nkey_mgmt=WPA2-PSK\nwpa_state=COMPLETED\n"
    "address=02:00:00:00:00:00\n"
)
"""What wpa_cli of wpa_supplicant 2.10 says of an associated station."""


def test_both_ends_are_reported_the_same_and_wpa3_protects_management_frames() -> None:
    for network in (WPA2, WPA3, OPEN):
        point = network.access_point_conf("htt0", Path("/run/w/hostapd")).splitlines()
        station = network.station_conf(Path("/run/w/wpa_supplicant"))
        assert f"ssid={network.ssid}" in point and f'ssid="{network.ssid}"\n' in station
        assert f"scan_freq={network.frequency_mhz}\n" in station
        protected = network.security is not Security.OPEN
        assert ("rsn_pairwise=CCMP" in point) == ("pairwise=CCMP" in station) == protected
        assert any(network.secret in line for line in point) == (network.secret in station) == protected
        assert any(line.startswith("wpa=") for line in point) == protected
        if network is WPA3:
            assert "ieee80211w=2" in point and "ieee80211w=2\n" in station
    # The secret is fresh and out of sight.
    other = Network(ssid=WPA2.ssid, standard=WPA2.standard, security=WPA2.security)
    assert other.secret != WPA2.secret and len(bytes.fromhex(WPA2.secret)) == 32
    assert WPA2.secret not in repr(WPA2)


def test_an_association_is_read_and_another_than_asked_for_is_refused() -> None:
    network = {"ssid": "harness-ab12", "bssid": "02:00:00:00:01:00", "frequency_mhz": 2437, "generation": 4}
    ciphers = {"key_management": "WPA2-PSK", "cipher": "CCMP", "group_cipher": "CCMP"}
    assert wifi.parse_association(STATUS) == msgspec.convert(network | ciphers, WifiAssociation)
    open_network = STATUS.replace("=CCMP", "=NONE").replace("WPA2-PSK", "NONE") + "pmf=1\n"
    found = wifi.parse_association(open_network)
    assert (found.cipher, found.key_management, found.management_frames_protected) == ("NONE", "NONE", True)
    wifi.require_agreed(wifi.parse_association(STATUS), WPA2)
    for line, other in (
        ("pairwise_cipher=CCMP", "pairwise_cipher=TKIP"),
        ("key_mgmt=WPA2-PSK", "key_mgmt=NONE"),
        ("ssid=harness-ab12", "ssid=the neighbours"),
        ("freq=2437", "freq=2412"),
        (STATUS, "wpa_state=SCANNING\n"),
    ):
        found = wifi.parse_association(STATUS.replace(line, other))
        with pytest.raises(CommandFailed, match="harness-ab12, 2437 MHz, WPA2-PSK, CCMP, found"):
            wifi.require_agreed(found, WPA2)


def test_radios_go_with_their_module_and_those_of_somebody_else_are_left_alone() -> None:
    world, radios = World(), Radios(count=2)
    radios.acquire(world.host("initiator"))
    loaded = ["modprobe --first-time mac80211_hwsim radios=2", "iw reg set US"]
    assert [" ".join(command.argv) for command in world.commands] == loaded
    assert [step.argv for step in radios.undo()] == [("modprobe", "-r", "mac80211_hwsim")]
    world = World(answers=[(("modprobe", "--first-time"), (1, "", "Module already in kernel."))])
    with pytest.raises(DeviceRefused, match="Module already in kernel") as refused:
        radios.acquire(world.host("initiator"))
    assert "make lab-kernel" in (refused.value.hint or "")
    # Each is found by its address and moved.
    address = (("sh", "-c"), (0, "/sys/class/net/wlan3/address\n", ""))
    world = World(answers=[address, (("cat",), (0, "phy7\n", ""))])
    wifi.place_radio(world.host("initiator"), 3, "htt1", "harness-t-1")
    cleared = world.commands[1].input or ""
    asked, *_, renamed, _, moved = [command.argv for command in world.commands]
    assert cleared == "link set dev wlan3 down\naddress flush dev wlan3\n", "a column before may have used it"
    assert asked[-1] == "02:00:00:00:03:00"
    assert renamed == ("ip", "link", "set", "dev", "wlan3", "name", "htt1")
    assert moved == ("iw", "phy", "phy7", "set", "netns", "name", "harness-t-1")


def frame(control: int, *, radiotap_bytes: int = 13, kind: int = 0x88, carries: bytes = b"") -> bytes:
    """A pcap record of one 802.11 frame, its frame control as given: by default data with QoS."""
    captured = struct.pack("<BBH", 0, 0, radiotap_bytes).ljust(radiotap_bytes, b"\0")
    captured += bytes([kind, control]).ljust(26 if kind & 0x80 else 24, b"\0") + carries.ljust(14, b"\0")
    return struct.pack("<IIII", 0, 0, len(captured), len(captured)) + captured


def test_a_capture_is_read_as_it_grows_and_frames_in_clear_are_distinguished(tmp_path: Path) -> None:
    file, header = tmp_path / "air.pcap", b"\0" * wifi.PCAP_HEADER_BYTES
    file.write_bytes(header + frame(0x41)[:20])
    heard = wifi.Sniffer(file=file)
    assert heard.look() == Air()
    data = frame(0x41) + frame(0x01)
    file.write_bytes(header + data)
    assert heard.look() == Air(protected=1, clear=1)
    assert heard.look() == Air()
    file.write_bytes(header + data + frame(0x42, radiotap_bytes=36) + frame(0x02)[:-1])
    assert heard.look() == Air(protected=1)
    assert wifi.Sniffer(file=file).look() == Air(protected=2, clear=1)


def test_keys_are_agreed_on_in_clear(tmp_path: Path) -> None:
    file, header = tmp_path / "air.pcap", b"\0" * wifi.PCAP_HEADER_BYTES
    eapol, ipv4 = wifi.KEY_EXCHANGE, wifi.KEY_EXCHANGE[:6] + b"\x08\0"
    file.write_bytes(header + b"".join(frame(1, kind=kind, carries=eapol) for kind in (0x88, 0x08)))
    assert wifi.Sniffer(file=file).look() == Air()
    file.write_bytes(header + frame(1, carries=ipv4) + frame(1, carries=b"\0\0" + eapol))
    assert wifi.Sniffer(file=file).look() == Air(clear=2)


def proof(initiator: int = 2_000_000, target: int = 2_000_000, **changes: object) -> AirProof:
    whole: dict[str, object] = {"key_management": "WPA2-PSK", "cipher": "CCMP", "sampling": wifi.SAMPLING}
    whole |= {"station_bytes_initiator": initiator, "station_bytes_target": target}
    whole |= {"protected_frames_sampled": 80, "clear_frames": 0}
    return msgspec.convert({**whole, **changes}, AirProof)


def path() -> wifi.WifiPath:
    listener = mock.Mock(spec=wifi.Sniffer, look=lambda: Air())
    return wifi.WifiPath(path=link_path(World()), association=WifiAssociation(), listener=listener)


def test_what_went_through_the_air_is_judged() -> None:
    unheard = ["expected data frames at the monitoring radio"]
    for found, said in (
        (proof(), []),
        (proof(initiator=999_999), ["fio moved 1000000 bytes, but the initiator's station"]),
        (proof(target=0), ["fio moved 1000000 bytes, but the target's station"]),
        (proof(clear_frames=1), ["1 data frames were on the air in clear"]),
        (proof(protected_frames_sampled=0), unheard),
        (proof(cipher="NONE", protected_frames_sampled=0, clear_frames=9), []),
        (proof(cipher="NONE", protected_frames_sampled=0), unheard),
    ):
        for words, reason in zip(said, path().judge(found, 1_000_000), strict=True):
            assert words in reason
    assert path().judge(proof(protected_frames_sampled=0), 4096) == [], "a few may pass unheard"


def test_a_frame_that_nobody_hears_is_told_to_be_lost() -> None:
    """The answer has what the kernel looks for, and no acknowledgement (HWSIM_TX_STAT_ACK: 4)."""
    flags, cookie, rates = struct.pack("=I", 1), struct.pack("=Q", 77), bytes([0, 1, 255, 0] * 2)
    told = {2: bytes(6), 4: flags, 7: rates, 8: cookie}
    frame = b"".join(attribute(kind, value) for kind, value in {**told, 3: b"frame", 19: bytes(4)}.items())
    assert dict(attributes(lost(frame))) == {**told, 6: bytes(4)}


def test_an_access_point_that_is_killed_is_back() -> None:
    daemon, again = mock.Mock(), mock.Mock()
    killed = Killed("wlan0", daemon, again)
    killed.acquire(World().host("target"))
    daemon.signal.assert_called_once_with(signal.SIGKILL)
    killed.restore()
    again.assert_called_once_with()
    assert killed.undo() == ()


def test_a_station_is_counted_in_both_directions_and_anew_when_it_associates_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dump = "Station 02:00:00:00:01:00 (on w)\n\trx bytes:\t100\n\trx packets:\t1\n\ttx bytes:\t20\n"
    world = World(answers=[(("iw", "dev", "w", "station", "dump"), (0, dump, ""))])
    assert wifi.station_bytes(world.host("initiator"), "w") == 120
    counted = iter([[5000, 6000], [10, 7000]])
    monkeypatch.setattr(wifi.WifiPath, "counters", lambda _: next(counted))
    with path().proved() as found:
        pass
    (air,) = found
    assert (air.station_bytes_initiator, air.station_bytes_target) == (0, 1000)
    assert out_of_range(air) is None
