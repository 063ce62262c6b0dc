"""What faults did, as text: a table, and for each what its kernel said of the timers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tabulate import tabulate

from harness.model import Record, protections
from harness.model.lines import counted
from harness.model.stalls import Stall
from harness.model.units import format_duration
from harness.questions.fault.section import REBOOT
from harness.questions.fault.theory import Shorter, StallBounds, expected, keeps_lost_keys, shorter
from harness.questions.fault.timers import AT_ONCE_NS, NEAR_NS, TimerMessage, timers


class Repeats(NamedTuple):
    """The repeats of one cell, by how long they stood still."""

    records: Sequence[Record]
    stalls: Sequence[Stall]

    @property
    def middle(self) -> tuple[Record, Stall]:
        """That of the median; of two the longer one."""
        place = len(self.stalls) // 2
        return self.records[place], self.stalls[place]

    @property
    def stall_s(self) -> str:
        """The median, with the lowest and the highest of several."""
        _, stall = self.middle
        lowest, highest = (_stall_s(self.stalls[place]) for place in (0, -1))
        return _stall_s(stall) + (f" [{lowest}, {highest}]" if len(self.stalls) > 1 else "")

    def total(self, count: Callable[[Stall], int]) -> int:
        return sum(map(count, self.stalls))


class StallAnswer(NamedTuple):
    """What is said of a column, a fault and a setting (``stall.parameters``), for programs: ``record`` is the
    middle one of its repeats, and ``by_settings`` how long its stall should be, None where that has no
    formula."""

    record: Record
    stall: Stall
    by_settings: StallBounds | None
    timers: Sequence[TimerMessage]
    forecasts: Sequence[Shorter]


def answers(records: Sequence[Record]) -> list[StallAnswer]:
    """One for each column, fault and setting."""
    middles = (repeats.middle for repeats in grouped(records))
    return [
        StallAnswer(record, stall, expected(record, stall), timers(record, stall), forecasts(record, stall))
        for record, stall in middles
    ]


def grouped(records: Sequence[Record]) -> list[Repeats]:
    """By column and fault; of each from the lowest setting to the highest."""
    found: dict[str, dict[str, list[tuple[Record, Stall]]]] = {}
    for record in records:
        if (stall := record.stall) is not None:
            of_fault = found.setdefault(named(record, stall), {})
            of_fault.setdefault(stall.set_to, []).append((record, stall))
    return [
        Repeats(*zip(*sorted(of_fault[set_to], key=_length), strict=True))
        for of_fault in found.values()
        for set_to in sorted(of_fault, key=lambda text: (len(text), text))
    ]


def named(record: Record, stall: Stall) -> str:
    return f"{record.column.label}, {stall.fault}"


def _length(repeat: tuple[Record, Stall]) -> float:
    lasted_ns = repeat[1].lasted_ns
    return math.inf if lasted_ns is None else lasted_ns


def table(records: Sequence[Record]) -> str:
    rows = []
    has_settings = any(record.stall and record.stall.parameters for record in records)
    for repeats in grouped(records):
        record, stall = repeats.middle
        errors: Counter[str] = Counter()
        for each in repeats.stalls:
            errors.update(each.errnos)
        after_ns = errors_after_ns(stall)
        after = f" after {_time(after_ns)}" if after_ns is not None else ""
        rows.append(
            [
                record.column.label,
                stall.fault,
                *([stall.set_to or "-"] if has_settings else []),
                repeats.stall_s,
                expected(record, stall) or "-",
                _seconds(max(each.longest_ns for each in repeats.stalls)),
                repeats.total(lambda each: each.late),
                repeats.total(lambda each: each.unsent),
                ", ".join(f"{count} {name.upper()}{after}" for name, count in errors.items()) or "none",
                _lost(repeats),
            ]
        )
    heading = ["column", "fault", *(["setting"] if has_settings else []), "stall s", "by settings"]
    heading += ["longest s", "late", "not sent", "errors", "lost writes"]
    return tabulate(rows, heading, disable_numparse=True)


def sentences(records: Sequence[Record]) -> Iterator[str]:
    """Lost writes first; then of each fault, the longest stall first, how long I/O stood still, and which
    timer decided."""
    found = grouped(records)
    for repeats in found:
        if lost := repeats.total(lambda each: each.lost):
            are = "is" if lost == 1 else "are"
            yield f"{repeats.records[0].column.label}: {counted(lost, 'acknowledged write')} {are} lost."
    of_faults = [[*each] for _, each in itertools.groupby(found, lambda repeats: named(*repeats.middle))]
    of_faults.sort(key=lambda each: -max(_length(repeats.middle) for repeats in each))
    for repeats in itertools.chain.from_iterable(of_faults):
        record, stall = repeats.middle
        count = len(repeats.stalls)
        several = f" In {count} repeats: {repeats.stall_s} s." if count > 1 else ""
        set_to = f", {stall.set_to}" if stall.set_to else ""
        happened = f"{_stood_still(stall)}{_no_sign(record, stall)}{_decided(record, stall)}"
        yield f"{named(record, stall)}{set_to}: {happened}{several}"


def _stood_still(stall: Stall) -> str:
    if not stall.late:
        return "no request was late."
    if stall.stall_ns is None:
        return "I/O did not come back."
    lasts_ns = stall.ended_ns - stall.began_ns
    longer_ns = stall.stall_ns - lasts_ns
    # What takes a moment only is shorter than any stall.
    longer = f", {_time(longer_ns)} longer than the fault" if ":" in stall.fault and longer_ns > 0 else ""
    back = ""
    if stall.fault == REBOOT:
        back = f" The target was back after {_time(lasts_ns)}, with what the run had made there."
    if stall.back_ns is not None and abs(stall.back_ns - (stall.over_ns or 0)) > NEAR_NS:
        after = _time(max(0, stall.back_ns - stall.began_ns))
        back += f" Throughput was within 5 % again {after} after the fault began."
    return f"I/O stood still for {_time(stall.stall_ns)}{longer}.{back}"


def _no_sign(record: Record, stall: Stall) -> str:
    """What would help where no timer runs."""
    if stall.is_over or stall.fault != REBOOT or not keeps_lost_keys(record):
        return ""
    return f" {protections.KEPT_KEYS}"


def _decided(record: Record, stall: Stall) -> str:
    """The timers that spoke, in the order in which they did, whether one of them decided, and what less of it
    would change."""
    said = ""
    for each in timers(record, stall):
        after_ns = each.at_ns - stall.began_ns
        after = f"{_time(after_ns)} after the fault began" if after_ns > AT_ONCE_NS else "At once"
        decides = ": it decided" if each.decides(stall) else ""
        said += f" {after}, {each.set_to or each.source} {each.did}{decides}."
    return said + "".join(f" {each}." for each in forecasts(record, stall))


def forecasts(record: Record, stall: Stall) -> list[Shorter]:
    """What less of the timers that decided would change, where there is a formula."""
    said = timers(record, stall)
    events_ns = [each.at_ns for each in said]
    found = (shorter(record, stall, each.timer, events_ns) for each in said if each.decides(stall))
    return [each for each in found if each is not None]


def errors_after_ns(stall: Stall) -> int | None:
    """How long after the fault began the first error came."""
    return None if stall.first_error_ns is None else max(0, stall.first_error_ns - stall.began_ns)


def _lost(repeats: Repeats) -> str:
    if any(stall.not_read_back for stall in repeats.stalls):
        return "not read back"
    if not any(stall.written for stall in repeats.stalls):
        return "-"  # nothing was written
    return f"{repeats.total(lambda each: each.lost)} of {repeats.total(lambda each: each.written)}"


def _stall_s(stall: Stall) -> str:
    return "does not end" if stall.lasted_ns is None else _seconds(stall.lasted_ns)


def _seconds(time_ns: int) -> str:
    return f"{time_ns / 1e9:.2f}"


def _time(time_ns: int) -> str:
    return format_duration(time_ns / 1e9) if time_ns < 10**9 else f"{time_ns / 1e9:.1f} s"
