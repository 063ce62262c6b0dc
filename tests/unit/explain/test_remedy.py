"""What would help: forecasts that can be tried, between two bounds, and what they take for granted."""

from __future__ import annotations

from typing import Any

import pytest

from harness.analysis.wire.iscsi import WINDOW_BYTES
from harness.explain import Explained, remedy, sentence, waterfall
from harness.explain.limits import Limit
from harness.explain.remedy import LIKELY, Chances, ChangeKind, ChangeStep, LimitingResource, after
from harness.explain.span import exact, within
from harness.explain.verdict import judge
from harness.explain.waterfall import Reading
from harness.model import LinkProfile
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
        assert remedy._mean_value_ns(30.0, [10.0, 10.0, 10.0], depth) == pytest.approx(
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
