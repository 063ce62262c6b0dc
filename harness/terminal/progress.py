"""How a run is shown while it goes on, and its summary at the end."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from harness.analysis.disturbance import Disturbed
from harness.model import Status
from harness.model.escape import printable
from harness.model.lines import counted
from harness.model.units import about, format_duration
from harness.results.events import CellEnded, CellStarted, CellWithdrawn, Ended, Event, Failed, Phase, Spent
from harness.terminal.streams import QUIET

STYLES = {Status.OK: "green", Status.FAILED: "red", Status.SKIPPED: "yellow", Status.INVALID: "magenta"}

EVERY_S = 10.0
"""How often a log has a line on how far a run is."""

REPORTED = 0.01
"""The least part of a run's time that its summary names."""

BEGUN_S: ContextVar[float | None] = ContextVar("BEGUN_S", default=None)
"""When a command began that is one of several in this process; monotonic. None: with the process."""


def process_started_s() -> float:
    """When this process started (proc(5), stat, field 22), so that Python's own start counts too;
    monotonic. Of one of several commands: when it began."""
    if (begun_s := BEGUN_S.get()) is not None:
        return begun_s
    ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age_s


@dataclass(kw_only=True)
class RunOutcome:
    """The result of a run, gathered from its events. Times are of the monotonic clock, which nobody sets."""

    started_s: float
    first_fio_s: float | None = None
    ended_s: float = 0.0
    fio_ns: int = 0
    cells: dict[str, CellEnded] = field(default_factory=dict)
    spent: Spent | None = None
    failure: Failed | None = None
    leaks: tuple[str, ...] = ()
    virtual_time: bool = False

    @property
    def counts(self) -> dict[Status, int]:
        """Cells by status. A cell that was measured again counts with its last status."""
        return Counter(cell.status for cell in self.cells.values())

    @property
    def disturbed(self) -> list[tuple[Disturbed, str]]:
        """The cells that stayed disturbed: what disturbed each, with its key."""
        return [(cell.disturbed, cell.key) for cell in self.cells.values() if cell.disturbed is not None]

    @property
    def exit_code(self) -> int:
        """0: every cell is ok. 1: a cell is not, or something was left behind. 2 and more: see Failed."""
        if self.failure is not None:
            return self.failure.exit_code
        return 0 if set(self.counts) <= {Status.OK} and not self.leaks else 1

    def take(self, event: Event) -> None:
        match event:
            case CellEnded():
                self.cells[event.key] = event
                self.fio_ns += event.fio_ns
                if self.first_fio_s is None and event.fio_ns:
                    self.first_fio_s = max(self.started_s, time.monotonic() - event.fio_began_ago_s)
            case CellWithdrawn():
                self.cells[event.key] = msgspec.structs.replace(
                    self.cells[event.key], status=Status.INVALID, reason=event.reason
                )
            case Spent():
                self.spent = event
            case Failed():
                self.failure = event
            case Ended():
                self.leaks = event.leaks

    def summary(self, what: str = "measurement", *, is_verbose: bool = False) -> list[str]:
        """The lines printed at the end: each ``what`` by status, the time, and if ``is_verbose`` fio's part
        of it."""
        wall_s = self.ended_s - self.started_s
        total = sum(self.counts.values())
        cells = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        lines = [f"{counted(total, what)} ({cells or 'none measured'}) in {format_duration(wall_s)}"]
        lines += self._spent(wall_s) if is_verbose else []
        disturbed = self.disturbed
        if disturbed:
            worst, key = max(disturbed, key=lambda found: found[0].share)
            cell, _, repeat = key.rpartition(".r")
            which = f"{cell}, repeat {repeat} ({worst.cause})"
            lines.append(f"{len(disturbed)} of {counted(total, what)} disturbed; worst: {which}")
        return lines

    def _spent(self, wall_s: float) -> list[str]:
        """When fio began, and for how long it measured."""
        if self.virtual_time and self.fio_ns:
            return [f"fio measured for {self.fio_ns / 1e9:.1f} s of virtual time"]
        if self.first_fio_s is None:
            return []
        began = f"fio began {self.first_fio_s - self.started_s:.1f} s after the start"
        part = f"{self.fio_ns / 1e9 / wall_s:.0%} of the whole time"
        return [f"{began} and measured for {part}", *self._made_up(wall_s)]

    def _made_up(self, wall_s: float) -> list[str]:
        """What the rest of the time went to: the largest part first, and none that is less than a percent."""
        if self.spent is None:
            return []
        parts_s = dict(self.spent.parts_s)
        parts_s["hosts, disk, end"] = wall_s - sum(parts_s.values())
        if self.spent.of_fio in parts_s:
            parts_s[self.spent.of_fio] -= self.fio_ns / 1e9
        reported = sorted(((s, part) for part, s in parts_s.items() if s >= REPORTED * wall_s), reverse=True)
        return (
            ["the rest: " + ", ".join(f"{part} {format_duration(s)}" for s, part in reported)]
            if reported
            else []
        )


@contextlib.contextmanager
def bar(first: str, console: Console) -> Iterator[Callable[[str, float], None]]:
    """Show one piece of work; yields a function that takes what is being done, and which part of it is done.

    A console that is not a terminal gets a line for each new step.
    """
    shown = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with shown:
        task = shown.add_task(first, total=1.0)
        last = ""

        def report(doing: str, part: float) -> None:
            nonlocal last
            if doing != last and not console.is_terminal:
                console.print(printable(doing), markup=False, highlight=False)
            last = doing
            shown.update(task, description=printable(doing), completed=part)

        yield report


def follow(
    events: Iterable[Event],
    *,
    cells: int,
    console: Console,
    started_s: float,
    virtual_time: bool = False,
) -> RunOutcome:
    """Show the events as they come; returns their result.

    A terminal has a bar, a log a line each ``EVERY_S``. What went wrong is told at once, by either.
    """
    outcome = RunOutcome(started_s=started_s, virtual_time=virtual_time)
    shown = _Shown(console, cells)
    with shown.progress:
        for event in events:
            outcome.take(event)
            shown.take(event, outcome)
    outcome.ended_s = time.monotonic()
    return outcome


class _Shown:
    """How far a run is, on a terminal's bar or in a log's lines. If that is not wanted, only what failed."""

    def __init__(self, console: Console, cells: int) -> None:
        self._console, self._of = console, cells
        self._has_bar = console.is_terminal and not QUIET.get()
        self._has_lines = not console.is_terminal and not QUIET.get()
        self._ends_s: list[float] = []
        """When the first cell began, and when each ended."""
        self._reported_s = 0.0
        self.progress = Progress(
            TextColumn("{task.fields[now]}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            TextColumn("{task.fields[last]}", markup=False),
            console=console,
            transient=True,
            disable=not self._has_bar,
        )
        self._task = self.progress.add_task("", total=cells, now="starting the testbed", left="", last="")

    def take(self, event: Event, outcome: RunOutcome) -> None:
        """Show an event, which ``outcome`` has taken."""
        match event:
            case Phase():
                self.progress.update(self._task, now=printable(event.text))
                if self._has_lines:
                    self._console.print(printable(event.text), markup=False, highlight=False)
            case CellStarted():
                # With a stopping rule, the number of cells is known only at the end.
                self._of = event.of
                self._ends_s = self._ends_s or [time.monotonic()]
                self.progress.update(self._task, total=event.of, now=printable(event.key))
            case CellEnded():
                self._ends_s.append(time.monotonic())
                self._tell_end(event, outcome)
            case CellWithdrawn():
                _tell(event.key, Status.INVALID, self._console, f": {printable(event.reason)}")

    def _tell_end(self, event: CellEnded, outcome: RunOutcome) -> None:
        rate = f" {event.rate_bytes_s / 1e6:.2f} MB/s" if event.rate_bytes_s is not None else ""
        last = f"{printable(event.key)}{rate}"
        ended, disturbed = len(self._ends_s) - 1, len(outcome.disturbed)
        left = f"{about(seconds)} left" if (seconds := left_s(self._ends_s, self._of)) is not None else ""
        self.progress.update(self._task, completed=ended, left=left, last=last)
        # On a busy machine each may be: a log has the first one's cause, and then their number.
        if event.status is not Status.OK or (
            event.disturbed is not None and (self._has_bar or (self._has_lines and disturbed == 1))
        ):
            words: list[str | tuple[str, str]] = [f": {printable(event.reason)}"] if event.reason else []
            if event.status is Status.OK and event.rate_bytes_s is not None:
                words.append(f": {event.rate_bytes_s / 1e6:.2f} MB/s")
            if event.disturbed is not None:
                words += [", but ", ("disturbed", "yellow"), f": {printable(event.disturbed.cause)}"]
            _tell(event.key, event.status, self._console, *words)
        if self._has_lines and self._ends_s[-1] >= max(self._reported_s, self._ends_s[0]) + EVERY_S:
            self._reported_s = self._ends_s[-1]
            reported = f"[{ended}/{self._of}] {last}" + (f", {left}" if left else "")
            reported += f", {disturbed} disturbed" if disturbed else ""
            self._console.print(reported, markup=False, highlight=False, soft_wrap=True)


def left_s(ends_s: Sequence[float], of: int) -> float | None:
    """How long the rest of ``of`` cells takes, as long as the later half of those that have ended.

    The first ones of a run bring up its columns. ``ends_s``: when the first began, and when each ended.
    """
    ended = len(ends_s) - 1
    if ended < 1:
        return None
    return max(0, of - ended) * (ends_s[-1] - ends_s[ended // 2]) / (ended - ended // 2)


def _tell(key: str, status: Status, console: Console, *words: str | tuple[str, str]) -> None:
    line = Text.assemble(f"{printable(key)} ", (str(status), STYLES[status]), *words)
    console.print(line, soft_wrap=True)
