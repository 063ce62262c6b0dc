"""What no text does to any parser of a tool's output: make it fall over, hang, or tell of what is not there.

Each tool has texts that its parser understands, and after how many bytes of them there is something to tell.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from harness.cli.parse import PARSERS
from harness.model.errors import UsageError
from tests.unit.parse import test_parse_fio as fio
from tests.unit.parse import test_parse_hping3 as hping3
from tests.unit.parse import test_parse_iperf as iperf
from tests.unit.parse import test_parse_ping as ping
from tests.unit.parsing import assert_refused, garbled, sample


@dataclass(frozen=True)
class Understood:
    """A text; before ``end`` (by default that of the text) it is refused if it is cut there."""

    text: str
    end: str | None = None

    @property
    def whole(self) -> bytes:
        return self.text.encode()

    @property
    def complete(self) -> int:
        return len(self.whole) if self.end is None else self.whole.index(self.end.encode()) + len(self.end)


FIO = json.dumps(fio.document(fio.job(), fio.job(jobname="ü")), indent=1, ensure_ascii=False)
UNDERSTOOD = {
    "fio": (Understood(FIO),),
    "ping": (Understood(ping.LINUX, " received"),),
    "hping3": (Understood(hping3.WHOLE + "real 0m2.635s\n", " received"),),
    "iperf3": (
        Understood(json.dumps(iperf.tcp(), indent=1)),
        Understood(json.dumps(iperf.udp(server_output_json=iperf.tcp()), indent=1)),
        Understood(iperf.CLIENT, "   38             sender"),
        Understood(iperf.UDP + iperf.UDP_SERVER, "0.015 ms  4602/834993 (0.55%)"),
        Understood(iperf.NEWER, "0/906 (0%)  sender"),
    ),
    "iperf2": (
        Understood(sample("iperf2/client-2-streams.txt"), "6.38 MBytes  52.7 Mbits/sec"),
        Understood(iperf.UDP2, "[  3]  0.0-10.0 sec   114 MBytes  95.7 Mbits/sec"),
    ),
}
ALPHABET = b'"{}[],:-eEN0123456789./%KM \\\x1b\n\xff'
CASES = [
    pytest.param(tool, each, id=f"{tool}-{number}")
    for tool, texts in UNDERSTOOD.items()
    for number, each in enumerate(texts)
]


def survives(tool: str, text: bytes) -> object:
    """What the parser makes of it, None if it refuses; anything else is an error."""
    understand, _ = PARSERS[tool]
    try:
        output = msgspec.to_builtins(understand(text))
    except UsageError:
        return None
    json.dumps(output, allow_nan=False)
    return output


def test_every_tool_has_its_texts() -> None:
    assert UNDERSTOOD.keys() == PARSERS.keys()


@pytest.mark.parametrize(("tool", "text"), CASES)
def test_cut_at_any_byte(tool: str, text: Understood) -> None:
    for length in range(len(text.whole) + 1):
        assert (survives(tool, text.whole[:length]) is not None) is (length >= text.complete), length


@pytest.mark.parametrize("tool", UNDERSTOOD)
def test_garbled_bytes(tool: str) -> None:
    wholes = [each.whole for each in UNDERSTOOD[tool]]
    for text in garbled(20, wholes, ALPHABET, 500):
        survives(tool, text)


@pytest.mark.parametrize(("tool", "text"), CASES)
def test_lines_that_another_system_ended(tool: str, text: Understood) -> None:
    reported, plain = survives(tool, text.whole.replace(b"\n", b"\r\n")), survives(tool, text.whole)
    assert isinstance(reported, dict) and isinstance(plain, dict)
    assert any("CRLF" in warning for warning in reported["warnings"])
    assert {**reported, "warnings": ()} == {**plain, "warnings": ()}


IPERF3_NOTHING = {"start": {"version": "iperf 3.7"}, "intervals": [], "end": {}}
REFUSED: dict[str, tuple[tuple[str, str], ...]] = {
    "fio": (
        ("null", "begins with"),
        ("7", "begins with"),
        ("[]", "begins with"),
        ("\0" * 100, "begins with"),
        ("{}", "begins with"),
        ('{"a": 1}', "without any of jobs"),
        ("<!DOCTYPE html><html><body>{}</body></html>", "begins with"),
        ("a;b;c\n1;2;3\n", "begins with"),
        ('{"fio version": "fio-3.33"}', "without any of jobs"),
        ('{"fio version": "fio-3.33", "jobs": 5}', "another form"),
        ('{"fio version": 3.33, "jobs": []}', "another form"),
        ('{"jobs": [{"id": 1}], "total_count": 1}', "without 'fio version'"),
        ('{"jobs": [1, null]}', "without 'fio version'"),
        ('{"jobs": ' + "[" * 200_000, "."),
        ('{"jobs": [{"a": ' + "[" * 200_000 + "]" * 200_000 + "}]}", "."),
        ('{"a":' * 200_000, "."),
        ('{"' * 200_000, "."),
        ('"\\' * 200_000, "."),
        ('{"a" ' * 200_000, "."),
        ('{"a\n' * 200_000, "."),
        ("{}" * 200_000, "."),
    ),
    "ping": (
        (ping.LINUX[:90], "ends before it"),
        (sample("ping/killed.txt"), "ends before it: 'om"),
        (sample("ping/killed.txt").partition("\n")[2], "ends before it"),
        (ping.WINDOWS, "begins with"),
        (ping.WINDOWS_IN_GERMAN, "begins with"),
        ("ping: nowhere: Name or service not known\n", "Name or service"),
        ("--- a hping statistic ---\n1 packets transmitted, 1 packets received, 0% packet loss", "hping3"),
        ("1" * 5000 + " packets transmitted, 1 received", "begins with"),
        ("--- " * 100_000, "begins with"),
        ("1 " * 100_000 + " " * 100_000, "begins with"),
        ("PING " * 100_000, "ends before it"),
    ),
    "hping3": (
        (hping3.HEADER + hping3.REPLIES, "ends before it"),
        ("[open_sockraw] socket(): Operation not permitted\n[main] can't open raw socket\n", "raw socket"),
        ("--- a ping statistics ---\n1 packets transmitted, 1 packets received, 0% packet loss", "ping's"),
        ("len=1 ip=a " * 50_000, "begins with"),
        ("9" * 5000 + " packets transmitted, 1 packets received, 0% packet loss", "begins with"),
    ),
    "iperf3": (
        (json.dumps(IPERF3_NOTHING), "without saying why"),
        (json.dumps({**IPERF3_NOTHING, "error": "error - unable to connect"}), "unable to connect"),
        ("iperf3: error - unable to connect to server: Connection refused\n", "Connection refused"),
        (iperf.UDP_SERVER, "a server's log"),
        ("iperf 3.1.7\nLinux\n", "begins with"),
        (iperf.TCP2, "begins with"),
        ("null", "begins with"),
        ('{"a": 1}', "without any of intervals"),
        ('{"intervals": 5}', "another form"),
        ('{"intervals": [], "end": {"sum": [1]}}', "another form"),
        ('"streams": [{\n"start": 8.0,\n"lost_percent": -nan\n}]', "without any of intervals"),
        (json.dumps(iperf.tcp(), indent=1).replace('"end": {', '{"start": {}', 1), "cut or damaged"),
        ('{"intervals": ' + "[" * 200_000, "cut or damaged|nested too deeply"),
        ('{"' * 100_000, "."),
        ('{"event": 1}\n' * 20_000, "."),
        ("- " * 200_000, "begins with"),
    ),
    "iperf2": (
        ("connect failed: Connection refused\n", "Connection refused"),
        (iperf.TCP2.replace("Client connecting to 10.0.0.2,", "Server listening on"), "a server's log"),
        ("[  3]  1.0- 2.0 sec  11.2 MBytes  94.4 Mbits/sec\n", "begins with"),
        ("20240101000000,10.0.0.1,40000,10.0.0.2,5001,3,0.0-10.0,117440512,93952409\n", "begins with"),
        ("Connecting to host 10.0.0.2, port 5201\n", "iperf3's"),
        ("[ " * 100_000, "begins with"),
        ("[  3]" * 100_000, "begins with"),
    ),
}


def parser(tool: str) -> Callable[[str], object]:
    understand, _ = PARSERS[tool]
    return lambda text: understand(text.encode())


@pytest.mark.parametrize(
    ("tool", "text", "reason"),
    [
        pytest.param(tool, text, reason, id=f"{tool}-{text[:20]!r}")
        for tool, texts in REFUSED.items()
        for text, reason in (("", "empty"), (" \n", "empty"), *texts)
    ],
)
def test_refused(tool: str, text: str, reason: str) -> None:
    assert_refused(parser(tool), text, reason)
