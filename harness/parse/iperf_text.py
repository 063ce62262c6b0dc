"""The text output of iperf2 and iperf3: the totals of one test, as its client prints them.

Both count bytes in powers of 1024 (``MBytes``) and rates in powers of 1000 (``Mbits/sec``), except for rates
in bytes (``-f M``: ``MBytes/sec``), and print three digits of each. Any number of blanks may separate two
figures, because a web page may have merged several.

iperf3's totals are labelled with their side; up to 3.1 it has one row for UDP, where bytes and rate are the
sender's, loss and jitter the receiver's. iperf2's are the rows that begin at 0 and end last; what the server
received of UDP is its ``Server Report``. A server's log is not read: it may have any number of tests, and of
parallel streams. Two directions at once are read of iperf3, which says of each row whose it is.

Sources: ``iperf_locale.c`` and ``units.c`` of esnet/iperf, ``Locale.c`` and ``ReportOutputs.c`` of iperf2.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from harness.model.errors import UsageError
from harness.model.lines import counted
from harness.parse import embedded
from harness.parse.figures import COUNT, NUMBER, Printed, matched, printed
from harness.parse.iperf import (
    BOTH_WAYS,
    MS_NS,
    IperfOutput,
    IperfReport,
    Stream,
    contradictions,
    nothing_measured,
    refusal,
    report,
    with_reverse,
)

SUM = "SUM"
# iperf2 has the number of streams in some of its sums, [SUM-3], and marks what comes back on one: [ *3].
_STREAM = r"\[\s*(?P<back>\*?)(?P<stream>SUM|[0-9]{1,9})(?:(?<=SUM)-[0-9]{1,4})?\s*\]"
_ROW = re.compile(
    _STREAM + r"(?P<role>\[[RT]X-[CS]\])?\s*"
    r"(?P<start>[0-9]{1,9}\.[0-9]{1,9})\s*-\s*(?P<seconds>[0-9]{1,9}\.[0-9]{1,9})\s+sec\s+"
    rf"(?P<bytes>{NUMBER})\s+(?P<bytes_prefix>[KMGTP]?)Bytes\s+"
    rf"(?P<rate_bit_s>{NUMBER})\s+(?P<rate_prefix>[KMGTP]?)(?P<rate_unit>bits|Bytes)/sec"
    # Other times in ms, such as iperf2's of trips, bursts and writes, have no loss behind them.
    rf"(?:\s*(?P<jitter_ns>{NUMBER})\s+ms\s+(?P<lost>-?{COUNT})/\s*(?P<datagrams>{COUNT})"
    rf"\s+\((?P<loss_percent>{NUMBER})%\)|\s*(?P<retransmits>{COUNT})(?=\s+sender\b))?"
    r"(?P<rest>[^\n\[]{0,200})"
)
_LABEL = re.compile(r"\b(?:sender|receiver)\b")
_CONNECTED = re.compile(_STREAM + r"\s+local \S{1,255} port (?P<port>[0-9]{1,5}) connected (?:to|with) ")
_SENT = re.compile(rf"{_STREAM}\s+Sent\s+(?P<count>{COUNT})\s+datagrams")
_DISORDER = re.compile(
    rf"{_STREAM}\s+[0-9.]{{1,20}}-\s*[0-9.]{{1,20}}\s+sec\s+(?P<count>{COUNT})\s+datagrams\s+received\s+out-of"
)
_SERVER_REPORT = re.compile(rf"{_STREAM}\s+Server Report:")
_SEPARATOR = re.compile(r"(?:- ){10,}")
_BITRATE = re.compile(r"\bTransfer\s+Bitrate\b")
_IPERF3 = re.compile(r"\bConnecting to host \S|\bAccepted connection from |\biperf3: ")
_BEGIN = re.compile(
    r"\b(?:(?P<client>Client connecting to \S{1,255},?\s+(?:TCP|UDP) port (?P<port>[0-9]{1,5})"
    r"|Connecting to host )|Accepted connection from |Server listening on )"
)
_FAILED = re.compile(
    r"\biperf3: (?P<error>(?:error|interrupt) - [^\n]{1,160})"
    r"|\b(?:connect|bind|listen|accept|read|write|shutdown)[0-9a-z ]{0,12} failed: [^\n]{1,120}"
)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}

ReportsBySide = dict[str, dict[str, IperfReport]]
"""Totals by ``sent`` and ``received``, then by stream."""


def parse_iperf2(text: bytes | str) -> IperfOutput:
    """Read what iperf2's client printed. Raises ``UsageError``, and nothing else, if it has no totals."""
    warnings: list[str] = []
    string = embedded.to_string(text, warnings)
    if _IPERF3.search(string):
        raise UsageError("expected the output of iperf2, found iperf3's", hint="harness parse iperf3")
    return parse(string, warnings, is_iperf2=True)


def parse(string: str, warnings: list[str], *, is_iperf2: bool = False) -> IperfOutput:
    """The first test of a client in the text; ``warnings`` precede its own. UsageError if there is none."""
    name = "iperf2" if is_iperf2 else "iperf3"
    found, others = [], 0
    for part in _tests(string, is_iperf2=is_iperf2):
        header = _BEGIN.search(part)
        output = _output(part, header, is_iperf2=is_iperf2)
        if not (output.streams or output.sent or output.received):
            continue
        if header is None or header["client"]:
            found.append(output)
        else:
            others += 1
    if not found:
        raise _refusal(string, name, has_servers=bool(others))
    if further := len(found) - 1 + others:
        more = counted(further, "further report")
        were = "was" if further == 1 else "were"
        warnings.append(f"{more} in the same text {were} left out: only the first is used")
    return msgspec.structs.replace(found[0], warnings=(*warnings, *found[0].warnings))


def _tests(string: str, *, is_iperf2: bool) -> Iterator[str]:
    """The text in parts, of which each is of one test: it begins with a header, or, if people kept only the
    totals, where a row is of the same side and stream as one before."""
    headers = [match.start() for match in _BEGIN.finditer(string)]
    rows = () if is_iperf2 else _ROW.finditer(string)
    labelled = [(row, label[0]) for row in rows if (label := _LABEL.search(row["rest"]))]
    # What precedes the first header stays with it, unless it is a test.
    starts = headers if headers and labelled and labelled[0][0].start() < headers[0] else headers[1:]
    places: list[tuple[int, tuple[str, ...]]] = [(start, ("",)) for start in starts]
    places += [(row.start(), (row["stream"], row["role"] or "", label)) for row, label in labelled]
    bounds, seen = [0], set[tuple[str, ...]]()
    for place, side in sorted(places):
        if side == ("",) or side in seen:
            bounds.append(place)
            seen.clear()
        seen.add(side)
    for start, end in itertools.pairwise([*bounds, len(string)]):
        yield string[start:end]


def _refusal(string: str, name: str, *, has_servers: bool) -> UsageError:
    if has_servers:
        return UsageError(
            f"expected the totals of a test by {name}'s client, found a server's log",
            hint="keep the client's output: a server's log may have several tests",
        )
    if failed := _FAILED.search(string):
        return nothing_measured(name, failed["error"] or failed[0])
    if not string.strip():
        return refusal(name, "an empty text")
    if name == "iperf3" and (header := _BEGIN.search(string)) and header["client"]:
        return UsageError("expected the output of iperf3, found iperf2's", hint="harness parse iperf2")
    if rows := list(_ROW.finditer(string)):
        return UsageError(
            f"expected the totals of a test by {name}, found only its intervals: the last ends at "
            f"{rows[-1]['seconds']} s",
            hint=f"{name} was stopped before it printed them: let it finish, or end it with Ctrl-C",
        )
    return refusal(name, f"none in a text that begins with {embedded.quote(string)}")


def _output(text: str, header: re.Match[str] | None, *, is_iperf2: bool) -> IperfOutput:
    rows = list(_ROW.finditer(text))
    if is_iperf2 or not any(row["role"] for row in rows):
        return _of_rows(text, rows, header, is_iperf2=is_iperf2)
    ahead, back = ([row for row in rows if ("RX" in (row["role"] or "")) is way] for way in (False, True))
    return with_reverse(
        _of_rows(text, ahead, header, is_iperf2=False, others=back),
        _of_rows(text, back, header, is_iperf2=False, others=ahead),
    )


def _of_rows(
    text: str,
    rows: Sequence[re.Match[str]],
    header: re.Match[str] | None,
    *,
    is_iperf2: bool,
    others: Sequence[re.Match[str]] = (),
) -> IperfOutput:
    """What the rows of one direction come to; ``others`` are those of the other one."""
    problems: list[str] = []
    warnings: list[str] = []
    measured = [row for row in rows if "(omitted)" not in row["rest"]]
    readable = [row for row in measured if not (row["back"] or (is_iperf2 and row["role"]))]
    if len(readable) < len(measured):
        problems.append(BOTH_WAYS)
    is_udp = any(row["datagrams"] for row in rows) or (header is not None and " UDP " in header[0])
    sides = _of_iperf2(text, readable, problems) if is_iperf2 else _of_iperf3(text, readable, problems)
    elsewhere = {row["stream"] for row in others} - {row["stream"] for row in rows}
    connected = {
        match["stream"]: match["port"]
        for match in _CONNECTED.finditer(text)
        if match["stream"] not in elsewhere
    }
    for key, side in sides.items():
        if side and (missing := [f"[{stream}]" for stream in connected if stream not in side]):
            problems.append(f"{key}: no total for {', '.join(missing)}, so the text may be cut")
    sent, received = _total(sides["sent"], "sent", problems), _total(sides["received"], "received", problems)
    if is_udp and sent and (count := _count(_SENT.finditer(text), sides["sent"])):
        sent = msgspec.structs.replace(sent, datagrams=count)
    if is_udp and received:
        count = _count(_DISORDER.finditer(text), sides["received"])
        received = msgspec.structs.replace(received, out_of_order=count)
    elif is_udp and not sides["received"]:
        warnings.append("the server's report is missing, so loss, jitter and reordering are unknown")
    streams = tuple(
        Stream(id=name, sent=sides["sent"].get(name), received=sides["received"].get(name))
        for name in dict.fromkeys((*sides["sent"], *sides["received"]))
        if name != SUM
    )
    problems += contradictions(sent, received, streams, omits=len(readable) < len(rows))
    if failed := _FAILED.search(text):
        problems.append(f"iperf says {embedded.quote(failed['error'] or failed[0])}")
    if header is not None and header["port"] in connected.values():
        problems.append(BOTH_WAYS)  # -d, -r
    if header is None:
        warnings.append("no header says which end this is: assumed to be a client")
    return IperfOutput(
        role=None if header is None else "client" if header["client"] else "server",
        protocol="UDP" if is_udp else "TCP" if rows else None,
        error=failed["error"] if failed else None,
        sent=sent,
        received=received,
        streams=streams,
        invalid=tuple(dict.fromkeys(problems)),
        warnings=tuple(warnings),
    )


def _of_iperf3(text: str, measured: list[re.Match[str]], problems: list[str]) -> ReportsBySide:
    """The rows that name their side, or UDP's one row for both ends."""
    sides: ReportsBySide = {"sent": {}, "received": {}}
    labelled = [(row, label[0]) for row in measured if (label := _LABEL.search(row["rest"]))]
    # The senders' first, because a sum's loss may be a part of their counts.
    for row, side in sorted(labelled, key=lambda found: found[1] != "sender"):
        stream = row["stream"]
        if side == "sender":
            sides["sent"][stream] = _report(row, f"sent [{stream}]", problems)
        else:
            count = sides["sent"][stream].datagrams if stream in sides["sent"] else None
            sides["received"][stream] = _report(row, f"received [{stream}]", problems, sent=count)
    separators = [match.end() for match in _SEPARATOR.finditer(text)]
    # A text with a bitrate and no bandwidth also has labels (3.2): a row without one is cut.
    if not labelled and separators and not _BITRATE.search(text):
        for row in measured:
            if row["datagrams"] and row.start() > separators[-1]:
                counted = _report(row, f"[{row['stream']}]", problems)
                sides["sent"][row["stream"]] = counted
                sides["received"][row["stream"]] = counted.receivers_part
    sides["sent"] = {stream: counted.senders_part for stream, counted in sides["sent"].items()}
    return sides


def _of_iperf2(text: str, measured: list[re.Match[str]], problems: list[str]) -> ReportsBySide:
    """The last row of each side and stream that begins at 0, if no other ends later."""
    reported = {match["stream"]: match.start() for match in _SERVER_REPORT.finditer(text)}
    by_path: dict[tuple[str, str], list[re.Match[str]]] = {}
    for row in measured:
        is_received = row["datagrams"] or row.start() > reported.get(row["stream"], len(text))
        by_path.setdefault(("received" if is_received else "sent", row["stream"]), []).append(row)
    sides: ReportsBySide = {"sent": {}, "received": {}}
    for (side, stream), of_path in by_path.items():
        last = max(float(row["seconds"]) for row in of_path)
        whole = [row for row in of_path if float(row["start"]) == 0 and float(row["seconds"]) == last]
        if whole:
            sides[side][stream] = _report(whole[-1], f"{side} [{stream}]", problems)
    return sides


def _report(row: re.Match[str], where: str, problems: list[str], *, sent: int | None = None) -> IperfReport:
    base, bits = (1000, 1) if row["rate_unit"] == "bits" else (1024, 8)
    units = {
        "bytes": 1024 ** _POWER[row["bytes_prefix"]],
        "rate_bit_s": bits * base ** _POWER[row["rate_prefix"]],
        "retransmits": 1,
        "datagrams": 1,
        "lost": 1,
        # Of no datagrams, C prints a part of nan.
        **({"loss_percent": 1} if row["datagrams"] and int(row["datagrams"]) else {}),
        "jitter_ns": MS_NS,
    }
    wrong: list[str] = []
    found = {name: matched(row, name, unit, wrong) for name, unit in units.items()}
    problems += [f"{where}: {problem}" for problem in wrong]
    start, end = printed(row["start"]), printed(row["seconds"])
    # A total begins at 0, which is not rounded.
    found["seconds"] = Printed(end.value - start.value, end.step) if start and end else None
    return report(found, where, problems, sent=sent)


def _count(lines: Iterable[re.Match[str]], side: Mapping[str, IperfReport]) -> int | None:
    """What lines of their own count for all streams together; None if one of them has no such line."""
    counts = {line["stream"]: int(line["count"]) for line in lines}
    streams = [stream for stream in side if stream != SUM]
    if SUM in counts or not all(stream in counts for stream in streams):
        return counts.get(SUM)
    return sum(counts[stream] for stream in streams)


def _total(side: Mapping[str, IperfReport], where: str, problems: list[str]) -> IperfReport | None:
    """The total of all streams: a sum is required if there are several."""
    if SUM not in side and len(side) > 1:
        problems.append(f"{where}: {len(side)} streams, but no [SUM] of them")
        return None
    return side.get(SUM) or next(iter(side.values()), None)
