"""What ratios promise, over many samples: bench/power.py prints the same rates for more rounds and other
numbers of repeats."""

from __future__ import annotations

import random

import pytest

from bench.power import KINDS, MOST_DIFFERENT, PROMISED, rates, whole_runs
from harness.analysis import ratios, stats
from harness.analysis.ratios import Judgement, judge, ratio_of
from tests.unit.analysis.test_ratios import noisy

pytestmark = pytest.mark.thorough

ROUNDS = 400
REPEATS = 20
HARD = "AR(1) 0.5 between repeats, 4 %"
PROMISES = [name for name in KINDS if not name.endswith("*")]


@pytest.mark.parametrize("kind", PROMISES)
def test_false_positives_and_power(kind: str) -> None:
    false, found = rates(KINDS[kind], REPEATS, rounds=ROUNDS, throttle=0.1, seed=1)
    assert false <= PROMISED
    assert found >= (0.7 if kind == HARD else 0.9)


@pytest.mark.parametrize("busier", [1, 3])
def test_two_default_runs_tell_a_tenth_from_nothing(busier: float) -> None:
    differ, judged, found = whole_runs(
        stats.REPEATS, ratios.BETWEEN_RUNS, busier, rounds=25, throttle=0.1, seed=1
    )
    assert differ <= MOST_DIFFERENT / 2
    assert judged > (0.8 if busier == 1 else 0.5)
    assert found > 0.98


def test_of_40_equal_cells_none_is_shown_to_differ_in_95_of_100_comparisons() -> None:
    source = random.Random(11)  # noqa: S311 -- no secret
    shown = 0
    for _ in range(100):
        cells = [ratio_of(noisy(source, 10), noisy(source, 10)) for _ in range(40)]
        verdicts = {found for found, _ in judge(cells, margin=0.05, higher_is_better=True)}
        shown += bool(verdicts & {Judgement.FASTER, Judgement.SLOWER})
    assert shown <= 5


def test_one_slower_cell_of_40_is_found() -> None:
    source = random.Random(12)  # noqa: S311 -- no secret
    found = 0
    for _ in range(30):
        cells = [
            ratio_of(noisy(source, 20), [v * (0.9 if i == 7 else 1) for v in noisy(source, 20)])
            for i in range(40)
        ]
        found += judge(cells, margin=0.05, higher_is_better=True)[7][0] is Judgement.SLOWER
    assert found >= 27


def test_intervals_hold_the_true_ratio_as_often_as_promised() -> None:
    source = random.Random(13)  # noqa: S311 -- no secret
    held = 0
    for _ in range(1000):
        found = ratio_of(noisy(source, 12), [1.2 * value for value in noisy(source, 12)])
        held += found.low is None or found.high is None or found.low <= 1.2 <= found.high
    assert held >= 950
