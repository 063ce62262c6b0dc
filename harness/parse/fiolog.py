"""fio's bandwidth log: the bandwidth over the time of one measurement, which its JSON does not have.

A job writes it with ``write_bw_log=PREFIX``, ``log_avg_msec=100`` and ``per_job_logs=0``, as
``PREFIX_bw.log``. (fio's ``steadystate`` option would put samples into the JSON, one a second, but ends the
job once the state is steady.) Each line is ``time, value, direction, ...``: ms since the start at the end of
an interval, KiB/s in it, 0 for reads and 1 for writes (fio's HOWTO, "Log File Formats").

With ``per_job_logs=0`` each job appends its lines when it ends, to whatever the file already has. So the file
consists of one block for each job, and a second measurement with the same prefix adds its blocks.
"""

from __future__ import annotations

import re

import msgspec

from harness.model.errors import UsageError
from harness.model.units import LARGEST, shown


class LogSample(msgspec.Struct, frozen=True):
    """Bandwidth since the previous sample (the first: since the start); ``end_ns`` counts from the start."""

    end_ns: int
    bytes_per_s: float


def interval_ms(job: str) -> int:
    """The ``log_avg_msec`` of a job file; UsageError if it has none."""
    match = re.search(r"^log_avg_msec=([1-9][0-9]{0,8})$", job, re.MULTILINE)
    if match is None:
        raise UsageError("expected log_avg_msec in the job file, found none: the log's intervals are unknown")
    return int(match[1])


def jobs(job: str) -> int:
    """How many jobs a job file of one section starts (``numjobs``)."""
    match = re.search(r"^numjobs=([1-9][0-9]{0,3})$", job, re.MULTILINE)
    return int(match[1]) if match else 1


def bandwidth(text: str, interval_ms: int, jobs: int = 1) -> list[LogSample]:
    """The samples of a log that was made with ``log_avg_msec=interval_ms``, all directions of ``jobs`` jobs
    together. If the log has more blocks than jobs, those of earlier measurements are left out.

    fio's first two intervals are longer, and so is one in which nothing is completed until it ends.
    UsageError for a text that is not such a log.
    """
    blocks: list[list[tuple[int, int]]] = []
    latest_ms: dict[int, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            time_ms, kib_s, *more = map(int, line.split(","))
        except ValueError:
            time_ms = kib_s = -1
        if not (0 <= time_ms <= LARGEST and 0 <= kib_s <= LARGEST):
            raise UsageError(
                f"line {number} of fio's log: expected a time and a bandwidth, found {shown(line)}",
                hint="write it with fio's write_bw_log and log_avg_msec",
            )
        direction = more[0] if more else 0
        # The time of a job only grows, so another job or another measurement begins here.
        behind_ms = max(latest_ms.values(), default=0) - time_ms
        if not blocks or time_ms <= latest_ms.get(direction, -1) or behind_ms > interval_ms / 2:
            blocks.append([])
            latest_ms.clear()
        latest_ms[direction] = time_ms
        blocks[-1].append((time_ms, kib_s))
    ends: list[int] = []
    sums: list[int] = []
    for time_ms, kib_s in sorted(line for block in blocks[-jobs:] for line in block):
        # Reads, writes and jobs each have a line at the end of an interval, give or take.
        if ends and time_ms - ends[-1] < interval_ms / 2:
            sums[-1] += kib_s
        else:
            ends.append(time_ms)
            sums.append(kib_s)
    return [LogSample(1_000_000 * end_ms, 1024.0 * kib_s) for end_ms, kib_s in zip(ends, sums, strict=True)]
