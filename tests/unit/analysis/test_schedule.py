"""Which cell comes next: blocks, what a resumed run lacks, and the stopping rule on generated values."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from harness.analysis.schedule import Schedule, decisions, order_of_cells
from harness.analysis.stats import Decision
from harness.model import Cell, Column, IpsecMode, Job, Plan, Record, Status, StoppingRule
from harness.table import build
from tests.unit.observe.test_disturbance import disturbed
from tests.unit.results_folder import made_plan
from tests.unit.table.test_table import record, transfer

LOCAL, WIRED = Column("local"), Column("wired")
JOBS = tuple(Job(name=name, options=()) for name in ("seq-read-4k", "rand-read-4k"))
PLAN = made_plan("20260101-000000-beef", columns=(LOCAL, WIRED), jobs=JOBS, repeats=3, seed=1)
RULE = StoppingRule(width=0.05, max_repeats=20)
WALL_S = 2.0

Measure = Callable[[Cell], float | None]


def ruled(**changes: object) -> Plan:
    return replace(PLAN, stop=replace(RULE, **changes), repeats=1)


def facts(cell: Cell, mb_s: float) -> dict[str, Any]:
    of = {"run_id": PLAN.run_id, "workload": cell.workload, "link": cell.column.link, "repeat": cell.repeat}
    return {**of, "read": transfer(mb_s), "write": None, "wall_ns": round(WALL_S * 1e9)}


def measured(cell: Cell, mb_s: float | None) -> Record:
    """A record of the cell; without a value it is one that failed."""
    found = record(**facts(cell, mb_s or 0.0))
    return found if mb_s else replace(found, status=Status.FAILED, read=None)


def steady(_cell: Cell) -> float:
    return 100.0


def noisy(local: float, wired: float) -> Measure:
    """Repeats around 100 MB/s that vary as much as is said of their link, the same for the same cell."""

    def measure(cell: Cell) -> float:
        source = random.Random(cell.key)  # noqa: S311 -- no secret
        return 100.0 * source.lognormvariate(0, {"local": local, "wired": wired}[cell.column.link])

    return measure


def run(
    plan: Plan, measure: Measure = steady, records: dict[Cell, Record] | None = None, most: int = 10**6
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


def test_without_a_rule_every_cell_is_measured_once_in_shuffled_blocks() -> None:
    made = run(PLAN)
    assert made == order_of_cells(PLAN)
    assert [cell.repeat for cell in made] == sorted(cell.repeat for cell in made)
    assert set(Counter(made).values()) == {1} and len(made) == 12
    schedule = Schedule(PLAN, [measured(Cell(LOCAL, "seq-read-4k", 2), 100.0)])
    assert schedule.expected == 11
    left = []
    for _, cell in schedule:
        left.append(schedule.expected)
        schedule.take(measured(cell, None))
    assert left == list(range(11, 0, -1))


def test_a_resumed_run_measures_what_has_no_ok_record() -> None:
    records: dict[Cell, Record] = {}
    first = run(PLAN, lambda cell: None if cell.repeat == 2 else 100.0, records, most=9)
    failed = [cell for cell in first if cell.repeat == 2]
    assert run(PLAN, steady, records) == [*failed, *order_of_cells(PLAN)[9:]]
    assert run(PLAN, steady, records) == []
    # What was measured over IPv6 or in a tunnel is done.
    columns = (Column("wired-ip6", ip=6), Column("wired", ("aes128gcm16",), mode=IpsecMode.TUNNEL))
    plan = replace(PLAN, columns=columns, repeats=1)
    done = [replace(measured(cell, 1.0), column=cell.column) for cell in order_of_cells(plan)]
    assert Schedule(plan, done).expected == 0


def test_a_cell_is_repeated_until_its_interval_is_narrow_and_no_longer() -> None:
    counts = Counter(cell.column for cell in run(ruled(), noisy(0.001, 0.06)))
    assert counts[LOCAL] == 2 * 6  # the fewest that have an interval
    assert 2 * 6 < counts[WIRED] < 2 * 20
    # The fewest repeats are made however narrow the interval is.
    assert len(run(replace(ruled(), repeats=9))) == 4 * 9
    # Blocks hold the undecided cells alone.
    made = run(ruled(max_repeats=12), noisy(0.001, 0.5))
    assert [cell.repeat for cell in made] == sorted(cell.repeat for cell in made)
    assert {cell.column for cell in made if cell.repeat <= 6} == {LOCAL, WIRED}
    assert {cell.column for cell in made if cell.repeat > 6} == {WIRED}
    assert max(cell.repeat for cell in made) == 12


def test_a_run_that_was_cut_off_ends_with_the_same_cells() -> None:
    measure = noisy(0.02, 0.06)
    for killed_after in (1, 7, 22, 24, 25, 30):
        records: dict[Cell, Record] = {}
        first = run(ruled(), measure, records, most=killed_after)
        assert [*first, *run(ruled(), measure, records)] == run(ruled(), measure), killed_after


def test_time_ends_a_run_but_every_cell_has_a_number() -> None:
    assert [cell.repeat for cell in run(ruled(max_s=0.1))] == [1, 1, 1, 1]
    records: dict[Cell, Record] = {}
    plan = ruled(max_s=5 * WALL_S)
    assert len(run(plan, steady, records)) == 5  # no cell is begun after that
    assert set(decisions(plan, records.values()).values()) == {Decision.MAX_TIME}
    assert run(plan, steady, records) == []
    assert len(run(ruled(max_s=7 * WALL_S), steady, records)) == 2
    # A cell that never has a number is given up.
    records = {}
    made = run(ruled(), lambda cell: None if cell.column == WIRED else 100.0, records)
    assert Counter(cell.column for cell in made) == {LOCAL: 12, WIRED: 12}
    found = decisions(ruled(), records.values())
    assert found[WIRED, "seq-read-4k"] is Decision.HOPELESS
    assert found[LOCAL, "seq-read-4k"] is Decision.NARROW


def test_what_is_expected_comes_down_to_what_was_made() -> None:
    schedule, measure = Schedule(ruled()), noisy(0.001, 0.06)
    assert schedule.expected == 4 * 6
    guesses = []
    for number, (_, cell) in enumerate(schedule, 1):
        guesses.append(number - 1 + schedule.expected)
        schedule.take(measured(cell, measure(cell)))
    assert (guesses[0], guesses[-1], schedule.expected) == (24, len(guesses), 0)


def test_a_table_says_what_stayed_inconclusive_and_why() -> None:
    def notes(plan: Plan, measure: Measure = steady, most: int = 10**6) -> str:
        records: dict[Cell, Record] = {}
        run(plan, measure, records, most)
        return "\n".join(build(list(records.values()), plans={plan.run_id: plan}).notes)

    assert "conclusive" not in notes(ruled(), noisy(0.001, 0.001))
    text = notes(ruled(max_repeats=8), noisy(0.001, 0.5))
    assert (
        "Inconclusive (wired seq-read-4k, wired rand-read-4k): the limit of repeats was reached before the "
        "95 % interval was within 5 % of the median" in text
    )
    assert "unfinished" not in text
    assert "4 cells): the time limit was reached before" in notes(ruled(max_s=1.0))
    # A run that was cut off lacks the cell that would have been next.
    last = order_of_cells(ruled())[23]
    name = f"{last.column.label} {last.workload}"
    assert f"is unfinished: {name} not measured often enough yet" in notes(ruled(), most=23)


def attempt(cell: Cell, taken: float, mb_s: float = 100.0) -> Record:
    """A record of the cell, of which others took so much."""
    return disturbed(taken, **facts(cell, mb_s))


def run_disturbed(
    plan: Plan, taken: Callable[[Cell, int], float] = lambda *_: 0.5, calm: bool = True
) -> list[Cell]:
    """All cells in the order in which they are measured; ``taken`` is given how often each was before."""
    schedule, made = Schedule(plan), Counter[Cell]()
    order = []
    for _, cell in schedule:
        if schedule.is_again(cell) and not calm:
            schedule.give_up()
            continue
        assert schedule.is_again(cell) == bool(made[cell])
        order.append(cell)
        assert len(order) - 1 + schedule.expected >= len(order)
        schedule.take(attempt(cell, taken(cell, made[cell])))
        made[cell] += 1
    return order


def test_what_others_disturbed_comes_again_at_the_end_of_its_block() -> None:
    order = order_of_cells(PLAN)
    spoilt = {order[1], order[2], order[9]}
    made = run_disturbed(PLAN, lambda cell, before: 0.5 if cell in spoilt and not before else 0.01)
    assert made == [*order[:4], order[1], order[2], *order[4:], order[9]]
    # It does so a bounded number of times.
    assert set(Counter(run_disturbed(PLAN)).values()) == {1 + PLAN.retries}
    never = replace(PLAN, retries=0)
    assert run_disturbed(never) == order_of_cells(never)
    # Nothing does once others do not calm down, and the time of a run bounds it.
    assert run_disturbed(PLAN, calm=False) == order_of_cells(PLAN)
    assert len(run_disturbed(ruled(max_s=5 * WALL_S))) == 5
    records = [attempt(cell, 0.5 if cell == order[3] else 0.0) for cell in order]
    for retries, again in ((PLAN.retries, [order[3]]), (0, [])):
        assert [cell for _, cell in Schedule(replace(PLAN, retries=retries), records)] == again


def test_the_rule_looks_at_what_was_not_disturbed() -> None:
    made = Counter[int]()
    schedule = Schedule(replace(ruled(), retries=0))
    for _, cell in schedule:
        seen = (0.5, 50.0 + cell.repeat) if cell.repeat % 2 == 0 else (0.0, 100.0)
        schedule.take(attempt(cell, *seen))
        made[cell.repeat] += 1
    assert max(made) == 11, "six that count, and five that do not"
