"""Commands in processes of their own, for tests of what only a process has: signals, streams, its end.

They are forked from a Python that has imported everything (``forkserver``), because starting one takes some
tenths of a second each time. Tests of how a process starts (a locale, imports) start one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from harness import cli
from tests.unit import forkserver

PATIENCE_S = 60.0
COMMANDS = tuple(place.partition(":")[0] for place in cli.COMMANDS.values())
MODULES = (*COMMANDS, "typer.rich_utils", "typer._adapters")
"""Typer imports one of the last two when it refuses or reads an option: which, depends on its version."""


class Process:
    """One that was forked: like ``subprocess.Popen``, as far as it goes."""

    def __init__(self, control: socket.socket, out: IO[bytes], err: IO[bytes]) -> None:
        self._control = control
        self._outputs = out, err
        control.settimeout(PATIENCE_S)
        self.pid = int(control.recv(64))
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Its exit status. TimeoutExpired if it does not end in time."""
        if self.returncode is None:
            self._control.settimeout(timeout)
            try:
                self.returncode = int(self._control.recv(64))
            except TimeoutError:
                raise subprocess.TimeoutExpired("harness", timeout) from None
        return self.returncode

    def communicate(self, timeout: float = PATIENCE_S) -> tuple[str, str]:
        """What it printed, once it has ended."""
        self.wait(timeout)
        for file in self._outputs:
            file.seek(0)
        out, err = (file.read().decode() for file in self._outputs)
        return out, err

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.send_signal(signal.SIGKILL)
        self.wait()
        for file in self._outputs:
            file.close()


class Server:
    """The Python that they are forked from, one after another. It starts with ``more`` in its environment."""

    def __init__(self, more: Mapping[str, str] | None = None, modules: Sequence[str] = MODULES) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, "-P", forkserver.__file__, str(theirs.fileno()), *modules]
            env, fds = {**os.environ, **(more or {})}, [theirs.fileno()]
            self._process = subprocess.Popen(argv, env=env, pass_fds=fds, stdin=subprocess.DEVNULL)
        self.testbed: Path | None = None
        """The folder of their lock and journals, if that is not the user's."""

    def close(self) -> None:
        self._control.close()
        self._process.wait(PATIENCE_S)

    def start(
        self,
        *words: str | bytes,
        cwd: Path | int,
        env: Mapping[str, str] | None = None,
        program: str | None = None,
        streams: Mapping[int, int | None] | None = None,
    ) -> Process:
        """Start the command with these words, or the Python ``program``. ``cwd`` is a folder or the
        descriptor of one; ``env`` is added to the environment. ``streams`` says which descriptors it has as 1
        and 2 instead of files that are read here; None closes one."""
        files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (the process closes them)
        given: dict[int, int | None] = {1: files[0].fileno(), 2: files[1].fileno(), **(streams or {})}
        nothing = os.open(os.devnull, os.O_RDONLY)
        folder = os.dup(cwd) if isinstance(cwd, int) else os.open(cwd, os.O_RDONLY | os.O_DIRECTORY)
        try:
            passed = {number: each for number, each in given.items() if each is not None}
            passed |= {0: nothing, forkserver.WORKING_DIRECTORY: folder}
            request = {
                "words": [os.fsencode(word).hex() for word in ("harness", *words)],
                "environment": {**os.environ, "TERM": "dumb", "COLUMNS": "300", **(env or {})},
                "testbed": None if self.testbed is None else str(self.testbed),
                "program": program,
                "descriptors": list(passed),
            }
            socket.send_fds(self._control, [json.dumps(request).encode()], list(passed.values()))
        finally:
            os.close(nothing)
            os.close(folder)
        return Process(self._control, *files)

    def run(self, *words: str | bytes, **more: Any) -> subprocess.CompletedProcess[str]:
        """The command from its start to its end."""
        with self.start(*words, **more) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(["harness", *words], process.wait(), out, err)
