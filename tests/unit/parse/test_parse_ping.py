"""The parser of ping's text: dialects, contradictions, and that no input makes it fall over."""

from __future__ import annotations

import pytest

from harness.model.errors import UsageError
from harness.parse.echo import EchoRun
from harness.parse.echo import parse_ping as parse
from tests.unit.parsing import OUTPUTS, real_outputs

COUNTS = "5 packets transmitted, 4 received, 20% packet loss, time 4005ms"
TIMES = "rtt min/avg/max/mdev = 0.500/1.250/2.000/0.559 ms"
LINUX = f"""PING host (10.0.0.2) 56(84) bytes of data.
64 bytes from host (10.0.0.2): icmp_seq=1 ttl=64 time=0.500 ms

--- host ping statistics ---
{COUNTS}
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
    assert (run.destination, run.transmitted, run.received) == ("host", 5, 4)
    assert (run.loss_percent, run.duplicates, run.errors, run.invalid) == (20, 0, 0, ())
    assert run.elapsed_ns == 4_005_000_000
    assert (run.rtt_min_ns, run.rtt_avg_ns, run.rtt_max_ns) == (500_000, 1_250_000, 2_000_000)
    assert run.rtt_mdev_ns == 559_000


def test_a_time_that_no_ping_takes_is_not_known() -> None:
    run = only(LINUX.replace("4005ms", "9007199254740993ms"))
    assert run.elapsed_ns is None
    assert run.invalid == ("time is '9007199254740993': not a number from 0 to below 2^63",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # busybox
            "3 packets transmitted, 2 packets received, 1 duplicates, 33% packet loss\n"
            "round-trip min/avg/max = 1.000/2.000/3.000 ms\n",
            {"duplicates": 1, "loss_percent": 33, "rtt_max_ns": 3e6, "rtt_mdev_ns": None, "elapsed_ns": None},
        ),
        (  # macOS, FreeBSD
            "3 packets transmitted, 2 packets received, +13 duplicates, 33.3% packet loss\n"
            "round-trip min/avg/max/stddev = 1.000/2.000/3.000/0.500 ms\n",
            {"duplicates": 13, "loss_percent": 33.3, "rtt_mdev_ns": 5e5},
        ),
        (  # OpenBSD
            "2 packets transmitted, 2 packets received, 0.0% packet loss\n"
            "round-trip min/avg/max/std-dev = 1.0/2.0/3.0/0.5 ms\n",
            {"rtt_mdev_ns": 5e5},
        ),
        (  # errors and no round-trip times
            "4 packets transmitted, 0 received, +3 errors, 100% packet loss, time 3060ms\npipe 3\n",
            {"errors": 3, "loss_percent": 100, "rtt_avg_ns": None, "rtt_min_ns": None},
        ),
        (
            "4 packets transmitted, 4 received, +2 corrupted, +1 duplicates, 0% packet loss, time 3ms\n",
            {"corrupted": 2, "duplicates": 1},
        ),
        (  # a flood, wrapped
            "4380 packets transmitted, 4370 received, 0.228311% packet\nloss, time 16299ms\n"
            "rtt min/avg/max/mdev =\n0.1/0.2/0.3/0.1 ms, pipe 28, ipg/ewma\n12.413/7.802 ms\n",
            {"loss_percent": 0.228311},
        ),
        (  # a locale with a decimal comma
            "1000 packets transmitted, 996 received, 0,4% packet loss, time 5ms",
            {"loss_percent": 0.4},
        ),
        ("3000000 packets transmitted, 2999999 received, 3.33333e-05% packet loss, time 5ms", {}),
        ("0 packets transmitted, 0 received", {"loss_percent": None}),
    ],
)
def test_dialects(text: str, expected: dict[str, float | None]) -> None:
    run = only(text)
    assert run.invalid == (() if run.transmitted else ("no packet was transmitted",))
    assert {name: getattr(run, name) for name in expected} == expected


def test_all_on_one_line() -> None:
    assert only(" ".join(LINUX.split())) == only(LINUX)
    assert only(LINUX.replace("\n", "\r\n")) == only(LINUX)


def test_several_runs() -> None:
    lost = "--- other ping statistics ---\n7 packets transmitted, 0 received, 100% packet loss, time 6ms\n"
    output = parse(LINUX + lost + LINUX)
    assert [run.destination for run in output.runs] == ["host", "other", "host"]
    assert [run.rtt_avg_ns for run in output.runs] == [1_250_000, None, 1_250_000]
    assert output.warnings == ()


def test_odd_lines_do_not_matter() -> None:
    odd = LINUX.replace("\n\n", "\nfrom: icmp_seq=nine\n\x1b[1mnonsense 5 packets\n\n")
    assert parse(odd) == parse(LINUX)


def test_missing_times_and_summaries_are_warned_about() -> None:
    output = parse(LINUX.replace(TIMES, "") + "PING host (10.0.0.2) 56(84) bytes of data.\n")
    assert output.runs[0].rtt_avg_ns is None
    assert output.runs[0].invalid == ()
    assert any("-s" in warning for warning in output.warnings)
    assert any("only 1 end" in warning for warning in output.warnings)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
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
    ],
)
def test_invalid(old: str, new: str, reason: str) -> None:
    (problem,) = only(LINUX.replace(old, new)).invalid
    assert reason in problem


GERMAN = """PING 127.0.0.1 (127.0.0.1) 56(84) Bytes an Daten.
64 Bytes von 127.0.0.1: icmp_seq=1 ttl=64 Zeit=0.038 ms

--- 127.0.0.1 Ping-Statistiken ---
4 Pakete übertragen, 4 empfangen, 0% Paketverlust, Zeit 3005ms
rtt min/avg/max/mdev = 0.038/0.047/0.080/0.011 ms
"""
FRENCH = """--- localhost statistiques ping ---
4 paquets transmis, 3 reçus, +1 erreurs, 25% packet loss, time 3050ms
"""


@pytest.mark.parametrize("text", [GERMAN, FRENCH, " ".join(GERMAN.split())])
def test_another_language_is_reported_with_the_remedy(text: str) -> None:
    with pytest.raises(UsageError, match=r"a text that (ends before it|begins with)") as refused:
        parse(text)
    assert refused.value.hint is not None and "LC_ALL=C" in refused.value.hint


def test_duplicates_may_exceed_what_was_transmitted() -> None:
    run = only(
        "2 packets transmitted, 4 packets received, +2 duplicates, -- somebody's printing up packets!\n"
    )
    assert (run.received, run.loss_percent, run.invalid) == (4, None, ())


def test_rounding_is_no_contradiction() -> None:
    assert only("3 packets transmitted, 2 packets received, 33% packet loss").invalid == ()
    assert only("3 packets transmitted, 1 packets received, 66.7% packet loss").invalid == ()


@real_outputs(lambda file: file.startswith("ping/") or "-ping" in file)
def test_real_outputs(row: dict[str, str]) -> None:
    output = parse((OUTPUTS / row["file"]).read_bytes())
    assert len(output.runs) == (15 if "15 summaries" in row["contains"] else 1)
    assert all(run.invalid == () for run in output.runs)
    run = output.runs[0]
    stated = row["first_read_or_sent"]
    assert f"{run.transmitted} packets transmitted, {run.received} " in stated
    assert f"{run.loss_percent:g}%" in stated.replace(".0%", "%")
    if run.duplicates:
        assert f"+{run.duplicates} duplicates" in stated
    times = row["first_write_or_received"]
    if "min/avg/max" in times:
        assert run.rtt_min_ns is not None
        assert run.rtt_avg_ns is not None
        assert run.rtt_max_ns is not None
        shown = "/".join(f"{ns / 1e6:.3f}" for ns in (run.rtt_min_ns, run.rtt_avg_ns, run.rtt_max_ns))
        assert f"= {shown}" in times
    else:
        assert run.rtt_avg_ns is None
