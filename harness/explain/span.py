"""Times with bounds."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.analysis import stats

SINGLE = 0.25
"""The uncertainty of a single measurement in real time, as a part of it.

Repeats in the lab lie up to 12 % from their median (README), so two cells may differ by twice that.
"""


class Span(msgspec.Struct, frozen=True):
    """A time in ns: between ``low`` and ``high``, with the best guess ``mid``."""

    low: float
    mid: float
    high: float


def exact(value: float) -> Span:
    return Span(value, value, value)


def within(value: float, part: float) -> Span:
    """A figure with an uncertainty of ``part`` of it (0.02: 2 %)."""
    return Span(value * (1 - part), value, value * (1 + part))


def of_samples(samples: Sequence[float], *, repeats_exactly: bool = False) -> Span:
    """The bounds of the median of one or more samples (``stats.summarise``).

    A single sample has the uncertainty ``SINGLE``, unless it would repeat exactly (virtual time).
    """
    if len(samples) == 1:
        return exact(samples[0]) if repeats_exactly else within(samples[0], SINGLE)
    found = stats.summarise(samples)
    return Span(found.low, found.median, found.high)
