"""The output of ethtool(8) for an interface: text for people, in which much may be missing or "Unknown!"."""

from __future__ import annotations

import re

OFFLOADS = {
    "rx-checksumming": "rx-checksum",
    "tx-checksumming": "tx-checksum",
    "scatter-gather": "sg",
    "tcp-segmentation-offload": "tso",
    "generic-segmentation-offload": "gso",
    "generic-receive-offload": "gro",
    "large-receive-offload": "lro",
    "esp-hw-offload": "esp-hw",
    "tx-esp-segmentation": "esp-tso",
}
"""ethtool(8)'s names of the offloads that a storage link may profit from, and the harness's names."""


def settings(text: str) -> dict[str, object]:
    """``speed_mbit_s`` and ``duplex`` from what ``ethtool IFACE`` printed ("Unknown!" without a link)."""
    speed = re.search(r"^\s*Speed: (\d+)Mb/s", text, re.MULTILINE)
    duplex = re.search(r"^\s*Duplex: (Full|Half)\b", text, re.MULTILINE)
    return {
        **({"speed_mbit_s": int(speed[1])} if speed else {}),
        **({"duplex": duplex[1].lower()} if duplex else {}),
    }


def driver(text: str) -> dict[str, object]:
    """``driver`` and ``firmware`` from what ``ethtool -i IFACE`` printed."""
    lines = dict(re.findall(r"^([\w-]+): *(.*?) *$", text, re.MULTILINE))
    reported = {"driver": lines.get("driver"), "firmware": lines.get("firmware-version")}
    return {name: value for name, value in reported.items() if value not in (None, "", "N/A")}


def offloads(text: str) -> dict[str, str]:
    """The offloads that ``ethtool -k IFACE`` printed, by the harness's names ("on [fixed]" is on)."""
    lines = dict(re.findall(r"^\s*([\w-]+): (on|off)\b", text, re.MULTILINE))
    return {ours: lines[theirs] for theirs, ours in OFFLOADS.items() if theirs in lines}
