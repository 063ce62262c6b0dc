"""Statistics over samples, against values worked out by hand and against the definition of coverage."""

from __future__ import annotations

import math
import random

import pytest

from harness.analysis import stats
from harness.analysis.stats import Decision, Difference, decide, difference, ratio_interval, summarise
from harness.model import StoppingRule


def test_median_is_the_middle_of_the_sorted_samples() -> None:
    assert [stats.median(each) for each in ([3.0], [1.0, 9.0], [9.0, 1.0, 2.0])] == [3.0, 5.0, 2.0]
    assert stats.median([4.0, 1.0, 3.0, 2.0]) == summarise([4.0, 1.0, 3.0, 2.0]).median == 2.5
    with pytest.raises(ValueError, match="found none"):
        summarise([])
    with pytest.raises(ValueError, match="empty"):
        stats.median([])


def test_fewer_than_six_samples_give_their_range_and_more_an_interval_without_the_outliers() -> None:
    five, six = summarise([5.0, 1.0, 4.0, 2.0, 3.0]), summarise([6.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    assert (five.n, five.low, five.high, five.interval) == (5, 1.0, 5.0, False)
    assert (six.low, six.high, six.interval) == (1.0, 6.0, True)
    ten = summarise([*map(float, range(10, 19)), 1000.0])
    assert (ten.n, ten.low, ten.high) == (10, 11.0, 18.0)


def miss_probability(n: int, rank: int) -> float:
    """How often the median lies outside the rank-th lowest and rank-th highest of n samples."""
    return math.fsum(math.comb(n, below) for below in range(rank)) / 2.0 ** (n - 1)


def test_ranks_are_those_of_the_tables_and_the_narrowest_that_cover_95_percent() -> None:
    published = {1: 0, 5: 0, 6: 1, 8: 1, 9: 2, 20: 6, 30: 10, 100: 40}
    assert {n: stats.interval_rank(n) for n in published} == published
    for n in range(6, 400):
        rank = stats.interval_rank(n)
        assert miss_probability(n, rank) <= 0.05 < miss_probability(n, rank + 1), n


def test_spread_is_the_farther_distance_as_a_part_of_the_median() -> None:
    spreads = [summarise([low, 100.0, high]).spread for low, high in ((90, 104), (90, 350), (30, 104))]
    assert spreads == pytest.approx([0.10, 2.5, 0.70]) and summarise([0.0, 0.0]).spread == 0.0


def test_ratios_differ_from_1_or_are_not_shown_to() -> None:
    even = [0.97, 1.0, 0.98, 1.02, 1.04, 1.01]
    stalled = [0.95, 0.96, 0.95, 0.96, 0.95, 0.3]
    by_chance = [1.03, 1.05, 1.01]  # three agree in one of four cases
    cases: dict[Difference | None, list[list[float]]] = {
        None: [[], [0.5]],
        Difference.DIFFERENT: [[0.5, 0.51, 0.49], [0.92, 0.95, 0.96, 0.93, 0.96, 0.99], stalled],
        Difference.INCONCLUSIVE: [by_chance, [0.5, 0.6], [0.9, 0.95, 0.97, 0.93, 0.98, 1.01]],
        Difference.EQUIVALENT: [[1.001, 1.004, 0.999], [1.0, 1.0, 1.0], even],
    }
    for expected, each in cases.items():
        assert [difference(ratio_interval(ratios)) for ratios in each] == [expected] * len(each)
    assert difference(ratio_interval(even), 0.03) is Difference.INCONCLUSIVE, "the margin says what matters"


def test_from_ten_ratios_on_ranks_say_where_the_median_lies() -> None:
    nine = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 90.0]
    assert ratio_interval([*nine, 0.1]) == (1.0, 1.7), "the second of ten from each end"
    found = ratio_interval(nine)
    assert found and found[0] > nine[1], "the second of nine from below would be the bound by ranks"


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 8, 12])
def test_equals_are_distinguished_in_5_percent_at_most(n: int) -> None:
    source = random.Random(n)  # noqa: S311 -- no secret
    many = ([source.lognormvariate(0, 0.05) for _ in range(n)] for _ in range(4000))
    assert sum(difference(ratio_interval(each)) is Difference.DIFFERENT for each in many) / 4000 < 0.065


RULE = StoppingRule(width=0.05, max_repeats=20, max_s=60.0)
NARROW = [100.0, 101.0, 99.0, 102.0, 98.0, 100.5]
WIDE = [*NARROW[:5], 120.0]


def test_a_cell_is_repeated_until_its_interval_is_narrow_or_a_limit_is_reached() -> None:
    few = [(NARROW[:5], 5, 10.0), ([100.0], 6, 10.0)]
    cases: dict[Decision, list[tuple[list[float], int, float]]] = {
        Decision.GO_ON: [([], 0, 0.0), ([], 5, 10.0), *few, (WIDE, 6, 10.0)],
        Decision.NARROW: [(NARROW, 6, 10.0), (NARROW, 20, 60.0)],
        Decision.MAX_REPEATS: [(WIDE, 20, 10.0), ([], 20, 10.0), ([], 21, 10.0)],
        Decision.HOPELESS: [([], 6, 10.0), ([], 7, 10.0)],
        Decision.MAX_TIME: [([100.0, 120.0], 2, 60.0), ([100.0, 120.0], 2, 61.0)],
    }
    for decision, each in cases.items():
        for samples, made, spent_s in each:
            found = decide(samples, RULE, made=made, spent_s=spent_s)
            assert found is decision, (samples, made, spent_s)


def test_without_a_time_limit_time_does_not_matter_and_none_was_spent_unless_somebody_says_so() -> None:
    rule = StoppingRule(width=0.05, max_repeats=3)
    assert decide([1.0], rule, spent_s=1e9) is Decision.GO_ON
    assert decide([1.0, 2.0, 3.0], rule) is Decision.MAX_REPEATS
    for max_s, decision in ((0.5, Decision.GO_ON), (0.0, Decision.MAX_TIME)):
        assert decide([1.0], StoppingRule(width=0.05, max_repeats=3, max_s=max_s)) is decision


def test_how_many_repeats_it_will_take_is_guessed_from_their_interval() -> None:
    assert [stats.repeats_expected(samples, RULE) for samples in ([], [100.0], NARROW)] == [6, 6, 6]
    # 10 % of the median to one side: four times as many, and no more than the most.
    assert [stats.repeats_expected([*NARROW[:5], last], RULE) for last in (110.0, 106.2)] == [20, 8]


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
        assert stats.trimmed([1.0, 2.0, 3.0, 4.0, 5.0, last]) == pytest.approx((3.5, 9.5, 4))
    assert stats.trimmed([1.0, 2.0, 9.0]) == pytest.approx((4.0, 38.0, 3)), "of three none is left out"


def test_students_t_is_that_of_published_tables() -> None:
    """Abramowitz and Stegun, table 26.10."""
    quantiles = {1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 10: 2.228, 30: 2.042, 1000: 1.962}
    for freedom, quantile in quantiles.items():
        assert stats.student_quantile(freedom) == pytest.approx(quantile, abs=5e-4)
        assert stats.student_p(-quantile, freedom) == pytest.approx(0.05, abs=1e-4)
        assert stats.student_p(0.0, freedom) == 1.0
    assert all(stats.student_p(10.0**power, n) >= 0.0 for power in range(12) for n in range(1, 40))


def test_jains_index_is_between_one_of_n_and_1() -> None:
    assert stats.fairness([4.0, 2.0]) == pytest.approx(36 / (2 * 20))
    assert stats.fairness([1.0, 2.0, 3.0]) == pytest.approx(36 / (3 * 14))
    assert all(stats.fairness([share] * n) <= 1.0 for share in (0.1, 0.3, 0.7) for n in range(1, 40))
