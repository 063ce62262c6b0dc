"""What figures of links, of their hops, and of what decides there can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from harness.model.errors import UsageError
from harness.model.units import shown

Range = tuple[float, float, str]
"""The least, the most, and the unit."""

RANGES: Mapping[str, Range] = {
    "rate_bit_s": (1_000, 10**12, "bit/s"),
    "delay_us": (0, 60_000_000, "us"),
    "jitter_us": (0, 60_000_000, "us"),
    "loss_percent": (0, 100, "%"),
    "mtu_bytes": (576, 65535, "bytes"),
    "frame_overhead_bytes": (0, 2000, "bytes"),
    # RFC 9293, section 3.7.1: a segment of the default size fits; RFC 7323, section 2.3: the largest.
    "tcp_window_bytes": (536, 2**30, "bytes"),
    "queue_packets": (1, 10**6, "packets"),
    "packet_us": (0, 60_000_000, "us"),
    "cpu_percent": (1, 100, "%"),
}

Refuse = Callable[[str, str, str], UsageError]
"""Returns an error for a key, with a message and a hint; it also names the file."""


def check_ranges(table: msgspec.Struct, refuse: Refuse, within: str = "") -> None:
    """Raise ``refuse``'s error for the first figure that is not in its range; ``within`` names the table."""
    for key, (low, high, unit) in RANGES.items():
        value = getattr(table, key, None)
        # Written so that NaN, which compares false with everything, is also refused.
        if value is not None and not low <= value <= high:
            message = f"expected {f'{key} of ' if within else ''}{low} to {high} {unit}, found "
            raise refuse(
                within or key, f"{message}{shown(str(value))}", "check the unit: it is in the key's name"
            )
