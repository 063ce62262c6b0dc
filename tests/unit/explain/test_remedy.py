"""What would help: forecasts that can be tried, between two bounds, and what they take for granted."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import msgspec
import pytest

from harness.analysis import queueing
from harness.analysis.wire.iscsi import WINDOW_BYTES
from harness.explain import Explained, remedy, sentence, waterfall
from harness.explain.limits import Limit
from harness.explain.path import Demands
from harness.explain.remedy import LIKELY, Chances, LimitingResource, after
from harness.explain.span import exact, within
from harness.explain.verdict import judge
from harness.explain.waterfall import Reading
from harness.model import ChangeKind, ChangeStep, LinkProfile
from tests.unit.explain.test_explain import US, asked, cell


def reading(**changes: Any) -> Reading:
    """A 4K read over gigabit, one at a time: 184 us, for 65 of which the core works."""
    whole: dict[str, Any] = {
        "time_ns": within(184 * US, 0.01),
        "block_bytes": 4096,
        "workload": "rand-read-4k",
        "path": asked(block_bytes=4096),
        "device_ns": exact(19 * US),
        "busy": exact(65 / 184),
        "is_memory": True,
        "is_emulated": True,
    }
    found = waterfall.best_guess(cell(**whole | changes))
    assert found is not None
    return found


def work_ns(chances: Chances, kind: ChangeKind = ChangeKind.DEPTH) -> float:
    """The core's work for one of several I/Os: fio queues them now, which memory takes longer for."""
    least, most = remedy.WORK[kind, True]
    return (65 + remedy.QUEUED * 19) * US * (least + chances.work * (most - least))


def test_a_deeper_queue_ends_at_the_cores_work_and_not_at_its_part_of_the_waterfall() -> None:
    at_32, then = after(reading(), ChangeStep(ChangeKind.DEPTH, 32), LIKELY)
    # 4096 bytes in some 80 us are 51 MB/s; the part of the waterfall is much less, and 112 MB/s were said.
    assert waterfall.parts(reading())["cpu"] < 65 * US
    assert then is LimitingResource.CORE
    assert at_32 == pytest.approx(work_ns(LIKELY), rel=0.02)


def test_queues_lie_between_the_bounds_of_operational_analysis() -> None:
    found = reading()
    for depth in (2, 4, 8, 16, 32):
        step = ChangeStep(ChangeKind.DEPTH, depth)
        fewest, most = Chances(waits=0.0, clumps=0.0), Chances(waits=1.0, clumps=0.0)
        least_ns, _ = after(found, step, fewest)
        most_ns, _ = after(found, step, most)
        assert max(work_ns(fewest), 184 * US / depth) <= least_ns <= most_ns <= 184 * US


def test_mean_value_analysis_of_a_balanced_network() -> None:
    # Without think time, K equal servers of D and N requests: X = N / (D (N + K - 1)) (Lazowska, table 5.2).
    for depth in (1, 2, 5, 32):
        assert queueing.mean_value_ns(30.0, [10.0, 10.0, 10.0], depth) == pytest.approx(
            10 * (depth + 2) / depth
        )


def test_the_depth_is_the_smallest_that_gains_nearly_all() -> None:
    step = remedy.deeper(reading())
    assert step is not None and step.kind is ChangeKind.DEPTH
    at = {
        depth: after(reading(), ChangeStep(ChangeKind.DEPTH, depth), LIKELY)[0] for depth in (2, 4, 8, 16, 32)
    }
    assert at[int(step.value)] <= remedy.ENOUGH * at[32] < at[int(step.value) // 2]


def test_a_faster_link_uncovers_the_work_that_went_on_meanwhile() -> None:
    twice = asked(LinkProfile(name="wired", title="x", emulated=True, rate_bit_s=2 * 10**9, delay_us=50))
    for busy, then in ((0.2, LimitingResource.ALONE), (0.8, LimitingResource.CORE)):
        evidence = cell(busy=exact(busy), faster=twice, is_memory=True)
        change = judge(evidence).change
        assert change is not None and change.step == ChangeStep(ChangeKind.RATE, 2) and change.then is then
        saved = asked().alone_ns - twice.alone_ns
        core_ns = sum(remedy.WORK[ChangeKind.RATE, True]) / 2 * 2000 * US + 75 * US
        assert change.time_ns == pytest.approx(
            2500 * US - saved if then is LimitingResource.ALONE else core_ns, rel=0.001
        )
        assert change.least_ns <= change.time_ns <= change.most_ns


def test_tcps_usual_window_counts_on_an_emulated_link() -> None:
    wan = LinkProfile(name="wan", title="x", emulated=True, rate_bit_s=10**8, delay_us=10_000)
    usual = asked(wan, window_bytes=WINDOW_BYTES)
    # 256K are more than a window, so a read waits for an ACK; at twice the rate it waits longer.
    faster = asked(
        LinkProfile(name="wan", title="x", emulated=True, rate_bit_s=2 * 10**8, delay_us=10_000),
        window_bytes=WINDOW_BYTES,
    )
    assert 2000 * US < usual.window_ns < faster.window_ns < 20_000 * US
    # And however deep the queue is, there is one window for each round trip.
    assert usual.window_each_ns > usual.busy_ns


def test_what_gains_little_or_only_the_lab_would_limit_is_not_foretold() -> None:
    twice = asked(LinkProfile(name="wired", title="x", emulated=True, rate_bit_s=2 * 10**9, delay_us=50))
    full = {"busy": exact(0.8), "faster": twice, "is_memory": True}
    assert judge(cell(**full)).change is not None
    assert judge(cell(**full, is_emulated=True)).change is None
    assert judge(cell(**full | {"busy": exact(0.95)})).change is None


def test_memory_that_takes_half_the_time_is_no_advice() -> None:
    slow = {"device_ns": exact(9000 * US), "time_ns": within(11500 * US, 0.01), "busy": within(0.02, 0.05)}
    disk, memory = judge(cell(**slow)), judge(cell(**slow, is_memory=True))
    assert disk.limited_by is memory.limited_by is Limit.DEVICE
    assert disk.change is not None and disk.change.time_ns == pytest.approx(7000 * US)
    assert memory.change is None


def test_what_cannot_be_made_is_not_foretold() -> None:
    assert {step.kind for limit in Limit if (step := _step_for(limit)) is not None} == {
        ChangeKind.DEPTH,
        ChangeKind.RATE,
        ChangeKind.DEVICE,
    }


def _step_for(limit: Limit) -> ChangeStep | None:
    return limit.rule.change(reading(faster=asked(block_bytes=4096), is_memory=False))


def test_the_lab_says_that_two_machines_have_two_cores() -> None:
    evidence = cell(
        time_ns=within(184 * US, 0.01),
        block_bytes=4096,
        workload="rand-read-4k",
        path=asked(block_bytes=4096),
        device_ns=exact(19 * US),
        busy=exact(65 / 184),
        is_memory=True,
        is_emulated=True,
    )
    reported = sentence(Explained.of(evidence))
    assert "; forecast: with queue depth 4, it would rise from 22.3 to between " in reported
    assert reported.endswith("; lab only: both ends share one core)")


# Worked by hand: an I/O of 100 us, of which the path takes 20 there and back, 30 for data, 5 for headers

PATH = Demands(
    round_trip_ns=20 * US,
    window_ns=0,
    link_ns=30 * US,
    transport_ns=5 * US,
    framing_ns=0,
    busy_ns=32 * US,
    window_each_ns=0,
    r2ts=0,
    mss_bytes=1448,
    window_bytes=None,
)
TWICE = msgspec.structs.replace(PATH, link_ns=15 * US, transport_ns=2.5 * US, busy_ns=16 * US)
"""17.5 us less for one I/O by itself."""

DEEPER = ChangeStep(ChangeKind.DEPTH, 4)
FASTER = ChangeStep(ChangeKind.RATE, 2)
HALF = ChangeStep(ChangeKind.DEVICE, 0.5)


def worked(*, is_memory: bool = False, is_emulated: bool = False, **changes: Any) -> Reading:
    """At depth 1, with a device of 10 us and 35 us of processors; what is changed is in us."""
    names = "time device device_alone core work above_plain crypto cipher implementation"
    times: dict[str, float | None] = dict.fromkeys(names.split())
    times |= {"time": 100, "device": 10, "core": 35}
    depth = changes.pop("depth", 1)
    times |= {name: changes.pop(name) for name in times if name in changes}
    if depth == 1:
        times["device_alone"] = times["device"]
    whole: dict[str, Any] = {f"{name}_ns": None if us is None else us * US for name, us in times.items()}
    whole |= {"path": PATH, "faster": TWICE, **changes}
    return Reading(evidence=cell(is_memory=is_memory, is_emulated=is_emulated), depth=depth, **whole)


def each_us(think: float, servers: list[float], requests: int) -> float:
    """The time between two completions by the normalising constants of a closed network (Buzen,
    Communications of the ACM 16(9), 1973): another way to what mean value analysis gives."""

    def constant(n: int) -> float:
        return sum(
            think ** (n - sum(at))
            / math.factorial(n - sum(at))
            * math.prod(s**k for s, k in zip(servers, at, strict=True))
            for at in product(range(n + 1), repeat=len(servers))
            if sum(at) <= n
        )

    return constant(requests) / constant(requests - 1)


def about(us: float) -> Any:
    return pytest.approx(us, rel=1e-6)


def at(reading: Reading, step: ChangeStep, **chances: float) -> tuple[float, str]:
    """The time per I/O in us after a step, and what limits then."""
    time_ns, then = after(reading, step, Chances(**chances))
    return time_ns / US, then.value


@pytest.mark.parametrize("think", [0.0, 45.0])
@pytest.mark.parametrize("servers", [[40.0], [40.0, 30.0], [7.0, 30.0, 55.0]])
@pytest.mark.parametrize("requests", [1, 2, 7])
def test_mean_value_analysis_agrees_with_normalising_constants(
    think: float, servers: list[float], requests: int
) -> None:
    found = queueing.mean_value_ns(think + sum(servers), servers, requests)
    assert found == pytest.approx(each_us(think, servers, requests))


def test_servers_that_take_longer_than_one_request_leave_no_time_between() -> None:
    """A core and a link that work side by side on one I/O may take longer in all than it does."""
    assert queueing.mean_value_ns(10.0, [30.0], 3) == pytest.approx(30.0)
    assert queueing.mean_value_ns(10.5, [10.0], 2) == pytest.approx(each_us(0.5, [10.0], 2))


@pytest.mark.parametrize(
    ("changes", "chances", "us", "then"),
    [
        # 17.5 us less; the core takes 35 * 0.925 and idles for 15.
        ({}, {}, 82.5, "alone"),
        # What nothing explains takes its part of any time.
        ({"time": 120}, {}, 82.5 * 1.2, "alone"),
        # Parts that are more than the whole take no less than they do.
        ({"time": 60}, {}, 65 - 17.5, "alone"),
        ({"core": 80}, {}, 80 * 0.925 + 15, "core"),
        ({"core": 80}, {"work": 1.0}, 80 + 15, "core"),
        ({"core": 80}, {"work": 0.0}, 80 * 0.85 + 15, "core"),
        ({"core": 80}, {"waits": 1.0}, 80 * 0.925 + 20, "core"),
        ({"core": 80}, {"waits": 0.0, "work": 1.0}, 80 + 10, "core"),
        ({"faster": msgspec.structs.replace(TWICE, round_trip_ns=2 * US)}, {}, 100 - 35.5, "alone"),
        # Without a path that is known to be faster, no time is gained.
        ({"faster": None}, {}, 100, "alone"),
        ({"path": None}, {}, 100, "alone"),
        # What nothing explains may be the device, where its time is not known: then the gain is not more.
        ({"time": 120, "device": None}, {}, 120 - 17.5, "alone"),
    ],
)
def test_one_io_at_a_time_over_a_faster_link(
    changes: dict[str, Any], chances: dict[str, float], us: float, then: str
) -> None:
    assert at(worked(**changes), FASTER, **chances) == (about(us), then)


@pytest.mark.parametrize(
    ("changes", "us"),
    [
        ({"device": 40, "core": None}, (95 - 20) * 100 / 95),
        # While the disk works the core waits, however long.
        ({"device": 40, "core": 300}, 100 - 20),
        ({"device": None, "core": 35}, 100.0),
        # Memory is not replaced.
        ({"device": 40, "core": None, "is_memory": True}, 100.0),
    ],
)
def test_one_io_at_a_time_of_a_device_of_half_the_time(changes: dict[str, Any], us: float) -> None:
    assert at(worked(**changes), HALF) == (about(us), "alone")


def between(least: float, most: float, part: float) -> float:
    return least + part * (most - least)


def queued(alone: float, servers: list[float], least: float, *, depth: int, part: float = 0.7) -> float:
    """Between nothing waits and all do as if by chance."""
    most = each_us(max(0.0, alone - sum(servers)), servers, depth)
    return between(least, max(least, most), part)


@pytest.mark.parametrize(
    ("changes", "chances", "us", "then"),
    [
        # The core takes 35 * 1.03, the link 32 in clumps of 1.05 and the disk 10.
        ({}, {}, queued(100, [36.05, 32, 10], 36.05, depth=4), "core"),
        ({}, {"waits": 0.0}, queued(100, [36.05, 32, 10], 36.05, depth=4, part=0.4), "core"),
        ({}, {"waits": 1.0}, queued(100, [36.05, 32, 10], 36.05, depth=4, part=1.0), "core"),
        ({}, {"work": 0.0}, queued(100, [30.8, 32, 10], 33.6, depth=4), "link"),
        ({}, {"work": 0.0, "clumps": 0.0}, queued(100, [30.8, 32, 10], 32, depth=4), "link"),
        ({}, {"work": 0.0, "clumps": 1.0}, queued(100, [30.8, 32, 10], 35.2, depth=4), "link"),
        ({}, {"work": 1.0, "clumps": 1.0}, queued(100, [41.3, 32, 10], 41.3, depth=4), "core"),
        # Of memory the core does the device's work, and more of it as fio queues.
        ({"is_memory": True}, {}, queued(100, [42 * 1.03, 32], 42 * 1.03, depth=4), "core"),
        ({"device": None, "is_memory": True}, {}, queued(100 - 0, [36.05, 32], 36.05, depth=4), "core"),
        ({"device": 40, "core": 5}, {}, queued(100, [5.15, 32, 40], 42, depth=4), "device"),
        ({"device": None, "core": 5, "path": None}, {}, queued(100, [5.15], 26.25, depth=4), "alone"),
    ],
)
def test_a_deeper_queue(changes: dict[str, Any], chances: dict[str, float], us: float, then: str) -> None:
    assert at(worked(**changes), DEEPER, **chances) == (about(us), then)


def deep(**changes: Any) -> Reading:
    """8 in flight, one each 50 us, of which the disk is busy for all 50 and the core for 20."""
    return worked(**{"depth": 8, "time": 50, "device": 50, "device_alone": 60, "core": 20} | changes)


@pytest.mark.parametrize(
    ("changes", "step", "chances", "us", "then"),
    [
        # At greater depths what nothing explains is waiting: 60 + 55 + 20 remain.
        ({}, HALF, {}, queued(135 - 30, [20, 32, 25], 32, depth=8), "link"),
        ({}, HALF, {"work": 1.0}, queued(135 - 30, [22, 32, 25], 32, depth=8), "link"),
        ({}, HALF, {"clumps": 1.0}, queued(135 - 30, [20, 32, 25], 32, depth=8), "link"),
        ({}, FASTER, {}, queued(135 - 17.5, [20 * 0.825, 16, 50], 50, depth=8), "device"),
        ({"core": 70}, FASTER, {}, queued(185 - 17.5, [70 * 0.825, 16, 50], 57.75, depth=8), "core"),
        ({}, ChangeStep(ChangeKind.DEPTH, 16), {}, queued(135, [20, 32, 50], 52.5, depth=16), "device"),
        ({"core": 60}, ChangeStep(ChangeKind.DEPTH, 16), {}, queued(175, [60, 32, 50], 60, depth=16), "core"),
        # The core's work as another link shows it better.
        ({"work": 60}, HALF, {}, queued(135 - 30, [60, 32, 25], 60, depth=8), "core"),
    ],
)
def test_a_queue_that_is_deep_already(
    changes: dict[str, Any], step: ChangeStep, chances: dict[str, float], us: float, then: str
) -> None:
    assert at(deep(**changes), step, **chances) == (about(us), then)


@pytest.mark.parametrize(
    ("core", "time", "us"),
    [(35, 100, 70 * 1.05), (35, 120, 70 * 1.05 * 1.2), (None, 120, 70 * 1.05)],
)
def test_one_window_for_each_round_trip_however_deep_the_queue_is(
    core: float | None, time: float, us: float
) -> None:
    """Where the core's work is known, what nothing explains lengthens the round trip."""
    narrow = msgspec.structs.replace(PATH, window_each_ns=70 * US)
    found = worked(core=core, work=None if core else 35, time=time, path=narrow)
    time_us, then = at(found, ChangeStep(ChangeKind.DEPTH, 32))
    assert (time_us, then) == (about(us), "window")


@pytest.mark.parametrize(
    ("changes", "us"),
    [
        ({}, 12 + 8 + 0.5 * 15),
        ({"is_memory": True}, 12 + 8 + 10 + 0.5 * 15),
        ({"depth": 2, "time": 50}, 12 + 8),
        ({"time": 80}, 7 + 8),
        ({"core": 33}, 33),
        ({"work": 44, "core": 33}, 44),
    ],
)
def test_the_cores_work_is_that_of_the_parts_where_it_was_not_measured(
    changes: dict[str, Any], us: float
) -> None:
    found = worked(**{"core": None, "crypto": 8, "above_plain": 20} | changes)
    assert remedy._core_ns(found, waterfall.parts(found), LIKELY) == pytest.approx(us * US)


@pytest.mark.parametrize(
    ("depth", "core", "deeper"),
    [(1, 90, 2), (8, 5, 16), (1, 35, 8), (1, 5, 4), (2, 5, 4), (4, 5, 8), (16, 1, 32), (32, 1, None)],
)
def test_the_queue_is_made_deeper_than_it_is_or_not(depth: int, core: float, deeper: int | None) -> None:
    found = worked(depth=depth, time=100 / depth, core=core)
    step = remedy.deeper(found)
    assert (step and int(step.value)) == deeper


def test_a_forecast_leaves_out_a_twentieth_of_the_draws_at_either_side() -> None:
    """And adds to the others what no model knows: 6 %."""
    guess = worked()
    many = [(worked(core=core), LIKELY) for core in range(10, 50)]
    drawn = sorted(after(reading, DEEPER, LIKELY)[0] for reading, _ in many)
    change = remedy.forecast(guess, many, DEEPER)
    assert change is not None
    assert change.least_ns == pytest.approx(0.94 * drawn[2])
    assert change.most_ns == pytest.approx(1.06 * drawn[37])
    assert (change.time_ns, change.then) == after(guess, DEEPER, LIKELY)
    assert (change.step, change.what) == (DEEPER, "queue depth 4")
    few = remedy.forecast(guess, [], DEEPER)
    assert few is not None
    assert few.least_ns == pytest.approx(0.94 * few.time_ns) and few.most_ns == pytest.approx(
        1.06 * few.time_ns
    )


def test_a_forecast_is_not_below_the_links_time_nor_above_todays() -> None:
    full = msgspec.structs.replace(PATH, busy_ns=70 * US)
    change = remedy.forecast(worked(path=full, core=20), [(worked(core=20), LIKELY)], DEEPER)
    assert change is not None and change.least_ns == 70 * US
    slow = [(worked(time=300, core=290), LIKELY)]
    change = remedy.forecast(worked(), slow, DEEPER)
    assert change is not None and change.most_ns == 100 * US
    rate = remedy.forecast(worked(core=1, faster=msgspec.structs.replace(TWICE, round_trip_ns=0)), [], FASTER)
    assert rate is not None and rate.least_ns == pytest.approx(0.94 * rate.time_ns)
    floor = msgspec.structs.replace(TWICE, round_trip_ns=0, busy_ns=62.4 * US)
    rate = remedy.forecast(worked(core=1, faster=floor), [], FASTER)
    assert rate is not None and rate.least_ns == pytest.approx(62.4 * US)


@pytest.mark.parametrize(
    ("changes", "step", "how"),
    [
        ({}, DEEPER, "the longer of 100 us / 4 and the busiest resource's time"),
        ({"time": 110}, DEEPER, "the longer of 110 us / 4 and the busiest resource's time"),
        (
            {"depth": 2, "time": 70},
            ChangeStep(ChangeKind.DEPTH, 8),
            "the longer of 90 us / 8 and the busiest resource's time",
        ),
        ({"depth": 8, "time": 50, "core": 35}, FASTER, "up to the core's work"),
        ({"depth": 8, "time": 50, "core": 5}, FASTER, "all other parts unchanged"),
        ({"device": 60, "time": 130, "core": 5}, HALF, "all other parts unchanged"),
    ],
)
def test_a_forecast_says_how_it_was_made(changes: dict[str, Any], step: ChangeStep, how: str) -> None:
    change = remedy.forecast(worked(**changes), [], step)
    assert change is not None and change.how == how


def test_a_step_in_words() -> None:
    assert [step.words for step in (DEEPER, FASTER, HALF)] == [
        "queue depth 4",
        "a link of twice the rate",
        "a device that takes half the time",
    ]


@pytest.mark.parametrize(("device", "is_said"), [(33.2, False), (33.4, True)])
def test_what_gains_less_than_a_fifth_is_not_said(device: float, is_said: bool) -> None:
    """100 us become 83.3."""
    assert (remedy.forecast(worked(device=device, core=45), [], HALF) is not None) is is_said


def test_what_the_labs_core_would_limit_is_no_forecast_for_a_faster_link_alone() -> None:
    full: dict[str, Any] = {"depth": 8, "time": 50, "core": 35}
    assert remedy.forecast(worked(**full), [], FASTER) is not None
    assert remedy.forecast(worked(**full, is_emulated=True), [], FASTER) is None
    assert remedy.forecast(worked(**full | {"core": 5}, is_emulated=True), [], FASTER) is not None
    assert remedy.forecast(worked(is_emulated=True), [], DEEPER) is not None
    assert remedy.forecast(worked(is_emulated=True), [], FASTER) is not None, "too few I/Os in flight"
