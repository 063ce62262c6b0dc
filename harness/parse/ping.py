"""ping's text: iputils, busybox, macOS, the BSDs and GNU inetutils, from their summaries.

Only the summaries are read: a quiet or flooding ping has no lines of single replies. Line breaks count as
blanks, because a mail, a web page or a log may have moved them.

Sources: ``finish()`` of iputils ``ping_common.c``, ``print_stats`` of busybox ``ping.c``, ``finish()`` of
FreeBSD's and Apple's ``ping.c``.
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

MS_NS = 1_000_000


_SUMMARY = re.compile(
    r"(?:---\s+(?P<destination>\S{1,255})\s+ping6?\s+statistics\s+---\s+)?"
    rf"\b(?P<transmitted>{COUNT})\s+packets\s+transmitted,\s+(?P<received>{COUNT})\s+(?:packets\s+)?received"
    rf"(?P<counts>(?:,\s+\+?{COUNT}\s+(?:duplicates|errors|corrupted))*)"
    rf"(?:,\s+(?P<loss>{NUMBER})%\s+packet\s+loss)?"
    rf"(?:,\s+time\s+(?P<time>{COUNT})\s*ms)?"
)
_COUNTED = re.compile(rf"({COUNT})\s+(duplicates|errors|corrupted)")
_TIMES = re.compile(
    rf"\b(?:rtt|round-trip)\s+min/avg/max(?:/[a-z-]+)?\s+=\s+"
    rf"(?P<min>{NUMBER})/(?P<avg>{NUMBER})/(?P<max>{NUMBER})(?:/(?P<mdev>{NUMBER}))?\s+ms"
)
_REPLY_TIME = re.compile(rf"\btime[=<](?P<time>{NUMBER})\s*(?P<unit>ms|us|s)\b(?![^\n]*\(DUP!\))")
_UNITS_NS = {"us": 1000, "ms": MS_NS, "s": 1_000_000_000}
_TIMES_BEGIN = re.compile(r"\b(?:rtt|round-trip)\s+min/avg")
_HEADER = re.compile(r"\bPING6?[ (]")
_REPLY = re.compile(r"\b(?:icmp_|icmp6_)?seq=[0-9]{1,9}\b[^\n]{0,80}?\btime[=<]")
# Its words are in the system's language; those of single replies and of the summary are not.
_WINDOWS = re.compile(r"[=<][0-9]{1,9} ?ms,? TTL=[0-9]|\bPinging \S{1,255} |\bPackets: Sent = [0-9]")
# iputils speaks the system's language, in its summary as well.
_TRANSLATED = re.compile(
    rf"---\s+\S{{1,255}}\s[^\n]{{1,60}}---\s+{COUNT}\s[^\n]{{1,60}}[,،、]\s*{COUNT}\s[^\n]{{1,90}}%"
)
_HPING = re.compile(r"\bhping\s+statistic\b")
# What directly follows a summary is part of it; further away, the words are somebody else's.
_TAIL = 400


def parse(text: bytes | str) -> EchoOutput:
    """Read every summary in what ping wrote.

    Raises ``UsageError``, and nothing else, if there is none.
    """
    warnings: list[str] = []
    string = embedded.to_string(text, warnings)
    if _HPING.search(string):
        raise UsageError("expected the output of ping, found hping3's", hint="harness parse hping3")
    found = list(_SUMMARY.finditer(string))
    if not found:
        raise _refusal(string)
    runs = []
    for match, follower in zip(found, [*found[1:], None], strict=True):
        end = len(string) if follower is None else follower.start()
        runs.append(_run(match, string[match.end() : min(match.end() + _TAIL, end)], warnings))
    if (started := len(_HEADER.findall(string))) > len(runs):
        warnings.append(f"{started} runs of ping begin in this text, but only {len(runs)} end with a summary")
    return EchoOutput(runs=tuple(runs), warnings=tuple(dict.fromkeys(warnings)))


def reply_times_ns(text: str) -> tuple[float, ...]:
    """The round trips of single replies, in their order; duplicates and anything that is not a number are
    left out.

    A quiet or flooding ping has none.
    """
    found = (printed(match["time"], _UNITS_NS[match["unit"]]) for match in _REPLY_TIME.finditer(text))
    return tuple(figure.value for figure in found if figure is not None)


def _refusal(string: str) -> UsageError:
    if _WINDOWS.search(string):
        return UsageError(
            "expected the output of ping on Linux, macOS or a BSD, found that of Windows",
            hint="its times are whole milliseconds: measure with the ping of one of these systems",
        )
    if _TRANSLATED.search(string):
        return UsageError(
            "expected a summary of ping in English, found one in another language",
            hint="start it with LC_ALL=C: LC_ALL=C ping HOST",
        )
    if not string.strip():
        state = "an empty text"
    elif replies := len(_REPLY.findall(string)):
        state = f"a text that ends before it, after {replies} replies: {embedded.quote(string[-160:])}"
    elif _HEADER.search(string):
        state = f"a text that ends before it: {embedded.quote(string[-160:])}"
    else:
        state = f"a text that begins with {embedded.quote(string)}"
    return UsageError(
        f"expected a summary of ping ('... packets transmitted, ... received'), found {state}",
        hint="let ping finish (-c), or end it with Ctrl-C: if it is killed, it prints no summary",
    )


def _run(match: re.Match[str], tail: str, warnings: list[str]) -> EchoRun:
    problems: list[str] = []
    transmitted, received = int(match["transmitted"]), int(match["received"])
    counted = {name: int(count) for count, name in _COUNTED.findall(match["counts"])}
    loss = matched(match, "loss", 1, problems)
    rtt = _TIMES.search(tail)
    times = {name: value_of(matched(rtt, name, MS_NS, problems)) for name in ("min", "avg", "max", "mdev")}
    if problem := packets_problem(transmitted, received, loss, duplicates=counted.get("duplicates", 0)):
        problems.append(problem)
    elif received <= transmitted and match["loss"] is None:
        problems.append("the summary is cut: packet loss is missing")
    if problem := order_problem(times["min"], times["avg"], times["max"]):
        problems.append(problem)
    if rtt and not received:
        problems.append("there are round-trip times, but nothing was received")
    if received and not rtt and _TIMES_BEGIN.search(tail):
        problems.append("the summary is cut: it ends within its round-trip times")
    elif received and not rtt:
        warnings.append("round-trip times are missing: ping has none if its payload (-s) is below 16 bytes")
    elapsed_ns = value_of(matched(match, "time", MS_NS, problems))
    return EchoRun(
        destination=match["destination"],
        transmitted=transmitted,
        received=received,
        **counted,
        loss_percent=value_of(loss),
        elapsed_ns=None if elapsed_ns is None else int(elapsed_ns),
        rtt_min_ns=times["min"],
        rtt_avg_ns=times["avg"],
        rtt_max_ns=times["max"],
        rtt_mdev_ns=times["mdev"],
        invalid=tuple(problems),
    )
