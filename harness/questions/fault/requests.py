"""What became of the requests of a load around a fault, from what its generator printed."""

from __future__ import annotations

import bisect
import errno
import math
from collections import Counter
from collections.abc import Iterator

import msgspec

from harness.model.ranges import Count
from harness.model.stalls import Stall

PART = 0.05
"""Throughput is back when no larger part of a second's requests is late."""

SETTLED_NS = 10**9
"""A stall is over when all requests that were due for so long are on time."""


class LoadReport(msgspec.Struct, frozen=True):
    """What ``runs/programs/open_loop.py`` adds to its report: of each request when it was due and its latency
    in ns (-1: it did not end), and its errno. ``lost`` has block, expected and found request."""

    start_ns: Count
    late_ns: Count
    rows: list[tuple[int, int, int]]
    blocks: Count = 0
    lost: list[tuple[int, int, int]] = []
    not_read_back: str | None = None


class LoadOutput(msgspec.Struct, frozen=True):
    """The rest is as fio's."""

    around: LoadReport


def judged(around: LoadReport, *, fault: str, began_ns: int, ended_ns: int) -> Stall:
    """The stall that a fault from ``began_ns`` to ``ended_ns`` after the start was, without messages."""
    rows = around.rows
    before = [latency for due, latency, error in rows if not error and 0 <= latency < began_ns - due]
    late_ns = max([around.late_ns, *before])
    late = [n for n, (_, latency, error) in enumerate(rows) if error or not 0 <= latency <= late_ns]
    failed = [(due + latency, error) for due, latency, error in rows if error and error != errno.EAGAIN]
    names = Counter(errno.errorcode.get(error, str(error)) for _, error in failed)
    # A machine that goes down may be late for a moment before: the longest stall counts.
    stalls = list(_stalls(rows, late))
    began_late_ns, over_ns = max(stalls, key=_length, default=(0, None))
    return Stall(
        fault=fault,
        began_ns=began_ns,
        ended_ns=ended_ns,
        late_ns=late_ns,
        requests=len(rows),
        late=len(late),
        unsent=sum(error == errno.EAGAIN for *_, error in rows),
        longest_ns=max((latency for _, latency, _ in rows), default=0),
        stall_ns=None if over_ns is None else over_ns - began_late_ns,
        over_ns=over_ns,
        back_ns=_back(rows, late),
        errnos={name.lower(): count for name, count in sorted(names.items())},
        first_error_ns=min((at_ns for at_ns, _ in failed), default=None),
        written=around.blocks,
        lost=len(around.lost),
        not_read_back=around.not_read_back,
    )


def _back(rows: list[tuple[int, int, int]], late: list[int]) -> int | None:
    """When throughput was within 5 % again: of no second that began later were more late."""
    last = -1
    for place, number in enumerate(late):
        end = bisect.bisect(rows, (rows[number][0] + SETTLED_NS,))
        if bisect.bisect_left(late, end) - place > PART * (end - number):
            last = number
    if last < 0:
        return None
    on_time = {*range(last + 1, len(rows))} - {*late}
    return next((rows[number][0] + rows[number][1] for number in sorted(on_time)), None)


def _length(stall: tuple[int, int | None]) -> float:
    began_ns, over_ns = stall
    return math.inf if over_ns is None else over_ns - began_ns


def _stalls(rows: list[tuple[int, int, int]], late: list[int]) -> Iterator[tuple[int, int | None]]:
    """When the first late request of each stall was due, and when the first one after it was done that was on
    time, with all others for ``SETTLED_NS``; None if there is none."""
    began_ns: int | None = None
    for place, number in enumerate(late):
        began_ns = rows[number][0] if began_ns is None else began_ns
        after = number + 1
        following = late[place + 1] if place + 1 < len(late) else len(rows)
        if after == following:
            continue
        until = rows[following][0] if following < len(rows) else rows[-1][0]
        # Requests are due at random times, so the last second of a load holds a little less of them.
        if until - rows[after][0] >= SETTLED_NS * 0.9:
            due, latency, _ = rows[after]
            yield began_ns, due + latency
            began_ns = None
    if began_ns is not None:
        yield began_ns, None
