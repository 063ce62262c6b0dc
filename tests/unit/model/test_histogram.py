"""Histograms: against the percentiles that fio itself reports of the same bins, and sorted samples."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.model.histogram import Histogram, merge

# fio 3.33 on a 4 MiB file: two jobs, one of which reads, writes and syncs; cut down to jobs and results.
REAL = json.loads((Path(__file__).parents[1] / "data" / "fio-3.33-jsonplus.json").read_text(encoding="utf-8"))
DIRECTIONS: dict[str, dict[str, Any]] = {
    f"{job['jobname']} {name}": job[name]
    for job in REAL["jobs"]
    for name in ("read", "write", "sync")
    if job[name].get("io_bytes") or job[name]["lat_ns"].get("bins")
}


def histogram_of(direction: dict[str, Any]) -> Histogram:
    return Histogram({int(ns): count for ns, count in direction["lat_ns"]["bins"].items() if count})


@pytest.mark.parametrize("direction", DIRECTIONS.values(), ids=list(DIRECTIONS))
def test_percentiles_are_those_that_fio_reports(direction: dict[str, Any]) -> None:
    histogram, reported = histogram_of(direction), direction["lat_ns"]
    assert len(reported["percentile"]) == 6
    for percent, value_ns in reported["percentile"].items():
        assert histogram.percentiles_ns([float(percent)])[0] == value_ns, percent
    assert histogram.count == reported["N"]
    mean_ns = sum(ns * count for ns, count in histogram.bins.items()) / histogram.count
    assert mean_ns == pytest.approx(reported["mean"], rel=1 / 128)


def test_percentiles_of_a_union_are_those_of_all_its_samples() -> None:
    parts = [histogram_of(direction) for direction in DIRECTIONS.values()]
    union = merge(parts)
    samples = sorted(value for part in parts for value in Counter(part.bins).elements())
    assert union.count == len(samples) == sum(part.count for part in parts)
    for percent in (1, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100):
        position = -(-round(percent * 100) * len(samples) // 10_000)
        assert union.percentiles_ns([percent])[0] == samples[position - 1], percent
    # And not the mean of the percentiles.
    fast, slow = Histogram({1000: 990, 2000: 10}), Histogram({50_000: 1000})
    assert merge([fast, slow]).percentiles_ns([50])[0] == 2000
    assert (fast.percentiles_ns([50])[0] + slow.percentiles_ns([50])[0]) / 2 == 25_500


def test_order_and_grouping_of_merges_do_not_matter() -> None:
    source = random.Random(3)  # noqa: S311 -- no secret
    parts = [Histogram(dict(Counter(source.choices(range(1, 40), k=200)))) for _ in range(5)]
    assert merge(parts) == merge(reversed(parts)) == merge([merge(parts[:2]), merge(parts[2:])])
    assert merge([]) == Histogram()
