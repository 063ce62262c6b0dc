"""A persistent lab: a user-mode kernel that stays up between commands, so that a run in it begins at once.

Its *daemon* (``daemon``) owns the kernel, as a run does otherwise: a SIGKILL of the daemon ends the kernel
with it. It ends by itself when nobody has used the lab for some time. In the kernel waits a program that has
all modules imported (``harness.runs.worker``), which commands tell by a file what to do (``lab.exchange``).
The daemon looks on: what it keeps is in a file of the state folder, and a run has locked another one.

Runs take turns, because each holds the testbed. After a run that failed, was interrupted or left something,
the daemon boots another kernel: a run finds what a fresh one would have.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.hosts import runner
from harness.hosts.journal import Journal
from harness.hosts.state import Owner, is_locked
from harness.model import LabKernel
from harness.model.errors import TestbedError
from harness.model.texts import AbsolutePath, Prose
from harness.model.units import format_size
from harness.parse.profiles import data_folder
from harness.testbeds import entry_points
from harness.testbeds.lab import boot
from harness.testbeds.lab.exchange import Exchange, WorkerOrder, WorkerReport
from harness.testbeds.lab.kernels import ciphers, kernel

LOCK = "lab.lock"
"""Held by the daemon as long as it lives; it also keeps the state folder."""

KEPT, NEW = "lab.json", "lab.json.new"
"""``LabState``, while a run can begin or goes on; what is renamed to it when it is whole."""

USED = "lab.run"
"""Held by a run as long as it goes on."""

STOP = "lab.stop"
"""Asks the daemon to end."""

JOURNAL = "lab.jsonl"
"""Not named like the journals of runs: those have no living owner when the next run looks at them."""

CONSOLE = "lab-console.log"
LOG = "lab-daemon.log"
FILES = (KEPT, NEW, USED, STOP, JOURNAL, CONSOLE, LOG, LOCK)

IDLE_S = 1800.0
START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 10.0
READY_DEADLINE_S = 60.0
"""How long a command waits while the daemon boots another kernel, or has the harness loaded anew."""

POLL_S = 0.02


class LabTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a lab is, or what a run needs. ``results``: the folder of the machine that it may write to.
    ``words`` say what else defines the kernel: its modules and its command line.

    ``code`` identifies what the daemon has of the harness, and the machine's packages: the lab has those of
    its start. The rest of the harness is loaded anew when it has changed (``worker``).
    """

    kernel: LabKernel
    program: AbsolutePath
    words: Prose
    storage_bytes: int
    results: AbsolutePath
    core: int
    python: AbsolutePath
    code: Prose


class LabState(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon keeps, and how many runs its kernel had.

    ``exchange`` is the folder of its messages, ``loaded`` the ``worker`` that the program in the kernel has.
    Times are of CLOCK_MONOTONIC. ``before`` says why the kernel before was given up, ``fault`` why there is
    none now, as the end of a sentence about the lab.
    """

    terms: LabTerms
    pid: int
    exchange: AbsolutePath
    loaded: Prose
    up_at_s: float
    used_at_s: float
    idle_limit_s: float
    runs: int = 0
    before: Prose = ""
    fault: Prose = ""

    @property
    def up_s(self) -> float:
        return time.monotonic() - self.up_at_s

    @property
    def idle_s(self) -> float:
        return time.monotonic() - self.used_at_s


def kernel_of(name: LabKernel) -> boot.Kernel:
    """The kernel of a lab that stays up. RequirementError if it is not there."""
    return kernel.custom_kernel() if name is LabKernel.CUSTOM else ciphers.cached() or boot.debian_kernel()


def terms(name: LabKernel, chosen: boot.Kernel, storage_bytes: int, results: Path) -> LabTerms:
    """What this process would boot."""
    return LabTerms(
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
    """A digest of the files that a daemon and its kernel begin with, and of the system's list of packages."""
    return _digest([*_sources(Path(__file__).resolve().parents[1]), *PACKAGES_INSTALLED])


def worker() -> str:
    """A digest of the other files of the harness and its data, with which the program in the lab works."""
    (_, lab, _, harness, *_), data = Path(__file__).resolve().parents, data_folder()
    files = [file for file in _sources(harness) if not file.is_relative_to(lab)]
    return _digest([*files, *(data / "profiles").rglob("*.*"), *(data / "ipsec").rglob("*.*")])


def _sources(folder: Path) -> list[Path]:
    return [file for ending in ("py", "sh", "c") for file in folder.rglob(f"*.{ending}")]


def _digest(files: Iterable[Path]) -> str:
    """Of the names, sizes and times of those files that are there."""
    stamps = []
    for file in files:
        with contextlib.suppress(OSError):
            found = file.stat()
            stamps.append(f"{file} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(stamps)).encode()).hexdigest()[:16]


DIFFERENCES = {
    "program": "the kernel is {}, not {}",
    "words": "its kernel has {}, not {}",
    "core": "the processor is {}, not {}",
    "results": "the results folder is {}, not {}",
    "python": "the Python is {}, not {}",
    "code": "the harness's boot code or the machine's packages have changed",
}
"""Why a run cannot use a lab with other terms than it needs, as the end of a sentence about the lab."""


def why_not(has: LabTerms, needs: LabTerms) -> str | None:
    """The first of ``DIFFERENCES``, or too little memory; None if a run can use it."""
    for name, words in DIFFERENCES.items():
        if (lab_state := getattr(has, name)) != (wanted := getattr(needs, name)):
            return words.format(lab_state, wanted)
    if has.storage_bytes < needs.storage_bytes:
        room, wanted_room = format_size(has.storage_bytes), format_size(needs.storage_bytes)
        return f"it has memory for {room} of storage, not for {wanted_room}"
    return None


# The side of commands.


def is_up(state: Path) -> bool:
    """Whether a daemon lives."""
    return is_locked(state / LOCK)


def ask(state: Path, *, is_waiting: bool = True) -> LabState | None:
    """What is kept; None if no lab is up. If it is to be used, ``is_waiting`` until its last run has been
    noted, and the harness as it is now has been loaded there. TestbedError if that takes too long."""
    end = time.monotonic() + READY_DEADLINE_S
    wanted = worker() if is_waiting else ""
    while is_up(state) and time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError):
            text = (state / KEPT).read_bytes()
            try:
                lab_state = msgspec.json.decode(text, type=LabState)
            except msgspec.DecodeError as error:
                raise TestbedError(
                    "the persistent lab belongs to another version of the harness",
                    hint="stop it: harness lab stop",
                ) from error
            report = Exchange(Path(lab_state.exchange)).read(WorkerReport)
            is_ready = lab_state.loaded == wanted and report is not None and report.number == lab_state.runs
            if lab_state.fault or is_ready or not is_waiting:
                return lab_state
        time.sleep(POLL_S)
    if is_up(state):
        raise TestbedError(
            f"the persistent lab was not ready within {READY_DEADLINE_S:g} s",
            hint="stop it: harness lab stop",
        )
    return None


def start(state: Path, wanted: LabTerms, idle_s: float = IDLE_S) -> LabState:
    """Start a daemon and wait until its lab is up. Call this while holding the testbed.

    TestbedError if it does not come up.
    """
    log = state / LOG
    log.unlink(missing_ok=True)
    words = msgspec.json.encode(wanted).decode()
    argv = entry_points.command(entry_points.LAB_DAEMON, str(state), words, str(idle_s))
    process = runner.left_running(argv, log)
    try:
        end = time.monotonic() + START_DEADLINE_S
        while process.poll() is None and time.monotonic() < end:
            if (state / KEPT).exists() and (found := ask(state, is_waiting=False)) is not None:
                return found
            time.sleep(POLL_S)
        said = runner.tail(log)
        raise TestbedError(
            f"expected the lab to start, but {said or 'it was not ready in time'}",
            hint="`harness doctor` says what the lab needs",
        )
    except BaseException:
        runner.stop(process)
        tidy(state)
        raise


def stop(state: Path) -> bool:
    """End the daemon, and with it the lab; returns whether there was one. TestbedError if it does not end."""
    if not is_up(state):
        return False
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is None:
            (state / STOP).touch()
        else:
            # Its lock is held, so the process in it lives.
            with contextlib.suppress(OSError, msgspec.DecodeError):
                os.kill(msgspec.json.decode((state / LOCK).read_bytes(), type=Owner).pid, number)
        end = time.monotonic() + STOP_DEADLINE_S
        while time.monotonic() < end:
            if not is_up(state):
                tidy(state)
                return True
            time.sleep(POLL_S)
    raise TestbedError(
        "the lab did not stop: its daemon is still running", hint=f"its process is in {state / LOCK}"
    )


def tidy(state: Path) -> tuple[list[str], list[str]]:
    """Undo what a killed daemon left, by its journal; (removed, not removed). Nothing while it lives."""
    if is_up(state) or not any((state / name).exists() for name in FILES):
        return [], []
    result = Journal(state / JOURNAL).recover()
    for name in FILES:
        if name != JOURNAL:
            (state / name).unlink(missing_ok=True)
    return result


@dataclass
class LabRun:
    """A run in a persistent lab, like the process of one that boots its own (``subprocess.Popen``).

    ``lab_state`` is what was kept when it began.
    """

    state: Path
    lab_state: LabState
    status: int | None = None

    def poll(self) -> int | None:
        if self.status is None:
            exchange = Exchange(Path(self.lab_state.exchange))
            report = exchange.read(WorkerReport)
            if report is not None and report.number > self.lab_state.runs:
                self.status = report.status
            elif not exchange.folder.exists() or not is_up(self.state):
                self.status = 1  # the kernel has ended
        return self.status

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a run in the persistent lab", timeout)
            time.sleep(POLL_S)
        return status


@contextlib.contextmanager
def run(state: Path, folder: Path, lab_state: LabState) -> Iterator[LabRun]:
    """Carry out the plan in ``folder``, which is in the lab's results folder. Leaving the context early ends
    the lab's kernel; the daemon then boots another."""
    with (state / USED).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the daemon holds it for moments, to see whether another does
        Exchange(Path(lab_state.exchange)).put(WorkerOrder(lab_state.runs + 1, folder.name))
        yield LabRun(state, lab_state)
