"""The event queue of kernels that share one virtual time: which of them may run, and until when.

User-mode kernels with ``time-travel=ext:`` ask it for each step of their clocks, in messages of
include/uapi/linux/um_timetravel.h. One kernel runs at any time, the one whose wish is the earliest; the
others stand still. So what happens at one moment happens in one order, and runs repeat.
"""

from __future__ import annotations

import enum
import struct

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


class EventQueue:
    """The wishes of all kernels, by their numbers, and what time it is.

    A kernel that has not started yet waits for time 0.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self._wishes: dict[int, tuple[int, int]] = {}
        """When each wishes to run, and how many wishes were made before: of two for the same time, the one
        that was made first comes first."""
        self._made = 0

    def wish(self, number: int, time_ns: int) -> None:
        """A kernel asks to run at a time; its last wish counts."""
        self._made += 1
        self._wishes[number] = time_ns, self._made

    def update(self, time_ns: int) -> None:
        """The kernel that runs says how far it is."""
        self.now_ns = max(self.now_ns, time_ns)

    def next(self) -> int | None:
        """Let the kernel run whose turn it is, and return its number; None if all wait for ever."""
        number = min(self._wishes, key=self._wishes.__getitem__)
        time_ns, order = self._wishes[number]
        if time_ns >= NEVER_NS:
            return None
        self.now_ns = max(self.now_ns, time_ns)
        self._wishes[number] = NEVER_NS, order
        return number

    def free_until_ns(self, number: int) -> int:
        """Until when a kernel that runs may set its clock by itself: the next wish of another one."""
        return min((wish[0] for other, wish in self._wishes.items() if other != number), default=NEVER_NS)
