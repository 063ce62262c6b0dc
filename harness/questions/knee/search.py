"""The knee of a cell: the highest load at which its latency meets a goal, by trials of an open loop.

Searched as RFC 9971 (MLRsearch) does: short trials first, until they bracket the knee, then trials of full
length at the ends of the bracket and between. All goals share all trials, and a full trial overrules a short
one. Trials are cells: their repeat 1 is the short one, 2 the full one. The loads form a grid, so the records
alone say what comes next, and a resumed search goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression

import msgspec

from harness.analysis import disturbance
from harness.analysis.schedule import Place, Schedule
from harness.model import LATENCIES, Cell, Plan, Record
from harness.model.ranges import Count
from harness.model.texts import Percentile
from harness.parse.open_loop import FULL, SHORT
from harness.results.axes import Curve, curve_of, workloads

TRIALS = 2
"""A short one and a full one."""

RATIO = 1.05
"""From each load of the grid to the next; between two the knee is interpolated."""

CLIMB = 47
"""Steps, a factor of 10, until a load is too high."""

NEAR = 2
"""Steps: with the bracket so narrow, full trials begin."""

IN_VAIN = 2
"""How often a trial that fails is tried."""


class Goal(msgspec.Struct, frozen=True):
    """A latency goal: ``metric`` is ``mean`` or a percentile, such as ``p99.9``."""

    metric: Percentile
    at_most_ns: Count


class Goals(msgspec.Struct, frozen=True, kw_only=True):
    """A run that looks for the highest loads that meet ``goals``, for ``max_s`` at most, by the clock of the
    measurement."""

    goals: tuple[Goal, ...]
    max_s: float | None = None


@dataclass(frozen=True)
class Bracket:
    """What trials say of a goal: its figure by load (an index of the grid), which of them were full, the
    lowest load that misses it, and the highest below that."""

    figures: Mapping[int, float]
    full: frozenset[int]
    lower: int | None
    upper: int | None


def bracket(trials: Mapping[tuple[int, int], float], goal: Goal) -> Bracket:
    """Of the figures by load and length (SHORT or FULL)."""
    figures = {load: trials[load, length] for load, length in sorted(trials, key=lambda each: each[1])}
    upper = min((load for load, figure in figures.items() if figure > goal.at_most_ns), default=None)
    below = [load for load in figures if upper is None or load < upper]
    full = frozenset(load for load, length in trials if length == FULL)
    return Bracket(figures, full, max(below, default=None), upper)


def next_trial(found: Bracket, loads: int) -> tuple[int, int] | None:
    """The load and the length of a goal's next trial, of a grid of so many loads; None: its knee is known."""
    lower, upper = found.lower, found.upper
    if lower is None and upper is None:
        return 0, SHORT
    if lower is None or upper is None:
        end = loads - 1 if upper is None else 0
        last = lower if upper is None else upper
        if last == end:
            return None if end in found.full else (end, FULL)
        return (min(end, (lower or 0) + CLIMB) if upper is None else max(end, upper - CLIMB)), SHORT
    if upper - lower > NEAR:
        return (lower + upper) // 2, SHORT
    for end in (lower, upper):
        if end not in found.full:
            return end, FULL
    return ((lower + upper) // 2, FULL) if upper - lower > 1 else None


def trials_if(loads: int, knee: int) -> list[tuple[int, int]]:
    """The trials that a search makes in a grid of so many loads, if the load ``knee`` is the last to meet the
    goal (-1: none does)."""
    goal, figures = Goal("p50", 1), dict[tuple[int, int], float]()
    while (trial := next_trial(bracket(figures, goal), loads)) is not None:
        figures[trial] = 0.0 if trial[0] <= knee else math.inf
    return [*figures]


def between(found: Bracket, goal: Goal, loads: Sequence[int]) -> float:
    """The load at which the figure would be the goal, within the bracket: on the straight line of logarithms
    through the full trials there and next to it; the lower end (or 0) if the other one is not known."""
    if found.lower is None or found.upper is None:
        return 0.0 if found.lower is None else float(loads[found.lower])
    low, high = loads[found.lower], loads[found.upper]
    near = range(found.lower - NEAR, found.upper + NEAR + 1)
    used = {found.lower, found.upper} | {load for load in found.full if load in near}
    points = [(math.log(loads[load]), math.log(max(1.0, found.figures[load]))) for load in used]
    if not all(math.isfinite(figure) for _, figure in points):
        return float(low)
    slope, begin = linear_regression(*zip(*points, strict=True))
    return (
        min(high, max(low, math.exp((math.log(goal.at_most_ns) - begin) / slope)))
        if slope > 0
        else float(low)
    )


@dataclass(frozen=True)
class Search:
    """The trials of a curve: its places by load, lowest first, and what each trial found."""

    curve: Curve
    loads: Sequence[int]
    places: Sequence[Place]
    records: Mapping[tuple[int, int], Record]

    def figures(self, goal: Goal) -> dict[tuple[int, int], float]:
        """A goal's figure of each trial: the worse of reads and writes, in ns."""
        found = {}
        for trial, record in self.records.items():
            parts = [io.latency for io in (record.read, record.write) if io is not None]
            values = [getattr(latency, LATENCIES[goal.metric]) for latency in parts]
            found[trial] = max((value for value in values if value is not None), default=math.inf)
        return found

    def next_trial(self, goals: Iterable[Goal]) -> tuple[int, int] | None:
        """Of the first goal whose knee is not known."""
        found = (next_trial(bracket(self.figures(goal), goal), len(self.loads)) for goal in goals)
        return next((each for each in found if each is not None), None)

    def knee(self, goal: Goal) -> Knee | None:
        """What is known of a goal; None if no trial has met it or missed it yet."""
        found = bracket(self.figures(goal), goal)
        if found.lower is None and found.upper is None:
            return None
        low = None if found.lower is None else self.loads[found.lower]
        high = None if found.upper is None else self.loads[found.upper]
        load = between(found, goal, self.loads)
        is_known = next_trial(found, len(self.loads)) is None
        trials = [self.records[each] for each in self.records if each[0] in (found.lower, found.upper)]
        return Knee(
            self.curve,
            goal,
            load,
            low,
            high,
            is_known,
            any(each.warnings or disturbance.is_disturbed(each) for each in trials),
        )


@dataclass(frozen=True)
class Knee:
    """The highest load that meets a goal, in I/Os a second, between the highest that did and the lowest that
    did not (None: none of the grid). ``is_known``: the search has come to its end. ``is_doubtful``: a trial
    that it rests on was disturbed, or has a warning."""

    curve: Curve
    goal: Goal
    load: float
    low: int | None
    high: int | None
    is_known: bool
    is_doubtful: bool


def searches(plan: Plan, measured: Mapping[Place, Mapping[int, Record]]) -> list[Search]:
    """The curves of a plan with goals, in its order, with the records by place and repeat."""
    grids: dict[Curve, list[tuple[int, Place]]] = {}
    known = workloads(plan.jobs)
    for column in plan.columns:
        for name, workload in known.items():
            if (of := curve_of(plan, (), column, workload)) is not None:
                grids.setdefault(of[0], []).append((workload.rate_iops or 0, (column, name)))
    found = []
    for curve, grid in grids.items():
        ranked = sorted(grid, key=lambda each: each[0])
        records = {
            (number, repeat): record
            for number, (_, place) in enumerate(ranked)
            for repeat, record in measured[place].items()
        }
        found.append(Search(curve, [load for load, _ in ranked], [place for _, place in ranked], records))
    return found


class KneeSchedule(Schedule):
    """The trials that the curves of a plan with goals take, one curve after the other."""

    def __init__(self, plan: Plan, asked: Goals, records: Iterable[Record] = ()) -> None:
        super().__init__(plan, records)
        self.max_s = asked.max_s
        self._goals = asked.goals
        self._orders = {cell: order for order, cell in enumerate(self._order)}

    def __iter__(self) -> Iterator[tuple[int, Cell]]:
        while (cell := self._next()) is not None:
            order = self._orders[cell]
            yield order, cell
            yield from self._again([order])

    def _next(self) -> Cell | None:
        if self._time_is_up:
            return None
        for search in searches(self.plan, self.measured):
            if (trial := search.next_trial(self._goals)) is not None:
                place = search.places[trial[0]]
                if self._in_vain[place] < IN_VAIN:
                    return Cell(*place, trial[1])
        return None

    @property
    def expected(self) -> int:
        """How many trials remain at least."""
        return int(self._next() is not None)

    def extremes_s(self, cell_s: Callable[[Cell], float]) -> tuple[float, float]:
        least_s = most_s = 0.0
        for search in searches(self.plan, self.measured):
            searches_s = [
                sum(cell_s(Cell(*search.places[load], length)) for load, length in trials)
                for trials in (trials_if(len(search.loads), last) for last in range(-1, len(search.loads)))
            ]
            # The searches of several goals share trials, or none.
            least_s += min(searches_s)
            most_s += max(searches_s) * len(self._goals)
        return least_s, most_s


def knees(plan: Plan, goals: Sequence[Goal], records: Iterable[Record]) -> list[Knee]:
    """What a run with these goals found, of each curve and goal."""
    measured = Schedule(plan, (each for each in records if each.run_id == plan.run_id)).measured
    counting = {
        place: {each.repeat: each for each in disturbance.counting(found.values())}
        for place, found in measured.items()
    }
    found = (search.knee(goal) for search in searches(plan, counting) for goal in goals)
    return [each for each in found if each is not None]
