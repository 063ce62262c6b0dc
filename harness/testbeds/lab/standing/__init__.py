"""A standing lab: a user-mode kernel that stays up between commands, so that a run in it begins at once.

Its *keeper* (``keeper``) owns the kernel, as a run does otherwise: a SIGKILL of
the keeper ends the kernel with it. It listens on a socket in the state folder, and ends by itself when nobody
has used the lab for some time. In the kernel waits a program that has all modules imported
(``harness.runs.waiting``); the two talk through files (``lab.exchange``).

Runs take turns, because each holds the testbed. After a run that failed, was interrupted or left something,
the keeper boots another kernel: a run finds what a fresh one would have.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.hosts import recovery, runner
from harness.hosts.journal import Journal
from harness.hosts.state import Owner, is_locked
from harness.model import LabKernel
from harness.model.errors import TestbedError
from harness.model.units import format_size
from harness.parse.profiles import data_folder
from harness.testbeds import started
from harness.testbeds.lab import boot
from harness.testbeds.lab.kernels import ciphers, kernel

LOCK = "lab.lock"
"""Held by the keeper as long as it lives; it also keeps the state folder."""

SOCKET = "lab.socket"
NEW_SOCKET = "lab.socket.new"
"""Nobody connects to it: bind(2) makes the file, but until listen(2) who does is refused."""

JOURNAL = "lab.jsonl"
"""Not named like the journals of runs: those have no living owner when the next run looks at them."""

CONSOLE = "lab-console.log"
LOG = "lab-keeper.log"
FILES = (SOCKET, NEW_SOCKET, JOURNAL, CONSOLE, LOG, LOCK)

IDLE_S = 1800.0
START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 10.0
ANSWER_DEADLINE_S = 60.0
"""The keeper answers at once, but not while it boots another kernel."""

QUESTION_DEADLINE_S = 5.0
POLL_S = 0.02


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a lab is, or what a run needs. ``results``: the folder of the machine that it may write to.
    ``words`` tell what else is the kernel's: its modules, and what is on its command line.

    ``code`` identifies what the keeper has of the harness, and the machine's packages: the lab has those of
    its start. The rest of the harness is loaded anew when it has changed (``of_worker``).
    """

    kernel: LabKernel
    program: str
    words: str
    storage_bytes: int
    results: str
    core: int
    python: str
    code: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A line to the keeper: ``run`` (with the name of a folder in ``results``), ``status`` or ``stop``."""

    what: str
    folder: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A line from the keeper: what it keeps, for how long its kernel is up, and how many runs it had.

    ``before`` says why the kernel before was given up. ``status`` is a run's exit status, once it has ended.
    """

    terms: Terms
    pid: int
    up_s: float
    runs: int
    idle_s: float
    idle_limit_s: float
    before: str = ""
    status: int | None = None


def kernel_of(name: LabKernel) -> boot.Kernel:
    """The kernel of a lab that stays up. RequirementError if it is not there."""
    return kernel.own_kernel() if name is LabKernel.OWN else ciphers.cached() or boot.debian_kernel()


def terms(name: LabKernel, chosen: boot.Kernel, storage_bytes: int, results: Path) -> Terms:
    """What this process would boot."""
    return Terms(
        kernel=name,
        program=str(chosen.binary),
        words=" ".join((str(chosen.modules), *chosen.options)),
        storage_bytes=storage_bytes,
        results=str(results.resolve()),
        core=max(os.sched_getaffinity(0)),
        python=sys.prefix,
        code=code(),
    )


PACKAGES_INSTALLED = tuple(
    map(
        Path,
        (
            "/var/lib/dpkg/status",
            "/usr/lib/sysimage/rpm/rpmdb.sqlite",
            "/var/lib/rpm",
            "/var/lib/pacman/local",
        ),
    )
)
"""What changes with each package that is installed: of dpkg, rpm, and pacman."""


def code() -> str:
    """A digest of the files that a keeper and its kernel begin with, and of the system's list of packages."""
    stamps = _stamps([*_sources(Path(__file__).resolve().parents[1]), *PACKAGES_INSTALLED])
    return hashlib.sha256(repr(sorted(stamps.items())).encode()).hexdigest()[:16]


def of_worker() -> dict[str, str]:
    """The other files of the harness and its data, which the program in the lab works with: their stamps."""
    (_, lab, _, harness, *_), data = Path(__file__).resolve().parents, data_folder()
    files = [file for file in _sources(harness) if not file.is_relative_to(lab)]
    return _stamps([*files, *(data / "profiles").rglob("*.*"), *(data / "ipsec").rglob("*.*")])


def _sources(folder: Path) -> list[Path]:
    return [file for ending in ("py", "sh", "c") for file in folder.rglob(f"*.{ending}")]


def _stamps(files: Iterable[Path]) -> dict[str, str]:
    """Sizes and times of those files that are there, by their names."""
    stamps = {}
    for file in files:
        with contextlib.suppress(OSError):
            found = file.stat()
            stamps[str(file)] = f"{found.st_size} {found.st_mtime_ns}"
    return stamps


def why_not(has: Terms, needs: Terms) -> str | None:
    """Why a run cannot use a lab, as the end of a sentence about the lab; None if it can."""
    for kept, wanted, words in (
        (has.program, needs.program, "the kernel is {}, not {}"),
        (has.words, needs.words, "its kernel has {}, not {}"),
        (has.core, needs.core, "the processor is {}, not {}"),
        (has.results, needs.results, "the results folder is {}, not {}"),
        (has.python, needs.python, "the Python is {}, not {}"),
    ):
        if kept != wanted:
            return words.format(kept, wanted)
    if has.code != needs.code:
        return "what boots it of the harness, or the machine's packages, are no longer the same"
    if has.storage_bytes < needs.storage_bytes:
        room, wanted_room = format_size(has.storage_bytes), format_size(needs.storage_bytes)
        return f"the memory is for {room} of storage, not for {wanted_room}"
    return None


# The side of commands.


def is_up(state: Path) -> bool:
    """Whether a keeper lives."""
    return is_locked(state / LOCK)


def ask(state: Path) -> Answer | None:
    """What is kept; None if no lab is up. TestbedError if its keeper does not answer."""
    if not is_up(state):
        return None
    with _connected(state) as line:
        line.send(Ask(what="status"))
        return line.receive(ANSWER_DEADLINE_S, Answer)


def start(state: Path, wanted: Terms, idle_s: float = IDLE_S) -> Answer:
    """Start a keeper and wait until its lab is up. Call this while holding the testbed.

    TestbedError if it does not come up.
    """
    log = state / LOG
    log.unlink(missing_ok=True)
    words = msgspec.json.encode(wanted).decode()
    argv = started.command(started.KEEPER, str(state), words, str(idle_s))
    process = runner.left_running(argv, log)
    try:
        end = time.monotonic() + START_DEADLINE_S
        while process.poll() is None and time.monotonic() < end:
            # The keeper begins to listen when its kernel is up.
            if (state / SOCKET).exists() and (found := ask(state)) is not None:
                return found
            time.sleep(POLL_S)
        said = runner.tail(log)
        raise TestbedError(
            f"expected the lab to come up, but {said or 'it did not within the deadline'}",
            hint="`harness doctor` says what the lab needs",
        )
    except BaseException:
        _end(process)
        tidy(state)
        raise


def stop(state: Path) -> bool:
    """End the keeper, and with it the lab; returns whether there was one. TestbedError if it goes on."""
    if not is_up(state):
        return False
    with contextlib.suppress(TestbedError), _connected(state) as line:
        line.send(Ask(what="stop"))
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            # Its lock is held, so the process in it lives.
            with contextlib.suppress(OSError, msgspec.DecodeError):
                os.kill(msgspec.json.decode((state / LOCK).read_bytes(), type=Owner).pid, number)
        end = time.monotonic() + STOP_DEADLINE_S
        while time.monotonic() < end:
            if not is_up(state):
                tidy(state)
                return True
            time.sleep(POLL_S)
    raise TestbedError("expected the lab to end, but its keeper goes on", hint=f"see {state / LOCK}")


def tidy(state: Path) -> tuple[list[str], list[str]]:
    """Undo what a killed keeper left, by its journal; (removed, not removed). Nothing while it lives."""
    if is_up(state) or not any((state / name).exists() for name in FILES):
        return [], []
    result = recovery.recover(Journal(state / JOURNAL))
    for name in FILES:
        if name != JOURNAL:
            (state / name).unlink(missing_ok=True)
    return result


class Run:
    """A run in a standing lab, like the process of one that boots its own (``subprocess.Popen``)."""

    def __init__(self, line: Line, kept: Answer) -> None:
        self._line = line
        self._status: int | None = None
        self.kept = kept
        """What was kept when the run began."""

    def poll(self) -> int | None:
        if self._status is None:
            self._receive(0)
        return self._status

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while self._status is None:
            left = end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("a run in the standing lab", timeout)
            self._receive(left)
        return self._status

    def _receive(self, timeout_s: float) -> None:
        try:
            answer = self._line.receive(timeout_s, Answer)
        except _Silent:
            return
        except TestbedError:
            self._status = 1  # the keeper was ended
            return
        self._status = 1 if answer.status is None else answer.status


@contextlib.contextmanager
def run(state: Path, folder: Path) -> Iterator[Run]:
    """Carry out the plan in ``folder``, which is in the lab's results folder. Leaving the context early ends
    the lab's kernel; the keeper then boots another."""
    with _connected(state) as line:
        line.send(Ask(what="run", folder=folder.name))
        yield Run(line, line.receive(START_DEADLINE_S, Answer))


class _Silent(TestbedError):
    """No message within the time."""


M = TypeVar("M", Ask, Answer)


class Line:
    """A connection between a command and the keeper, with a JSON object a line."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._came = b""

    def send(self, message: Ask | Answer) -> None:
        """TestbedError if the other end has gone."""
        try:
            self._connection.sendall(msgspec.json.encode(message) + b"\n")
        except OSError as error:
            raise TestbedError(f"the other end has gone: {error.strerror}") from error

    def receive(self, timeout_s: float, kind: type[M]) -> M:
        """The next message. TestbedError if the other end has gone, or says nothing in time."""
        while b"\n" not in self._came:
            if not select.select([self._connection], [], [], timeout_s)[0]:
                raise _Silent(
                    f"the standing lab did not answer within {timeout_s:g} s", hint="end it: harness lab stop"
                )
            if not (more := self._receive()):
                raise TestbedError("the standing lab has ended")
            self._came += more
        text, _, self._came = self._came.partition(b"\n")
        return msgspec.json.decode(text, type=kind)

    def has_ended(self) -> bool:
        """Whether the other end has gone. It is not expected to say anything more."""
        return bool(select.select([self._connection], [], [], 0)[0]) and not self._receive()

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(4096)
        except OSError:
            return b""


@contextlib.contextmanager
def _connected(state: Path) -> Iterator[Line]:
    with socket.socket(socket.AF_UNIX) as connection, near(state) as folder:
        try:
            connection.connect(f"{folder}/{SOCKET}")
        except OSError as error:
            raise TestbedError(
                f"the standing lab cannot be reached: {error.strerror}", hint="end it: harness lab stop"
            ) from error
        yield Line(connection)


@contextlib.contextmanager
def near(folder: Path) -> Iterator[str]:
    """A short name of a folder: a socket's has at most 107 bytes (unix(7))."""
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}"
    finally:
        os.close(opened)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
