"""What ends a command early: Ctrl-C, a terminal that is closed, a machine that shuts down."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from harness.model.errors import Interrupted

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def unwind() -> None:
    """From now on the first of these signals raises Interrupted, so that everything is taken down.

    Those that follow are passed over: they must not stop the unwinding.
    """
    for number in ENDING:
        # Who was started by nohup(1) is to outlive the terminal.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def ignore() -> None:
    """From now on none of them does anything: the work is done, and its status stays what it is."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def surely(take_down: Callable[[], object]) -> None:
    """Do what must not be left halfway: if it is interrupted, it is done again before all else."""
    try:
        take_down()
    except Interrupted:
        take_down()
        raise


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # Not SIG_IGN, which the programs that take things down would inherit.
    for number in ENDING:
        signal.signal(number, lambda _number, _frame: None)
    raise Interrupted
