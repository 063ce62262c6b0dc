"""What a column loses to another on a machine that other programs keep busy. Pure functions.

Duet benchmarking (Bulej, Horký, Tůma, Farquet and Prokopec, ICPE 2020) runs two programs side by side, so
that others disturb both alike, and compares them in each pair. Two columns cannot share the lab's core, so a
pair is of one round, in which they take turns. What others took of each side is known, and its difference is
taken out: with waits w = -log(1 - waited) and slowness s = -log(1 - slowed) of the sides A and B,

    log(A / B) = loss + a (w_A - w_B) + b s_A - c s_B

by least squares over all pairs. ``loss`` is what both have in common that were kept waiting alike, on a core
at its own speed. Its interval is Student's t.

That holds as long as the core limits neither side. A side that is short of the core waits longer than the
other, and loses to the load what it would not lose on a quiet machine. ``bench/busy.py`` prints how often
the intervals hold what a quiet machine says.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from operator import mul

import msgspec

from harness.analysis import stats
from harness.model import Record

FEWEST = 8
"""Pairs with which something is said."""

FULL = 0.8
"""A core that is busy for so much of the time may limit next to other programs, as little of it is left."""

ALIKE = 0.2
"""Sides were disturbed alike if their mean waits differ by less."""

WIDEST = 1.5
"""An interval whose end is so many times its beginning says too little."""

_MOST = 0.95
"""Of the time waited that counts; beyond, its logarithm says nothing."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """A measured rate above 0, for which part of the time the run ``waited`` for a processor, by which part
    that was ``slowed``, and how ``busy`` the busiest core was: each 0 to 1 (``telemetry``)."""

    rate: float
    waited: float = 0.0
    slowed: float = 0.0
    busy: float = 0.0

    @classmethod
    def of(cls, rate: float, record: Record) -> Side:
        """Of a run on several machines, what the most disturbed of them took, and the busiest core."""
        cores = record.telemetry.processors if record.telemetry is not None else ()
        waits = [sum(filter(None, (use.waited, use.stolen, use.throttled))) for use in record.background_load]
        return cls(
            rate=rate,
            waited=max(waits, default=0.0),
            slowed=max((use.slowed or 0.0 for use in record.background_load), default=0.0),
            busy=max((use.busiest_core or 0.0 for use in cores), default=0.0),
        )

    @property
    def wait(self) -> float:
        return -math.log(1 - min(_MOST, self.waited))

    @property
    def slowness(self) -> float:
        return -math.log(1 - min(_MOST, self.slowed))


Pair = tuple[Side, Side]
"""What is compared, and with what, in one round."""


class Duet(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio of two sides over ``n`` pairs, and its 95 % interval. If ``is_full``, the load may be what
    limits a side, so it is no figure of a quiet machine."""

    n: int
    ratio: float
    low: float
    high: float
    is_full: bool

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def is_stated(self) -> bool:
        return not self.is_full and self.high < WIDEST * self.low

    def pairs_needed(self, margin: float = stats.MARGIN) -> int:
        """How many pairs like these would give the ratio to within ``margin``."""
        half = math.log(self.high / self.low) / 2
        return max(self.n, math.ceil(self.n * (half / math.log1p(margin)) ** 2))


def compare(pairs: Sequence[Pair]) -> Duet | None:
    """None of too few pairs."""
    if len(pairs) < FEWEST:
        return None
    from harness.analysis import cholesky  # here, because tables only collect the pairs

    rows = [(1.0, a.wait - b.wait, a.slowness, -b.slowness) for a, b in pairs]
    logs = [math.log(a.rate / b.rate) for a, b in pairs]
    columns = [*zip(*rows, strict=True)]
    normal = [[sum(map(mul, one, other)) for other in columns] for one in columns]
    found = cholesky.solved(normal, [sum(map(mul, column, logs)) for column in columns])
    squares = sum((log - sum(map(mul, found, row))) ** 2 for log, row in zip(logs, rows, strict=True))
    freedom = len(pairs) - len(found)
    unit = cholesky.solved(normal, [1.0, *[0.0] * (len(found) - 1)])
    error = math.sqrt(squares / freedom * unit[0])
    # Beyond, it says nothing anyway, and has an exponential.
    half = min(stats.student_quantile(freedom) * error, 100.0)
    waits = [statistics.fmean([side.wait for side in sides]) for sides in zip(*pairs, strict=True)]
    busy = [stats.median([side.busy for side in sides]) for sides in zip(*pairs, strict=True)]
    return Duet(
        n=len(pairs),
        ratio=math.exp(found[0]),
        low=math.exp(found[0] - half),
        high=math.exp(found[0] + half),
        is_full=max(busy) >= FULL or abs(waits[0] - waits[1]) >= ALIKE,
    )
