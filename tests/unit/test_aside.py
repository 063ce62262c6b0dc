"""Work on another processor: its result comes back, and its errors do not get lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from harness.report.aside import aside

# A process of its own: that of the tests may have threads.
CODE = """
import os
from harness.report.aside import aside
os.sched_getaffinity = lambda _: {0, 1}

def fails():
    raise ValueError(f"in {os.getpid()}")

large = aside(lambda: ["x" * 100] * 100_000)
elsewhere = aside(os.getpid)
failing = aside(fails)
print(len(large()), elsewhere() != os.getpid())
try:
    failing()
except ValueError as error:
    print(str(error) == f"in {os.getpid()}")
"""


def test_results_come_back_and_errors_are_raised_where_they_are_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("100000 True\nTrue\n", "")


def test_a_process_with_threads_does_the_work_itself() -> None:
    ready = threading.Event()
    waiting = threading.Thread(target=ready.wait)
    waiting.start()
    try:
        assert aside(os.getpid)() == os.getpid()
    finally:
        ready.set()
        waiting.join()


def test_one_processor_does_the_work_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert aside(os.getpid)() == os.getpid()
