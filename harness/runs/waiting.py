"""The program that waits in a standing lab for runs: ``python -m harness.runs.waiting FOLDER``.

The lab's keeper tells it, through files in ``FOLDER``, what to carry out. Each run has a process of its own
with mounts of its own, forked from this one, which has imported everything: that takes longer in the lab than
the lab takes to boot.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from harness.hosts import signals
from harness.runs import inside
from harness.storage import transports
from harness.testbeds.lab.standing.exchange import Exchange, Order, Report
from harness.testbeds.started import JOURNAL, RESULTS, WAITING, command

CLONE_NEWNS = 0x20000
"""Of unshare(2); Python has a function for it since 3.12."""

POLL_S = 0.02

LISTS = (
    "/sys/class/net",
    "/sys/block",
    "/dev/mapper",
    *transports.LISTS,
)
"""Folders that list what a run brings up in a kernel."""


def things(proc: Path = Path("/proc")) -> set[str]:
    """What is in this kernel that a run could leave: processes, devices, sessions, targets, mounts."""
    found = {f"{folder}/{name}" for folder in LISTS if Path(folder).is_dir() for name in os.listdir(folder)}  # noqa: PTH208
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


def carry_out(order: Order) -> int:
    """Carry out a run in a process of its own; its exit status, or 128 and the signal that ended it."""
    child = os.fork()
    if child:
        _, ended = os.waitpid(child, 0)
        status = os.waitstatus_to_exitcode(ended)
        return status if status >= 0 else 128 - status
    status = 1
    try:
        status = _run(Path(RESULTS, order.folder))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run(folder: Path) -> int:
    # What it prints belongs to its own run. Not through a link that lies there.
    console = os.open(folder / "console.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    os.dup2(console, 1)
    os.dup2(console, 2)
    os.close(console)
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    signals.unwind()
    return inside.run(str(folder), JOURNAL)


def begin_anew(argv: list[str]) -> NoReturn:
    """Have this process load the code that the machine has now."""
    # An overlay keeps what it has seen of the files below it.
    Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    sys.stdout.flush()
    os.execv(sys.executable, command(WAITING, *argv))  # noqa: S606


def main(argv: list[str]) -> int:
    """``FOLDER``: carry out one order after another, until this kernel is ended."""
    exchange = Exchange(Path(argv[0]))
    before = things()
    exchange.put(Report(0))
    while True:
        if (order := exchange.take(Order)) is None:
            time.sleep(POLL_S)
            continue
        if not order.number:
            begin_anew(argv)
        status = carry_out(order)
        exchange.put(Report(order.number, status, tuple(sorted(things() - before))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
