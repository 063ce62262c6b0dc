"""The worker in a persistent lab, which waits for runs: ``python -m harness.runs.worker FOLDER RUNS``.

It finds its orders as files in ``FOLDER``, and has carried out ``RUNS`` before. Each run has a process of its
own with mounts of its own, forked from this one, which has imported everything: that takes longer in the lab
than the lab takes to boot. It is forked before there is a run, and does ahead what each one does.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from harness.model import signals
from harness.model.errors import Interrupted
from harness.protection import kinds
from harness.runs import executor
from harness.storage import transports
from harness.testbeds.entry_points import JOURNAL, RESULTS, WORKER, command
from harness.testbeds.lab.exchange import Exchange, Renewal, WorkerOrder, WorkerReport, run_console

RENEWED = 75
"""The exit status of a process that was told to reload instead of running something."""

CLONE_NEWNS = 0x20000
"""Of unshare(2); Python has a function for it since 3.12."""

POLL_S = 0.02

CACHES = Path("/proc/sys/vm/drop_caches")
"""proc(5). The overlay over the machine's files keeps what it has seen of them."""

LISTS = ("/sys/class/net", "/sys/block", "/dev/mapper")
"""Folders that list what a run brings up in a kernel, besides those of transports."""


def things(proc: Path = Path("/proc")) -> set[str]:
    """What is in this kernel that a run could leave: processes, devices, sessions, targets, mounts."""
    lists = (*LISTS, *(folder for each in transports.every() for folder in each.lists))
    found = {f"{folder}/{name}" for folder in lists if Path(folder).is_dir() for name in os.listdir(folder)}  # noqa: PTH208
    found |= set(Path(proc, "self/mounts").read_text(encoding="utf-8", errors="replace").splitlines())
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            try:
                words = Path(entry, "cmdline").read_bytes()
            except OSError:
                continue  # it has ended
            if words:  # a thread of the kernel has none
                found.add(f"process {entry.name}: {words.replace(bytes(1), b' ').decode(errors='replace')}")
    return found


def carry_out(exchange: Exchange, number: int) -> int:
    """Carry out the ``number``-th run in a process of its own; its exit status, or 128 and the signal that
    ended it."""
    child = os.fork()
    if not child:
        _in_child(exchange, number)
    _, ended = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(ended)
    return status if status >= 0 else 128 - status


def _in_child(exchange: Exchange, number: int) -> NoReturn:
    status = 1
    try:
        signals.unwind()
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        executor.get_ready()
        folder = _next_folder(exchange, number)
        if folder is None:
            status = RENEWED
        else:
            console = run_console(folder)  # what it prints belongs to its own run
            os.dup2(console, 1)
            os.dup2(console, 2)
            os.close(console)
            status = executor.run(str(folder), JOURNAL)
    except Interrupted:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _next_folder(exchange: Exchange, number: int) -> Path | None:
    """The folder of the run of that number, once it is ordered; None if a renewal is."""
    while exchange.read(Renewal) is None:
        if (order := exchange.read(WorkerOrder)) is not None and order.number == number:
            return Path(RESULTS, order.folder)
        time.sleep(POLL_S)
    return None


def main(argv: list[str]) -> NoReturn:
    """``FOLDER RUNS``."""
    exchange, runs = Exchange(Path(argv[0])), int(argv[1])
    before = things()
    kinds.every()  # imported once, and not by each run
    # The collector would look at every object, and in the lab each page that a child touches takes its time.
    gc.freeze()
    exchange.put(WorkerReport(runs))
    while (status := carry_out(exchange, runs + 1)) != RENEWED:
        runs += 1
        exchange.put(WorkerReport(runs, status, tuple(sorted(things() - before))))
    exchange.remove(Renewal)
    CACHES.write_text("3")
    os.execv(sys.executable, command(WORKER, argv[0], str(runs)))  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
