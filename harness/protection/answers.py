"""A program that watches one end of a path: for each signal it prints a line of JSON into a growing file."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from harness.hosts import Daemon, Host, programs
from harness.hosts.runner import await_condition, tail
from harness.model.errors import CommandFailed

ANSWER_DEADLINE_S = 10.0
START_DEADLINE_S = 20.0

T = TypeVar("T")
R = TypeVar("R")


@dataclass(kw_only=True)
class Answers(Generic[R]):
    """The program at one end, and the file with its answers.

    ``PROGRAM`` and ``SUBJECT`` are what it and what it watches are called in messages, ``REPORT`` is the type
    of its reports.
    """

    name: str
    daemon: Daemon
    file: Path
    _read: int = 0
    """How many bytes of the file are answers that have been read."""

    PROGRAM: ClassVar[str]
    SUBJECT: ClassVar[str]
    REPORT: ClassVar[type[Any]]

    def ask(self) -> None:
        """Ask it to report now."""
        self.daemon.signal(signal.SIGUSR1)

    def begin(self) -> None:
        """Wait until it has started: it gives its first answer unasked."""
        self._answer(self.REPORT, within_s=START_DEADLINE_S, interval_s=0.01)

    def report(self) -> R:
        """The answer to ``ask``. CommandFailed if the program has ended, or does not answer."""
        found: R = self._answer(self.REPORT)
        return found

    def _answer(self, kind: type[T], within_s: float | None = None, interval_s: float = 0.002) -> T:
        """The next answer. CommandFailed if the program has ended, or does not answer."""
        line = b""

        def has_come() -> bool:
            nonlocal line
            with self.file.open("rb") as stream:
                stream.seek(self._read)
                line = stream.readline()
            return line.endswith(b"\n") or self.daemon.ended()

        what = f"the {self.name} to report what its {self.SUBJECT} carried"
        await_condition(has_come, deadline_s=within_s or ANSWER_DEADLINE_S, what=what, interval_s=interval_s)
        if not line.endswith(b"\n"):
            raise CommandFailed(
                f"expected the {self.name}'s {self.PROGRAM} until the column ends, "
                f"but it has ended: {tail(self.file.with_suffix('.log'))}"
            )
        self._read += len(line)
        return msgspec.json.decode(line, type=kind)


@dataclass(frozen=True, kw_only=True)
class BothEnds(Generic[R]):
    """The programs at both ends of a path."""

    initiator: Answers[R]
    target: Answers[R]

    def begin(self) -> Self:
        """Wait until both have started."""
        self.initiator.begin()
        self.target.begin()
        return self

    def look(self) -> tuple[R, R]:
        """What both ends have counted by now, the initiator's first; asked at the same time."""
        self.initiator.ask()
        self.target.ask()
        return self.initiator.report(), self.target.report()


@contextlib.contextmanager
def started(
    host: Host, source: str, words: Sequence[str], folder: Path, stem: str
) -> Iterator[tuple[Daemon, Path]]:
    """Run a program of that source on a host until the context ends; its answers stay in ``folder``.

    Nobody has waited for its first answer yet (``BothEnds.begin``): the other end's may start meanwhile.
    """
    number = next(n for n in itertools.count(1) if not (folder / f"{stem}-{n}.jsonl").exists())
    file = folder / f"{stem}-{number}.jsonl"
    with host.daemon(
        [programs.PYTHON, "-I", "-S", "-c", source, *words],
        log=file.with_suffix(".log"),
        output=file,
        ready=lambda: True,
        deadline_s=START_DEADLINE_S,
    ) as daemon:
        yield daemon, file
