"""The result of an iperf2 or iperf3 test, and the checks on its figures, from JSON or text.

``parse.iperf3`` reads JSON, ``parse.iperf_text`` what either prints for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from harness.model.errors import UsageError
from harness.parse.embedded import quote
from harness.parse.figures import TOLERANCE, Printed, loss_problem, rate_problem, value_of

MS_NS, S_NS = 1_000_000, 1_000_000_000

BOTH_WAYS = (
    "it has data of both directions, or of the other one: measure one at a time, or with iperf3 --bidir"
)

End: TypeAlias = Literal["client", "server"]


class IperfReport(msgspec.Struct, frozen=True, kw_only=True):
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

    @property
    def senders_part(self) -> IperfReport:
        """Without loss and jitter: a sender cannot know them, and reports 0 for them."""
        return msgspec.structs.replace(self, lost=None, loss_percent=None, jitter_ns=None, out_of_order=None)

    @property
    def receivers_part(self) -> IperfReport:
        """Of a report for both ends, what is the receiver's: bytes and rate are the sender's."""
        return msgspec.structs.replace(self, bytes=None, seconds=None, rate_bit_s=None)


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One of parallel connections; ``id`` is the tool's number for it."""

    id: str
    sent: IperfReport | None = None
    received: IperfReport | None = None


class IperfOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One test as reported by one end; ``invalid`` says why its figures must not be used.

    ``sent`` and ``received`` are for all streams together, whichever way the data went (``-R``). ``version``
    is the tool's own string (``iperf 3.9``), ``error`` its own message. Round-trip times are the kernel's:
    the mean over the streams' means, the least and the most of any. ``cwnd_max_bytes`` is the largest of any
    stream, ``pmtu_bytes`` the smallest. ``server`` is the server's own report, by ``--get-server-output``.
    Text has neither version nor kernel's figures. ``reverse`` is what went the other way meanwhile
    (``--bidir``), as a test of its own.
    """

    role: End | None
    protocol: str | None
    version: str | None = None
    error: str | None = None
    sent: IperfReport | None = None
    received: IperfReport | None = None
    streams: tuple[Stream, ...] = ()
    rtt_mean_ns: float | None = None
    rtt_min_ns: float | None = None
    rtt_max_ns: float | None = None
    cwnd_max_bytes: int | None = None
    pmtu_bytes: int | None = None
    server: IperfOutput | None = None
    reverse: IperfOutput | None = None
    invalid: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def refusal(tool: str, found: str) -> UsageError:
    hints = {
        "iperf3": "let iperf3 finish, and keep all that it prints, best with --json",
        "iperf2": "keep the plain text (no -y C) of the whole test, from '0.0-' to its end",
    }
    return UsageError(f"expected the totals of a test by {tool}, found {found}", hint=hints[tool])


def nothing_measured(tool: str, said: str) -> UsageError:
    """The tool's own message instead of totals."""
    return UsageError(
        f"expected the totals of a test by {tool}, but it measured nothing: {quote(said)}",
        hint="check that its server is running on the other side, is not busy, and that its port is "
        "reachable",
    )


def with_reverse(ahead: IperfOutput, back: IperfOutput) -> IperfOutput:
    """A test in both directions at once. What is wrong with one is wrong with both: they shared a path."""
    wrong = [f"the other direction: {problem}" for problem in back.invalid]
    if not (back.sent or back.received):
        wrong.append("the other direction has no totals, so the text may be cut")
    return msgspec.structs.replace(ahead, reverse=back, invalid=(*ahead.invalid, *wrong))


def report(
    found: Mapping[str, Printed | None], where: str, problems: list[str], *, sent: int | None = None
) -> IperfReport:
    """The figures by the names of a Report's fields; those that contradict each other go to ``problems``.

    ``sent`` is how many datagrams the other end counted as sent, if the loss may be a part of those.
    """
    values = {name: value_of(figure) for name, figure in found.items()}
    moved, seconds, rate = (found.get(name) for name in ("bytes", "seconds", "rate_bit_s"))
    lost, datagrams, jitter_ns = (values.get(name) for name in ("lost", "datagrams", "jitter_ns"))
    wrong = []
    if seconds is not None and seconds.value < 0:
        wrong.append("it ends before it starts")
        values["seconds"] = None
    elif seconds is not None:
        if moved and rate and (problem := rate_problem(moved, seconds, rate)):
            wrong.append(problem)
        if jitter_ns and jitter_ns > seconds.value * S_NS:
            wrong.append(f"the jitter is {jitter_ns / S_NS:.4g} s, but it took {seconds.value:g} s")
    if lost is not None and datagrams is not None:
        if problem := loss_problem(int(lost), int(datagrams), found.get("loss_percent"), sent=sent):
            wrong.append(problem)
        elif datagrams and values.get("loss_percent") is not None:
            values["loss_percent"] = 100 * lost / datagrams
    problems += [f"{where}: {problem}" for problem in wrong]
    for name in ("bytes", "retransmits", "datagrams", "lost", "out_of_order"):
        if (value := values.get(name)) is not None:
            values[name] = int(value)
    return msgspec.convert(values, IperfReport)


def contradictions(
    sent: IperfReport | None, received: IperfReport | None, streams: Sequence[Stream], *, omits: bool
) -> Iterator[str]:
    """What is wrong with the totals compared with each other, and with their streams.

    With ``omits`` (``-O``) the first seconds are left out, at each end by its own clock: what was sent before
    may arrive after.
    """
    if sent and received and sent.bytes is not None and received.bytes is not None:
        if sent.bytes and not received.bytes:
            yield f"{sent.bytes} bytes were sent, but none received"
        elif not omits and received.bytes > sent.bytes * (1 + TOLERANCE):
            yield f"{received.bytes} bytes were received, but only {sent.bytes} sent"
    for where, total, parts in (
        ("sent", sent, [stream.sent for stream in streams]),
        ("received", received, [stream.received for stream in streams]),
    ):
        counts = [part.bytes for part in parts if part is not None and part.bytes is not None]
        if total is None or total.bytes is None or not counts or len(counts) < len(parts):
            continue
        if abs(sum(counts) - total.bytes) > TOLERANCE * total.bytes:
            yield f"{where}: the sum is {total.bytes} bytes, but the streams add up to {sum(counts)}"
