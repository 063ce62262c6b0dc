"""Latencies of all I/Os of a cell, from the tools' outputs that its records name.

Records have percentiles of each repeat. Percentiles over all repeats need the histograms, which fio's json+
in ``raw/`` has (``harness.model.histogram``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from harness.analysis import disturbance
from harness.model import FIO_SOURCE, Record, histogram
from harness.model.errors import UsageError
from harness.model.histogram import Histogram
from harness.parse import fio
from harness.parse.files import read_bytes
from harness.results import plain
from harness.results.raw_files import raw_file

_OUTPUTS = ("fio.json", "fio-client.txt")
"""The files with fio's output: for one host, and for several at once."""


class LatencyDistribution(msgspec.Struct, frozen=True, kw_only=True):
    """The latencies of a cell. ``merged`` of the ``repeats`` that count have a histogram."""

    histogram: Histogram
    merged: int
    repeats: int


def of_cell(
    records: Iterable[Record], folders: Mapping[str, Path], *, writes: bool
) -> LatencyDistribution | None:
    """The reads or writes of all ok and undisturbed repeats; None if there is no histogram of them.

    ``folders`` are those of the runs, by run id. Total and completion latencies are not mixed: if there are
    both, the kind of the first repeat counts.
    """
    good = disturbance.quiet(records)
    found: dict[fio.LatencyKind, list[Histogram]] = {}
    for record in good:
        for kind, part in _of_record(record, folders, writes=writes).items():
            found.setdefault(kind, []).append(part)
    if not found:
        return None
    parts = next(iter(found.values()))
    return LatencyDistribution(histogram=histogram.merge(parts), merged=len(parts), repeats=len(good))


def _of_record(
    record: Record, folders: Mapping[str, Path], *, writes: bool
) -> dict[fio.LatencyKind, Histogram]:
    """By kind of latency. Empty if a part of the record has no histogram: the others would misstate the
    whole."""
    parts: dict[fio.LatencyKind, list[Histogram]] = {}
    for job in _jobs(record, folders):
        if not (job.write if writes else job.read):
            continue
        bins = job.write_bins if writes else job.read_bins
        if not bins or job.percentiles_of is None:
            return {}
        parts.setdefault(job.percentiles_of, []).append(Histogram(bins))
    return {kind: histogram.merge(found) for kind, found in parts.items()}


def _jobs(record: Record, folders: Mapping[str, Path]) -> list[fio.FioJob]:
    """fio's report of a record; none if it is gone: the record is still valid, and only a picture needs it.

    A name that leads out of the run's folder is ignored.
    """
    if record.setting.source == FIO_SOURCE:
        return plain.jobs_of(record)
    found: list[fio.FioJob] = []
    for file in filter(None, (raw_file(record, folders, name) for name in _OUTPUTS)):
        try:
            found += fio.parse(read_bytes(file, follow=False)).jobs
        except UsageError:
            return []
    return found
