"""A command run in this process is like one run in its own, and leaves no trace in this one."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

import harness.cli
from harness.model.signals import ENDING
from harness.terminal import streams
from tests.unit import command
from tests.unit.processes import Server
from tests.unit.results_folder import run_of_a_cell

pytestmark = pytest.mark.thorough

Given = Callable[[Callable[[], Any]], None]
HARNESS = str(Path(sys.executable).with_name("harness"))


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """Have the command line do something else."""
    return lambda work: monkeypatch.setattr(harness.cli, "app", lambda **_: work())


def by_words(*lines: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("words", [line.split() for line in lines], ids=" ".join)


@by_words(
    *("--version", "--help", "run --help", "run --no-such-option", "run --link wierd", "table results"),
    *("table nowhere", "explain results --format json", "export results -o /dev/stdout", "clean -x"),
)
def test_it_says_what_a_process_says(tmp_path: Path, processes: Server, words: list[str]) -> None:
    run_of_a_cell(tmp_path / "results")
    process = processes.run(*words, cwd=tmp_path)
    for _ in range(2):
        done = command.harness(*words, cwd=tmp_path)
        assert said(done) == said(process)


@by_words("--help", "run --no-such-option", "table results")
def test_a_forked_process_is_like_a_started_one(tmp_path: Path, processes: Server, words: list[str]) -> None:
    run_of_a_cell(tmp_path / "results")
    argv = ["env", "TERM=dumb", f"COLUMNS={command.COLUMNS}", HARNESS, *words]
    nothing = subprocess.DEVNULL
    started = subprocess.run(argv, cwd=tmp_path, stdin=nothing, capture_output=True, text=True, check=False)
    assert said(processes.run(*words, cwd=tmp_path)) == said(started)


def said(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    return done.returncode, done.stdout, done.stderr


def state() -> dict[str, Any]:
    umask = os.umask(0)
    os.umask(umask)
    return {
        "folder": Path.cwd(),
        "environment": dict(os.environ),
        "arguments": sys.argv,
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "files": [os.fstat(number).st_ino for number in range(3)],
        "handlers": [signal.getsignal(number) for number in (*ENDING, signal.SIGALRM)],
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "hook": sys.excepthook,
        "temporary files": tempfile.gettempdir(),
        "umask": umask,
    }


def test_nothing_of_it_stays(tmp_path: Path, given: Given) -> None:
    def work() -> None:
        os.chdir("/")
        os.umask(0o777)
        os.environ["NEW"] = "x"
        del os.environ["PATH"]
        sys.excepthook = sys.__excepthook__
        tempfile.tempdir = "/"
        streams.silence(sys.stdout)

    before = state()
    assert command.harness("table", "nowhere", cwd=tmp_path).returncode == 2
    assert state() == before
    given(work)
    assert command.harness(cwd=tmp_path).returncode == 0
    assert state() == before
    given(lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # it is one of the tests, too
        command.harness(cwd=tmp_path)
    assert state() == before


def test_nothing_is_remembered(tmp_path: Path, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    remembered = functools.cache(lambda: calls.append(1))
    module = ModuleType("harness.remembering")
    monkeypatch.setattr(module, "remembered", remembered, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    given(lambda: [remembered(), remembered()])
    for _ in range(2):
        command.harness(cwd=tmp_path)
    assert len(calls) == 2


def test_what_it_starts_and_what_nobody_catches_has_the_same_streams(tmp_path: Path, given: Given) -> None:
    given(lambda: subprocess.run(["sh", "-c", "cat; pwd; echo wrong >&2"], check=True))
    done = command.harness(cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path}\n", "wrong\n")
    given(lambda: os.environ["ABSENT"])
    done = command.harness(cwd=tmp_path)
    assert done.returncode == 1 and re.search("Traceback(.|\n)*KeyError: 'ABSENT'", done.stderr), done


def test_what_it_leaves_open_is_reported(tmp_path: Path, given: Given) -> None:
    opened: list[int] = []
    given(lambda: opened.append(os.open(os.devnull, os.O_RDONLY)))
    with pytest.raises(AssertionError, match="the next command would have them open"):
        command.harness(cwd=tmp_path)
    os.close(opened[0])
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    given(thread.start)
    with pytest.raises(AssertionError, match="a process would have waited"):
        command.harness(cwd=tmp_path)
    go_on.set()
    thread.join()


def test_what_takes_too_long_is_ended(tmp_path: Path, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PATIENCE_S", 0.05)
    given(lambda: time.sleep(30))
    with pytest.raises(pytest.fail.Exception, match=r"harness table did not end within 0\.05 s"):
        command.harness("table", cwd=tmp_path)


@pytest.mark.parametrize("name", harness.cli.COMMANDS)
def test_the_overview_says_of_a_command_what_its_own_help_begins_with(name: str) -> None:
    overview: Any = typer.main.get_command(harness.cli.app)
    command = overview.commands[name]
    assert command.get_short_help_str() == command.real.get_short_help_str() != ""


def test_the_overview_imports_no_command() -> None:
    argv = [sys.executable, "-X", "importtime", "-m", "harness", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "Measure each workload" in done.stdout
    assert set(re.findall(r"\| +harness\.(\w+)", done.stderr)) == {
        "cli",
        "model",
        "questions",
        "terminal",
        "version",
    }


COUNTED = """
import atexit, sys
names = lambda: [name for name in sys.modules if name.partition(".")[0] == "harness"]
atexit.register(lambda: print(len(names()), file=sys.stderr))
"""


def test_a_module_is_imported_where_it_is_used(tmp_path: Path) -> None:
    results = Path(__file__).parents[2] / "docs" / "figures" / "make-run"
    command = "from harness.__main__ import main; main()"
    for most, program, *words in (
        (70, command, "table", str(results)),
        (117, "import harness.runs.executor"),
        (111, command, "run", "--plan"),
    ):
        argv = [sys.executable, "-c", COUNTED + program, *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert int(done.stderr) <= most, words or program
