"""Latencies of many I/Os as fio's histogram (``--output-format=json+``), and percentiles of several together.

The percentiles of parts do not determine the percentile of their union, and their mean is not it. Histograms
can be added up: over jobs, hosts and repeats. fio's bins are the same in every process since 2.99
(``stat.h``, FIO_IO_U_PLAT_*: 64 to each power of two, named by their middles). So a bin is within 1/128 of
the latencies in it, and merging loses nothing more.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from harness.model.ranges import Count


class Histogram(msgspec.Struct, frozen=True):
    """A count of I/Os by latency: ``bins`` maps the middle of a bin, in ns, to its number of I/Os."""

    bins: dict[Count, Count] = {}

    @property
    def count(self) -> int:
        """The number of all I/Os."""
        return sum(self.bins.values())

    def percentiles_ns(self, qs: Sequence[float]) -> list[int]:
        """For each of ``qs``, the lowest bin such that it and the bins below hold at least ``q`` percent (0 <
        q <= 100) of all I/Os.

        fio reports the same for these bins, to the nanosecond (``stat.c``, calc_clat_percentiles). There
        must be I/Os.
        """
        ranked = sorted(self.bins)
        below = list(itertools.accumulate(self.bins[value] for value in ranked))
        return [ranked[bisect_left(below, _least(q, below[-1]))] for q in qs]


def _least(q: float, count: int) -> int:
    """The least number of I/Os that are at least ``q`` percent of ``count``.

    Exact: a product of floats could be on the wrong side of a whole number, and so of a bin.
    """
    part, whole = q.as_integer_ratio()
    return -(-part * count // (100 * whole))


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """All I/Os of all ``histograms`` in one; an empty one for none."""
    bins: dict[int, int] = {}
    for histogram in histograms:
        for value, count in histogram.bins.items():
            bins[value] = bins.get(value, 0) + count
    return Histogram(bins)
