"""iperf2's text (2.0 and 2.1), of a client, of a server, or of both one after the other.

A row that begins at 0 and ends last is a total; the others are intervals. A UDP client prints what it sent,
and as ``Server Report`` what the server received; loss, jitter and order are the server's. For parallel
streams (``-P``) there is a sum of what was sent, but none of the Server Reports. A server prints one header
for all its tests; each begins where streams connect after the last rows of others. ``[ *1]`` is what the
server sent (``-R``, ``--full-duplex``).

Sources: iperf(1), ``Locale.c`` and ``ReportOutputs.c`` of iperf2.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

import msgspec

from harness.model.errors import UsageError
from harness.parse import embedded
from harness.parse.figures import COUNT
from harness.parse.iperf import (
    STREAM,
    SUM,
    Connection,
    Report,
    Row,
    Stream,
    connected,
    ends_problem,
    first_and_server,
    missing_problem,
    out_of_order,
    report,
    rows,
    sum_problem,
    together,
    transcripts,
)


class Iperf2Output(msgspec.Struct, frozen=True, kw_only=True):
    """One test as reported by one end; ``invalid`` says why its figures must not be used.

    ``sent`` and ``received`` are for all streams together, whichever way the data went (``-R``): a TCP client
    knows only the first, a server only the second, and with ``-R`` the other. ``reverse_sent`` and
    ``reverse_received`` are for the other direction of ``--full-duplex``. ``server`` is the server's own
    report if it is in the same text.
    """

    role: Literal["client", "server"] | None
    protocol: Literal["TCP", "UDP"] | None
    sent: Report | None = None
    received: Report | None = None
    reverse_sent: Report | None = None
    reverse_received: Report | None = None
    streams: tuple[Stream, ...] = ()
    server: Iperf2Output | None = None
    invalid: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


_HEADER = re.compile(
    r"\b(?:(?P<client>Client connecting to \S{1,255})|Server listening on),?\s+(?P<protocol>TCP|UDP) port "
    r"(?P<port>[0-9]{1,5})"
)
_SENT = re.compile(rf"{STREAM}\s+Sent\s+(?P<count>{COUNT})\s+datagrams")
_SERVER_REPORT = re.compile(rf"{STREAM}\s+Server Report:")
_FAILED = re.compile(
    r"\b(?:connect|bind|listen|accept|read|write|shutdown)[0-9a-z ]{0,12} failed: [^\n]{1,120}"
)
_IPERF3 = re.compile(r"\bConnecting to host \S|\bAccepted connection from |\biperf3: ")
_NO_ACK = re.compile(r"did not receive ack of last datagram|ack of last datagram failed")


def parse(text: bytes | str) -> Iperf2Output:
    """Read the first test in what iperf2 wrote.

    Raises ``UsageError``, and nothing else, if there is no row with the total of a test.
    """
    warnings: list[str] = []
    string = embedded.to_string(text, warnings)
    if _IPERF3.search(string):
        raise UsageError("expected the output of iperf2, found iperf3's", hint="harness parse iperf3")
    found = []
    for transcript in transcripts(string, _HEADER):
        header = _HEADER.search(transcript)
        for test in _tests(transcript, header):
            connections = [connection for _, connection in connected(test)]
            output = _output(test, header, connections)
            if output.sent or output.received or output.streams:
                found.append((output, connections))
    if not found:
        raise _refusal(string)
    first, server, further = first_and_server(found)
    if further:
        warnings.append(f"{further} further tests in the same text were left out: give each its own file")
    return msgspec.structs.replace(first, server=server, warnings=(*warnings, *first.warnings))


def _refusal(string: str) -> UsageError:
    if failed := _FAILED.search(string):
        state = f"its message {embedded.quote(failed[0])}"
    elif not string.strip():
        state = "an empty text"
    else:
        state = f"a text that begins with {embedded.quote(string)}"
    return UsageError(
        f"expected a row of iperf2 with the total of a test, found {state}",
        hint="keep the plain text (no -y C) of the whole test, from '0.0-' to its end",
    )


def _tests(transcript: str, header: re.Match[str] | None) -> list[str]:
    """A transcript cut where streams connect after the last rows of others; a client makes one test."""
    if header is not None and header["client"]:
        return [transcript]
    all_rows = rows(transcript)
    told = [(row.match.start(), row.stream, False) for row in all_rows if row.stream != SUM]
    begun = [(place, connection.stream, True) for place, connection in connected(transcript)]
    # From the end, where it is known which streams have rows before they connect (again).
    places, going_on = list[int](), set[str]()
    for place, stream, connects in sorted((*told, *begun), reverse=True):
        if not connects:
            going_on.add(stream)
            continue
        going_on.discard(stream)
        if not going_on:
            places.append(place)
    row_places = [row.match.start() for row in all_rows]
    starts = [0]
    for place in reversed(places):
        if bisect_left(row_places, starts[-1]) < bisect_left(row_places, place):
            starts.append(place)
    return [transcript[a:b] for a, b in pairwise((*starts, len(transcript)))]


def _output(text: str, header: re.Match[str] | None, connections: list[Connection]) -> Iperf2Output:
    role: Literal["client", "server"] | None = None
    if header is not None:
        role = "client" if header["client"] else "server"
    all_rows = rows(text)
    protocol: Literal["TCP", "UDP"] | None = None
    if header is not None:
        protocol = "UDP" if header["protocol"] == "UDP" else "TCP"
    elif all_rows:
        protocol = "UDP" if any(row.counts_loss for row in all_rows) else "TCP"

    problems: list[str] = []
    warnings: list[str] = []
    reports = {match["stream"]: match.start() for match in _SERVER_REPORT.finditer(text)}
    at_receiver: list[Row] = []
    at_sender: list[Row] = []
    # A sum has no mark.
    is_reverse = any(row.back for row in all_rows) and all(row.back or row.stream == SUM for row in all_rows)
    receives = (role == "server") != is_reverse
    for row in all_rows:
        reported = row.match.start() > reports.get(row.stream, len(text))
        if is_reverse or not row.back:
            (at_receiver if row.counts_loss or receives or reported else at_sender).append(row)
    datagrams = {
        match["stream"]: int(match["count"])
        for match in _SENT.finditer(text)
        if is_reverse or not match["back"]
    }
    sent_sum, sent_by_stream = _side(at_sender, "sent", datagrams, "datagrams", problems, warnings)
    sent = _total(sent_sum, sent_by_stream, "sent", problems)
    received_sum, received_by_stream = _side(
        at_receiver, "received", out_of_order(text), "out_of_order", problems, warnings
    )
    back = [row for row in all_rows if row.back and not is_reverse]
    _, back_by_stream = _side(back, "reverse", {}, "datagrams", problems, warnings)
    reverse = _total(None, back_by_stream, "reverse", problems)
    if problem := missing_problem(sent_by_stream, connections, "sent"):
        problems.append(problem)
    if protocol == "UDP":
        due = (*sent_by_stream, *(connection.stream for connection in connections))
        received = _added_up(received_sum, received_by_stream, due, warnings)
    else:
        received = _total(received_sum, received_by_stream, "received", problems)
        if problem := missing_problem(received_by_stream, connections, "received"):
            problems.append(problem)
    if sent and role is None:
        warnings.append("no header says which end this is: it was taken for a client")
    if sent and protocol == "UDP" and role != "server" and not received_by_stream:
        warnings.append("there is no Server Report: loss, jitter and order are unknown")
    if _NO_ACK.search(text):
        warnings.append("the server did not acknowledge the end of the test")
    if problem := ends_problem(sent, received, omits=False):
        problems.append(problem)
    if failed := _FAILED.search(text):
        problems.append(f"iperf2 says {embedded.quote(failed[0])}")
    if role == "client" and header and any(c.local_port == header["port"] for c in connections):
        problems.append("a test in both directions (-d, -r): its rows do not say which direction is which")
    return Iperf2Output(
        role=role,
        protocol=protocol,
        sent=sent,
        received=received,
        reverse_sent=reverse if role == "server" else None,
        reverse_received=None if role == "server" else reverse,
        streams=(
            *(
                Stream(id=name, sent=sent_by_stream.get(name), received=received_by_stream.get(name))
                for name in dict.fromkeys((*sent_by_stream, *received_by_stream))
            ),
            *(
                Stream(
                    id=f"*{name}",
                    sent=told if role == "server" else None,
                    received=None if role == "server" else told,
                )
                for name, told in back_by_stream.items()
            ),
        ),
        invalid=tuple(problems),
        warnings=tuple(warnings),
    )


def _side(
    of_side: list[Row],
    where: str,
    counts: dict[str, int],
    count_name: str,
    problems: list[str],
    warnings: list[str],
) -> tuple[Report | None, dict[str, Report]]:
    """[SUM] of one side, and the totals of its streams, with the counts from other lines."""
    first_bytes = 0
    reports: dict[str, Report] = {}
    by_stream: dict[str, list[Row]] = {}
    for row in of_side:
        by_stream.setdefault(row.stream, []).append(row)
    for name, of_stream in by_stream.items():
        last = max(row.end_s for row in of_stream)
        begun = [row for row in of_stream if row.start_s == 0]
        whole = [row for row in begun if row.end_s == last]
        if whole and name != SUM and whole[0] is not begun[0]:
            first_bytes += report(begun[0], f"{where} [{name}]", []).bytes or 0
        if whole:
            total = report(whole[-1], f"{where} [{name}]", problems)
            if name in counts:
                total = msgspec.structs.replace(total, **{count_name: counts[name]})
            reports[name] = total
    total_of_all = reports.pop(SUM, None)
    if total_of_all is not None:
        # Jitter exists only for single streams: sums of 2.0.14 say 0.
        total_of_all = msgspec.structs.replace(total_of_all, jitter_ns=None)
        parts = list(reports.values())
        if problem := sum_problem(total_of_all, parts, where):
            # Reported of sums of servers of 2.0 (-P, -i).
            twice = Report(bytes=first_bytes)
            if first_bytes and sum_problem(total_of_all, [*parts, twice], where) is None:
                warnings.append(f"{where}: [SUM] has the first interval twice, so the streams were added up")
                total_of_all = together(parts)
            else:
                problems.append(problem)
        if SUM not in counts and counts:
            total_of_all = msgspec.structs.replace(total_of_all, **{count_name: sum(counts.values())})
    return total_of_all, reports


def _total(
    sum_row: Report | None, by_stream: dict[str, Report], where: str, problems: list[str]
) -> Report | None:
    """The total of all streams: a sum is required if there are several."""
    if sum_row is None and len(by_stream) > 1:
        problems.append(f"{where}: {len(by_stream)} streams, but no [SUM] of them")
        return None
    return sum_row or next(iter(by_stream.values()), None)


def _added_up(
    sum_row: Report | None, by_stream: dict[str, Report], due: Iterable[str], warnings: list[str]
) -> Report | None:
    """What arrived over all UDP streams; None if it is unknown for one that is ``due``."""
    missing = [name for name in dict.fromkeys(due) if name not in by_stream]
    if not by_stream or (missing and sum_row):
        return sum_row
    if missing:
        streams = ", ".join(f"[{name}]" for name in missing)
        warnings.append(f"there is no report of what arrived of {streams}: the total is unknown")
        return None
    if sum_row is None and len(by_stream) == 1:
        return next(iter(by_stream.values()))
    added = together(list(by_stream.values()))
    if sum_row is None:
        return added
    if (added.lost, added.datagrams) == (sum_row.lost, sum_row.datagrams) or added.lost is None:
        return sum_row
    # Seen with 2.1.8: 1 lost by [SUM], 3 by the streams.
    warnings.append(
        f"[SUM] counts {sum_row.lost} lost of {sum_row.datagrams}, "
        f"its streams {added.lost} of {added.datagrams}: the streams' counts were taken"
    )
    return msgspec.structs.replace(
        sum_row, lost=added.lost, datagrams=added.datagrams, loss_percent=added.loss_percent
    )
