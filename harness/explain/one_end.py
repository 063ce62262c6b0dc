"""What the target takes of an I/O's time where only this end was watched: by elimination.

At depth 1 it is what the path and this end's core leave. At greater depths a resource of the target is full,
if none that is known comes near, and more in flight than one I/O alone explains does not help.

Its disk and its processor have no counters here. But a processor, and whatever is slow on the way, works
alike for the same bytes, wherever they lie. So what was quicker with as much for another cell of the column
is not what limits this one, and only the disk is left (the demand law: Lazowska et al., Quantitative System
Performance, chapter 3). And a command without data costs the target's processor, but not its disk.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.analysis.interval import Interval
from harness.analysis.limit import Limit
from harness.analysis.path_demands import Demands
from harness.analysis.reread import MEDIUM_NS
from harness.explain.evidence import Evidence
from harness.explain.verdict import NEAR
from harness.explain.waterfall import MODEL

NO_QUICKER = 0.9
"""The part of the time that is left of a resource that is not full: at least two I/Os are served in turn."""

LITTLE = 0.1
"""Without its bytes, a processor works about as long for a read as for a command without data, hardly ten
times that."""

HALF = 0.5
"""What took at most this part of the time for as much cannot be what takes most of it."""


def with_targets(found: Sequence[Evidence]) -> list[Evidence]:
    """The same, with the target's time in cells of which only this end was watched."""
    return [_with_target(each, _alike(each, found)) if each.is_one_end else each for each in found]


def _alike(cell: Evidence, found: Sequence[Evidence]) -> list[Evidence]:
    """The cells of its column that move data in its direction, itself included."""
    return [
        each
        for each in found
        if (each.key, each.direction) == (cell.key, cell.direction) and each.time_ns and each.block_bytes
    ]


def _with_target(cell: Evidence, alike: Sequence[Evidence]) -> Evidence:
    if cell.path is None or cell.time_ns is None or not cell.depth or not cell.block_bytes:
        return cell
    same = [e for e in alike if (e.block_bytes, e.is_random) == (cell.block_bytes, cell.is_random)]
    of_alone = next((e for e in same if e.depth == 1), None)
    alone = _left(of_alone, _way_ns(of_alone, alike)) if of_alone is not None else None
    is_full_alone = cell.depth == 1 and any(
        e.time_ns.low >= NO_QUICKER * cell.time_ns.high for e in same if e.time_ns and (e.depth or 1) > 1
    )
    is_alone, is_shown = cell.depth == 1 and not is_full_alone, _is_disk(cell, alike)
    by_command = _by_command(cell, of_alone, alone, alike)
    # If both are shown, one of them was measured wrong.
    limit = (by_command or "") if not is_shown else "" if by_command is Limit.CPU else Limit.DEVICE
    return msgspec.structs.replace(
        cell,
        device_ns=alone if is_alone else _full(cell, cell.path, alone, alike),
        device_alone_ns=alone,
        is_full_alone=is_full_alone,
        limit_of_target=limit,
        is_target_shown=is_shown and limit is Limit.DEVICE,
    )


def _left(cell: Evidence, way_ns: float) -> Interval | None:
    """What is left of one I/O's time at depth 1, of which the way may take so much. None if that may be
    nothing."""
    time_ns, path, core = cell.time_ns, cell.path, _core(cell)
    if time_ns is None or path is None:
        return None
    unknown_ns = max(0.0, way_ns - path.link_ns - path.transport_ns)
    low = time_ns.low - path.alone_ns * (1 + MODEL) - core.high - unknown_ns
    mid, high = time_ns.mid - path.alone_ns - core.mid, time_ns.high - path.alone_ns * (1 - MODEL) - core.low
    return Interval(max(0.0, low), max(0.0, low, mid), high) if high > 0 else None


def _full(
    cell: Evidence, path: Demands, alone: Interval | None, alike: Sequence[Evidence]
) -> Interval | None:
    """How long one I/O occupies what is full at the target; None if something else may be."""
    time_ns, depth = cell.time_ns, cell.depth
    assert time_ns is not None and depth is not None  # noqa: S101 -- ``_with_target``
    known_ns = max(path.busy_ns, path.window_each_ns, _core(cell).high, _way_ns(cell, alike))
    by_depth_ns = 0.0 if alone is None or depth == 1 else (path.alone_ns + alone.high) / depth
    return None if max(known_ns, by_depth_ns) >= NEAR * time_ns.low else time_ns


def _core(cell: Evidence) -> Interval:
    """How long this end's busiest core works for one I/O; nothing in virtual time."""
    busy, time_ns = cell.busy, cell.time_ns
    if busy is None or time_ns is None:
        return Interval(0.0, 0.0, 0.0)
    return Interval(busy.low * time_ns.low, busy.mid * time_ns.mid, busy.high * time_ns.high)


def _way_ns(cell: Evidence, alike: Sequence[Evidence]) -> float:
    """The most that the way takes for the bytes of one I/O, however narrow it is where this end does not see
    it."""
    return _each_byte_ns(alike) * (cell.block_bytes or 0)


def _each_byte_ns(alike: Sequence[Evidence]) -> float:
    """The most that anything but the command itself takes for a byte: as long as in the quickest cell, and
    no longer than what the largest random read, alone, takes beyond the smallest, or one TCP stream took."""
    found = [(e.block_bytes, e.time_ns, e) for e in alike if e.time_ns and e.block_bytes]
    each_ns = min(time_ns.high / block_bytes for block_bytes, time_ns, _ in found)
    each_ns = min([each_ns, *(1e3 / e.stream_mb_s for _, _, e in found if e.stream_mb_s)])
    alone = [
        (size, time) for size, time, e in found if e.is_random and e.depth == 1 and e.direction == "read"
    ]
    if not alone:
        return each_ns
    least, quick = min(alone, key=lambda each: each[0])
    most, slow = max(alone, key=lambda each: each[0])
    return min(each_ns, max(0.0, slow.high - quick.low) / (most - least)) if most > least else each_ns


def _is_disk(cell: Evidence, alike: Sequence[Evidence]) -> bool:
    """Whether as many bytes or more went through everything but the disk in at most half of the time, with
    no more in flight."""
    time_ns, depth, block_bytes = cell.time_ns, cell.depth, cell.block_bytes
    assert time_ns is not None and depth and block_bytes  # noqa: S101 -- ``_with_target``
    if cell.first_ns is not None:
        return False
    return any(
        each.time_ns.high <= HALF * time_ns.low
        for each in alike
        # Neighbours that are queued become one command, which takes a processor less.
        if each.time_ns and (each.depth == 1 or (each.is_random and (each.depth or depth + 1) <= depth))
        if (each.block_bytes or 0) >= block_bytes
    )


def _by_command(
    cell: Evidence, of_alone: Evidence | None, alone: Interval | None, alike: Sequence[Evidence]
) -> Limit | None:
    """What of the target limits, by what it takes for a command that moves no data and reaches no disk; None
    if that does not tell. ``alone`` is what the target takes of one such I/O alone.

    The disk, if most of the time is neither the bytes' nor what a processor may take. The processor, if the
    command alone takes as long as half of what one I/O leaves; in deeper queues also if the disk cannot be
    what is full.
    """
    command, trip, time_ns = cell.command_ns, cell.rtt_ns, cell.time_ns
    if command is None or trip is None or time_ns is None or cell.first_ns is not None:
        return None
    if command.high < HALF * trip.high:
        return None  # It goes there and back as well, so other programs had the processor.
    each_byte_ns, is_deep = _each_byte_ns(alike), cell.depth != 1
    bytes_ns = each_byte_ns * (cell.block_bytes or 0)
    without = _left(cell, bytes_ns)
    low = time_ns.low - bytes_ns if is_deep else without.low if without else 0.0
    high = time_ns.high if is_deep else without.high if without else 0.0
    if low > 0 and low >= HALF * high and command.high - trip.low <= LITTLE * low:
        return Limit.DEVICE
    if of_alone is None or alone is None:
        return None
    least_ns = command.low - trip.high - _core(of_alone).high - each_byte_ns * cell.command_bytes
    if least_ns < max(MEDIUM_NS, HALF * alone.high):
        return None
    return None if is_deep and alone.high - least_ns > NEAR * time_ns.low else Limit.CPU
