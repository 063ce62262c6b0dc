"""The daemon of a persistent lab: ``python -m harness.testbeds.lab.persistent.daemon STATE TERMS IDLE_S``.

``persistent`` says what it is for.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

import msgspec

from harness.hosts.journal import Journal
from harness.hosts.state import Owner, is_locked, lasting_folder, locked
from harness.model import signals
from harness.model.errors import HarnessError, Interrupted, TestbedError
from harness.testbeds import entry_points
from harness.testbeds.lab import boot, persistent
from harness.testbeds.lab.exchange import Exchange, Renewal, WorkerOrder, WorkerReport, run_console
from harness.testbeds.lab.persistent import LabState, LabTerms

BOOT_DEADLINE_S = 100.0
"""Less than who starts a daemon waits for it, and some 3 s on a machine that does nothing else."""

LOOK_S = 0.5
"""Time between two looks at the harness's files. Several are edited at a time: it is loaded once they were
the same twice."""

POLL_S = 0.05

LAST_WORDS_BYTES = 16 << 10


class _Stopped(Exception):
    """The lab was stopped, or was idle for too long."""


class _KernelSpoilt(Exception):
    """The kernel may not be what a run expects any more; why."""


class LabDaemon:
    """Keeps a lab up, with its files in the folder ``state``."""

    def __init__(self, state: Path, terms: LabTerms, idle_s: float) -> None:
        now = time.monotonic()
        self._state = state
        self._lab_state = LabState(
            terms=terms,
            pid=os.getpid(),
            exchange="",
            loaded="",
            up_at_s=now,
            used_at_s=now,
            idle_limit_s=idle_s,
        )
        self._looked_at_s = now
        self._seen = ""

    def keep(self) -> None:
        """Keep it up until it is stopped, interrupted, or idle for too long."""
        with locked(self._state / persistent.LOCK) as lock:
            lock.truncate(0)
            owner = Owner(os.getpid(), "harness lab start", time.strftime("%Y-%m-%d %H:%M:%S"))
            lock.write(msgspec.json.encode(owner))
            lock.flush()
            journal = Journal(self._state / persistent.JOURNAL, lasting=lasting_folder())
            try:
                with contextlib.suppress(_Stopped):
                    while True:
                        self._keep_kernel(journal)
            finally:
                signals.ignore()
                journal.end()
                for name in persistent.FILES:
                    if name != persistent.JOURNAL:  # it stays if something could not be undone
                        (self._state / name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    self._state.rmdir()

    def _keep_kernel(self, journal: Journal) -> None:
        """Boot a kernel, and look on until it is spoilt; if it cannot be used at all, until that may have
        changed. TestbedError if there was none before."""
        self._write(loaded=persistent.worker(), runs=0, fault="", is_ready=False)
        try:
            self._boot(journal)
        except _KernelSpoilt as spoilt:
            self._write(before=str(spoilt), is_ready=False)
        except TestbedError as error:
            if not self._lab_state.exchange:
                raise
            self._write(fault=error.message)
            while not self._has_changed():
                self._look()

    def _boot(self, journal: Journal) -> None:
        console = self._state / persistent.CONSOLE
        console.unlink(missing_ok=True)
        terms = self._lab_state.terms
        with boot.booted(
            entry_points.command(entry_points.WORKER, entry_points.EXCHANGE, "0"),
            journal=journal,
            console=console,
            results=Path(terms.results),
            storage_bytes=terms.storage_bytes,
            kernel=persistent.kernel_of(terms.kernel),
            has_exchange=True,
        ) as booted:
            assert booted.exchange is not None  # noqa: S101 -- asked for
            exchange = Exchange(booted.exchange)
            self._await_loaded(booted, exchange)
            now = time.monotonic()
            self._write(exchange=str(booted.exchange), up_at_s=now, used_at_s=now)
            while True:
                self._look()
                # In this order, because a run locks, orders, awaits its report and unlocks.
                order = exchange.read(WorkerOrder)
                is_used = is_locked(self._state / persistent.USED)
                report = exchange.read(WorkerReport)
                if order is None or order.number <= self._lab_state.runs:
                    order = None  # an earlier run's
                if order is not None and report is not None and report.number == order.number:
                    if not is_used:
                        if report.left:
                            raise _KernelSpoilt(f"the run {order.folder} left {', '.join(report.left)}")
                        if report.status:
                            raise _KernelSpoilt(f"the run {order.folder} failed")
                        self._write(runs=report.number, used_at_s=time.monotonic())
                elif booted.process.poll() is not None:
                    if order is None:
                        raise _KernelSpoilt("it ended")
                    # The end of the console is left in the run's, where it would be if the run had booted it.
                    results = Path(self._lab_state.terms.results, order.folder)
                    with contextlib.suppress(OSError), os.fdopen(run_console(results), "ab") as file:
                        file.write(booted.said()[-LAST_WORDS_BYTES:])
                    raise _KernelSpoilt(f"it ended during the run {order.folder}")
                elif order is not None:
                    if not is_used:
                        raise _KernelSpoilt(f"the run {order.folder} was given up")
                    self._lab_state = msgspec.structs.replace(self._lab_state, used_at_s=time.monotonic())
                elif self._has_changed():
                    self._write(loaded=self._seen, is_ready=False)
                    exchange.remove(WorkerReport)
                    exchange.put(Renewal())
                    self._await_loaded(booted, exchange)
                    self._write()

    def _look(self) -> None:
        """Wait a moment. _End if nobody wants the lab any more."""
        time.sleep(POLL_S)
        if (self._state / persistent.STOP).exists() or self._lab_state.idle_s > self._lab_state.idle_limit_s:
            raise _Stopped

    def _has_changed(self) -> bool:
        """Whether the harness is to be loaded: it has changed, and no longer does."""
        if time.monotonic() - self._looked_at_s < LOOK_S:
            return False
        self._looked_at_s = time.monotonic()
        before, self._seen = self._seen, persistent.worker()
        return self._seen not in (self._lab_state.loaded, *([] if before == self._seen else [self._seen]))

    def _await_loaded(self, booted: boot.Lab, exchange: Exchange) -> None:
        """Wait until the program in the kernel has loaded the harness."""
        end = time.monotonic() + BOOT_DEADLINE_S
        while exchange.read(WorkerReport) is None:
            if booted.process.poll() is not None or time.monotonic() > end:
                raise TestbedError(f"the lab did not start: {booted.last_words()}")
            time.sleep(POLL_S)

    def _write(self, *, is_ready: bool = True, **changes: object) -> None:
        """Let commands know what is kept now; nothing while it is not ready for them."""
        self._lab_state = msgspec.structs.replace(self._lab_state, **changes)
        file = self._state / persistent.KEPT
        if is_ready:
            new = self._state / persistent.NEW
            new.write_bytes(msgspec.json.encode(self._lab_state))
            new.rename(file)
        else:
            file.unlink(missing_ok=True)


def main(argv: list[str]) -> int:
    """``STATE TERMS IDLE_S``: the state folder, the terms in JSON, and how long it may be idle."""
    signals.unwind()
    state, terms, idle_s = argv
    try:
        LabDaemon(Path(state), msgspec.json.decode(terms, type=LabTerms), float(idle_s)).keep()
    except HarnessError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Interrupted:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
