"""The parser of ping's text: dialects, contradictions, and that no input makes it fall over."""

from __future__ import annotations

import re

from harness.parse.echo import EchoRun
from harness.parse.echo import parse_ping as parse
from tests.unit.parse.checks import Says, has, known, refused
from tests.unit.parsing import OUTPUTS, real_outputs

TIMES = "rtt min/avg/max/mdev = 0.500/1.250/2.000/0.559 ms"
LINUX = f"""PING host (10.0.0.2) 56(84) bytes of data.
64 bytes from host (10.0.0.2): icmp_seq=1 ttl=64 time=0.500 ms

--- host ping statistics ---
5 packets transmitted, 4 received, 20% packet loss, time 4005ms
{TIMES}
"""
WINDOWS = """
Pinging host [10.0.0.2] with 32 bytes of data:
Reply from 10.0.0.2: bytes=32 time<1ms TTL=64
Reply from 10.0.0.2: bytes=32 time=13ms TTL=64

Ping statistics for 10.0.0.2:
    Packets: Sent = 2, Received = 2, Lost = 0 (0% loss),
Approximate round trip times in milli-seconds:
    Minimum = 0ms, Maximum = 13ms, Average = 6ms
"""
WINDOWS_IN_GERMAN = """
Ping wird ausgef\u00fchrt f\u00fcr host [10.0.0.2] mit 32 Bytes Daten:
Antwort von 10.0.0.2: Bytes=32 Zeit=13ms TTL=64
"""


def only(text: str) -> EchoRun:
    (run,) = parse(text).runs
    return run


def test_iputils() -> None:
    run = only(LINUX)
    has(run, destination="host", transmitted=5, received=4, loss_percent=20, duplicates=0, errors=0)
    has(run, elapsed_ns=4_005_000_000, invalid=())
    has(run, rtt_min_ns=500_000, rtt_avg_ns=1_250_000, rtt_max_ns=2_000_000, rtt_mdev_ns=559_000)
    too_long = "9007199254740993"  # that no ping takes
    why = f"time is '{too_long}': not a number from 0 to below 2^63"
    has(only(LINUX.replace("4005", too_long)), elapsed_ns=None, invalid=(why,))
    assert only(" ".join(LINUX.split())) == only(LINUX.replace("\n", "\r\n")) == run


def counts(transmitted: int, received: int, rest: str) -> str:
    return f"{transmitted} packets transmitted, {received} {rest}"


def test_dialects() -> None:
    for text, expected in (
        (  # busybox
            counts(3, 2, "packets received, 1 duplicates, 33% packet loss\n")
            + "round-trip min/avg/max = 1.000/2.000/3.000 ms\n",
            {"duplicates": 1, "loss_percent": 33, "rtt_max_ns": 3e6, "rtt_mdev_ns": None, "elapsed_ns": None},
        ),
        (  # macOS, FreeBSD
            counts(3, 2, "packets received, +13 duplicates, 33.3% packet loss\n")
            + "round-trip min/avg/max/stddev = 1.000/2.000/3.000/0.500 ms\n",
            {"duplicates": 13, "loss_percent": 33.3, "rtt_mdev_ns": 5e5},
        ),
        (  # OpenBSD
            counts(2, 2, "packets received, 0.0% packet loss\n")
            + "round-trip min/avg/max/std-dev = 1.0/2.0/3.0/0.5 ms\n",
            {"rtt_mdev_ns": 5e5},
        ),
        (  # errors and no round-trip times
            counts(4, 0, "received, +3 errors, 100% packet loss, time 3060ms\npipe 3\n"),
            {"errors": 3, "loss_percent": 100, "rtt_avg_ns": None, "rtt_min_ns": None},
        ),
        (
            counts(4, 4, "received, +2 corrupted, +1 duplicates, 0% packet loss, time 3ms\n"),
            {"corrupted": 2, "duplicates": 1},
        ),
        (  # a flood, wrapped
            counts(4380, 4370, "received, 0.228311% packet\nloss, time 16299ms\n")
            + "rtt min/avg/max/mdev =\n0.1/0.2/0.3/0.1 ms, pipe 28, ipg/ewma\n12.413/7.802 ms\n",
            {"loss_percent": 0.228311},
        ),
        # a locale with a decimal comma
        (counts(1000, 996, "received, 0,4% packet loss, time 5ms"), {"loss_percent": 0.4}),
        (counts(3000000, 2999999, "received, 3.33333e-05% packet loss, time 5ms"), {}),
        (counts(0, 0, "received"), {"loss_percent": None, "invalid": ("no packet was transmitted",)}),
        (
            counts(2, 4, "packets received, +2 duplicates, -- somebody's printing up packets!\n"),
            {"received": 4, "loss_percent": None},
        ),
        (counts(3, 2, "packets received, 33% packet loss"), {}),
        (counts(3, 1, "packets received, 66.7% packet loss"), {}),
    ):
        has(only(text), **{"invalid": (), **expected})


def test_several_runs() -> None:
    lost = "--- other ping statistics ---\n7 packets transmitted, 0 received, 100% packet loss, time 6ms\n"
    output = parse(LINUX + lost + LINUX)
    host = ("host", 1_250_000)
    assert [(run.destination, run.rtt_avg_ns) for run in output.runs] == [host, ("other", None), host]
    assert output.warnings == ()
    # Odd lines do not matter.
    odd = LINUX.replace("\n\n", "\nfrom: icmp_seq=nine\n\x1b[1mnonsense 5 packets\n\n")
    assert parse(odd) == parse(LINUX)
    output = parse(LINUX.replace(TIMES, "") + "PING host (10.0.0.2) 56(84) bytes of data.\n")
    has(output.runs[0], rtt_avg_ns=None, invalid=())
    assert output.warnings == Says("-s") and output.warnings == Says("only 1 end")


def test_invalid() -> None:
    for old, new, reason in (
        ("4 received", "6 received", "6 packets were received, but only 5 transmitted"),
        ("4 received, 20%", "3 received, 20%", "make it 40 %"),
        ("20%", "22%", "make it 20 %"),
        ("20%", "nan%", "loss is 'nan'"),
        (", 20% packet loss, time 4005ms", ", 20", "packet loss is missing"),
        ("0.500/1.250/2.000", "1.500/1.250/2.000", "not in this order"),
        ("2.000/0.559 ms", "2.0", "ends within its round-trip times"),
        ("0.500/1.250/2.000", "-nan/1.250/2.000", "min is '-nan'"),
        ("4 received, 20%", "0 received, 100%", "nothing was received"),
        ("1.250", "99999999999999999", "avg is"),
    ):
        (problem,) = only(LINUX.replace(old, new)).invalid
        assert reason in problem, old


GERMAN = """PING 127.0.0.1 (127.0.0.1) 56(84) Bytes an Daten.
64 Bytes von 127.0.0.1: icmp_seq=1 ttl=64 Zeit=0.038 ms

--- 127.0.0.1 Ping-Statistiken ---
4 Pakete übertragen, 4 empfangen, 0% Paketverlust, Zeit 3005ms
rtt min/avg/max/mdev = 0.038/0.047/0.080/0.011 ms
"""
FRENCH = """--- localhost statistiques ping ---
4 paquets transmis, 3 reçus, +1 erreurs, 25% packet loss, time 3050ms
"""


def test_another_language_is_reported_with_the_remedy() -> None:
    for text in (GERMAN, FRENCH, " ".join(GERMAN.split())):
        refusal = refused(parse, text)
        assert re.search(r"a text that (ends before it|begins with)", str(refusal))
        assert refusal.hint is not None and "LC_ALL=C" in refusal.hint


@real_outputs(lambda file: file.startswith("ping/") or "-ping" in file)
def test_real_outputs(row: dict[str, str]) -> None:
    output = parse((OUTPUTS / row["file"]).read_bytes())
    assert len(output.runs) == (15 if "15 summaries" in row["contains"] else 1)
    assert all(run.invalid == () for run in output.runs)
    run = output.runs[0]
    stated = row["first_read_or_sent"]
    assert f"{run.transmitted} packets transmitted, {run.received} " in stated
    assert f"{run.loss_percent:g}%" in stated.replace(".0%", "%")
    assert not run.duplicates or f"+{run.duplicates} duplicates" in stated
    trip = (run.rtt_min_ns, run.rtt_avg_ns, run.rtt_max_ns)
    times = row["first_write_or_received"]
    if "min/avg/max" in times:
        assert f"= {'/'.join(f'{known(ns) / 1e6:.3f}' for ns in trip)}" in times
    else:
        assert run.rtt_avg_ns is None
