"""The errors that a user can meet. Each message is one sentence and ends with what to try."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence


class HarnessError(Exception):
    """Something that a user can cause or fix.

    ``message`` says what was expected and what was found, ``hint`` what to try, ``obstacles`` each thing that
    was found, if these are several. The command line prints them, a line each, and exits with ``exit_code``,
    never with a traceback.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None, obstacles: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.obstacles = tuple(obstacles)

    def __str__(self) -> str:
        whole = ": ".join(filter(None, (self.message, "; ".join(self.obstacles))))
        return whole if self.hint is None else f"{whole} ({self.hint})"


class UsageError(HarnessError):
    """Wrong input: an option, a name, a file that the user gave."""


class Unreadable(UsageError):
    """A file that is damaged, of a later version, or may not be read. If it is a record of a run, the run's
    other records are worth as much as before; a link or a device in its place is another matter."""


class RequirementError(HarnessError):
    """Programs, kernel features or rights are missing; all of them are named at once."""


def lacks_package(what: str, package: str, instead: str) -> RequirementError:
    """A Python package is missing, for something that can be done otherwise (``instead``)."""
    command = f"{shlex.quote(sys.executable)} -m pip install {package}"
    return RequirementError(
        f"{what} needs the Python package {package}, which is not installed", hint=f"{command}, or {instead}"
    )


class BusyError(HarnessError):
    """Another run holds the testbed or the device."""


class DeviceRefused(HarnessError):
    """The device guard will not write to this device."""


class CommandFailed(HarnessError):
    """A program that the harness started ended with an error; the message has its command line to copy."""

    exit_code = 1


class TestbedError(HarnessError):
    """The testbed could not be brought up, or was lost while it was in use."""

    exit_code = 1
    __test__ = False  # pytest: the name begins with "Test", but this is no test class


class HostLost(HarnessError):
    """The connection to a host is gone; its agent undoes the run there itself."""

    exit_code = 1


class HopLost(HarnessError):
    """A machine between the ends does not answer any more: its counters are unknown, and nothing else is
    lost."""

    exit_code = 1


class CellInvalid(HarnessError):
    """A measurement was made, but something shows that its figure must not be used."""

    exit_code = 1


class Interrupted(BaseException):
    """The user, the terminal or the machine wants the command to end; see ``harness.model.signals``.

    Not KeyboardInterrupt, which click would handle itself, without a message. ``hint`` says how to go on,
    ``left`` what could not be taken down: a phrase for each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hint: str | None = None
        self.left: tuple[str, ...] = ()
