"""Knees: from goals to trials, and from trials to the highest load that meets a goal."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from harness.analysis.schedule import Schedule
from harness.explain import knees as said
from harness.model import Cell, Io, Latency, Plan, Record, Status
from harness.model.errors import UsageError
from harness.parse.jobfile import described, is_open_loop, job_file, parse_jobs
from harness.planning.knee import KneeRequest, make_plan
from harness.results import knee, rules, sweep
from harness.results.axes import workloads
from harness.results.store import RunFolder
from harness.table import curves
from tests.unit.command import harness

READS = {"workloads": ("rand-read-4k",), "seed": 5, "lab_kernel": "debian", "links": ("wired",)}
SERVICE_S = 1e-4
Server = Callable[[int], float]


def planned(**more: object) -> Plan:
    return make_plan(KneeRequest(**{**READS, "ipsec": ("off",), "p99": "2ms", **more}))  # type: ignore[arg-type]


def mm1(load: int) -> float:
    """The mean response of an M/M/1 queue in seconds; its times are exponential."""
    return 1 / (1 / SERVICE_S - load) if load < 1 / SERVICE_S else 1.0


def measure(
    plan: Plan, cell: Cell, order: int, server: Server = mm1, status: Status = Status.OK, warned: str = ""
) -> Record:
    workload = workloads(plan.jobs)[cell.workload]
    mean_ns = 1e9 * server(workload.rate_iops or 0)
    latency = Latency(
        mean_ns=mean_ns,
        p50_ns=0.69 * mean_ns,
        p99_ns=math.log(100) * mean_ns,
        p99_9_ns=math.log(1000) * mean_ns,
    )
    return Record(
        run_id=plan.run_id,
        setting=plan.setting,
        column=cell.column,
        workload=workload,
        repeat=cell.repeat,
        order=order,
        status=status,
        read=Io(bytes=4096, ios=1, runtime_ns=10**9, latency=latency) if status is Status.OK else None,
        wall_ns=10**9,
        warnings=(warned,) if warned else (),
    )


def carried_out(plan: Plan, server: Server = mm1, most: int = 200) -> list[Record]:
    """All records of a run."""
    todo = sweep.schedule(plan)
    found: list[Record] = []
    for order, cell in todo:
        found.append(measure(plan, cell, order, server))
        todo.take(found[-1])
        assert len(found) < most
    return found


def theory(goal_s: float, part: float) -> float:
    return 1 / SERVICE_S + math.log(1 - part) / goal_s


def test_a_knee_is_where_theory_has_it() -> None:
    plan = planned()
    records = carried_out(plan)
    (found,) = knee.knees(plan, records)
    assert found.is_known and found.low is not None and found.high is not None
    assert found.load == pytest.approx(theory(2e-3, 0.99), rel=0.005)
    assert found.low <= found.load <= found.high <= found.low * knee.RATIO**1.1
    assert isinstance(sweep.schedule(plan, records), knee.KneeSchedule)


def test_it_costs_less_than_half_of_a_grid() -> None:
    plan = planned()
    jobs = {job.name: job for job in plan.jobs}
    spent = [knee.trial_s(jobs[r.workload.name], r.repeat) for r in carried_out(plan)]
    assert sum(spent) <= 0.4 * 20 * max(s for s in spent if s < 30)
    lengths = [record.repeat for record in carried_out(plan)]
    assert lengths.count(knee.FULL) <= 4 and lengths == sorted(lengths)


@pytest.mark.thorough
def test_several_goals_share_trials() -> None:
    both = planned(p99_9="1.5ms", mean="0.2ms")
    records = carried_out(both)
    found = {each.goal.of: each.load for each in knee.knees(both, records)}
    assert found["p99"] == pytest.approx(theory(2e-3, 0.99), rel=0.005)
    assert found["p99.9"] == pytest.approx(theory(1.5e-3, 0.999), rel=0.005)
    assert found["mean"] == pytest.approx(1 / SERVICE_S - 1 / 2e-4, rel=0.005)
    alone = sum(
        len(carried_out(planned(**{"p99": None, **goal})))
        for goal in ({"p99": "2ms"}, {"p99_9": "1.5ms"}, {"mean": "0.2ms"})
    )
    assert len(records) < alone


def test_a_full_trial_overrules_a_short_one() -> None:
    """A short trial that was too good by chance: the full one says so, and the search goes back."""
    goal = planned().sweep.goals[0]  # type: ignore[union-attr]
    trials = {(0, 1): 1e6, (47, 1): 3e6, (23, 1): 1e6, (24, 1): 3e6, (23, 2): 3e6}
    found = knee.bracket(trials, goal)
    assert (found.lower, found.upper) == (0, 23)
    assert knee.next_trial(found, 100) == (11, knee.SHORT)


def test_loads_beyond_the_grid() -> None:
    low = planned(load="20000..100000")
    (found,) = knee.knees(low, carried_out(low))
    assert (found.low, found.high, found.load, found.is_known) == (None, 20000, 0.0, True)
    assert list(said.sentences([found])) == [
        "wired rand-read, block 4K: even at 20 000 IOPS, 81.9 MB/s, "
        "fewer than 99 % of requests end within 2 ms."
    ]
    high = planned(load="10..1000")
    (found,) = knee.knees(high, carried_out(high))
    assert (found.low, found.high, found.load, found.is_known) == (1000, None, 1000.0, True)
    assert "at 1 000 IOPS, 4.1 MB/s, the highest load that was tried, still 99 %" in " ".join(
        said.sentences([found])
    )


def test_sentences_and_trials_are_shown() -> None:
    plan = planned(mean="0.2ms")
    records = carried_out(plan)
    first, second = said.sentences(knee.knees(plan, records))
    assert first.startswith(
        "wired rand-read, block 4K: up to 5 000 IOPS, 20.5 MB/s, requests end within 200 us on"
    )
    assert " IOPS, 31.5 MB/s, 99 % of requests end within 2 ms (7 " in second and second.endswith(").")
    assert len(curves.trials(records).splitlines()) == len(records) + 2


def test_it_goes_on_where_it_was_interrupted() -> None:
    plan = planned()
    whole = carried_out(plan)
    for cut in range(len(whole)):
        todo = sweep.schedule(plan, whole[:cut])
        _order, cell = next(iter(todo))
        assert (cell.workload, cell.repeat) == (whole[cut].workload.name, whole[cut].repeat)
        assert todo.expected == 1
    assert next(iter(sweep.schedule(plan, whole)), None) is None
    assert sweep.schedule(plan, whole).expected == 0
    (found,) = knee.knees(plan, whole[:6])
    assert not found.is_known and "not come to its end" in next(iter(said.sentences([found])))
    assert knee.knees(plan, []) == []


def test_what_fails_is_tried_twice_and_warnings_are_told() -> None:
    plan = planned()
    todo = sweep.schedule(plan)
    tried = []
    for order, cell in todo:
        tried.append(cell.workload)
        todo.take(measure(plan, cell, order, status=Status.FAILED))
    assert tried == [plan.jobs[0].name] * knee.IN_VAIN
    records = [
        measure(plan, Cell(r.column, r.workload.name, r.repeat), 0, warned="late") for r in carried_out(plan)
    ]
    (found,) = knee.knees(plan, records)
    assert found.is_doubtful and next(iter(said.sentences([found]))).endswith("disturbed or have warnings.")


def test_no_trial_begins_after_max_time() -> None:
    assert len(carried_out(planned(max_time="5s"))) == 5


def test_the_jobs_are_open_loops() -> None:
    plan = planned(blocks=("8K",), p99_9="5ms")
    job = plan.jobs[100]
    workload = described(job)
    assert is_open_loop(job) and workload.depth is None and workload.block_bytes == 8192
    assert job.name == f"rand-read-8k-{workload.rate_iops}iops" and workload.base == "rand-read"
    options = dict(job.options)
    # 800 requests above the percentile, or half a minute.
    assert options["runtime"] == f"{round(1e6 * min(30, 800_000 / (workload.rate_iops or 1)))}us"
    text = job_file(
        job, device="/dev/sdb", size_bytes=1 << 25, seed=3, runtime_s=knee.trial_s(job, knee.SHORT)
    )
    assert "rate_iops=" in text and "size=33554432\n" in text
    # Nobody's job file can say so.
    assert not is_open_loop(
        parse_jobs("[a]\nrate_process=poisson\nio_submit_mode=offload\nrate_iops=9\n", "x")[0]
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"p99": None}, "expected a goal"),
        ({"p99": "0s"}, "--p99: expected more than 0"),
        ({"load": "5"}, "expected a range"),
        ({"load": "9..5"}, "from less to more"),
        ({"depths": ("4",)}, "--depth is for harness run"),
        ({"repeats": 3}, "--repeats is for"),
        ({"lab_initiators": 2}, "--initiators"),
        (
            {"profile": "modern", "workloads": ("fsync-4k",)},
            "only reads and writes of one size, found fdatasync",
        ),
    ],
)
def test_what_is_refused(more: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        planned(**more)


def test_a_plan_that_nobody_could_have_typed() -> None:
    plan = planned()
    assert plan.sweep is not None
    goal = msgspec.structs.replace(plan.sweep.goals[0], of="p98")
    for changed in (
        msgspec.structs.replace(plan, repeats=1),
        msgspec.structs.replace(plan, sweep=msgspec.structs.replace(plan.sweep, goals=(goal,))),
        msgspec.structs.replace(plan, sweep=msgspec.structs.replace(plan.sweep, over=("depth",))),
        msgspec.structs.replace(plan, sweep=None),
    ):
        with pytest.raises(UsageError):
            rules.check(changed)
    assert isinstance(sweep.schedule(plan), Schedule)


def test_what_a_run_says(tmp_path: Path) -> None:
    plan = planned()
    folder = RunFolder(tmp_path / plan.run_id)
    folder.path.mkdir()
    folder.save_plan(plan)
    for record in carried_out(plan):
        folder.save_record(record)
    knee_of = "up to 7 690 IOPS, 31.5 MB/s, 99 % of requests end within 2 ms"
    for words in (("table",), ("explain",), ("explain", "--summary")):
        done = harness(*words, str(tmp_path), cwd=tmp_path)
        assert done.returncode == 0, done
        said_there = " ".join(done.stdout.split())
        assert (knee_of in said_there) == (words[0] == "explain") and "no verdict" not in said_there
        assert ("p99.9 ms" in said_there) == (words[0] == "table")
    done = harness("report", str(tmp_path), "-o", str(tmp_path / "report.html"), cwd=tmp_path)
    assert done.returncode == 0 and knee_of in (tmp_path / "report.html").read_text(encoding="utf-8"), done


def test_a_mix_is_a_mix() -> None:
    plan = planned(profile="modern", workloads=("mixed-70-30-4k-qd32",))
    options = dict(plan.jobs[0].options)
    assert plan.jobs[0].name == "mixed-70-30-4k-10iops"
    assert (options["rw"], options["rwmixread"], options["direct"]) == ("randrw", "70", "1")
