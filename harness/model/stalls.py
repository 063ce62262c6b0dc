"""What a fault did to the requests of a cell."""

from __future__ import annotations

from typing import Final

import msgspec

from harness.model.ranges import Count
from harness.model.texts import Detail, HostName, Name, Parameter, ParameterValue, Prose

KERNEL: Final = "kernel"


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """What an end's kernel, its TCP or a daemon said ``at_ns`` after the load began."""

    at_ns: Count
    text: Prose
    source: Detail = KERNEL
    end: HostName = "initiator"


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """Requests at a rate around ``fault``, from ``began_ns`` to ``ended_ns`` after the load began.

    A request is late if it took longer than ``late_ns`` since it was due, ended with an error, or could not
    be sent (``unsent``: too many were out). ``stall_ns`` is the longest time from when a late one was due
    until ``over_ns``, when one was on time again, and then all for a second; None if none was late, or if it
    did not end. From ``back_ns`` on, 95 % or more of each second's were on time; None if they always were, or
    never again. ``longest_ns`` is the longest latency. ``errnos`` counts failed requests, and the first of
    them ended ``first_error_ns`` after the load began.

    ``hops`` are between the ends, which are not told of what breaks behind the next one. ``parameters`` of
    the session are those that were set for this cell alone.

    Each written block was read back: ``written`` of them had acknowledged writes, and of ``lost`` ones the
    last of these was not there. ``messages`` are what timers and their likes had to say.
    """

    fault: Detail
    began_ns: Count
    ended_ns: Count
    late_ns: Count
    requests: Count
    late: Count
    unsent: Count
    longest_ns: Count
    stall_ns: Count | None = None
    over_ns: Count | None = None
    back_ns: Count | None = None
    errnos: dict[Name, Count] = {}
    first_error_ns: Count | None = None
    written: Count = 0
    lost: Count = 0
    not_read_back: Detail | None = None
    messages: tuple[LogLine, ...] = ()
    hops: Count = 0
    parameters: dict[Parameter, ParameterValue] = {}

    @property
    def set_to(self) -> str:
        """The parameters as they are typed."""
        return ", ".join(f"{name}={value}" for name, value in self.parameters.items())

    @property
    def is_over(self) -> bool:
        return not self.late or self.over_ns is not None

    @property
    def lasted_ns(self) -> int | None:
        """0 if no request was late; None if it does not end."""
        return (self.stall_ns or 0) if self.is_over else None
