"""WiFi: a station's association as reported by iw(8), and whether it stayed the same during a measurement.

iw has no machine-readable output and says that its text may change. What is not found in it is None.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.hosts import Host
from harness.model import WifiState
from harness.model.errors import RequirementError
from harness.model.escape import printable

# Prints one report on the interface $1. Errors (the interface has gone) are for people who read the file.
_LOOK = """\
look() {
    echo "== at $(date +%s.%N)"
    for what in link info 'station dump'; do
        echo "== $what"
        iw dev "$1" $what 2>&1
    done
}
"""
_LOOK_ONCE = f'{_LOOK}command -v iw >/dev/null || exit 127; look "$1"; exit 0'
INTERVAL_S = 1
"""Time between two of iw's reports."""

# A report is printed as a whole, so that the end does not cut one; the trap ends a sleep at once.
_LOOK_ON = f"""\
{_LOOK}trap 'kill $pause 2>/dev/null; exit 0' TERM
while :; do
    sleep {INTERVAL_S} & pause=$!
    wait $pause
    text=$(look "$1")
    printf '%s\\n' "$text"
done
"""

RATE_CHANGE = 1.25
"""A bit rate that varied by this factor or more is worth a warning; one MCS makes a factor of 1.1 to 2."""

SIGNAL_CHANGE_DB = 6.0
"""A signal that varied by this much or more (a fourth of the power) is worth a warning."""


def is_wireless(host: Host, iface: str) -> bool:
    """Whether an interface belongs to an 802.11 radio (cfg80211 links it to its phy in sysfs)."""
    (number,) = host.read_files([f"/sys/class/net/{iface}/phy80211/index"])
    return bool(number.strip())


def observe(host: Host, iface: str) -> WifiState:
    """The association now. RequirementError if the host has no iw."""
    (state,) = samples(_look(host, iface))
    return state


def _look(host: Host, iface: str) -> str:
    done = host.run(["sh", "-c", _LOOK_ONCE, "sh", iface], check=False)
    if done.status == 127:
        raise RequirementError(
            f"{iface} of the {host.name} is WiFi, but iw is not installed there, "
            "so roaming would go unnoticed",
            hint=f"install the package iw on the {host.name}",
        )
    return done.require_success().stdout


@contextlib.contextmanager
def watch(
    host: Host, iface: str, file: Path, *, is_brief: bool = False
) -> Iterator[Callable[[], list[WifiState]]]:
    """Query an association every second while the context lasts, unless that ``is_brief``, and once before
    and after.

    Yields what reads one state for each report so far; ``file`` keeps them as iw printed them.
    RequirementError if the host has no iw.
    """
    file.write_text(_look(host, iface), encoding="utf-8")
    program = ["sh", "-c", _LOOK_ON, "sh", iface]
    with contextlib.ExitStack() as meanwhile:
        if not is_brief:
            looking = host.daemon(program, log=file, output=file, ready=lambda: True, deadline_s=5)
            meanwhile.enter_context(looking)
        yield lambda: samples(file.read_text(encoding="utf-8", errors="replace"))
    with file.open("a", encoding="utf-8") as end:
        end.write(_look(host, iface))


def samples(text: str) -> list[WifiState]:
    """The states in what ``watch`` wrote, oldest first."""
    return [_state(look) for look in re.split(r"^== at ", text, flags=re.MULTILINE)[1:]]


def _state(look: str) -> WifiState:
    at, *parts = re.split(r"^== .*\n", look, flags=re.MULTILINE)
    link, info, stations = (*parts, "", "", "")[:3]
    return parse(link, info, stations, unix_s=float(at))


def parse(link: str, info: str, stations: str, *, unix_s: float) -> WifiState:
    """A state from what ``iw dev IFACE link``, ``info`` and ``station dump`` printed.

    An access point has no link. Its own BSSID and network count, and the rates of its station if it has just
    one. If ``link`` leaves out a rate or the signal, the station's entry may have it.
    """
    joined = re.search(r"^(?:Connected to|Joined IBSS) (\S+)", link, re.MULTILINE)
    is_access_point = re.search(r"^\s*type AP$", info, re.MULTILINE) is not None
    if joined is None and not is_access_point:
        return WifiState(unix_s=unix_s)
    peers = re.split(r"^Station ", stations, flags=re.MULTILINE)[1:]
    if joined is not None:
        peers = [peer for peer in peers if peer.startswith(joined[1])]
    texts = (link, peers[0] if len(peers) == 1 else "")
    address, ssid = _first(r"^\s*addr (\S+)", info), _first(r"^\s*(?:SSID:|ssid) (.+)$", link, info)
    # Some drivers report 0 dBm for "unknown": nobody receives a milliwatt.
    signal = _first(r"^\s*signal:\s*(-[\d.]+)", *texts)
    frequency_mhz, channel, width_mhz = _channel(link, info)
    rates: dict[str, Any] = {}
    for way in ("tx", "rx"):
        # A driver that reports nonsense gets "(unknown)".
        if rate := _first(rf"^\s*{way} bitrate:\s*([\d.]+) MBit/s *(.*)$", *texts):
            # "VHT-MCS 9 80MHz short GI VHT-NSS 2"; a legacy rate has no mode.
            rates |= {f"{way}_bit_s": round(float(rate[1]) * 1e6), f"{way}_mode": rate[2].strip() or None}
    return WifiState(
        unix_s=unix_s,
        bssid=joined[1] if joined else address and address[1],
        ssid=ssid and _ssid(ssid[1]),
        frequency_mhz=frequency_mhz,
        channel=channel,
        width_mhz=width_mhz,
        signal_dbm=signal and float(signal[1]),
        **rates,
    )


def _first(pattern: str, *texts: str) -> re.Match[str] | None:
    """Where a pattern first matches, in the first of the texts in which it does."""
    found = (re.search(pattern, text, re.MULTILINE) for text in texts)
    return next((match for match in found if match), None)


def _channel(link: str, info: str) -> tuple[float | None, int | None, int | None]:
    """Frequency in MHz, channel and width in MHz.

    A station with several links (802.11be) lists them in any order, and has one channel for each link in use.
    The first of those counts.
    """
    channels = re.findall(r"^\s*channel (\d+) \(([\d.]+) MHz\)(?:, width: (\d+) MHz)?", info, re.MULTILINE)
    frequencies = {float(mhz) for mhz in re.findall(r"^\s*freq: ([\d.]+)", link, re.MULTILINE)}
    for channel, mhz, width in channels:
        if not frequencies or float(mhz) in frequencies:
            return float(mhz), int(channel), int(width) if width else None
    return (frequencies.pop() if len(frequencies) == 1 else None), None, None


def _ssid(escaped: str) -> str:
    r"""An SSID from iw's notation (``\xNN`` for all but printable ASCII); unchanged if it is not text."""
    raw = re.sub(
        rb"\\x([0-9a-f]{2})", lambda match: bytes.fromhex(match[1].decode()), escaped.encode("utf-8")
    )
    with contextlib.suppress(UnicodeDecodeError):
        text = raw.decode("utf-8")
        if text.isprintable():
            return text
    return escaped


def judge(states: Sequence[WifiState]) -> tuple[list[str], list[str]]:
    """What makes a measurement invalid (reasons), and what a reader should know (warnings).

    ``states`` are those of a ``watch``. For rates and signal only those in the middle count: before and
    after, the last frame may have been a beacon.
    """
    if not states:
        return ["expected reports on the WiFi association, found none"], []
    gone = sum(state.bssid is None for state in states)
    if gone:
        return [f"WiFi was not associated in {gone} of {len(states)} reports"], []
    reasons = []
    for what, values in (
        ("WiFi roamed from one access point to another", [state.bssid for state in states]),
        ("the network (SSID) changed", [state.ssid for state in states]),
        ("the WiFi channel changed", [_channel_words(state) for state in states]),
    ):
        seen = list(dict.fromkeys(values))
        if len(seen) > 1:
            reasons.append(f"{what}: {', then '.join(printable(str(value)) for value in seen)}")
    during = states[1:-1] or states[-1:]
    warnings = []
    for name, rates in (
        ("transmit", [state.tx_bit_s for state in during]),
        ("receive", [state.rx_bit_s for state in during]),
    ):
        known = [rate / 1e6 for rate in rates if rate is not None]
        if known and max(known) >= min(known) * RATE_CHANGE:
            warnings.append(f"the WiFi {name} rate went from {min(known):g} to {max(known):g} Mbit/s")
    signals = [state.signal_dbm for state in during if state.signal_dbm is not None]
    if signals and max(signals) - min(signals) >= SIGNAL_CHANGE_DB:
        warnings.append(f"the WiFi signal went from {min(signals):g} to {max(signals):g} dBm")
    return reasons, warnings


def _channel_words(state: WifiState) -> str:
    width = f", {state.width_mhz} MHz wide" if state.width_mhz is not None else ""
    return f"{state.channel} ({state.frequency_mhz:g} MHz{width})" if state.frequency_mhz else "unknown"
