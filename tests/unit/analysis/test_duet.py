"""What a column loses to another next to other programs (``harness/analysis/duet.py``)."""

from __future__ import annotations

import math
from random import Random

import pytest

from harness.analysis import duet
from harness.analysis.duet import Pair, Side

LOST = 0.9
"""What the first side keeps of the second."""


def pairs(count: int, *, seed: int, noise: float = 0.05, busy: float = 0.5, wait: float = 0.0) -> list[Pair]:
    """Sides that others keep waiting for about half of the time, on a core that is slow now and then, which
    costs the first side more; ``wait`` is how much longer that one waits."""
    random = Random(seed)  # noqa: S311

    def side(rate: float, work: float, more: float) -> Side:
        waited, slowed = random.uniform(0.3, 0.6) + more, random.choice((0.0, 0.0, 0.3))
        rate *= (1 - waited) * (1 - slowed) ** work * math.exp(random.gauss(0, noise))
        return Side(rate=rate, waited=waited, slowed=slowed, busy=busy)

    return [(side(100 * LOST, 0.9, wait), side(100, 0.3, 0.0)) for _ in range(count)]


def test_intervals_hold_the_loss_as_often_as_they_say() -> None:
    found = [duet.compare(pairs(24, seed=seed)) for seed in range(200)]
    held = [each is not None and each.is_stated and each.low <= LOST <= each.high for each in found]
    assert sum(held) >= 182
    first = found[0]
    assert first is not None and first.n == 24 and first.interval == (first.low, first.high)
    # Medians of ratios would say that more is lost, as the first side has more to do on the slow core.
    assert abs(first.ratio - LOST) < 0.06


def test_a_side_that_is_short_of_the_core_has_no_figure() -> None:
    for made in (pairs(24, seed=1, busy=0.85), pairs(24, seed=1, wait=0.3)):
        found = duet.compare(made)
        assert found is not None and found.is_full and not found.is_stated


def test_few_or_scattered_pairs_say_how_many_would_do() -> None:
    assert duet.compare(pairs(duet.FEWEST - 1, seed=1)) is None
    wild = duet.compare(pairs(12, seed=1, noise=0.4))
    assert wild is not None and not wild.is_full and not wild.is_stated and wild.pairs_needed() > 200
    close = duet.compare(pairs(24, seed=1, noise=0.01))
    assert close is not None and close.is_stated and close.pairs_needed() == 24
    # Four times as many pairs halve an interval.
    assert wild.pairs_needed(0.1) == pytest.approx(wild.pairs_needed(0.05) / 4, rel=0.1)


def test_pairs_that_nothing_tells_apart_are_compared_all_the_same() -> None:
    alike = Side(rate=90.0), Side(rate=100.0)
    found = duet.compare([alike] * 10)
    assert found is not None and found.ratio == pytest.approx(0.9) and found.high == pytest.approx(0.9)
    # That the core was as slow all the time does not say how fast it would be at its own speed.
    slow = [(Side(rate=90.0 + n, slowed=0.3), Side(rate=100.0, slowed=0.3)) for n in range(10)]
    found = duet.compare(slow)
    assert found is not None and not found.is_stated and math.isfinite(found.high)
