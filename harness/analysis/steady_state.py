"""Is a measurement steady? The criterion of SNIA's PTS, on rounds of bandwidth within or across cells.

SNIA Solid State Storage Performance Test Specification (PTS), definition of steady state: over a window of
five rounds, the range is at most 20 % of the mean, and the best straight line rises or falls by at most 10 %
of the mean from the first round to the last. fio's own ``steadystate`` checks only one criterion at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

WINDOW = 5
"""Rounds in a window."""

MOST_RANGE = 0.20
MOST_RISE = 0.10


class SteadyState(msgspec.Struct, frozen=True, kw_only=True):
    """A window of rounds: range and rise as parts of their mean.

    ``rise`` is that of the least-squares line from the first round to the last; it is negative if the line
    falls.
    """

    range: float
    rise: float

    @property
    def attained(self) -> bool:
        return self.range <= MOST_RANGE and abs(self.rise) <= MOST_RISE


def assess(rounds: Sequence[float]) -> SteadyState:
    """The last five of ``rounds``; ValueError for fewer, and for a mean that is not above zero."""
    window = rounds[-WINDOW:]
    mean = sum(window) / WINDOW
    if len(window) < WINDOW or mean <= 0:
        raise ValueError(f"expected {WINDOW} rounds with a mean above zero")
    middle = (WINDOW - 1) / 2
    moments = sum((place - middle) * value for place, value in enumerate(window))
    slope = moments / sum((place - middle) ** 2 for place in range(WINDOW))
    return SteadyState(
        range=(max(window) - min(window)) / mean, rise=slope * (WINDOW - 1) / mean
    )  # fmt: skip


def settled_after(rounds: Sequence[float]) -> int | None:
    """How many rounds there were when five in a row were steady for the first time; None: never."""
    for made in range(WINDOW, len(rounds) + 1):
        if any(rounds[made - WINDOW : made]) and assess(rounds[:made]).attained:
            return made
    return None


def in_rounds(samples: Sequence[float], rounds: int = WINDOW) -> list[float]:
    """Means of this many equal runs of consecutive samples (batch means); excess samples at the front are
    left out.

    Such means depend less on each other than the samples do. ValueError for fewer samples than rounds.
    """
    each = len(samples) // rounds
    if not each:
        raise ValueError(f"expected at least {rounds} samples, found {len(samples)}")
    start = len(samples) - rounds * each
    return [sum(samples[i : i + each]) / each for i in range(start, len(samples), each)]
