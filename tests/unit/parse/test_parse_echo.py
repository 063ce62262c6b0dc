"""The parsers of what ping and hping3 print: dialects, contradictions, what is counted and what is not."""

from __future__ import annotations

import re
import time

import pytest

from harness.model.errors import UsageError
from harness.parse.echo import EchoRun, parse_hping3, parse_ping
from tests.unit.parsing import OUTPUTS, Says, has, known, real_outputs, refused, sample

TIMES = "rtt min/avg/max/mdev = 0.500/1.250/2.000/0.559 ms"
LINUX = f"""PING host (10.0.0.2) 56(84) bytes of data.
64 bytes from host (10.0.0.2): icmp_seq=1 ttl=64 time=0.500 ms

--- host ping statistics ---
5 packets transmitted, 4 received, 20% packet loss, time 4005ms
{TIMES}
"""


def ping(text: str) -> EchoRun:
    (run,) = parse_ping(text).runs
    return run


def test_iputils() -> None:
    run = ping(LINUX)
    has(run, destination="host", transmitted=5, received=4, loss_percent=20, duplicates=0, errors=0)
    has(run, elapsed_ns=4_005_000_000, invalid=())
    has(run, rtt_min_ns=500_000, rtt_avg_ns=1_250_000, rtt_max_ns=2_000_000, rtt_mdev_ns=559_000)
    too_long = "9007199254740993"  # that no ping takes
    why = f"time is '{too_long}': not a number from 0 to below 2^63"
    has(ping(LINUX.replace("4005", too_long)), elapsed_ns=None, invalid=(why,))
    assert ping(" ".join(LINUX.split())) == ping(LINUX.replace("\n", "\r\n")) == run


def counted(transmitted: int, rest: str, **expected: object) -> None:
    """So many packets transmitted, and what else ping says, make a run that has what is expected."""
    has(ping(f"{transmitted} packets transmitted, {rest}"), **{"invalid": (), **expected})


def test_dialects() -> None:
    bare, trip = "packets received, 1 duplicates, 33% packet loss", "round-trip min/avg/max"
    of_busybox: dict[str, object] = {"rtt_max_ns": 3e6, "rtt_mdev_ns": None, "elapsed_ns": None}
    counted(3, f"2 {bare}\n{trip} = 1.000/2.000/3.000 ms\n", duplicates=1, loss_percent=100 / 3, **of_busybox)
    macos = f"2 packets received, +13 duplicates, 33.3% packet loss\n{trip}/stddev = 1.0/2.0/3.0/0.5 ms\n"
    counted(3, macos, duplicates=13, loss_percent=100 / 3, rtt_mdev_ns=5e5)
    openbsd = f"2 packets received, 0.0% packet loss\n{trip}/std-dev = 1.0/2.0/3.0/0.5 ms\n"
    counted(2, openbsd, rtt_mdev_ns=5e5)
    unreached = "0 received, +3 errors, 100% packet loss, time 3060ms\npipe 3\n"
    counted(4, unreached, errors=3, loss_percent=100, rtt_avg_ns=None, rtt_min_ns=None)
    damaged = "4 received, +2 corrupted, +1 duplicates, 0% packet loss, time 3ms\n"
    counted(4, damaged, corrupted=2, duplicates=1)
    flood = "4370 received, 0.228311% packet\nloss, time 16299ms\nrtt min/avg/max/mdev =\n0.1/0.2/0.3/0.1 ms"
    counted(4380, f"{flood}, pipe 28, ipg/ewma\n12.413/7.802 ms\n", loss_percent=1000 / 4380)
    counted(1000, "996 received, 0,4% packet loss, time 5ms", loss_percent=0.4)  # a locale with a comma
    counted(3000000, "2999999 received, 3.33333e-05% packet loss, time 5ms")
    counted(0, "0 received", loss_percent=None, invalid=("no packet was transmitted",))
    many = "4 packets received, +2 duplicates, -- somebody's printing up packets!\n"
    counted(2, many, received=4, loss_percent=None)
    counted(3, "2 packets received, 33% packet loss")
    counted(3, "1 packets received, 66.7% packet loss")


def test_several_runs() -> None:
    lost = "--- other ping statistics ---\n7 packets transmitted, 0 received, 100% packet loss, time 6ms\n"
    output = parse_ping(LINUX + lost + LINUX)
    host = ("host", 1_250_000)
    assert [(run.destination, run.rtt_avg_ns) for run in output.runs] == [host, ("other", None), host]
    assert output.warnings == ()
    # Odd lines do not matter.
    odd = LINUX.replace("\n\n", "\nfrom: icmp_seq=nine\n\x1b[1mnonsense 5 packets\n\n")
    assert parse_ping(odd) == parse_ping(LINUX)
    output = parse_ping(LINUX.replace(TIMES, "") + "PING host (10.0.0.2) 56(84) bytes of data.\n")
    has(output.runs[0], rtt_avg_ns=None, invalid=())
    assert output.warnings == Says("-s") and output.warnings == Says("only 1 end")


def test_another_language_is_reported_with_the_remedy() -> None:
    german = "64 Bytes von 127.0.0.1: icmp_seq=1 ttl=64 Zeit=0.038 ms\n4 Pakete übertragen, 4 empfangen\n"
    french = "4 paquets transmis, 3 reçus, +1 erreurs, 25% packet loss, time 3050ms\n"
    for text in (german, french, " ".join(german.split())):
        refusal = refused(parse_ping, text)
        assert re.search(r"a text that (ends before it|begins with)", str(refusal))
        assert refusal.hint is not None and "LC_ALL=C" in refusal.hint


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


def hping3(text: str) -> EchoRun:
    (run,) = parse_hping3(text).runs
    return run


def test_summary_of_hping3() -> None:
    run = hping3(WHOLE)
    has(run, destination="host", transmitted=6, received=4, loss_percent=200 / 6, duplicates=0)
    has(run, rtt_min_ns=1e6, rtt_avg_ns=1.5e6, rtt_max_ns=9e6, elapsed_ns=None, invalid=())
    assert hping3(WHOLE.replace("tramitted", "transmitted")) == hping3(" ".join(WHOLE.split())) == run
    assert hping3("$ hping3 host\n" + SUMMARY + HEADER + REPLIES) == run, "the replies come last"
    has(hping3(sample("hping3/syn.txt")), received=5, duplicates=0)
    of_hping2 = WHOLE[: WHOLE.index("round-trip")].replace("tramitted", "trasmitted")
    has(hping3(of_hping2), transmitted=6, received=4, rtt_avg_ns=None, invalid=())
    assert parse_hping3(of_hping2).warnings == Says("hping2 prints none")
    out_of_order = SUMMARY.replace("loss\n", "loss\n2 out of sequence packets received\n")
    has(hping3(HEADER + out_of_order), rtt_avg_ns=1.5e6)
    reported = HEADER + REPLIES.splitlines(keepends=True)[0] + REPLIES.replace("len", "DUP! len", 1)
    assert hping3(reported + SUMMARY).duplicates == 1
    run = hping3(reported + SUMMARY.replace("4 packets received, 34%", "7 packets received, -17%"))
    has(run, received=7, loss_percent=None, invalid=())


def test_output_of_time_behind_it() -> None:
    for appended, elapsed_ns in (
        ("real 0m2.635s\nuser 0m0.368s\nsys 0m1.160s\n", 2.635e9),
        ("\nreal\t2m1,500s\nuser\t0m0,100s\n", 121.5e9),
        ("real 3.25\nuser 0.10\nsys 0.20\n", 3.25e9),
        ("unreal 3.25\n", None),
        ("real 0m2.6", None),
        ("real 3.2", None),
    ):
        assert hping3(SUMMARY + appended).elapsed_ns == elapsed_ns, appended
    output = parse_hping3(WHOLE + "real 0m1.000s\n" + HEADER + SUMMARY)
    assert [run.elapsed_ns for run in output.runs] == [1e9, None]
    started = time.process_time()
    parse_hping3("len=1 ip=a " * 50_000 + WHOLE)
    assert time.process_time() - started < 5


def came_back(count: int) -> str:
    return f"ICMP errors came back: {count}; hping3 may count them as received"


def test_flood_takes_no_replies_in_and_no_reply_has_no_times() -> None:
    nothing = SUMMARY.replace("6", "7").replace(" 4 ", " 0 ").replace("34", "100")
    nothing = nothing.replace("1.0/1.5/9.0", "0.0/0.0/0.0")
    for before in ("$ hping3 --flood host\n", "hping in flood mode, no replies will be shown\n"):
        output = parse_hping3(before + nothing)
        (run,) = output.runs
        has(run, transmitted=7, received=None, loss_percent=None, rtt_avg_ns=None, invalid=())
        assert output.warnings == Says("flood")
    output = parse_hping3("ICMP Port Unreachable from ip=10.0.0.2 get hostname...\n" + nothing)
    (run,) = output.runs
    has(run, received=0, loss_percent=100, rtt_min_ns=None, rtt_avg_ns=None)
    assert output.warnings == (came_back(1),)


def test_icmp_errors_are_counted_as_received() -> None:
    closed = parse_hping3(sample("hping3/udp-to-closed-port.txt"))
    has(closed.runs[0], received=5, errors=5, rtt_avg_ns=8e5)
    unreachable = "ICMP Port Unreachable from ip=10.0.0.2 name=UNKNOWN\n"
    summary = SUMMARY.replace("6 packets tramitted, 4", "10 packets tramitted, 10").replace("34%", "0%")
    ten = parse_hping3(10 * unreachable + summary.replace("1.0/1.5/9.0", "0.0/0.0/0.0"))
    # 0.0 is no time.
    has(ten.runs[0], received=10, errors=10, invalid=(), rtt_min_ns=None, rtt_avg_ns=None, rtt_max_ns=None)
    assert came_back(10) in ten.warnings and ten.warnings == Says("prints 0.0")
    late = parse_hping3(REPLIES + "TTL 0 during transit from ip=10.0.0.1\n" + SUMMARY)
    three = parse_hping3(3 * unreachable + SUMMARY)
    assert late.runs[0].errors == len(closed.runs) == len(ten.runs) == 1
    for output, count in ((closed, 5), (late, 1), (three, 3)):
        assert output.warnings == (came_back(count),)


def test_contradictions_make_a_run_invalid() -> None:
    for old, new, reason in (
        ("4 received", "6 received", "6 packets were received, but only 5 transmitted"),
        ("4 received, 20%", "3 received, 20%", "make it 40 %"),
        ("20%", "22%", "make it 20 %"),
        ("20%", "nan%", "loss is 'nan'"),
        (", 20% packet loss, time 4005ms", ", 20", "packet loss is missing"),
        ("0.500/1.250/2.000", "1.500/1.250/2.000", "out of order"),
        ("2.000/0.559 ms", "2.0", "ends within its round-trip times"),
        ("0.500/1.250/2.000", "-nan/1.250/2.000", "min is '-nan'"),
        ("4 received, 20%", "0 received, 100%", "nothing was received"),
        ("1.250", "99999999999999999", "avg is"),
    ):
        (problem,) = ping(LINUX.replace(old, new)).invalid
        assert reason in problem, old
    for old, new, reason in (
        ("4 packets received", "8 packets received", "only 6 transmitted"),
        ("34%", "32%", "make it 33.33 %"),
        ("6 packets", "0 packets", "no packet was transmitted"),
        ("1.0/1.5/9.0", "1.0/9.5/9.0", "out of order"),
        ("1.0/1.5/9.0", "1.0/nan/9.0", "avg is 'nan'"),
    ):
        (problem,) = hping3(WHOLE.replace(old, new)).invalid
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
        run = hping3(HEADER + re.sub(".* packet loss", counts, SUMMARY))
        has(run, transmitted=transmitted, received=received)
        assert (run.invalid == ()) is is_valid, run


@real_outputs(lambda file: file.startswith("ping/") or "-ping" in file)
def test_real_outputs_of_ping(row: dict[str, str]) -> None:
    output = parse_ping((OUTPUTS / row["file"]).read_bytes())
    assert len(output.runs) == (15 if "15 summaries" in row["contains"] else 1)
    assert all(run.invalid == () for run in output.runs)
    run = output.runs[0]
    stated, times = row["first_read_or_sent"], row["first_write_or_received"]
    assert f"{run.transmitted} packets transmitted, {run.received} " in stated
    stated_loss = float(stated.split("% packet loss")[0].split()[-1])
    assert 0 <= known(run.loss_percent) - stated_loss < 1  # most versions cut it
    assert not run.duplicates or f"+{run.duplicates} duplicates" in stated
    if "min/avg/max" in times:
        trip = (run.rtt_min_ns, run.rtt_avg_ns, run.rtt_max_ns)
        assert f"= {'/'.join(f'{known(ns) / 1e6:.3f}' for ns in trip)}" in times
    else:
        assert run.rtt_avg_ns is None


@real_outputs(lambda file: "hping3" in file)
def test_real_outputs_of_hping3(row: dict[str, str]) -> None:
    text = (OUTPUTS / row["file"]).read_bytes()
    if row["first_read_or_sent"] == "no summary":
        with pytest.raises(UsageError, match="Operation not permitted"):
            parse_hping3(text)
        return
    (run,) = parse_hping3(text).runs
    assert run.invalid == ()
    flood = "flood" in row["contains"]
    assert f"{run.transmitted} packets tra" in row["first_read_or_sent"]
    assert f"{0 if flood else run.received} packets received" in row["first_read_or_sent"]
    assert (run.loss_percent is None) is flood
    assert (run.elapsed_ns is not None) is ("`time`" in row["contains"])
    assert (run.rtt_avg_ns is not None) is bool(run.received)
    if run.received:
        assert f"/{known(run.rtt_avg_ns) / 1e6:.1f}/" in row["first_write_or_received"]
