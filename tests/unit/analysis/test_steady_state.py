"""Steady state, bandwidth logs and the shape of repeats."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from harness.analysis.shape import BIMODAL, DRIFTING, doubts
from harness.analysis.steady_state import assess, in_rounds, settled_after
from harness.model.errors import UsageError
from harness.parse.fiolog import LogSample, bandwidth, jobs

# fio 3.33: random reads and writes of 4 KiB at 4000 IOPS each for 1.5 s, log_avg_msec=100.
LOG = (Path(__file__).parents[1] / "data" / "fio-3.33-bw.log").read_text(encoding="utf-8")


def test_steady_state_is_a_small_range_and_a_small_rise() -> None:
    cases: list[tuple[list[float], float, float, bool]] = [
        ([100, 100, 100, 100, 100], 0.0, 0.0, True),
        ([90, 110, 90, 110, 100], 0.2, 0.08, True),
        ([89, 111, 100, 100, 100], 0.22, 0.044, False),
        ([94, 97, 100, 103, 106], 0.12, 0.12, False),  # within the range, but it climbs
        ([106, 103, 100, 97, 94], 0.12, -0.12, False),
        ([1, 1, 95, 97.5, 100, 102.5, 105], 0.1, 0.1, True),  # the last five count
    ]
    for rounds, range_, rise, attained in cases:
        found = assess(rounds)
        assert (found.range, found.rise) == pytest.approx((range_, rise)), rounds
        assert found.attained is attained, rounds
    assert settled_after([10, 50, 80, 100, 101, 99, 100, 100, 100]) == 8
    assert settled_after([0, 0, 0, 0, 0, 100, 100, 100, 100, 100]) == 10
    assert settled_after([2.0**i for i in range(20)]) is None and settled_after([1.0]) is None
    # Rounds are means of consecutive samples, and too few are not assessed.
    assert in_rounds([9, 1, 3, 2, 4, 5, 5, 1, 1, 7, 9]) == [2, 3, 5, 1, 8]
    with pytest.raises(ValueError, match="5 samples"):
        in_rounds([1, 2, 3])
    for few in ([], [1, 1, 1, 1], [0, 0, 0, 0, 0]):
        with pytest.raises(ValueError, match="rounds"):
            assess(few)


def test_fios_log_is_the_bandwidth_of_each_interval() -> None:
    samples = bandwidth(LOG, 100)
    assert [sample.end_ns // 10**6 for sample in samples][:3] == [136, 300, 400] and len(samples) == 13
    rates = [sample.bytes_per_s for sample in samples]
    # fio's JSON of the same measurement: bw_bytes, read and write.
    assert sum(rates) / len(rates) == pytest.approx(16375813 * 2, rel=0.01)
    assert assess(in_rounds(rates)).attained


def kib(end_ms: int, each: float) -> LogSample:
    return LogSample(end_ms * 10**6, each * 1024)


def test_lines_of_one_interval_are_added_up() -> None:
    log = "100, 10, 0, 0, 0\n500, 10, 0, 0, 0\n100, 5, 1, 0, 0\n101, 1, 0, 0, 0\n"
    assert bandwidth(log, 100, jobs=2) == [kib(100, 16), kib(500, 10)]
    assert bandwidth("", 100) == []
    assert (jobs("[w]\nnumjobs=4\nthread\n"), jobs("[w]\nthread\n")) == (4, 1)
    # Of a log with several attempts the last one counts: fio appends to a log of that name.
    first, last = "500, 90, 0, 0\n1000, 90, 0, 0\n", "500, 10, 0, 0\n999, 20, 0, 0\n"
    assert bandwidth(first + last, 500) == [kib(500, 10), kib(999, 20)] == bandwidth(first * 3 + last, 500)
    assert bandwidth(first * 2 + last * 2, 500, jobs=2) == [kib(500, 20), kib(999, 40)]
    short = "500, 90, 0, 0\n500, 10, 0, 0\n"
    assert bandwidth(short, 500) == [kib(500, 10)], "each had one interval"
    mixed = "500, 9, 0, 0\n500, 9, 1, 0\n1000, 9, 1, 0\n500, 3, 1, 0\n501, 4, 0, 0\n"
    assert bandwidth(mixed, 500) == [kib(500, 7)]


def test_another_text_is_refused() -> None:
    for line in ("{", "1", "a, b, c", "-1, 5, 0", "100, -5, 0", "\x1b[2J"):
        with pytest.raises(UsageError, match="line 2 of fio's log") as refusal:
            bandwidth(f"100, 5, 0\n{line}\n", 100)
        assert "\x1b" not in str(refusal.value)


def test_repeats_in_two_groups_are_bimodal_and_those_that_rise_or_fall_are_drifting() -> None:
    for repeats, found in (
        ([10, 20] * 4, (BIMODAL,)),
        ([10, 20] * 3, ()),  # too few to tell
        ([10.0] * 9 + [20.0], ()),  # an outlier
        ([10, 10.3] * 8, ()),  # two groups, but as good as one
        ([10.0] * 8, ()),
        ([100 + step for step in range(10)], (DRIFTING,)),
        ([100 - step for step in range(10)], (DRIFTING,)),
        ([100 + step / 10 for step in range(10)], ()),  # by 1 %
    ):
        assert doubts(repeats) == found, repeats
    assert DRIFTING in doubts([100 + step / 10 for step in range(1000)])
    source = random.Random(4)  # noqa: S311 -- no secret
    sets = [[source.lognormvariate(0, 0.08) for _ in range(n)] for n in (8, 12, 20, 40) for _ in range(250)]
    assert sum(bool(doubts(values)) for values in sets) < 0.02 * len(sets)
