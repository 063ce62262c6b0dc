"""The keeper of a standing lab: ``python -m harness.testbeds.lab.standing.keeper STATE TERMS IDLE_S``.

``standing`` says what it is for. It serves one connection at a time.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from harness.hosts import signals
from harness.hosts.journal import Journal
from harness.hosts.state import Owner, lasting_folder, locked
from harness.model.errors import HarnessError, Interrupted, TestbedError
from harness.testbeds import started
from harness.testbeds.lab import boot, standing
from harness.testbeds.lab.exchange import Exchange, Order, Report
from harness.testbeds.lab.standing import Answer, Ask, Line, Terms, edits

BOOT_DEADLINE_S = 100.0
"""Less than who starts a keeper waits for it, and some 3 s on a machine that does nothing else."""

LOOK_S = 1.0
"""Time between two looks at whether an idle kernel still lives."""


SETTLE_S = 0.1
"""Files are edited several at a time: the harness is loaded once no other was for so long."""

LAST_WORDS_BYTES = 16 << 10


class _End(Exception):
    """The lab was stopped, or was idle for too long."""


class _Spoilt(Exception):
    """The kernel may not be what a run expects any more; why."""


class Keeper:
    """Keeps a lab up, with its files in the folder ``state``."""

    def __init__(self, state: Path, terms: Terms, idle_s: float) -> None:
        self._state, self._terms, self._idle_s = state, terms, idle_s
        self._began_s = self._used_s = time.monotonic()
        self._runs = 0
        self._before = ""
        self._files: dict[str, str] = {}
        self._is_broken = False
        self._listener = socket.socket(socket.AF_UNIX)

    def keep(self) -> None:
        """Keep it up until it is stopped, interrupted, or idle for too long."""
        with locked(self._state / standing.LOCK) as lock, self._listener:
            lock.truncate(0)
            owner = Owner(os.getpid(), "harness lab start", time.strftime("%Y-%m-%d %H:%M:%S"))
            lock.write(msgspec.json.encode(owner))
            lock.flush()
            journal = Journal(self._state / standing.JOURNAL, lasting=lasting_folder())
            try:
                with contextlib.suppress(_End):
                    while True:
                        try:
                            self._keep_kernel(journal)
                        except _Spoilt as spoilt:
                            self._before = str(spoilt)
            finally:
                signals.ignore()
                journal.end()
                for name in standing.FILES:
                    if name != standing.JOURNAL:  # it stays if something could not be undone
                        (self._state / name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    self._state.rmdir()

    def _keep_kernel(self, journal: Journal) -> None:
        """Boot a kernel, and serve commands until it is spoilt or no longer wanted."""
        console = self._state / standing.CONSOLE
        console.unlink(missing_ok=True)
        self._files = standing.of_worker()
        folders = {Path(name).parent for name in self._files}
        with (
            edits.noticed(folders) as edited,
            boot.booted(
                started.command(started.WAITING, started.EXCHANGE),
                journal=journal,
                console=console,
                results=Path(self._terms.results),
                storage_bytes=self._terms.storage_bytes,
                kernel=standing.kernel_of(self._terms.kernel),
                has_exchange=True,
            ) as booted,
        ):
            assert booted.exchange is not None  # noqa: S101 -- asked for
            exchange = Exchange(booted.exchange)
            self._await_loaded(booted, exchange)
            self._began_s, self._runs = time.monotonic(), 0
            self._listen()
            while True:
                self._serve_next(booted, exchange, edited)

    def _listen(self) -> None:
        """Let commands in, from the first kernel on; they wait while another boots."""
        if not (self._state / standing.SOCKET).exists():
            with standing.near(self._state) as near:
                self._listener.bind(f"{near}/{standing.NEW_SOCKET}")
            self._listener.listen()
            (self._state / standing.NEW_SOCKET).rename(self._state / standing.SOCKET)

    def _await_loaded(self, booted: boot.Lab, exchange: Exchange) -> None:
        """Wait until the program in the kernel has loaded the harness, or has found that it cannot."""
        end = time.monotonic() + BOOT_DEADLINE_S
        while (report := exchange.take(Report)) is None or report.number:
            if booted.process.poll() is not None or time.monotonic() > end:
                raise TestbedError(f"the lab did not come up: {booted.last_words()}")
            time.sleep(standing.POLL_S)
        self._is_broken = report.status != 0

    def _serve_next(self, booted: boot.Lab, exchange: Exchange, edited: int | None) -> None:
        listener = self._listener.fileno()
        watched = [listener, *([] if edited is None else [edited])]
        settling = False
        while listener not in (ready := select.select(watched, [], [], SETTLE_S if settling else LOOK_S)[0]):
            if ready and edited is not None:
                edits.forget(edited)
            elif settling:
                self._renew(booted, exchange)
            settling = bool(ready)
            if booted.process.poll() is not None:
                raise _Spoilt("it ended")
            if time.monotonic() - self._used_s > self._idle_s:
                raise _End
        self._serve(lambda line, asked: self._run(line, booted, exchange, asked))

    def _serve(self, run: Callable[[Line, Ask], None]) -> None:
        connection, _ = self._listener.accept()
        with connection:
            line = Line(connection)
            # Whoever says nothing, or goes away, must not stop the others.
            with contextlib.suppress(TestbedError, msgspec.DecodeError):
                asked = line.receive(standing.QUESTION_DEADLINE_S, Ask)
                match asked.what:
                    case "stop":
                        raise _End
                    case "status":
                        line.send(self._answer())
                    case "run":
                        run(line, asked)

    def _renew(self, booted: boot.Lab, exchange: Exchange) -> None:
        """Have the program in the kernel go on with the harness as it is now, if that has changed."""
        had, self._files = self._files, standing.of_worker()
        changed = {name for name, _ in had.items() ^ self._files.items()}
        if not changed:
            return
        exchange.put(Order(0, files={name: _content(name) for name in sorted(changed)}))
        try:
            self._await_loaded(booted, exchange)
        except TestbedError as error:
            raise _Spoilt("the harness as it was changed could not be loaded") from error

    def _run(self, line: Line, booted: boot.Lab, exchange: Exchange, asked: Ask) -> None:
        """Have a run carried out. The kernel is spoilt by one that fails, leaves something or is given up."""
        folder = asked.folder
        line.send(self._answer())
        try:
            self._renew(booted, exchange)
        except _Spoilt:
            self._tell_last_words(booted, folder)
            raise
        if self._is_broken:
            self._tell_last_words(booted, folder)
            line.send(self._answer(1))
            return
        self._runs += 1
        exchange.put(Order(self._runs, folder))
        try:
            while (report := exchange.take(Report)) is None:
                if booted.process.poll() is not None:
                    self._tell_last_words(booted, folder)
                    raise _Spoilt(f"it ended in the run {folder}")
                if line.has_ended():
                    raise _Spoilt(f"the run {folder} was given up")
                if select.select([self._listener], [], [], standing.POLL_S)[0]:
                    self._serve(lambda _line, _folder: None)  # runs take turns: a second one is an error
        finally:
            self._used_s = time.monotonic()
        with contextlib.suppress(TestbedError):
            line.send(self._answer(report.status))
        if report.left:
            raise _Spoilt(f"the run {folder} left {', '.join(report.left)}")
        if report.status:
            raise _Spoilt(f"the run {folder} failed")

    def _tell_last_words(self, booted: boot.Lab, folder: str) -> None:
        """Leave the end of the kernel's console in the run's, where it would be if the run had booted it."""
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            console = os.open(Path(self._terms.results, folder, "console.log"), flags, 0o644)
            with os.fdopen(console, "ab") as file:
                file.write(booted.said()[-LAST_WORDS_BYTES:])

    def _answer(self, status: int | None = None) -> Answer:
        now = time.monotonic()
        return Answer(
            terms=self._terms,
            pid=os.getpid(),
            up_s=now - self._began_s,
            idle_s=now - self._used_s,
            idle_limit_s=self._idle_s,
            runs=self._runs,
            before=self._before,
            status=status,
        )


def _content(name: str) -> bytes | None:
    try:
        return Path(name).read_bytes()
    except FileNotFoundError:
        return None


def main(argv: list[str]) -> int:
    """``STATE TERMS IDLE_S``: the state folder, the terms in JSON, and how long it may be idle."""
    signals.unwind()
    state, terms, idle_s = argv
    try:
        Keeper(Path(state), msgspec.json.decode(terms, type=Terms), float(idle_s)).keep()
    except HarnessError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Interrupted:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
