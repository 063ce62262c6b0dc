"""Work on another processor: its result comes back, and nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.hosts.runner import await_condition
from harness.model.aside import Later


def test_one_processor_makes_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    later = Later(os.getpid)
    later.begin()
    assert later.result() is None


# A process of its own: that of the tests may have threads.
LATER = """
import os, sys, time
from pathlib import Path
from harness.model.aside import Later
os.sched_getaffinity = lambda _: {0, 1}
said = Path(sys.argv[1])

def work():
    return said.read_text()

later, dropped = Later(work), Later(work)
said.write_text("written since")
later.begin()
print(later.result(), later.result())
large = Later(lambda: ["x" * 100] * 100_000)
large.begin()
print(len(large.result()[0]))
helper = dropped._helper
dropped.close()
print(helper.is_alive())
failing = Later(lambda: 1 / 0)
failing.begin()
print(failing.result())
unused = Later(work)
print(unused._helper.pid)
sys.stdout.flush()
os._exit(0)  # as if killed
"""


def test_work_begins_when_it_is_told_and_its_copy_does_not_outlive_this_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATER, str(tmp_path / "said")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    *said, unused = done.stdout.splitlines()
    assert said == ["('written since',) None", "100000", "False", "None"]
    assert done.stderr == ""
    await_condition(lambda: not Path("/proc", unused).exists(), deadline_s=60, what="the copy's end")


def test_with_threads_there_is_nothing_later() -> None:
    ready = threading.Event()
    waiting = threading.Thread(target=ready.wait)
    waiting.start()
    try:
        later = Later(os.getpid)
        later.begin()
        assert later.result() is None
        later.close()
    finally:
        ready.set()
        waiting.join()
