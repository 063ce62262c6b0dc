"""What can happen to a host's daemon."""

from __future__ import annotations

import signal
from collections.abc import Callable

import msgspec

from harness.hosts import Daemon, Host
from harness.hosts.undo import UndoStep


class Killed(msgspec.Struct, frozen=True):
    """A daemon that is killed; ``again`` starts another, and tells it what this one was told."""

    name: str
    daemon: Daemon
    again: Callable[[], object]

    def acquire(self, _host: Host) -> None:
        self.daemon.signal(signal.SIGKILL)

    def restore(self) -> None:
        self.again()

    def undo(self) -> tuple[UndoStep, ...]:
        """Nothing to do: it was the run's own."""
        return ()


class Stopped(msgspec.Struct, frozen=True):
    """A daemon that answers no more, until it goes on."""

    name: str
    daemon: Daemon

    def acquire(self, _host: Host) -> None:
        self.daemon.signal(signal.SIGSTOP)

    def restore(self) -> None:
        self.daemon.signal(signal.SIGCONT)

    def undo(self) -> tuple[UndoStep, ...]:
        """Nothing to do: it ends with the run."""
        return ()
