"""A command as a user types it, in this process: what it says, and what it changes and starts meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

import harness.cli
from harness.cli import app
from harness.cli.compare import NOT_JUDGED
from harness.model import signals
from harness.results import archive
from tests.fuzz.driver import Broken

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING = {"os.rename": (0, 1), "os.symlink": (1,), "os.link": (1,)} | dict.fromkeys(
    ("os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "os.chown", "os.utime"), (0,)
)
"""Python's audit events of what changes a file, and which of their arguments name it."""

SINKS = ("/dev/null", "/dev/zero", "/dev/full")
"""May be written to, if they are asked for; not replaced."""

OF_A_PROCESS = re.compile(r"/proc/[0-9]+/\.[0-9a-f]+\.tmp")

STARTING = (
    *("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.system", "pty.spawn"),
)
NETWORK = ("socket.connect", "socket.bind", "socket.sendto")
STATUSES = (0, 1, 2)
# What may drive a terminal or turn the direction of writing: the C0 and C1 sets but for line ends and tabs.
DRIVING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


@dataclass
class Seen:
    """What a command tried to do to the machine outside of its folder; it was kept from it."""

    folder: str
    written: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    spoken_to: list[str] = field(default_factory=list)


_seen: Seen | None = None
_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Python asks this of everything that it is about to do; to raise is to forbid."""
    if _seen is None:
        return
    if event == "open":
        path, _, flags = arguments
        writes = isinstance(flags, int) and flags & WRITING and isinstance(path, str | bytes)
        if writes and (place := os.path.realpath(os.fsdecode(path))) not in SINKS:
            _about_to_write(_seen, place)
    elif event in CHANGING:
        for number in CHANGING[event]:
            if isinstance(path := arguments[number], str | bytes | os.PathLike):
                named = Path.cwd() / os.fsdecode(path)
                _about_to_write(_seen, f"{os.path.realpath(named.parent)}/{named.name}")
    elif event in STARTING:
        _seen.started.append(str(arguments[:2])[:300])
        raise FileNotFoundError(2, "No such file or directory", "(nothing is started in the fuzzer)")
    elif event in NETWORK:
        _seen.spoken_to.append(str(arguments[1:])[:300])
        raise ConnectionRefusedError(111, "Connection refused")


def _about_to_write(seen: Seen, place: str) -> None:
    if OF_A_PROCESS.fullmatch(place):
        # Besides /proc/self/mem, which was asked for: procfs makes no files.
        raise FileNotFoundError(2, "No such file or directory", place)
    # The machine must not suffer from what is looked for: a device that is replaced by a file is gone.
    if not place.startswith((f"{seen.folder}/", "/proc/self/fd/")):
        seen.written.append(place)
        raise PermissionError(1, "Operation not permitted", place)


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    argv: tuple[str, ...]
    status: object
    out: str
    err: str
    seen: Seen


def run(argv: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None) -> Done:
    """The command, with ``folder`` for its working directory, its caches and the user's settings, and with
    other environment variables. Nothing is started."""
    global _seen, _watching
    if not _watching:
        sys.addaudithook(_watch)  # for good: there is no way to take one away
        # In a new clone what Python compiles would count as written outside of the folder.
        sys.dont_write_bytecode = True
        _watching = True
    with _as_a_program(["harness", *argv], folder, variables or {}) as (out, err):
        status: object = None
        _seen = Seen(os.path.realpath(folder))
        # What a command keeps while it runs is in its folder as well.
        usual, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            harness.cli.main()
        except SystemExit as ended:
            status = ended.code
        finally:
            seen, _seen = _seen, None
            archive.UNTIL_THE_END.close()
            archive.unpacked.cache_clear()
            tempfile.tempdir = usual
        sys.stdout.flush()
        sys.stderr.flush()
        texts = [Path(f"/proc/self/fd/{file.fileno()}").read_bytes() for file in (out, err)]
    reported = [text.decode("utf-8", "replace") for text in texts]
    return Done(tuple(argv), status, reported[0], reported[1], seen)


@cache
def _built() -> Any:
    """Typer makes its commands anew for each call, which takes longer than most of them."""
    return typer.main.get_command(app)


@contextlib.contextmanager
def _as_a_program(argv: list[str], folder: Path, variables: Mapping[str, str]) -> Iterator[tuple[Any, Any]]:
    handlers = {number: signal.getsignal(number) for number in signals.ENDING}
    before = sys.argv, sys.stdout, sys.stderr, Path.cwd(), dict(os.environ)
    with (
        tempfile.TemporaryFile("w", encoding="utf-8") as out,
        tempfile.TemporaryFile("w", encoding="utf-8", errors="backslashreplace") as err,
    ):
        try:
            sys.argv, sys.stdout, sys.stderr = argv, out, err
            harness.cli.app = _built()
            os.environ |= {"COLUMNS": "120", "TERM": "dumb", "XDG_CACHE_HOME": str(folder / "cache")}
            os.environ |= {"XDG_CONFIG_HOME": str(folder / "config"), **variables}
            os.chdir(folder)
            yield out, err
        finally:
            sys.argv, sys.stdout, sys.stderr = before[:3]
            harness.cli.app = app
            os.chdir(before[3])
            os.environ.clear()
            os.environ |= before[4]
            for number, handler in handlers.items():
                signal.signal(number, handler)


def require_good(done: Done, *, may_start: bool = False, data: bool = False) -> None:
    """That a command ended as one should, whatever it was given, and left alone what is not in its folder.

    ``data``: its standard output is for programs, and may be anything.
    """
    may_be_undecided = done.argv[:1] == ("compare",)
    refused = any(line.startswith(("harness: ", "Usage: ")) for line in done.err.splitlines())
    wrong = {
        f"ends with status {done.status}": done.status not in STATUSES + (NOT_JUDGED,) * may_be_undecided,
        "prints a traceback": "Traceback" in done.err,
        "refuses without a sentence": done.status == 2 and not refused,
        "starts a program": done.seen.started and not may_start,
        "speaks to the network": done.seen.spoken_to,
        "writes outside of its folder": done.seen.written,
    }
    if kinds := [kind for kind, is_so in wrong.items() if is_so]:
        raise Broken(kinds[0], (done.argv, done.seen, done.err))

    # What typer says of its own repeats what was typed, and that is harmless to who typed it.
    said = "" if "Usage: " in done.err else done.err
    for text in (said,) if data else (done.out, said):
        if driving := DRIVING.search(text):
            raise Broken("prints what drives a terminal", (done.argv, text[max(0, driving.start() - 200) :]))
    if done.status in (0, NOT_JUDGED) and "json" in done.argv and done.out:
        json.loads(done.out, parse_constant=_no_constant)


def _no_constant(text: str) -> None:
    raise Broken("prints JSON that is none", text)
