"""hping3's text, and the output of the shell's ``time`` after it.

hping3 writes ``tramitted`` unless its distributor has corrected it. It counts an ICMP error that answers a
probe (destination unreachable, time exceeded) as received; Debian's also takes a time from it, the original
does not. In a flood it receives no replies at all. It prints 0.0 for times that it does not have. Its summary
goes to standard error, so in a file with both streams it may come before the replies.

Sources: hping3(8), and ``statistics.c``, ``waitpacket.c`` and ``logicmp.c`` of antirez/hping.
"""

from __future__ import annotations

import re

from harness.model.errors import UsageError
from harness.parse import embedded
from harness.parse.figures import (
    COUNT,
    NUMBER,
    EchoOutput,
    EchoRun,
    matched,
    order_problem,
    packets_problem,
    printed,
    value_of,
)

MS_NS, S_NS = 1_000_000, 1_000_000_000


_SUMMARY = re.compile(
    r"(?:---\s+(?P<destination>\S{1,255})\s+hping\s+statistic\s+---\s+)?"
    rf"\b(?P<transmitted>{COUNT})\s+packets\s+tra(?:ns)?mitted,\s+(?P<received>{COUNT})\s+packets\s+received,"
    rf"\s+(?P<loss>{NUMBER})%\s+packet\s+loss"
    rf"(?:\s+{COUNT}\s+out\s+of\s+sequence\s+packets\s+received)?"
    rf"(?:\s+round-trip\s+min/avg/max\s+=\s+(?P<min>{NUMBER})/(?P<avg>{NUMBER})/(?P<max>{NUMBER})\s+ms)?"
)
_DUPLICATE = re.compile(r"\bDUP!\s+len=")
# A figure at the end of a text may be cut.
_REAL = re.compile(
    r"\breal\s+(?:(?P<minutes>[0-9]{1,6})m)?(?P<seconds>[0-9]{1,6}(?:[.,][0-9]{1,9})?)(?:s\b|(?=\s))"
)
_PING = re.compile(r"\bping6?\s+statistics\b")
_FLOOD = re.compile(r"--flood\b|\bin flood mode\b")
_ERRORS = re.compile(
    r"\b(?:ICMP (?:[A-Za-z][A-Za-z/=0-9]{1,24} ){1,4}from|TTL 0 during (?:transit|reassembly) from) ip="
)
_NO_PRIVILEGE = re.compile(r"\[open_sockraw\][^\n]{0,160}|can't open raw socket|Operation not permitted")


def parse(text: bytes | str) -> EchoOutput:
    """Read every summary in what hping3 wrote.

    Raises ``UsageError``, and nothing else, if there is none.
    """
    warnings: list[str] = []
    string = embedded.to_string(text, warnings)
    if _PING.search(string):
        raise UsageError("expected the output of hping3, found ping's", hint="harness parse ping")
    found = list(_SUMMARY.finditer(string))
    if not found:
        raise _refusal(string)
    ends = [0, *(match.end() for match in found[:-1])]
    begins = [*(match.start() for match in found[1:]), len(string)]
    runs = []
    for match, end, begin in zip(found, ends, begins, strict=True):
        # A summary may come before its replies; of several, those before each are taken for its own.
        counted = string if len(found) == 1 else string[end : match.start()]
        runs.append(_run(match, counted, string[match.end() : begin], warnings))
    return EchoOutput(runs=tuple(runs), warnings=tuple(dict.fromkeys(warnings)))


def _refusal(string: str) -> UsageError:
    if denied := _NO_PRIVILEGE.search(string):
        return UsageError(
            "expected a summary of hping3, but it was not allowed to open a raw socket: "
            f"{embedded.quote(denied[0])}",
            hint="run hping3 as root",
        )
    state = f"a text that begins with {embedded.quote(string)}" if string.strip() else "an empty text"
    return UsageError(
        f"expected a summary of hping3 ('... packets transmitted, ... packets received'), found {state}",
        hint="end hping3 with -c or Ctrl-C, and keep its standard error: the summary goes there",
    )


def _grew_since(loss_percent: float, received: int, transmitted: int) -> bool:
    """Whether the loss is that of fewer packets transmitted, whose number then grew.

    A timer's signals go on sending between the line in which hping3 computes the loss, ``100 - 100 * received
    / transmitted`` in whole numbers, and the one in which it prints the counts (``print_statistics()``).
    """
    kept = 100 - loss_percent
    if not received or not 0 <= kept <= 100:
        return False
    fewest = 100 * received // (kept + 1) + 1
    return fewest <= transmitted and 100 * received // fewest == kept


def _run(match: re.Match[str], counted: str, after: str, warnings: list[str]) -> EchoRun:
    problems: list[str] = []
    transmitted = int(match["transmitted"])
    received = int(match["received"])
    duplicates = len(_DUPLICATE.findall(counted))
    # With more replies than probes, hping3 prints a negative loss.
    loss = None if received > transmitted else matched(match, "loss", 1, problems)

    blind = not received and _FLOOD.search(counted) is not None
    if blind:
        warnings.append("a flood: hping3 receives no replies in it, so received and lost packets are unknown")
    elif (problem := packets_problem(transmitted, received, loss, duplicates=duplicates)) and not (
        loss and _grew_since(loss.value, received, transmitted)
    ):
        problems.append(problem)
    errors = len(_ERRORS.findall(counted))
    if errors:
        warnings.append(f"ICMP errors came back: {errors}; hping3 may count them as received")

    times: dict[str, float | None] = dict.fromkeys(("min", "avg", "max"))
    if received:
        for name in times:
            times[name] = value_of(matched(match, name, MS_NS, problems))
    if times["max"] == 0:
        times = dict.fromkeys(times)
        warnings.append("hping3 has no round-trip times: it prints 0.0, as for ICMP errors alone")
    if problem := order_problem(times["min"], times["avg"], times["max"]):
        problems.append(problem)
    real = _REAL.search(after)
    return EchoRun(
        destination=match["destination"],
        transmitted=transmitted,
        received=None if blind else received,
        duplicates=duplicates,
        errors=errors,
        loss_percent=None if blind else value_of(loss),
        rtt_min_ns=times["min"],
        rtt_avg_ns=times["avg"],
        rtt_max_ns=times["max"],
        elapsed_ns=None if real is None else _elapsed_ns(real),
        invalid=tuple(problems),
    )


def _elapsed_ns(real: re.Match[str]) -> int | None:
    seconds = printed(real["seconds"], S_NS)
    return None if seconds is None else int(int(real["minutes"] or 0) * 60 * S_NS + seconds.value)
