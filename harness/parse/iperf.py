"""What the texts of iperf2 and iperf3 share: the rows of figures, and the checks on them.

Both count bytes in powers of 1024 (``MBytes``) and rates in powers of 1000 (``Mbits/sec``), except for rates
in bytes (``-f M``: ``MBytes/sec``), and print three digits of each. Any number of blanks may separate two
figures, because a web page may have merged several.

Sources: ``iperf_locale.c`` and ``units.c`` of esnet/iperf, ``Locale.c`` of iperf2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from harness.parse.figures import (
    COUNT,
    NUMBER,
    TOLERANCE,
    Printed,
    loss_problem,
    matched,
    printed,
    rate_problem,
    value_of,
)

SUM = "SUM"
MS_NS = 1_000_000
S_NS = 1_000_000_000


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one end counted, for one stream or for all.

    ``loss_percent`` is ``lost`` out of ``datagrams``, and not as it was printed, with two digits; so for what
    was received, ``datagrams`` includes the lost ones. ``retransmits`` are those of TCP segments. From text,
    ``bytes`` and ``rate_bit_s`` have only the printed digits.
    """

    bytes: int | None = None
    seconds: float | None = None
    rate_bit_s: float | None = None
    retransmits: int | None = None
    datagrams: int | None = None
    lost: int | None = None
    loss_percent: float | None = None
    out_of_order: int | None = None
    jitter_ns: float | None = None


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One of parallel connections; ``id`` is the tool's number for it."""

    id: str
    sent: Report | None = None
    received: Report | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of figures; ``counts_loss`` if it has lost and total datagrams, ``back`` if iperf2 marks it as
    what the server sent."""

    stream: str
    back: bool
    start_s: float
    end_s: float
    counts_loss: bool
    role: str | None
    label: str | None
    omitted: bool
    match: re.Match[str]


# iperf2 has the number of streams in some of its sums, [SUM-3], and marks what comes back on one: [ *3].
STREAM = r"\[\s*(?P<back>\*?)(?P<stream>SUM|[0-9]{1,9})(?:(?<=SUM)-[0-9]{1,4})?\s*\]"
_PREFIX = "(?P<{0}_prefix>[KMGTP]?)"
_ROW = re.compile(
    STREAM + r"(?:\[(?P<role>[RT]X-[CS])\])?\s*"
    r"(?P<start>[0-9]{1,9}\.[0-9]{1,9})\s*-\s*(?P<end>[0-9]{1,9}\.[0-9]{1,9})\s+sec\s+"
    rf"(?P<bytes>{NUMBER})\s+{_PREFIX.format('bytes')}Bytes\s+"
    rf"(?P<rate>{NUMBER})\s+{_PREFIX.format('rate')}(?P<rate_unit>bits|Bytes)/sec(?P<rest>[^\n\[]{{0,200}})"
)
# Other times in ms, such as iperf2's of trips, bursts and writes, stand elsewhere.
_JITTER = re.compile(rf"\s*(?P<jitter>{NUMBER})\s+ms\s+-?{COUNT}/")
_LOSS = re.compile(rf"(?P<lost>-?{COUNT})/\s*(?P<datagrams>{COUNT})\s+\((?P<loss>{NUMBER})%\)")
_RETRANSMITS = re.compile(rf"\s*({COUNT})\s+sender\b")
_LABEL = re.compile(r"\b(?:sender|receiver)\b")
_DISORDER = re.compile(
    STREAM + r"(?:\[[RT]X-[CS]\])?\s+[0-9.]{1,20}-\s*[0-9.]{1,20}\s+sec\s+"
    rf"(?P<count>{COUNT})\s+datagrams\s+received\s+out-of-order"
)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def rows(text: str) -> list[Row]:
    """All rows of figures, in the order of the text."""
    found = []
    for match in _ROW.finditer(text):
        label = _LABEL.search(match["rest"])
        row = Row(
            stream=match["stream"],
            back=bool(match["back"]),
            start_s=float(match["start"]),
            end_s=float(match["end"]),
            counts_loss=_LOSS.search(match["rest"]) is not None,
            role=match["role"],
            label=None if label is None else label[0],
            omitted="(omitted)" in match["rest"],
            match=match,
        )
        found.append(row)
    return found


def report(row: Row, where: str, problems: list[str], *, sent: int | None = None) -> Report:
    """The figures of a row; those that contradict each other go to ``problems``.

    ``sent`` is how many datagrams the other end counted as sent, if the row's loss may be a part of those.
    """
    match, rest = row.match, row.match["rest"]
    base = 1000 if match["rate_unit"] == "bits" else 1024
    bits = 1 if match["rate_unit"] == "bits" else 8
    known = len(problems)
    moved = matched(match, "bytes", 1024 ** _POWER[match["bytes_prefix"]], problems)
    rate = matched(match, "rate", bits * base ** _POWER[match["rate_prefix"]], problems)
    start, end = printed(match["start"]), printed(match["end"])
    loss = _LOSS.search(rest)
    jitter = matched(_JITTER.match(rest), "jitter", MS_NS, problems)
    retransmits = _RETRANSMITS.match(rest)
    seconds = None
    if start and end:
        # A total begins at 0, which is not rounded.
        seconds = Printed(end.value - start.value, end.step)
        if seconds.value < 0:
            problems.append("it ends before it starts")
            seconds = None
        elif moved and rate and (problem := rate_problem(moved, seconds, rate)):
            problems.append(problem)
    if jitter and seconds and jitter.value > seconds.value * S_NS:
        problems.append(f"the jitter is {jitter.value / S_NS:.4g} s, but it took {seconds.value:g} s")
    part = None
    if loss:
        lost, total = int(loss["lost"]), int(loss["datagrams"])
        # Of no datagrams, C prints a part of nan.
        printed_loss = matched(loss, "loss", 1, problems) if total else None
        problem = loss_problem(lost, total, printed_loss, sent=sent)
        if problem:
            problems.append(problem)
        part = None if problem or not total else 100 * lost / total
    problems[known:] = [f"{where}: {problem}" for problem in problems[known:]]
    return Report(
        bytes=None if moved is None else int(moved.value),
        seconds=value_of(seconds),
        rate_bit_s=value_of(rate),
        retransmits=None if retransmits is None else int(retransmits[1]),
        datagrams=None if loss is None else int(loss["datagrams"]),
        lost=None if loss is None or int(loss["lost"]) < 0 else int(loss["lost"]),
        loss_percent=part,
        jitter_ns=value_of(jitter),
    )


def out_of_order(text: str) -> dict[str, int]:
    """Datagrams that arrived out of order, by stream. A stream without any has no such line.

    If a text ends where such a line would stand, nothing is known: the text may be cut.
    """
    found = {match["stream"]: int(match["count"]) for match in _DISORDER.finditer(text)}
    last = next((row for row in reversed(rows(text)) if row.stream != SUM), None)
    behind = "" if last is None else text[last.match.end() :].strip()
    ends_there = last is not None and "\n" not in behind and not _DISORDER.match(behind)
    return {} if ends_there else found


def missing_problem(side: Mapping[str, Report], connections: Sequence[Connection], where: str) -> str | None:
    """Which streams connected, but have no total on a side where others have one."""
    due = dict.fromkeys(connection.stream for connection in connections)
    missing = [f"[{stream}]" for stream in due if stream not in side]
    if not side or not missing:
        return None
    return f"{where}: no total for {', '.join(missing)}, so the text may be cut"


def transcripts(text: str, header: re.Pattern[str]) -> list[str]:
    """The text cut before each header; what precedes the first header stays with the first part."""
    starts = [match.start() for match in header.finditer(text)]
    return [text[a:b] for a, b in zip([0, *starts[1:]], [*starts[1:], len(text)], strict=True)]


class Connection(msgspec.Struct, frozen=True):
    """The ports of one stream, as reported by one end; ``stream`` is that end's number for it."""

    stream: str
    local_port: str
    remote_port: str

    def is_other_end_of(self, other: Connection) -> bool:
        return (self.local_port, self.remote_port) == (other.remote_port, other.local_port)


_CONNECTED = re.compile(
    STREAM + r"\s+local \S{1,255} port (?P<local>[0-9]{1,5}) connected (?:to|with) \S{1,255} port "
    r"(?P<remote>[0-9]{1,5})"
)


def connected(text: str) -> list[tuple[int, Connection]]:
    """The connections in a text, each with its position in the text."""
    return [
        (match.start(), Connection(match["stream"], match["local"], match["remote"]))
        for match in _CONNECTED.finditer(text)
    ]


class _HasRole(Protocol):
    @property
    def role(self) -> str | None: ...


T = TypeVar("T", bound=_HasRole)


def first_and_server(found: Sequence[tuple[T, list[Connection]]]) -> tuple[T, T | None, int]:
    """The client's first test, the server's report of it, and how many more tests there are.

    Ports identify the server's test. A server's log alone is not a report of anybody else's test: its first
    test is then the one that counts.
    """
    servers = [told for told in found if told[0].role == "server"]
    clients = [told for told in found if told[0].role != "server"]
    first, ours = clients[0] if clients else servers[0]
    if not clients:
        servers = []
    elif ours and all(theirs for _, theirs in servers):
        servers = [told for told in servers if any(a.is_other_end_of(b) for a in told[1] for b in ours)]
    elif len(clients) > 1 or len(servers) > 1:
        servers = []
    server = servers[0][0] if servers else None
    return first, server, len(found) - 1 - (server is not None)


def ends_problem(sent: Report | None, received: Report | None, *, omits: bool) -> str | None:
    """How what arrived contradicts what was sent.

    With ``omits`` (``-O``) the first seconds are left out, at each end by its own clock: what was sent before
    may arrive after.
    """
    if sent is None or received is None or sent.bytes is None or received.bytes is None:
        return None
    if sent.bytes and not received.bytes:
        return f"{sent.bytes} bytes were sent, but none received"
    if not omits and received.bytes > sent.bytes * (1 + TOLERANCE):
        return f"{received.bytes} bytes were received, but only {sent.bytes} sent"
    return None


def sum_problem(total: Report | None, parts: Sequence[Report | None], where: str) -> str | None:
    """How the bytes of the streams contradict their sum."""
    counts = [part.bytes for part in parts if part is not None and part.bytes is not None]
    if total is None or total.bytes is None or not counts or len(counts) < len(parts):
        return None
    if abs(sum(counts) - total.bytes) <= TOLERANCE * total.bytes:
        return None
    return f"{where}: the sum is {total.bytes} bytes, but the streams add up to {sum(counts)}"


def together(parts: Sequence[Report]) -> Report:
    """The sum of parallel streams, where the tool has no row for it. Jitter exists only for single
    streams."""

    def total(name: str) -> int | None:
        counts = [count for part in parts if (count := getattr(part, name)) is not None]
        return sum(counts) if len(counts) == len(parts) else None

    moved, lost, datagrams = total("bytes"), total("lost"), total("datagrams")
    disorder = [part.out_of_order for part in parts if part.out_of_order is not None]
    ends = [part.seconds for part in parts if part.seconds is not None]
    seconds = max(ends) if len(ends) == len(parts) else None
    return Report(
        bytes=moved,
        seconds=seconds,
        rate_bit_s=8 * moved / seconds if moved is not None and seconds else None,
        datagrams=datagrams,
        lost=lost,
        loss_percent=100 * lost / datagrams if lost is not None and datagrams else None,
        out_of_order=sum(disorder) if disorder else None,
    )
