"""The parsers of iperf3's JSON, and of the text of iperf2 and iperf3: what each end can know."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from harness.parse.iperf import IperfOutput
from harness.parse.iperf3 import parse
from harness.parse.iperf_text import parse_iperf2
from tests.unit.parsing import OUTPUTS, Says, has, known, real_outputs, refused, sample


def total(rate_bit_s: float = 8e8, end: float = 10.0, **changes: Any) -> dict[str, Any]:
    moved = {"bytes": int(rate_bit_s * end / 8), "bits_per_second": rate_bit_s}
    return {"start": 0, "end": end, "seconds": end, **moved, **changes}


def sender(**changes: Any) -> dict[str, Any]:
    kernel = {"max_snd_cwnd": 500_000, "max_rtt": 900, "min_rtt": 300, "mean_rtt": 400}
    return total(**{"socket": 5, "retransmits": 3, **kernel, **changes})


def tcp(**changes: object) -> dict[str, Any]:
    """A client's 10 s, as iperf3 3.9 has it."""
    start = {"version": "iperf 3.9", "connecting_to": {"host": "h", "port": 5201}}
    test_start = {"protocol": "TCP", "num_streams": 1, "omit": 0}
    windows = ({"snd_cwnd": 400_000, "pmtu": 1500}, {"snd_cwnd": 500_000, "pmtu": 1438})
    end = {
        "streams": [{"sender": sender(), "receiver": total(7.9e8, socket=5)}],
        "sum_sent": total(retransmits=3),
        "sum_received": total(7.9e8, end=10.04),
    }
    intervals = [{"streams": [window], "sum": {"bytes": 1}} for window in windows]
    return {"start": {**start, "test_start": test_start}, "intervals": intervals, "end": end, **changes}


def udp_sum(**changes: Any) -> dict[str, Any]:
    counts: dict[str, Any] = {"jitter_ms": 0.015, "lost_packets": 50, "packets": 1000, "lost_percent": 5.0}
    return total(**{**counts, **changes})


def udp(**changes: object) -> dict[str, Any]:
    """A client's UDP test, as iperf3 up to 3.10 has it."""
    document = tcp()
    document["start"]["test_start"]["protocol"] = "UDP"
    end = {"streams": [{"udp": udp_sum(socket=5, out_of_order=2)}], "sum": udp_sum(), **changes}
    return {**document, "intervals": [], "end": end}


def parsed(document: dict[str, Any]) -> IperfOutput:
    return parse(json.dumps(document, indent=1))


def with_end(**changes: Any) -> dict[str, Any]:
    """A client's document whose end is another."""
    document = tcp()
    document["end"] |= changes
    return document


def test_tcp_and_udp_of_one_sum_for_both_ends_or_of_one_for_each() -> None:
    output = parsed(tcp())
    has(output, role="client", protocol="TCP", version="iperf 3.9", invalid=(), warnings=(), error=None)
    has(output, rtt_mean_ns=400_000, rtt_min_ns=300_000, rtt_max_ns=900_000)
    has(output, cwnd_max_bytes=500_000, pmtu_bytes=1438)
    has(output.sent, bytes=10**9, seconds=10, rate_bit_s=8e8, retransmits=3)
    has(output.received, rate_bit_s=7.9e8, seconds=10.04, retransmits=None)
    output = parsed(udp())
    has(output, protocol="UDP", invalid=())
    has(output.sent, rate_bit_s=8e8, datagrams=1000, lost=None, jitter_ns=None)
    has(output.received, bytes=None, rate_bit_s=None, lost=50, datagrams=1000, loss_percent=5)
    has(output.received, jitter_ns=15_000, out_of_order=2)
    of_sender = total(jitter_ms=0, lost_packets=0, packets=1000, lost_percent=0)
    of_receiver = udp_sum(bytes=950_000_000, bits_per_second=7.6e8)
    output = parsed(udp(sum_sent=of_sender, sum_received=of_receiver))
    assert output.invalid == ()
    has(output.sent, loss_percent=None, datagrams=1000)
    has(output.received, rate_bit_s=7.6e8, loss_percent=5)


def test_what_is_lost_after_the_last_datagram_that_arrives_is_no_contradiction_but_else_it_is() -> None:
    """There 3.12 reports the lost as the part of what was sent, next to the receiver's own count."""
    output = parse(sample("iperf3/client-udp-tail-lost.json"))
    part = pytest.approx(100 * 184 / 451)  # not 36.8 % of those sent
    assert output.invalid == ()
    has(output.sent, datagrams=500, loss_percent=None)
    has(output.received, lost=184, datagrams=451, loss_percent=part)
    has(known(output.server).received, loss_percent=part)
    text = parse(sample("iperf3/client-udp-tail-lost.txt"))
    assert text.invalid == ()
    # 35, 40 and 37 % of those sent are printed.
    has(text.received, lost=346, datagrams=900, loss_percent=pytest.approx(100 * 346 / 900))
    for stream, lost in zip(text.streams, (178, 168), strict=True):
        has(stream.received, loss_percent=pytest.approx(100 * lost / 450))
    # A loss that neither end can have counted is refused.
    for changes, invalid in (
        ({"lost_percent": 50.0}, ()),
        ({"lost_percent": 5.0}, ()),
        ({"lost_percent": 20.0}, ("sum received: the loss is 20 %, but 50 of 100 make it 50 %",)),
        ({"lost_percent": 120.0}, ("sum received: the loss is 120 %",)),
        ({"lost_packets": 101}, ("sum received: 101 of 100 were lost",)),
    ):
        output = parsed(udp(sum_sent=total(packets=1000), sum_received=udp_sum(packets=100, **changes)))
        assert output.invalid == invalid, changes
        assert invalid or known(output.received).loss_percent == 50


def test_streams_add_up_to_their_sum_and_what_an_end_does_not_know_is_unknown() -> None:
    (one,) = tcp()["end"]["streams"]
    slower = {"sender": sender(socket=7, mean_rtt=600), "receiver": one["receiver"]}
    both = {"streams": [one, slower], "sum_sent": total(1.6e9), "sum_received": total(1.58e9)}
    output = parsed(with_end(**both))
    has(output, invalid=(), rtt_mean_ns=500_000)
    assert [stream.id for stream in output.streams] == ["5", "7"]
    has(parsed(with_end(**both | {"sum_sent": total(2e9)})), invalid=Says("the streams add up to"))
    at_server = with_end(sum_sent=total(0))
    at_server["start"] = {"version": "iperf 3.9", "accepted_connection": {"host": "h", "port": 1}}
    at_server["end"]["streams"][0]["sender"] = total(0, mean_rtt=0)
    output = parsed(at_server)
    has(output, role="server", sent=None, rtt_mean_ns=None, invalid=())
    has(output.received, rate_bit_s=7.9e8)
    old = with_end(streams=[{"sender": total(socket=4), "receiver": total(7.9e8)}])
    output = parsed({**old, "intervals": [{"streams": [{"snd_cwnd": 777}]}]})
    has(output, rtt_mean_ns=None, pmtu_bytes=None, cwnd_max_bytes=777, invalid=())
    inside = tcp()
    del inside["start"]["connecting_to"]
    server = known(parsed(tcp(server_output_json=inside)).server)
    has(server, role="server")
    has(server.received, rate_bit_s=7.9e8)
    has(parsed(tcp(server_output_json=5)), warnings=Says("cannot be parsed"))


def test_text_around_and_damage_on_the_way() -> None:
    text = json.dumps(tcp(), indent=1)
    for damaged, reported in (
        ("\x1b[F" + text, "escape sequences"),
        ("$ iperf3 -J\n" + text, "text before"),
        ("\ufeff" + text, "byte order mark"),
        (text.replace("\n", "\r\n"), "CRLF"),
        (text + "\niperf Done.", "text after"),
        (text + "\n" + text, "1 further iperf3 documents"),
    ):
        has(parse(damaged), invalid=(), warnings=Says(reported))
    # Scripts put it into JSON of their own, which may have further objects.
    wrapped = parsed({"status": "success", "data": {"pairs": [{"result": tcp()}]}, "meta": {"attempts": 1}})
    has(wrapped, invalid=(), sent=parse(text).sent, streams=parse(text).streams)
    pairs = [{"result": tcp()}, {"result": tcp(error="interrupt")}]
    has(parsed({"data": pairs}), invalid=(), warnings=Says("1 further iperf3 documents"))
    assert "without any of intervals" in str(refused(parse, json.dumps({"data": {"pairs": []}})))
    deep = '{"a":' * 900 + text + "}" * 900  # not to be looked for
    began = time.process_time()
    refused(parse, deep + " " * 5_000_000)
    assert time.process_time() - began < 5


BACK = {"sum_sent_bidir_reverse": total(4e8, retransmits=9), "sum_received_bidir_reverse": total(3.9e8)}
SENT_OVER_AN_OMITTED_START = {"streams": [], "sum_received": total(9e8)}


def test_invalid() -> None:
    for document, reason in (
        (with_end(sum_sent=total(bits_per_second=7e8)), "the rate is 7e+08"),
        (with_end(sum_sent=total(bytes=-1)), "negative"),
        (with_end(sum_sent=total(bytes=2**63)), "2^63"),
        (with_end(sum_sent=total(bits_per_second=2**63 - 1)), "2^63"),
        (with_end(sum_sent=total(bytes="1000000000")), "not a number"),
        (with_end(sum_sent=total(bytes=True)), "not a number"),
        (with_end(sum_sent=total(bytes=10**8, bits_per_second=8e7)), "were received, but only"),
        (with_end(sum_sent=total(seconds=[1])), "seconds is '[1]'"),
        (with_end(sum_sent=total(retransmits={})), "retransmits"),
        (with_end(sum_sent=total(end=-5)), "negative"),
        (with_end(sum_received=total(0)), "none received"),
        (with_end(**SENT_OVER_AN_OMITTED_START), "were received, but only"),
        (udp(sum=udp_sum(lost_percent=6.0)), "make it 5 %"),
        (udp(sum=udp_sum(lost_packets=1001)), "1001 of 1000 were lost"),
        (udp(sum=udp_sum(lost_packets=-5)), "negative"),
        (udp(sum=udp_sum(jitter_ms="nan")), "jitter_ms is 'nan'"),
        (udp(sum=udp_sum(bytes=0, bits_per_second=0, packets=0, lost_packets=0)), "nothing was transferred"),
        (
            with_end(**BACK | {"sum_received_bidir_reverse": total(0)}),
            "the other direction: 500000000 bytes were sent, but none",
        ),
        (tcp(error="interrupt - the client has terminated"), "terminated"),
    ):
        has(parsed(document), invalid=Says(reason), error=document.get("error"))
    # What is not counted, and what is right.
    backwards = parsed(with_end(sum_sent=total(start=2**53)))
    assert "sum sent: it ends before it starts" in backwards.invalid
    has(backwards.sent, seconds=None)
    omitted = with_end(**SENT_OVER_AN_OMITTED_START)
    omitted["start"]["test_start"]["omit"] = 3
    has(parsed(omitted), invalid=())
    text = json.dumps(udp(sum=udp_sum(lost_percent="@")))
    for figure in ("nan", "-nan", "NaN", "inf", "-Infinity"):
        output = parse(text.replace('"@"', figure))
        has(output, invalid=Says("lost_percent"))
        has(output.received, loss_percent=None)
    refused(parse, text.replace('"@"', "1e400"))


CLIENT = """Connecting to host 10.0.0.2, port 5201
[  4] local 10.0.0.1 port 40000 connected to 10.0.0.2 port 5201
[ ID] Interval           Transfer     Bandwidth       Retr  Cwnd
[  4]   0.00-5.00   sec   550 MBytes   923 Mbits/sec  300    231 KBytes       (omitted)
[  4]   0.00-5.00   sec   545 MBytes   914 Mbits/sec   30    252 KBytes
[  4]   5.00-10.00  sec   549 MBytes   921 Mbits/sec    8   1.04 MBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bandwidth       Retr
[  4]   0.00-10.00  sec  1.07 GBytes   918 Mbits/sec   38             sender
[  4]   0.00-10.00  sec  1.07 GBytes   917 Mbits/sec                  receiver

iperf Done.
"""
SERVER = """Accepted connection from 10.0.0.1, port 39998
[  5]   0.00-10.04  sec  0.00 Bytes  0.00 bits/sec                  sender
[  5]   0.00-10.04  sec  1.07 GBytes   914 Mbits/sec                  receiver
"""
UDP = """Connecting to host 10.0.0.2, port 5201
[ ID] Interval           Transfer     Bandwidth       Total Datagrams
[  4]   0.00-10.00  sec  1.11 GBytes   954 Mbits/sec  834993
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bandwidth       Jitter    Lost/Total Datagrams
[  4]   0.00-10.00  sec  1.11 GBytes   954 Mbits/sec  0.015 ms  4602/834993 (0.55%)
[  4] Sent 834993 datagrams
"""
UDP_SERVER = """Accepted connection from 10.0.0.1, port 39998
[  5]   0.00-10.04  sec  1.10 GBytes   941 Mbits/sec  0.020 ms  4602/834993 (0.55%)
- - - - - - - - - - - - - - - - - - - - - - - - -
[  5]   0.00-10.04  sec  0.00 Bytes  0.00 bits/sec  0.015 ms  4602/834993 (0.55%)
[SUM]  0.0-10.0 sec  3 datagrams received out-of-order
"""
NEWER = """iperf 3.12
Connecting to host 10.0.0.2, port 5201
[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams
[  5]   0.00-10.00  sec  1.25 MBytes  1.05 Mbits/sec  0.000 ms  0/906 (0%)  sender
[  5]   0.00-10.04  sec  1.13 MBytes   947 Kbits/sec  0.019 ms  90/906 (9.9%)  receiver
CPU Utilization: local/sender 2.5% (0.4%u/2.1%s), remote/receiver 0.2% (0.1%u/0.1%s)
"""


def test_text_of_a_client_with_its_server_behind_it_and_of_udp() -> None:
    output = parse(CLIENT + "Server listening on 5201\n" + SERVER)
    left_out = "1 further report in the same text was left out: only the first is used"
    has(output, role="client", protocol="TCP", invalid=(), warnings=(left_out,))
    has(output.sent, rate_bit_s=918e6, retransmits=38, seconds=10, bytes=int(1.07 * 2**30))
    has(output.received, rate_bit_s=917e6)
    assert parse(re.sub(" +", " ", CLIENT)) == parse(CLIENT)
    assert parse(CLIENT + UDP).protocol == "TCP"
    # A server's log is read from JSON alone.
    output = parse(sample("iperf3/server-log.json"))
    has(output, role="server", server=None, warnings=Says("2 further"))
    whole = sample("iperf3/client-2-streams.txt")
    second = "[  7]   0.00-1.00   sec  12.0 MBytes   101 Mbits/sec    0             sender"
    has(parse(whole[: whole.index(second)]), invalid=Says("no total for [7]"))
    whole = sample("iperf3/client-udp.txt")
    refused(parse, whole[: whole.index("  sender") + 5])  # else the sender's row would be that of both
    output = parse(UDP)
    has(output, protocol="UDP", invalid=(), warnings=())
    has(output.sent, rate_bit_s=954e6, datagrams=834993, lost=None)
    by_counts = pytest.approx(0.55114, rel=1e-4)  # 0.55 is printed
    has(output.received, lost=4602, jitter_ns=15_000, loss_percent=by_counts)
    has(output.received, rate_bit_s=None, out_of_order=None)
    output = parse(NEWER)
    assert output.invalid == ()
    has(output.sent, loss_percent=None, datagrams=906)
    has(output.received, rate_bit_s=947_000, lost=90)


def test_invalid_text() -> None:
    for old, new, reason in (
        ("917 Mbits", "817 Mbits", "received [4]: the rate is"),
        ("iperf Done.", "iperf3: interrupt - the client has terminated", "terminated"),
        ("1.07 GBytes   917 Mbits", "0.00 Bytes  0.00 bits", "none received"),
        ("1.07 GBytes   917 Mbits", "1.07 GBytes  -nan bits", "rate_bit_s is '-nan'"),
    ):
        (problem,) = parse(CLIENT.replace(old, new)).invalid
        assert reason in problem, old
    cut = BOTH_WAYS[: BOTH_WAYS.index("[  6][RX-C]   0.00-2.00")]
    has(parse(cut), invalid=Says("the other direction has no totals"))


def test_both_directions_at_once_are_both_read() -> None:
    output = parse(BOTH_WAYS)
    has(output, invalid=(), warnings=(), role="client")
    has(output.sent, rate_bit_s=20.4e6, retransmits=0)
    has(output.received, rate_bit_s=20.3e6)
    has(output.reverse, invalid=())
    has(known(output.reverse).sent, rate_bit_s=90.6e6, retransmits=1)
    has(known(output.reverse).received, rate_bit_s=90.3e6, seconds=2.01)
    streams = [{"sender": sender(), "receiver": total(7.9e8)}]
    idle = sender(mean_rtt=719, min_rtt=719, max_rtt=719, max_snd_cwnd=12_880)
    streams += [{"sender": {**idle, **total(4e8, sender=False)}, "receiver": total(3.9e8, sender=False)}]
    output = parsed(with_end(streams=streams, **BACK))
    has(output, invalid=(), rtt_mean_ns=400_000)
    has(output.sent, rate_bit_s=8e8)
    has(output.reverse, invalid=(), rtt_mean_ns=None, rtt_min_ns=None, rtt_max_ns=None, cwnd_max_bytes=None)
    has(known(output.reverse).sent, rate_bit_s=4e8, retransmits=9)
    # A server's sums are of the client's ways, too; its streams say whether it sends.
    received = {"sender": total(0, sender=False), "receiver": total(7.9e8, sender=False)}
    sends = {"sender": total(4e8, sender=True), "receiver": total(0, sender=True)}
    ways = {
        "sum_sent": total(0),
        "sum_sent_bidir_reverse": total(4e8),
        "sum_received_bidir_reverse": total(0),
    }
    document = with_end(streams=[received, sends], **ways)
    document["start"] = {"accepted_connection": {"host": "h"}, "test_start": {"protocol": "TCP"}}
    output = parsed(document)
    has(output.received, rate_bit_s=7.9e8)
    assert [stream.received.rate_bit_s for stream in output.streams if stream.received] == [7.9e8]
    assert not any("add up" in problem for problem in output.invalid), output.invalid


BOTH_WAYS = """Tue Nov 24 21:22:12 2026 Connecting to host 10.0.0.2, port 5201
[  4] local 10.0.0.1 port 40000 connected to 10.0.0.2 port 5201
[  6] local 10.0.0.1 port 40001 connected to 10.0.0.2 port 5201
[ ID][Role] Interval           Transfer     Bitrate         Retr  Cwnd
[  4][TX-C]   0.00-1.00   sec  2.50 MBytes  20.9 Mbits/sec    0   1.12 MBytes
[  6][RX-C]   0.00-1.00   sec  10.8 MBytes  90.6 Mbits/sec
- - - - - - - - - - - - - - - - - - - - - - - - -
[  4][TX-C]   0.00-2.00   sec  4.88 MBytes  20.4 Mbits/sec    0            sender
[  4][TX-C]   0.00-2.01   sec  4.88 MBytes  20.3 Mbits/sec                  receiver
[  6][RX-C]   0.00-2.00   sec  21.6 MBytes  90.6 Mbits/sec    1            sender
[  6][RX-C]   0.00-2.01   sec  21.6 MBytes  90.3 Mbits/sec                  receiver
"""


def test_the_events_of_a_stream_are_a_document() -> None:
    whole = tcp()
    events = [("start", whole["start"]), *(("interval", each) for each in whole["intervals"])]
    lines = [json.dumps({"event": name, "data": data}) for name, data in [*events, ("end", whole["end"])]]
    assert parse("\n".join(lines)) == parsed(whole)
    assert "found none, and no error message" in str(refused(parse, "\n".join(lines[:-1])))
    assert "a second event" in str(refused(parse, "\n".join(lines * 2)))


def test_every_test_in_a_text_is_counted() -> None:
    """Also those of which only the totals were kept, with a heading of somebody's own between them."""
    totals = CLIENT[CLIENT.index("- - - -") :].replace("iperf Done.", "")
    for text, further in ((totals + "\nagain\n" + totals, 1), (totals * 3, 2), (totals + CLIENT, 1)):
        output = parse(text)
        has(output, invalid=())
        assert f"{further} further report{'s' * (further > 1)} in the same text" in output.warnings[0]
    has(parse("9.0 MB to go\n" + CLIENT), warnings=())


TCP2 = """Client connecting to 10.0.0.2, TCP port 5001
TCP window size: 85.0 KByte (default)
------------------------------------------------------------
[  3] local 10.0.0.1 port 40000 connected with 10.0.0.2 port 5001
[ ID] Interval       Transfer     Bandwidth
[  3]  0.0- 1.0 sec  11.2 MBytes  94.4 Mbits/sec
[  3]  1.0- 2.0 sec  11.2 MBytes  94.4 Mbits/sec
[  3]  0.0- 2.0 sec  22.5 MBytes  94.3 Mbits/sec
"""
UDP2 = """Client connecting to 10.0.0.2, UDP port 5001
Sending 1470 byte datagrams
[  3] local 10.0.0.1 port 40000 connected with 10.0.0.2 port 5001
[ ID] Interval       Transfer     Bandwidth
[  3]  0.0-10.0 sec   114 MBytes  95.7 Mbits/sec
[  3] Sent 81409 datagrams
[  3] Server Report:
[  3]  0.0-10.1 sec   106 MBytes  88.1 Mbits/sec   0.057 ms 5729/81408 (7%)
[  3]  0.0-10.1 sec  2 datagrams received out-of-order
"""


def test_tcp_and_udp_by_iperf2() -> None:
    output = parse_iperf2(TCP2)
    has(output, role="client", protocol="TCP", invalid=(), warnings=(), received=None)
    has(output.sent, bytes=int(22.5 * 2**20), seconds=2.0, rate_bit_s=94.3e6)
    assert [stream.id for stream in output.streams] == ["3"]
    output = parse_iperf2(UDP2)
    has(output, protocol="UDP", invalid=(), warnings=())
    has(output.sent, rate_bit_s=95.7e6, datagrams=81409, loss_percent=None, jitter_ns=None)
    by_counts = pytest.approx(7.0374, rel=1e-4)  # 7 is printed
    has(output.received, rate_bit_s=88.1e6, seconds=10.1, lost=5729, datagrams=81408, loss_percent=by_counts)
    has(output.received, jitter_ns=57_000, out_of_order=2)
    assert parse_iperf2(re.sub(" +", " ", UDP2).replace("[ 3]", "[3]")) == output
    # Without the server's report its part is unknown.
    report, order, jitter = (
        parse_iperf2(UDP2[: UDP2.index(at)])
        for at in ("[  3] Server Report", "[  3]  0.0-10.1 sec  2 data", "57 ms")
    )
    has(report, protocol="UDP", received=None, invalid=(), warnings=Says("the server's report is missing"))
    has(order.received, out_of_order=None)
    has(jitter.received, rate_bit_s=88.1e6, lost=None)
    assert jitter.sent == output.sent


def test_streams_of_iperf2_and_their_sum() -> None:
    whole = sample("iperf2/client-2-streams.txt")
    output = parse_iperf2(whole)
    assert (output.invalid, len(output.streams), known(output.sent).rate_bit_s) == ((), 2, 107e6)
    assert parse_iperf2(whole.replace("[SUM]", "[SUM-2]")) == output
    has(parse_iperf2(whole[: whole.index("[SUM]")]), invalid=Says("no [SUM]"))
    other_sum = whole.replace("12.8 MBytes   107", "22.8 MBytes   191")
    has(parse_iperf2(other_sum), invalid=Says("the streams add up to"))
    first = "[  2] 0.0000-1.0142 sec  6.38 MBytes  52.7 Mbits/sec"
    output = parse_iperf2(whole[: whole.index(first) + len(first)])
    assert output.invalid == ("sent: no total for [1], so the text may be cut",)
    udp = parse_iperf2(sample("iperf2/client-udp-3-streams.txt"))
    has(udp.sent, datagrams=2688, rate_bit_s=31.5e6)
    assert udp.invalid == ("received: 3 streams, but no [SUM] of them",)
    assert [stream.received.lost for stream in udp.streams if stream.received] == [0, 0, 3]


def test_only_jitter_is_jitter() -> None:
    for figures, jitter_ns in (
        # Formats of Locale.c: --trip-times, --bounceback, --histograms of writes, bursts.
        ("45.1/2.3/85.1/14.430 ms (10/131072) 3.64 MByte 620  52=1:2:3:4:5:6:7:8", None),
        ("   100=0.165/0.101/0.411/0.042 ms    0   14K(10)/150(11) us  Tx=1.0 M Rx=1.0 M  RPS=998", None),
        ("8981/0          0     1234K(9)/456(7) us  2580  0.165/0.101/0.411/0.042 ms (8981)", None),
        ("    12.345 ms (1.2%)    52=1:2:3:4:5:6:7:8 620", None),
        ("  1.147 ms    0/  103 (0%) 13.345/10.950/94.259/12.519 ms   10 pps 13.7 Byte 0.08", 1_147_000),
        ("  1.147 ms 0/103 (0%) -/-/-/- ms 10 pps 1/2/3", 1_147_000),
    ):
        output = parse_iperf2(f"[  1] 0.00-10.02 sec  1.10 GBytes   941 Mbits/sec{figures}\n")
        has(output.received or output.sent, jitter_ns=jitter_ns)
        has(output, invalid=(), warnings=Says("no header"))
    # Rounding and no datagrams are no contradiction.
    whole = UDP2.replace("106 MBytes  88.1 Mbits", "114 MBytes  95.4 Mbits")
    output = parse_iperf2(whole.replace("5729/81408 (7%)", "0/    0 (-nan%)"))
    assert output.invalid == ()
    has(output.received, datagrams=0, loss_percent=None)
    rates = ("94.3 Mbits", "11.2 MBytes", "99.9 Mbits", "9.43 Gbits")
    valid = [rate for rate in rates if not parse_iperf2(TCP2.replace("94.3 Mbits", rate)).invalid]
    assert valid == ["94.3 Mbits", "11.2 MBytes"]
    assert parse_iperf2("[  3]  0.0- 0.1 sec  1.44 KBytes   197 Kbits/sec\n").invalid == ()


def test_invalid_text_of_iperf2() -> None:
    for old, new, reason in (
        ("(7%)", "(9%)", "make it 7.037 %"),
        ("(7%)", "(1e5%)", "the loss is 100000 %"),
        ("5729/81408", "81409/81408", "were lost"),
        ("(7%)", "(-nan%)", "loss_percent is '-nan'"),
        ("5729/81408 (7%)", "-9/81408 (0%)", "lost is '-9'"),
        ("0.057 ms", "-nan ms", "jitter_ns is '-nan'"),
        ("88.1 Mbits", "nan bits", "rate_bit_s is 'nan'"),
        ("106 MBytes  88.1 Mbits", "0.00 Bytes  0.00 bits", "none received"),
        ("106 MBytes  88.1 Mbits", "126 MBytes  105 Mbits", "were received, but only"),
        ("Sent 81409 datagrams", "write failed: Broken pipe", "Broken pipe"),
        ("port 40000", "port 5001", "data of both directions"),
        ("[  3]  0.0-10.1 sec   106", "[ *3]  0.0-10.1 sec   106", "data of both directions"),
        ("0.057 ms", "4294967.295 ms", "the jitter is 4295 s, but it took 10.1 s"),
        ("0.057 ms", "-0.057 ms", "jitter_ns is '-0.057': not a number from 0"),
    ):
        output = parse_iperf2(UDP2.replace(old, new))
        (problem,) = output.invalid
        assert reason in problem, old
        assert output.received is None or (output.received.lost or 0) >= 0, old


REFUSED = {"i15": "no error message either", "i21": "Connection refused", "i23": "cut or damaged"}
REFUSED |= {"i29": "without any of intervals", "s00-iperf3-v": "begins with"}
REFUSED |= dict.fromkeys(("i17", "i19"), "control socket has closed")


@real_outputs(lambda file: "iperf3" in file)
def test_real_outputs(row: dict[str, str]) -> None:
    text = (OUTPUTS / row["file"]).read_bytes()
    stem = Path(row["file"]).stem
    reason = REFUSED.get(stem) or REFUSED.get(stem.split("-")[0])
    if reason:
        assert reason in str(refused(parse, text))
        return
    output = parse(text)
    nothing_arrived = row["first_write_or_received"] == "sum_received.bits_per_second=0"
    assert bool(output.invalid) is nothing_arrived
    if row["tool_version"].startswith("iperf") and "text" not in stem:
        assert output.version == row["tool_version"]
    assert output.protocol == ("UDP" if "UDP" in row["contains"] else "TCP")
    if streams := re.search(r"(?:TCP|UDP) x(\d)", row["contains"]):
        assert len(output.streams) == int(streams[1])
    sent, received = known(output.sent), known(output.received)
    for stated in (row["first_read_or_sent"], row["first_write_or_received"]):
        key, _, value = stated.partition("=")
        if key in ("sum_sent.bits_per_second", "sum.bits_per_second"):
            assert sent.rate_bit_s == pytest.approx(float(value))
        elif key == "sum_received.bits_per_second":
            assert received.rate_bit_s == pytest.approx(float(value))
        elif key == "sum.lost_percent":
            assert received.loss_percent == pytest.approx(float(value), rel=0.001)
        elif counts := re.search(r"(\d+)/(\d+)", stated):
            assert (received.lost, received.datagrams) == (int(counts[1]), int(counts[2]))


@real_outputs(lambda file: "iperf2" in file)
def test_real_outputs_of_iperf2(row: dict[str, str]) -> None:
    output = parse_iperf2((OUTPUTS / row["file"]).read_bytes())
    assert (output.role, output.invalid, output.warnings) == ("client", (), ())
    udp = "UDP" in row["contains"]
    assert output.protocol == ("UDP" if udp else "TCP")
    total = known(output.received if udp else output.sent)
    stated = row["first_write_or_received"]
    rate = known(re.search(r"([\d.]+) ([MG])bits/sec", stated))
    assert total.rate_bit_s == pytest.approx(float(rate[1]) * {"M": 1e6, "G": 1e9}[rate[2]])
    assert (output.received is not None) is udp
    if udp:
        assert total.out_of_order == 1
        assert f"{total.lost}/{total.datagrams} ({total.loss_percent:.2g}%)" in stated
        assert f" {(total.jitter_ns or 0) / 1e6:.3f} ms" in stated
    assert len(output.streams) == (2 if "two sources" in row["contains"] else 1)
