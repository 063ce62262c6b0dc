"""iperf3's output: its JSON (``-J``, ``--json-stream``) and its text, from 3.0 to 3.20.

What each end can know, after ``iperf_print_results`` in ``iperf_api.c`` and issues 560, 584 and 754 of
esnet/iperf:

- Loss, jitter and order of UDP are what the server saw (with ``-R``: the client).
- A receiver counts datagrams up to the last one that arrives, so it never hears of those that were lost after
  that. Beside its counts stands the part of what was *sent*, in sums of several streams and in JSON.
  ``loss_percent`` is always the part of the receiver's own count.
- Up to 3.10 the JSON has one ``sum`` for UDP, and up to 3.1 the text one row: its bytes and rate are the
  sender's, its loss and jitter the receiver's. It does not report the bytes received.
- A server reports 0 for everything that only its client knows; so does a 3.1 server for UDP bytes.
- Times are those of each end's own clock, so the receiver's ``end``, not ``seconds``, goes with its rate.
  ``mean_rtt`` is in microseconds.

Of several documents or transcripts the first counts, and the others get a warning, except a server's
transcript of the same test beside its client's: the ports are those of the same connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from harness.model.errors import UsageError
from harness.parse import embedded
from harness.parse.figures import (
    COUNT,
    NUMBER,
    Printed,
    loss_problem,
    matched,
    rate_problem,
    take,
    value_of,
)
from harness.parse.iperf import (
    MS_NS,
    SUM,
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
    transcripts,
)

US_NS = 1000
LOSS_STEP_PERCENT = 0.01
"""How far a loss in JSON may be from the part that its counts make."""

End: TypeAlias = Literal["client", "server"]


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """Processor time of one end's iperf3, in percent of one core."""

    total_percent: float | None = None
    user_percent: float | None = None
    system_percent: float | None = None


class Iperf3Output(msgspec.Struct, frozen=True, kw_only=True):
    """One test as reported by one end; ``invalid`` says why its figures must not be used.

    ``sent`` and ``received`` are for all streams together, whichever way the data went (``-R``).
    ``reverse_sent`` and ``reverse_received`` are for the other direction of ``--bidir``. ``version`` is the
    tool's own string (``iperf 3.9``), ``error`` its own message. Round-trip times are the kernel's: the mean
    over the streams' means, the least and the most of any. ``cwnd_max_bytes`` is the largest of any stream,
    ``pmtu_bytes`` the smallest. ``server`` is the server's own report, from the same text or from
    ``--get-server-output``.
    """

    role: End | None
    protocol: str | None
    version: str | None = None
    error: str | None = None
    sent: Report | None = None
    received: Report | None = None
    reverse_sent: Report | None = None
    reverse_received: Report | None = None
    streams: tuple[Stream, ...] = ()
    rtt_mean_ns: float | None = None
    rtt_min_ns: float | None = None
    rtt_max_ns: float | None = None
    cwnd_max_bytes: int | None = None
    pmtu_bytes: int | None = None
    cpu_local: Cpu | None = None
    cpu_remote: Cpu | None = None
    server: Iperf3Output | None = None
    invalid: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def parse(text: bytes | str) -> Iperf3Output:
    """Read what iperf3 wrote, JSON or text, with anything around it.

    ``invalid`` says what is wrong with the test, ``warnings`` what else is odd. Raises ``UsageError``, and
    nothing else, if there are no totals: with iperf3's own message, if it has one.
    """
    warnings: list[str] = []
    string = embedded.to_string(text, warnings)
    if not string.strip():
        raise _refusal("an empty text")
    output = _of_json(string, warnings) if _JSON.search(string) else _of_text(string, warnings)
    return msgspec.structs.replace(output, warnings=tuple(dict.fromkeys((*warnings, *output.warnings))))


_JSON = re.compile(r'\{\s*"')


def _refusal(found: str) -> UsageError:
    return UsageError(
        f"expected the totals of a test by iperf3, found {found}",
        hint="let iperf3 finish, and keep all that it prints, best with --json",
    )


def _nothing_measured(error: str | None) -> UsageError:
    if error is None:
        return _refusal("none: it ended without them, and without saying why")
    return UsageError(
        f"expected the totals of a test by iperf3, but it measured nothing: {embedded.quote(error)}",
        hint="see that iperf3 -s runs on the other side, is not busy, and that its port is reachable",
    )


# JSON. Figures are Any, so that one of a wrong type only costs itself and not the file.


class _Sum(msgspec.Struct):
    socket: Any = None
    start: Any = None
    end: Any = None
    seconds: Any = None
    bytes: Any = None
    bits_per_second: Any = None
    retransmits: Any = None
    jitter_ms: Any = None
    lost_packets: Any = None
    packets: Any = None
    lost_percent: Any = None
    out_of_order: Any = None
    max_snd_cwnd: Any = None
    mean_rtt: Any = None
    min_rtt: Any = None
    max_rtt: Any = None


class _EndStream(msgspec.Struct):
    sender: _Sum | None = None
    receiver: _Sum | None = None
    udp: _Sum | None = None


class _End(msgspec.Struct):
    streams: list[_EndStream] = []
    sum: _Sum | None = None
    sum_sent: _Sum | None = None
    sum_received: _Sum | None = None
    sum_bidir_reverse: _Sum | None = None
    sum_sent_bidir_reverse: _Sum | None = None
    sum_received_bidir_reverse: _Sum | None = None
    cpu_utilization_percent: dict[str, Any] = {}


class _IntervalStream(msgspec.Struct):
    snd_cwnd: Any = None
    pmtu: Any = None


class _Interval(msgspec.Struct):
    streams: list[_IntervalStream] = []


class _Test(msgspec.Struct):
    protocol: str | None = None
    omit: Any = None


class _Start(msgspec.Struct):
    version: str | None = None
    test_start: _Test = msgspec.field(default_factory=_Test)
    connecting_to: dict[str, Any] | None = None
    accepted_connection: dict[str, Any] | None = None


class _Document(msgspec.Struct):
    start: _Start = msgspec.field(default_factory=_Start)
    intervals: list[_Interval] = []
    end: _End = msgspec.field(default_factory=_End)
    error: str | None = None
    server_output_json: msgspec.Raw = msgspec.Raw()
    server_output_text: str | None = None


class _Event(msgspec.Struct):
    """One line of ``--json-stream`` (3.17 and later)."""

    event: str
    data: msgspec.Raw = msgspec.Raw()


_DOCUMENT = msgspec.json.Decoder(_Document)
_EVENT = msgspec.json.Decoder(_Event)


def _of_json(string: str, warnings: list[str]) -> Iperf3Output:
    try:
        found = embedded.find(string, ("intervals",), warnings)
        text, *others = found.documents
        if others:
            warnings.append(
                f"{len(others)} further iperf3 documents in the same text were left out: "
                "only the first counts; give each its own file"
            )
    except embedded.NoDocument as error:
        text = _joined(embedded.mend(string, []))
        if not text:
            raise _refusal(_damage(string) or str(error)) from None
    try:
        document = _DOCUMENT.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refusal(f"JSON of another form: {error}") from None
    output = _of_document(document)
    if not (output.sent or output.received):
        raise _nothing_measured(document.error)
    return msgspec.structs.replace(output, server=_servers_account(document, warnings))


def _damage(string: str) -> str | None:
    """Where an incomplete document of iperf3 breaks off."""
    opening = _JSON.search(string)
    if opening is None or '"intervals"' not in string:
        return None
    try:
        _DOCUMENT.decode(string[opening.start() :])
    except (msgspec.DecodeError, RecursionError) as error:
        return f"a document that is cut or damaged: {error}"
    return None


_MEMBERS = ("start", "end", "error", "server_output_json", "server_output_text")


def _joined(string: str) -> str:
    """The document that ``--json-stream`` wrote event by event; empty if it did not."""
    parts: dict[str, str] = {}
    intervals = []
    for line in string.splitlines():
        try:
            event = _EVENT.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue
        data = bytes(event.data).decode()
        if event.event == "interval":
            intervals.append(data)
        elif event.event in _MEMBERS:
            parts.setdefault(event.event, data or "null")
    members = [f'"{name}": {data}' for name, data in parts.items()]
    return "{" + ", ".join([*members, f'"intervals": [{", ".join(intervals)}]']) + "}" if parts else ""


def _servers_account(document: _Document, warnings: list[str]) -> Iperf3Output | None:
    try:
        if raw := bytes(document.server_output_json):
            return _of_document(_DOCUMENT.decode(raw), role="server")
        if document.server_output_text:
            return _of_text(document.server_output_text, warnings)
    except (msgspec.DecodeError, RecursionError, UsageError) as error:
        warnings.append(f"the server's report of the test cannot be parsed: {error}")
    return None


def _of_document(document: _Document, role: End | None = None) -> Iperf3Output:
    problems: list[str] = []
    start, end = document.start, document.end
    if start.connecting_to is not None:
        role = "client"
    elif start.accepted_connection is not None:
        role = "server"
    sent, received = _both_ends(end.sum, end.sum_sent, end.sum_received, "sum", role, problems)
    reverse_sent, reverse_received = _both_ends(
        end.sum_bidir_reverse,
        end.sum_sent_bidir_reverse,
        end.sum_received_bidir_reverse,
        "reverse sum",
        role,
        problems,
    )
    streams = [_stream(number, stream, role) for number, stream in enumerate(end.streams, start=1)]
    received = _with_disorder(received, end.streams, problems)

    protocol = start.test_start.protocol
    if protocol is None and (sent or received):
        protocol = "UDP" if end.sum else "TCP"
    omits = bool(take(start.test_start.omit, "omit", problems))
    problems += _contradictions(sent, received, reverse_sent, reverse_received, streams, omits=omits)
    if document.error is not None:
        problems.append(f"iperf3 says {embedded.quote(document.error)}")

    senders = [stream.sender for stream in end.streams if stream.sender]
    in_intervals = [stream for interval in document.intervals for stream in interval.streams]
    means = _measured((s.mean_rtt for s in senders), "mean_rtt", problems, US_NS)
    least = _measured((s.min_rtt for s in senders), "min_rtt", problems, US_NS)
    most = _measured((s.max_rtt for s in senders), "max_rtt", problems, US_NS)
    # Before 3.1 only the intervals have the window.
    windows = _measured((s.max_snd_cwnd for s in senders), "max_snd_cwnd", problems)
    windows = windows or _measured((s.snd_cwnd for s in in_intervals), "snd_cwnd", problems)
    mtus = _measured((s.pmtu for s in in_intervals), "pmtu", problems)
    return Iperf3Output(
        role=role,
        protocol=protocol,
        version=start.version,
        error=document.error,
        sent=sent,
        received=received,
        reverse_sent=reverse_sent,
        reverse_received=reverse_received,
        streams=tuple(streams),
        rtt_mean_ns=sum(means) / len(means) if means else None,
        rtt_min_ns=min(least) if least else None,
        rtt_max_ns=max(most) if most else None,
        cwnd_max_bytes=int(max(windows)) if windows else None,
        pmtu_bytes=int(min(mtus)) if mtus else None,
        cpu_local=_cpu(end.cpu_utilization_percent, "host", problems),
        cpu_remote=_cpu(end.cpu_utilization_percent, "remote", problems),
        invalid=tuple(dict.fromkeys(problems)),
    )


def _stream(number: int, stream: _EndStream, role: End | None) -> Stream:
    """The number-th stream (from 1)."""
    # The figures of single streams repeat, or add up to, those of the sums: one complaint is enough.
    ends = _both_ends(stream.udp, stream.sender, stream.receiver, f"stream {number}", role, [])
    first = stream.udp or stream.sender or stream.receiver
    name = str(number) if first is None or not isinstance(first.socket, int) else str(first.socket)
    return Stream(id=name, sent=ends[0], received=ends[1])


def _measured(figures: Iterable[object], where: str, problems: list[str], unit: int = 1) -> list[float]:
    """The figures that a kernel gave: without TCP_INFO iperf3 prints 0 or -1."""
    known = (figure for figure in figures if figure not in (0, -1))
    return [value for figure in known if (value := take(figure, where, problems, unit))]


def _cpu(figures: dict[str, Any], end: str, problems: list[str]) -> Cpu | None:
    names = {name: f"{end}_{name}" for name in ("total", "user", "system")}
    if not any(key in figures for key in names.values()):
        return None
    return Cpu(**{f"{name}_percent": take(figures.get(key), key, problems) for name, key in names.items()})


def _both_ends(
    both: _Sum | None,
    sender: _Sum | None,
    receiver: _Sum | None,
    where: str,
    role: End | None,
    problems: list[str],
) -> tuple[Report | None, Report | None]:
    """What was sent and what was received, from one sum for both ends (UDP) or one for each."""
    if both is not None and (sender is None or receiver is None):
        told = _report(both, where, problems)
        return _known(_senders_part(told), role), _receivers_part(told)
    sent = None if sender is None else _senders_part(_report(sender, f"{where} sent", problems))
    count = None if sent is None else sent.datagrams
    received = None if receiver is None else _report(receiver, f"{where} received", problems, sent=count)
    return _known(sent, role), _known(received, role)


def _senders_part(told: Report) -> Report:
    """Drop loss and jitter: a sender cannot know them, and reports 0 for them."""
    return msgspec.structs.replace(told, lost=None, loss_percent=None, jitter_ns=None, out_of_order=None)


def _receivers_part(told: Report) -> Report:
    """Drop sender-only fields from a combined sum."""
    return msgspec.structs.replace(told, bytes=None, seconds=None, rate_bit_s=None)


def _known(told: Report | None, role: End | None) -> Report | None:
    """Drop a server's zeros: it reports 0 for what only its client knows."""
    return None if told and role == "server" and not told.bytes else told


def _report(told: _Sum, where: str, problems: list[str], *, sent: int | None = None) -> Report:
    """The figures of a sum; ``sent`` is how many datagrams the sum of the sender has."""
    known = len(problems)
    start, end = take(told.start, "start", problems), take(told.end, "end", problems)
    seconds = take(told.seconds, "seconds", problems)
    if start is not None and end is not None:
        seconds = end - start
    moved = take(told.bytes, "bytes", problems)
    rate = take(told.bits_per_second, "bits_per_second", problems)
    lost, packets = take(told.lost_packets, "lost_packets", problems), take(told.packets, "packets", problems)
    loss = take(told.lost_percent, "lost_percent", problems)
    jitter_ns = take(told.jitter_ms, "jitter_ms", problems, MS_NS)
    retransmits = take(told.retransmits, "retransmits", problems)
    out_of_order = take(told.out_of_order, "out_of_order", problems)
    if seconds is not None and seconds < 0:
        problems.append("it ends before it starts")
        seconds = None
    elif moved is not None and seconds is not None and rate is not None:
        problem = rate_problem(Printed(moved), Printed(seconds), Printed(rate))
        if problem:
            problems.append(problem)
    if lost is not None and packets is not None:
        printed_loss = None if loss is None else Printed(loss, LOSS_STEP_PERCENT)
        if problem := loss_problem(int(lost), int(packets), printed_loss, sent=sent):
            problems.append(problem)
        elif loss is not None and packets:
            loss = 100 * lost / packets
    problems[known:] = [f"{where}: {problem}" for problem in problems[known:]]
    return Report(
        bytes=_whole(moved),
        seconds=seconds,
        rate_bit_s=rate,
        retransmits=_whole(retransmits),
        datagrams=_whole(packets),
        lost=_whole(lost),
        loss_percent=loss,
        out_of_order=_whole(out_of_order),
        jitter_ns=jitter_ns,
    )


def _whole(figure: float | None) -> int | None:
    return None if figure is None else int(figure)


def _with_disorder(received: Report | None, streams: list[_EndStream], problems: list[str]) -> Report | None:
    """The sums lack what came out of order: it is the sum over the streams."""
    counts = [take(stream.udp.out_of_order, "out_of_order", problems) for stream in streams if stream.udp]
    known = [int(count) for count in counts if count is not None]
    if received is None or not known or len(known) < len(counts):
        return received
    return msgspec.structs.replace(received, out_of_order=sum(known))


def _contradictions(
    sent: Report | None,
    received: Report | None,
    reverse_sent: Report | None,
    reverse_received: Report | None,
    streams: list[Stream],
    *,
    omits: bool,
) -> list[str]:
    """What is wrong with the totals compared with each other."""
    found = [
        ends_problem(sent, received, omits=omits),
        ends_problem(reverse_sent, reverse_received, omits=omits),
    ]
    if not any(told and (told.bytes or told.datagrams) for told in (sent, received)):
        found.append("nothing was transferred")
    if reverse_sent is None and reverse_received is None:
        found.append(sum_problem(sent, [stream.sent for stream in streams], "sent"))
        found.append(sum_problem(received, [stream.received for stream in streams], "received"))
    return [problem for problem in found if problem]


# Text.

_BEGIN = re.compile(r"\b(?:(?P<client>Connecting to host )|Accepted connection from )")
_BITRATE = re.compile(r"\bTransfer\s+Bitrate\b")
_SEPARATOR = re.compile(r"(?:- ){10,}")
_ERROR = re.compile(r"\biperf3: (?P<error>(?:error|interrupt) - [^\n]{1,160})")
_SERVER_ENDED = "interrupt - the server has terminated"
_LISTENING = re.compile(r"\bServer listening on ")
_VERSION = re.compile(r"\biperf 3\.[0-9][0-9A-Za-z.+-]{0,20}")
_WINDOW = re.compile(rf"\s*{COUNT}\s+(?P<cwnd>{NUMBER})\s+(?P<prefix>[KMG]?)Bytes\b")
_LOAD = rf"(?P<{{0}}_total>{NUMBER})% \((?P<{{0}}_user>{NUMBER})%u/(?P<{{0}}_system>{NUMBER})%s\)"
_CPU = re.compile(
    rf"CPU Utilization: local/[a-z]+ {_LOAD.format('host')}, remote/[a-z]+ {_LOAD.format('remote')}"
)
_REVERSE = ("RX-C", "TX-S")


def _of_text(string: str, warnings: list[str]) -> Iperf3Output:
    found = []
    for transcript in transcripts(string, _BEGIN):
        output = _of_transcript(transcript)
        if output.sent or output.received or output.streams:
            found.append((output, [connection for _, connection in connected(transcript)]))
    if not found:
        if error := _ERROR.search(string):
            raise _nothing_measured(error["error"])
        raise _refusal(f"none in a text that begins with {embedded.quote(string)}")
    first, server, further = first_and_server(found)
    if further:
        warnings.append(f"{further} further tests in the same text were left out: give each its own file")
    version = _VERSION.search(string)
    return msgspec.structs.replace(first, server=server, version=None if version is None else version[0])


def _of_transcript(text: str) -> Iperf3Output:
    problems: list[str] = []
    begin = _BEGIN.search(text)
    role: End | None = None
    if begin is not None:
        role = "client" if begin["client"] else "server"
    all_rows = rows(text)
    measured = [row for row in all_rows if not row.omitted]
    sides = _sides(text, measured, role, problems)
    names = dict.fromkeys(name for side in sides.values() for name in side if name != SUM)
    totals = {key: _total(side, key, problems) for key, side in sides.items()}
    if not any(row.role for row in measured):  # in both directions at once, each has streams of its own
        connections = [connection for _, connection in connected(text)]
        for key, side in sides.items():
            if problem := missing_problem(side, connections, key):
                problems.append(problem)
    sent, received = totals["sent"], totals["received"]
    disorder = out_of_order(text)
    if received and disorder and (SUM not in disorder or len(names) == 1):
        received = msgspec.structs.replace(received, out_of_order=sum(disorder.values()))
    streams = [
        Stream(id=name, sent=sides["sent"].get(name), received=sides["received"].get(name)) for name in names
    ]
    omits = len(measured) < len(all_rows)
    problems += _contradictions(
        sent, received, totals["reverse sent"], totals["reverse received"], streams, omits=omits
    )
    error = _ERROR.search(text)
    if (
        error is not None
        and role == "server"
        and all_rows
        and _LISTENING.search(text, all_rows[-1].match.end())
    ):
        # It was ended while it waited for another test.
        error = None if error["error"] == _SERVER_ENDED else error
    if error is not None:
        problems.append(f"iperf3 says {embedded.quote(error['error'])}")
    protocol = None
    if all_rows:
        protocol = "UDP" if any(row.counts_loss for row in all_rows) else "TCP"
    windows = [window for row in measured if (window := _window(row, problems)) is not None]
    cpu = _CPU.search(text)
    return Iperf3Output(
        role=role,
        protocol=protocol,
        error=None if error is None else error["error"],
        sent=sent,
        received=received,
        reverse_sent=totals["reverse sent"],
        reverse_received=totals["reverse received"],
        streams=tuple(streams),
        cwnd_max_bytes=max(windows, default=None),
        cpu_local=_cpu_of_text(cpu, "host", problems),
        cpu_remote=_cpu_of_text(cpu, "remote", problems),
        invalid=tuple(dict.fromkeys(problems)),
    )


def _sides(
    text: str, measured: list[Row], role: End | None, problems: list[str]
) -> dict[str, dict[str, Report]]:
    """The totals of each side, by stream: rows that name their side, or UDP's one row for both ends."""
    sides: dict[str, dict[str, Report]] = {}
    for key in ("sent", "received", "reverse sent", "reverse received"):
        sides[key] = {}
    labelled = [row for row in measured if row.label]
    counts: dict[tuple[str | None, str], int | None] = {}
    # The senders' first, because a sum's loss may be a part of their counts.
    for row in sorted(labelled, key=lambda row: row.label != "sender"):
        side = "sent" if row.label == "sender" else "received"
        key = f"reverse {side}" if row.role in _REVERSE else side
        path = row.role, row.stream
        told = report(row, f"{key} [{row.stream}]", problems, sent=counts.get(path))
        counts.setdefault(path, told.datagrams)
        if known := _known(_senders_part(told) if side == "sent" else told, role):
            sides[key][row.stream] = known
    separators = [match.end() for match in _SEPARATOR.finditer(text)]
    # A text with a bitrate and no bandwidth also has labels (3.2): a row without one is cut.
    if labelled or not separators or _BITRATE.search(text):
        return sides
    for row in measured:
        if row.counts_loss and row.match.start() > separators[-1]:
            told = report(row, f"[{row.stream}]", problems)
            sides["received"][row.stream] = _receivers_part(told)
            if known := _known(_senders_part(told), role):
                sides["sent"][row.stream] = known
    return sides


def _total(side: dict[str, Report], where: str, problems: list[str]) -> Report | None:
    if SUM in side:
        return side[SUM]
    if len(side) > 1:
        problems.append(f"{where}: {len(side)} streams, but no [SUM] of them")
        return None
    return next(iter(side.values()), None)


def _window(row: Row, problems: list[str]) -> int | None:
    window = _WINDOW.match(row.match["rest"])
    if window is None:
        return None
    figure = value_of(matched(window, "cwnd", 1024 ** " KMG".index(window["prefix"] or " "), problems))
    return _whole(figure)


def _cpu_of_text(match: re.Match[str] | None, end: str, problems: list[str]) -> Cpu | None:
    if match is None:
        return None
    total, user, system = (
        value_of(matched(match, f"{end}_{name}", 1, problems)) for name in ("total", "user", "system")
    )
    return Cpu(total_percent=total, user_percent=user, system_percent=system)
