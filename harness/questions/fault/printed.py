"""What faults did, as text: a table, and for each what its kernel said of the timers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tabulate import tabulate

from harness.model import Record, kinds
from harness.model.kinds import Timer
from harness.model.stalls import Stall
from harness.model.units import format_duration
from harness.questions.fault.theory import expected

NEAR_NS = 10**9
"""A timer that ran out so shortly before the end of a stall, or its first error, decided it: kernels count
long timers in steps of up to 0.6 s (kernel/time/timer.c)."""


AT_ONCE_NS = 10**8

EARLY = 0.95
"""A message that comes before so much of a timer's time is not of the timer: the connection was lost."""


class TimerMessage(NamedTuple):
    """A timer of which a kernel spoke last at ``at_ns``; ``set_to`` has its parameters and their values."""

    timer: Timer
    at_ns: int
    set_to: str
    lasts_ns: int


def table(records: Sequence[Record]) -> str:
    rows = [
        [
            record.column.label,
            stall.fault,
            _seconds(stall.stall_ns) if stall.is_over else "does not end",
            expected(record, stall) or "-",
            _seconds(stall.longest_ns),
            stall.late,
            stall.unsent,
            ", ".join(f"{count} {name.upper()}" for name, count in stall.errnos.items()) or "none",
            _lost(stall),
        ]
        for record in records
        if (stall := record.stall) is not None
    ]
    heading = ["column", "fault", "stall s", "by settings", "longest s", "late", "not sent", "errors"]
    return tabulate(rows, [*heading, "lost writes"], disable_numparse=True)


def sentences(records: Sequence[Record]) -> Iterator[str]:
    """Lost writes first, and then of each fault how long I/O stood still, and which timer decided."""
    found = [(record, stall) for record in records if (stall := record.stall) is not None]
    for record, stall in found:
        if stall.lost:
            yield f"{record.column.label}: {stall.lost} acknowledged writes are lost."
    for record, stall in found:
        yield f"{record.column.label}, {stall.fault}: {_stood_still(stall)}{_decided(record, stall)}"


def _stood_still(stall: Stall) -> str:
    if not stall.late:
        return "no request was late."
    if stall.stall_ns is None:
        return "I/O did not come back."
    longer_ns = stall.stall_ns - (stall.ended_ns - stall.began_ns)
    longer = f", {_time(longer_ns)} longer than the fault" if longer_ns > 0 else ""
    return f"I/O stood still for {_time(stall.stall_ns)}{longer}."


def _decided(record: Record, stall: Stall) -> str:
    """The timers that spoke, in the order in which they did, and whether one of them decided."""
    said = ""
    first_error_ns = stall.first_error_ns
    ends = [end for end in (stall.over_ns, first_error_ns) if end is not None]
    for each in timers(record, stall):
        due_ns = each.at_ns + (each.lasts_ns if each.timer.begins else 0)
        decides = any(0 <= end - due_ns <= NEAR_NS for end in ends)
        after_ns = each.at_ns - stall.began_ns
        after = f"{_time(after_ns)} after the fault began" if after_ns > AT_ONCE_NS else "At once"
        what = f"{each.set_to or 'its kernel'} {each.timer.did}"
        said += f" {after}, {what}{': it decided' if decides else ''}."
    return said


def timers(record: Record, stall: Stall) -> list[TimerMessage]:
    """What the kernel said of the transport's timers: of each the last time."""
    kind = kinds.TRANSPORTS.get(record.column.transport or "")
    found = []
    for timer in kind.timers if kind else ():
        times = [message.at_ns for message in stall.messages if re.search(timer.said, message.text)]
        if times and kind:
            values = [
                (name, record.session.get(kind.parameters[name].sysfs, "")) for name in timer.parameters
            ]
            set_to = " + ".join(f"{name} ({value} s)" for name, value in values)
            lasts_ns = round(sum(float(value) for _, value in values if value.isdecimal()) * 1e9)
            if not timer.begins and times[-1] - stall.began_ns < EARLY * lasts_ns:
                set_to = ""
            found.append(TimerMessage(timer, times[-1], set_to, lasts_ns))
    return sorted(found, key=lambda each: each.at_ns)


def _lost(stall: Stall) -> str:
    return "not read back" if stall.not_read_back else f"{stall.lost} of {stall.written}"


def _seconds(time_ns: int | None) -> str:
    return "0" if time_ns is None else f"{time_ns / 1e9:.2f}"


def _time(time_ns: int) -> str:
    return format_duration(time_ns / 1e9) if time_ns < 10**9 else f"{time_ns / 1e9:.1f} s"
