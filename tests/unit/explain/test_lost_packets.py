"""What lost packets cost one I/O at a time: TCP waits for 200 ms at least before it sends one again."""

from __future__ import annotations

import statistics

import msgspec
import pytest
from msgspec.structs import replace

from harness.analysis.interval import exact, within
from harness.analysis.limit import Limit
from harness.analysis.path_demands import LEAST_TIMEOUT_NS
from harness.explain.evidence import LostPackets, lost_packets_of
from harness.explain.text import Explained, sentence
from harness.explain.verdict import Confidence
from harness.model import Latency, Record
from harness.model.telemetry import TcpUse, Telemetry
from tests.unit.explain.test_explain import US, cell, known, measured, took


def repeats(waits_ms: list[int], resent_bytes: int = 48) -> list[Record]:
    """Of 1000 I/Os of 0.3 and 0.5 ms, some take so many ms longer."""
    taken_ns = [3e5 if number % 2 else 5e5 for number in range(1000)]
    for number, wait_ms in enumerate(waits_ms):
        taken_ns[number] += wait_ms * 1e6
    moved = {"sent_bytes": 48_000, "received_bytes": 4_144_000, "retransmitted_bytes": resent_bytes}
    tcp = TcpUse(host="initiator", busy_ns=0, peer_window_ns=0, buffer_ns=0, **moved)
    whole = {"mean_ns": statistics.mean(taken_ns), "stddev_ns": statistics.pstdev(taken_ns)}
    slow = {"max_ns": max(taken_ns), "p99_ns": sorted(taken_ns)[989]}
    latency = msgspec.convert({"min_ns": min(taken_ns), **whole, **slow}, Latency)
    found = measured("wired", "off", statistics.mean(taken_ns) / 1000, telemetry=Telemetry(tcp=(tcp,)))
    return [replace(each, read=replace(known(each.read), latency=latency)) for each in found]


def test_what_was_waited_is_within_the_bounds() -> None:
    for waits_ms in ([200], [220] * 5, [200, 400, 800], [200] * 20):
        lost = known(lost_packets_of(repeats(waits_ms)))
        assert lost.resent_bytes == 48
        waited_ns = sum(waits_ms) * 1e6 / 1000
        assert 0.9 * lost.time_ns.low <= waited_ns <= 1.1 * lost.time_ns.high, waits_ms
        if max(waits_ms) < 300:
            assert lost.time_ns.mid == pytest.approx(waited_ns, rel=0.05), waits_ms
    # Without a timeout nothing was.
    nothing: list[tuple[list[int], int]] = [([], 48), ([150], 48), ([200], 0)]  # the last was not sent again
    for waits_ms, resent_bytes in nothing:
        assert lost_packets_of(repeats(waits_ms, resent_bytes)) is None
    lost = known(lost_packets_of([repeats([200])[0], *repeats([])[1:]]))  # A repeat without any counts.
    assert lost.time_ns.low == lost.time_ns.mid == 0 < lost.time_ns.high
    assert lost_packets_of([]) is None


def test_they_limit_a_cell_that_waits_for_them_most_of_the_time() -> None:
    """4K over gigabit: 18 of 9000 commands came late, as measured on two machines whose wire forgot them."""
    lost = LostPackets(time_ns=within(6000 * US, 0.1), resent_bytes=864, slowest_ns=LEAST_TIMEOUT_NS + 2e7)
    found = Explained.of(took(8500, busy=within(0.02, 0.05), lost_packets=lost))
    verdict = found.verdict
    assert (verdict.limited_by, verdict.confidence) == (Limit.LOST_PACKETS, Confidence.HIGH)
    assert verdict.waterfall_ns["lost_packets"] == 6_000_000
    assert sum(verdict.waterfall_ns.values()) == verdict.whole_ns
    words = "limited by lost packets (TCP retransmitted 864 bytes, the slowest I/O took 220 ms)"
    assert words in sentence(found)
    # No more is theirs than nothing else takes.
    short = Explained.of(cell(lost_packets=replace(lost, time_ns=exact(9000 * US))))
    assert sum(short.verdict.waterfall_ns.values()) == short.verdict.whole_ns
    assert short.verdict.limited_by is not Limit.LOST_PACKETS
