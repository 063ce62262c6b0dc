"""What a run in its testbed reports to the outside, live: one JSON object a line in ``events.jsonl``.

It is a file, because appending to it never waits for a reader, and it survives the testbed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from harness.analysis.disturbance import Disturbed
from harness.model import Status
from harness.model.texts import Part, Prose


class Phase(msgspec.Struct, frozen=True, tag_field="event", tag="phase"):
    """The run brings something up or takes it down."""

    text: Prose


TAKING_DOWN = Phase("taking everything down")
"""All that was to be measured is."""


class CellStarted(msgspec.Struct, frozen=True, tag_field="event", tag="cell-started"):
    key: Prose
    number: int
    of: int


class CellEnded(msgspec.Struct, frozen=True, tag_field="event", tag="cell-ended"):
    """``fio_ns``: how long fio measured; ``fio_began_ago_s``: how long ago it began to.

    ``rate_bytes_s``: what it read and wrote in a second, if the cell has figures. ``disturbed``: who
    disturbed the cell, or None. A disturbed cell may start and end again.
    """

    key: Prose
    status: Status
    reason: Prose | None
    fio_ns: int
    fio_began_ago_s: float
    disturbed: Disturbed | None = None
    rate_bytes_s: float | None = None


class CellWithdrawn(msgspec.Struct, frozen=True, tag_field="event", tag="cell-withdrawn"):
    """A cell that had ended ok is invalid, because of what was seen since."""

    key: Prose
    reason: Prose


class Spent(msgspec.Struct, frozen=True, tag_field="event", tag="spent"):
    """Seconds of a run's parts, by what they went to; ``of_fio`` is the part within which fio measured."""

    parts_s: dict[Part, float]
    of_fio: Part


class Failed(msgspec.Struct, frozen=True, tag_field="event", tag="failed"):
    """The run as a whole cannot go on."""

    message: Prose
    hint: Prose | None
    exit_code: int


class Ended(msgspec.Struct, frozen=True, tag_field="event", tag="ended"):
    """The run has taken everything down; ``leaks`` lists what it could not."""

    leaks: tuple[Prose, ...]


def ago_s(unix_s: float) -> float:
    """How long ago that was, if the clock was not set since; 0 if it lies in the future by now."""
    return max(0.0, time.time() - unix_s)


Event = Phase | CellStarted | CellEnded | CellWithdrawn | Spent | Failed | Ended
Emit = Callable[[Event], None]


def writer(path: Path) -> Emit:
    """An ``Emit`` that appends to a file, each event in one write.

    A full disk loses events, but not the run: what cannot be reported is still taken down.
    """

    def emit(event: Event) -> None:
        with contextlib.suppress(OSError), path.open("ab") as file:
            file.write(msgspec.json.encode(event) + b"\n")

    return emit


class EventReader:
    """Follows a file that is being appended to."""

    def __init__(self, path: Path, *, start: int = 0) -> None:
        self._path = path
        self._offset = start

    def read(self) -> list[Event]:
        """The events since the last call; an incomplete line is left for the next call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [msgspec.json.decode(line, type=Event) for line in whole.splitlines()]
