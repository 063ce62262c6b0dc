"""What no text does to any parser of a tool's output: make it fall over, hang, or tell of what is not there.

Each tool has texts that its parser understands, and after how many bytes of them there is something to tell.
"""

from __future__ import annotations

import json
import re
import time
from typing import NamedTuple

import msgspec
import pytest

from harness.cli.parse import PARSERS
from harness.model.errors import UsageError
from tests.unit.parse import test_parse_echo as echo
from tests.unit.parse import test_parse_fio as fio
from tests.unit.parse import test_parse_iperf as iperf
from tests.unit.parsing import garbled, refused, sample


class Understood(NamedTuple):
    """A text, and after how many bytes of it it is not refused any more if it is cut there."""

    whole: bytes
    complete: int


def understood(text: str, end: str = "") -> Understood:
    """By default it is complete where it ends."""
    whole = text.encode()
    return Understood(whole, whole.index(end.encode()) + len(end) if end else len(whole))


FIO = json.dumps(fio.document(fio.job(), fio.job(jobname="ü")), indent=1, ensure_ascii=False)
UNDERSTOOD = {
    "fio": (understood(FIO),),
    "ping": (understood(echo.LINUX, " received"),),
    "hping3": (understood(echo.WHOLE + "real 0m2.635s\n", " received"),),
    "iperf3": (
        understood(json.dumps(iperf.tcp(), indent=1)),
        understood(json.dumps(iperf.udp(server_output_json=iperf.tcp()), indent=1)),
        understood(iperf.CLIENT, "   38             sender"),
        understood(iperf.UDP + iperf.UDP_SERVER, "0.015 ms  4602/834993 (0.55%)"),
        understood(iperf.NEWER, "0/906 (0%)  sender"),
    ),
    "iperf2": (
        understood(sample("iperf2/client-2-streams.txt"), "6.38 MBytes  52.7 Mbits/sec"),
        understood(iperf.UDP2, "[  3]  0.0-10.0 sec   114 MBytes  95.7 Mbits/sec"),
    ),
}
ALPHABET = b'"{}[],:-eEN0123456789./%KM \\\x1b\n\xff'
CASES = [(tool, each) for tool, texts in UNDERSTOOD.items() for each in texts]


def survives(tool: str, text: bytes) -> object:
    """What the parser makes of it, None if it refuses; anything else is an error."""
    understand, _ = PARSERS[tool]
    try:
        output = msgspec.to_builtins(understand(text))
    except UsageError:
        return None
    json.dumps(output, allow_nan=False)
    return output


@pytest.mark.parametrize(("tool", "text"), CASES, ids=lambda each: each if isinstance(each, str) else "")
def test_cut_at_any_byte_or_with_lines_that_another_system_ended(tool: str, text: Understood) -> None:
    for length in range(len(text.whole) + 1):
        assert (survives(tool, text.whole[:length]) is not None) is (length >= text.complete), length
    reported, plain = survives(tool, text.whole.replace(b"\n", b"\r\n")), survives(tool, text.whole)
    assert isinstance(reported, dict) and isinstance(plain, dict)
    assert any("CRLF" in warning for warning in reported["warnings"])
    assert {**reported, "warnings": ()} == {**plain, "warnings": ()}


@pytest.mark.parametrize("tool", PARSERS)
def test_garbled_bytes(tool: str) -> None:
    wholes = [each.whole for each in UNDERSTOOD[tool]]
    for text in garbled(20, wholes, ALPHABET, 500):
        survives(tool, text)


IPERF3_NOTHING = {"start": {"version": "iperf 3.7"}, "intervals": [], "end": {}}
IPERF3_ERROR = {**IPERF3_NOTHING, "error": "error - unable to connect"}
NOT_PERMITTED = "[open_sockraw] socket(): Operation not permitted\n[main] can't open raw socket\n"
CUT_ROW = "[  3]  1.0- 2.0 sec  11.2 MBytes  94.4 Mbits/sec\n"
IPERF2_CLIENT = "Client connecting to 10.0.0.2,"
IPERF2_CSV = "20240101000000,10.0.0.1,40000,10.0.0.2,5001,3,0.0-10.0,117440512,93952409\n"
KILLED = sample("ping/killed.txt")
WINDOWS = "Reply from 10.0.0.2: bytes=32 time<1ms TTL=64\nPackets: Sent = 2, Received = 2, Lost = 0 (0%)\n"
WINDOWS_IN_GERMAN = "Antwort von 10.0.0.2: Bytes=32 Zeit=13ms TTL=64\n"
PAGE = "<!DOCTYPE html><html><body>{}</body></html>"
ONE_PACKET = "1 packets transmitted, 1 packets received, 0% packet loss"
DEEP = 200_000
NESTED = [each * DEEP for each in ('{"a":', '{"', '"\\', '{"a" ', '{"a\n', "{}")]
REFUSED: list[tuple[str, str, list[str]]] = [
    *((tool, "empty", ["", " \n"]) for tool in PARSERS),
    ("fio", "begins with", ["null", "7", "[]", "\0" * 100, "{}", PAGE, "a;b;c\n1;2;3\n"]),
    ("fio", "without any of jobs", ['{"a": 1}', '{"fio version": "fio-3.33"}']),
    ("fio", "another form", ['{"fio version": "fio-3.33", "jobs": 5}', '{"fio version": 3.33, "jobs": []}']),
    ("fio", "without 'fio version'", ['{"jobs": [{"id": 1}], "total_count": 1}', '{"jobs": [1, null]}']),
    ("fio", ".", ['{"jobs": ' + "[" * DEEP, '{"jobs": [{"a": ' + "[" * DEEP + "]" * DEEP + "}]}", *NESTED]),
    ("ping", "ends before it", [echo.LINUX[:90], KILLED.partition("\n")[2], "PING " * 100_000]),
    ("ping", "ends before it: 'om", [KILLED]),
    ("ping", "begins with", [WINDOWS, WINDOWS_IN_GERMAN, "--- " * 100_000, "1 " * 100_000 + " " * 100_000]),
    ("ping", "begins with", ["1" * 5000 + " packets transmitted, 1 received"]),
    ("ping", "Name or service", ["ping: nowhere: Name or service not known\n"]),
    ("ping", "hping3", [f"--- a hping statistic ---\n{ONE_PACKET}"]),
    ("hping3", "ends before it", [echo.HEADER + echo.REPLIES]),
    ("hping3", "raw socket", [NOT_PERMITTED]),
    ("hping3", "ping's", [f"--- a ping statistics ---\n{ONE_PACKET}"]),
    ("hping3", "begins with", ["len=1 ip=a " * 50_000, "9" * 5000 + ONE_PACKET[1:]]),
    ("iperf3", "no error message either", [json.dumps(IPERF3_NOTHING)]),
    ("iperf3", "unable to connect", [json.dumps(IPERF3_ERROR)]),
    ("iperf3", "Connection refused", ["iperf3: error - unable to connect to server: Connection refused\n"]),
    ("iperf3", "a server's log", [iperf.UDP_SERVER]),
    ("iperf3", "begins with", ["iperf 3.1.7\nLinux\n", "null", "- " * DEEP]),
    ("iperf3", "found iperf2's .harness parse iperf2", [iperf.TCP2]),
    ("iperf3", "another form", ['{"intervals": 5}', '{"intervals": [], "end": {"sum": [1]}}']),
    ("iperf3", "without any of intervals", ['{"a": 1}', '"streams": [{\n"start": 8,\n"lost": -nan\n}]']),
    ("iperf3", "cut or damaged", [json.dumps(iperf.tcp(), indent=1).replace('"end": {', '{"start": {}', 1)]),
    ("iperf3", "cut or damaged|nested too deeply", ['{"intervals": ' + "[" * DEEP]),
    ("iperf3", ".", ['{"' * 100_000, '{"event": 1}\n' * 20_000]),
    ("iperf2", "Connection refused", ["connect failed: Connection refused\n"]),
    ("iperf2", "a server's log", [iperf.TCP2.replace(IPERF2_CLIENT, "Server listening on")]),
    ("iperf2", "only its intervals: the last ends at 2.0 s", [CUT_ROW]),
    ("iperf2", "begins with", [IPERF2_CSV, "[ " * 100_000, "[  3]" * 100_000]),
    ("iperf2", "iperf3's", ["Connecting to host 10.0.0.2, port 5201\n"]),
]


@pytest.mark.parametrize(("tool", "reason", "texts"), REFUSED, ids=lambda each: str(each)[:20])
def test_refused_soon_and_in_a_sentence(tool: str, reason: str, texts: list[str]) -> None:
    understand, _ = PARSERS[tool]
    for text in texts:
        # What others have the processor for does not count.
        started = time.process_time()
        refusal = str(refused(understand, text.encode()))
        assert time.process_time() - started < 5, text[:20]
        assert re.search(reason, refusal) and len(refusal) < 500, text[:20]
