"""fio's bandwidth log: the bandwidth over the time of one measurement, which its JSON does not have.

A job writes it with ``write_bw_log=PREFIX``, ``log_avg_msec=100`` and ``per_job_logs=0``, as
``PREFIX_bw.log``. (fio's ``steadystate`` option would put samples into the JSON, one a second, but ends the
job once the state is steady.) Each line is ``time, value, direction, ...``: ms since the start at the end of
an interval, KiB/s in it, 0 for reads and 1 for writes (fio's HOWTO, "Log File Formats").
"""

from __future__ import annotations

import re

import msgspec

from harness.model.errors import UsageError
from harness.model.units import shown


class Sample(msgspec.Struct, frozen=True):
    """Bandwidth since the previous sample (the first: since the start); ``end_ns`` counts from the start."""

    end_ns: int
    bytes_per_s: float


def interval_ms(job: str) -> int:
    """The ``log_avg_msec`` of a job file; UsageError if it has none."""
    match = re.search(r"^log_avg_msec=([1-9][0-9]{0,8})$", job, re.MULTILINE)
    if match is None:
        raise UsageError("expected log_avg_msec in the job file, found none: the log's intervals are unknown")
    return int(match[1])


def bandwidth(text: str, interval_ms: int) -> list[Sample]:
    """The samples of a log that was made with ``log_avg_msec=interval_ms``, all jobs and directions together.

    fio's first two intervals are longer, and so is one in which nothing is completed until it ends.
    UsageError for a text that is not such a log.
    """
    lines: list[tuple[int, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            time_ms, kib_s, *_ = map(int, line.split(","))
        except ValueError:
            time_ms = kib_s = -1
        if time_ms < 0 or kib_s < 0:
            raise UsageError(
                f"line {number} of fio's log: expected a time and a bandwidth, found {shown(line)}",
                hint="write it with fio's write_bw_log and log_avg_msec",
            )
        lines.append((time_ms, kib_s))
    ends: list[int] = []
    sums: list[int] = []
    for time_ms, kib_s in sorted(lines):
        # Reads, writes and jobs each have a line at the end of an interval, give or take.
        if ends and time_ms - ends[-1] < interval_ms / 2:
            sums[-1] += kib_s
        else:
            ends.append(time_ms)
            sums.append(kib_s)
    return [Sample(1_000_000 * end_ms, 1024.0 * kib_s) for end_ms, kib_s in zip(ends, sums, strict=True)]
