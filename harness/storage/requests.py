"""Requests to the small programs in a package's folder ``programs``, which run stand-alone on a host: JSON on
their standard input, the answer on their standard output."""

from __future__ import annotations

from typing import Any

import msgspec

from harness.hosts import Host, programs
from harness.hosts.programs.answering import NOT_REACHED
from harness.hosts.undo import UndoStep
from harness.model.errors import CommandFailed
from harness.storage.transport import NoAnswer


def step(room: str, program: str, do: str, **request: object) -> UndoStep:
    """A request that one of a package's programs carries out; secrets are passed only on standard input."""
    text = msgspec.json.encode({"do": do, **request}).decode()
    return UndoStep((programs.PYTHON, "-I", "-S", "-c", programs.source(room, program)), input=text)


def ask(host: Host, request: UndoStep, what: str, *, timeout_s: float = 60) -> str:
    """The answer to a request; ``what`` begins the sentence that says that there is none."""
    done = host.run(request.argv, input=request.input, timeout_s=timeout_s, check=False)
    if done.status != 0:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        kind = NoAnswer if done.status == NOT_REACHED else CommandFailed
        raise kind(
            f"{what}: {words[-1]}",
            hint="the kernel log of this machine (dmesg) and the target's own log may say more",
        )
    return done.stdout


def reported(host: Host, request: UndoStep, what: str) -> dict[str, Any]:
    """The same, read."""
    answer: dict[str, Any] = msgspec.json.decode(ask(host, request, what))
    return answer


class Made(msgspec.Struct, frozen=True):
    """A resource that one of a package's programs makes on a host, and removes again by its own name.

    ``what`` is what the journal calls it, and ``refused`` begins the sentence that says that it was not made.
    """

    name: str
    what: str
    make: UndoStep
    remove: UndoStep
    refused: str
    within_s: float = 60

    def __repr__(self) -> str:
        return f"{self.what}({self.name!r})"  # without the secrets of what it is made of

    def acquire(self, host: Host) -> None:
        ask(host, self.make, self.refused, timeout_s=self.within_s)

    def undo(self) -> tuple[UndoStep, ...]:
        return (self.remove,)
