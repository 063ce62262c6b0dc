"""Sweeps: from what is typed to workloads and a grid, and from a grid to the points that its curves take."""

from __future__ import annotations

import functools
import itertools
import math
import os
import random
from pathlib import Path

import msgspec
import pytest

from harness.cli import report
from harness.hosts.state import Owner
from harness.model import Cell, Job, Plan, Record, Status, Workload
from harness.model.errors import UsageError
from harness.parse.jobfile import described, job_file, load_jobs
from harness.planning import duration
from harness.planning.axes import varied
from harness.planning.duration import START_S
from harness.questions.sweep.plan import OF_RUNS, SweepRequest, make_plan
from harness.questions.sweep.section import AT_ONCE, SECTION
from harness.results import sections
from harness.results.axes import curve_of, workloads
from harness.results.store import RunFolder
from harness.terminal.console import print_plan
from tests.unit.explain.test_explain import SESSION
from tests.unit.questions import carried_out as grids
from tests.unit.questions.carried_out import measure
from tests.unit.table.test_table import transfer

BASIC, MODERN = (load_jobs(name)[1] for name in ("basic", "modern"))


def planned(*over: str, **more: object) -> Plan:
    return make_plan(SweepRequest(over=over, **{**grids.READS, **more}))


@functools.cache
def grid() -> Plan:
    return planned("depth=1..64", "block=4K..1M", ipsec=("off",))


def network(at: dict[str, float]) -> float:
    """Bytes/s over gigabit, as an initiator with a queue of 32 gets them."""
    waiting = (160e-6 + 17e-9 * at["block"]) / min(at["depth"], 32)
    return float(at["block"] / (waiting**4 + (9e-6 + 8.5e-9 * at["block"]) ** 4) ** 0.25)


def trial(plan: Plan, cell: Cell, order: int) -> Record:
    """What is measured of a network whose every point is known."""
    found = curve_of(plan, SECTION.of(plan).over, cell.column, workloads(plan.jobs)[cell.workload])
    assert found is not None
    drawn = random.Random(cell.key).gauss(0, 0.01)  # noqa: S311 -- the same point scatters as before
    return measure(plan, cell, order, network(found[1]) * math.exp(drawn))


carried_out = functools.partial(grids.carried_out, of=trial)


def test_a_range_is_a_grid_of_equal_steps_and_a_list_is_itself() -> None:
    plan = grid()
    assert SECTION.of(plan).over == ("depth", "block")
    known = workloads(grid().jobs).values()
    assert list(dict.fromkeys(each.depth for each in known)) == [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64]
    assert list(dict.fromkeys(each.block_bytes for each in known)) == [4096 << power for power in range(9)]
    far = planned("rtt=0.1ms..50ms", "depth=1,16", ipsec=("both",))
    assert [link.path_delay_us * 2 for link in far.links.values()][:4] == [100, 200, 400, 790]
    assert {link.base for link in far.links.values()} == {"wired"}
    assert len(far.columns) == 20 and len(far.jobs) == 2


def test_points_of_a_curve_have_in_common_what_is_not_swept() -> None:
    two = ("wired", "wired:rate=2.5G")
    made = planned("rtt=1ms,5ms", "depth=1..8", links=two, ipsec=("both",), ip=("6",))
    found = SECTION.grids(made)
    assert {of.workload for of in found} == {"rand-read"}
    plain = ["wired-ip6", "wired-rate2.5g-ip6"]
    assert [of.column.label for of in found] == [*plain, *(f"{link}+aes128gcm16" for link in plain)]
    for surface in found.values():
        assert len(surface.grid) == 2 * 6
        assert {tuple(point) for point in surface.grid.values()} == {("rtt", "depth")}
    # Depth and block are swept over a link of real machines.
    real = {"target": "ssh://root@server", "links": ("wired=eth1",), "lab_kernel": "auto"}
    made = planned("depth=1,4", ipsec=("off",), **real)
    ((curve, surface),) = SECTION.grids(made).items()
    assert (curve.column.label, len(surface.grid)) == ("wired", 2)


def test_a_point_that_differs_from_no_other_along_an_axis_is_no_curve() -> None:
    """As in a plan that somebody changed: its cell is measured, and is in the table, as any other."""
    made = planned("depth=1,4", ipsec=("off",), links=("wired",))
    first, *rest = made.jobs
    other = msgspec.structs.replace(first, options=(*first.options, ("bs", "64k")))
    changed = msgspec.structs.replace(made, jobs=(other, *rest))
    assert list(map(len, (s.grid for s in SECTION.grids(made).values()))) == [2]
    assert (
        not SECTION.grids(changed)
        and len(carried_out(changed, of=lambda p, c, o: measure(p, c, o, 1e6))) == 2
    )


def test_a_plan_names_curves_and_axes_and_not_a_thousand_workloads() -> None:
    over = planned("rtt=0.1ms..50ms", "depth=1,16", ipsec=("both",), links=("wired", "local"))
    lines: list[str] = []
    print_plan(over, lines.append)
    said = [" ".join(line.split()) for line in lines]
    columns = "columns: local, wired, wired+aes128gcm16"
    assert said[1:5] == [columns, "workloads: rand-read", "block: 4K", "jobs: 1"]
    assert said[5] == "rtt: 100 us, 200 us, 400 us, 790 us, 1.6 ms, 3.2 ms, 6.3 ms, 13 ms, 25 ms,"
    assert said[6:8] == ["50 ms", "depth: 1, 16"] and said[-1].startswith("points: up to 42, ")


def test_protections_are_measured_only_where_asked() -> None:
    def columns(**more: object) -> list[str]:
        return [column.label for column in planned("depth=1..64", links=("wired",), **more).columns]

    assert columns() == ["wired"] and len(planned("depth=1..64").jobs) == 12
    assert columns(ipsec=("both",)) == columns(protect=("both",)) == ["wired", "wired+aes128gcm16"]


def test_a_plan_says_for_how_long() -> None:
    shortest_s, longest_s = duration.section_s(grid())
    assert START_S < shortest_s < longest_s == duration.run_s(grid(), 1)
    assert duration.section_s(planned("depth=1..64", max_time="5s"))[1] <= 5 + START_S
    lines: list[str] = []
    print_plan(planned("depth=1..64"), lines.append)
    assert lines[-1].endswith(
        "points:    up to 12, until all others are predicted within 5 %, about 8 s to 14 s"
    )


def test_it_measures_a_fifth_of_the_grid_and_knows_the_rest() -> None:
    made = carried_out(grid())
    assert len({(each.column, each.workload.name) for each in made}) == len(made), "each point once"
    ((_, surface),) = SECTION.grids(grid()).items()
    assert len(made) <= 0.4 * len(surface.grid)
    rates = {(each.column, each.workload.name): each.read.bytes_per_s for each in made if each.read}
    estimates = surface.estimates(rates)
    errors = [abs(estimates[place].mid / network(surface.grid[place]) - 1) for place in estimates]
    assert sum(error <= 0.05 for error in errors) >= 0.9 * len(errors)


def test_the_ends_and_the_middle_come_first_and_a_resumed_sweep_measures_nothing_twice() -> None:
    def names(records: list[Record]) -> list[str]:
        return [each.workload.name for each in records]

    half = carried_out(grid(), most=14)
    points = {(each.workload.depth, each.workload.block_bytes) for each in half[:9]}
    assert points == {*itertools.product((1, 11, 64), (4096, 65536, 1 << 20))}
    whole = carried_out(grid(), half)
    assert len({*names(whole)}) == len(whole) > 14
    assert names(whole) == names(carried_out(grid())), "the same again with the same seed"
    assert next(iter(sections.schedule(grid(), whole)), None) is None, "nothing is left"


def test_what_a_session_agreed_on_says_which_writes_wait_for_the_target() -> None:
    plan = planned("block=32K..1M", "depth=1,2", workloads=("rand-write-4k",), ipsec=("off",))
    ((_, surface),) = SECTION.grids(plan).items()
    place = next(iter(surface.grid))
    record = measure(plan, Cell(*place, 1), 0, 1e6)
    agreed = SESSION | {"initial_r2t": "0"}
    surface.learn(plan, {place: msgspec.structs.replace(record, session=agreed)})
    waits = {int(point["block"]) >> 10: surface.paths[place].r2ts for place, point in surface.grid.items()}
    assert waits == {32: 0, 64: 0, 128: 1, 256: 1, 512: 2, 1024: 4}
    assert surface.axes == ("block", "depth")


def test_time_ends_it_and_points_that_fail_are_left_out() -> None:
    plan = grid()
    within = SECTION.within(msgspec.structs.replace(SECTION.of(plan), max_s=5.0))
    short = msgspec.structs.replace(plan, sections=within)
    assert len(carried_out(short)) == 9, "the first block, and no other"
    failed = carried_out(plan, of=functools.partial(measure, rate=0, status=Status.FAILED))
    assert len(failed) == 18, "twice each of the first nine, and nothing is known of the others"


def test_what_cannot_be_swept_is_refused() -> None:
    asked: tuple[tuple[tuple[str, ...], dict[str, object], str], ...] = (
        ((), {}, "expected each axis once after --over, found none"),
        (("depth=1,2", "depth=4"), {}, "each axis once"),
        (("dept=1..4",), {}, "there is no axis 'dept'"),
        (("depth=4..1",), {}, "a range from less to more"),
        (("depth=4",), {}, "expected several values"),
        (("depth=one..4",), {}, "expected a whole number, found 'one'"),
        (("rtt=1..x",), {}, "--over rtt: expected a number of seconds"),
        (("depth=0,1",), {}, "--depth: expected a whole number from 1"),
        (("mtu=100..9000",), {}, "mtu_bytes: expected 576"),
        (("depth=1..4",), {"confidence": "5%"}, "--confidence is for harness run"),
        (("depth=1..4",), {"repeats": 3}, "--repeats is for harness run"),
        (("depth=1..4",), {"error": "0%"}, "--error: expected a percentage"),
    )
    for over, more, said in asked:
        with pytest.raises(UsageError) as refused:
            planned(*over, **more)
        assert said in refused.value.message and refused.value.hint


def test_every_combination_is_a_workload_with_numbers_and_a_name_that_says_them() -> None:
    reads = tuple(job for job in BASIC if job.name.startswith("rand-read"))
    notes: list[str] = []
    made = varied(reads, depths=["1,16"], blocks=["64K", "1M,512"], numjobs=["4"], notes=notes)
    points = [described(job) for job in made]
    assert [(each.name, each.block_bytes, each.depth, each.numjobs) for each in points] == [
        (f"rand-read-{block}-qd{depth}-j4", block_bytes, depth, 4)
        for block, block_bytes in (("64k", 65536), ("1m", 1 << 20), ("512", 512))
        for depth in (1, 16)
    ]
    assert {each.base for each in points} == {"rand-read"}
    # The engine of the article does one at a time: at all depths another one takes its place, or none.
    assert {dict(job.options)["ioengine"] for job in made} == {"libaio"}
    assert notes == [
        "rand-read-4k, rand-read-256k: measured with libaio, because their own engines do one I/O at a time"
    ]


def test_what_is_not_asked_for_stays() -> None:
    notes: list[str] = []
    assert varied(BASIC, notes=notes) == BASIC
    # One label, one engine: a depth of 1 is the same by itself and next to others.
    one, first = (varied(BASIC, depths=[depths], notes=notes)[0] for depths in ("1", "1,8"))
    assert one == first and dict(one.options)["ioengine"] == "libaio"
    notes.clear()
    deep = varied(MODERN, depths=["8"], notes=notes)
    assert [described(job).name for job in deep][:2] == ["seq-write-128k-qd8", "seq-read-128k-qd8"]
    assert notes == ["fsync-4k: measured with libaio, because their own engines do one I/O at a time"]
    for job in deep:
        job_file(job, device="/dev/x", size_bytes=1 << 27, seed=1)


def test_impossible_values_are_refused() -> None:
    for asked, said in (
        ({"depths": ["0"]}, "--depth: expected a whole number from 1 to 65536, found '0'"),
        ({"depths": ["1,,2"]}, "--depth"),
        ({"depths": ["deep"]}, "--depth"),
        ({"blocks": ["4KB"]}, "--block: '4KB' could mean"),
        ({"blocks": ["0"]}, "--block: expected more than 0"),
        ({"numjobs": ["4097"]}, "--jobs: expected a whole number from 1 to 4096"),
    ):
        with pytest.raises(UsageError) as refused:
            varied(BASIC, notes=[], **asked)
        assert said in refused.value.message and refused.value.hint


def test_two_workloads_never_share_a_name() -> None:
    plain = Job(name="log-4k", options=(("rw", "write"), ("bs", "4k")))
    durable = Job(name="log-8k", options=(("rw", "write"), ("bs", "8k"), ("fdatasync", "1")))
    with pytest.raises(UsageError, match="would both be called log-16k"):
        varied([plain, durable], blocks=["16K"], notes=[])
    assert [job.name for job in varied([plain, plain], blocks=["16K"], notes=[])] == ["log-16k"]


def test_a_curve_is_named_by_what_its_points_have_in_common() -> None:
    for workload, base in (
        (Workload(name="rand-read-4k", block_bytes=4096, depth=1, numjobs=1), "rand-read"),
        (Workload(name="rand-read-4k-qd32", block_bytes=4096, depth=32), "rand-read"),
        (Workload(name="rand-read-4k-qd32", block_bytes=4096, depth=1), "rand-read-qd32"),
        (Workload(name="4k", block_bytes=4096), "4k"),
        (Workload(name="mine"), "mine"),
    ):
        assert workload.base == base


def test_a_sweep_says_points_and_how_long_it_may_take_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for max_time, left in ((None, ""), ("20m", ", at most 11 min left")):
        plan = planned("depth=1..64", "block=4K..1M", ipsec=("off",), max_time=max_time)
        (curve,) = SECTION.grids(plan).values()
        records = carried_out(plan, most=len(curve.first()))
        folder = RunFolder(tmp_path / f"{max_time}" / plan.run_id)
        folder.path.mkdir(parents=True)
        folder.save_plan(plan)
        for each in records:
            folder.save_record(msgspec.structs.replace(each, wall_ns=60 * 10**9, read=transfer(10.0)))
        holder = Owner(os.getpid(), plan.run_id, "")
        monkeypatch.setattr(report, "owner", lambda holder=holder: holder)
        said = f"{plan.run_id} goes on: 9 of at least {9 + AT_ONCE} points{left}"
        assert report.going([folder.path]) == said


def test_options_that_say_how_often_are_refused(tmp_path: Path) -> None:
    grids.assert_not_listed("sweep --over depth=1..4", OF_RUNS.values(), tmp_path)


def test_the_command_that_measures_over_an_axis_is_suggested() -> None:
    assert sections.over("rate", "1G", "16G") == "harness sweep --over rate=1G..16G"
