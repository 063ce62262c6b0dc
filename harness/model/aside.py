"""Work for another processor, while this one goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import current_process, get_context
from multiprocessing.connection import Connection
from typing import Generic, TypeVar, cast

Found = TypeVar("Found")


class Later(Generic[Found]):
    """``work`` in a copy of this process, made while it has no threads; it begins when it is told.

    The copy does ``ahead`` at once. There is none without Linux, with one processor, and with threads.
    """

    def __init__(self, work: Callable[[], Found], ahead: Callable[[], object] = lambda: None) -> None:
        self._here: Connection | None = None
        # Windows has no fork and macOS one that is not safe; neither has this call.
        if not hasattr(os, "sched_getaffinity"):
            return
        if len(os.sched_getaffinity(0)) < 2 or threading.active_count() > 1 or current_process().daemon:
            return
        context = get_context("fork")
        here, there = context.Pipe()
        self._helper = context.Process(target=_wait, args=(work, ahead, here, there), daemon=True)
        try:
            self._helper.start()
        except OSError:
            here.close()
        else:
            self._here = here
        there.close()

    def begin(self) -> None:
        """Let the work begin; nothing happens if there is no copy."""
        if self._here is not None:
            with contextlib.suppress(OSError):
                self._here.send(None)

    def result(self) -> tuple[Found] | None:
        """What the copy found, once; None if there is none, or if its work failed. It must have begun."""
        here, self._here = self._here, None
        if here is None:
            return None
        try:
            return (cast(Found, here.recv()),)
        except (EOFError, OSError):
            return None
        finally:
            here.close()
            self._helper.join()

    def close(self) -> None:
        """End the copy, whatever it does."""
        if self._here is not None:
            self._here.close()
            self._here = None
            self._helper.kill()
            self._helper.join()


def _wait(
    work: Callable[[], object], ahead: Callable[[], object], here: Connection, there: Connection
) -> None:
    here.close()  # the other one's end, so that this one sees when that ends
    # An interrupt is the other one's to handle, and so is an error.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        ahead()
        there.recv()
        there.send(work())
    except Exception:
        os._exit(1)
