"""Programs of ours that stay and serve, because each start takes its time: in the lab, that of Python with
rtslib takes longer than all else that most cells do beside measuring.

A program that can stay calls ``serve`` of ``programs/serving.py``. Started with the word SERVE it reads
requests, a line of JSON each: ``{"netns", "input"}``, the network namespace in which it shall act (a name
under /run/netns, or null) and what it otherwise reads from standard input. It answers each by a line:
``{"status", "stderr"}``. It ends when its standard input does.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.hosts import programs, runner, signals
from harness.hosts.runner import Completed, Dialogue
from harness.model.errors import CommandFailed, HarnessError

SERVE = "serve"
CAN_STAY = "def serve("


class _Request(msgspec.Struct):
    netns: str | None
    input: str


class _Answer(msgspec.Struct):
    status: int
    stderr: str


class _Gone(Exception):
    """It has ended, or does not answer as agreed."""


class Kept:
    """The programs that stay, by their source; they end with this process, or by ``end``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Dialogue] = {}
        self._refused: set[str] = set()

    def run(
        self, argv: Sequence[str], *, netns: str | None, input: str, timeout_s: float
    ) -> Completed | None:
        """Let a program that stays do what the command line would do.

        None if none can: run the command line instead. CommandFailed if it does not answer in ``timeout_s``.
        """
        if len(argv) != 3 or tuple(argv[:2]) != (programs.PYTHON, "-c") or CAN_STAY not in argv[2]:
            return None
        source = argv[2]
        began = time.monotonic()
        with self._lock:
            if source in self._refused:
                return None
            try:
                answer = self._ask(source, _Request(netns, input), timeout_s)
            except (OSError, HarnessError, _Gone):
                self._refused.add(source)
                self._drop(source)
                return None
            except BaseException:
                # Interrupted in the middle: as with any other program, what it does ends here.
                signals.surely(lambda: self._drop(source))
                raise
            if answer is None:
                self._drop(source)
                raise CommandFailed(f"`{runner.command_line(argv)}` did not end within {timeout_s:g} s")
        return Completed(
            argv=tuple(argv),
            status=answer.status,
            stdout="",
            stderr=answer.stderr,
            seconds=time.monotonic() - began,
        )

    def start(self, source: str) -> None:
        """Start one, before it is asked anything. HarnessError if it cannot be started."""
        with self._lock:
            self._started(source)

    def _started(self, source: str) -> Dialogue:
        if source not in self._running:
            self._running[source] = Dialogue([programs.PYTHON, "-c", source, SERVE], Path(os.devnull))
        return self._running[source]

    def end(self) -> None:
        """End all of them."""
        with self._lock:
            for source in [*self._running]:
                self._drop(source)

    def _ask(self, source: str, request: _Request, timeout_s: float) -> _Answer | None:
        """Its answer; None if it takes too long."""
        dialogue = self._started(source)
        told = dialogue.output
        dialogue.input.write(msgspec.json.encode(request) + b"\n")
        dialogue.input.flush()
        end, line = time.monotonic() + timeout_s, b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([told], [], [], max(0.0, end - time.monotonic()))
            if not readable:
                return None
            more = os.read(told.fileno(), 1 << 16)
            if not more:
                raise _Gone
            line += more
        try:
            return msgspec.json.decode(line, type=_Answer)
        except msgspec.DecodeError as error:
            raise _Gone from error

    def _drop(self, source: str) -> None:
        dialogue = self._running.pop(source, None)
        if dialogue is not None:
            dialogue.kill()
            dialogue.output.close()
