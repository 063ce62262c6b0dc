"""A sweep's section of a plan, and which point is measured next: where its curve is least sure, until it is
sure enough.

First the ends and the middle of each axis. Then, in blocks of a few points of each curve in a random order,
those that ``analysis.response`` knows least of; until it knows all others within the error that was asked
for, and has forecast two blocks of points within it before they were measured.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from harness.analysis import disturbance
from harness.analysis.response import Estimate
from harness.analysis.schedule import Place, Schedule, throughput_bytes_s
from harness.model import Cell, Plan, Record
from harness.model.errors import UsageError
from harness.model.texts import Name
from harness.model.units import unknown_name
from harness.results.axes import AXES, Curve
from harness.results.curves import MeasuredCurve, Surface, axes_of, measured, surfaces
from harness.results.sections import AdaptiveSection, Rows

AT_ONCE = 3
"""Points of a curve in a block: to fit one takes a tenth of a second or more."""

RIGHT_ROUNDS = 2
"""How many blocks have to be forecast, one after the other."""

IN_VAIN = 2
"""How often a point that fails is tried."""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A run that measures only as many points of its grid as its curves need.

    ``over`` are the axes (``results.axes``). It ends when 90 % of the unmeasured points are predicted within
    ``error`` (0.05: 5 %), or after ``max_s``, by the clock of the measurement.
    """

    over: tuple[Name, ...]
    error: float = 0.05
    max_s: float | None = None


@dataclass
class _Known:
    """A curve as far as it is known: how many of its blocks were forecast right, one after the other."""

    surface: Surface
    forecast: dict[Place, Estimate] = field(default_factory=dict)
    right_rounds: int = 0


class SweepSchedule(Schedule):
    """The cells of a sweep, each once: those that its curves take. Cells on no curve are measured first.

    A resumed sweep takes the way that it took, by its records, and goes on at its end.
    """

    def __init__(self, plan: Plan, asked: Sweep, records: Iterable[Record] = ()) -> None:
        super().__init__(plan, records)
        self.max_s = asked.max_s
        self._error = asked.error
        self._curves = [_Known(surface) for surface in surfaces(plan, asked.over).values()]
        self._orders = {(cell.column, cell.workload): place for place, cell in enumerate(self._order)}
        self._reached: set[Place] = set()
        """The places of all blocks so far: what else was measured is not looked at yet."""
        self._ahead = len(self._next_block())

    def __iter__(self) -> Iterator[tuple[int, Cell]]:
        block = 0
        while places := self._next_block():
            self._reached.update(places)
            # Not for secrecy: a stored seed must give the same order again.
            random.Random(f"{self.plan.seed}/{block}").shuffle(places)  # noqa: S311
            block += 1
            orders = [self._orders[place] for place in places if Cell(*place, 1) not in self._done]
            for passed, order in enumerate(orders):
                self._ahead = len(orders) - passed
                yield order, self._order[order]
            yield from self._again(orders)

    @property
    def expected(self) -> int:
        """How many cells remain at least: those of the present block."""
        return self._ahead

    def _next_block(self) -> list[Place]:
        if self._time_is_up:
            return []
        known = {
            place: record
            for place in self.measured
            if place in self._reached
            for record in disturbance.counting(self.measured[place].values())[:1]
        }
        rates = {place: throughput_bytes_s(record) for place, record in known.items()}
        for curve in self._curves:
            curve.surface.learn(self.plan, known)
        on_curves = {place for curve in self._curves for place in curve.surface.grid}
        block = [place for place in self.measured if place not in on_curves]
        for curve in self._curves:
            block += self._of(curve, rates)
        return [place for place in block if place not in rates and self._in_vain[place] < IN_VAIN]

    def _of(self, curve: _Known, rates: Mapping[Place, float]) -> list[Place]:
        """The next points of a curve; none if it is sure enough."""
        surface = curve.surface
        first = [each for each in surface.first() if each not in rates and self._in_vain[each] < IN_VAIN]
        if first or len(rates.keys() & surface.grid.keys()) == len(surface.grid):
            return first
        tried = [place for place in curve.forecast if place in rates]
        if tried:
            was_right = all(
                abs(math.log(rates[place] / curve.forecast[place].mid)) <= self._error for place in tried
            )
            curve.right_rounds = curve.right_rounds + 1 if was_right else 0
            curve.forecast = {}
        estimates = surface.estimates(rates)
        left = sorted(
            (place for place in estimates if self._in_vain[place] < IN_VAIN),
            key=lambda each: -estimates[each].error,
        )
        unsure = [place for place in left if estimates[place].error > self._error]
        if not unsure and curve.right_rounds >= RIGHT_ROUNDS:
            return []
        curve.forecast = {place: estimates[place] for place in left[:AT_ONCE]}
        return left[:AT_ONCE]


class SweepSection(AdaptiveSection[Sweep]):
    name = "sweep"
    holds = Sweep

    def check(self, plan: Plan) -> None:
        asked = self.of(plan)
        for axis in asked.over:
            if axis not in AXES:
                raise unknown_name("axis", axis, AXES)
        if not (asked.over and 0 < asked.error < 1 and plan.repeats == 1 and plan.stop is None):
            raise UsageError("expected axes, an error below 100 %, and each point once")

    def schedule(self, plan: Plan, records: Iterable[Record]) -> Schedule:
        return SweepSchedule(plan, self.of(plan), records)

    def grids(self, plan: Plan) -> Mapping[Curve, Surface]:
        return surfaces(plan, self.of(plan).over)

    def axes(self, plan: Plan) -> Mapping[str, str]:
        return axes_of(self.grids(plan))

    def curves(self, plan: Plan, records: Sequence[Record]) -> list[MeasuredCurve]:
        return measured(plan, self.of(plan).over, records)

    def over(self, axis: str, first: str, last: str) -> str:
        return f"harness sweep --over {axis}={first}..{last}"

    def amount(self, plan: Plan) -> str:
        error = f"{100 * self.of(plan).error:g} %"
        return f"points:    up to {len(plan.places)}, until all others are predicted within {error}"

    def left(self, plan: Plan, records: Sequence[Record]) -> Rows:
        error = self.of(plan).error
        lines: list[tuple[str, ...]] = []
        fitted = {found.curve: found for found in self.curves(plan, records)}
        for curve, surface in self.grids(plan).items():
            points, rest, unsure = 0, len(surface.grid), len(surface.grid)
            if (found := fitted.get(curve)) is not None:
                points, rest = len(found.records), len(found.estimates)
                unsure = sum(each.error > error for each in found.estimates.values())
            lines.append((curve.name, str(points), str(rest), str(unsure)))
        return ("curve", "points measured", "at most left", f"not known within {100 * error:g} %"), lines


SECTION = SweepSection()
OFFERED = (SECTION,)
