"""Cells of a target of which only the portal is known: what explain makes of the initiator's half."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harness.explain import Explained, Limit, explain, one_end, sentence
from harness.explain.span import Span
from harness.explain.verdict import Confidence
from harness.model import Io, Job, Latency, LinkProfile, Record
from harness.model.telemetry import ProcessorUse, RoundTrips, TcpUse, Telemetry
from tests.unit.explain.test_explain import SESSION
from tests.unit.results_folder import WIRED, made_plan
from tests.unit.table.test_table import record

REAL = msgspec.structs.replace(WIRED, emulated=False, interface="eth0", delay_us=0.0)
IDLE = ProcessorUse(hosts=("initiator",), wall_ns=11 * 10**8, cores=1, busiest_core=0.05)
PINGS = RoundTrips(
    interval_ns=2_000_000, payload_bytes=56, sent=20, received=20, min_ns=100_000.0, p50_ns=102_000.0
)
KIB = 1024


def reads(
    pattern: str,
    block_kib: int,
    *times_us: float,
    depth: int = 1,
    busiest_core: float = 0.05,
    window_bytes: int | None = None,
    command_us: float | None = None,
    command_bytes: int = 0,
) -> list[Record]:
    """Repeats of a cell whose I/Os end so many us after one another."""
    use = msgspec.structs.replace(IDLE, busiest_core=busiest_core)
    tcp = TcpUse(
        host="initiator",
        sent_bytes=48,
        received_bytes=10**6,
        retransmitted_bytes=0,
        busy_ns=0,
        peer_window_ns=0,
        buffer_ns=0,
        window_bytes=window_bytes,
    )
    commands = None
    if command_us is not None:
        commands = msgspec.structs.replace(
            PINGS, interval_ns=0, payload_bytes=command_bytes, mean_ns=command_us * 1000
        )
    block_bytes = block_kib * KIB
    return [
        record(
            workload=f"{pattern}-{block_kib}k-{depth}",
            repeat=number,
            pattern=pattern,
            block_bytes=block_bytes,
            depth=depth,
            numjobs=1,
            session=SESSION,
            started_unix_s=float(number),
            fio_ns=10**9,
            telemetry=Telemetry(round_trips=PINGS, processors=(use,), tcp=(tcp,), commands=commands),
            read=Io(
                bytes=100 * block_bytes, ios=100, runtime_ns=round(100 * time_us * 1000), latency=Latency()
            ),
        )
        for number, time_us in enumerate(times_us, 1)
    ]


def said(*records: list[Record], link: LinkProfile = REAL) -> dict[str, Explained]:
    whole = [each for cell in records for each in cell]
    names = dict.fromkeys(each.workload.name for each in whole)
    jobs = tuple(Job(name=name, options=(("rw", "read"),)) for name in names)
    cells = explain(whole, {"r1": made_plan(jobs=jobs, links={"wired": link})})
    return {cell.evidence.workload: cell for cell in cells}


SLOW = (5_000.0, 5_010.0, 5_020.0)
QUICK = (1_200.0, 1_205.0, 1_210.0)


def test_what_order_makes_quicker_is_the_disk_and_nothing_else() -> None:
    found = said(reads("random", 64, *SLOW), reads("sequential", 64, *QUICK))
    verdict = found["random-64k-1"].verdict
    assert (verdict.limited_by, verdict.confidence) == (Limit.DEVICE, Confidence.HIGH)
    assert "limited by the target's disk" in sentence(found["random-64k-1"])


def test_larger_blocks_in_less_time_say_so_too_and_smaller_ones_do_not() -> None:
    larger = said(reads("random", 4, *SLOW), reads("sequential", 64, *QUICK))
    assert larger["random-4k-1"].verdict.limited_by is Limit.DEVICE
    smaller = said(reads("random", 64, *SLOW), reads("sequential", 4, *QUICK))
    assert smaller["random-64k-1"].verdict.limited_by is not Limit.DEVICE


def test_neighbours_that_are_queued_become_one_command_and_prove_nothing() -> None:
    found = said(reads("random", 4, *SLOW, depth=8), reads("sequential", 4, 50, 51, 52, depth=8))
    assert found["random-4k-8"].verdict.limited_by is not Limit.DEVICE


def test_where_the_order_makes_no_difference_it_may_be_the_target_s_processor() -> None:
    found = said(reads("random", 4, *SLOW), reads("sequential", 4, *SLOW), reads("random", 64, *QUICK[:0]))
    # The same bytes were never quicker, so the way may be that narrow as well.
    assert found["random-4k-1"].verdict.limited_by is Limit.UNKNOWN
    assert "iperf3 with a server near the target would tell" in sentence(found["random-4k-1"])
    wide = said(reads("random", 4, *SLOW), reads("sequential", 64, 5_100.0, 5_110.0, 5_120.0))
    verdict = wide["random-4k-1"].verdict
    assert (verdict.limited_by, verdict.confidence) == (Limit.TARGET, Confidence.MEDIUM)
    words = sentence(wide["random-4k-1"])
    assert "limited by the target (its disk or its processor)" in words and "a login there" in words


def test_a_way_that_is_narrower_than_this_end_s_interface_is_not_taken_for_the_target() -> None:
    """100 Mbit/s somewhere behind an interface of 1 Gbit/s: 21 ms for 256 KiB, whatever the order."""
    found = said(
        reads("random", 256, 21_400, 21_410, 21_420),
        reads("sequential", 256, 21_400, 21_410, 21_420),
        reads("random", 256, 21_300, 21_310, 21_320, depth=8),
    )
    assert {cell.verdict.limited_by for cell in found.values()} == {Limit.UNKNOWN}


def test_what_this_end_knows_is_named() -> None:
    full = said(reads("random", 256, 2_240, 2_241, 2_242, depth=8))["random-256k-8"].verdict
    assert (full.limited_by, full.confidence) == (Limit.LINK, Confidence.HIGH)
    own = said(reads("random", 4, 90, 91, 92, depth=8, busiest_core=0.99))["random-4k-8"].verdict
    assert own.limited_by is Limit.CPU


def test_the_window_is_the_one_that_this_end_s_tcp_lets_in() -> None:
    far = msgspec.structs.replace(PINGS, min_ns=4_000_000.0, p50_ns=4_001_000.0)
    cells = [
        msgspec.structs.replace(each, telemetry=msgspec.structs.replace(each.telemetry, round_trips=far))
        for each in reads("random", 256, 16_400, 16_410, 16_420, depth=8, window_bytes=65536)
        if each.telemetry is not None
    ]
    (found,) = said(cells).values()
    assert found.verdict.limited_by is Limit.ROUND_TRIP
    assert "TCP window 64 KiB" in found.verdict.detail


def test_where_no_ping_is_answered_tcp_saw_the_round_trip() -> None:
    cells = []
    for each in reads("random", 4, 160, 161, 162):
        assert each.telemetry is not None
        (tcp,) = each.telemetry.tcp
        saw = (msgspec.structs.replace(tcp, least_round_trip_ns=110_000.0),)
        telemetry = msgspec.structs.replace(each.telemetry, round_trips=None, tcp=saw)
        cells.append(msgspec.structs.replace(each, telemetry=telemetry))
    (found,) = said(cells).values()
    assert found.evidence.rtt_ns == Span(55_000, 110_000, 110_000)
    assert found.verdict.limited_by is Limit.ROUND_TRIP


def test_what_more_in_flight_does_not_make_quicker_is_full_with_one() -> None:
    """A disk that reads ahead: 3.4 ms for 256 KiB, of which the link takes 2.2, one at a time or eight."""
    found = said(
        reads("sequential", 256, 3_400, 3_401, 3_402), reads("sequential", 256, 3_399, 3_400, 3_401, depth=8)
    )
    assert {cell.verdict.limited_by for cell in found.values()} == {Limit.UNKNOWN}


def test_where_the_target_may_have_read_ahead_half_of_the_time_is_no_limit() -> None:
    ahead = said(reads("sequential", 256, 4_400, 4_401, 4_402))["sequential-256k-1"]
    assert ahead.verdict.limited_by is Limit.UNKNOWN
    assert "the target may read ahead" in sentence(ahead)


@pytest.mark.parametrize("others", [(200.0, 210.0), (205.0,)], ids=["two", "one"])
def test_a_second_reading_that_is_far_quicker_is_a_cache_s(others: tuple[float, ...]) -> None:
    found = said(reads("random", 4, 5_000.0, *others), reads("sequential", 64, *QUICK))["random-4k-1"]
    assert found.evidence.first_ns == 5_000_000
    assert found.evidence.time_ns is not None and found.evidence.time_ns.mid < 300_000
    assert found.verdict.limited_by is not Limit.DEVICE
    assert "a cache of the target's answered all repeats but the first" in sentence(found)


def test_one_repeat_alone_says_nothing_of_a_cache() -> None:
    found = said(reads("random", 4, 5_000.0), reads("sequential", 64, *QUICK))["random-4k-1"]
    assert found.evidence.first_ns is None


def test_where_the_target_was_watched_nothing_changes() -> None:
    both = ProcessorUse(hosts=("target",), wall_ns=10**9, cores=1, busiest_core=0.05)
    cells = [
        msgspec.structs.replace(
            each, telemetry=msgspec.structs.replace(each.telemetry, processors=(IDLE, both))
        )
        for each in reads("random", 64, *SLOW)
        if each.telemetry is not None
    ]
    (found,) = said(cells).values()
    assert not found.evidence.is_one_end and found.evidence.device_ns is None
    assert one_end.with_targets([found.evidence]) == [found.evidence]


def test_a_cell_of_which_too_little_is_known_stays_as_it_is() -> None:
    changes: list[dict[str, Any]] = [{"session": {}}, {"block_bytes": None}]
    for change in changes:
        cells = [
            msgspec.structs.replace(each, **change) if "session" in change else each
            for each in reads("random", 64, *SLOW)
        ]
        (found,) = said(cells).values()
        assert found.verdict.limited_by in (Limit.UNKNOWN, Limit.TARGET)


@pytest.mark.parametrize(
    ("command_us", "limit", "words"),
    [
        (110.0, Limit.DEVICE, "the target's disk"),
        (4_000.0, Limit.CPU, "the target's processor"),
        (1_500.0, Limit.TARGET, "the target (its disk or its processor)"),
    ],
)
def test_a_command_that_reaches_no_disk_tells_it_from_the_processor(
    command_us: float, limit: Limit, words: str
) -> None:
    found = said(
        reads("random", 4, *SLOW, command_us=command_us),
        reads("random", 64, 5_100.0, 5_110.0, 5_120.0, command_us=command_us),
    )
    verdict = found["random-4k-1"].verdict
    assert (verdict.limited_by, verdict.confidence) == (limit, Confidence.MEDIUM)
    assert f"limited by {words}" in sentence(found["random-4k-1"])


def test_of_what_takes_longer_for_more_bytes_such_a_command_says_nothing() -> None:
    found = said(
        reads("random", 4, 1_000, 1_001, 1_002, command_us=110.0),
        reads("random", 64, 9_000, 9_001, 9_002),
        reads("sequential", 256, 18_000, 18_001, 18_002),
    )
    assert found["random-64k-1"].verdict.limited_by not in (Limit.DEVICE, Limit.CPU)
    assert found["random-4k-1"].verdict.limited_by is Limit.DEVICE


def test_what_bytes_take_is_told_from_what_each_read_takes() -> None:
    """Flash that takes 8 ms for anything up to 256 KiB, one at a time."""
    found = said(
        reads("random", 4, 8_100, 8_101, 8_102, command_us=110.0),
        reads("random", 256, 10_300, 10_301, 10_302),
        reads("random", 256, 8_010, 8_011, 8_012, depth=8),
    )
    assert {cell.verdict.limited_by for cell in found.values()} == {Limit.DEVICE}
    assert {cell.verdict.confidence for cell in found.values()} == {Confidence.MEDIUM}


@pytest.mark.parametrize(
    ("command_us", "each_us", "limit"),
    [
        (110.0, 5_000, Limit.DEVICE),
        (4_000.0, 4_800, Limit.CPU),
        # A disk that takes what the command leaves of one I/O may be full as well.
        (4_000.0, 1_500, Limit.TARGET),
    ],
)
def test_in_a_deeper_queue_the_processor_is_full_only_if_the_disk_is_not(
    command_us: float, each_us: float, limit: Limit
) -> None:
    found = said(
        reads("random", 4, *SLOW, command_us=command_us),
        reads("random", 4, each_us, each_us + 1, each_us + 2, depth=8),
        reads("random", 64, 5_100.0, 5_110.0, 5_120.0),
    )
    assert found["random-4k-8"].verdict.limited_by is limit


def test_what_a_command_s_own_answer_takes_on_the_way_is_no_processor_s() -> None:
    """NVMe's comes with 4 KiB, which take 3.3 ms at 10 Mbit/s."""
    found = said(
        reads("random", 4, 3_500, 3_501, 3_502, command_us=3_400.0, command_bytes=4096),
        reads("random", 64, 53_000, 53_001, 53_002),
    )
    assert {cell.verdict.limited_by for cell in found.values()} == {Limit.UNKNOWN}


def test_a_command_that_takes_little_may_be_a_program_that_wakes_up() -> None:
    found = said(reads("random", 4, 300, 301, 302, command_us=170.0), reads("random", 64, 850, 851, 852))
    assert Limit.CPU not in {cell.verdict.limited_by for cell in found.values()}


def test_a_command_far_quicker_than_a_ping_tells_nothing() -> None:
    found = said(reads("random", 4, *SLOW, command_us=50.0), reads("random", 64, 5_100.0, 5_110.0, 5_120.0))
    assert {cell.verdict.limited_by for cell in found.values()} == {Limit.TARGET}
