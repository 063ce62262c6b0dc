"""CPU costs: how long a processor works for one operation, as they follow from what whole I/Os took of it.

Each I/O is so many operations (``operations``), and what a core worked for it is their number times their CPU
costs. Cells that differ in one thing, such as a longer block or a protection, tell the CPU costs apart: by
least squares of the relative errors, none below 0 (Lawson and Hanson, Solving Least Squares Problems, 1974,
chapter 23). How sure a CPU cost is, is what leaving out each cell in turn makes of it: the jackknife (Efron,
The Jackknife, the Bootstrap and Other Resampling Plans, 1982, chapter 3).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Annotated, NamedTuple

import msgspec

from harness.analysis import cholesky
from harness.analysis.interval import COVERED, Interval, around
from harness.model.texts import Line, Name, Parameter, Part

VERSION = 1
"""Of the file."""

LARGEST_NS = 1e12

Nanoseconds = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_NS)]


class WhichEnd(enum.StrEnum):
    """Which end of a path works; ``BOTH``: one kernel has both, and of each nothing is known."""

    INITIATOR = "initiator"
    TARGET = "target"
    BOTH = "both"
    NONE = "none"
    """No end: a processor idles meanwhile, or the operation was timed by itself."""


class Per(enum.StrEnum):
    """What a CPU cost is of. A wake-up is that of an I/O that is alone; of several at once fewer are waited
    for."""

    IO = "I/O"
    BYTE = "byte"
    PACKET = "packet"
    CALL = "system call"
    WAKE_UP = "wake-up"
    ROUND_TRIP = "round trip"


class Operation(NamedTuple):
    """What has a CPU cost: a part of the path, what of it is counted, and for I/Os of which direction ("" is
    both)."""

    part: str
    per: Per
    direction: str = ""


class CpuCost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a core of the end ``at`` works for one operation: most likely ``ns``, with 90 % from ``low``
    to ``high``. ``rests_on`` says in words what was measured."""

    part: Part
    per: Per
    at: WhichEnd
    ns: Nanoseconds
    low: Nanoseconds
    high: Nanoseconds
    direction: Line = ""
    rests_on: Line = ""

    def __post_init__(self) -> None:
        if not self.low <= self.ns <= self.high:  # so that NaN is refused as well
            raise ValueError(f"expected low <= ns <= high, found {self.low}, {self.ns} and {self.high}")

    @classmethod
    def of(cls, operation: Operation, at: WhichEnd, found: Interval, rests_on: str) -> CpuCost:
        """With four digits, so that a file can be read; rounding leaves bounds in order."""
        low, ns, high = (float(f"{max(0.0, value):.4g}") for value in (found.low, found.mid, found.high))
        part, per, direction = operation
        return cls(
            part=part, per=per, direction=direction, at=at, ns=ns, low=low, high=high, rests_on=rests_on
        )

    @property
    def operation(self) -> Operation:
        return Operation(self.part, self.per, self.direction)


class Fit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How well the CPU costs say what was measured: of so many ``cells``, the ``error`` of the middle one
    that was left out of the fit, as a part of it. Other programs took the part ``taken`` of the processors'
    time in the middle measurement."""

    cells: int
    repeats: int
    error: Annotated[float, msgspec.Meta(ge=0, le=10)]
    taken: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class CpuCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The CPU costs of a machine (``profiles/cpu-costs/*.toml``), without any name or address of it.

    ``title`` is for people. ``sessions`` has the numbers on which the ends of each transport agreed.
    ``cores`` counts those of each end's kernel. ``drivers`` are those of the ciphers, by protection.
    """

    name: Name
    version: int
    title: Line
    processor: Line = ""
    kernel: Line = ""
    cores: int = 1
    governor: Line = ""
    measured: Line = ""
    drivers: dict[Name, Line] = {}
    sessions: dict[Name, dict[Parameter, Annotated[int, msgspec.Meta(ge=-1, le=2**53)]]] = {}
    fit: Fit | None = None
    costs: tuple[CpuCost, ...] = ()

    def at(self, whose: WhichEnd) -> dict[Operation, CpuCost]:
        """The CPU costs of one end."""
        return {cost.operation: cost for cost in self.costs if cost.at is whose}


Counts = Mapping[Operation, float]
"""How many of each operation there are in one I/O."""


def fit(cells: Sequence[tuple[Counts, float, float]]) -> tuple[dict[Operation, Interval], float]:
    """The CPU costs by which these I/Os took so many ns of a core, of so many that it worked in all, and the
    median error of a cell that was left out, as a part of all. An operation that no cell has, has no CPU
    cost. ValueError without cells."""
    if not cells:
        raise ValueError("expected cells, found none")
    names = list(dict.fromkeys(name for counts, *_ in cells for name, count in counts.items() if count))
    rows = [[counts.get(name, 0.0) / all_ns for name in names] for counts, _, all_ns in cells]
    wanted = [ns / all_ns for _, ns, all_ns in cells]
    # Columns of about one size: a byte's CPU cost is a millionth of an I/O's.
    scales = [max(row[i] for row in rows) for i in range(len(names))]
    rows = [[value / scale for value, scale in zip(row, scales, strict=True)] for row in rows]
    gram = [[sum(row[i] * row[j] for row in rows) for j in range(len(names))] for i in range(len(names))]
    towards = [sum(row[i] * part for row, part in zip(rows, wanted, strict=True)) for i in range(len(names))]
    whole = _non_negative(gram, towards)
    without, errors = [], []
    for row, part in zip(rows, wanted, strict=True):
        less = [
            [cell - a * b for cell, b in zip(line, row, strict=True)]
            for line, a in zip(gram, row, strict=True)
        ]
        found = _non_negative(less, [value - a * part for value, a in zip(towards, row, strict=True)], whole)
        errors.append(abs(sum(map(mul, row, found)) - part))
        without.append(found)
    n = len(rows)
    squares = sum((sum(map(mul, row, whole)) - part) ** 2 for row, part in zip(rows, wanted, strict=True))
    left = math.sqrt(squares / max(1, n - sum(value > 0 for value in whole)))
    costs = {}
    for i, name in enumerate(names):
        mean = sum(found[i] for found in without) / n
        variance = (n - 1) / n * sum((found[i] - mean) ** 2 for found in without)
        # A CPU cost at 0 may be there without any cell: what all cells leave is the least that it may be off
        # by.
        deviation = max(math.sqrt(variance), left / math.sqrt(gram[i][i]))
        # What no cell tells apart from it may be its own.
        same = [whole[j] for j in range(len(names)) if j != i and _is_same(gram, i, j)]
        reach = max(COVERED * deviation, sum(same))
        costs[name] = around(whole[i], reach).times(1 / scales[i])
    return costs, sorted(errors)[n // 2]


RIDGE = 1e-9
"""Of what no cell tells apart, each has a part."""


def _is_same(gram: Sequence[Sequence[float]], i: int, j: int) -> bool:
    """Whether all cells have of two operations the same multiple (Cauchy and Schwarz: they are parallel)."""
    return gram[i][j] ** 2 >= (1 - RIDGE) * gram[i][i] * gram[j][j]


def _non_negative(
    gram: Sequence[Sequence[float]], towards: Sequence[float], begin: Sequence[float] = ()
) -> list[float]:
    """The x without anything below 0 that makes x'Gx - 2 x'towards the least, by Lawson and Hanson's active
    set. ``begin`` is a solution of a problem much like it."""
    count = len(towards)
    active = [i for i in range(count) if begin and begin[i] > 0]
    x = [0.0] * count
    for _ in range(3 * count + 3):
        while active:
            solved = cholesky.solved(
                [[gram[i][j] + RIDGE * (i == j) for j in active] for i in active],
                [towards[i] for i in active],
            )
            if min(solved) > 0:
                x = [0.0] * count
                for i, value in zip(active, solved, strict=True):
                    x[i] = value
                break
            # As far towards it as nothing falls below 0; what does so first leaves.
            steps = [
                x[i] / (x[i] - v) if x[i] > 0 else 0.0 for i, v in zip(active, solved, strict=True) if v <= 0
            ]
            step = min(steps)
            moved = [x[i] + step * (v - x[i]) for i, v in zip(active, solved, strict=True)]
            kept = [(i, m) for i, m, v in zip(active, moved, solved, strict=True) if m > 1e-12 or v > 0]
            x = [0.0] * count
            for i, m in kept:
                x[i] = max(m, 0.0)
            active = [i for i, _ in kept]
        slopes = [towards[i] - sum(map(mul, gram[i], x)) for i in range(count)]
        best = max((i for i in range(count) if i not in active), key=slopes.__getitem__, default=None)
        if best is None or slopes[best] <= 1e-9:
            break
        active = sorted([*active, best])
    return x


def demand_ns(counts: Counts, costs: Mapping[Operation, CpuCost]) -> tuple[float, float]:
    """How long a core works for one I/O, and how far its 90 % interval reaches. KeyError for an operation
    without a CPU cost."""
    terms = [(count, costs[name]) for name, count in counts.items() if count]
    reach = math.sqrt(sum((count * (cost.high - cost.low) / 2) ** 2 for count, cost in terms))
    return sum(count * cost.ns for count, cost in terms), reach
