"""Knees: from goals to trials, and from trials to the highest load that meets a goal."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis.schedule import Schedule
from harness.model import Cell, Io, Latency, Plan, Record, Status
from harness.model.errors import UsageError
from harness.parse.jobfile import described, is_open_loop, job_file, parse_jobs
from harness.parse.open_loop import FULL, SHORT, trial_s
from harness.planning import duration
from harness.questions.knee import printed as said
from harness.questions.knee import search as knee
from harness.questions.knee.plan import WITH_LOADS, KneeRequest, make_plan
from harness.questions.knee.section import SECTION
from harness.report import render
from harness.report.content import LoadedResults
from harness.results import rules, sections
from harness.results.store import RunFolder
from tests import flat
from tests.unit.command import harness
from tests.unit.questions import carried_out as grids

SERVICE_S = 1e-4
PARTS = {"50": 2, "99": 100, "99_9": 1000}


def planned(**more: Any) -> Plan:
    usual: dict[str, Any] = {**grids.READS, "links": ("wired",), "ipsec": ("off",), "p99": "2ms"}
    return make_plan(KneeRequest(**usual | more))


def mm1(load: int) -> float:
    """The mean response of an M/M/1 queue in seconds; its times are exponential."""
    return 1 / (1 / SERVICE_S - load) if load < 1 / SERVICE_S else 1.0


def measure(plan: Plan, cell: Cell, order: int, status: Status = Status.OK) -> Record:
    record = grids.measure(plan, cell, order, 4096, status)
    mean_ns = 1e9 * mm1(record.workload.rate_iops or 0)
    percentiles: dict[str, Any] = {f"p{name}_ns": math.log(part) * mean_ns for name, part in PARTS.items()}
    io = Io(bytes=4096, ios=1, runtime_ns=10**9, latency=Latency(mean_ns=mean_ns, **percentiles))
    return flat.changed(record, read=record.read and io)


carried_out = partial(grids.carried_out, of=measure, most=200)


def theory(goal_s: float, part: float) -> float:
    return 1 / SERVICE_S + math.log(1 - part) / goal_s


def test_a_knee_is_where_theory_has_it_for_less_than_half_of_a_grid() -> None:
    plan = planned()
    records = carried_out(plan)
    (found,) = SECTION.found(plan, records)
    assert found.is_known and found.low is not None and found.high is not None
    assert found.load == pytest.approx(theory(2e-3, 0.99), rel=0.005)
    assert found.low <= found.load <= found.high <= found.low * knee.RATIO**1.1
    assert isinstance(sections.schedule(plan, records), knee.KneeSchedule)
    jobs = {job.name: job for job in plan.jobs}
    spent = [trial_s(jobs[record.workload.name], record.repeat) for record in records]
    assert sum(spent) <= 0.4 * 20 * max(s for s in spent if s < 30)
    lengths = [record.repeat for record in records]
    assert lengths.count(FULL) <= 4 and lengths == sorted(lengths)


def test_a_plan_says_for_how_long() -> None:
    plan = planned()
    (search,) = knee.searches(plan, sections.schedule(plan).measured)
    made = [
        (search.places.index((each.column, each.workload.name)), each.repeat) for each in carried_out(plan)
    ]
    knee_at = max(load for load, at in enumerate(search.loads) if math.log(100) * mm1(at) <= 2e-3)
    assert len(made) == pytest.approx(len(knee.trials_if(len(search.loads), knee_at)), abs=3)
    jobs = {job.name: job for job in plan.jobs}
    took_s = sum(trial_s(jobs[search.places[load][1]], length) for load, length in made)
    shortest_s, longest_s = duration.section_s(plan)
    assert 0 < shortest_s < longest_s and shortest_s <= took_s + 30
    assert duration.section_s(planned(p99_9="10ms"))[1] > longest_s


@pytest.mark.thorough
def test_several_goals_share_trials() -> None:
    goals = {"p99": "2ms", "p99_9": "1.5ms", "mean": "0.2ms"}
    both = planned(**goals)
    records = carried_out(both)
    found = {each.goal.metric: each.load for each in SECTION.found(both, records)}
    expected = {"p99": theory(2e-3, 0.99), "p99.9": theory(1.5e-3, 0.999), "mean": 1 / SERVICE_S - 1 / 2e-4}
    assert found == pytest.approx(expected, rel=0.005)
    alone = [len(carried_out(planned(**{"p99": None, name: goal}))) for name, goal in goals.items()]
    assert len(records) < sum(alone)


def test_a_full_trial_overrules_a_short_one() -> None:
    """A short trial that was too good by chance: the full one says so, and the search goes back."""
    goal = SECTION.of(planned()).goals[0]
    trials = {(0, 1): 1e6, (47, 1): 3e6, (23, 1): 1e6, (24, 1): 3e6, (23, 2): 3e6}
    found = knee.bracket(trials, goal)
    assert (found.lower, found.upper) == (0, 23)
    assert knee.next_trial(found, 100) == (11, SHORT)


def test_loads_beyond_the_grid_and_sentences_are_shown() -> None:
    few = "block 4K: even at 20 000 IOPS, 81.9 MB/s, fewer than 99 % of requests finish within 2 ms."
    most = "at 1 000 IOPS, 4.1 MB/s, the highest load tried, 99 %"
    for load, bounds, sentence in (
        ("20000..100000", (None, 20000, 0.0), few),
        ("10..1000", (1000, None, 1000.0), most),
    ):
        plan = planned(load=load)
        (found,) = SECTION.found(plan, carried_out(plan))
        assert (found.low, found.high, found.load) == bounds and found.is_known
        assert sentence in " ".join(said.sentences([found]))
    plan = planned(mean="0.2ms")
    records = carried_out(plan)
    first, second = said.sentences(SECTION.found(plan, records))
    assert "rand-read, block 4K: up to 5 000 IOPS, 20.5 MB/s, the mean latency is within 200 us" in first
    assert " IOPS, 31.5 MB/s, 99 % of requests finish within 2 ms (interpolated: met at 7 " in second
    assert second.endswith(").")
    assert len(said.table(records).splitlines()) == len(records) + 2


def test_it_goes_on_where_it_was_interrupted() -> None:
    plan = planned()
    whole = carried_out(plan)
    for cut in range(len(whole)):
        todo = sections.schedule(plan, whole[:cut])
        _order, cell = next(iter(todo))
        assert (cell.workload, cell.repeat) == (whole[cut].workload.name, whole[cut].repeat)
        assert todo.expected == 1
    assert next(iter(sections.schedule(plan, whole)), None) is None
    assert sections.schedule(plan, whole).expected == 0
    (found,) = SECTION.found(plan, whole[:6])
    assert not found.is_known and "the search is unfinished" in next(iter(said.sentences([found])))
    assert SECTION.found(plan, []) == []


def test_what_fails_is_tried_twice_and_warnings_are_told() -> None:
    plan = planned()
    failed = carried_out(plan, of=partial(measure, status=Status.FAILED))
    assert [record.workload.name for record in failed] == [plan.jobs[0].name] * knee.IN_VAIN
    records = [msgspec.structs.replace(record, warnings=("late",)) for record in carried_out(plan)]
    (found,) = SECTION.found(plan, records)
    assert found.is_doubtful and next(iter(said.sentences([found]))).endswith("disturbed or have warnings.")
    assert len(carried_out(planned(max_time="5s"))) == 5, "no trial begins after it"


def test_the_jobs_are_open_loops() -> None:
    job = planned(blocks=("8K",), p99_9="5ms").jobs[100]
    workload = described(job)
    assert is_open_loop(job) and workload.depth is None and workload.block_bytes == 8192
    assert job.name == f"rand-read-8k-{workload.rate_iops}iops" and workload.base == "rand-read"
    # 800 requests above the percentile, or half a minute.
    us = round(1e6 * min(30, 800_000 / (workload.rate_iops or 1)))
    assert dict(job.options)["runtime"] == f"{us}us"
    short_s = trial_s(job, SHORT)
    assert "rate_iops=" in job_file(job, device="/dev/sdb", size_bytes=1 << 25, seed=3, runtime_s=short_s)
    # Nobody's job file can say so.
    (other,) = parse_jobs("[a]\nrate_process=poisson\nio_submit_mode=offload\nrate_iops=9\n", "x")
    assert not is_open_loop(other)
    mixed = planned(profile="modern", workloads=("mixed-70-30-4k-qd32",)).jobs[0]
    assert mixed.name == "mixed-70-30-4k-10iops"
    assert {("rw", "randrw"), ("rwmixread", "70"), ("direct", "1")} <= {*mixed.options}


def test_what_is_refused() -> None:
    asked: tuple[tuple[dict[str, object], str], ...] = (
        ({"p99": None}, "expected a goal"),
        ({"p99": "0s"}, "--p99: expected more than 0"),
        ({"load": "5"}, "expected a range"),
        ({"load": "9..5"}, "from less to more"),
        ({"depths": ("4",)}, "--depth is for harness run"),
        ({"repeats": 3}, "--repeats is for"),
        ({"lab_initiators": 2}, "--lab-initiators"),
        ({"profile": "modern", "workloads": ("fsync-4k",)}, "reads and writes of one size, found fdatasync"),
    )
    for more, message in asked:
        with pytest.raises(UsageError, match=message):
            planned(**more)


def test_a_plan_that_nobody_could_have_typed() -> None:
    plan, replace = planned(), msgspec.structs.replace
    asked = SECTION.of(plan)
    goal = replace(asked.goals[0], metric="p98")
    others = [SECTION.within(replace(asked, goals=goals)) for goals in ((goal,), ())]
    others += [{}, {"knee": {"goals": [{"metric": "p99"}]}}]
    for changed in (replace(plan, repeats=1), *(replace(plan, sections=other) for other in others)):
        with pytest.raises(UsageError):
            rules.check(changed)
    assert isinstance(sections.schedule(plan), Schedule)


def test_what_a_run_says(tmp_path: Path) -> None:
    plan = planned()
    folder = RunFolder(tmp_path / plan.run_id)
    folder.path.mkdir()
    folder.save_plan(plan)
    for record in carried_out(plan):
        folder.save_record(record)
    knee_of = "up to 7 690 IOPS, 31.5 MB/s, 99 % of requests finish within 2 ms"
    for words in (("table",), ("explain",), ("explain", "--summary")):
        done = harness(*words, str(tmp_path), cwd=tmp_path)
        assert done.returncode == 0, done
        said_there = " ".join(done.stdout.split())
        assert (knee_of in said_there) == (words[0] == "explain") and "no verdict" not in said_there
        assert ("p99.9 ms" in said_there) == (words[0] == "table")
    done = harness("report", str(tmp_path), "-o", str(tmp_path / "report.html"), cwd=tmp_path)
    assert done.returncode == 0 and knee_of in (tmp_path / "report.html").read_text(encoding="utf-8"), done


def test_the_page_of_a_search_that_goes_on_says_how_many_it_has_found() -> None:
    plan = planned()
    records = carried_out(plan)
    for count, found in ((4, "0 of 1"), (len(records), "1 of 1")):
        shown = LoadedResults(records=records[:count], plans={plan.run_id: plan})
        page = render(shown, going=f"{plan.run_id} goes on")
        assert f"<th scope=row>wired rand-read, block 4K<td>{count}<td>{found}" in page


def test_options_that_set_the_load_are_refused(tmp_path: Path) -> None:
    grids.assert_not_listed("knee --p99 2ms", WITH_LOADS.values(), tmp_path)
