"""Work for another processor, while this one goes on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar, cast

Found = TypeVar("Found")


def aside(work: Callable[[], Found]) -> Callable[[], Found]:
    """Begins ``work`` in a copy of this process; what is returned waits for its result.

    With one processor, with threads (which a copy does not have), and if the copy fails, the work is done
    here, when its result is asked for; then its errors are raised there.
    """
    if len(os.sched_getaffinity(0)) < 2 or threading.active_count() > 1:
        return work
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    helper = context.Process(target=_send, args=(work, sender), daemon=True)
    try:
        helper.start()
    except OSError:
        return work
    sender.close()

    def result() -> Found:
        try:
            return cast(Found, receiver.recv())
        except EOFError:
            return work()
        finally:
            receiver.close()
            helper.join()

    return result


def _send(work: Callable[[], Found], sender: Connection) -> None:
    # An interrupt is the other one's to handle, and so is an error.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sender.send(work())
    except Exception:
        os._exit(1)
