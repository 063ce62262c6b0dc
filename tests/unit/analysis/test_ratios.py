"""Ratios of repeats: the exact distributions against enumeration, the intervals against known coverage."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from msgspec.structs import replace

from bench.power import KINDS, MOST_DIFFERENT, PROMISED, rates, whole_runs
from harness.analysis import ratios, stats
from harness.analysis.ratios import FEWEST, LEVEL, Judgement, Ratio, adjusted, judge, ratio_of, repeats_needed
from harness.analysis.stats import RANKS_FROM
from tests.unit.explain.test_explain import known


def noisy(source: random.Random, n: int, deviation: float = 0.03) -> list[float]:
    return [source.lognormvariate(0, deviation) for _ in range(n)]


def verdict(ratio: Ratio, *, margin: float = 0.05, higher_is_better: bool = True) -> Judgement:
    ((found, _),) = judge([ratio], margin=margin, higher_is_better=higher_is_better)
    return found


def test_rank_sums_are_those_of_all_orders_and_the_normal_distribution_takes_over_without_a_jump() -> None:
    for m, n in ((1, 1), (3, 4), (5, 5), (6, 2)):
        above = [
            sum(b > a for b in range(m + n) if b not in places for a in places)
            for places in itertools.combinations(range(m + n), m)
        ]
        sums = [sum(found <= x for found in above) / len(above) for x in range(m * n + 1)]
        assert list(map(ratios._rank_sums(m, n), range(m * n + 1))) == pytest.approx(sums), (m, n)
    n = ratios._EXACT_UP_TO
    exact, approximate = ratios._rank_sums(n, n), ratios._rank_sums(n, n + 1)
    x = round(n * n / 2 - 2 * math.sqrt(n * n * (2 * n + 1) / 12))
    assert exact(x) == pytest.approx(0.0228, abs=0.001) and 0 <= approximate(x) <= exact(x) + 0.001


def test_p_are_adjusted_for_all_that_are_looked_at() -> None:
    # Worked out by hand: p x cells / rank, never below that of a greater p.
    assert adjusted([0.01, 0.02, 0.5, 0.04]) == pytest.approx([0.04, 0.04, 0.5, 0.16 / 3])
    assert adjusted([0.03]) == [0.03] and adjusted([]) == []
    for a, b in (([], [1.0]), ([1.0], []), ([0.0], [1.0])):
        with pytest.raises(ValueError, match="samples"):
            ratio_of(a, b)


def test_a_ratio_and_its_interval_come_from_all_repeats() -> None:
    found = ratio_of([100, 101, 102, 99, 98, 100], [50, 51, 49, 50, 50.5, 49.5])
    assert found.ratio == pytest.approx(0.5, rel=0.01)
    assert 0.48 < known(found.low) < found.ratio < known(found.high) < 0.52
    assert (found.n_a, found.n_b) == (6, 6) and verdict(found) is Judgement.SLOWER
    assert verdict(found, higher_is_better=False) is Judgement.FASTER


def test_a_warm_up_of_both_is_left_out() -> None:
    source = random.Random(7)  # noqa: S311 -- no secret
    a, b = ([0.7 * value for value in noisy(source, 3)] + noisy(source, 12) for _ in range(2))
    found = ratio_of(a, [0.9 * value for value in b])
    assert 3 <= found.warm_up <= 5 and found.n_a == found.n_b == 15 - found.warm_up
    assert verdict(found) is Judgement.SLOWER
    assert ratio_of(noisy(source, 15), noisy(source, 15)).warm_up == 0
    climbing = [1 + 0.01 * step for step in range(20)]  # Repeats that resemble the one before count for less.
    shuffled = random.Random(1).sample(climbing, 20)  # noqa: S311 -- no secret
    assert ratio_of(climbing, climbing).inflation > 3 and ratio_of(shuffled, shuffled).inflation < 2


def test_too_few_repeats_show_nothing_and_the_fewest_what_is_plain() -> None:
    for n in range(1, FEWEST):
        found = ratio_of([100.0 + i for i in range(n)], [10.0 + i / 10 for i in range(n)])
        assert found.p > LEVEL and verdict(found) is Judgement.INCONCLUSIVE
    # Of one repeat there is no interval, however many the other side has.
    for many, is_tail in itertools.product((1, 2, RANKS_FROM, 50), (False, True)):
        one, more = [100.0], [10.0 + i for i in range(many)]
        for sides in ((one, more), (more, one)):
            found = ratio_of(*sides, between=0.01, is_tail=is_tail)
            assert (found.low, found.high, found.p) == (None, None, 1.0), many
    assert verdict(ratio_of([100, 104], [50, 51])) is Judgement.SLOWER
    # A stall on a side of few repeats hides nothing.
    a, b = [1.0, 1.01, 0.99, 1.0, 0.2, 1.01], [0.9, 0.91, 0.3, 0.9, 0.89, 0.9]
    assert verdict(ratio_of(a, b)) is Judgement.SLOWER


def test_few_repeats_are_students_t_until_ranks_take_over() -> None:
    # By hand: means of the logarithms 0 and ln 1.1, squares 2 x 0.01^2 each: error 0.01 x sqrt(2/3).
    a = [math.exp(x) for x in (0.0, -0.01, 0.01)]
    found = ratio_of(a, [1.1 * x for x in a])
    error = 0.01 * math.sqrt(2 / 3 * found.inflation)
    assert found.ratio == pytest.approx(1.1)
    assert found.low == pytest.approx(1.1 * math.exp(-2.776445 * error))
    assert found.p == pytest.approx(stats.student_p(math.log(1.1) / error, 4))
    # Ranks take over where they can tell one cell of forty.
    assert 40 * 2 / math.comb(14, 7) > LEVEL > 40 * 2 / math.comb(2 * RANKS_FROM, RANKS_FROM)
    source = random.Random(15)  # noqa: S311 -- no secret
    few, ranks = (ratio_of(noisy(source, n), noisy(source, n)) for n in (RANKS_FROM - 1, RANKS_FROM))
    assert (few.inflation, few.warm_up) == (1.0, 0)
    for found in (few, ranks):
        assert 0.9 < known(found.low) < 1 < known(found.high) < 1.1


def test_of_a_tail_each_side_has_its_own_variance_and_t_the_degrees_of_freedom_of_the_smaller() -> None:
    # By hand: means 0 and ln 1.1; variances of the means 0.01^2 / 3 and 0.02^2 x 4 / 3 / 4.
    a = [math.exp(x) for x in (0.0, -0.01, 0.01)]
    b = [1.1 * math.exp(x) for x in (-0.02, -0.02, 0.02, 0.02)]
    error = math.sqrt(0.01**2 / 3 + 0.02**2 * 4 / 3 / 4)
    found = ratio_of(a, b, is_tail=True)
    assert found.p == pytest.approx(stats.student_p(math.log(1.1) / error, 2))
    assert found.high == pytest.approx(1.1 * math.exp(4.302653 * error))
    # Each in a mode of its own. In 35 divisions of such repeats there is one like this.
    below, above = [2343.0, 2343.0, 2343.0, 2507.0], [3031.0, 3195.0, 2998.0, 3326.0]
    cells = [*(ratio_of([1.0] * 4, [1.0] * 4) for _ in range(39)), ratio_of(below, above, is_tail=True)]
    assert judge(cells, margin=0.05, higher_is_better=False)[-1][0] is Judgement.INCONCLUSIVE
    for sides in ((below, [3 * x for x in below]), ([5.0, 5.0], [6.0, 6.0])):
        assert verdict(ratio_of(*sides, is_tail=True), higher_is_better=False) is Judgement.SLOWER


def test_what_varies_between_runs_comes_on_top() -> None:
    source = random.Random(14)  # noqa: S311 -- no secret
    a, b = noisy(source, 6, 0.001), [0.98 * value for value in noisy(source, 6, 0.001)]
    one, other = ratio_of(a, b), ratio_of(a, b, between=0.014)
    assert verdict(one) is Judgement.SLOWER and verdict(other) is Judgement.EQUIVALENT
    assert one.low is not None
    assert other.low == pytest.approx(other.ratio * math.exp(-1.96 * 0.014), rel=2e-3)
    assert other.p == pytest.approx(math.erfc(-math.log(other.ratio) / 0.014 / math.sqrt(2)), rel=0.1)
    same = ratio_of([5.0] * 3, [5.0] * 3, between=0.014)
    assert (same.ratio, same.p) == (1.0, 1.0)


def test_no_difference_is_only_shown_by_a_narrow_interval() -> None:
    source = random.Random(9)  # noqa: S311 -- no secret
    narrow = ratio_of(noisy(source, 20, 0.01), noisy(source, 20, 0.01))
    wide = ratio_of(noisy(source, 6, 0.2), noisy(source, 6, 0.2))
    assert verdict(narrow) is Judgement.EQUIVALENT
    assert verdict(narrow, margin=0.001) is Judgement.INCONCLUSIVE
    assert verdict(wide) is Judgement.INCONCLUSIVE
    same = ratio_of([5.0] * 10, [5.0] * 10)
    assert (same.ratio, same.low, same.high, same.p) == (1.0, 1.0, 1.0, 1.0)
    assert verdict(same) is Judgement.EQUIVALENT
    source = random.Random(10)  # noqa: S311 -- no secret
    a, b = noisy(source, 10_000, 0.1), [0.98 * value for value in noisy(source, 10_000, 0.1)]
    found = ratio_of(a, b)
    assert (found.n_a, found.n_b) == (200, 200) and found.ratio == pytest.approx(0.98, rel=0.005)
    assert verdict(found) is Judgement.SLOWER
    # How many repeats would judge is what narrows the interval so far.
    broad = Ratio(ratio=1.0, low=0.9, high=1 / 0.9, p=1.0, n_a=6, n_b=6)
    assert repeats_needed(broad, 0.05) == math.ceil(6 * (math.log(0.9) / math.log(0.95)) ** 2)
    for never in (replace(broad, low=0.5, high=2.0), replace(broad, more=0.06), ratio_of([1.0], [1.0])):
        assert repeats_needed(never, 0.05) is None


# What ratios promise, over many samples: bench/power.py prints the same rates for more rounds.
@pytest.mark.thorough
@pytest.mark.parametrize("kind", [name for name in KINDS if not name.endswith("*")])
def test_false_positives_and_power(kind: str) -> None:
    false, found = rates(KINDS[kind], 20, rounds=400, throttle=0.1, seed=1)
    assert false <= PROMISED and found >= (0.7 if kind == "AR(1) 0.5 between repeats, 4 %" else 0.9)


@pytest.mark.thorough
@pytest.mark.parametrize("busier", [1, 3])
def test_two_default_runs_tell_a_tenth_from_nothing(busier: float) -> None:
    of = (stats.REPEATS, ratios.BETWEEN_RUNS, busier)
    differ, judged, found = whole_runs(*of, rounds=25, throttle=0.1, seed=1)
    assert differ <= MOST_DIFFERENT / 2 and judged > (0.8 if busier == 1 else 0.5)
    assert found > 0.98


@pytest.mark.thorough
def test_of_40_equal_cells_none_differs_in_95_of_100_comparisons_and_a_slower_one_is_found() -> None:
    source = random.Random(11)  # noqa: S311 -- no secret
    shown = 0
    for _ in range(100):
        cells = [ratio_of(noisy(source, 10), noisy(source, 10)) for _ in range(40)]
        verdicts = {found for found, _ in judge(cells, margin=0.05, higher_is_better=True)}
        shown += bool(verdicts & {Judgement.FASTER, Judgement.SLOWER})
    assert shown <= 5
    source, found = random.Random(12), 0  # noqa: S311 -- no secret
    for _ in range(30):
        slower = [0.9 if i == 7 else 1.0 for i in range(40)]
        cells = [ratio_of(noisy(source, 20), [v * part for v in noisy(source, 20)]) for part in slower]
        found += judge(cells, margin=0.05, higher_is_better=True)[7][0] is Judgement.SLOWER
    assert found >= 27


@pytest.mark.thorough
def test_intervals_hold_the_true_ratio_as_often_as_promised() -> None:
    source = random.Random(13)  # noqa: S311 -- no secret
    held = 0
    for _ in range(1000):
        found = ratio_of(noisy(source, 12), [1.2 * value for value in noisy(source, 12)])
        held += found.low is None or found.high is None or found.low <= 1.2 <= found.high
    assert held >= 950
