"""How what was brought up is taken down: as data, so that it can be written down, sent, and done by others.

A host that is cut off has nobody of ours to ask. So a resource says beforehand what would undo it, and the
host itself, or a later run, can carry that out without knowing what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from harness.hosts.runner import Completed
from harness.model.errors import HarnessError, HostLost


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One command that undoes something. It is right if it ends with status 0.

    It is right as well if its standard error holds one of ``absent``: there was nothing to undo.
    """

    argv: tuple[str, ...]
    input: str = ""
    absent: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that was brought up: what it is for people, in which network namespace, and its undoing.

    What is ``lasting`` lies on a disk, and a reboot does not end it.
    """

    what: str
    steps: tuple[Step, ...]
    netns: str | None = None
    lasting: bool = False


STEP_TIMEOUT_S = 60.0
"""A session to a target that has gone takes its time to end; see ``programs/logout.py``."""


class Run(Protocol):
    """``Host.run``."""

    def __call__(
        self, argv: Sequence[str], *, input: str | None, timeout_s: float, check: bool
    ) -> Completed: ...


class Undone(NamedTuple):
    """What came of steps: a phrase for each that went wrong, and whether there was anything to undo."""

    problems: list[str]
    found: bool


def carry_out(steps: Iterable[Step], run: Run) -> list[str]:
    """Do all steps, whatever becomes of the others; one phrase for each that went wrong.

    HostLost passes: no step can be done on a host that is out of reach.
    """
    return undone(steps, run).problems


def undone(steps: Iterable[Step], run: Run) -> Undone:
    """The same, and whether anything was there."""
    problems, found = [], False
    for step in steps:
        try:
            done = run(step.argv, input=step.input, timeout_s=STEP_TIMEOUT_S, check=False)
            if not any(words in done.stderr for words in step.absent):
                found = True
                done.require_success()
        except HostLost:
            raise
        except (HarnessError, OSError) as error:
            problems.append(str(error))
    return Undone(problems, found)
