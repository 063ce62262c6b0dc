"""Where the harness prints: an answer to standard output, words for people to standard error.

It imports little, because every command waits for it, `harness --help` too.
"""

from __future__ import annotations

import io
import os
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO

from harness.model.errors import HarnessError, Interrupted
from harness.model.escape import printable

if TYPE_CHECKING:
    from rich.console import Console

NARROW = 80
"""The width of a terminal, in characters, where there is none."""

QUIET: ContextVar[bool] = ContextVar("QUIET", default=False)
"""Whether to print only the answer and what failed."""


class _SafeStderr(io.TextIOWrapper):
    """Standard error. If nobody reads it any more, the run still goes on."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            silence(self)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            silence(self)


def out() -> Console:
    """Standard output, for what has colours."""
    return _console(sys.stdout)


def err() -> Console:
    """Standard error, for what has colours or moves."""
    return _console(sys.stderr)


def _console(file: TextIO) -> Console:
    from rich.console import Console

    # Most of what is printed has names that others chose: no markup, and no emoji for `:x:`. With a name,
    # rich knows the file's encoding.
    return Console(file=file, markup=False, highlight=False, emoji=False)


def be_quiet(wanted: bool) -> None:
    """From now on print only the answer and what failed, if that is ``wanted``."""
    if wanted:
        QUIET.set(True)


def say(text: str) -> None:
    """Print a line of the answer to standard output."""
    _print(text, sys.stdout)


def tell(text: str) -> None:
    """Print a line for people to standard error, unless that is to be quiet."""
    if not QUIET.get():
        _print(text, sys.stderr)


def complain(text: str) -> None:
    """Print a line on what failed to standard error."""
    _print(text, sys.stderr)


def _print(text: str, file: TextIO) -> None:
    file.write(f"{printable(text)}\n")
    file.flush()


def hint(text: str) -> None:
    """Print what to try, below an error."""
    complain(f"  hint: {text}")


def prepare_streams() -> None:
    """Make standard output take any text, whatever its encoding, and make standard error never fail."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    raw = io.FileIO(sys.stderr.fileno(), "w", closefd=False)
    sys.stderr = _SafeStderr(
        io.BufferedWriter(raw), sys.stderr.encoding, errors="backslashreplace", line_buffering=True
    )


def silence(stream: TextIO) -> None:
    """Redirect a stream that takes nothing any more to nowhere. Otherwise what Python still buffers for it
    would fail again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def tell_error(error: HarnessError) -> None:
    complain(f"harness: {error.message}")
    for each in error.obstacles:
        complain(f"  {each}")
    if error.hint:
        hint(error.hint)


def tell_interruption(interruption: Interrupted) -> None:
    """Say that everything has been taken down, or what has not; and how to go on."""
    if interruption.left:
        left = "; ".join(interruption.left)
        complain(f"harness: interrupted, and not everything could be taken down: {left}")
        hint("`harness clean` removes them (on machines: with the run's --target and --initiator)")
    else:
        complain("harness: interrupted; everything has been taken down")
    if interruption.hint:
        hint(interruption.hint)
