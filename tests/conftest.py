"""What all tests have in common."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.lanes import recorder


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.register(recorder)
    recorder.add_options(parser)


def pytest_configure() -> None:
    """Have a process be as usual, and with it every command that a test starts."""
    # Whoever runs this under nohup(1) has some of what ends a command ignored.
    for number, usual in (
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    # Where this is set, every command that a test starts would compile a hundred modules anew, for 0.3 s.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
