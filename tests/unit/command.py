"""The command, run in this process: to start one and import everything anew takes half a second each time.

What a process has to itself, a call has here: arguments, working directory, environment, standard streams,
handlers of signals, umask, and nothing remembered from the call before. Its testbed is its own as well. Tests
of what only a process has start one: signals, closed or full outputs, locales (test_output, test_signals).
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from unittest import mock

import pytest
import typer

from harness import __main__
from harness.cli import INTERRUPTED
from harness.hosts import state
from harness.model import signals
from harness.results import archive

COLUMNS = 300
PATIENCE_S = 60.0
"""What a command may take, all in all."""


def harness(*words: str, cwd: Path, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    """``harness WORDS``, from an empty standard input. ``encoding`` is what Python would take for the streams
    from the locale or PYTHONIOENCODING."""
    argv = ["harness", *words]
    threads, descriptors = set(threading.enumerate()), _descriptors()
    with contextlib.ExitStack() as process:
        process.enter_context(contextlib.chdir(cwd))
        process.enter_context(mock.patch.dict(os.environ, TERM="dumb", COLUMNS=str(COLUMNS)))
        process.enter_context(_globals(argv))
        out, err = process.enter_context(_streams(encoding))
        process.enter_context(_signals(argv))
        try:
            __main__.main()
        except SystemExit as ended:
            status = ended.code
        except Exception:
            traceback.print_exc()
            status = 1
    # Ctrl-C was meant for the tests as well.
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    assert isinstance(status, int)
    assert set(threading.enumerate()) <= threads, "a process would have waited for them, or ended them"
    # Fewer are none of it: the collector closes what tests before left open.
    assert _descriptors() <= descriptors, "the next command would have them open"
    return subprocess.CompletedProcess(argv, status, out[0].decode(), err[0].decode())


@contextlib.contextmanager
def _globals(argv: list[str]) -> Iterator[None]:
    """What modules keep for as long as a process lives."""
    umask = os.umask(0o022)
    os.umask(umask)
    _forget()
    with tempfile.TemporaryDirectory() as own, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", argv)
        # Typer sets the first, where temporary files go is asked once.
        patch.setattr(sys, "excepthook", sys.excepthook)
        patch.setattr(tempfile, "tempdir", None)
        patch.setattr(typer.main, "get_command", _get_command)
        # Neither locked by a run of the user's, nor with the journal of one.
        patch.setattr(state, "state_folder", lambda: state.own_folder(Path(own, "harness")))
        patch.setattr(state, "DISK", Path(own, "disk"))
        state.DISK.mkdir()
        try:
            yield
        finally:
            _forget()
            os.umask(umask)


_CACHES: dict[ModuleType, tuple[Callable[[], None], ...]] = {}
"""What empties the caches of each module's functions: to look for them takes longer than most commands."""

_get_command = functools.cache(typer.main.get_command)
"""Commands are made of their declarations once: they keep nothing of a call."""


def _forget() -> None:
    """Empty what functions of the harness cache, and end what lasts until its process does."""
    archive.UNTIL_THE_END.close()
    for name, module in list(sys.modules.items()):
        if name.startswith("harness"):
            if module not in _CACHES:
                found = (getattr(value, "cache_clear", None) for value in vars(module).values())
                _CACHES[module] = tuple(clear for clear in found if clear)
            for clear in _CACHES[module]:
                clear()


@contextlib.contextmanager
def _signals(argv: list[str]) -> Iterator[None]:
    """Put handlers back, and end what takes too long."""

    def late(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"{' '.join(argv)} did not end within {PATIENCE_S:g} s")

    handlers = {number: signal.getsignal(number) for number in (*signals.ENDING, signal.SIGALRM)}
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _streams(encoding: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Standard input from nowhere, and both outputs into pipes, for programs that are started as well."""
    before, kept = (sys.stdin, sys.stdout, sys.stderr), os.dup(0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with _piped(1) as out, _piped(2) as err:
        sys.stdin = os.fdopen(0, encoding=encoding, closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
        sys.stderr = os.fdopen(
            2, "w", encoding=encoding, errors="backslashreplace", buffering=1, closefd=False
        )
        try:
            yield out, err
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            sys.stdin, sys.stdout, sys.stderr = before
            os.dup2(kept, 0)
            os.close(kept)


@contextlib.contextmanager
def _piped(descriptor: int) -> Iterator[list[bytes]]:
    """Have a descriptor lead into a pipe; afterwards there is what came out of it."""
    came: list[bytes] = []
    kept, (source, end) = os.dup(descriptor), os.pipe()
    os.dup2(end, descriptor)
    os.close(end)

    def read() -> None:
        with os.fdopen(source, "rb") as file:
            came.append(file.read())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield came
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
        reader.join(PATIENCE_S)
        assert not reader.is_alive(), "a program that was started still has it open"


def _descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}
