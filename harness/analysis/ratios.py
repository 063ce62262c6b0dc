"""How many times as fast is B as A, and is that more than chance? Pure functions over repeats of one cell.

The repeat is the unit: the I/Os within one repeat are not independent, and they do not show what varies
between runs. All computations use logarithms, where a ratio is a shift:

- **Few repeats** (under 10 on a side): Student's t of trimmed means. So few repeats have too few orders for
  ranks to tell one cell of forty. Averages over many I/Os are near normal, with one variance on both sides. A
  tail (a high percentile, the busiest of cores) follows few I/Os, and often has two modes. If four repeats
  happen to be all in one mode, and four all in the other, each side scatters little and they lie far apart:
  1 division in 35 of the same eight repeats can be like that. So each side of a tail has its own variance,
  and t the degrees of freedom of the smaller side, the bound for normal samples of any two variances (Hsu,
  Statistical Research Memoirs 2, 1938; Mickey and Brown, Ann. Math. Stat. 37, 1966). Tight modes can still
  pass it; ranks, which cannot err so, never show anything of four repeats a side.
- **More**: the Mann-Whitney test and its Hodges-Lehmann interval (Hollander, Wolfe and Chicken, Nonparametric
  Statistical Methods, sections 4.1-4.3). The repeats in which a machine warms up are removed from both
  samples by MSER (White, Simulation 69(6), 1997).

The ranks of the latter assume nothing about the distribution except that A and B are interchangeable if
they do not differ. They count exactly, in integers. On a machine that drifts, consecutive repeats resemble
each other, so they count as fewer: the variance is inflated for the autocorrelation found, after the
correction for its bias (Marriott and Pope, Biometrika 41, 1954).

Two runs are two bring-ups, which differ by more than the repeats within a run show. No sample has that, so it
comes on top (``BETWEEN_RUNS``). ``bench/power.py`` prints how often all this errs on generated runs,
``bench/halves.py`` how often on halves of stored ones.
"""

from __future__ import annotations

import bisect
import enum
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import msgspec

from harness.analysis import stats, steady_state
from harness.analysis.stats import RANKS_FROM

CONFIDENCE = 0.95
"""Confidence of every interval."""

LEVEL = 0.02
"""The largest p of a difference that counts. It is not 5 %, because the autocorrelation that few repeats hide
adds errors: for repeats that resemble the one before by a half, bench/power.py finds 5 % in all."""

FEWEST = 2
"""One repeat of a side does not say how others would scatter."""

BETWEEN_RUNS = 0.01
"""How much the figure of a cell varies from run to run beyond what its repeats show: the standard deviation
of its logarithm. Measured in the lab: bench/compare_runs.py."""

BETWEEN_RUNS_OF_MEMORY, MEMORY_BYTES_S = 0.03, 1e9
"""The same of cells that move more than so much a second. Memory is what limits these, and nobody sees how
much of it others on the machine use: three runs on a quiet one differed by up to 6 %."""

_MOST = 200  # repeats of a side; with more, means of consecutive repeats take their place
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_EXACT_UP_TO = 40  # repeats; beyond, the normal distribution is within 0.1 % of the exact one
_HIGHEST_AUTOCORRELATION = 0.95
_MOST_WARM_UP = 3  # the part of the repeats that may be removed: one in three
_LEAST_GAIN = 0.5  # the mean's squared standard error must fall to this part


class Judgement(enum.StrEnum):
    """What the comparison of a cell says about B."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """B over A. ``low`` and ``high`` bound it with 95 % confidence; None: too few repeats for that.

    ``p`` is the probability of a difference this clear between two samples of the same distribution.
    ``inflation`` is how many repeats count as one because of their autocorrelation. ``warm_up`` is how many
    repeats were removed at the beginning of both samples. ``more`` is the half width, as a logarithm, that
    the interval would have with endless repeats, because A and B are different runs.
    """

    ratio: float
    low: float | None
    high: float | None
    p: float
    n_a: int
    n_b: int
    inflation: float = 1.0
    warm_up: int = 0
    more: float = 0.0


def ratio_of(a: Sequence[float], b: Sequence[float], *, between: float = 0.0, is_tail: bool = False) -> Ratio:
    """B over A, from repeats in the order of measurement, all above zero.

    ``between`` is the standard deviation of log B - log A that no repeat shows, because A and B are different
    runs. ``is_tail``: few I/Os decide a repeat's figure, and not the average of many. With more than 200
    repeats on a side, means of consecutive repeats take their place. ValueError for no samples, and for a
    sample that is not above zero.
    """
    if not (a and b and min(*a, *b) > 0):
        raise ValueError("expected samples above zero on both sides")
    log_a, log_b = list(map(math.log, a)), list(map(math.log, b))
    # The work is proportional to the product of both numbers.
    log_a, log_b = (
        side if len(side) <= _MOST else steady_state.in_rounds(side, _MOST) for side in (log_a, log_b)
    )
    few = min(len(log_a), len(log_b)) < RANKS_FROM
    found = _of_few(log_a, log_b, is_tail=is_tail) if few else _of_many(log_a, log_b)
    return _over_runs(found, between) if between else found


def judge(ratios: Sequence[Ratio], *, margin: float, higher_is_better: bool) -> list[tuple[Judgement, float]]:
    """The verdict on each of several cells that are compared together, and its adjusted p.

    Among 40 cells that do not differ, some will look as if they did. So the p are adjusted after Benjamini
    and Hochberg (J. R. Stat. Soc. B 57, 1995): at most ``LEVEL`` of all differences shown are expected to be
    none, and if no cell differs, the chance of showing any is at most ``LEVEL``. Equivalent says more
    than that none was found: the interval lies within ``margin`` of 1.
    """
    return [
        (_verdict(ratio, p, margin, higher_is_better), p)
        for ratio, p in zip(ratios, adjusted([ratio.p for ratio in ratios]), strict=True)
    ]


def repeats_needed(found: Ratio, margin: float) -> int | None:
    """How many repeats a side would judge a difference of this size, if they scatter as these do.

    None if no number up to 200 would: what varies between runs alone is too much, or there is no interval.
    """
    if found.low is None or found.high is None:
        return None
    size, limit = abs(math.log(found.ratio)), -math.log1p(-margin)
    half = math.log(found.high / found.low) / 2
    # Either the interval lies within the margin, or it leaves 1 out with the confidence of LEVEL.
    wanted = max(limit - size, size * _Z / NormalDist().inv_cdf(1 - LEVEL / 2))
    within, more = half**2 - found.more**2, wanted**2 - found.more**2
    if more <= 0:
        return None
    fewest = min(found.n_a, found.n_b)
    needed = max(math.ceil(fewest * within / more), fewest + 1)
    return needed if needed <= _MOST else None


def adjusted(ps: Sequence[float]) -> list[float]:
    """Each p as the rate of false discoveries among all that are as small (Benjamini and Hochberg, 1995)."""
    found = [1.0] * len(ps)
    lowest = 1.0
    for rank, index in sorted(enumerate(sorted(range(len(ps)), key=ps.__getitem__), 1), reverse=True):
        lowest = min(lowest, ps[index] * len(ps) / rank)
        found[index] = lowest
    return found


def _verdict(ratio: Ratio, p: float, margin: float, higher_is_better: bool) -> Judgement:
    if p <= LEVEL and ratio.ratio != 1:
        return Judgement.FASTER if (ratio.ratio > 1) == higher_is_better else Judgement.SLOWER
    if ratio.low is None or ratio.high is None or ratio.low < 1 - margin or ratio.high > 1 / (1 - margin):
        return Judgement.INCONCLUSIVE
    return Judgement.EQUIVALENT


def _of_few(a: Sequence[float], b: Sequence[float], *, is_tail: bool) -> Ratio:
    (mean_a, squares_a, kept_a), (mean_b, squares_b, kept_b) = stats.trimmed(a), stats.trimmed(b)
    shift = mean_b - mean_a
    low = high = None
    p = 1.0
    if min(len(a), len(b)) >= FEWEST:
        freedom = kept_a + kept_b - 2
        error = math.sqrt((squares_a + squares_b) / freedom * (1 / kept_a + 1 / kept_b))
        if is_tail:
            # Of two variances (Yuen, Biometrika 61, 1974).
            freedom = min(kept_a, kept_b) - 1
            error = math.sqrt(squares_a / (kept_a - 1) / kept_a + squares_b / (kept_b - 1) / kept_b)
        half = stats.student_quantile(freedom) * error
        low, high = math.exp(shift - half), math.exp(shift + half)
        p = stats.student_p(shift / error, freedom) if error else float(shift == 0)
    ratio = math.exp(shift)
    return Ratio(ratio=ratio, low=low, high=high, p=p, n_a=len(a), n_b=len(b))


def _over_runs(found: Ratio, between: float) -> Ratio:
    """The same with the variance between runs on top of that within them."""
    if found.low is None or found.high is None:
        return found
    shift, more = math.log(found.ratio), _Z * between
    below = math.hypot(shift - math.log(found.low), more)
    above = math.hypot(math.log(found.high) - shift, more)
    towards_none = below if shift > 0 else above
    return msgspec.structs.replace(
        found,
        low=math.exp(shift - below),
        high=math.exp(shift + above),
        # Never below the p of the ranks, which says no more than so few orders can.
        p=max(found.p, math.erfc(_Z * abs(shift) / towards_none / math.sqrt(2))),
        more=more,
    )


Cumulative = Callable[[int], float]
"""P(X <= x) of a rank statistic."""


def _of_many(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """Estimate, interval and p by ranks. The statistic is the number of shifts above zero."""
    warm_up = _warm_up(a, b)
    a, b = a[warm_up:], b[warm_up:]
    m, n = len(a), len(b)
    shifts = sorted(y - x for x in a for y in b)
    cumulative = _rank_sums(m, n)
    inflation = _inflation([a, b])
    count = len(shifts)
    deviation = math.sqrt(m * n * (m + n + 1) / 12 * inflation)
    negative, not_positive = bisect.bisect_left(shifts, 0), bisect.bisect_right(shifts, 0)
    above = count - not_positive + (not_positive - negative) / 2
    extreme = math.floor(min(above, count - above))
    p = min(1.0, 2 * cumulative(extreme))
    if inflation > 1:
        # With the continuity correction. Never below the exact p: inflation only raises p.
        p = max(p, math.erfc(max(0.0, count / 2 - extreme - 0.5) / deviation / math.sqrt(2)))
    half = (1 - CONFIDENCE) / 2
    rank = bisect.bisect_right(range(count // 2), half, key=cumulative)
    if inflation > 1:
        rank = min(rank, math.floor(count / 2 - NormalDist().inv_cdf(1 - half) * deviation))
    return Ratio(
        ratio=math.exp(stats.median(shifts)),
        low=math.exp(shifts[rank - 1]) if rank > 0 else None,
        high=math.exp(shifts[-rank]) if rank > 0 else None,
        p=p,
        n_a=m,
        n_b=n,
        inflation=inflation,
        warm_up=warm_up,
    )


def _inflation(series: Sequence[Sequence[float]]) -> float:
    """The variance of a mean of such samples over that of as many independent ones; at least 1.

    It assumes an autocorrelation that falls geometrically (AR(1)), estimated from neighbours in all
    ``series`` together. Autocorrelation also makes the spread of the samples look smaller, which is included.
    """
    products = squares = 0.0
    for values in series:
        mean = math.fsum(values) / len(values)
        rest = [value - mean for value in values]
        products += sum(x * y for x, y in itertools.pairwise(rest))
        squares += sum(x * x for x in rest)
    n = sum(map(len, series)) / len(series)
    if squares == 0 or n < 2:
        return 1.0
    found = products / squares
    # Subtracting the mean lowers the estimate by (1 + 3 rho) / n.
    rho = min(found + (1 + 3 * max(found, 0.0)) / n, _HIGHEST_AUTOCORRELATION)
    if rho <= 0:
        return 1.0
    of_mean = 1 + 2 * sum((1 - lag / n) * rho**lag for lag in range(1, math.ceil(n)))
    of_spread = max((n - of_mean) / (n - 1), 0.05)
    return max(1.0, of_mean / of_spread)


def _warm_up(a: Sequence[float], b: Sequence[float]) -> int:
    """How many repeats to remove at the beginning of both: as many as make the means known best.

    One number for both, found from both: a number for each could make two equal samples differ.
    """
    longest = min(len(a), len(b)) // _MOST_WARM_UP
    errors = [
        (_squares(a[cut:]) + _squares(b[cut:])) / (len(a) + len(b) - 2 * cut) ** 2
        for cut in range(longest + 1)
    ]  # fmt: skip
    best = min(range(len(errors)), key=errors.__getitem__)
    return best if errors[best] < _LEAST_GAIN * errors[0] else 0


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


@functools.lru_cache(maxsize=256)
def _rank_sums(m: int, n: int) -> Cumulative:
    """Distribution of the number of pairs with B above A, if all orders of all m + n samples are equally
    likely.

    The counts are the coefficients of the Gaussian binomial: the product over i = 1 .. m of
    (1 - q^(n+i)) / (1 - q^i).
    """
    if max(m, n) > _EXACT_UP_TO:
        return NormalDist(m * n / 2, math.sqrt(m * n * (m + n + 1) / 12)).cdf
    counts = [1] + [0] * (m * n)
    for i in range(1, m + 1):
        for total in range(m * n, n + i - 1, -1):
            counts[total] -= counts[total - n - i]
        for total in range(i, m * n + 1):
            counts[total] += counts[total - i]
    whole = sum(counts)
    return [below / whole for below in itertools.accumulate(counts)].__getitem__
