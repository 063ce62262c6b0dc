"""Statistics of samples: pure functions over plain floats.

Samples are stored, statistics never: all of this can be computed again from the records. Medians, because a
benchmark's samples are skewed; order statistics, because they assume nothing about the distribution.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
import statistics
from collections.abc import Sequence

import msgspec

from harness.model import StoppingRule

FEWEST = 6
"""The fewest samples with a 95 % interval: see ``interval_rank``."""

REPEATS = 8
"""Of each cell, by default: two such runs show a difference of 10 % (docs/ci.md)."""

RANKS_FROM = 10
"""Samples from which on a comparison uses ranks. Before, ranks hardly show one cell of forty: with 7 on a
side, even a complete separation has 40 x 2 / C(14, 7) = 2.3 %."""

MARGIN = 0.05
"""The smallest difference that matters, as a part: a difference shown to be smaller counts as none."""


median = statistics.median
"""The middle sample, or the mean of the two middle ones; ValueError for no samples."""


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
    interval: bool

    @property
    def spread(self) -> float:
        """The distance from the median to the farther of ``low`` and ``high``, as a part of the median."""
        return max(self.high - self.median, self.median - self.low) / self.median if self.median else 0.0


def summarise(samples: Sequence[float]) -> Summary:
    """Median and bounds of one or more samples in any order; ValueError for none."""
    if not samples:
        raise ValueError("expected samples, found none")
    ranked = sorted(samples)
    n = len(ranked)
    rank = interval_rank(n)
    outer = max(rank, 1)
    return Summary(
        n=n,
        median=median(ranked),
        low=ranked[outer - 1],
        high=ranked[n - outer],
        interval=rank > 0,
    )


class Decision(enum.StrEnum):
    """Whether a cell is measured once more, or why not."""

    GO_ON = "go on"
    NARROW = "the interval was narrow enough"
    MAX_REPEATS = "the limit of repeats was reached"
    MAX_TIME = "the time limit was reached"
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
    return min(math.ceil(count * (summarise(samples).spread / rule.width) ** 2), rule.max_repeats)


class Difference(enum.StrEnum):
    """What ratios say about whether two things differ."""

    DIFFERENT = "different"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of ratios above zero; None: fewer than two ratios have none.

    Ten ratios or more have an interval by ranks. With fewer, it would reach from the lowest to the highest,
    so they are taken as lognormal: Student's t of their logarithms' trimmed mean.
    """
    n = len(ratios)
    if n < 2:
        return None
    if n >= RANKS_FROM:
        summary = summarise(ratios)
        return summary.low, summary.high
    middle, squares, kept = trimmed([math.log(ratio) for ratio in ratios])
    half = student_quantile(kept - 1) * math.sqrt(squares / (kept - 1) / kept)
    return math.exp(middle - half), math.exp(middle + half)


def difference(interval: tuple[float, float] | None, margin: float = MARGIN) -> Difference | None:
    """Whether the 95 % interval of ratios contains 1; None where there is no interval.

    If it does: ``EQUIVALENT`` if the whole interval is within ``margin`` of 1, else ``INCONCLUSIVE``: a
    difference that matters is neither shown nor ruled out.
    """
    if interval is None:
        return None
    low, high = interval
    if not low <= 1 <= high:
        return Difference.DIFFERENT
    within = 1 / (1 + margin) <= low and high <= 1 + margin
    return Difference.EQUIVALENT if within else Difference.INCONCLUSIVE


def trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """The mean without the lowest and the highest sixth, so that one stall among six values cannot move it.

    With it come the sum of squares about the mean in which these sixths have the values next to them, and how
    many values were kept: a t test of trimmed means has kept - 1 degrees of freedom for each sample, and
    squares / (kept - 1) / kept as the variance of its mean (Tukey and McLaughlin, Sankhya A 25, 1963; for two
    samples Yuen and Dixon, Biometrika 60, 1973).
    """
    ranked = sorted(values)
    out = len(ranked) // 6
    kept = ranked[out : len(ranked) - out]
    replaced = [kept[0]] * out + kept + [kept[-1]] * out
    centre = statistics.fmean(replaced)
    return statistics.fmean(kept), math.fsum((value - centre) ** 2 for value in replaced), len(kept)


def student_p(t: float, freedom: int) -> float:
    """The probability that Student's t of so many degrees of freedom is at least as far from 0 as ``t``.

    The closed form for whole degrees (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3-4).
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    # Each term is the one before times cos^2 and (k - 1) / k: k even for even degrees, odd for odd ones.
    steps = ((k - 1) / k * cosine**2 for k in range(2 + odd, freedom, 2))
    terms = itertools.accumulate(steps, lambda term, step: term * step, initial=cosine if odd else 1.0)
    within = sine * math.fsum(terms) if freedom > 1 else 0.0
    return max(0.0, 1 - (2 / math.pi * (angle + within) if odd else within))


@functools.cache
def student_quantile(freedom: int) -> float:
    """The t that Student's t of so many degrees of freedom keeps within with 95 % probability."""
    low, high = 1.0, 13.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if student_p(middle, freedom) > 0.05 else (low, middle)
    return (low + high) / 2


def fairness(shares: Sequence[float]) -> float:
    """Jain's index of shares: 1 if all are the same, 1/n if one of n has everything.

    Source: Jain, Chiu, Hawe, DEC-TR-301 (1984). ValueError if there is none, or if all are 0.
    """
    if not any(shares):
        raise ValueError("expected shares, found none above 0")
    return min(1.0, sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)))


@functools.cache
def interval_rank(n: int) -> int:
    """Rank k, counted from 1, such that the k-th lowest and k-th highest of ``n`` samples bound the median.

    It is the narrowest such pair with a confidence of at least 95 %, and 0 if even the extremes have less (n
    < 6). The number of samples below the median is binomial with p = 1/2, so the pair misses the median with
    probability 2 P(X < k). This is computed exactly, in integers (David and Nagaraja, Order Statistics,
    section 7.1); the usual formula with 1.96 sqrt(n) is an approximation.
    """
    rank = 0
    combinations = below = 1  # 2^n P(X < rank + 1), the samples at ranks 0 .. rank
    while 40 * below <= 2**n:
        combinations = combinations * (n - rank) // (rank + 1)
        below += combinations
        rank += 1
    return rank
