"""Curves: throughput over axes of links and workloads, as far as it was measured, and estimates between.

``Surface`` is a curve's grid, known before anything is measured; ``MeasuredCurve`` has its records.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.analysis import disturbance, path_demands, response
from harness.analysis.response import Estimate, Point, Response
from harness.analysis.schedule import Place, Schedule, throughput_bytes_s
from harness.analysis.theory import IoDirection
from harness.analysis.wire import framing_of_column
from harness.model import LinkProfile, Plan, Record
from harness.parse.fio import ADDED_UP
from harness.results.axes import AXES, Curve, curve_of, workloads
from harness.results.machine import side_of

SCATTER = 0.03
"""By how much two measurements of a point differ, where nothing says better."""


@dataclass
class Surface:
    """A curve's grid with what is ``fixed`` on it, and what an I/O asks of the path at each point."""

    grid: Mapping[Place, dict[str, float]]
    fixed: Mapping[str, float] = field(default_factory=dict)
    paths: Mapping[Place, path_demands.Demands] = field(default_factory=dict)

    @property
    def axes(self) -> tuple[str, ...]:
        """Those along which its points differ."""
        points = list(self.grid.values())
        return tuple(
            name for name in points[0] if name in AXES and len({point[name] for point in points}) > 1
        )

    def learn(self, plan: Plan, known: Mapping[Place, Record]) -> None:
        """Take from a record of it what the session agreed on, and so what the path takes of each point."""
        record = next((known[place] for place in self.grid if place in known), None)
        if record is None or record.column.transport is None or self.paths:
            return
        # A mix has no path of its own: its reads' stands for it.
        direction: IoDirection = "write" if record.workload.direction == "write" else "read"
        found = {}
        for place in self.grid:
            column, link = place[0], plan.links[place[0].link]
            framing = framing_of_column(column, plan.proposals, link)
            block_bytes = round(self.point(place).block_bytes)
            found[place] = path_demands.of_session(
                link, framing, record.column.transport, record.session, direction, block_bytes
            )
        self.paths = {place: path for place, path in found.items() if path is not None}

    def point(self, place: Place) -> Point:
        """A place with what is known of its I/Os."""
        axes = self.grid[place]
        numbers = {**self.fixed, **axes}
        in_flight = numbers.get("depth", 1.0) * numbers.get("jobs", 1.0)
        block_bytes = numbers.get("block", response.TYPICAL_BLOCK_BYTES)
        return Point(axes, block_bytes, in_flight, self.paths.get(place))

    def first(self) -> list[Place]:
        """The ends and the middle of each axis."""
        kept = {}
        for axis in self.axes:
            values = sorted({point[axis] for point in self.grid.values()})
            kept[axis] = {values[0], values[len(values) // 2], values[-1]}
        return [
            place
            for place, point in self.grid.items()
            if all(point[axis] in values for axis, values in kept.items())
        ]

    def fitted(self, measured: Mapping[Place, float]) -> Response:
        """The surface through ``measured``, throughputs in bytes/s; ValueError without any."""
        known = [place for place in self.grid if place in measured]
        return response.fit(
            [self.point(each) for each in known], [measured[each] for each in known], self.axes
        )

    def estimates(
        self, measured: Mapping[Place, float], fitted: Response | None = None
    ) -> dict[Place, Estimate]:
        """Of each point that was not measured, by the surface ``fitted`` through those that were."""
        if not self.grid.keys() & measured.keys():
            return {}
        fitted = fitted or self.fitted(measured)
        return {place: fitted.at(self.point(place)) for place in self.grid if place not in measured}


def surfaces(plan: Plan, over: Sequence[str]) -> dict[Curve, Surface]:
    """The curves of a plan over these axes with their grids. A point that differs from no other along an
    axis is none."""
    found: dict[Curve, dict[Place, dict[str, float]]] = {}
    known = workloads(plan.jobs)
    for column in plan.columns:
        for name, workload in known.items():
            if (of := curve_of(plan, over, column, workload)) is not None:
                found.setdefault(of[0], {})[column, name] = of[1]
    made = {curve: Surface(grid, dict(curve.fixed)) for curve, grid in found.items()}
    return {curve: surface for curve, surface in made.items() if surface.axes}


def axes_of(found: Mapping[Curve, Surface]) -> dict[str, str]:
    """The axes along which curves lie and what is fixed on them: ``depth``, its values as they are typed."""
    values: dict[str, set[float]] = {}
    for curve, surface in found.items():
        for name, value in itertools.chain(curve.fixed, *(point.items() for point in surface.grid.values())):
            values.setdefault(name, set()).add(value)
    return {name: ", ".join(map(AXES[name].shown, sorted(each))) for name, each in values.items()}


@dataclass(frozen=True)
class MeasuredCurve:
    """A curve with what was measured of it, ``records``, and what the others would be.

    ``links`` are those of its plan; none of fio outputs that the harness did not make. ``scatter`` is by how
    much two measurements of a point differ, as a part; 0 where nobody knows it. ``repeats``
    are those of a point that was measured several times, of which ``records`` has the middle one.
    """

    curve: Curve
    surface: Surface
    records: Mapping[Place, Record]
    links: Mapping[str, LinkProfile] = field(default_factory=dict)
    disturbed: frozenset[Place] = frozenset()
    scatter: float = SCATTER
    repeats: Mapping[Place, Sequence[Record]] = field(default_factory=dict)

    @property
    def grid(self) -> Mapping[Place, dict[str, float]]:
        return self.surface.grid

    @property
    def axes(self) -> tuple[str, ...]:
        return self.surface.axes

    @property
    def side(self) -> str:
        """``A `` or ``B `` if its sweep is compared with another one."""
        side = side_of(next(iter(self.records.values())).setting)
        return f"{side} " * bool(side)

    @property
    def label(self) -> str:
        return f"{self.side}{self.curve.column.label}"

    @property
    def name(self) -> str:
        return f"{self.side}{self.curve.name}"

    @functools.cached_property
    def rates(self) -> Mapping[Place, float]:
        """What was measured, in bytes/s."""
        return {place: throughput_bytes_s(record) for place, record in self.records.items()}

    @functools.cached_property
    def doubts(self) -> Mapping[Place, tuple[str, ...]]:
        """The warnings that a point has of its own: not those that all have, nor how a sum was made."""
        common = frozenset.intersection(*(frozenset(each.warnings) for each in self.records.values()))
        found = {
            place: tuple(each for each in record.warnings if each not in common and ADDED_UP not in each)
            for place, record in self.records.items()
        }
        return {place: warnings for place, warnings in found.items() if warnings}

    @functools.cached_property
    def fitted(self) -> Response:
        """The surface through what was measured."""
        return self.surface.fitted(self.rates)

    @functools.cached_property
    def estimates(self) -> Mapping[Place, Estimate]:
        """Of each point that was not measured."""
        return self.surface.estimates(self.rates, self.fitted)

    def at(self, place: Place) -> Estimate:
        """A point: what was measured, with how far the same point would be another time; or the estimate."""
        if place in self.rates:
            rate = self.rates[place]
            return Estimate(rate * (1 - self.scatter), rate, rate * (1 + self.scatter))
        return self.estimates[place]

    def runs_of(self, place: Place) -> list[str]:
        """The ids of the runs that have a point, the one that counts first, or would have it."""
        chosen = self.records.get(place, next(iter(self.records.values())))
        return [*dict.fromkeys(each.run_id for each in (chosen, *self.repeats.get(place, ())))]

    def values(self, axis: str) -> list[float]:
        """The places of its points on an axis."""
        return sorted({point[axis] for point in self.grid.values()})

    def along(self, axis: str, there: Mapping[str, float]) -> list[tuple[float, Place]]:
        """Its points along an axis, where the others are ``there``."""
        return sorted(
            (point[axis], place)
            for place, point in self.grid.items()
            if all(point[name] == value for name, value in there.items())
        )


def measured(plan: Plan, over: Sequence[str], records: Iterable[Record]) -> list[MeasuredCurve]:
    """The curves of a plan over these axes of which something was measured, in the plan's order."""
    todo = Schedule(plan, (record for record in records if record.run_id == plan.run_id))
    found = []
    for curve, surface in surfaces(plan, over).items():
        known = {
            place: record
            for place in surface.grid
            for record in disturbance.counting(todo.measured[place].values())[:1]
        }
        if known:
            surface.learn(plan, known)
            disturbed = frozenset(
                place for place in known if not disturbance.quiet(todo.measured[place].values())
            )
            found.append(MeasuredCurve(curve, surface, known, plan.links, disturbed))
    return found
