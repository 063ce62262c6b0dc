"""Statistics of samples: pure functions over plain floats.

Samples are stored, statistics never: all of this can be computed again from the records. Medians, because a
benchmark's samples are skewed; order statistics, because they assume nothing about the distribution.
"""

from __future__ import annotations

import enum
import functools
import math
import statistics
from collections.abc import Sequence

import msgspec

from harness.model import StoppingRule

FEWEST = 6
"""The fewest samples with a 95 % interval: see ``interval_rank``."""

MARGIN = 0.05
"""The smallest difference that matters, as a part: a difference shown to be smaller counts as none."""

_STUDENT_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""The 97.5 % quantile of Student's t by number of samples (n - 1 degrees of freedom)."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of ``n`` samples; every figure has the samples' own unit.

    ``low`` and ``high`` bound the median with at least 95 % confidence if ``interval`` is true. Fewer than
    six samples cannot do that; then they are the lowest and the highest sample. A bootstrap would not help,
    because what it draws also lies between those two.
    """

    n: int
    median: float
    low: float
    high: float
    minimum: float
    maximum: float
    interval: bool

    @property
    def spread(self) -> float:
        """The distance from the median to the farther of ``low`` and ``high``, as a part of the median."""
        return max(self.high - self.median, self.median - self.low) / self.median if self.median else 0.0


def summarise(samples: Sequence[float]) -> Summary:
    """Median, bounds and extremes of one or more samples in any order; ValueError for none."""
    if not samples:
        raise ValueError("expected samples, found none")
    ranked = sorted(samples)
    n = len(ranked)
    rank = interval_rank(n)
    outer = max(rank, 1)
    return Summary(
        n=n,
        median=_middle(ranked),
        low=ranked[outer - 1],
        high=ranked[n - outer],
        minimum=ranked[0],
        maximum=ranked[-1],
        interval=rank > 0,
    )


class Decision(enum.StrEnum):
    """Whether a cell is measured once more, or why not."""

    GO_ON = "go on"
    NARROW = "the interval was as narrow as was asked for"
    MAX_REPEATS = "the most repeats were made"
    MAX_TIME = "the time was up"
    HOPELESS = "none of its repeats gave a value"


def decide(
    samples: Sequence[float], rule: StoppingRule, *, made: int | None = None, spent_s: float = 0.0
) -> Decision:
    """Whether to measure a cell again, given the values of its repeats so far.

    The rule looks at the width of the median's 95 % interval, never at where it lies: a rule that stops when
    a difference is significant would sooner or later find one where there is none. ``made`` also counts
    repeats without a value (by default there are none), and ``spent_s`` is the time that they all took. Six
    values are the fewest with an interval, so below that ``max_repeats`` alone decides.
    """
    count = len(samples) if made is None else made
    if samples:
        summary = summarise(samples)
        if summary.interval and summary.spread <= rule.width:
            return Decision.NARROW
    if count >= rule.max_repeats:
        return Decision.MAX_REPEATS
    if not samples and count >= FEWEST:
        return Decision.HOPELESS
    if rule.max_s is not None and spent_s >= rule.max_s:
        return Decision.MAX_TIME
    return Decision.GO_ON


def repeats_expected(samples: Sequence[float], rule: StoppingRule) -> int:
    """How many samples it will take in all until the rule stops, estimated from those there are.

    The interval of a median narrows with the square root of their number.
    """
    count = len(samples)
    if decide(samples, rule) is not Decision.GO_ON:
        return count
    if count < FEWEST:
        return min(FEWEST, rule.max_repeats)
    guess = math.ceil(count * (summarise(samples).spread / rule.width) ** 2)
    return min(max(guess, count + 1), rule.max_repeats)


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two middle ones; ValueError for no samples."""
    if not samples:
        raise ValueError("expected samples, found none")
    return _middle(sorted(samples))


class Difference(enum.StrEnum):
    """What ratios say about whether two things differ."""

    SHOWN = "shown"
    NONE = "no difference shown"
    INCONCLUSIVE = "inconclusive"


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of ratios above zero; None: fewer than two ratios have none.

    Six ratios or more have an interval by ranks. Three ratios agree by chance in one of four cases, so fewer
    than six are taken as lognormal: Student's t of their logarithms.
    """
    n = len(ratios)
    if n < 2:
        return None
    summary = summarise(ratios)
    if summary.interval:
        return summary.low, summary.high
    logarithms = [math.log(ratio) for ratio in ratios]
    middle, error = statistics.fmean(logarithms), statistics.stdev(logarithms) / math.sqrt(n)
    low, high = (math.exp(middle + sign * _STUDENT_T[n] * error) for sign in (-1, 1))
    return low, high


def difference(ratios: Sequence[float], margin: float = MARGIN) -> Difference | None:
    """Whether the 95 % interval of ratios above zero contains 1; None: fewer than two ratios have no
    interval.

    If it does: ``NONE`` if the whole interval is within ``margin`` of 1, else ``INCONCLUSIVE``: a difference
    that matters is neither shown nor ruled out.
    """
    interval = ratio_interval(ratios)
    return None if interval is None else difference_of(interval, margin)


def difference_of(interval: tuple[float, float], margin: float = MARGIN) -> Difference:
    """The same by an interval that is known."""
    low, high = interval
    if not low <= 1 <= high:
        return Difference.SHOWN
    within = 1 / (1 + margin) <= low and high <= 1 + margin
    return Difference.NONE if within else Difference.INCONCLUSIVE


def fairness(shares: Sequence[float]) -> float:
    """Jain's index of shares: 1 if all are the same, 1/n if one of n has everything.

    Source: Jain, Chiu, Hawe, DEC-TR-301 (1984). ValueError if there is none, or if all are 0.
    """
    if not any(shares):
        raise ValueError("expected shares, found none above 0")
    return min(1.0, sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)))


@functools.lru_cache(maxsize=1024)
def interval_rank(n: int) -> int:
    """Rank k, counted from 1, such that the k-th lowest and k-th highest of ``n`` samples bound the median.

    It is the narrowest such pair with a confidence of at least 95 %, and 0 if even the extremes have less (n
    < 6). The number of samples below the median is binomial with p = 1/2, so the pair misses the median with
    probability 2 P(X < k). This is computed exactly, in integers (David and Nagaraja, Order Statistics,
    section 7.1); the usual formula with 1.96 sqrt(n) is an approximation.
    """
    below = 0  # 2^n P(X < rank + 1), the samples at ranks 0 .. rank
    combinations = 1
    for rank in range(n // 2 + 1):
        below += combinations
        if 40 * below > 2**n:
            return rank
        combinations = combinations * (n - rank) // (rank + 1)
    return 0


def _middle(ranked: Sequence[float]) -> float:
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2
