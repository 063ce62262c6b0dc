"""What kernels count of processors, interfaces and connections: two looks, and what happened between them."""

from __future__ import annotations

import contextlib
import shutil
import socket
from typing import Any

import pytest

from harness.hosts import NamespaceHost
from harness.model.ranges import out_of_range
from harness.model.telemetry import ProcessorUse, TcpUse
from harness.observe import connections, counters
from harness.observe.counters import NOTHING, STAT, InterfaceCounters, Observer, processors, traffic
from tests.unit.fakes import World
from tests.unit.parsing import has

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
    first: str, last: str, wall_ns: int = 1, *, as_one: bool = False, joules: Any = ((), ())
) -> ProcessorUse:
    looks = (processors({STAT: first}, 10, joules[0]), processors({STAT: last}, 10 + wall_ns, joules[1]))
    return counters.processor_use(*looks, hosts=["a", "b"], counts_busy_as_one=as_one)


def test_processor_time_is_in_parts_of_all_processors() -> None:
    use = used(FIRST, LAST, 10**9)
    # 190 ticks: user 50, nice 10, system 30, idle 80, interrupt 5, softirq 10, stolen 5.
    assert (use.wall_ns, use.cores, use.hosts) == (10**9, 2, ("a", "b"))
    assert (use.user, use.system, use.softirq) == pytest.approx((60 / 190, 30 / 190, 10 / 190))
    assert (use.interrupt, use.stolen, use.idle) == pytest.approx((5 / 190, 5 / 190, 80 / 190))
    assert (use.busy, use.busiest_core) == pytest.approx((110 / 190, 1.0))
    assert (use.interrupts, use.context_switches, use.energy_j) == (600, 900, None)
    # A user-mode kernel knows busy and idle alone.
    use = used(FIRST, LAST, as_one=True)
    assert (use.user, use.system, use.softirq, use.interrupt, use.stolen) == (None,) * 5
    assert use.busy == pytest.approx(110 / 190)
    # Without a tick and across a boot nothing is known.
    use = used(FIRST, FIRST)
    assert (use.busy, use.idle, use.user, use.busiest_core) == (None,) * 4
    assert used("", "").interrupts is None
    booted = used(LAST, FIRST, 10**9)
    assert (booted.interrupts, booted.context_switches) == (None, None)
    assert out_of_range(booted) is None
    # Energy is added up, or not known.
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
    # One that counts less was replaced.
    was = InterfaceCounters(rx_bytes=9, tx_bytes=9, drops=2)
    now = InterfaceCounters(rx_bytes=10, tx_bytes=3, drops=2)
    assert was.went_back(now) and now.went_back(NOTHING) and not NOTHING.went_back(was)
    assert not was.went_back(was) and not was.went_back(InterfaceCounters(rx_bytes=9, tx_bytes=9))
    grown = was.grown(now, "target", "eth0")
    assert (grown.rx_bytes, grown.tx_bytes, grown.drops) == (1, 0, 0)
    # Numbers beyond all counters are none.
    huge = "9" * 5000
    assert traffic(f"eth0: {' '.join([huge] * 16)}") == {}
    looked = processors({STAT: f"cpu {huge}\nctxt {huge}\nintr \u0661\n"}, 0, [huge, "7"])
    assert (looked.total, looked.counts, looked.energy) == ({}, dict.fromkeys(counters.COUNTS), (None, 7))


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


# Connections to a portal, from what ss(8) printed over the loopback interface

BEFORE = """\
0 0 198.18.0.1:43210 198.18.0.2:3260 cubic wscale:7,7 rto:204 rtt:0.1/0.05 mss:1448 bytes_sent:900 \
bytes_acked:901 bytes_received:4000 segs_out:12 busy:4ms rcv_space:65495 rcv_ssthresh:65495 minrtt:0.025
"""
AFTER = """\
0 48 198.18.0.1:43210 198.18.0.2:3260 cubic wscale:7,7 rto:204 rtt:1.736/0.741 mss:1448 bytes_sent:1147392 \
bytes_retrans:1448 bytes_acked:1147393 bytes_received:9000 busy:604ms rwnd_limited:596ms(98.7%) \
sndbuf_limited:3ms(0.5%) rcv_space:65495 rcv_ssthresh:95232 notsent:48 minrtt:0.025
"""


def test_counters_are_what_they_grew_by_and_the_rest_is_as_it_is_then() -> None:
    carried = {"sent_bytes": 1146492, "received_bytes": 5000, "retransmitted_bytes": 1448}
    limited = {"busy_ns": 600_000_000, "peer_window_ns": 596_000_000, "buffer_ns": 3_000_000}
    at_the_end = {"window_bytes": 95232, "round_trip_ns": 1_736_000, "least_round_trip_ns": 25_000}
    expected = TcpUse(host="initiator", **carried, **limited, **at_the_end)
    assert connections.between("initiator", BEFORE, AFTER) == expected
    # Several are added up, and what is not printed is unknown and not zero.
    both = connections.between("initiator", BEFORE + BEFORE, AFTER + AFTER)
    has(both, received_bytes=10_000, window_bytes=95232)
    assert connections.between("initiator", "", AFTER) is None
    assert connections.between("initiator", BEFORE, "\n") is None
    found = connections.between("initiator", BEFORE, "0 0 198.18.0.1:43210 198.18.0.2:3260 bytes_sent:1000\n")
    has(found, sent_bytes=100, round_trip_ns=None, window_bytes=None)


def test_ss_is_asked_for_this_portal_alone() -> None:
    world = World(answers=[(("ss",), (0, BEFORE, ""))])
    assert connections.look(world.host("initiator", "i"), "fd00::1", "fd00::2", 3260) == BEFORE
    (command,) = world.commands
    ends = ("src", "[fd00::1]", "dst", "[fd00::2]:3260")
    assert command.argv == ("ss", "-tinHO", "state", "established", *ends)
    gone = World(answers=[(("ss",), (127, BEFORE, ""))])
    assert connections.look(gone.host("initiator", "i"), "198.18.0.1", "198.18.0.2", 3260) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_kernel_here_tells_what_ss_tells(address: str) -> None:
    if shutil.which("ss") is None:
        pytest.skip("there is no ss")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    host = NamespaceHost("initiator")
    with contextlib.ExitStack() as stack:
        listening, others = (
            stack.enter_context(socket.create_server((address, 0), family=family)) for _ in range(2)
        )
        for server in (listening, others, listening):
            near = stack.enter_context(socket.create_connection(server.getsockname()[:2]))
            far = stack.enter_context(server.accept()[0])
            for sender, receiver, size in ((near, far, 5000), (far, near, 300_000), (near, far, 10)) * 3:
                sender.sendall(bytes(size))
                while size:
                    size -= len(receiver.recv(size))
        port = listening.getsockname()[1]
        reported, shown = (
            connections.look(host, address, address, port, is_here=is_here) for is_here in (True, False)
        )
        assert reported.count("\n") == 2 and "minrtt:" in reported
        assert connections.between("initiator", reported, reported) == connections.between(
            "initiator", shown, shown
        )
        counts, expected = connections._counts(reported), connections._counts(shown)
        # What was sent last may be on its way between the two looks.
        assert 0 <= expected.pop("busy") - counts.pop("busy") < 1000
        assert counts == expected and counts["bytes_sent"] == 2 * 3 * 5010
        assert connections.look(host, address, address, 1, is_here=True) == ""
    assert connections.look(host, address, "no address", port, is_here=True) == ""
