"""Undo operations as data, so that they can be stored, sent, and carried out by another process.

A host that is cut off has no harness to ask. So a resource says beforehand what would undo it. The host
itself, or a later run, can carry that out without knowing what it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from harness.hosts.runner import Completed
from harness.model.errors import HarnessError, HostLost
from harness.model.texts import Argument, Prose


class UndoStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One command that undoes something. It succeeds if it ends with status 0.

    It also succeeds if its standard error contains one of ``absent``: then there was nothing to undo.
    """

    argv: tuple[Argument, ...]
    input: Prose = ""
    absent: tuple[Prose, ...] = ()


class UndoEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that was brought up: what it is for people, its network namespace, and its undoing.

    A ``lasting`` entry lies on a disk, and a reboot does not end it.
    """

    what: Prose
    steps: tuple[UndoStep, ...]
    netns: Argument | None = None
    lasting: bool = False


STEP_TIMEOUT_S = 60.0
"""Logging out of a target that has gone takes time; see ``programs/session.py``."""


RunOnHost = Callable[..., Completed]
"""``Host.run``."""


class Undone(NamedTuple):
    """The result of steps: a phrase for each that failed, and whether there was anything to undo."""

    problems: list[str]
    found: bool


def carry_out(steps: Iterable[UndoStep], run: RunOnHost) -> Undone:
    """Carry out all steps, whatever happens to the others.

    HostLost passes: no step can be carried out on a host that is out of reach.
    """
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
