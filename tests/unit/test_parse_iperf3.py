"""The parser of iperf3's JSON and text: what each end can know, and that no input makes it fall over."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.model.errors import UsageError
from harness.parse.iperf import Report
from harness.parse.iperf3 import Iperf3Output, parse
from tests.unit.parsing import OUTPUTS, assert_refused, garbled, listed, sample


def total(rate_bit_s: float = 8e8, end: float = 10.0, **changes: Any) -> dict[str, Any]:
    moved = int(rate_bit_s * end / 8)
    figures = {"start": 0, "end": end, "seconds": end, "bytes": moved, "bits_per_second": rate_bit_s}
    return {**figures, **changes}


def sender(**changes: Any) -> dict[str, Any]:
    kernel = {"max_snd_cwnd": 500_000, "max_rtt": 900, "min_rtt": 300, "mean_rtt": 400}
    return total(**{"socket": 5, "retransmits": 3, **kernel, **changes})


def tcp(**changes: object) -> dict[str, Any]:
    """A client's 10 s, as iperf3 3.9 has it."""
    return {
        "start": {
            "version": "iperf 3.9",
            "connecting_to": {"host": "h", "port": 5201},
            "test_start": {"protocol": "TCP", "num_streams": 1, "omit": 0},
        },
        "intervals": [
            {"streams": [{"snd_cwnd": 400_000, "pmtu": 1500}], "sum": {"bytes": 1}},
            {"streams": [{"snd_cwnd": 500_000, "pmtu": 1438}], "sum": {"bytes": 1}},
        ],
        "end": {
            "streams": [{"sender": sender(), "receiver": total(7.9e8, socket=5)}],
            "sum_sent": total(retransmits=3),
            "sum_received": total(7.9e8, end=10.04),
            "cpu_utilization_percent": {
                "host_total": 5.5,
                "host_user": 1,
                "host_system": 4.5,
                "remote_total": 2,
            },
        },
        **changes,
    }


def udp_sum(**changes: Any) -> dict[str, Any]:
    counts: dict[str, Any] = {"jitter_ms": 0.015, "lost_packets": 50, "packets": 1000, "lost_percent": 5.0}
    return total(**{**counts, **changes})


def udp(**changes: object) -> dict[str, Any]:
    """A client's UDP test, as iperf3 up to 3.10 has it."""
    document = tcp()
    document["start"]["test_start"]["protocol"] = "UDP"
    end = {"streams": [{"udp": udp_sum(socket=5, out_of_order=2)}], "sum": udp_sum(), **changes}
    return {**document, "intervals": [], "end": end}


def parsed(document: dict[str, Any]) -> Iperf3Output:
    return parse(json.dumps(document, indent=1))


def known(report: Report | None) -> Report:
    assert report is not None
    return report


def test_tcp() -> None:
    output = parsed(tcp())
    assert (output.role, output.protocol, output.version) == ("client", "TCP", "iperf 3.9")
    assert (output.invalid, output.warnings, output.error) == ((), (), None)
    sent, received = known(output.sent), known(output.received)
    assert (sent.bytes, sent.seconds, sent.rate_bit_s, sent.retransmits) == (10**9, 10, 8e8, 3)
    assert (received.rate_bit_s, received.seconds, received.retransmits) == (7.9e8, 10.04, None)
    assert (output.rtt_mean_ns, output.rtt_min_ns, output.rtt_max_ns) == (400_000, 300_000, 900_000)
    assert (output.cwnd_max_bytes, output.pmtu_bytes) == (500_000, 1438)
    assert output.cpu_local is not None
    assert output.cpu_local.system_percent == 4.5
    assert output.cpu_remote is not None
    assert (output.cpu_remote.total_percent, output.cpu_remote.user_percent) == (2, None)


def test_udp_of_one_sum_for_both_ends() -> None:
    output = parsed(udp())
    assert (output.protocol, output.invalid) == ("UDP", ())
    sent, received = known(output.sent), known(output.received)
    assert (sent.rate_bit_s, sent.datagrams, sent.lost, sent.jitter_ns) == (8e8, 1000, None, None)
    assert (received.bytes, received.rate_bit_s) == (None, None)
    assert (received.lost, received.datagrams, received.loss_percent) == (50, 1000, 5)
    assert (received.jitter_ns, received.out_of_order) == (15_000, 2)


def test_udp_of_one_sum_for_each_end() -> None:
    sent = total(jitter_ms=0, lost_packets=0, packets=1000, lost_percent=0)
    received = udp_sum(bytes=950_000_000, bits_per_second=7.6e8)
    output = parsed(udp(sum_sent=sent, sum_received=received))
    assert output.invalid == ()
    assert (known(output.sent).loss_percent, known(output.sent).datagrams) == (None, 1000)
    assert (known(output.received).rate_bit_s, known(output.received).loss_percent) == (7.6e8, 5)


def test_what_is_lost_after_the_last_datagram_that_arrives_is_no_contradiction() -> None:
    """There 3.12 reports the lost as the part of what was sent, beside the receiver's own count."""
    output = parse(sample("iperf3/client-udp-tail-lost.json"))
    sent, received = known(output.sent), known(output.received)
    assert (output.invalid, sent.datagrams, sent.loss_percent) == ((), 500, None)
    assert (received.lost, received.datagrams) == (184, 451)
    assert received.loss_percent == pytest.approx(100 * 184 / 451), "not 36.8 % of those sent"
    assert output.server is not None
    assert known(output.server.received).loss_percent == pytest.approx(received.loss_percent)
    text = parse(sample("iperf3/client-udp-tail-lost.txt"))
    total, (first, second) = known(text.received), text.streams
    assert (text.invalid, total.lost, total.datagrams) == ((), 346, 900)
    assert total.loss_percent == pytest.approx(100 * 346 / 900), "not 35 % of those sent"
    assert known(first.received).loss_percent == pytest.approx(100 * 178 / 450), "not 40 %, as printed"
    assert known(second.received).loss_percent == pytest.approx(100 * 168 / 450), "not 37 %"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lost_percent": 50.0}, None),
        ({"lost_percent": 5.0}, None),
        ({"lost_percent": 20.0}, "sum received: the loss is 20 %, but 50 of 100 make it 50 %"),
        ({"lost_percent": 120.0}, "sum received: the loss is 120 %"),
        ({"lost_packets": 101}, "sum received: 101 of 100 were lost"),
    ],
)
def test_a_loss_that_neither_end_can_have_counted_is_refused(
    changes: dict[str, object], problem: str | None
) -> None:
    received = udp_sum(packets=100, **changes)
    output = parsed(udp(sum_sent=total(packets=1000), sum_received=received))
    assert output.invalid == (() if problem is None else (problem,))
    if problem is None:
        assert known(output.received).loss_percent == 50


def test_streams() -> None:
    document = tcp()
    one = document["end"]["streams"][0]
    slower = {"sender": sender(socket=7, mean_rtt=600), "receiver": one["receiver"]}
    document["end"] |= {"streams": [one, slower], "sum_sent": total(1.6e9), "sum_received": total(1.58e9)}
    output = parsed(document)
    assert output.invalid == ()
    assert [stream.id for stream in output.streams] == ["5", "7"]
    assert output.rtt_mean_ns == 500_000
    document["end"]["sum_sent"] = total(2e9)
    assert any("the streams add up to" in problem for problem in parsed(document).invalid)


def test_both_directions_at_once() -> None:
    document = tcp()
    document["end"] |= {
        "sum_sent_bidir_reverse": total(4e8, retransmits=9),
        "sum_received_bidir_reverse": total(3.9e8),
    }
    output = parsed(document)
    assert (known(output.reverse_sent).retransmits, known(output.reverse_received).rate_bit_s) == (9, 3.9e8)


def test_server_does_not_know_what_was_sent() -> None:
    document = tcp()
    document["start"] = {"version": "iperf 3.9", "accepted_connection": {"host": "h", "port": 1}}
    document["end"]["sum_sent"] = total(0)
    document["end"]["streams"][0]["sender"] = total(0, mean_rtt=0)
    output = parsed(document)
    assert (output.role, output.sent, output.rtt_mean_ns, output.invalid) == ("server", None, None, ())
    assert known(output.received).rate_bit_s == 7.9e8


def test_what_old_versions_lack_is_unknown() -> None:
    document = tcp()
    document["end"]["streams"] = [{"sender": total(socket=4), "receiver": total(7.9e8)}]
    document["intervals"] = [{"streams": [{"snd_cwnd": 777}]}]
    del document["end"]["cpu_utilization_percent"]
    output = parsed(document)
    assert (output.rtt_mean_ns, output.pmtu_bytes, output.cpu_local) == (None, None, None)
    assert (output.cwnd_max_bytes, output.invalid) == (777, ())


def test_servers_account_inside_of_the_clients() -> None:
    inside = tcp()
    del inside["start"]["connecting_to"]
    output = parsed(tcp(server_output_json=inside))
    assert output.server is not None
    assert (output.server.role, known(output.server.received).rate_bit_s) == ("server", 7.9e8)
    output = parsed(tcp(server_output_text=SERVER))
    assert output.server is not None
    assert known(output.server.received).rate_bit_s == 914e6
    assert any("cannot be parsed" in warning for warning in parsed(tcp(server_output_text="?")).warnings)


def test_events_of_json_stream() -> None:
    document = tcp()
    lines = [{"event": "start", "data": document["start"]}]
    lines += [{"event": "interval", "data": interval} for interval in document["intervals"]]
    lines += [{"event": "end", "data": document["end"]}]
    output = parse("\n".join(json.dumps(line) for line in lines))
    assert msgspec.structs.replace(output, warnings=()) == parsed(document)
    lines[-1] = {"event": "error", "data": "unable to send"}
    with pytest.raises(UsageError, match="unable to send"):
        parse("\n".join(json.dumps(line) for line in lines))


def test_text_around_and_damage_on_the_way() -> None:
    text = json.dumps(tcp(), indent=1)
    for damaged, told in (
        ("\x1b[F" + text, "escape sequences"),
        ("$ iperf3 -J\n" + text, "text before"),
        ("\ufeff" + text, "byte order mark"),
        (text.replace("\n", "\r\n"), "CRLF"),
        (text + "\niperf Done.", "text after"),
        (text + "\n" + text, "1 further iperf3 documents"),
    ):
        output = parse(damaged)
        assert output.invalid == ()
        assert any(told in warning for warning in output.warnings), output.warnings


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bits_per_second": 7e8}, "the rate is 7e+08"),
        ({"bytes": -1}, "negative"),
        ({"bytes": 2**63}, "2^63"),
        ({"bytes": "1000000000"}, "not a number"),
        ({"bytes": True}, "not a number"),
        ({"bytes": 10**8, "bits_per_second": 8e7}, "were received, but only"),
        ({"seconds": [1]}, "seconds is '[1]'"),
        ({"retransmits": {}}, "retransmits"),
        ({"end": -5}, "negative"),
    ],
)
def test_invalid_sum(changes: dict[str, Any], reason: str) -> None:
    document = tcp()
    document["end"]["sum_sent"] = total(**changes)
    assert any(reason in problem for problem in parsed(document).invalid)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lost_percent": 6.0}, "make it 5 %"),
        ({"lost_packets": 1001}, "1001 of 1000 were lost"),
        ({"lost_packets": -5}, "negative"),
        ({"jitter_ms": "nan"}, "jitter_ms is 'nan'"),
        ({"bytes": 0, "bits_per_second": 0, "packets": 0, "lost_packets": 0}, "nothing was transferred"),
    ],
)
def test_invalid_udp(changes: dict[str, object], reason: str) -> None:
    assert any(reason in problem for problem in parsed(udp(sum=udp_sum(**changes))).invalid)


def test_a_time_that_runs_backwards_is_no_time() -> None:
    document = tcp()
    document["end"]["sum_sent"] = total(start=2**53)
    output = parsed(document)
    assert "sum sent: it ends before it starts" in output.invalid
    assert known(output.sent).seconds is None


def test_nothing_arrived() -> None:
    document = tcp()
    document["end"]["sum_received"] = total(0)
    assert any("none received" in problem for problem in parsed(document).invalid)


def test_more_received_than_sent_is_right_if_the_start_is_omitted() -> None:
    document = tcp()
    document["end"] |= {"streams": [], "sum_received": total(9e8)}
    assert any("were received, but only" in problem for problem in parsed(document).invalid)
    document["start"]["test_start"]["omit"] = 3
    assert parsed(document).invalid == ()


@pytest.mark.parametrize("figure", ["nan", "-nan", "NaN", "inf", "-Infinity", "1e400"])
def test_not_finite_is_an_invalid_figure_with_a_name(figure: str) -> None:
    text = json.dumps(udp(sum=udp_sum(lost_percent="@"))).replace('"@"', figure)
    if figure == "1e400":
        with pytest.raises(UsageError):
            parse(text)
        return
    output = parse(text)
    assert known(output.received).loss_percent is None
    assert any("lost_percent" in problem for problem in output.invalid)


def test_error_beside_figures_is_invalid() -> None:
    output = parsed(tcp(error="interrupt - the client has terminated"))
    assert output.error == "interrupt - the client has terminated"
    assert any("terminated" in problem for problem in output.invalid)


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
[  5] local 10.0.0.2 port 5201 connected to 10.0.0.1 port 40000
[ ID] Interval           Transfer     Bandwidth
[  5]   0.00-10.04  sec  1.07 GBytes   914 Mbits/sec
- - - - - - - - - - - - - - - - - - - - - - - - -
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


def test_text_of_client_and_server() -> None:
    output = parse(CLIENT + "Server listening on 5201\n" + SERVER)
    assert (output.role, output.protocol, output.invalid, output.warnings) == ("client", "TCP", (), ())
    sent, received = known(output.sent), known(output.received)
    assert (sent.rate_bit_s, sent.retransmits, sent.seconds) == (918e6, 38, 10)
    assert (sent.bytes, received.rate_bit_s) == (int(1.07 * 2**30), 917e6)
    assert output.cwnd_max_bytes == int(1.04 * 2**20)
    assert output.server is not None
    assert (output.server.role, output.server.sent) == ("server", None)
    assert known(output.server.received).rate_bit_s == 914e6
    assert parse(SERVER) == output.server
    assert parse(re.sub(" +", " ", CLIENT)) == parse(CLIENT)


def test_a_servers_log_is_no_account_of_another_test() -> None:
    output = parse(sample("iperf3/server-log.txt"))
    assert (output.role, output.server, output.invalid) == ("server", None, ())
    assert known(output.received).rate_bit_s == 50.3e6
    assert output.warnings == ("3 further tests in the same text were left out: give each its own file",)
    output = parse(sample("iperf3/server-log.json"))
    assert (output.role, output.server) == ("server", None)
    assert any(warning.startswith("2 further") for warning in output.warnings)


@pytest.mark.parametrize(
    ("client", "streams", "rate_bit_s"),
    [("client-2-streams.txt", 2, 201e6), ("client-udp.txt", 1, 20.2e6)],
)
def test_ports_tell_which_of_a_servers_tests_is_the_clients(
    client: str, streams: int, rate_bit_s: float
) -> None:
    whole = sample(f"iperf3/{client}"), sample("iperf3/server-log.txt")
    for text in ("".join(whole), "".join(reversed(whole))):
        output = parse(text)
        assert output.server is not None
        assert (len(output.server.streams), known(output.server.received).rate_bit_s) == (streams, rate_bit_s)
        assert any(warning.startswith("3 further") for warning in output.warnings)


def test_another_clients_test_is_left_out() -> None:
    other = SERVER.replace("port 40000", "port 40002")
    output = parse(CLIENT + other)
    assert output.server is None
    assert any(warning.startswith("1 further") for warning in output.warnings)
    assert parse(UDP + UDP_SERVER).server is not None, "without ports the only one is meant"
    assert parse(UDP + UDP_SERVER + UDP_SERVER).server is None


def test_a_text_that_ends_before_all_streams_are_told_of_is_cut() -> None:
    whole = sample("iperf3/client-2-streams.txt")
    output = parse(
        whole[: whole.index("[  7]   0.00-1.00   sec  12.0 MBytes   101 Mbits/sec    0             sender")]
    )
    assert any("no total for [7]" in problem for problem in output.invalid)


def test_a_label_that_is_cut_does_not_make_the_senders_row_that_of_both() -> None:
    whole = sample("iperf3/client-udp.txt")
    with pytest.raises(UsageError):
        parse(whole[: whole.index("  sender") + 5])


def test_a_server_that_waits_may_be_ended() -> None:
    waited = parse(sample("iperf3/server-waiting.txt"))
    assert (waited.invalid, waited.error) == ((), None)
    assert known(waited.received).rate_bit_s == 50.3e6
    interrupted = parse(sample("iperf3/server-interrupted.txt"))
    assert interrupted.invalid == ("iperf3 says 'interrupt - the server has terminated'",)


def test_text_of_udp() -> None:
    output = parse(UDP + UDP_SERVER)
    assert (output.protocol, output.invalid) == ("UDP", ())
    sent, received = known(output.sent), known(output.received)
    assert (sent.rate_bit_s, sent.datagrams, sent.lost) == (954e6, 834993, None)
    assert (received.lost, received.jitter_ns) == (4602, 15_000)
    assert received.loss_percent == pytest.approx(0.55114, rel=1e-4), "by the counts: 0.55 is printed"
    assert (received.rate_bit_s, received.out_of_order) == (None, None)
    assert output.server is not None
    assert (output.server.sent, output.server.invalid) == (None, ())
    told = known(output.server.received)
    assert (told.bytes, told.rate_bit_s, told.lost, told.out_of_order) == (None, None, 4602, 3)


def test_newer_text_of_udp() -> None:
    output = parse(NEWER)
    assert (output.version, output.invalid) == ("iperf 3.12", ())
    assert (known(output.sent).loss_percent, known(output.sent).datagrams) == (None, 906)
    assert (known(output.received).rate_bit_s, known(output.received).lost) == (947_000, 90)
    assert output.cpu_local is not None
    assert output.cpu_local.user_percent == 0.4
    assert output.cpu_remote is not None
    assert output.cpu_remote.total_percent == 0.2


def test_text_of_streams_and_directions() -> None:
    rows = "".join(
        f"[{name}][{role}]   0.00-10.00  sec  1.10 GBytes   944 Mbits/sec  {counted} {label}\n"
        for role in ("TX-C", "RX-C")
        for label, counted in (("sender", "7"), ("receiver", ""))
        for name in ("  5", "  7", "SUM")
    )
    rows = re.sub(r"(\[SUM\].*)1.10 GBytes   944 M", r"\g<1>2.20 GBytes  1.89 G", rows)
    output = parse("Connecting to host h, port 1\n" + rows)
    assert output.invalid == ()
    assert [stream.id for stream in output.streams] == ["5", "7"]
    for report in (output.sent, output.received, output.reverse_sent, output.reverse_received):
        assert known(report).rate_bit_s == 1.89e9
    assert known(output.reverse_sent).retransmits == 7
    without = "".join(line for line in rows.splitlines(keepends=True) if "SUM" not in line)
    output = parse("Connecting to host h, port 1\n" + without)
    assert output.sent is None
    assert any("no [SUM]" in problem for problem in output.invalid)


def test_further_transcripts_are_warned_about() -> None:
    output = parse(CLIENT + UDP)
    assert output.protocol == "TCP"
    assert any(warning.startswith("1 further") for warning in output.warnings)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("917 Mbits", "817 Mbits", "received [4]: the rate is"),
        ("iperf Done.", "iperf3: interrupt - the client has terminated", "terminated"),
        ("1.07 GBytes   917 Mbits", "0.00 Bytes  0.00 bits", "none received"),
        ("1.07 GBytes   917 Mbits", "1.07 GBytes  -nan bits", "rate is '-nan'"),
    ],
)
def test_invalid_text(old: str, new: str, reason: str) -> None:
    (problem,) = parse(CLIENT.replace(old, new)).invalid
    assert reason in problem


NOTHING = {"start": {"version": "iperf 3.7"}, "intervals": [], "end": {}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (json.dumps(NOTHING), "without saying why"),
        (json.dumps({**NOTHING, "error": "error - unable to connect"}), "unable to connect"),
        ("iperf3: error - unable to connect to server: Connection refused\n", "Connection refused"),
        (CLIENT[: CLIENT.index("- - -")], "begins with"),
        ("iperf 3.1.7\nLinux\n", "begins with"),
        ("Client connecting to h, TCP port 1\n[  3]  0.0-1.0 sec  1 MBytes  8.39 Mbits/sec\n", "begins with"),
        ("null", "begins with"),
        ('{"a": 1}', "without any of intervals"),
        ('{"intervals": 5}', "another form"),
        ('{"intervals": [], "end": {"sum": [1]}}', "another form"),
        ('"streams": [{\n"start": 8.0,\n"lost_percent": -nan\n}]', "without any of intervals"),
        (json.dumps(tcp(), indent=1).replace('"end": {', '{"start": {}', 1), "cut or damaged"),
        ('{"intervals": ' + "[" * 200_000, "cut or damaged|nested too deeply"),
        ('{"' * 100_000, "."),
        ('{"event": 1}\n' * 20_000, "."),
        ("- " * 200_000, "begins with"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_refused(text: str, reason: str) -> None:
    assert_refused(parse, text, reason)


def survives(text: bytes) -> Iperf3Output | None:
    try:
        output = parse(text)
    except UsageError:
        return None
    json.dumps(msgspec.to_builtins(output), allow_nan=False)
    return output


def test_json_cut_at_any_byte() -> None:
    for document in (tcp(), udp()):
        whole = json.dumps(document, indent=1).encode()
        for length in range(len(whole)):
            assert survives(whole[:length]) is None, length
        assert survives(whole) is not None


def test_text_cut_at_any_byte() -> None:
    for whole in ((CLIENT + SERVER).encode(), (UDP + UDP_SERVER).encode(), NEWER.encode()):
        for length in range(len(whole)):
            survives(whole[:length])


def test_garbled_bytes() -> None:
    texts = [json.dumps(tcp(server_output_json=tcp())), json.dumps(udp()), CLIENT + SERVER, UDP + NEWER]
    for text in garbled(24, [text.encode() for text in texts], b'"{}[],:-eN019.%/ \\\x1b\n', 4000):
        survives(text)


def manifest() -> list[dict[str, str]]:
    return listed(lambda file: "iperf3" in file)


REFUSED = {
    "i15": "without saying why",
    "i17": "control socket has closed",
    "i19": "control socket has closed",
    "i21": "Connection refused",
    "i23": "cut or damaged",
    "i29": "without any of intervals",
    "s00-iperf3-v": "begins with",
}


@pytest.mark.skipif(not manifest(), reason="the collection of real outputs is not beside the project")
@pytest.mark.parametrize("row", manifest(), ids=lambda row: Path(row["file"]).stem)
def test_real_outputs(row: dict[str, str]) -> None:
    text = (OUTPUTS / row["file"]).read_bytes()
    stem = Path(row["file"]).stem
    reason = REFUSED.get(stem) or REFUSED.get(stem.split("-")[0])
    if reason:
        with pytest.raises(UsageError, match=reason):
            parse(text)
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
    if "AND server transcript" in row["contains"]:
        assert output.server is not None
        assert known(output.server.received).rate_bit_s == 914e6
        assert output.server.sent is None
