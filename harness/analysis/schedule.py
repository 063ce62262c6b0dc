"""Which cell is measured next. Each repeat is a shuffled round of the cells that need another repeat.

A plan with a stopping rule repeats each cell until the interval of its median is narrow enough, so the number
of cells is known only at the end. The records decide everything, and a resumed run has them too. Disturbed
cells are measured again at the end of their round, a limited number of times.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

from harness.analysis import disturbance, stats
from harness.analysis.stats import Decision
from harness.model import Cell, Column, Plan, Record, Status

Place = tuple[Column, str]
"""A column and the name of a workload: a cell of the matrix with all its repeats."""


def order_of_cells(plan: Plan) -> list[Cell]:
    """All cells that a plan may measure, in their order: a repeat is a shuffled round."""
    cells: list[Cell] = []
    most = plan.repeats if plan.stop is None else plan.stop.max_repeats
    for repeat in range(1, most + 1):
        one_round = [Cell(*place, repeat) for place in plan.places]
        # Not for secrecy: a stored seed must give the same order again.
        random.Random(f"{plan.seed}/{repeat}").shuffle(one_round)  # noqa: S311
        cells += one_round
    return cells


class Schedule:
    """The cells of a plan that remain, given what was measured before: ``(place in the order, cell)``.

    Cells without an ok record remain, and so do disturbed ones, unless the plan keeps those as they are. With
    a stopping rule, cells are skipped whose place needs no more repeats by the records that ``take`` got so
    far. The first repeat is always made: a cell that the time did not reach would have no figure at all.
    """

    def __init__(self, plan: Plan, records: Iterable[Record] = ()) -> None:
        self.plan = plan
        self._order = order_of_cells(plan)
        self._position = 0
        self._done: set[Cell] = set()
        self._disturbed: set[Cell] = set()
        self.measured: dict[Place, dict[int, Record]] = {place: {} for place in plan.places}
        self._in_vain: Counter[Place] = Counter()
        self._spent_ns = 0
        self.max_s = plan.stop.max_s if plan.stop is not None else None
        """No cell begins after that time, by the clock of the measurement."""
        self._retries = plan.retries
        """How often in a round; 0 once it is clear that other programs do not calm down."""
        for record in records:
            self.take(record)
        # What failed before is tried again, and so is what was disturbed.
        self._in_vain.clear()
        self._done -= self._disturbed
        self._disturbed.clear()
        self._left = len(self._order) - len(self._done)
        self._handed_out = 0

    def take(self, record: Record) -> None:
        """Note a record. A record of a place that the plan does not have is ignored."""
        place = (record.column, record.workload.name)
        if place not in self.measured:
            return
        cell = Cell(*place, record.repeat)
        self._spent_ns += record.wall_ns
        self.measured[place].pop(record.repeat, None)
        self._done.discard(cell)
        self._disturbed.discard(cell)
        if record.status is not Status.OK:
            self._in_vain[place] += 1
            return
        self.measured[place][record.repeat] = record
        self._done.add(cell)
        if not disturbance.is_final(record, self.plan):
            self._disturbed.add(cell)

    def is_again(self, cell: Cell) -> bool:
        """Whether a cell that is handed out was disturbed when it was measured before."""
        return cell in self._disturbed

    def give_up(self) -> None:
        """Hand out no disturbed cells any more, because other programs do not calm down."""
        self._retries = 0

    def __iter__(self) -> Iterator[tuple[int, Cell]]:
        size = len(self.measured)
        while self._position < len(self._order):
            place = self._position
            self._position += 1
            if self._wants(self._order[place]):
                self._handed_out += 1
                yield place, self._order[place]
            if self._position % size == 0:
                yield from self._again(range(self._position - size, self._position))

    def _again(self, places: Sequence[int]) -> Iterator[tuple[int, Cell]]:
        """The disturbed cells of a round."""
        for attempt in range(self.plan.retries):
            for place in places:
                if self.is_again(self._order[place]) and attempt < self._retries and not self._time_is_up:
                    yield place, self._order[place]

    def _values(self, place: Place) -> list[float]:
        """The values of a place that count so far."""
        return [throughput_bytes_s(record) for record in disturbance.counting(self.measured[place].values())]

    @property
    def expected(self) -> int:
        """How many cells remain, including the one handed out last; an estimate if there is a stopping
        rule."""
        rule = self.plan.stop
        if rule is None:
            return self._left - max(0, self._handed_out - 1)
        if self._time_is_up:
            return sum(map(self._wants, self._order[max(0, self._position - 1) : len(self.measured)]))
        return sum(
            max(0, max(self.plan.repeats, stats.repeats_expected(values, rule)) - len(values))
            for place in self.measured
            if (values := self._values(place)) or self._in_vain[place] < stats.FEWEST
        )

    def extremes_s(self, cell_s: Callable[[Cell], float]) -> tuple[float, float]:
        """How long all that remains takes at least and at most, by how long a cell does; it becomes clear
        only while it is measured."""
        one_s = fmean(cell_s(Cell(*place, 1)) for place in self.measured)
        return self.expected * one_s, len(self.measured) * one_s

    @property
    def _time_is_up(self) -> bool:
        return self.max_s is not None and self._spent_ns / 1e9 >= self.max_s

    def decision(self, place: Place) -> Decision:
        rule, values = self.plan.stop, self._values(place)
        if rule is None:
            return Decision.GO_ON
        made = len(self.measured[place]) + self._in_vain[place]
        return stats.decide(values, rule, made=made, spent_s=self._spent_ns / 1e9)

    def _wants(self, cell: Cell) -> bool:
        if cell in self._done:
            return False
        if self.plan.stop is None or cell.repeat == 1:
            return True
        if cell.repeat <= self.plan.repeats:
            return not self._time_is_up
        return self.decision((cell.column, cell.workload)) is Decision.GO_ON


def throughput_bytes_s(record: Record) -> float:
    """The figure for the stopping rule: reads and writes added up."""
    return sum(io.bytes_per_s for io in (record.read, record.write) if io is not None)


def decisions(plan: Plan, records: Iterable[Record]) -> dict[Place, Decision]:
    """What the plan's rule says about each place of a run with these records; GO_ON if it is unfinished.

    Empty without a rule.
    """
    schedule = Schedule(plan)
    for record in records:
        schedule.take(record)
    return {place: schedule.decision(place) for place in schedule.measured} if plan.stop is not None else {}
