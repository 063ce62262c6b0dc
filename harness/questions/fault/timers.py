"""Which timers can decide how long a stall lasts, and which did, by what was said of them and when."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from harness.model import Record, kinds, protections
from harness.model.kinds import Timer
from harness.model.stalls import KERNEL, LogLine, Stall

NEAR_NS = 10**9
"""A timer that ran out so shortly before the end of a stall, or its first error, decided it: kernels count
long timers in steps of up to 0.6 s (kernel/time/timer.c)."""

AT_ONCE_NS = 10**8

EARLY = 0.95
"""A message that comes before so much of a timer's time is not of the timer: the connection was lost."""

TCP = "TCP"

SENT_AGAIN = Timer(
    source=TCP,
    said="^retransmission (?P<count>[0-9]+) after (?P<after>[0-9.]+) s$",
    did="sent again after {after} s (retransmission {count})",
    repeats=True,
)
"""Its timeout doubles each time (RFC 6298, section 5.5)."""


class TimerMessage(NamedTuple):
    """What was said of a timer last; ``set_to`` has its parameters and their values. If it decided, I/O was
    back within ``near_ns``."""

    timer: Timer
    line: LogLine
    set_to: str
    lasts_ns: int
    near_ns: int

    @property
    def at_ns(self) -> int:
        return self.line.at_ns

    @property
    def source(self) -> str:
        return f"the {self.line.end}'s {self.line.source}"

    @property
    def did(self) -> str:
        found = re.search(self.timer.said, self.line.text)
        return self.timer.did.format(**found.groupdict()) if found else self.timer.did

    def decides(self, stall: Stall) -> bool:
        """Whether it ran out right before the first error came, or after the fault and right before I/O was
        back."""
        due_ns = self.at_ns + (self.lasts_ns if self.timer.begins else 0)
        ends_ns = [stall.first_error_ns, stall.over_ns if due_ns >= stall.ended_ns - AT_ONCE_NS else None]
        return any(0 <= end_ns - due_ns <= self.near_ns for end_ns in ends_ns if end_ns is not None)


def possible(record: Record) -> Iterator[tuple[Timer, Mapping[str, str]]]:
    """Those of a column, the transport's, TCP's and its protections', and the values of their parameters."""
    kind = kinds.TRANSPORTS.get(record.column.transport or "")
    if kind is not None:
        of_session = {name: record.session.get(each.sysfs, "") for name, each in kind.parameters.items()}
        yield from ((timer, of_session) for timer in kind.timers)
    yield SENT_AGAIN, {}
    for name in record.column.protection:
        yield from ((timer, record.agreed.get(name, {})) for timer in protections.timers(name))


def speaks_of(timer: Timer, line: LogLine) -> bool:
    return line.source == timer.source and re.search(timer.said, line.text) is not None


def timers(record: Record, stall: Stall) -> list[TimerMessage]:
    """What was said of the timers of a record's column: of each the last time. What TCP and daemons said
    counts until I/O was back or failed, and of a timer that repeats only if it decided."""
    found = []
    ends_ns = min(ns for ns in (stall.over_ns, stall.first_error_ns, math.inf) if ns is not None)
    # An initiator may look only then whether it has a connection again.
    connects_ns = round(kinds.transport(record.column.transport or "").connect_s * 1e9)
    for timer, values in possible(record):
        lines = [line for line in stall.messages if speaks_of(timer, line)]
        if timer.source != KERNEL:
            lines = [line for line in lines if line.at_ns <= ends_ns]
        if not lines:
            continue
        last = max(lines, key=lambda line: line.at_ns)
        parts = [(name, values.get(name, "")) for name in timer.parameters]
        set_to = " + ".join(f"{name} ({value} s)" for name, value in parts)
        lasts_ns = round(sum(float(value) for _, value in parts if value.isdecimal()) * 1e9)
        is_early = not timer.begins and last.at_ns - stall.began_ns < EARLY * lasts_ns
        is_other = timer.unless and any(
            abs(line.at_ns - last.at_ns) < AT_ONCE_NS and re.search(timer.unless, line.text)
            for line in stall.messages
            if line.source == KERNEL
        )
        if is_early or is_other or not lasts_ns:  # a timer that is off runs out never
            set_to = ""
        message = TimerMessage(
            timer, last, set_to, lasts_ns, NEAR_NS + (connects_ns if timer.source == TCP else 0)
        )
        if not timer.repeats or message.decides(stall):
            found.append(message)
    return sorted(found, key=lambda each: each.at_ns)
