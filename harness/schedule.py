"""Which cell is measured next: each repeat is a shuffled block, and only of cells that need another one.

A plan with a stopping rule repeats each cell until the interval of its median is narrow enough, so that
how many cells there are is known in the end. All is decided by the records, which a resumed run has too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator

from harness import stats
from harness.model import Cell, Column, Plan, Record, Status
from harness.stats import Decision

Place = tuple[Column, str]
"""A column and the name of a workload: a cell of the matrix, all its repeats together."""


def order_of_cells(plan: Plan) -> list[Cell]:
    """All cells that a plan may come to, in the order they are measured: a repeat is a shuffled block."""
    cells: list[Cell] = []
    for repeat in range(1, plan.most_repeats + 1):
        block = [
            Cell(column=column, workload=workload.name, repeat=repeat)
            for column in plan.columns
            for workload in plan.workloads
        ]
        # Not for secrecy: a stored seed has to give the same order again.
        random.Random(f"{plan.seed}/{repeat}").shuffle(block)  # noqa: S311
        cells += block
    return cells


class Schedule:
    """The cells that are left of a plan, given what was measured before: ``(place in the order, cell)``.

    Cells without an ok record are left. With a stopping rule those are passed over whose place needs no more
    repeats by the records that ``take`` was given so far. The first repeat is always made: a cell that the
    time did not reach would have no number at all.
    """

    def __init__(self, plan: Plan, records: Iterable[Record] = ()) -> None:
        self.plan = plan
        self._order = order_of_cells(plan)
        self._position = 0
        self._done: set[Cell] = set()
        self._values: dict[Place, list[float]] = {
            (column, workload.name): [] for column in plan.columns for workload in plan.workloads
        }
        self._in_vain: Counter[Place] = Counter()
        self._spent_ns = 0
        for record in records:
            self.take(record)
        # What failed before is tried again.
        self._in_vain.clear()
        self._left = len(self._order) - len(self._done)
        self._handed_out = 0

    def take(self, record: Record) -> None:
        """Note what was measured; of a place that the plan does not have, nothing."""
        place = (Column(record.link, record.ipsec, record.initiators), record.workload)
        if place not in self._values:
            return
        self._spent_ns += record.wall_ns
        if record.status is Status.OK:
            self._done.add(Cell(*place, record.repeat))
            self._values[place].append(throughput_bytes_s(record))
        else:
            self._in_vain[place] += 1

    def __iter__(self) -> Iterator[tuple[int, Cell]]:
        while self._position < len(self._order):
            place = self._position
            self._position += 1
            if self._wants(self._order[place]):
                self._handed_out += 1
                yield place, self._order[place]

    @property
    def expected(self) -> int:
        """How many cells are left, that which was handed out last among them: a guess if there is a rule."""
        rule = self.plan.stop
        if rule is None:
            return self._left - max(0, self._handed_out - 1)
        if self._time_is_up:
            return sum(map(self._wants, self._order[max(0, self._position - 1) : len(self._values)]))
        return sum(
            max(0, max(self.plan.repeats, stats.repeats_expected(values, rule)) - len(values))
            for place, values in self._values.items()
            if values or self._in_vain[place] < stats.FEWEST
        )

    def decisions(self) -> dict[Place, Decision]:
        """What the plan's rule says of each place by now; nothing without a rule."""
        return {} if self.plan.stop is None else {place: self._decision(place) for place in self._values}

    @property
    def _time_is_up(self) -> bool:
        limit_s = self.plan.stop.max_s if self.plan.stop is not None else None
        return limit_s is not None and self._spent_ns / 1e9 >= limit_s

    def _decision(self, place: Place) -> Decision:
        rule, values = self.plan.stop, self._values[place]
        if rule is None:
            return Decision.GO_ON
        made = len(values) + self._in_vain[place]
        return stats.decide(values, rule, made=made, spent_s=self._spent_ns / 1e9)

    def _wants(self, cell: Cell) -> bool:
        if cell in self._done:
            return False
        if self.plan.stop is None or cell.repeat == 1:
            return True
        if cell.repeat <= self.plan.repeats:
            return not self._time_is_up
        return self._decision((cell.column, cell.workload)) is Decision.GO_ON


def throughput_bytes_s(record: Record) -> float:
    """What the stopping rule looks at: reads and writes added up."""
    return sum(io.bytes_per_s for io in (record.read, record.write) if io is not None)


def decisions(plan: Plan, records: Iterable[Record]) -> dict[Place, Decision]:
    """What the plan's rule says of each place of a run with these records, GO_ON where it is unfinished."""
    schedule = Schedule(plan)
    for record in records:
        schedule.take(record)
    return schedule.decisions()
