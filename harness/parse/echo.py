"""The text of ping (iputils, busybox, macOS, the BSDs, GNU inetutils) and of hping3, from their summaries.

Only the summaries are read: a quiet or flooding ping has no lines of single replies. Line breaks count as
blanks, because a mail, a web page or a log may have moved them.

hping3 writes ``tramitted`` unless its distributor has corrected it; hping2 also wrote ``trasmitted``, and
printed no round-trip times. It counts an ICMP error that answers a probe (destination unreachable, time
exceeded) as received; Debian's also takes a time from it, the original does not. In a flood it receives no
replies at all. It prints 0.0 for times that it does not have. Its summary goes to standard error, so in a
file with both streams it may come before the replies. How long it ran is in the output of the shell's
``time`` after it.

Sources: ``finish()`` of iputils ``ping_common.c``, ``print_stats`` of busybox ``ping.c``, ``finish()`` of
FreeBSD's and Apple's ``ping.c``; hping3(8), and ``statistics.c``, ``waitpacket.c`` and ``logicmp.c`` of
antirez/hping.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from harness.model.errors import UsageError
from harness.parse import embedded
from harness.parse.figures import COUNT, NUMBER, Printed, loss_problem, matched, printed, value_of

MS_NS, S_NS = 1_000_000, 1_000_000_000

Tool = Literal["ping", "hping3"]


class EchoRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of ping or hping3, from its own summary; ``invalid`` says why its figures must not be used.

    ``received`` is None if the tool did not listen (a flood of hping3). ``duplicates``, ``errors`` (ICMP
    errors that answer a request) and ``corrupted`` are 0 if the text tells of none. ``loss_percent`` is what
    the counts make, where the tool printed the same: most print a whole number, which hping3 rounds up.
    ``rtt_mdev_ns`` is the standard deviation of the round-trip times (iputils: mdev, the BSDs: stddev).
    ``elapsed_ns`` of ping is from the first packet sent to the last one sent or received; of hping3 it is
    what the shell's ``time`` printed.
    """

    destination: str | None
    transmitted: int
    received: int | None
    duplicates: int = 0
    errors: int = 0
    corrupted: int = 0
    loss_percent: float | None = None
    elapsed_ns: int | None = None
    rtt_min_ns: float | None = None
    rtt_avg_ns: float | None = None
    rtt_max_ns: float | None = None
    rtt_mdev_ns: float | None = None
    invalid: tuple[str, ...] = ()


class EchoOutput(msgspec.Struct, frozen=True, kw_only=True):
    """All runs in one text, in its order; at least one."""

    runs: tuple[EchoRun, ...]
    warnings: tuple[str, ...] = ()


_SUMMARY = re.compile(
    r"(?:---\s+(?P<destination>\S{1,255})\s+(?:ping6?\s+statistics|hping\s+statistic)\s+---\s+)?"
    rf"\b(?P<transmitted>{COUNT})\s+packets\s+tra(?:ns|s)?mitted,"
    rf"\s+(?P<received>{COUNT})\s+(?:packets\s+)?received"
    rf"(?P<counts>(?:,\s+\+?{COUNT}\s+(?:duplicates|errors|corrupted))*)"
    rf"(?:,\s+(?P<loss>{NUMBER})%\s+packet\s+loss)?"
    rf"(?:,\s+time\s+(?P<time>{COUNT})\s*ms)?"
)
_COUNTED = re.compile(rf"({COUNT})\s+(duplicates|errors|corrupted)")
_TIMES = re.compile(
    rf"\b(?:rtt|round-trip)\s+min/avg/max(?:/[a-z-]+)?\s+=\s+"
    rf"(?P<min>{NUMBER})/(?P<avg>{NUMBER})/(?P<max>{NUMBER})(?:/(?P<mdev>{NUMBER}))?\s+ms"
)
_TIMES_BEGIN = re.compile(r"\b(?:rtt|round-trip)\s+min/avg")
# What directly follows a summary is part of it; further away, the words are somebody else's.
_TAIL = 400
_REPLY_TIME = re.compile(rf"\btime[=<](?P<time>{NUMBER})\s*(?P<unit>ms|us|s)\b(?![^\n]*\(DUP!\))")
_UNITS_NS = {"us": 1000, "ms": MS_NS, "s": S_NS}
_HEADER = re.compile(r"\bPING6?[ (]")
_BEGUN = re.compile(r"\bH?PING6?[ (]|\b(?:icmp_|icmp6_)?seq=[0-9]")
# The other one's.
_FOREIGN = {
    "ping": ("hping3", re.compile(r"\bhping\s+statistic\b")),
    "hping3": ("ping", re.compile(r"\bping6?\s+statistics\b")),
}

_FLOOD = re.compile(r"--flood\b|\bin flood mode\b")
_REPORTED = {
    "duplicates": re.compile(r"\bDUP!\s+len="),
    "errors": re.compile(
        r"\b(?:ICMP (?:[A-Za-z][A-Za-z/=0-9]{1,24} ){1,4}from|TTL 0 during (?:transit|reassembly) from) ip="
    ),
}
_NO_PRIVILEGE = re.compile(r"\[open_sockraw\][^\n]{0,160}|can't open raw socket|Operation not permitted")
# A figure at the end of a text may be cut.
_REAL = re.compile(
    r"\breal\s+(?:(?P<minutes>[0-9]{1,6})m)?(?P<seconds>[0-9]{1,6}(?:[.,][0-9]{1,9})?)(?:s\b|(?=\s))"
)


def parse_ping(text: bytes | str) -> EchoOutput:
    """Read every summary in what ping wrote. UsageError, and nothing else, if there is none."""
    return _parse(text, "ping")


def parse_hping3(text: bytes | str) -> EchoOutput:
    """Read every summary in what hping3 wrote. UsageError, and nothing else, if there is none."""
    return _parse(text, "hping3")


def reply_times_ns(text: str) -> tuple[float, ...]:
    """The round trips of ping's single replies, in their order; duplicates and anything that is not a number
    are left out.

    A quiet or flooding ping has none.
    """
    found = (printed(match["time"], _UNITS_NS[match["unit"]]) for match in _REPLY_TIME.finditer(text))
    return tuple(figure.value for figure in found if figure is not None)


def _parse(text: bytes | str, tool: Tool) -> EchoOutput:
    warnings: list[str] = []
    string = embedded.to_string(text, warnings)
    other, foreign = _FOREIGN[tool]
    if foreign.search(string):
        raise UsageError(f"expected the output of {tool}, found {other}'s", hint=f"harness parse {other}")
    found = list(_SUMMARY.finditer(string))
    if not found:
        raise _refusal(string, tool)
    ends = [0, *(match.end() for match in found[:-1])]
    begins = [*(match.start() for match in found[1:]), len(string)]
    runs = []
    for match, end, begin in zip(found, ends, begins, strict=True):
        # hping3's summary may come before its replies; of several, those before each are taken for its own.
        said = None if tool == "ping" else string if len(found) == 1 else string[end : match.start()]
        runs.append(_run(match, said, string[match.end() : begin], warnings))
    if (started := len(_HEADER.findall(string))) > len(runs):
        warnings.append(f"{started} runs of ping begin in this text, but only {len(runs)} end with a summary")
    return EchoOutput(runs=tuple(runs), warnings=tuple(dict.fromkeys(warnings)))


def _refusal(string: str, tool: Tool) -> UsageError:
    if denied := _NO_PRIVILEGE.search(string):
        return UsageError(
            f"expected a summary of {tool}, but it was not allowed to open a raw socket: "
            f"{embedded.quote(denied[0])}",
            hint=f"run {tool} as root",
        )
    if not string.strip():
        state = "an empty text"
    elif _BEGUN.search(string):
        state = f"a text that ends before it: {embedded.quote(string[-160:])}"
    else:
        state = f"a text that begins with {embedded.quote(string)}"
    return UsageError(
        f"expected a summary of {tool} ('... packets transmitted, ... received'), found {state}",
        hint=f"let {tool} finish (-c) or stop it with Ctrl-C; run it with LC_ALL=C, not on Windows, and "
        f"keep its standard error",
    )


def _run(match: re.Match[str], said: str | None, after: str, warnings: list[str]) -> EchoRun:
    """A run by its summary and the text after it; ``said`` is hping3's text besides, None of ping."""
    problems: list[str] = []
    transmitted, received = int(match["transmitted"]), int(match["received"])
    counted = {name: len(pattern.findall(said or "")) for name, pattern in _REPORTED.items()}
    if counted["errors"]:
        warnings.append(f"ICMP errors came back: {counted['errors']}; hping3 may count them as received")
    counted |= {name: int(count) for count, name in _COUNTED.findall(match["counts"])}
    # With more replies than probes, hping3 prints a negative loss.
    loss = None if received > transmitted else matched(match, "loss", 1, problems)
    is_blind = not received and _FLOOD.search(said or "") is not None
    if is_blind:
        warnings.append(
            "hping3 receives no replies while it floods, so received and lost packets are unknown"
        )
    elif problem := _packets_problem(transmitted, received, loss, counted["duplicates"]):
        if not (said is not None and loss and _grew_since(loss.value, received, transmitted)):
            problems.append(problem)
    elif received <= transmitted and match["loss"] is None:
        problems.append("the summary is cut: packet loss is missing")
    elif loss is not None:
        loss = Printed(100 * (transmitted - received) / transmitted)

    rtt = _TIMES.search(after[:_TAIL])
    names = ("min", "avg", "max", "mdev")
    times = {name: value_of(matched(rtt, name, MS_NS, problems)) for name in names}
    least, mean, most = times["min"], times["avg"], times["max"]
    if received and not rtt and _TIMES_BEGIN.search(after[:_TAIL]):
        problems.append("the summary is cut: it ends within its round-trip times")
    elif received and not rtt:
        of_ping = "ping prints none if its payload (-s) is below 16 bytes"
        cause = of_ping if said is None else "hping2 prints none"
        warnings.append(f"round-trip times are missing: {cause}")
    elif said is not None and most == 0:
        times = dict.fromkeys(names)
        if received:
            warnings.append("hping3 has no round-trip times: it prints 0.0, as for ICMP errors alone")
    elif rtt and not received:
        problems.append("there are round-trip times, but nothing was received")
    elif least is not None and mean is not None and most is not None and not least <= mean <= most:
        problems.append(f"min/avg/max are out of order: {least:g}/{mean:g}/{most:g} ns")
    elapsed = matched(match, "time", MS_NS, problems)
    if said is not None and (real := _REAL.search(after)) and (seconds := printed(real["seconds"], S_NS)):
        elapsed = Printed(60 * S_NS * int(real["minutes"] or 0) + seconds.value)
    return EchoRun(
        destination=match["destination"],
        transmitted=transmitted,
        received=None if is_blind else received,
        **counted,
        loss_percent=None if is_blind else value_of(loss),
        elapsed_ns=None if elapsed is None else int(elapsed.value),
        rtt_min_ns=times["min"],
        rtt_avg_ns=times["avg"],
        rtt_max_ns=times["max"],
        rtt_mdev_ns=times["mdev"],
        invalid=tuple(problems),
    )


def _packets_problem(
    transmitted: int, received: int, loss_percent: Printed | None, duplicates: int
) -> str | None:
    """How a summary's counts of packets contradict each other. Duplicates may exceed what was transmitted."""
    if not transmitted:
        return "no packet was transmitted"
    if received <= transmitted:
        return loss_problem(transmitted - received, transmitted, loss_percent)
    if received > transmitted + duplicates:
        return f"{received} packets were received, but only {transmitted} transmitted"
    return None


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
