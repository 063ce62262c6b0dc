"""The calendar of kernels that share one virtual time: which of them may run, and until when.

User-mode kernels with ``time-travel=ext:`` ask it for each step of their clocks, in messages of
include/uapi/linux/um_timetravel.h. One kernel runs at any time, the one whose wish is the earliest; the
others stand still. So what happens at one moment happens in one order, and runs repeat.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, field

NEVER_NS = (1 << 63) - 1
"""What a kernel asks for that waits for nothing but interrupts (S64_MAX, time_travel_sleep())."""

MESSAGE = struct.Struct("=IIQ")
"""Operation, number and time in nanoseconds (struct um_timetravel_msg)."""


class TimeTravelOperation(enum.IntEnum):
    """What a message is for (enum um_timetravel_ops)."""

    ACK = 0
    START = 1
    REQUEST = 2
    WAIT = 3
    GET = 4
    UPDATE = 5
    RUN = 6
    FREE_UNTIL = 7
    GET_TOD = 8


@dataclass(kw_only=True)
class Wish:
    """What one kernel wishes: to run at ``wish_ns``."""

    wish_ns: int = NEVER_NS
    order: int = 0
    """Of two wishes for the same time, the one that was made first comes first."""


@dataclass(kw_only=True)
class Calendar:
    """The wishes of all kernels, by their numbers, and what time it is.

    A kernel that has not started yet waits for time 0.
    """

    now_ns: int = 0
    entries: dict[int, Wish] = field(default_factory=dict)
    _wishes: int = 0

    def add(self, number: int) -> None:
        self.entries[number] = Wish()
        self.wish(number, 0)

    def wish(self, number: int, time_ns: int) -> None:
        """A kernel asks to run at a time; its last wish counts."""
        self._wishes += 1
        entry = self.entries[number]
        entry.wish_ns, entry.order = time_ns, self._wishes

    def update(self, time_ns: int) -> None:
        """The kernel that runs says how far it is."""
        self.now_ns = max(self.now_ns, time_ns)

    def next(self) -> int | None:
        """Let the kernel run whose turn it is, and return its number; None if all wait for ever."""
        number, entry = min(self.entries.items(), key=lambda item: (item[1].wish_ns, item[1].order))
        if entry.wish_ns >= NEVER_NS:
            return None
        self.now_ns = max(self.now_ns, entry.wish_ns)
        entry.wish_ns = NEVER_NS
        return number

    def free_until_ns(self, number: int) -> int:
        """Until when a kernel that runs may set its clock by itself: the next wish of another one."""
        return min(
            (entry.wish_ns for other, entry in self.entries.items() if other != number), default=NEVER_NS
        )
