"""What can happen to a host, and to its daemons."""

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


class Rebooted(msgspec.Struct, frozen=True):
    """A machine that boots anew; ``again`` makes there what the run had made."""

    name: str
    within_s: float
    again: Callable[[], object]

    def acquire(self, host: Host) -> None:
        host.reboot(self.within_s)
        self.again()

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
