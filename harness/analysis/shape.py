"""The shape of a cell's repeats in the order they were made: does one median describe them?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from harness.analysis import stats

BIMODAL = "bimodal: the repeats fall into two groups, and the median may be far from both"
DRIFTING = "drifting: the repeats rise or fall from the first to the last, and the median with them"

MATERIAL = 0.05
"""The smallest gap between two groups, and the smallest drift, that gives a warning, as a part of the
median."""

_FEWEST = 8  # with fewer, 10 % look bimodal by chance, and even a steady rise is not as rare as _CHANCE
_LEAST_SHARE = 5  # a group has at least one in five repeats; fewer are outliers
_MOST_ROUNDS = 30
_CHANCE = 0.001  # a table has 40 cells


def doubts(values: Sequence[float]) -> tuple[str, ...]:
    """``BIMODAL`` and ``DRIFTING``, if they apply to repeats in the order they were made."""
    found = ((BIMODAL, bimodal), (DRIFTING, drifting))
    return tuple(text for text, holds in found if holds(values))


def bimodal(values: Sequence[float]) -> bool:
    """Whether a gap wider than half the range separates the values, with at least a fifth of them on each
    side.

    For normally distributed repeats, 3 % of sets of 8 have such a gap, and almost no set of 15.
    """
    n = len(values)
    if n < _FEWEST:
        return False
    ranked = sorted(values)
    least = -(-n // _LEAST_SHARE)
    gaps = [high - low for low, high in itertools.pairwise(ranked)][least - 1 : n - least]
    widest = max(gaps)
    return widest > (ranked[-1] - ranked[0]) / 2 and widest >= MATERIAL * stats.median(ranked)


def drifting(values: Sequence[float]) -> bool:
    """Whether later values tend to be higher, or lower (Mann 1945, Kendall's S), by an amount that matters.

    The drift is the median of all slopes (Theil and Sen) times the number of steps.
    """
    n = len(values)
    if n < _FEWEST:
        return False
    if n > _MOST_ROUNDS:
        from harness.analysis import steady_state  # here, because few cells have so many repeats

        # The work is proportional to the square of n, and means of consecutive repeats show a drift as well.
        return drifting(steady_state.in_rounds(values, _MOST_ROUNDS))
    pairs = list(itertools.combinations(range(n), 2))
    score = sum((values[j] > values[i]) - (values[j] < values[i]) for i, j in pairs)
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    p = math.erfc(max(abs(score) - 1, 0) / deviation / math.sqrt(2))
    slope = stats.median([(values[j] - values[i]) / (j - i) for i, j in pairs])
    return p <= _CHANCE and abs(slope) * (n - 1) >= MATERIAL * stats.median(values)
