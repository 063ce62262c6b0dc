"""What kernels count: two looks, and what happened between them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.model.ranges import out_of_range
from harness.model.telemetry import ProcessorUse
from harness.observe import counters
from harness.observe.counters import NOTHING, STAT, InterfaceCounters, Observer, processors, traffic
from tests.unit.fakes import World

FIRST = """\
cpu  100 10 50 800 20 5 15 0 0 0
cpu0 50 5 25 400 10 5 15 0 0 0
cpu1 50 5 25 400 10 0 0 0 0 0
intr 1000 1 2 3
ctxt 5000
"""
LAST = """\
cpu  150 20 80 880 20 10 25 5 0 0
cpu0 95 15 50 400 10 10 25 5 0 0
cpu1 55 5 30 480 10 0 0 0 0 0
intr 1600 1 2 3
ctxt 5900
"""


def used(
    first: str, last: str, wall_ns: int = 1, *, busy_as_one: bool = False, joules: tuple[Any, ...] = ((), ())
) -> ProcessorUse:
    looks = (processors({STAT: first}, 10, joules[0]), processors({STAT: last}, 10 + wall_ns, joules[1]))
    return counters.processor_use(*looks, hosts=["a", "b"], counts_busy_as_one=busy_as_one)


def test_processor_time_is_in_parts_of_all_processors() -> None:
    use = used(FIRST, LAST, 10**9)
    # 190 ticks: user 50, nice 10, system 30, idle 80, interrupt 5, softirq 10, stolen 5.
    assert (use.wall_ns, use.cores, use.hosts) == (10**9, 2, ("a", "b"))
    assert (use.user, use.system, use.softirq) == pytest.approx((60 / 190, 30 / 190, 10 / 190))
    assert (use.interrupt, use.stolen, use.idle) == pytest.approx((5 / 190, 5 / 190, 80 / 190))
    assert (use.busy, use.busiest_core) == pytest.approx((110 / 190, 1.0))
    assert (use.interrupts, use.context_switches, use.energy_j) == (600, 900, None)
    # A user-mode kernel knows busy and idle alone.
    use = used(FIRST, LAST, busy_as_one=True)
    assert (use.user, use.system, use.softirq, use.interrupt, use.stolen) == (None,) * 5
    assert use.busy == pytest.approx(110 / 190)


def test_without_a_tick_and_across_a_boot_nothing_is_known() -> None:
    use = used(FIRST, FIRST)
    assert (use.busy, use.idle, use.user, use.busiest_core) == (None,) * 4
    assert used("", "").interrupts is None
    booted = used(LAST, FIRST, 10**9)
    assert (booted.interrupts, booted.context_switches) == (None, None)
    assert out_of_range(booted) is None


def test_energy_is_added_up_or_not_known() -> None:
    for before, after, joules in (
        (("1000000", "500000"), ("3000000", "1000000"), 2.5),
        (("1000000",), ("900000",), None),
        (("1000000", ""), ("2000000", ""), None),
        ((), (), None),
    ):
        assert used(FIRST, LAST, joules=(before, after)).energy_j == joules, (before, after)


def test_the_counters_of_an_interface() -> None:
    text = "Inter-| Receive\n face |bytes\n  lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n"
    text += "eth0:100 10 1 2 0 0 0 0 200 20 3 4 0 0 0 0\n"
    found = traffic(text)
    assert set(found) == {"lo", "eth0"}
    grown = NOTHING.grown(found["eth0"], "target", "eth0")
    assert (grown.rx_bytes, grown.tx_bytes, grown.rx_packets, grown.tx_packets) == (100, 200, 10, 20)
    assert (grown.errors, grown.drops) == (4, 6)
    assert traffic("garbage: a b c\nx: 1 2\n") == {}


def test_an_interface_that_counts_less_was_replaced() -> None:
    was = InterfaceCounters(rx_bytes=9, tx_bytes=9, drops=2)
    now = InterfaceCounters(rx_bytes=10, tx_bytes=3, drops=2)
    assert was.went_back(now) and now.went_back(NOTHING) and not NOTHING.went_back(was)
    assert not was.went_back(was) and not was.went_back(InterfaceCounters(rx_bytes=9, tx_bytes=9))
    grown = was.grown(now, "target", "eth0")
    assert (grown.rx_bytes, grown.tx_bytes, grown.drops) == (1, 0, 0)


def test_hosts_of_one_kernel_are_watched_once() -> None:
    class Stat(World):
        looks = 0

        def text_of(self, path: str) -> str:
            if path == "/proc/stat":
                self.looks += 1
                return FIRST if self.looks == 1 else LAST
            return super().text_of(path)

    world = Stat()
    done = Observer([world.host("initiator"), world.host("target", "t")]).watch()
    (use,) = done().processors
    assert use.hosts == ("initiator", "target") and use.busy == pytest.approx(110 / 190)
    assert world.looks == 2


def test_numbers_beyond_all_counters_are_none() -> None:
    huge = "9" * 5000
    assert traffic(f"eth0: {' '.join([huge] * 16)}") == {}
    found = processors({STAT: f"cpu {huge}\nctxt {huge}\nintr \u0661\n"}, 0, [huge, "7"])
    assert (found.total, found.counts, found.energy) == ({}, dict.fromkeys(counters.COUNTS), (None, 7))
