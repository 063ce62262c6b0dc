"""What can happen to a host, and to its daemons."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager

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


class Rebooted(msgspec.Struct, frozen=True):
    """A machine that boots anew. ``made_again`` is entered before that, and makes there what the run had made
    as it is left."""

    name: str
    within_s: float
    made_again: Callable[[], AbstractContextManager[object]]

    def acquire(self, host: Host) -> None:
        with self.made_again():
            host.reboot(self.within_s)

    def undo(self) -> tuple[UndoStep, ...]:
        """Nothing to do: it is back, or lost."""
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
