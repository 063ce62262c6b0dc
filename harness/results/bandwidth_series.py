"""Bandwidth over the time of a measurement, from fio's own log next to its output.

There is none with several initiators at once (fio's client writes the servers' logs under names of its own),
and none in virtual time, where writing a log would change the run.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.analysis import disturbance, stats, steady_state
from harness.analysis.steady_state import SteadyState
from harness.model import Record
from harness.model.errors import HarnessError
from harness.model.telemetry import NOT_STEADY, UNSTEADY, WARMING_UP
from harness.parse import fiolog
from harness.parse.files import read_bytes
from harness.parse.fiolog import LogSample

LOG = "bw.log"
"""Its name in the folder of a cell's raw outputs."""

ROUND_S = 1.0
"""The least time of one of the five rounds: in a shorter one, a few slow I/Os count too much."""


class BandwidthSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The bandwidth of a cell in intervals of ``interval_s``: the median of its ``repeats``, in bytes/s.

    ``low`` and ``high`` are the lowest and the highest repeat in each interval. ``fifths`` are the means of
    the median in five equal parts of the time, and ``state`` is their assessment. ``settled_s`` is the time
    until five rounds of a second in a row were steady. The last two are None for less than five seconds;
    ``settled_s`` is also None if there were no such rounds.
    """

    repeats: int
    interval_s: float
    median: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    fifths: Sequence[float]
    state: SteadyState | None
    settled_s: float | None

    def coarser(self, most: int) -> BandwidthSeries:
        """The same in at most so many intervals: means of the median, the lowest and the highest of all in
        one. Those at the end that do not fill one are left out."""
        at_once = -(-len(self.median) // most)
        if at_once <= 1:
            return self
        places = range(0, len(self.median) - at_once + 1, at_once)
        return msgspec.structs.replace(
            self,
            interval_s=self.interval_s * at_once,
            median=[sum(self.median[n : n + at_once]) / at_once for n in places],
            low=[min(self.low[n : n + at_once]) for n in places],
            high=[max(self.high[n : n + at_once]) for n in places],
        )


def parts(samples: Sequence[LogSample], count: int, until_s: float) -> list[float]:
    """Mean bandwidth in each of ``count`` equal parts of the time from the start, in bytes/s.

    fio's intervals vary with how busy the machine was, so the parts are cut out of their running sum.
    """
    times, moved = [0.0], [0.0]
    for sample in samples:
        end_s = sample.end_ns / 1e9
        moved.append(moved[-1] + sample.bytes_per_s * (end_s - times[-1]))
        times.append(end_s)

    def until(time_s: float) -> float:
        place = min(bisect.bisect_left(times, time_s), len(times) - 1)
        if not place or times[place] <= time_s:
            return moved[place]
        share = (time_s - times[place - 1]) / (times[place] - times[place - 1])
        return moved[place - 1] + share * (moved[place] - moved[place - 1])

    edges = [until(until_s * n / count) for n in range(count + 1)]
    return [(after - before) * count / until_s for before, after in itertools.pairwise(edges)]


def doubts(samples: Sequence[LogSample]) -> tuple[str, ...]:
    """``NOT_STEADY`` or ``WARMING_UP``; empty for a measurement that is too short to tell (5 s)."""
    rounds = _rounds(samples)
    if not any(rounds) or _state(samples).attained:
        return ()
    settled = (
        len(rounds) > steady_state.WINDOW
        and any(rounds[-steady_state.WINDOW :])
        and steady_state.assess(rounds).attained
    )
    return (WARMING_UP if settled else NOT_STEADY,)


def of_cell(records: Iterable[Record], folders: Mapping[str, Path]) -> BandwidthSeries | None:
    """The logs of all ok and undisturbed repeats, as far as they match; None if there is none.

    ``folders`` are those of the runs, by run id. The intervals are the longest that fio was asked for, or
    longer, where the logs have less than half as many lines.
    """
    good = disturbance.quiet(records)
    found = [log for record in good if (log := _of(record, folders)) is not None]
    if not found:
        return None
    interval_s = max(interval_ms for interval_ms, _ in found) / 1000
    together_s = min(samples[-1].end_ns for _, samples in found) / 1e9
    # A log may say of two lines that they are years apart.
    most = 2 * max(len(samples) for _, samples in found)
    count = max(1, min(int(1.01 * together_s / interval_s), most))
    curves = [parts(samples, count, together_s) for _, samples in found]
    at_once = list(zip(*curves, strict=True))
    median = [
        LogSample(round(1e9 * together_s * n / count), stats.median(rates))
        for n, rates in enumerate(at_once, 1)
    ]
    rounds = _rounds(median)
    settled = steady_state.settled_after(rounds)
    return BandwidthSeries(
        repeats=len(found),
        interval_s=together_s / count,
        median=[sample.bytes_per_s for sample in median],
        low=[min(rates) for rates in at_once],
        high=[max(rates) for rates in at_once],
        fifths=parts(median, steady_state.WINDOW, together_s),
        state=_state(median) if any(rounds) else None,
        settled_s=None if settled is None else settled * together_s / len(rounds),
    )


def _rounds(samples: Sequence[LogSample]) -> list[float]:
    """Rounds of ``ROUND_S`` or a little more; none if there are too few of them, or too few samples."""
    end_s = samples[-1].end_ns / 1e9 if samples else 0.0
    # fio's last interval ends a moment before the time that it was given.
    count = min(int(1.01 * end_s / ROUND_S), len(samples))
    return parts(samples, count, end_s) if count >= steady_state.WINDOW else []


def _state(samples: Sequence[LogSample]) -> SteadyState:
    return steady_state.assess(parts(samples, steady_state.WINDOW, samples[-1].end_ns / 1e9))


def _of(record: Record, folders: Mapping[str, Path]) -> tuple[int, list[LogSample]] | None:
    """Interval in ms and samples; None without a valid log: then only the picture is missing."""
    from harness.results.raw_files import raw_file  # here, because a run asks its hosts

    log = raw_file(record, folders, LOG)
    job = raw_file(record, folders, "job.fio")
    if log is None or job is None:
        return None
    try:
        texts = (read_bytes(file, follow=False).decode("utf-8", "replace") for file in (log, job))
        interval_ms, samples = of_log(*texts)
    except HarnessError:
        return None
    return (interval_ms, samples) if samples and samples[-1].end_ns else None


def of_log(log: str, job: str) -> tuple[int, list[LogSample]]:
    """Interval in ms and samples of the last measurement in a log, by its job file; UsageError as
    ``fiolog``."""
    interval_ms = fiolog.interval_ms(job)
    return interval_ms, fiolog.bandwidth(log, interval_ms, fiolog.jobs(job))


def judged_anew(record: Record, folder: Path) -> Record:
    """The record of the run in ``folder`` with its doubts about steadiness as its log raises them now.

    Runs of before added up all attempts of a disturbed cell, whose logs were one file.
    """
    found = _of(record, {record.run_id: folder})
    if found is None:
        return record
    others = tuple(warning for warning in record.warnings if warning not in UNSTEADY)
    return msgspec.structs.replace(record, warnings=(*others, *doubts(found[1])))
