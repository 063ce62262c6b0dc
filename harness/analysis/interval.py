"""A figure with its interval: how far off it may be, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from harness.analysis import stats

SINGLE = 0.25
"""The uncertainty of a single measurement in real time, as a part of it.

Repeats in the lab lie up to 12 % from their median (README), so two cells may differ by twice that.
"""

COVERED = 1.645
"""Standard deviations to either side that have 90 % of a normal distribution."""


class Interval(msgspec.Struct, frozen=True, omit_defaults=True):
    """Most likely ``mid``, and from ``low`` to ``high`` with the probability ``coverage``.

    Without a ``coverage`` these are bounds: of the median of samples (``stats.summarise``), or of all that
    can be. ``made_of`` has the sources of uncertainty by name, each as the half width of the logarithm that
    it would have alone.
    """

    low: float
    mid: float
    high: float
    coverage: float | None = None
    made_of: Mapping[str, float] = {}

    @property
    def half_width(self) -> float:
        """How far it reaches to either side, on average."""
        return (self.high - self.low) / 2

    def has(self, value: float) -> bool:
        return self.low <= value <= self.high

    def times(self, factor: float) -> Interval:
        """The same in another unit; ``factor`` is above 0."""
        return msgspec.structs.replace(
            self, low=factor * self.low, mid=factor * self.mid, high=factor * self.high
        )

    def by(self, other: Interval) -> Interval:
        """The bounds of the product of two that are not negative."""
        return Interval(self.low * other.low, self.mid * other.mid, self.high * other.high)

    def plus(self, other: Interval) -> Interval:
        """The bounds of the sum."""
        return Interval(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def most(self, other: Interval) -> Interval:
        """The bounds of the larger one."""
        return Interval(max(self.low, other.low), max(self.mid, other.mid), max(self.high, other.high))

    def over(self, other: Interval) -> Interval:
        """The bounds of the quotient of two that are not negative; infinite where ``other`` may be 0."""
        return self.by(other.falling(lambda value: 1 / value if value else math.inf))

    def rising(self, of: Callable[[float], float]) -> Interval:
        """The bounds of a function that rises."""
        return Interval(of(self.low), of(self.mid), of(self.high))

    def falling(self, of: Callable[[float], float]) -> Interval:
        """The bounds of a function that falls."""
        return Interval(of(self.high), of(self.mid), of(self.low))


def exact(value: float) -> Interval:
    return Interval(value, value, value)


def around(value: float, reach: float) -> Interval:
    """A figure that may be off by ``reach``, in its unit."""
    return Interval(value - reach, value, value + reach)


def within(value: float, part: float) -> Interval:
    """A figure with an uncertainty of ``part`` of it (0.02: 2 %)."""
    return around(value, value * part)


def of_sources(mid: float, made_of: Mapping[str, float]) -> Interval:
    """Independent sources of uncertainty, each the half width of a logarithm's 90 % interval, together."""
    factor = math.exp(math.hypot(*made_of.values()))
    return Interval(mid / factor, mid, mid * factor, 0.9, made_of)


def of_samples(samples: Sequence[float], *, repeats_exactly: bool = False) -> Interval:
    """The bounds of the median of one or more samples (``stats.summarise``).

    A single sample has the uncertainty ``SINGLE``, unless it would repeat exactly (virtual time).
    """
    if len(samples) == 1:
        return exact(samples[0]) if repeats_exactly else within(samples[0], SINGLE)
    found = stats.summarise(samples)
    return Interval(found.low, found.median, found.high)
