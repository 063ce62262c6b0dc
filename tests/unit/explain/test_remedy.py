"""What would help: forecasts that can be tried, between two bounds, and what they take for granted."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest

from harness.analysis import stations
from harness.analysis.critical_path import Crossing
from harness.analysis.interval import exact, within
from harness.analysis.limit import ChangeKind, ChangeStep, Limit
from harness.analysis.path_demands import Demands
from harness.analysis.wire.iscsi import WINDOW_BYTES
from harness.explain import remedy, waterfall
from harness.explain.evidence import Evidence
from harness.explain.limits import RULES
from harness.explain.remedy import LIKELY, Chances, Change, after
from harness.explain.text import Explained, sentence
from harness.explain.verdict import judge
from harness.explain.waterfall import Sample
from tests.unit.explain.test_explain import US, asked, cell, far, known


def read_4k(**changes: Any) -> Evidence:
    """Over gigabit, one at a time: 184 us, for 65 of which the core works."""
    whole: dict[str, Any] = {
        "time_ns": within(184 * US, 0.01),
        "block_bytes": 4096,
        "device_ns": exact(19 * US),
    }
    whole |= {"workload": "rand-read-4k", "path": asked(block_bytes=4096), "busy": exact(65 / 184)}
    return cell(**whole | {"is_memory": True, "is_emulated": True} | changes)


READING = known(waterfall.best_guess(read_4k()))


def work_ns(chances: Chances) -> float:
    """The core's work for one of several I/Os."""
    least, most = remedy.WORK[ChangeKind.DEPTH, True]
    return 65 * US * (least + chances.work * (most - least))


def test_a_deeper_queue_ends_at_the_cores_work_and_not_at_its_part_of_the_waterfall() -> None:
    found = after(READING, ChangeStep(ChangeKind.DEPTH, 32), LIKELY)
    # 4096 bytes in some 80 us are 51 MB/s; the part of the waterfall is much less, and 112 MB/s were said.
    assert waterfall.parts(READING)["cpu"] < 65 * US
    assert found.limited_by is Limit.CPU and found.ns == pytest.approx(work_ns(LIKELY), rel=0.1)
    # Queues lie between the bounds of operational analysis.
    fewest, most = Chances(waits=0.0, clumps=0.0), Chances(waits=1.0, clumps=0.0)
    for depth in (2, 4, 8, 16, 32):
        step = ChangeStep(ChangeKind.DEPTH, depth)
        least_ns, most_ns = after(READING, step, fewest).ns, after(READING, step, most).ns
        assert 0.9 * max(work_ns(fewest), 184 * US / depth) <= least_ns <= most_ns <= 184 * US
    reported = sentence(Explained.of(read_4k()))
    assert "; forecast: with queue depth 8, it would rise from 22.3 to between " in reported
    assert reported.endswith("; lab only: both ends share one core)")


def test_a_deeper_queue_over_a_half_duplex_link_has_a_warning() -> None:
    """Six of six such forecasts were 6 to 14 % too high."""
    reported = sentence(Explained.of(read_4k(is_half_duplex=True)))
    assert reported.endswith(
        "; over a half-duplex link such forecasts were up to 14 % too high: docs/scores.md)"
    )


def test_a_faster_link_uncovers_the_work_that_went_on_meanwhile() -> None:
    twice = asked(far(50, 2 * 10**9))
    core_ns = sum(remedy.WORK[ChangeKind.RATE, True]) / 2 * 2000 * US + 75 * US
    for busy, then, time_ns in (
        (0.2, Limit.LINK, 2500 * US - asked().alone_ns + twice.alone_ns),
        (0.8, Limit.CPU, core_ns),
    ):
        change = known(judge(cell(busy=exact(busy), faster=twice, is_memory=True)).change)
        assert (change.step, change.limited_by) == (ChangeStep(ChangeKind.RATE, 2), then)
        each_ns = change.each_ns
        assert each_ns.mid == pytest.approx(time_ns, rel=0.1) and each_ns.low <= each_ns.mid <= each_ns.high
    # What gains little or only the lab would limit is not forecast.
    full: dict[str, Any] = {"busy": exact(0.8), "faster": twice, "is_memory": True}
    assert judge(cell(**full, is_emulated=True)).change is None
    assert judge(cell(**full | {"busy": exact(0.99)})).change is None


def test_tcps_usual_window_counts_on_an_emulated_link() -> None:
    # 256K are more than a window, so a read waits for an ACK, and has its bytes sent meanwhile.
    usual, faster = (asked(far(10_000, rate), window_bytes=WINDOW_BYTES) for rate in (10**8, 2 * 10**8))
    assert (
        usual.window_ns == faster.window_ns == 20_000 * US and faster.link_ns < usual.link_ns < usual.busy_ns
    )
    # And however deep the queue is, there is one window for each round trip.
    assert usual.window_each_ns > usual.busy_ns


def test_memory_that_takes_half_the_time_is_no_advice() -> None:
    slow = {"device_ns": exact(9000 * US), "time_ns": within(11500 * US, 0.01), "busy": within(0.02, 0.05)}
    disk, memory = judge(cell(**slow)), judge(cell(**slow, is_memory=True))
    assert disk.limited_by is memory.limited_by is Limit.DEVICE
    assert known(disk.change).each_ns.mid == pytest.approx(7000 * US) and memory.change is None
    # Only what can be made is forecast.
    found = read_4k(faster=asked(block_bytes=4096), is_memory=False)
    assert {RULES[limit].change(found) for limit in Limit} == {None, *ChangeKind}


# Worked by hand: an I/O of 100 us, of which the path takes 20 there and back, 30 for data, 5 for headers
NOTHING: dict[str, Any] = dict.fromkeys(("window_ns", "framing_ns", "window_each_ns", "r2ts"), 0)
LEG: dict[str, Any] = {"command": 0, "packets": 3, "stored_ns": 0.0, "part": 0.5}


def way(rate: float = 1.0, **changes: Any) -> Demands:
    """A command of 3 us and an answer of 32, at so many times that rate."""
    legs = (
        Crossing(by="initiator", round=0, bytes=48, link_ns=3 * US / rate, **LEG),
        Crossing(by="target", round=1, bytes=4144, link_ns=32 * US / rate, **LEG),
    )
    times = {"link_ns": 30 * US / rate, "transport_ns": 5 * US / rate, "busy_ns": 32 * US / rate}
    fixed: dict[str, Any] = {"mss_bytes": 1448, "window_bytes": None, "one_way_ns": 10 * US, "legs": legs}
    return Demands(**NOTHING | times | fixed | {"round_trip_ns": 20 * US} | changes)


PATH, TWICE = way(), way(2.0)
"""17.5 us less for one I/O by itself."""

DEEPER, DEEPEST = ChangeStep(ChangeKind.DEPTH, 4), ChangeStep(ChangeKind.DEPTH, 32)
FASTER, HALF = ChangeStep(ChangeKind.RATE, 2), ChangeStep(ChangeKind.DEVICE, 0.5)


def worked(*, is_memory: bool = False, is_emulated: bool = False, **changes: Any) -> Sample:
    """At depth 1, with a device of 10 us and 35 us of processors; what is changed is in us."""
    names = "time device device_alone core work above_plain crypto cipher"
    times: dict[str, float | None] = dict.fromkeys(names.split())
    times |= {"time": 100, "device": 10, "core": 35}
    depth = changes.pop("depth", 1)
    times |= {name: changes.pop(name) for name in times if name in changes}
    if depth == 1:
        times["device_alone"] = times["device"]
    whole: dict[str, Any] = {f"{name}_ns": None if us is None else us * US for name, us in times.items()}
    whole |= {"path": PATH, "faster": TWICE, **changes}
    return Sample(evidence=cell(is_memory=is_memory, is_emulated=is_emulated), depth=depth, **whole)


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


def test_mean_value_analysis_agrees_with_normalising_constants() -> None:
    for think, servers, requests in product(
        (0.0, 45.0), ([40.0], [40.0, 30.0], [7.0, 30.0, 55.0]), (1, 2, 7)
    ):
        found = stations.mean_value_ns(think + sum(servers), servers, requests)
        assert found == pytest.approx(each_us(think, servers, requests)), (think, servers, requests)
    # A core and a link that work side by side on one I/O may take longer in all than it does.
    assert stations.mean_value_ns(10.0, [30.0], 3) == pytest.approx(30.0)
    assert stations.mean_value_ns(10.5, [10.0], 2) == pytest.approx(each_us(0.5, [10.0], 2))


Case = tuple[dict[str, Any], dict[str, float], float, str]


def check(step: ChangeStep, cases: list[Case], **before: Any) -> None:
    """The time per I/O in us after a step, and what limits then."""
    for changes, chances, us, then in cases:
        found = after(worked(**before | changes), step, Chances(**chances))
        assert found.ns == pytest.approx(us * US, rel=1e-6), (changes, chances)
        assert found.limited_by.value == then, (changes, chances)


def test_one_io_at_a_time() -> None:
    over_a_faster_link: list[Case] = [
        # 17.5 us less; the core works 35 * 0.925, all of which shows.
        ({}, {}, 10 + 37.5 + 35 * 0.925, "cpu"),
        ({}, {"work": 1.0}, 10 + 37.5 + 35, "cpu"),
        # What nothing explains takes its part of any time.
        ({"time": 120}, {"work": 1.0}, 82.5 * 1.2, "cpu"),
        # Of one piece nothing is hidden, so that parts of 145 are scaled.
        ({"core": 80}, {"work": 1.0}, (145 - 17.5) * 100 / 145, "cpu"),
        ({"core": 5}, {"work": 1.0}, (10 + 37.5 + 5) * 100 / 70, "latency"),
        # Without a path that is known, no time is gained.
        ({"path": None, "faster": None, "core": 90}, {"work": 1.0}, 100, "cpu"),
    ]
    of_a_device_of_half_the_time: list[Case] = [
        ({"device": 40, "core": None}, {}, (95 - 20) * 100 / 95, "link"),
        # While the disk works the core waits, however long.
        ({"device": 40, "core": 300}, {}, 100 - 20, "link"),
        ({"device": None, "core": 35}, {}, 100.0, "cpu"),
        ({"device": 40, "core": None, "is_memory": True}, {}, 100.0, "cpu"),  # Memory is not replaced.
    ]
    check(FASTER, over_a_faster_link)
    check(HALF, of_a_device_of_half_the_time)


def test_a_deeper_queue_and_one_that_is_deep_already_are_those_of_the_stations() -> None:
    deep = {"depth": 8, "time": 50, "device": 50, "device_alone": 60, "core": 20}
    for step, before, work, limit in (
        (DEEPER, {}, 1.03, Limit.CPU),
        (DEEPER, {"device": 40, "core": 5}, 1.03, Limit.DEVICE),
        (DEEPEST, {"path": way(window_each_ns=70 * US)}, 1.03, Limit.WINDOW),
        (HALF, deep, 1.0, Limit.LINK),
        (FASTER, deep, 0.825, Limit.DEVICE),
        (ChangeStep(ChangeKind.DEPTH, 16), {**deep, "core": 60}, 1.0, Limit.CPU),
    ):
        sample = worked(**before)
        then, core_us = {}, before.get("core", 35)
        assert isinstance(core_us, int)
        for kind, factor, depth in ((None, 1.0, sample.depth), (step.kind, work, sample.depth)):
            shown_us = core_us if sample.depth == 1 else 0
            device_ns = known(sample.device_ns) * (0.5 if kind is ChangeKind.DEVICE else 1.0)
            asked = stations.CellDemands(
                path=sample.faster if kind is ChangeKind.RATE else sample.path,
                work={"core": factor * (core_us - shown_us) * US},
                whole={"core": factor * shown_us * US},
                device_ns=device_ns,
            )
            depth = int(step.value) if kind is ChangeKind.DEPTH else depth
            then[kind] = stations.each([asked], depth, 0.7)
        found = after(sample, step, LIKELY)
        clumps = 1.05 if step.kind is ChangeKind.DEPTH and limit is not Limit.CPU else 1.0
        ratio = then[step.kind].ns / then[None].ns
        assert found.ns == pytest.approx(clumps * sample.time_ns * ratio), step
        assert found.limited_by is limit, step


def test_the_cores_work_is_that_of_the_parts_where_it_was_not_measured() -> None:
    cases: list[tuple[dict[str, Any], float]] = [
        ({}, 12 + 8 + 0.5 * 15),
        ({"is_memory": True}, 12 + 8 + 10 + 0.5 * 15),
        ({"depth": 2, "time": 50}, 12 + 8),
        ({"time": 80}, 7 + 8),
        ({"core": 33}, 33),
        ({"work": 44, "core": 33}, 44),
    ]
    for changes, us in cases:
        found = worked(**{"core": None, "crypto": 8, "above_plain": 20} | changes)
        assert remedy._core_ns(found, waterfall.parts(found), LIKELY) == pytest.approx(us * US), changes


def test_the_queue_is_made_deeper_than_it_is_or_not() -> None:
    """To the smallest depth that gains nearly all."""
    shallow, deep = ((1, 90, 4), (1, 35, 8), (1, 5, 4), (2, 5, 4)), ((4, 5, 8), (8, 5, 16), (16, 1, 32))
    for depth, core, deeper in (*shallow, *deep, (32, 1, None)):
        step = remedy.deeper(worked(depth=depth, time=100 / depth, core=core))
        assert step == (deeper and ChangeStep(ChangeKind.DEPTH, deeper)), (depth, core)


def forecast(step: ChangeStep, *draws: Sample, **changes: Any) -> Change | None:
    return remedy.forecast(worked(**changes), [(each, LIKELY) for each in draws], step)


def test_a_forecast_leaves_out_a_twentieth_of_the_draws_at_either_side() -> None:
    """And adds to the others what no model knows: 6 %."""
    many = [worked(core=core) for core in range(10, 50)]
    drawn = sorted(after(reading, DEEPER, LIKELY).ns for reading in many)
    change = known(forecast(DEEPER, *many))
    assert (change.each_ns.low, change.each_ns.high) == pytest.approx((0.94 * drawn[2], 1.06 * drawn[37]))
    likely = after(worked(), DEEPER, LIKELY)
    assert (change.each_ns.mid, change.limited_by) == (likely.ns, likely.limited_by)
    assert (change.step, change.what) == (DEEPER, "queue depth 4")
    few = known(forecast(DEEPER)).each_ns
    assert (few.low, few.high) == pytest.approx((0.94 * few.mid, 1.06 * few.mid))
    # It is not below the link's time, nor above today's.
    full = known(forecast(DEEPER, worked(core=20), path=way(busy_ns=60 * US, ways={}), core=20))
    slow = known(forecast(DEEPER, worked(time=300, core=290)))
    assert (full.each_ns.low, slow.each_ns.high) == (60 * US, 100 * US)
    rate = known(forecast(FASTER, core=1)).each_ns
    assert rate.low == pytest.approx(0.94 * rate.mid)
    rate = known(forecast(FASTER, core=1, time=70, faster=way(2.0, busy_ns=52 * US))).each_ns
    assert rate.low == pytest.approx(52 * US)


def test_a_forecast_says_how_it_was_made() -> None:
    to_8 = ChangeStep(ChangeKind.DEPTH, 8)
    cases: list[tuple[dict[str, Any], ChangeStep, str]] = [
        ({}, DEEPER, "the longer of 100 us / 4 and the busiest resource's time"),
        ({"time": 110}, DEEPER, "the longer of 110 us / 4 and the busiest resource's time"),
        ({"depth": 2, "time": 70}, to_8, "the longer of 90 us / 8 and the busiest resource's time"),
        ({"depth": 8, "time": 50, "core": 35}, FASTER, "up to the core's work"),
        ({"depth": 8, "time": 50, "core": 5}, FASTER, "all other parts unchanged"),
        ({"device": 60, "time": 130, "core": 5}, HALF, "all other parts unchanged"),
    ]
    for changes, step, how in cases:
        assert known(forecast(step, **changes)).how == how, changes
    assert (FASTER.words, HALF.words) == ("a link twice as fast", "a device twice as fast")


def test_what_gains_less_than_a_fifth_or_the_labs_core_would_limit_is_not_said() -> None:
    # 100 us become 83.3.
    assert forecast(HALF, device=33.2, core=45) is None and forecast(HALF, device=33.4, core=45)
    # The lab's core counts for a faster link alone, and not where there are too few I/Os in flight.
    assert forecast(FASTER, depth=8, time=50, core=35, is_emulated=True) is None
    assert forecast(FASTER, depth=8, time=50, core=5, is_emulated=True)
    assert forecast(DEEPER, is_emulated=True) and forecast(FASTER, is_emulated=True)
