"""Bandwidth over the time of a measurement: fio's own log, which stands beside its output.

Not of several initiators at once (fio's client writes what comes from servers under names of its own), and not
in virtual time, where nothing may be done that a run without it would not do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from harness import results, stats, steady
from harness.errors import HarnessError
from harness.model import Record, Status
from harness.parse import fiolog
from harness.parse.fiolog import Sample
from harness.steady import SteadyState

LOG = "bw.log"
"""Its name in the folder of a cell's raw outputs."""

NOT_STEADY = (
    "not steady: in five parts of the measurement, bandwidth differs by more than 20 % of its mean or "
    "rises or falls by more than 10 % (SNIA PTS)"
)
WARMING_UP = (
    "warming up: bandwidth was steady (SNIA PTS) in the last five seconds, but not over the whole "
    "measurement; give the workload a ramp_time"
)

ROUND_S = 1.0
"""The least time of one of the five rounds: in a shorter one a few slow I/Os count for too much."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The bandwidth of a cell: at each time (s since the start) the median of its ``repeats``, in bytes/s.

    ``low`` and ``high`` are the lowest and the highest repeat there. ``state`` is that of the median in five
    equal parts, and ``settled_s`` the time until five rounds of a second in a row were steady. Both are
    None for less than five seconds, and ``settled_s`` if there were no such rounds.
    """

    repeats: int
    end_s: Sequence[float]
    median: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    state: SteadyState | None
    settled_s: float | None


def doubts(samples: Sequence[Sample]) -> tuple[str, ...]:
    """``NOT_STEADY`` or ``WARMING_UP``; nothing of a measurement that is too short to tell (5 s)."""
    rates = [sample.bytes_per_s for sample in samples]
    rounds = _rounds(rates, samples[-1].end_ns / 1e9 if samples else 0.0)
    if not any(rounds) or steady.assess(steady.in_rounds(rates)).attained:
        return ()
    settled = len(rounds) > steady.WINDOW and any(rounds[-steady.WINDOW :]) and steady.assess(rounds).attained
    return (WARMING_UP if settled else NOT_STEADY,)


def _rounds(rates: Sequence[float], seconds: float) -> list[float]:
    """Means of ``ROUND_S`` or a little more; none if there would be too few of them, or of samples in them."""
    # fio's last interval ends a moment before the time that was asked for.
    count = min(int(1.01 * seconds / ROUND_S), len(rates))
    return steady.in_rounds(rates, count) if count >= steady.WINDOW else []


def of_cell(records: Iterable[Record], folders: Mapping[str, Path]) -> Course | None:
    """The logs of all repeats that are ``ok``, as far as they go together; None if there is none.

    ``folders`` are those of the runs, by run id.
    """
    found = [
        samples for record in records if record.status is Status.OK and (samples := _of(record, folders))
    ]
    count = min(map(len, found), default=0)
    if not count:
        return None
    # fio's intervals are the same for each repeat, to a millisecond; the last one may be missing.
    at_once = [[samples[place].bytes_per_s for samples in found] for place in range(count)]
    median = [stats.median(rates) for rates in at_once]
    end_s = [stats.median([samples[place].end_ns / 1e9 for samples in found]) for place in range(count)]
    rounds = _rounds(median, end_s[-1])
    settled = steady.settled_after(rounds)
    return Course(
        repeats=len(found),
        end_s=end_s,
        median=median,
        low=[min(rates) for rates in at_once],
        high=[max(rates) for rates in at_once],
        state=steady.assess(steady.in_rounds(median)) if any(rounds) else None,
        settled_s=None if settled is None else settled * end_s[-1] / len(rounds),
    )


def _of(record: Record, folders: Mapping[str, Path]) -> list[Sample]:
    """Nothing if it has no log, or what it has is none: a picture is left out, and the record stands."""
    log = results.raw_file(record, folders, LOG)
    job = results.raw_file(record, folders, "job.fio")
    if log is None or job is None:
        return []
    try:
        interval_ms = fiolog.interval_ms(job.read_text(encoding="utf-8", errors="replace"))
        return fiolog.bandwidth(log.read_text(encoding="utf-8", errors="replace"), interval_ms)
    except (OSError, HarnessError):
        return []
