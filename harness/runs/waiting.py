"""The program that waits in a standing lab for runs: ``python -m harness.runs.waiting FOLDER``.

The lab's keeper tells it, through files in ``FOLDER``, what to carry out. Each run has a process of its own
with mounts of its own, forked from this one, which has imported everything: that takes longer in the lab than
the lab takes to boot. It is forked before there is a run, and does ahead what each one does.

It imports in stages, and a process remains of each. When code has changed, the last one that has not loaded
any of it goes on from there.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from harness.testbeds.lab.exchange import Exchange, Order, Report
from harness.testbeds.started import JOURNAL, RESULTS, WAITING, command

CHANGED, BROKEN = 75, 76
"""The exit status of a process that has loaded something that has changed since, or that cannot be loaded."""

CLONE_NEWNS = 0x20000
"""Of unshare(2); Python has a function for it since 3.12."""

POLL_S = 0.02

PATH_MAX = 4096

LISTS = ("/sys/class/net", "/sys/block", "/dev/mapper")
"""Folders that list what a run brings up in a kernel, besides those of transports."""


def _results() -> object:
    from harness.results import store

    return store


def _protections() -> object:
    from harness.protection import kinds

    return kinds


def _measuring() -> object:
    from harness.runs import alongside, measure

    return alongside, measure


def _runs() -> object:
    from harness.runs import inside

    return inside


STAGES: tuple[Callable[[], object], ...] = (_results, _protections, _measuring, _runs)
"""Each imports something, and all that it needs in turn."""


def things(proc: Path = Path("/proc")) -> set[str]:
    """What is in this kernel that a run could leave: processes, devices, sessions, targets, mounts."""
    from harness.storage import transports  # in its stage

    lists = (*LISTS, *transports.LISTS)
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


def _await_end(child: int) -> int:
    _, ended = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(ended)
    return status if status >= 0 else 128 - status


def _exit(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class Ready:
    """A process for the next run. Until it is told which, it does ahead what is the same in each."""

    def __init__(self) -> None:
        here, self._there = os.pipe()
        self._child = os.fork()
        if not self._child:
            os.close(self._there)
            _in_child(here)
        os.close(here)

    def carry_out(self, folder: str) -> int:
        """Let it carry out the run in this folder of the results; its exit status, or 128 and the signal that
        ended it."""
        with contextlib.suppress(BrokenPipeError):  # its status says that it has ended
            os.write(self._there, folder.encode())
        os.close(self._there)
        return _await_end(self._child)

    def end(self) -> None:
        """End it without a run."""
        os.kill(self._child, signal.SIGTERM)
        os.close(self._there)
        _await_end(self._child)


def _in_child(told: int) -> NoReturn:
    from harness.hosts import end_kept, signals
    from harness.model.errors import Interrupted
    from harness.runs import inside

    status = 1
    try:
        signals.unwind()
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        inside.get_ready(lambda: bool(select.select([told], [], [], 0)[0]))
        folder = Path(RESULTS, os.read(told, PATH_MAX).decode())
        # What it prints belongs to its own run. Not through a link that lies there.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        console = os.open(folder / "console.log", flags, 0o644)
        os.dup2(console, 1)
        os.dup2(console, 2)
        os.close(console)
        status = inside.run(str(folder), JOURNAL)
    except Interrupted:
        end_kept()
    except BaseException:
        traceback.print_exc()
    finally:
        _exit(status)


def loaded() -> dict[str, int]:
    """The files of the harness's modules that this process has loaded, and when each was changed last."""
    files = [
        file
        for name, module in sys.modules.items()
        if name.partition(".")[0] in ("harness", "__main__") and (file := getattr(module, "__file__", None))
    ]
    return {file: os.stat(file).st_mtime_ns if os.path.exists(file) else 0 for file in files}  # noqa: PTH110, PTH116


def remain(exchange: Exchange, give_way: Callable[[], NoReturn]) -> None:
    """Return in a child. This process remains as it is, and has another child if something has changed that
    only the child had loaded; if it had loaded that itself, it gives way."""
    has = loaded()
    # The collector would look at every object, and in the lab each page that a child touches takes its time.
    gc.freeze()
    while child := os.fork():
        if (status := _await_end(child)) not in (CHANGED, BROKEN):
            _exit(status)
        if status == BROKEN:
            exchange.put(Report(0, status))
            take_over(next_order(exchange).files)
        if loaded() != has:
            give_way()
    importlib.invalidate_caches()


def take_over(files: Mapping[str, bytes | None]) -> None:
    """Let this kernel have files of the machine's as they are now."""
    for name, content in files.items():
        if content is None:
            Path(name).unlink(missing_ok=True)
        else:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(content)


def next_order(exchange: Exchange) -> Order:
    while (order := exchange.take(Order)) is None:
        time.sleep(POLL_S)
    return order


def wait(exchange: Exchange) -> NoReturn:
    """Carry out one order after another, until this kernel is ended or code has changed that is loaded."""
    has, before = loaded(), things()
    gc.freeze()
    exchange.put(Report(0))
    ready = Ready()
    while True:
        if (order := next_order(exchange)).number:
            status = ready.carry_out(order.folder)
            exchange.put(Report(order.number, status, tuple(sorted(things() - before))))
        else:
            ready.end()
            take_over(order.files)
            if loaded() != has:
                _exit(CHANGED)
            exchange.put(Report(0))
        ready = Ready()


def main(argv: list[str]) -> NoReturn:
    """``FOLDER``."""

    def begin_anew() -> NoReturn:
        sys.stdout.flush()
        os.execv(sys.executable, command(WAITING, *argv))  # noqa: S606

    exchange = Exchange(Path(argv[0]))
    give_way: Callable[[], NoReturn] = begin_anew
    for stage in STAGES:
        remain(exchange, give_way)
        give_way = functools.partial(_exit, CHANGED)
        try:
            stage()
        except Exception:
            traceback.print_exc()
            _exit(BROKEN)
    wait(exchange)


if __name__ == "__main__":
    main(sys.argv[1:])
