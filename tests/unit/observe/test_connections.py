"""What TCP says of the connections to a portal, from what ss(8) printed over the loopback interface."""

from __future__ import annotations

from harness.model.telemetry import TcpUse
from harness.observe import connections
from tests.unit.fakes import World

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
    assert connections.between("initiator", BEFORE, AFTER) == TcpUse(
        host="initiator",
        sent_bytes=1146492,
        received_bytes=5000,
        retransmitted_bytes=1448,
        busy_ns=600_000_000,
        peer_window_ns=596_000_000,
        buffer_ns=3_000_000,
        round_trip_ns=1_736_000,
        least_round_trip_ns=25_000,
        window_bytes=95232,
    )


def test_several_connections_are_added_up_and_without_one_nothing_is_known() -> None:
    both = connections.between("initiator", BEFORE + BEFORE, AFTER + AFTER)
    assert both is not None
    assert (both.received_bytes, both.window_bytes) == (10_000, 95232)
    assert connections.between("initiator", "", AFTER) is None
    assert connections.between("initiator", BEFORE, "\n") is None


def test_what_an_old_ss_leaves_out_is_unknown_and_not_zero() -> None:
    found = connections.between("initiator", BEFORE, "0 0 198.18.0.1:43210 198.18.0.2:3260 bytes_sent:1000\n")
    assert found is not None
    assert (found.sent_bytes, found.round_trip_ns, found.window_bytes) == (100, None, None)


def test_ss_is_asked_for_this_portal_alone() -> None:
    world = World(answers=[(("ss",), (0, BEFORE, ""))])
    assert connections.look(world.host("initiator", "i"), "fd00::1", "fd00::2", 3260) == BEFORE
    (command,) = world.commands
    ends = ("src", "[fd00::1]", "dst", "[fd00::2]:3260")
    assert command.argv == ("ss", "-tinHO", "state", "established", *ends)
    gone = World(answers=[(("ss",), (127, BEFORE, ""))])
    assert connections.look(gone.host("initiator", "i"), "198.18.0.1", "198.18.0.2", 3260) == ""
