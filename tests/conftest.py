"""What all tests have in common."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Have what ends a command end it here as well: whoever runs this under nohup(1) has some of it ignored,
    and so would every command that a test starts."""
    for number, usual in (
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
