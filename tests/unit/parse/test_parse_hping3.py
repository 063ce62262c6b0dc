"""The parser of hping3's text: what it counts and what it does not, and that no input makes it fall over."""

from __future__ import annotations

import re
import time

import pytest

from harness.model.errors import UsageError
from harness.parse.echo import EchoRun
from harness.parse.echo import parse_hping3 as parse
from tests.unit.parse.checks import Says, has
from tests.unit.parsing import OUTPUTS, real_outputs, sample

HEADER = "HPING host (eth0 10.0.0.2): S set, 40 headers + 0 data bytes\n"
REPLIES = "".join(
    f"len=46 ip=10.0.0.2 ttl=64 DF id=0 sport=80 flags=SA seq={number} win=512 rtt=1.5 ms\n"
    for number in (0, 2, 1, 3)
)
SUMMARY = """
--- host hping statistic ---
6 packets tramitted, 4 packets received, 34% packet loss
round-trip min/avg/max = 1.0/1.5/9.0 ms
"""
WHOLE = HEADER + REPLIES + SUMMARY


def only(text: str) -> EchoRun:
    (run,) = parse(text).runs
    return run


def test_summary() -> None:
    run = only(WHOLE)
    has(run, destination="host", transmitted=6, received=4, loss_percent=34, duplicates=0)
    has(run, rtt_min_ns=1e6, rtt_avg_ns=1.5e6, rtt_max_ns=9e6, elapsed_ns=None, invalid=())
    assert only(WHOLE.replace("tramitted", "transmitted")) == only(" ".join(WHOLE.split())) == run
    assert only("$ hping3 host\n" + SUMMARY + HEADER + REPLIES) == run, "the replies come last"
    has(only(sample("hping3/syn.txt")), received=5, duplicates=0)
    has(
        only(HEADER + SUMMARY.replace("loss\n", "loss\n2 out of sequence packets received\n")),
        rtt_avg_ns=1.5e6,
    )
    reported = HEADER + REPLIES.splitlines(keepends=True)[0] + REPLIES.replace("len", "DUP! len", 1)
    assert only(reported + SUMMARY).duplicates == 1
    run = only(reported + SUMMARY.replace("4 packets received, 34%", "7 packets received, -17%"))
    has(run, received=7, loss_percent=None, invalid=())


def test_output_of_time() -> None:
    for appended, elapsed_ns in (
        ("real 0m2.635s\nuser 0m0.368s\nsys 0m1.160s\n", 2.635e9),
        ("\nreal\t2m1,500s\nuser\t0m0,100s\n", 121.5e9),
        ("real 3.25\nuser 0.10\nsys 0.20\n", 3.25e9),
        ("unreal 3.25\n", None),
        ("real 0m2.6", None),
        ("real 3.2", None),
    ):
        assert only(SUMMARY + appended).elapsed_ns == elapsed_ns, appended
    output = parse(WHOLE + "real 0m1.000s\n" + HEADER + SUMMARY)
    assert [run.elapsed_ns for run in output.runs] == [1e9, None]
    started = time.process_time()
    parse("len=1 ip=a " * 50_000 + WHOLE)
    assert time.process_time() - started < 5


NOTHING = (
    "7 packets tramitted, 0 packets received, 100% packet loss\nround-trip min/avg/max = 0.0/0.0/0.0 ms\n"
)


def test_flood_takes_no_replies_in_and_no_reply_has_no_times() -> None:
    for before in ("$ hping3 --flood host\n", "hping in flood mode, no replies will be shown\n"):
        output = parse(before + NOTHING)
        (run,) = output.runs
        has(run, transmitted=7, received=None, loss_percent=None, rtt_avg_ns=None, invalid=())
        assert output.warnings == Says("flood")
    output = parse("ICMP Port Unreachable from ip=10.0.0.2 get hostname...\n" + NOTHING)
    (run,) = output.runs
    has(run, received=0, loss_percent=100, rtt_min_ns=None, rtt_avg_ns=None)
    assert output.warnings == (came_back(1),)


UNREACHABLE = "ICMP Port Unreachable from ip=10.0.0.2 name=UNKNOWN\n"
TEN = (
    "\n--- host hping statistic ---\n10 packets tramitted, 10 packets received, 0% packet loss\n"
    "round-trip min/avg/max = 0.0/0.0/0.0 ms\n"
)


def came_back(count: int) -> str:
    return f"ICMP errors came back: {count}; hping3 may count them as received"


def test_icmp_errors_are_counted_as_received() -> None:
    closed = parse(sample("hping3/udp-to-closed-port.txt"))
    has(closed.runs[0], received=5, errors=5, rtt_avg_ns=8e5)
    ten = parse("HPING host (eth0 10.0.0.2): udp mode set\n" + 10 * UNREACHABLE + TEN)
    # 0.0 is no time.
    has(ten.runs[0], received=10, errors=10, invalid=(), rtt_min_ns=None, rtt_avg_ns=None, rtt_max_ns=None)
    assert came_back(10) in ten.warnings and ten.warnings == Says("prints 0.0")
    late = parse(REPLIES + "TTL 0 during transit from ip=10.0.0.1\n" + SUMMARY)
    three = parse(3 * UNREACHABLE + SUMMARY)
    assert late.runs[0].errors == len(closed.runs) == len(ten.runs) == 1
    for output, count in ((closed, 5), (late, 1), (three, 3)):
        assert output.warnings == (came_back(count),)


def test_invalid() -> None:
    for old, new, reason in (
        ("4 packets received", "8 packets received", "only 6 transmitted"),
        ("34%", "32%", "make it 33.33 %"),
        ("6 packets", "0 packets", "no packet was transmitted"),
        ("1.0/1.5/9.0", "1.0/9.5/9.0", "not in this order"),
        ("1.0/1.5/9.0", "1.0/nan/9.0", "avg is 'nan'"),
    ):
        (problem,) = only(WHOLE.replace(old, new)).invalid
        assert reason in problem, old


def test_packets_are_sent_while_the_summary_is_printed() -> None:
    for transmitted, received, loss, is_valid in (
        (1375, 78, 93, True),  # of 975 to 1114, on a busy machine
        (1114, 78, 93, True),
        (1375, 78, 95, True),  # of all
        (1375, 78, 96, False),  # of 1561 and more
        (1375, 0, 93, False),
        (6, 4, 32, False),
        (6, 4, 101, False),
    ):
        counts = f"{transmitted} packets tramitted, {received} packets received, {loss}% packet loss"
        run = only(HEADER + re.sub(".* packet loss", counts, SUMMARY))
        has(run, transmitted=transmitted, received=received)
        assert (run.invalid == ()) is is_valid, run


@real_outputs(lambda file: "hping3" in file)
def test_real_outputs(row: dict[str, str]) -> None:
    text = (OUTPUTS / row["file"]).read_bytes()
    if row["first_read_or_sent"] == "no summary":
        with pytest.raises(UsageError, match="Operation not permitted"):
            parse(text)
        return
    (run,) = parse(text).runs
    assert run.invalid == ()
    flood = "flood" in row["contains"]
    received = 0 if flood else run.received
    assert f"{run.transmitted} packets tra" in row["first_read_or_sent"]
    assert f"{received} packets received" in row["first_read_or_sent"]
    assert (run.loss_percent is None) is flood
    assert (run.elapsed_ns is not None) is ("`time`" in row["contains"])
    if run.received:
        assert run.rtt_avg_ns is not None
        assert f"/{run.rtt_avg_ns / 1e6:.1f}/" in row["first_write_or_received"]
    else:
        assert run.rtt_avg_ns is None
