"""iperf3's JSON (``-J``), from 3.0 to 3.20; its text is ``parse.iperf_text``'s.

What each end can know, after ``iperf_print_results`` in ``iperf_api.c`` and issues 560, 584 and 754 of
esnet/iperf:

- Loss, jitter and order of UDP are what the server saw (with ``-R``: the client).
- A receiver counts datagrams up to the last one that arrives, so it never hears of those that were lost after
  that. Next to its counts is the part of what was *sent*, in sums of several streams and in JSON.
  ``loss_percent`` is always the part of the receiver's own count.
- Up to 3.10 the JSON has one ``sum`` for UDP: its bytes and rate are the sender's, its loss and jitter the
  receiver's. It does not report the bytes received.
- A server reports 0 for everything that only its client knows.
- Times are those of each end's own clock, so the receiver's ``end``, not ``seconds``, goes with its rate.
  ``mean_rtt`` is in microseconds.

Of several documents the first counts, and the others get a warning. With ``--json-stream`` there is an object
for each event, which together are a document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from harness.model.errors import UsageError
from harness.parse import embedded, iperf_text
from harness.parse.figures import Printed, take
from harness.parse.iperf import (
    MS_NS,
    End,
    IperfOutput,
    IperfReport,
    Stream,
    contradictions,
    nothing_measured,
    refusal,
    report,
    with_reverse,
)

US_NS = 1000
LOSS_STEP_PERCENT = 0.01
"""How far a loss in JSON may be from the part that its counts make."""


def parse(text: bytes | str) -> IperfOutput:
    """Read what iperf3 wrote, JSON or text, with anything around it.

    ``invalid`` says what is wrong with the test, ``warnings`` what else is odd. Raises ``UsageError``, and
    nothing else, if there are no totals: with iperf3's own message, if it has one.
    """
    warnings: list[str] = []
    string = embedded.to_string(text, warnings)
    if not string.strip():
        raise refusal("iperf3", "an empty text")
    output = _of_json(string, warnings) if _JSON.search(string) else iperf_text.parse(string, [])
    return msgspec.structs.replace(output, warnings=tuple(dict.fromkeys((*warnings, *output.warnings))))


_JSON = re.compile(r'\{\s*"')


# JSON. Figures are Any, so that one of a wrong type only costs itself and not the file.


_Sum: TypeAlias = dict[str, Any]


class _EndStream(msgspec.Struct):
    sender: _Sum | None = None
    receiver: _Sum | None = None
    udp: _Sum | None = None


class _Iperf3End(msgspec.Struct):
    streams: list[_EndStream] = []
    sum: _Sum | None = None
    sum_sent: _Sum | None = None
    sum_received: _Sum | None = None
    sum_bidir_reverse: _Sum | None = None
    sum_sent_bidir_reverse: _Sum | None = None
    sum_received_bidir_reverse: _Sum | None = None


class _Interval(msgspec.Struct):
    streams: list[_Sum] = []


class _Test(msgspec.Struct):
    protocol: str | None = None
    omit: Any = None


class _Start(msgspec.Struct):
    version: str | None = None
    test_start: _Test = msgspec.field(default_factory=_Test)
    connecting_to: dict[str, Any] | None = None
    accepted_connection: dict[str, Any] | None = None


class _Iperf3Document(msgspec.Struct):
    start: _Start = msgspec.field(default_factory=_Start)
    intervals: list[_Interval] = []
    end: _Iperf3End = msgspec.field(default_factory=_Iperf3End)
    error: str | None = None
    server_output_json: msgspec.Raw = msgspec.Raw()


class _Event(msgspec.Struct):
    event: str
    data: msgspec.Raw


_DOCUMENT = msgspec.json.Decoder(_Iperf3Document)
_EVENT = msgspec.json.Decoder(_Event)
_START = re.compile(r'\{\s*"event"\s*:\s*"start"')


def _joined(string: str, warnings: list[str]) -> str:
    """The events of ``--json-stream`` (iperf_api.c, JSONStream_Output) as the document that they are of."""
    single: dict[str, msgspec.Raw] = {}
    intervals: list[msgspec.Raw] = []
    for event in embedded.find(string, ("event",), _EVENT, warnings).documents:
        if event.event == "interval":
            intervals.append(event.data)
        elif event.event in single:
            raise embedded.NoDocument(f"a second event {embedded.quote(event.event)} in the same text")
        else:
            single[event.event] = event.data
    return msgspec.json.encode({**single, "intervals": intervals}).decode()


def _of_json(string: str, warnings: list[str]) -> IperfOutput:
    try:
        if _START.search(string):
            string = _joined(string, warnings)
        document, *others = embedded.find(string, ("intervals",), _DOCUMENT, warnings).documents
    except embedded.NoDocument as error:
        raise refusal("iperf3", str(error)) from None
    if others:
        warnings.append(
            f"{len(others)} further iperf3 documents in the same text were left out: "
            "only the first is used; give each its own file"
        )
    output = _of_document(document)
    if not (output.sent or output.received):
        if document.error is None:
            raise refusal("iperf3", "none, and no error message either")
        raise nothing_measured("iperf3", document.error)
    return msgspec.structs.replace(output, server=_servers_account(document, warnings))


def _servers_account(document: _Iperf3Document, warnings: list[str]) -> IperfOutput | None:
    try:
        if raw := bytes(document.server_output_json):
            return _of_document(_DOCUMENT.decode(raw), role="server")
    except (msgspec.DecodeError, RecursionError, UsageError) as error:
        warnings.append(f"the server's report of the test cannot be parsed: {error}")
    return None


def _of_document(document: _Iperf3Document, role: End | None = None) -> IperfOutput:
    start, streams = document.start, document.end.streams
    if start.connecting_to is not None:
        role = "client"
    elif start.accepted_connection is not None:
        role = "server"
    if not (document.end.sum_bidir_reverse or document.end.sum_sent_bidir_reverse):
        return _of_direction(document, streams, role)
    # Sums are the client's way on both ends; a stream says whether this end sends.
    ahead, back = list[_EndStream](), list[_EndStream]()
    for stream in streams:
        first = stream.udp or stream.sender or stream.receiver or {}
        (back if first.get("sender") is (role == "server") else ahead).append(stream)
    return with_reverse(
        _of_direction(document, ahead, role), _of_direction(document, back, role, "_bidir_reverse")
    )


def _of_direction(
    document: _Iperf3Document, its_streams: list[_EndStream], role: End | None, way: str = ""
) -> IperfOutput:
    """What went one way; ``way`` ends the names of its sums."""
    problems: list[str] = []
    start, end = document.start, document.end
    both, sender, receiver = (getattr(end, f"{name}{way}") for name in ("sum", "sum_sent", "sum_received"))
    sent, received = _both_ends(both, sender, receiver, "sum", role, problems)
    streams = [_stream(number, stream, role) for number, stream in enumerate(its_streams, start=1)]
    received = _with_disorder(received, its_streams, problems)

    protocol = start.test_start.protocol
    if protocol is None and (sent or received):
        protocol = "UDP" if both else "TCP"
    omits = bool(take(start.test_start.omit, "omit", problems))
    problems += contradictions(sent, received, streams, omits=omits)
    if not any(reported and (reported.bytes or reported.datagrams) for reported in (sent, received)):
        problems.append("nothing was transferred")
    if document.error is not None:
        problems.append(f"iperf3 says {embedded.quote(document.error)}")

    # Of a stream that this end receives (since 3.7 they say so), TCP_INFO is that of a socket that sends no
    # data: a round trip from before the load, and the initial window.
    senders = [
        stream.sender for stream in its_streams if stream.sender and stream.sender.get("sender") is not False
    ]
    # Intervals do not say whose they are, where there are both directions.
    in_intervals = [stream for interval in document.intervals for stream in interval.streams if not way]
    means, least, most = (
        _measured(senders, name, problems, US_NS) for name in ("mean_rtt", "min_rtt", "max_rtt")
    )
    # Before 3.1 only the intervals have the window.
    windows = _measured(senders, "max_snd_cwnd", problems) or _measured(in_intervals, "snd_cwnd", problems)
    mtus = _measured(in_intervals, "pmtu", problems)
    return IperfOutput(
        role=role,
        protocol=protocol,
        version=start.version,
        error=document.error,
        sent=sent,
        received=received,
        streams=tuple(streams),
        rtt_mean_ns=sum(means) / len(means) if means else None,
        rtt_min_ns=min(least) if least else None,
        rtt_max_ns=max(most) if most else None,
        cwnd_max_bytes=int(max(windows)) if windows else None,
        pmtu_bytes=int(min(mtus)) if mtus else None,
        invalid=tuple(dict.fromkeys(problems)),
    )


def _stream(number: int, stream: _EndStream, role: End | None) -> Stream:
    """The number-th stream (from 1)."""
    # The figures of single streams repeat, or add up to, those of the sums: one complaint is enough.
    ends = _both_ends(stream.udp, stream.sender, stream.receiver, f"stream {number}", role, [])
    first = stream.udp or stream.sender or stream.receiver or {}
    socket = first.get("socket")
    return Stream(id=str(socket if isinstance(socket, int) else number), sent=ends[0], received=ends[1])


def _measured(streams: Iterable[_Sum], name: str, problems: list[str], unit: int = 1) -> list[float]:
    """What a kernel gave of streams: without TCP_INFO iperf3 prints 0 or -1."""
    known = (stream.get(name) for stream in streams if stream.get(name) not in (0, -1))
    return [value for figure in known if (value := take(figure, name, problems, unit))]


def _both_ends(
    both: _Sum | None,
    sender: _Sum | None,
    receiver: _Sum | None,
    where: str,
    role: End | None,
    problems: list[str],
) -> tuple[IperfReport | None, IperfReport | None]:
    """What was sent and what was received, from one sum for both ends (UDP) or one for each."""
    if both is not None and (sender is None or receiver is None):
        reported = _report(both, where, problems)
        return _known(reported.senders_part, role), reported.receivers_part
    sent = None if sender is None else _report(sender, f"{where} sent", problems).senders_part
    count = None if sent is None else sent.datagrams
    received = None if receiver is None else _report(receiver, f"{where} received", problems, sent=count)
    return _known(sent, role), _known(received, role)


def _known(reported: IperfReport | None, role: End | None) -> IperfReport | None:
    """Drop a server's zeros: it reports 0 for what only its client knows."""
    return None if reported and role == "server" and not reported.bytes else reported


_FIGURES = {
    "bytes": ("bytes", 1),
    "seconds": ("seconds", 1),
    "rate_bit_s": ("bits_per_second", 1),
    "retransmits": ("retransmits", 1),
    "datagrams": ("packets", 1),
    "lost": ("lost_packets", 1),
    "loss_percent": ("lost_percent", 1),
    "jitter_ns": ("jitter_ms", MS_NS),
    "out_of_order": ("out_of_order", 1),
}
"""By the fields of a Report: iperf3's names, and what one of its unit is in ours."""


def _report(reported: _Sum, where: str, problems: list[str], *, sent: int | None = None) -> IperfReport:
    """The figures of a sum; ``sent`` is how many datagrams the sum of the sender has."""
    wrong: list[str] = []
    values = {name: take(reported.get(key), key, wrong, unit) for name, (key, unit) in _FIGURES.items()}
    start, end = take(reported.get("start"), "start", wrong), take(reported.get("end"), "end", wrong)
    if start is not None and end is not None:
        values["seconds"] = end - start
    problems += [f"{where}: {problem}" for problem in wrong]
    steps = {"loss_percent": LOSS_STEP_PERCENT}
    found = {
        name: None if value is None else Printed(value, steps.get(name, 0.0))
        for name, value in values.items()
    }
    return report(found, where, problems, sent=sent)


def _with_disorder(
    received: IperfReport | None, streams: list[_EndStream], problems: list[str]
) -> IperfReport | None:
    """The sums lack what came out of order: it is the sum over the streams."""
    counts = [
        take(stream.udp.get("out_of_order"), "out_of_order", problems) for stream in streams if stream.udp
    ]
    known = [int(count) for count in counts if count is not None]
    if received is None or not known or len(known) < len(counts):
        return received
    return msgspec.structs.replace(received, out_of_order=sum(known))
