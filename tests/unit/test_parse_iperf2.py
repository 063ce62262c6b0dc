"""The parser of iperf2's text: totals, both ends, contradictions, and that no input makes it fall over."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from harness.model.errors import UsageError
from harness.parse.iperf2 import Iperf2Output, parse
from tests.unit.parsing import OUTPUTS, assert_refused, garbled, listed, sample

TCP = """Client connecting to 10.0.0.2, TCP port 5001
TCP window size: 85.0 KByte (default)
------------------------------------------------------------
[  3] local 10.0.0.1 port 40000 connected with 10.0.0.2 port 5001
[ ID] Interval       Transfer     Bandwidth
[  3]  0.0- 1.0 sec  11.2 MBytes  94.4 Mbits/sec
[  3]  1.0- 2.0 sec  11.2 MBytes  94.4 Mbits/sec
[  3]  0.0- 2.0 sec  22.5 MBytes  94.3 Mbits/sec
"""
UDP = """Client connecting to 10.0.0.2, UDP port 5001
Sending 1470 byte datagrams
[  3] local 10.0.0.1 port 40000 connected with 10.0.0.2 port 5001
[ ID] Interval       Transfer     Bandwidth
[  3]  0.0-10.0 sec   114 MBytes  95.7 Mbits/sec
[  3] Sent 81409 datagrams
[  3] Server Report:
[  3]  0.0-10.1 sec   106 MBytes  88.1 Mbits/sec   0.057 ms 5729/81408 (7%)
[  3]  0.0-10.1 sec  2 datagrams received out-of-order
"""
TCP_SERVER = """Server listening on TCP port 5001
[  4] local 10.0.0.2 port 5001 connected with 10.0.0.1 port 40000
[  4]  0.0- 2.1 sec  22.4 MBytes  89.5 Mbits/sec
"""


def test_tcp_client() -> None:
    output = parse(TCP)
    assert (output.role, output.protocol, output.invalid, output.warnings) == ("client", "TCP", (), ())
    assert output.received is None
    assert output.sent is not None
    assert (output.sent.bytes, output.sent.seconds) == (int(22.5 * 2**20), 2.0)
    assert output.sent.rate_bit_s == 94.3e6
    assert output.sent.lost is None
    assert [stream.id for stream in output.streams] == ["3"]


def test_udp_client_with_server_report() -> None:
    output = parse(UDP)
    assert (output.protocol, output.invalid) == ("UDP", ())
    assert output.sent is not None
    assert output.received is not None
    assert (output.sent.rate_bit_s, output.sent.datagrams) == (95.7e6, 81409)
    assert (output.sent.loss_percent, output.sent.jitter_ns) == (None, None)
    received = output.received
    assert (received.rate_bit_s, received.seconds) == (88.1e6, 10.1)
    assert (received.lost, received.datagrams) == (5729, 81408)
    assert received.loss_percent == pytest.approx(7.0374, rel=1e-4), "by the counts: 7 is printed"
    assert (received.jitter_ns, received.out_of_order) == (57_000, 2)


def test_collapsed_spaces() -> None:
    assert parse(re.sub(" +", " ", UDP).replace("[ 3]", "[3]")) == parse(UDP)
    assert parse(UDP.replace("\n", "\r\n")).received == parse(UDP).received


def test_missing_server_report_is_a_warning() -> None:
    output = parse(
        UDP[: UDP.index("[  3] Server Report")] + "[  3] WARNING: did not receive ack of last datagram"
    )
    assert output.received is None
    assert output.invalid == ()
    assert any("no Server Report" in warning for warning in output.warnings)
    assert any("did not acknowledge" in warning for warning in output.warnings)


def test_order_is_unknown_without_its_line() -> None:
    received = parse(UDP[: UDP.index("[  3]  0.0-10.1 sec  2 data")]).received
    assert received is not None
    assert received.out_of_order is None


def test_streams_and_their_sum() -> None:
    rows = (
        "[  4]  0.0-60.0 sec  29.2 GBytes  4.18 Gbits/sec\n"
        "[  3]  0.0-60.0 sec  17.2 GBytes  2.47 Gbits/sec\n"
        "[SUM]  0.0-60.0 sec  46.5 GBytes  6.65 Gbits/sec\n"
    )
    head = "Client connecting to h, TCP port 5001\n"
    output = parse(head + rows)
    assert output.invalid == ()
    assert output.sent is not None
    assert output.sent.rate_bit_s == 6.65e9
    assert [stream.id for stream in output.streams] == ["4", "3"]
    (problem,) = parse(head + rows.replace("17.2 GBytes  2.47", "19.2 GBytes  2.75")).invalid
    assert "the streams add up to" in problem
    without = rows[: rows.index("[SUM]")]
    (problem,) = parse(head + without + TCP_SERVER).invalid
    assert "no [SUM]" in problem


def test_sums_of_udp_counts() -> None:
    second = UDP[UDP.index("[  3]  0.0-10.0") :].replace("[  3]", "[  4]")
    total = (
        "[SUM]  0.0-10.0 sec   228 MBytes   191 Mbits/sec\n"
        "[SUM]  0.0-10.1 sec   212 MBytes   176 Mbits/sec   0.057 ms 11458/162816 (7%)\n"
    )
    output = parse(UDP + second + total)
    assert output.invalid == ()
    assert output.sent is not None
    assert output.received is not None
    assert (output.sent.datagrams, output.received.out_of_order) == (162818, 4)


def test_server_reports_of_streams_are_added_up() -> None:
    whole = sample("iperf2/client-udp-3-streams.txt")
    output = parse(whole)
    assert (output.invalid, output.warnings) == ((), ())
    assert output.sent is not None
    assert (output.sent.datagrams, output.sent.rate_bit_s) == (2688, 31.5e6)
    received = output.received
    assert received is not None
    assert (received.lost, received.datagrams, received.out_of_order) == (3, 2685, 3)
    assert received.loss_percent == pytest.approx(100 * 3 / 2685)
    assert (received.bytes, received.seconds) == (int(1.26 * 2**20) + 2 * int(1.25 * 2**20), 1.0016)
    assert received.rate_bit_s == pytest.approx(31.5e6, rel=0.001)
    assert received.jitter_ns is None, "each stream has its own"
    assert [stream.received.lost for stream in output.streams if stream.received] == [0, 0, 3]


def test_without_the_report_of_a_stream_the_whole_is_not_known() -> None:
    whole = sample("iperf2/client-udp-3-streams.txt")
    for first_missing in ("1", "3"):
        output = parse(whole.partition(f"[  {first_missing}] Server Report:")[0])
        assert output.received is None
        assert any("the total is unknown" in warning for warning in output.warnings)
    none = parse(whole.partition("[  2] Server Report:")[0])
    assert none.received is None
    assert any("no Server Report" in warning for warning in none.warnings)


def test_streams_are_believed_where_their_sum_counts_otherwise() -> None:
    output = parse(sample("iperf2/server-log-udp.txt"))
    assert (output.role, output.invalid, len(output.streams)) == ("server", (), 3)
    assert output.received is not None
    assert (output.received.lost, output.received.datagrams) == (3, 2685)
    assert output.received.rate_bit_s == 31.5e6
    assert any("[SUM] counts 1 lost of 2685" in warning for warning in output.warnings)


def test_one_header_of_a_server_is_for_all_its_tests() -> None:
    output = parse(sample("iperf2/server-log-tcp.txt"))
    assert (output.role, output.server, output.invalid) == ("server", None, ())
    assert output.received is not None
    assert output.received.rate_bit_s == 53.4e6
    assert output.warnings == ("1 further tests in the same text were left out: give each its own file",)
    # iperf 2.0 gives each test the same number.
    again = re.sub(r"\[  [23]\]", "[  1]", sample("iperf2/server-log-tcp.txt"))
    assert parse(again) == output
    # The client's was the second test.
    output = parse(sample("iperf2/client-2-streams.txt") + sample("iperf2/server-log-tcp.txt"))
    assert output.server is not None
    assert output.server.received is not None
    assert output.server.received.rate_bit_s == 107e6


def cut_behind(text: str, words: str) -> Iperf2Output:
    return parse(text[: text.index(words) + len(words)])


def test_a_text_that_ends_before_all_streams_are_told_of_is_cut() -> None:
    output = cut_behind(
        sample("iperf2/client-2-streams.txt"), "[  2] 0.0000-1.0142 sec  6.38 MBytes  52.7 Mbits/sec"
    )
    assert output.invalid == ("sent: no total for [1], so the text may be cut",)


def test_a_server_report_that_is_cut_is_not_what_was_sent() -> None:
    whole = parse(UDP)
    output = cut_behind(UDP, "88.1 Mbits/sec   0.0")
    assert output.sent == whole.sent
    assert output.received is not None
    assert (output.received.rate_bit_s, output.received.lost) == (88.1e6, None)


def test_order_is_unknown_where_its_line_may_be_cut() -> None:
    for name, words in (
        (
            "client-udp-3-streams.txt",
            "[  1] 0.0000-1.0006 sec  1.25 MBytes  10.5 Mbits/sec   0.003 ms 0/895 (0%)\n",
        ),
        ("client-udp-3-streams.txt", "[  1] 0.0000-1.0006 sec  1 datagrams rec"),
        ("server-log-udp.txt", "[  1] 0.0000-1.0016 sec  1.26 MBytes  10.5 Mbits/sec   0.004 m"),
    ):
        received = cut_behind(sample(f"iperf2/{name}"), words).received
        assert received is not None
        assert received.out_of_order is None


def test_sums_may_have_the_number_of_streams() -> None:
    whole = sample("iperf2/client-2-streams.txt")
    assert parse(whole.replace("[SUM]", "[SUM-2]")) == parse(whole)
    assert len(parse(whole).streams) == 2


def test_server_alone_and_beside_its_client() -> None:
    server = parse(TCP_SERVER)
    assert (server.role, server.sent) == ("server", None)
    assert server.received is not None
    assert server.received.rate_bit_s == 89.5e6
    for text in (TCP + TCP_SERVER, TCP_SERVER + TCP):
        output = parse(text)
        assert output.role == "client"
        assert output.server == server
        assert output.warnings == ()


def test_further_tests_are_warned_about() -> None:
    output = parse(UDP + TCP)
    assert output.protocol == "UDP"
    assert any(warning.startswith("1 further") for warning in output.warnings)


def test_newer_rows() -> None:
    output = parse(
        "[  1] 0.00-10.02 sec  1.10 GBytes   941 Mbits/sec  8981/0          0     1234K/456 us  2580\n"
    )
    assert output.sent is not None
    assert (output.sent.rate_bit_s, output.invalid) == (941e6, ())
    assert any("no header" in warning for warning in output.warnings)


@pytest.mark.parametrize(
    ("rate", "valid"),
    [("94.3 Mbits", True), ("11.2 MBytes", True), ("99.9 Mbits", False), ("9.43 Gbits", False)],
)
def test_rate_against_bytes_and_seconds(rate: str, valid: bool) -> None:
    output = parse(TCP.replace("94.3 Mbits", rate))
    assert (output.invalid == ()) is valid


REVERSE = """Client connecting to 10.0.0.2, TCP port 5001
[  1] local 10.0.0.1 port 40000 connected with 10.0.0.2 port 5001 (reverse)
[ ID] Interval       Transfer     Bandwidth
[ *1] 0.00-5.00 sec  22.4 MBytes  37.6 Mbits/sec
[ *1] 0.00-10.13 sec  45.5 MBytes  37.7 Mbits/sec
"""
FULL_DUPLEX = """Client connecting to 10.0.0.2, TCP port 5001
[  1] local 10.0.0.1 port 40000 connected with 10.0.0.2 port 5001 (full-duplex)
[  1] 0.0000-1.0000 sec  2.24 GBytes  19.3 Gbits/sec
[ *1] 0.0000-1.0000 sec  1.24 GBytes  10.6 Gbits/sec
[  1] 0.0000-3.0000 sec  6.42 GBytes  18.4 Gbits/sec
[ *1] 0.0000-3.0054 sec  4.32 GBytes  12.3 Gbits/sec
"""


def test_what_comes_back_is_told_apart() -> None:
    """A row of ``[ *1]`` was none at all, so -R was refused and the half of --full-duplex lost."""
    output = parse(REVERSE)
    assert (output.role, output.sent, output.invalid, output.warnings) == ("client", None, (), ())
    assert output.received is not None
    assert (output.received.rate_bit_s, output.received.seconds) == (37.7e6, 10.13)
    assert [(stream.id, stream.sent) for stream in output.streams] == [("1", None)]
    sender = parse(REVERSE.replace("Client connecting to 10.0.0.2,", "Server listening on"))
    assert (sender.role, sender.sent, sender.received) == ("server", output.received, None)
    both = parse(FULL_DUPLEX)
    assert (both.received, both.reverse_sent, both.invalid) == (None, None, ())
    assert both.sent is not None and both.reverse_received is not None
    assert (both.sent.rate_bit_s, both.reverse_received.rate_bit_s) == (18.4e9, 12.3e9)
    assert [stream.id for stream in both.streams] == ["1", "*1"]
    at_server = parse(FULL_DUPLEX.replace("Client connecting to 10.0.0.2,", "Server listening on"))
    assert (at_server.received, at_server.reverse_sent) == (both.sent, both.reverse_received)
    assert (at_server.sent, at_server.reverse_received) == (None, None)


def test_what_comes_back_has_sums_and_losses() -> None:
    second = REVERSE.partition("Bandwidth\n")[2].replace("*1", "*2")
    output = parse(REVERSE + second + "[SUM] 0.00-10.13 sec  91.0 MBytes  75.4 Mbits/sec\n")
    assert output.invalid == () and output.received is not None
    assert output.received.rate_bit_s == 75.4e6
    lossy = parse(
        REVERSE.replace("TCP", "UDP").replace("37.7 Mbits/sec", "37.7 Mbits/sec   0.032 ms  16/32500 (0.05%)")
    )
    assert (lossy.protocol, lossy.sent, lossy.invalid) == ("UDP", None, ()) and lossy.received is not None
    assert (lossy.received.lost, lossy.received.jitter_ns) == (16, 32_000)


@pytest.mark.parametrize(
    ("figures", "jitter_ns"),
    [
        # Formats of Locale.c: --trip-times, --bounceback, --histograms of writes, bursts.
        ("45.1/2.3/85.1/14.430 ms (10/131072) 3.64 MByte 620  52=1:2:3:4:5:6:7:8", None),
        ("   100=0.165/0.101/0.411/0.042 ms    0   14K(10)/150(11) us  Tx=1.0 M Rx=1.0 M  RPS=998", None),
        ("8981/0          0     1234K(9)/456(7) us  2580  0.165/0.101/0.411/0.042 ms (8981)", None),
        ("    12.345 ms (1.2%)    52=1:2:3:4:5:6:7:8 620", None),
        ("  1.147 ms    0/  103 (0%) 13.345/10.950/94.259/12.519 ms   10 pps 13.7 Byte 0.08", 1_147_000),
        ("  1.147 ms 0/103 (0%) -/-/-/- ms 10 pps 1/2/3", 1_147_000),
    ],
)
def test_only_jitter_is_jitter(figures: str, jitter_ns: float | None) -> None:
    row = f"[  1] 0.00-10.02 sec  1.10 GBytes   941 Mbits/sec{figures}\n"
    output = parse(f"Server listening on TCP port 5001\n{row}")
    assert output.received is not None
    assert (output.received.jitter_ns, output.invalid) == (jitter_ns, ())


def test_of_no_datagrams_nothing_is_lost_or_wrong() -> None:
    output = parse(
        UDP.replace("106 MBytes  88.1 Mbits", "114 MBytes  95.4 Mbits").replace(
            "5729/81408 (7%)", "0/    0 (-nan%)"
        )
    )
    assert output.invalid == () and output.received is not None
    assert (output.received.datagrams, output.received.loss_percent) == (0, None)


def test_a_sum_with_the_first_interval_twice_is_added_up_again() -> None:
    """Servers of 2.0 make it so with -P and -i."""
    text = (
        "Server listening on TCP port 5001\n"
        "[  4]  0.0- 1.0 sec  11.2 MBytes  94.0 Mbits/sec\n"
        "[  5]  0.0- 1.0 sec  11.3 MBytes  94.8 Mbits/sec\n"
        "[SUM]  0.0- 1.0 sec  22.5 MBytes   189 Mbits/sec\n"
        "[  4]  0.0- 5.0 sec  56.0 MBytes  94.0 Mbits/sec\n"
        "[  5]  0.0- 5.0 sec  56.5 MBytes  94.8 Mbits/sec\n"
        "[SUM]  0.0- 5.0 sec   135 MBytes   226 Mbits/sec\n"
    )
    output = parse(text)
    assert output.invalid == () and output.received is not None
    assert output.received.rate_bit_s == pytest.approx(188.7e6, rel=0.001)
    assert output.warnings == ("received: [SUM] has the first interval twice, so the streams were added up",)
    assert "the streams add up to" in parse(text.replace("135 MBytes   226", "165 MBytes   277")).invalid[0]


def test_servers_of_2_0_14_count_each_interval_once() -> None:
    tcp = parse(sample("iperf2/server-2.0.14-tcp.txt"))
    assert (tcp.role, tcp.invalid, tcp.warnings, len(tcp.streams)) == ("server", (), (), 2)
    assert tcp.received is not None and tcp.received.rate_bit_s == 105e6
    udp = parse(sample("iperf2/server-2.0.14-udp.txt"))
    assert udp.invalid == () and udp.received is not None
    assert (udp.received.rate_bit_s, udp.received.lost, udp.received.datagrams) == (21e6, 2, 7140)
    assert udp.received.jitter_ns is None, "[SUM] says 0.000 ms, its streams 0.001 ms"
    assert udp.warnings == (
        "[SUM] counts 0 lost of 7140, its streams 2 of 7140: the streams' counts were taken",
    )


def test_an_interval_before_another_stream_connects_is_no_total() -> None:
    """A second client came while the first one's test went on."""
    output = parse(sample("iperf2/server-2.0.14-overlapping.txt"))
    assert (output.invalid, output.warnings, len(output.streams)) == ((), (), 3)
    assert output.received is not None
    assert (output.received.rate_bit_s, output.received.seconds) == (124e6, 5.5114)


def test_short_and_small_is_no_contradiction() -> None:
    assert parse("[  3]  0.0- 0.1 sec  1.44 KBytes   197 Kbits/sec\n").invalid == ()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(7%)", "(9%)", "make it 7.037 %"),
        ("(7%)", "(1e5%)", "the loss is 100000 %"),
        ("5729/81408", "81409/81408", "were lost"),
        ("(7%)", "(-nan%)", "loss is '-nan'"),
        ("5729/81408 (7%)", "-9/81408 (0%)", "were lost"),
        ("0.057 ms", "-nan ms", "jitter is '-nan'"),
        ("88.1 Mbits", "nan bits", "rate is 'nan'"),
        ("106 MBytes  88.1 Mbits", "0.00 Bytes  0.00 bits", "none received"),
        ("106 MBytes  88.1 Mbits", "126 MBytes  105 Mbits", "were received, but only"),
        ("Sent 81409 datagrams", "write failed: Broken pipe", "Broken pipe"),
        ("port 40000", "port 5001", "both directions"),
        ("0.057 ms", "4294967.295 ms", "the jitter is 4295 s, but it took 10.1 s"),
        ("0.057 ms", "-0.057 ms", "jitter is '-0.057': not a number from 0"),
    ],
)
def test_invalid(old: str, new: str, reason: str) -> None:
    output = parse(UDP.replace(old, new))
    (problem,) = output.invalid
    assert reason in problem
    assert output.received is None or (output.received.lost or 0) >= 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("connect failed: Connection refused\n", "Connection refused"),
        (TCP[: TCP.index("[  3]  0.0- 1.0")], "begins with"),
        ("[  3]  1.0- 2.0 sec  11.2 MBytes  94.4 Mbits/sec\n", "begins with"),
        ("20240101000000,10.0.0.1,40000,10.0.0.2,5001,3,0.0-10.0,117440512,93952409\n", "begins with"),
        ("Connecting to host 10.0.0.2, port 5201\n", "iperf3's"),
        ("[ " * 100_000, "begins with"),
        ("[  3]" * 100_000, "begins with"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_refused(text: str, reason: str) -> None:
    assert_refused(parse, text, reason)


def survives(text: bytes) -> Iperf2Output | None:
    try:
        output = parse(text)
    except UsageError:
        return None
    json.dumps(msgspec.to_builtins(output), allow_nan=False)
    return output


def test_cut_at_any_byte() -> None:
    for whole in (UDP.encode(), TCP.encode(), (TCP + TCP_SERVER).encode()):
        first_row = whole.index(b"[  3]  0.0")
        for length in range(len(whole)):
            output = survives(whole[:length])
            assert output is None or length > first_row


def test_garbled_bytes() -> None:
    whole = (UDP + TCP_SERVER).encode()
    for text in garbled(23, [whole], b"0123456789./,%-eEKM[] \n\xff", 3000):
        survives(text)


def manifest() -> list[dict[str, str]]:
    return listed(lambda file: "iperf2" in file)


@pytest.mark.skipif(not manifest(), reason="the collection of real outputs is not beside the project")
@pytest.mark.parametrize("row", manifest(), ids=lambda row: Path(row["file"]).stem)
def test_real_outputs(row: dict[str, str]) -> None:
    output = parse((OUTPUTS / row["file"]).read_bytes())
    assert (output.role, output.invalid, output.warnings) == ("client", (), ())
    udp = "UDP" in row["contains"]
    assert output.protocol == ("UDP" if udp else "TCP")
    total = output.received if udp else output.sent
    assert total is not None
    stated = row["first_write_or_received"]
    rate = re.search(r"([\d.]+) ([MG])bits/sec", stated)
    assert rate
    assert total.rate_bit_s == pytest.approx(float(rate[1]) * {"M": 1e6, "G": 1e9}[rate[2]])
    assert (output.received is not None) is udp
    if udp:
        assert total.out_of_order == 1
        assert f"{total.lost}/{total.datagrams} ({total.loss_percent:.2g}%)" in stated
        assert f" {(total.jitter_ns or 0) / 1e6:.3f} ms" in stated
    assert len(output.streams) == (2 if "two sources" in row["contains"] else 1)
