"""Cells of a target of which only the portal is known: what explain makes of the initiator's half."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from harness.analysis.interval import Interval
from harness.analysis.limit import Limit
from harness.explain import explain, one_end
from harness.explain.text import Explained, sentence
from harness.explain.verdict import Confidence
from harness.model import Io, Job, Latency, Record
from harness.model.telemetry import ProcessorUse, RoundTrips, TcpUse, Telemetry
from tests import flat
from tests.unit.explain.test_explain import SESSION, known
from tests.unit.results_folder import WIRED, made_plan
from tests.unit.table.test_table import record

IDLE = ProcessorUse(hosts=("initiator",), wall_ns=11 * 10**8, cores=1, busiest_core=0.05)
WAY: dict[str, Any] = {"sent": 20, "received": 20, "min_ns": 100_000.0, "p50_ns": 102_000.0}
PINGS = RoundTrips(interval_ns=2_000_000, payload_bytes=56, **WAY)
MOVED = {"sent_bytes": 48, "received_bytes": 10**6, "retransmitted_bytes": 0}
TCP = TcpUse(host="initiator", busy_ns=0, peer_window_ns=0, buffer_ns=0, **MOVED)
KIB = 1024


def reads(
    pattern: str,
    block_kib: int,
    time_us: float | tuple[float, ...],
    depth: int = 1,
    busiest_core: float = 0.05,
    command_us: float | None = None,
    command_bytes: int = 0,
    **seen: Any,
) -> list[Record]:
    """Repeats of a cell whose I/Os end so many us after one another: three of about that, or just these."""
    times_us = time_us if isinstance(time_us, tuple) else (time_us, 1.001 * time_us, 1.002 * time_us)
    use = replace(IDLE, busiest_core=busiest_core)
    if command_us is not None:
        took = {"interval_ns": 0, "payload_bytes": command_bytes, "mean_ns": command_us * 1000}
        seen["commands"] = replace(PINGS, **took)
    telemetry = replace(Telemetry(round_trips=PINGS, processors=(use,), tcp=(TCP,)), **seen)
    block_bytes = block_kib * KIB
    of: dict[str, Any] = {"pattern": pattern, "block_bytes": block_bytes, "depth": depth, "numjobs": 1}
    of |= {"workload": f"{pattern}-{block_kib}k-{depth}", "session": SESSION, "fio_ns": 10**9}
    found = []
    for number, each_us in enumerate(times_us, 1):
        of |= {"repeat": number, "started_unix_s": float(number)}
        io = Io(bytes=100 * block_bytes, ios=100, runtime_ns=round(100_000 * each_us), latency=Latency())
        found.append(record(telemetry=telemetry, read=io, **of))
    return found


def said(*records: list[Record]) -> dict[str, Explained]:
    whole = [each for cell in records for each in cell]
    names = dict.fromkeys(each.workload.name for each in whole)
    jobs = tuple(Job(name=name, options=(("rw", "read"),)) for name in names)
    link = replace(WIRED, emulated=False, interface="eth0", delay_us=0.0)
    cells = explain(whole, {"r1": made_plan(jobs=jobs, links={"wired": link})})
    return {cell.evidence.workload: cell for cell in cells}


def first(*records: list[Record]) -> Explained:
    """The first of these cells, next to the others."""
    return said(*records)[records[0][0].workload.name]


def limit(*records: list[Record]) -> Limit:
    return first(*records).verdict.limited_by


def all_limits(*records: list[Record]) -> set[Limit]:
    return {cell.verdict.limited_by for cell in said(*records).values()}


SLOW_4K, SLOW_64K = reads("random", 4, 5_000), reads("random", 64, 5_000)
QUICK_64K = reads("sequential", 64, 1_200)
NO_QUICKER = reads("random", 64, 5_100)


def test_what_order_makes_quicker_is_the_disk_and_nothing_else() -> None:
    found = first(SLOW_64K, QUICK_64K)
    assert (found.verdict.limited_by, found.verdict.confidence) == (Limit.DEVICE, Confidence.HIGH)
    assert "limited by the target's disk" in sentence(found)
    # Larger blocks in less time say so too, and smaller ones do not.
    assert limit(SLOW_4K, QUICK_64K) is Limit.DEVICE
    assert limit(SLOW_64K, reads("sequential", 4, 1_200)) is not Limit.DEVICE
    # Neighbours that are queued become one command, and prove nothing.
    queued = reads("random", 4, 5_000, depth=8), reads("sequential", 4, 50, depth=8)
    assert limit(*queued) is not Limit.DEVICE


def test_where_the_order_makes_no_difference_it_may_be_the_target_s_processor() -> None:
    # The same bytes were never quicker, so the way may be that narrow as well.
    found = first(SLOW_4K, reads("sequential", 4, 5_000))
    assert found.verdict.limited_by is Limit.UNKNOWN
    assert "iperf3 to a server near the target" in sentence(found)
    wide = first(SLOW_4K, reads("sequential", 64, 5_100))
    assert (wide.verdict.limited_by, wide.verdict.confidence) == (Limit.TARGET, Confidence.MEDIUM)
    words = sentence(wide)
    assert "limited by the target (its disk or its processor)" in words and "log in there (--target)" in words


def test_what_is_not_known_to_be_the_target_is_not_taken_for_it() -> None:
    # 100 Mbit/s somewhere behind an interface of 1 Gbit/s: 21 ms for 256 KiB, whatever the order.
    narrow = [reads(pattern, 256, 21_400) for pattern in ("random", "sequential")]
    assert all_limits(*narrow, reads("random", 256, 21_300, depth=8)) == {Limit.UNKNOWN}
    # A disk that reads ahead: 3.4 ms for 256 KiB, of which the link takes 2.2, one at a time or eight.
    ahead = reads("sequential", 256, 3_400), reads("sequential", 256, 3_399, depth=8)
    assert all_limits(*ahead) == {Limit.UNKNOWN}
    half = first(reads("sequential", 256, 4_400))
    assert half.verdict.limited_by is Limit.UNKNOWN and "the target may read ahead" in sentence(half)
    changes: list[dict[str, Any]] = [{}, {"session": {}}, {"block_bytes": None}]
    for change in changes:
        too_little = [flat.changed(each, **change) for each in SLOW_64K]
        assert limit(too_little) in (Limit.UNKNOWN, Limit.TARGET), change


def test_what_this_end_knows_is_named() -> None:
    full = first(reads("random", 256, 2_240, depth=8)).verdict
    assert (full.limited_by, full.confidence) == (Limit.LINK, Confidence.HIGH)
    assert limit(reads("random", 4, 90, depth=8, busiest_core=0.99)) is Limit.CPU
    # The window is the one that this end's TCP lets in.
    far = replace(PINGS, min_ns=4_000_000.0, p50_ns=4_001_000.0)
    narrowed = (replace(TCP, window_bytes=65536),)
    narrow = first(reads("random", 256, 16_400, depth=8, round_trips=far, tcp=narrowed)).verdict
    assert narrow.limited_by is Limit.WINDOW and "64 KiB in" in narrow.detail
    saw = (replace(TCP, least_round_trip_ns=110_000.0),)  # Where no ping is answered TCP saw the round trip.
    found = first(reads("random", 4, 160, round_trips=None, tcp=saw))
    assert found.evidence.rtt_ns == Interval(55_000, 110_000, 110_000)
    assert found.verdict.limited_by is Limit.ROUND_TRIP


def test_a_second_reading_that_is_far_quicker_is_a_cache_s() -> None:
    for others in ((200.0, 210.0), (205.0,)):
        found = first(reads("random", 4, (5_000.0, *others)), QUICK_64K)
        assert found.evidence.first_ns == 5_000_000 and known(found.evidence.time_ns).mid < 300_000
        assert found.verdict.limited_by is not Limit.DEVICE
        assert "a cache of the target's answered all repeats but the first" in sentence(found)
    # One repeat alone says nothing of it.
    assert first(reads("random", 4, (5_000.0,)), QUICK_64K).evidence.first_ns is None
    # Where the target was watched nothing changes.
    both = (IDLE, replace(IDLE, hosts=("target",), wall_ns=10**9))
    watched = first(reads("random", 64, 5_000, processors=both)).evidence
    assert not watched.is_one_end and watched.device_ns is None
    assert one_end.with_targets([watched]) == [watched]


def test_a_command_that_reaches_no_disk_tells_it_from_the_processor() -> None:
    for command_us, limit, words in (
        (110.0, Limit.DEVICE, "the target's disk"),
        (4_000.0, Limit.CPU, "the target's processor"),
        (1_500.0, Limit.TARGET, "the target (its disk or its processor)"),
    ):
        slow = reads("random", 4, 5_000, command_us=command_us)
        found = first(slow, reads("random", 64, 5_100, command_us=command_us))
        assert (found.verdict.limited_by, found.verdict.confidence) == (limit, Confidence.MEDIUM)
        assert f"limited by {words}" in sentence(found)
    # Of what takes longer for more bytes it says nothing.
    cells = reads("random", 4, 1_000, command_us=110.0), reads("random", 64, 9_000)
    longer = said(*cells, reads("sequential", 256, 18_000))
    assert longer["random-64k-1"].verdict.limited_by not in (Limit.DEVICE, Limit.CPU)
    assert longer["random-4k-1"].verdict.limited_by is Limit.DEVICE
    # Flash that takes 8 ms for anything up to 256 KiB, one at a time: told from what bytes take.
    alone = reads("random", 4, 8_100, command_us=110.0), reads("random", 256, 10_300)
    flash = said(*alone, reads("random", 256, 8_010, depth=8)).values()
    assert {cell.verdict.limited_by for cell in flash} == {Limit.DEVICE}
    assert {cell.verdict.confidence for cell in flash} == {Confidence.MEDIUM}


def test_in_a_deeper_queue_the_processor_is_full_only_if_the_disk_is_not() -> None:
    for command_us, each_us, expected in (
        (110.0, 5_000, Limit.DEVICE),
        (4_000.0, 4_800, Limit.CPU),
        # A disk that takes what the command leaves of one I/O may be full as well.
        (4_000.0, 1_500, Limit.TARGET),
    ):
        alone = reads("random", 4, 5_000, command_us=command_us)
        assert limit(reads("random", 4, each_us, depth=8), alone, NO_QUICKER) is expected, each_us


def test_a_command_tells_no_more_than_its_time_does() -> None:
    # NVMe's comes with 4 KiB, which take 3.3 ms at 10 Mbit/s: no processor's.
    slow = reads("random", 4, 3_500, command_us=3_400.0, command_bytes=4096), reads("random", 64, 53_000)
    assert all_limits(*slow) == {Limit.UNKNOWN}
    # What takes little may be a program that wakes up.
    assert Limit.CPU not in all_limits(reads("random", 4, 300, command_us=170.0), reads("random", 64, 850))
    # One far quicker than a ping tells nothing.
    assert all_limits(reads("random", 4, 5_000, command_us=50.0), NO_QUICKER) == {Limit.TARGET}
