"""Which cell comes next: blocks, what a resumed run lacks, and the stopping rule on generated values."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
import pytest

from harness.model import (
    Backing,
    BackingKind,
    Cell,
    Column,
    Io,
    Latency,
    Plan,
    Record,
    Status,
    StoppingRule,
    TestbedKind,
    Workload,
)
from harness.schedule import Schedule, decisions, order_of_cells
from harness.stats import Decision
from harness.table import build
from tests.unit.test_table import record

LOCAL, WIRED = Column("local"), Column("wired")
PLAN = Plan(
    run_id="20260101-000000-beef",
    testbed=TestbedKind.LAB,
    columns=(LOCAL, WIRED),
    workloads=(Workload(name="seq-read-4k", options=()), Workload(name="rand-read-4k", options=())),
    repeats=3,
    seed=1,
    backing=Backing(kind=BackingKind.RAMDISK, size_bytes=1 << 27),
    links={},
    proposals={},
)
RULE = StoppingRule(width=0.05, max_repeats=20)
WALL_S = 2.0

Measure = Callable[[Cell], float | None]


def ruled(**changes: object) -> Plan:
    return msgspec.structs.replace(PLAN, stop=msgspec.structs.replace(RULE, **changes), repeats=1)


def measured(cell: Cell, mb_s: float | None) -> Record:
    """A record of the cell; without a value it is one that failed."""
    return record(
        run_id=PLAN.run_id,
        workload=cell.workload,
        link=cell.column.link,
        repeat=cell.repeat,
        status=Status.OK if mb_s else Status.FAILED,
        read=Io(bytes=round(mb_s * 1e6), ios=1, runtime_ns=10**9, latency=Latency()) if mb_s else None,
        write=None,
        wall_ns=round(WALL_S * 1e9),
    )


def run(
    plan: Plan, measure: Measure, records: dict[Cell, Record] | None = None, most: int = 10**6
) -> list[Cell]:
    """What a bench does: each cell that the schedule hands out is measured. ``most``: it is killed then."""
    records = {} if records is None else records
    schedule = Schedule(plan, list(records.values()))
    made: list[Cell] = []
    for _, cell in schedule:
        if len(made) == most:
            break
        records[cell] = measured(cell, measure(cell))
        schedule.take(records[cell])
        made.append(cell)
    return made


def noisy(spread: Mapping[str, float]) -> Measure:
    """Repeats around 100 MB/s that vary as much as is said of their link, the same for the same cell."""

    def measure(cell: Cell) -> float:
        source = random.Random(cell.key)  # noqa: S311 -- no secret
        return 100.0 * source.lognormvariate(0, spread[cell.column.link])

    return measure


def test_without_a_rule_every_cell_is_measured_once_in_shuffled_blocks() -> None:
    made = run(PLAN, lambda _cell: 100.0)
    assert made == order_of_cells(PLAN)
    assert [cell.repeat for cell in made] == sorted(cell.repeat for cell in made)
    assert set(Counter(made).values()) == {1}
    assert len(made) == 12


def test_a_resumed_run_measures_what_has_no_ok_record() -> None:
    records: dict[Cell, Record] = {}
    first = run(PLAN, lambda cell: None if cell.repeat == 2 else 100.0, records, most=9)
    failed = [cell for cell in first if cell.repeat == 2]
    again = run(PLAN, lambda _cell: 100.0, records)
    assert again == [*failed, *order_of_cells(PLAN)[9:]]
    assert run(PLAN, lambda _cell: 100.0, records) == []


def test_a_cell_is_repeated_until_its_interval_is_narrow_and_no_longer() -> None:
    counts = Counter(cell.column for cell in run(ruled(), noisy({"local": 0.001, "wired": 0.06})))
    assert counts[LOCAL] == 2 * 6  # the fewest that have an interval
    assert 2 * 6 < counts[WIRED] < 2 * 20


def test_blocks_hold_the_undecided_cells_alone() -> None:
    made = run(ruled(max_repeats=12), noisy({"local": 0.001, "wired": 0.5}))
    assert [cell.repeat for cell in made] == sorted(cell.repeat for cell in made)
    assert {cell.column for cell in made if cell.repeat <= 6} == {LOCAL, WIRED}
    assert {cell.column for cell in made if cell.repeat > 6} == {WIRED}
    assert max(cell.repeat for cell in made) == 12


@pytest.mark.parametrize("killed_after", [1, 7, 22, 24, 25, 30])
def test_a_run_that_was_cut_off_ends_with_the_same_cells(killed_after: int) -> None:
    plan, measure = ruled(), noisy({"local": 0.02, "wired": 0.06})
    whole = run(plan, measure)
    records: dict[Cell, Record] = {}
    first = run(plan, measure, records, most=killed_after)
    assert [*first, *run(plan, measure, records)] == whole


def test_the_fewest_repeats_are_made_however_narrow_the_interval_is() -> None:
    plan = msgspec.structs.replace(ruled(), repeats=9)
    assert len(run(plan, lambda _cell: 100.0)) == 4 * 9


def test_time_ends_a_run_but_every_cell_has_a_number() -> None:
    assert [cell.repeat for cell in run(ruled(max_s=0.1), lambda _cell: 100.0)] == [1, 1, 1, 1]
    records: dict[Cell, Record] = {}
    made = run(ruled(max_s=5 * WALL_S), lambda _cell: 100.0, records)
    assert len(made) == 5  # no cell is begun after that
    assert set(decisions(ruled(max_s=5 * WALL_S), records.values()).values()) == {Decision.MAX_TIME}
    assert run(ruled(max_s=5 * WALL_S), lambda _cell: 100.0, records) == []
    assert len(run(ruled(max_s=7 * WALL_S), lambda _cell: 100.0, records)) == 2


def test_a_cell_that_never_has_a_number_is_given_up() -> None:
    records: dict[Cell, Record] = {}
    made = run(ruled(), lambda cell: None if cell.column == WIRED else 100.0, records)
    assert Counter(cell.column for cell in made) == {LOCAL: 12, WIRED: 12}
    found = decisions(ruled(), records.values())
    assert found[WIRED, "seq-read-4k"] is Decision.HOPELESS
    assert found[LOCAL, "seq-read-4k"] is Decision.NARROW


def test_what_is_expected_comes_down_to_what_was_made() -> None:
    plan = ruled()
    schedule = Schedule(plan)
    measure = noisy({"local": 0.001, "wired": 0.06})
    assert schedule.expected == 4 * 6
    guesses = []
    for number, (_, cell) in enumerate(schedule, 1):
        guesses.append(number - 1 + schedule.expected)
        schedule.take(measured(cell, measure(cell)))
    assert guesses[0] == 24
    assert guesses[-1] == len(guesses)
    assert schedule.expected == 0


def test_without_a_rule_what_is_expected_is_exact() -> None:
    schedule = Schedule(PLAN, [measured(Cell(LOCAL, "seq-read-4k", 2), 100.0)])
    assert schedule.expected == 11
    left = []
    for _, cell in schedule:
        left.append(schedule.expected)
        schedule.take(measured(cell, None))
    assert left == list(range(11, 0, -1))


# What a table says of it


def notes(plan: Plan, measure: Measure, most: int = 10**6) -> str:
    records: dict[Cell, Record] = {}
    run(plan, measure, records, most)
    return "\n".join(build(list(records.values()), plans={plan.run_id: plan}).notes)


def test_a_table_says_what_stayed_inconclusive_and_why() -> None:
    assert "conclusive" not in notes(ruled(), noisy({"local": 0.001, "wired": 0.001}))
    text = notes(ruled(max_repeats=8), noisy({"local": 0.001, "wired": 0.5}))
    assert (
        "Inconclusive (wired seq-read-4k, wired rand-read-4k): the most repeats were made before the 95 % "
        "interval was within 5 % of the median" in text
    )
    assert "unfinished" not in text
    assert "4 cells): the time was up before" in notes(ruled(max_s=1.0), lambda _cell: 100.0)


def test_a_table_says_that_a_run_was_cut_off() -> None:
    text = notes(ruled(), lambda _cell: 100.0, most=23)
    last = order_of_cells(ruled())[23]
    name = f"{last.column.label} {last.workload}"
    assert f"is unfinished: {name} not measured often enough yet" in text
