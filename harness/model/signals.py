"""What ends a command early: Ctrl-C, a closed terminal, a machine that shuts down."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from harness.model.errors import Interrupted

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def unwind() -> None:
    """From now on the first of these signals raises Interrupted, so that everything is taken down.

    Later ones are ignored: they must not stop the unwinding.
    """
    for number in ENDING:
        # A command started by nohup(1) must outlive the terminal.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def ignore() -> None:
    """Ignore these signals from now on: the work is done, and its exit status must not change."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def surely(take_down: Callable[[], object]) -> None:
    """Do what must be completed: if it is interrupted, it is repeated before anything else."""
    try:
        take_down()
    except Interrupted:
        take_down()
        raise


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # Not SIG_IGN: the programs that take things down would inherit it.
    for number in ENDING:
        signal.signal(number, lambda _number, _frame: None)
    raise Interrupted
