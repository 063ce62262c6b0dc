"""Statistics over samples, against values worked out by hand and against the definition of coverage."""

from __future__ import annotations

import math
import random

import pytest

from harness.analysis.stats import (
    Decision,
    Difference,
    decide,
    difference,
    fairness,
    interval_rank,
    median,
    ratio_interval,
    repeats_expected,
    student_p,
    student_quantile,
    summarise,
    trimmed,
)
from harness.model import StoppingRule


def miss_probability(n: int, rank: int) -> float:
    """How often the median lies outside the rank-th lowest and rank-th highest of n samples."""
    missed: int = sum(math.comb(n, below) for below in range(rank))
    return missed / 2.0 ** (n - 1)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([3.0], 3.0), ([1.0, 9.0], 5.0), ([9.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 3.0, 2.0], 2.5)],
)
def test_median_is_the_middle_of_the_sorted_samples(samples: list[float], expected: float) -> None:
    assert median(samples) == expected
    assert summarise(samples).median == expected


def test_nothing_can_be_said_of_no_samples() -> None:
    with pytest.raises(ValueError, match="found none"):
        summarise([])
    with pytest.raises(ValueError, match="empty"):
        median([])


def test_fewer_than_six_samples_give_their_range() -> None:
    summary = summarise([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (summary.n, summary.low, summary.high, summary.interval) == (5, 1.0, 5.0, False)


def test_six_samples_are_the_fewest_for_an_interval() -> None:
    summary = summarise([6.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    assert (summary.low, summary.high, summary.interval) == (1.0, 6.0, True)
    assert miss_probability(6, 1) == pytest.approx(1 - 0.96875)


@pytest.mark.parametrize(
    ("n", "rank"), [(1, 0), (5, 0), (6, 1), (8, 1), (9, 2), (20, 6), (30, 10), (100, 40)]
)
def test_ranks_are_those_of_the_tables(n: int, rank: int) -> None:
    assert interval_rank(n) == rank


def test_the_interval_is_the_narrowest_that_covers_95_percent() -> None:
    for n in range(6, 400):
        rank = interval_rank(n)
        assert miss_probability(n, rank) <= 0.05 < miss_probability(n, rank + 1), n


def test_an_outlier_is_outside_the_interval() -> None:
    summary = summarise([*map(float, range(10, 19)), 1000.0])
    assert (summary.n, summary.low, summary.high) == (10, 11.0, 18.0)


def test_the_true_median_of_a_skewed_distribution_is_covered_as_often_as_promised() -> None:
    source = random.Random(7)  # noqa: S311 -- no secret
    rounds = 2000
    hits = 0
    for _ in range(rounds):
        summary = summarise([source.lognormvariate(0, 1) for _ in range(15)])
        hits += summary.low <= 1.0 <= summary.high
    assert hits / rounds > 0.95


def test_spread_is_the_farther_distance_as_a_part_of_the_median() -> None:
    assert summarise([90.0, 100.0, 104.0]).spread == pytest.approx(0.10)
    assert summarise([90.0, 100.0, 350.0]).spread == pytest.approx(2.5)
    assert summarise([30.0, 100.0, 104.0]).spread == pytest.approx(0.70)
    assert summarise([0.0, 0.0]).spread == 0.0


# Differences


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([], None),
        ([0.5], None),
        (
            [1.03, 1.05, 1.01],
            Difference.INCONCLUSIVE,
        ),  # three agree by chance in one of four cases
        ([1.001, 1.004, 0.999], Difference.NONE),
        ([0.5, 0.51, 0.49], Difference.SHOWN),
        ([0.5, 0.6], Difference.INCONCLUSIVE),
        ([0.92, 0.95, 0.96, 0.93, 0.96, 0.99], Difference.SHOWN),
        ([0.9, 0.95, 0.97, 0.93, 0.98, 1.01], Difference.INCONCLUSIVE),
        ([0.95, 0.96, 0.95, 0.96, 0.95, 0.3], Difference.SHOWN),  # a stall
        ([0.97, 1.0, 0.98, 1.02, 1.04, 1.01], Difference.NONE),
        ([1.0, 1.0, 1.0], Difference.NONE),
    ],
)
def test_ratios_differ_from_1_or_are_not_shown_to(ratios: list[float], expected: Difference | None) -> None:
    assert difference(ratio_interval(ratios)) is expected


def test_from_ten_ratios_on_ranks_say_where_the_median_lies() -> None:
    nine = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 90.0]
    assert ratio_interval([*nine, 0.1]) == (1.0, 1.7), "the second of ten from each end"
    found = ratio_interval(nine)
    assert found is not None
    assert found[0] > nine[1], "the second of nine from below would be the bound by ranks"


def test_the_margin_says_what_matters() -> None:
    ratios = [0.97, 1.0, 0.98, 1.02, 1.04, 1.01]
    assert difference(ratio_interval(ratios), 0.03) is Difference.INCONCLUSIVE


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 8, 12])
def test_equals_are_distinguished_in_5_percent_at_most(n: int) -> None:
    source = random.Random(n)  # noqa: S311 -- no secret
    made = [
        difference(ratio_interval([source.lognormvariate(0, 0.05) for _ in range(n)])) for _ in range(4000)
    ]
    assert made.count(Difference.SHOWN) / 4000 < 0.065


# The stopping rule

RULE = StoppingRule(width=0.05, max_repeats=20, max_s=60.0)
NARROW = [100.0, 101.0, 99.0, 102.0, 98.0, 100.5]


@pytest.mark.parametrize(
    ("samples", "made", "spent_s", "decision"),
    [
        ([], 0, 0.0, Decision.GO_ON),
        (NARROW[:5], 5, 10.0, Decision.GO_ON),
        (NARROW, 6, 10.0, Decision.NARROW),
        ([*NARROW[:5], 120.0], 6, 10.0, Decision.GO_ON),
        ([*NARROW[:5], 120.0], 20, 10.0, Decision.MAX_REPEATS),
        ([], 20, 10.0, Decision.MAX_REPEATS),
        ([], 5, 10.0, Decision.GO_ON),
        ([], 6, 10.0, Decision.HOPELESS),
        ([], 7, 10.0, Decision.HOPELESS),
        ([], 21, 10.0, Decision.MAX_REPEATS),
        ([100.0], 6, 10.0, Decision.GO_ON),
        ([100.0, 120.0], 2, 60.0, Decision.MAX_TIME),
        ([100.0, 120.0], 2, 61.0, Decision.MAX_TIME),
        (NARROW, 20, 60.0, Decision.NARROW),
    ],
)
def test_a_cell_is_repeated_until_its_interval_is_narrow_or_a_limit_is_reached(
    samples: list[float], made: int, spent_s: float, decision: Decision
) -> None:
    assert decide(samples, RULE, made=made, spent_s=spent_s) is decision


def test_without_a_time_limit_time_does_not_matter() -> None:
    rule = StoppingRule(width=0.05, max_repeats=3)
    assert decide([1.0], rule, spent_s=1e9) is Decision.GO_ON
    assert decide([1.0, 2.0, 3.0], rule) is Decision.MAX_REPEATS


def test_no_time_was_spent_unless_somebody_says_so() -> None:
    assert decide([1.0], StoppingRule(width=0.05, max_repeats=3, max_s=0.5)) is Decision.GO_ON
    assert decide([1.0], StoppingRule(width=0.05, max_repeats=3, max_s=0.0)) is Decision.MAX_TIME


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 6),
        ([100.0], 6),
        (NARROW, 6),
        (
            [*NARROW[:5], 110.0],
            20,
        ),  # 10 % of the median to one side: four times as many, and no more than the most
        ([*NARROW[:5], 106.2], 8),
    ],
)
def test_how_many_repeats_it_will_take_is_guessed_from_their_interval(
    samples: list[float], expected: int
) -> None:
    assert repeats_expected(samples, RULE) == expected


def test_intervals_at_which_the_rule_stops_still_hold_the_median() -> None:
    source = random.Random(3)  # noqa: S311 -- no secret
    rule = StoppingRule(width=0.05, max_repeats=60)
    held = 0
    for _ in range(500):
        samples: list[float] = []
        while decide(samples, rule) is Decision.GO_ON:
            samples.append(source.lognormvariate(0, 0.07))
        summary = summarise(samples)
        held += summary.low <= 1.0 <= summary.high
    # Looking again after each repeat costs a little: a narrow interval is narrow by luck, too.
    assert held / 500 > 0.9


def test_one_stall_among_six_does_not_move_a_trimmed_mean() -> None:
    # 2 to 5 are kept; 2 and 5 take the places of the outer ones: 4 x 1.5^2 + 2 x 0.5^2.
    for last in (6.0, 600.0):
        assert trimmed([1.0, 2.0, 3.0, 4.0, 5.0, last]) == pytest.approx((3.5, 9.5, 4))
    assert trimmed([1.0, 2.0, 9.0]) == pytest.approx((4.0, 38.0, 3)), "of three none is left out"


# Published tables (Abramowitz and Stegun, table 26.10)
@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)],
)
def test_students_t_is_that_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, abs=5e-4)
    assert student_p(-quantile, freedom) == pytest.approx(0.05, abs=1e-4)
    assert student_p(0.0, freedom) == 1.0


def test_probabilities_are_never_below_0() -> None:
    assert all(student_p(10.0**power, freedom) >= 0.0 for power in range(12) for freedom in range(1, 40))


def test_jains_index_is_between_one_of_n_and_1() -> None:
    assert fairness([4.0, 2.0]) == pytest.approx(36 / (2 * 20))
    assert fairness([1.0, 2.0, 3.0]) == pytest.approx(36 / (3 * 14))
    assert all(fairness([share] * n) <= 1.0 for share in (0.1, 0.3, 0.7) for n in range(1, 40))
