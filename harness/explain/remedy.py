"""What would help, and how fast a cell would then be: the same bounds with one thing changed.

This is an upper limit: the unexplained part stays as it is, and nothing new gets in the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec

from harness.explain.waterfall import Reading
from harness.model import ISCSI
from harness.model.units import format_size
from harness.storage import transports

DEEPEST = 32
"""The queue depth that open-iscsi gives a disk (node.session.queue_depth)."""

ENOUGH = 1.05
"""A depth suffices if a deeper queue would gain no more than this factor."""

HALVED = {
    "device": (0.5, "a device that takes half the time"),
    "link": (0.5, "a link of twice the rate"),
    "transport": (0.0, "no R2T and no headers (at best: {})"),
    "framing": (0.0, "no headers of its own (at best: larger frames)"),
    "crypto": (0.5, "a cipher that takes half the time"),
    "cpu": (0.5, "a core twice as fast"),
}
"""By limit: the part of it that remains, and the change in words, with room for the transport's own."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed, the time per I/O after it, and how that was computed."""

    what: str
    time_ns: float
    how: str


def less(
    reading: Reading, parts: Mapping[str, float], names: Set[str], limit: str, transport: str | None
) -> Change:
    """With the limiting parts halved or removed."""
    factor, what = HALVED[limit]
    scale = {name: factor if name in names else 1.0 for name in (*parts, "device", "link", "window")}
    how = "all other parts unchanged" if reading.depth == 1 else "up to the next bound"
    what = what.format(transports.named(transport or ISCSI).remedy)
    return Change(what=what, time_ns=_least_ns(reading, parts, reading.depth, scale), how=how)


def deeper(reading: Reading, parts: Mapping[str, float]) -> Change | None:
    """The smallest power of two beyond which a deeper queue gains almost nothing."""
    at = {
        depth: _least_ns(reading, parts, depth, {})
        for depth in (2, 4, 8, 16, DEEPEST)
        if depth > reading.depth
    }
    if not at:
        return None
    best = min(at.values())
    depth = next(depth for depth, time_ns in at.items() if time_ns <= ENOUGH * best)
    one_us = _alone_ns(reading, parts) / 1000
    how = f"the longer of {one_us:.0f} us / {depth} and the busiest resource's time"
    return Change(what=f"queue depth {depth}", time_ns=at[depth], how=how)


def wider_window(reading: Reading, parts: Mapping[str, float]) -> Change | None:
    """With a window that holds bandwidth times delay (RFC 6349, section 3.1), or all that is sent at once."""
    path = reading.path
    if path is None or path.window_bytes is None or not path.busy_ns:
        return None
    # A window's bytes per round trip, and the window that would let through as much as the link.
    wanted = path.window_bytes * path.window_each_ns / path.busy_ns
    what = f"a TCP window of {format_size(max(wanted, path.mss_bytes))}"
    time_ns = _least_ns(reading, parts, reading.depth, {"window": 0.0})
    return Change(what=what, time_ns=time_ns, how="rate times round trip (RFC 6349), all else unchanged")


def _alone_ns(reading: Reading, parts: Mapping[str, float]) -> float:
    """The time of a single I/O; at depth 1 with the unexplained part."""
    return sum(part for name, part in parts.items() if name != "rest" or reading.depth == 1)


def _least_ns(reading: Reading, parts: Mapping[str, float], depth: int, scale: Mapping[str, float]) -> float:
    """The least time per I/O at a depth, with parts and resources scaled.

    The unexplained part counts as the work of one more resource that serves one I/O at a time.
    """
    changed = {name: part * scale.get(name, 1.0) for name, part in parts.items()}
    work = changed.get("cpu", 0.0) + changed.get("crypto", 0.0)
    if reading.depth == 1:
        work += max(0.0, changed.get("rest", 0.0))
    resources = [_alone_ns(reading, changed) / depth, work]
    if reading.device_ns is not None:
        resources.append(reading.device_ns * scale.get("device", 1.0))
    if reading.path is not None:
        resources.append(reading.path.busy_ns * scale.get("link", 1.0))
        resources.append(reading.path.window_each_ns * scale.get("window", 1.0))
    return max(resources)
