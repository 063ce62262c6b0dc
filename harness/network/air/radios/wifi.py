"""Real 802.11: mac80211 over simulated radios, hostapd as access point, wpa_supplicant as station.

mac80211_hwsim hands frames from radio to radio. Everything above the radio is the kernel's own: beacons,
scanning, authentication, association, the four-way handshake, CCMP on every frame, acknowledgements to
nl80211. It does not model airtime: a frame takes no time, at whatever rate. So the link profile says how much
airtime there is, and ``share_airtime`` makes both directions wait for it. It needs the custom kernel.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.hosts import Daemon, Host, programs, runner
from harness.hosts.faults import Killed
from harness.hosts.journal import Breaks, Resource
from harness.hosts.undo import UndoStep
from harness.model import AirProof, Security, Standard
from harness.model.errors import CommandFailed, DeviceRefused
from harness.network import links
from harness.network.links import LinkPath, LinkPlace, NetworkNamespace

MODULE = "mac80211_hwsim"
DEADLINE_S = 20
"""How long an access point may take to send beacons, and a station to associate."""

REGULATORY_DOMAIN = "US"
"""Where the simulated radios are: a country that allows the 5 GHz channels below without radar detection."""

CIPHER = "CCMP"

HEADER_BYTES = 44
"""IEEE Std 802.11, 9.3.2.1: QoS data 26, CCMP 8, LLC/SNAP 8 and 2 to align them; they replace Ethernet's
header."""

HEAD_BYTES, QOS_BYTES = 24, 26
"""IEEE Std 802.11, 9.3.2.1: of a data frame without and with QoS, up to LLC."""

KEY_EXCHANGE = b"\xaa\xaa\x03\0\0\0\x88\x8e"
"""LLC/SNAP of EAPOL: who associates agrees on keys in clear."""

PCAP_HEADER_BYTES = 24
SAMPLING = 16
"""The sniffer keeps one encrypted frame in this many."""

ENOUGH_FRAMES = 32
"""How many samples must be expected before their absence proves something."""


CHANNELS: dict[Standard, tuple[int, str]] = {
    "802.11n": (2437, "hw_mode=g\nchannel=6\n"),
    "802.11ac": (
        5180,
        "hw_mode=a\nchannel=36\nht_capab=[HT40+][SHORT-GI-40]\nieee80211ac=1\n"
        "vht_capab=[SHORT-GI-80]\nvht_oper_chwidth=1\nvht_oper_centr_freq_seg0_idx=42\n",
    ),
    "802.11ax": (
        5180,
        "hw_mode=a\nchannel=36\nht_capab=[HT40+][SHORT-GI-40]\nieee80211ac=1\nieee80211ax=1\n"
        "vht_oper_chwidth=1\nvht_oper_centr_freq_seg0_idx=42\n"
        "he_oper_chwidth=1\nhe_oper_centr_freq_seg0_idx=42\n",
    ),
}
"""Primary frequency in MHz, and its lines in hostapd.conf(5): 20 MHz at 2.4 GHz, 80 MHz at 5 GHz."""

ACCESS_POINT = {
    Security.OPEN: "",
    Security.WPA2: "wpa=2\nwpa_key_mgmt=WPA-PSK\nrsn_pairwise=CCMP\nwpa_psk={}\n",
    Security.WPA3: "wpa=2\nwpa_key_mgmt=SAE\nrsn_pairwise=CCMP\nieee80211w=2\nsae_password={}\n",
}
"""Lines of hostapd.conf(5) with the secret. 64 hexadecimal digits are the key itself, so no passphrase has to
be stretched."""

STATION = {
    Security.OPEN: "key_mgmt=NONE\n",
    Security.WPA2: "key_mgmt=WPA-PSK\nproto=RSN\npairwise=CCMP\ngroup=CCMP\npsk={}\n",
    Security.WPA3: 'key_mgmt=SAE\nproto=RSN\npairwise=CCMP\ngroup=CCMP\nieee80211w=2\nsae_password="{}"\n',
}
"""The same in a network of wpa_supplicant.conf(5)."""

AGREED = {Security.WPA2: "WPA2-PSK", Security.WPA3: "SAE", Security.OPEN: "NONE"}
"""The same in wpa_cli(8)'s words for an association."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """What both ends of a wireless network must know. The secret is new for each network and kept out of
    sight."""

    ssid: str
    standard: Standard
    security: Security
    secret: str = field(repr=False, default_factory=lambda: secrets.token_hex(32))

    @property
    def frequency_mhz(self) -> int:
        return CHANNELS[self.standard][0]

    def access_point_conf(self, iface: str, control: Path) -> str:
        """hostapd.conf(5)."""
        return (
            f"interface={iface}\ndriver=nl80211\nctrl_interface={control}\nssid={self.ssid}\n"
            f"country_code={REGULATORY_DOMAIN}\nwmm_enabled=1\nieee80211n=1\n{CHANNELS[self.standard][1]}"
            + ACCESS_POINT[self.security].format(self.secret)
        )

    def station_conf(self, control: Path) -> str:
        """wpa_supplicant.conf(5)."""
        return (
            f"ctrl_interface={control}\ncountry={REGULATORY_DOMAIN}\nnetwork={{\n"
            f'ssid="{self.ssid}"\nscan_freq={self.frequency_mhz}\n'
            f"{STATION[self.security].format(self.secret)}}}\n"
        )


class WifiAssociation(msgspec.Struct, frozen=True, kw_only=True):
    """What a station and its access point agreed on, as reported by wpa_supplicant.

    ``cipher`` protects data between the two, ``group_cipher`` broadcasts; both are NONE in an open network.
    ``generation`` is the Wi-Fi Alliance's number: 4 is 802.11n, 5 ac, 6 ax.
    """

    ssid: str = ""
    bssid: str = ""
    frequency_mhz: int = 0
    key_management: str = ""
    cipher: str = ""
    group_cipher: str = ""
    generation: int | None = None
    management_frames_protected: bool = False


REPORTED = {
    "ssid": "ssid",
    "bssid": "bssid",
    "freq": "frequency_mhz",
    "key_mgmt": "key_management",
    "pairwise_cipher": "cipher",
    "group_cipher": "group_cipher",
    "wifi_generation": "generation",
}
"""What ``wpa_cli status`` calls them."""


class Radios(msgspec.Struct, frozen=True):
    """Radios of mac80211_hwsim, all on one medium; refused if somebody already uses the module."""

    count: int

    def acquire(self, host: Host) -> None:
        # --first-time: it is also a failure if the module is loaded already.
        done = host.run(["modprobe", "--first-time", MODULE, f"radios={self.count}"], check=False)
        if done.status != 0:
            raise DeviceRefused(
                f"the simulated radios of {MODULE} could not be made: {done.stderr.strip()}",
                hint="real WiFi needs the custom kernel: make lab-kernel",
            )
        # Access points may not use 5 GHz until the country is known.
        host.run(["iw", "reg", "set", REGULATORY_DOMAIN])

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("modprobe", "-r", MODULE)),)


def place_radio(host: Host, number: int, iface: str, netns: str | None) -> None:
    """Move the ``number``-th radio (from 0) to a network namespace, and name its interface ``iface``.

    It comes back by itself when that namespace is removed.
    """
    # The number is the fifth byte (mac80211_hwsim_new_radio()).
    address = f"02:00:00:00:{number:02x}:00"
    script = 'grep -lFx -- "$1" /sys/class/net/*/address'
    found: list[str] = []

    def is_here() -> bool:
        # The kernel brings it back from the namespace of a column that was taken down, some time later.
        found[:] = host.run(["sh", "-c", script, "sh", address], check=False).stdout.split("/")[4:5]
        return bool(found)

    what = f"radio {number} of {MODULE} to be free"
    runner.await_condition(is_here, deadline_s=DEADLINE_S, what=what, interval_s=0.1)
    # It may still have the addresses and the queue of an earlier column; with the link down nothing else
    # stays.
    host.run(["ip", "-batch", "-"], input=f"link set dev {found[0]} down\naddress flush dev {found[0]}\n")
    host.run(["tc", "qdisc", "del", "dev", found[0], "root"], check=False)
    if found[0] != iface:
        host.run(["ip", "link", "set", "dev", found[0], "name", iface])
    if netns is not None:
        phy = host.run(["cat", f"/sys/class/net/{iface}/phy80211/name"]).stdout.strip()
        host.run(["iw", "phy", phy, "set", "netns", "name", netns])


@contextlib.contextmanager
def access_point(host: Host, iface: str, network: Network, *, folder: Path, log: Path) -> Iterator[Daemon]:
    """Keep hostapd running on an interface, sending beacons while the context lasts.

    ``folder`` is private, for the secret and the control socket; ``log`` gets hostapd's output.
    """
    host.write_secret(folder / "hostapd.conf", network.access_point_conf(iface, folder / "hostapd"))

    def enabled() -> bool:
        done = host.run(["hostapd_cli", "-p", str(folder / "hostapd"), "-i", iface, "status"], check=False)
        return "state=ENABLED" in done.stdout.splitlines()

    with host.daemon(
        ["hostapd", "-t", str(folder / "hostapd.conf")], log=log, ready=enabled, deadline_s=DEADLINE_S
    ) as daemon:
        yield daemon


@contextlib.contextmanager
def station(
    host: Host, iface: str, network: Network, *, folder: Path, log: Path
) -> Iterator[WifiAssociation]:
    """Keep wpa_supplicant running on an interface, associated; yields what was agreed on.

    CommandFailed if it is not associated in time, or not with the network and the cipher that were asked for.
    """
    host.write_secret(folder / "wpa_supplicant.conf", network.station_conf(folder / "wpa_supplicant"))
    ask = ["wpa_cli", "-p", str(folder / "wpa_supplicant"), "-i", iface, "status"]

    def associated() -> bool:
        return "wpa_state=COMPLETED" in host.run(ask, check=False).stdout.splitlines()

    argv = ["wpa_supplicant", "-t", "-D", "nl80211", "-i", iface, "-c", str(folder / "wpa_supplicant.conf")]
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(host.daemon(argv, log=log, ready=associated, deadline_s=DEADLINE_S))
        except CommandFailed as error:
            raise CommandFailed(
                f"expected {iface} to associate with {network.ssid} within {DEADLINE_S} s: "
                f"{runner.tail(log)}",
                hint="see its log, and hostapd's next to it",
            ) from error
        found = parse_association(host.run(ask).stdout)
        require_agreed(found, network)
        yield found


def parse_association(text: str) -> WifiAssociation:
    """Read the output of ``wpa_cli status`` (lines ``key=value``) of an associated station."""
    reported = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    fields = {field: reported[name] for name, field in REPORTED.items() if reported.get(name)}
    found = msgspec.convert(fields, WifiAssociation, strict=False)
    return msgspec.structs.replace(found, management_frames_protected=reported.get("pmf", "0") != "0")


def require_agreed(found: WifiAssociation, network: Network) -> None:
    """CommandFailed if the ends agreed on anything other than what was asked for."""
    cipher = "NONE" if network.security is Security.OPEN else CIPHER
    wanted = f"{network.ssid}, {network.frequency_mhz} MHz, {AGREED[network.security]}, {cipher}"
    agreed = f"{found.ssid}, {found.frequency_mhz} MHz, {found.key_management}, {found.cipher}"
    if agreed != wanted:
        raise CommandFailed(f"expected an association with {wanted}, found {agreed}")


class Reassociation(msgspec.Struct, frozen=True):
    """A station that associates and agrees on keys anew, as when it roams; ``control`` is wpa_supplicant's
    folder."""

    iface: str
    control: str

    def acquire(self, host: Host) -> None:
        host.run(["wpa_cli", "-p", self.control, "-i", self.iface, "reassociate"])

    def undo(self) -> tuple[UndoStep, ...]:
        """Nothing to do: it is associated again."""
        return ()


class OutOfRange(msgspec.Struct, frozen=True):
    """Radios that do not hear each other, while a program says so; it ends with ``running``."""

    log: Path
    running: contextlib.ExitStack

    def acquire(self, host: Host) -> None:
        argv = [programs.PYTHON, "-I", "-S", "-c", programs.source(__package__, "out_of_range")]
        program = host.daemon(argv, log=self.log, ready=self._is_ready, deadline_s=DEADLINE_S)
        self.running.enter_context(program)

    def _is_ready(self) -> bool:
        return "registered" in self.log.read_text(encoding="utf-8", errors="replace")

    def restore(self) -> None:
        self.running.close()

    def undo(self) -> tuple[UndoStep, ...]:
        """Nothing to do: the kernel notices that the program has ended."""
        return ()


@contextlib.contextmanager
def bring_up(
    place: LinkPlace, network: Network, *, folder: Path, logs: Path, first_radio: int = 0
) -> Iterator[tuple[LinkPath, WifiAssociation, Mapping[str, tuple[Host, Resource]]]]:
    """Build a link on the radio ``first_radio`` (the station's) and the next one.

    The caller must hold the radios as long. Yields what ``links.bring_up`` does, what the ends agreed on, and
    what can break it (``AirPath.breaks``). ``folder`` is private; ``logs`` gets the output of hostapd and
    wpa_supplicant.
    """
    path, host = place.path(), place.initiator
    with contextlib.ExitStack() as stack:
        stack.enter_context(place.journal.hold(host, NetworkNamespace(place.netns)))
        place_radio(host, first_radio, path.initiator_iface, None)
        place_radio(host, first_radio + 1, path.target_iface, place.netns)
        # Only now: an earlier column leaves its route until its radio is placed.
        links.refuse_used_network(host, place.index, path.ip)
        for _, end, iface, _, _ in links.ends(path):
            end.run(["ip", "link", "set", "dev", iface, "mtu", str(place.profile.mtu_bytes)])

        def start() -> Daemon:
            log = logs / "hostapd.log"
            return stack.enter_context(
                access_point(path.target, path.target_iface, network, folder=folder, log=log)
            )

        hostapd = start()
        log = logs / "wpa_supplicant.log"
        agreed = stack.enter_context(station(host, path.initiator_iface, network, folder=folder, log=log))
        apart = OutOfRange(logs / "out_of_range.log", stack.enter_context(contextlib.ExitStack()))
        breaks: Mapping[str, tuple[Host, Resource]] = {
            "ap-restarted": (path.target, Killed(path.target_iface, hostapd, start)),
            "out-of-range": (host, apart),
            "roam": (host, Reassociation(path.initiator_iface, str(folder / "wpa_supplicant"))),
        }
        yield stack.enter_context(links.ready(place, path)), agreed, breaks


@dataclass(kw_only=True)
class Air:
    """Data frames that were heard: encrypted ones (one in 16 is kept), and those in clear (all are)."""

    protected: int = 0
    clear: int = 0


@dataclass(kw_only=True)
class Sniffer:
    """The growing capture of a third radio, and how far it has been read."""

    file: Path
    _offset: int = PCAP_HEADER_BYTES

    def look(self) -> Air:
        """Count what was heard since the last call: whole records of a pcap, little-endian.

        The radiotap header's length is its third and fourth byte (radiotap.org). The frame control field
        follows; it has the type in its first byte, and Protected Frame as bit 6 of its second (IEEE Std
        802.11-2020, 9.2.4.1).
        """
        with self.file.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        air = Air()
        position = 0
        while position + 16 <= len(data):
            (length,) = struct.unpack_from("<I", data, position + 8)
            if position + 16 + length > len(data):
                break
            (radiotap,) = struct.unpack_from("<H", data, position + 18)
            frame = data[position + 16 + radiotap : position + 16 + length]
            if frame[1] & 0x40:
                air.protected += 1
            elif not frame.startswith(KEY_EXCHANGE, QOS_BYTES if frame[0] & 0x80 else HEAD_BYTES):
                air.clear += 1
            position += 16 + length
        self._offset += position
        return air


def station_bytes(host: Host, iface: str) -> int:
    """What the 802.11 stack of one end counts for the other: bytes sent and received, added up."""
    text = host.run(["iw", "dev", iface, "station", "dump"]).stdout
    return sum(map(int, re.findall(r"^\s*[rt]x bytes:\s*(\d+)", text, re.MULTILINE)))


@dataclass(frozen=True, kw_only=True)
class WifiPath:
    """A link over radios (``air.kind.AirPath``): what its ends agreed on, and the radio that listens."""

    path: LinkPath
    association: WifiAssociation
    listener: Sniffer
    breaks: Breaks = dict
    header_bytes: int = HEADER_BYTES

    def counters(self) -> list[int]:
        """Station bytes at the initiator's and the target's end, up to now."""
        return [station_bytes(host, iface) for _, host, iface, _, _ in links.ends(self.path)]

    @contextlib.contextmanager
    def proved(self) -> Iterator[list[AirProof]]:
        self.listener.look()
        before = self.counters()
        found: list[AirProof] = []
        yield found
        # A station that associates anew is counted anew; all that counts is what is missing then.
        near, far = (max(0, now - was) for was, now in zip(before, self.counters(), strict=True))
        air = self.listener.look()
        found.append(
            AirProof(
                key_management=self.association.key_management,
                cipher=self.association.cipher,
                station_bytes_initiator=near,
                station_bytes_target=far,
                protected_frames_sampled=air.protected,
                clear_frames=air.clear,
                sampling=SAMPLING,
            )
        )

    def judge(self, found: AirProof, moved: int) -> list[str]:
        reasons = [
            f"fio moved {moved} bytes, but the {end}'s station counted only {counted}"
            for end, counted in (
                ("initiator", found.station_bytes_initiator),
                ("target", found.station_bytes_target),
            )
            if counted < moved
        ]
        is_open = found.cipher != CIPHER
        if found.clear_frames and not is_open:
            reasons.append(f"{found.clear_frames} data frames were on the air in clear")
        heard = found.clear_frames if is_open else found.protected_frames_sampled * found.sampling
        if not heard and moved > ENOUGH_FRAMES * found.sampling * self.path.profile.mtu_bytes:
            reasons.append("expected data frames at the monitoring radio, found none")
        return reasons


@contextlib.contextmanager
def sniffer(host: Host, iface: str, frequency_mhz: int, bssid: str, *, file: Path) -> Iterator[Sniffer]:
    """Capture with a monitoring radio: what it cannot decrypt, nobody without the key can.

    Only the network of ``bssid`` counts, because others may share its channel.

    ``iface`` is that radio's (``place_radio``); ``file`` becomes a pcap of IEEE 802.11 with radiotap headers.
    """
    host.run(["ip", "link", "set", "dev", iface, "down"])
    host.run(["iw", "dev", iface, "set", "type", "monitor"])
    host.run(["ip", "link", "set", "dev", iface, "up"])
    host.run(["iw", "dev", iface, "set", "freq", str(frequency_mhz)])
    # Of type data, without the null subtypes, which carry none (IEEE Std 802.11-2020, table 9-1).
    data = "wlan[0] & 0x4c = 0x08"
    # The upper half of byte 22 is the lowest four bits of the sequence number.
    clear, sample = "wlan[1] & 0x40 = 0", "wlan[22] & 0xf0 = 0"
    # Sent to the access point, or by it.
    ours = f"(wlan addr1 {bssid} or wlan addr2 {bssid})"
    with host.daemon(
        ["tcpdump", "-i", iface, "-p", "-n", "-U", "--immediate-mode", "-Z", "root", "-s", "96", "-w", "-"]
        + ["-y", "IEEE802_11_RADIO", f"{data} and {ours} and ({clear} or {sample})"],
        log=file.with_suffix(".log"),
        output=file,
        ready=lambda: file.exists() and file.stat().st_size >= PCAP_HEADER_BYTES,
        deadline_s=DEADLINE_S,
    ):
        yield Sniffer(file=file)
