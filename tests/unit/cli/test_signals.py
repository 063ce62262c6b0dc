"""What ends a command early, in a process of its own: no traceback, nothing left, and the truth about it."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired

import pytest

from harness.model import signals
from tests.unit.hosts.test_hosts import PATIENCE_S, executable, wait_for
from tests.unit.processes import Process, Server

pytestmark = pytest.mark.thorough

HARNESS = str(Path(sys.executable).with_name("harness"))

COMMAND = """\
import os, sys, time
from pathlib import Path
import harness.cli
from harness.cli import machine
from harness.terminal import console
from harness.hosts import NamespaceHost, state
from harness.hosts.journal import Journal
from harness.testbeds import testbed
from harness.testbeds.lab.boot.scratch import ScratchFolder
place = Path(sys.argv[1])
state.state_folder = lambda: state.own_folder(place / "state")
state.lasting_folder = testbed.lasting_folder = lambda: place / "lasting"
@harness.cli.app.command()
def work(phase: str) -> None:
    with console.holding("a run") as folder:
        journal = Journal(folder / "journal-run.jsonl", lasting=place / "lasting")
        try:
            with journal.hold(NamespaceHost("machine"), ScratchFolder(str(place / "scratch"))):
                (place / "up").touch()
                if phase == "up":
                    time.sleep(60)
        finally:
            journal.end()
sys.argv = ["harness", "work", *sys.argv[2:]]
harness.cli.main()
"""
"""The command line with one command more, which holds a scratch folder. Arguments: where, when to wait."""

SLOW_RM = """\
touch "$PLACE/removing"
while ! test -e "$PLACE/interrupted"; do sleep 0.02; done
{then}
"""
"""Stands for rm(1), which takes a scratch folder away: long enough to be interrupted."""
INTERRUPTED = "harness: interrupted; everything has been taken down\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    return tmp_path


def rm(place: Path, then: str) -> None:
    executable(place / "tools" / "rm", SLOW_RM.format(then=then))


def environment(place: Path) -> dict[str, str]:
    return {"PATH": f"{place / 'tools'}:{os.environ['PATH']}", "PLACE": str(place)}


def started(processes: Server, place: Path, phase: str, errors: int | None = None) -> Process:
    """The command, once it is in that phase."""
    streams = {} if errors is None else {2: errors}
    words, env = (str(place), phase), environment(place)
    command = processes.start(*words, cwd=place, env=env, program=COMMAND, streams=streams)
    appears(place / ("up" if phase == "up" else "removing"))
    return command


def appears(file: Path) -> None:
    wait_for(file.exists, str(file))


def left(place: Path) -> set[str]:
    return {entry.name for entry in place.iterdir()} - {"tools", "up", "removing", "interrupted"}


@pytest.mark.parametrize("phase", ["up", "down"])
@pytest.mark.parametrize("number", signals.ENDING, ids=lambda number: number.name)
def test_whatever_ends_a_command_it_takes_everything_down_and_impatience_changes_nothing(
    place: Path, processes: Server, number: signal.Signals, phase: str
) -> None:
    rm(place, 'exec /bin/rm "$@"')
    with started(processes, place, phase) as command:
        command.send_signal(number)
        if phase == "up":
            appears(place / "removing")
            for impatient in signals.ENDING * 3:
                command.send_signal(impatient)
                time.sleep(0.02)
        (place / "interrupted").touch()
        _, said = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, said) == (130, INTERRUPTED)
    assert left(place) == set(), "no scratch folder, no journal, no lock"


def test_who_was_started_by_nohup_outlives_the_terminal(place: Path) -> None:
    argv = ["nohup", sys.executable, "-c", COMMAND, str(place), "up"]
    env = {**os.environ, **environment(place)}
    with Popen(argv, env=env, stdin=DEVNULL, stdout=PIPE, stderr=PIPE) as command:
        appears(place / "up")
        command.send_signal(signal.SIGHUP)
        with pytest.raises(TimeoutExpired):
            command.wait(0.5)
        command.send_signal(signal.SIGTERM)
        command.communicate(timeout=PATIENCE_S)
    assert left(place) == set()


def test_what_could_not_be_taken_down_is_named_with_what_can(place: Path, processes: Server) -> None:
    rm(place, "echo 'Device or resource busy' >&2; exit 1")
    with started(processes, place, "up") as command:
        command.send_signal(signal.SIGINT)
        (place / "interrupted").touch()
        _, said = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 130
    first, hint = said.splitlines()
    scratch = f"ScratchFolder {place / 'scratch'}"
    assert first == f"harness: interrupted, and not everything could be taken down: {scratch}"
    assert "harness clean" in hint
    assert {"scratch", "lasting"} <= left(place), "its journal too"


def test_a_terminal_that_has_gone_keeps_nothing_up(place: Path, processes: Server) -> None:
    # What is said fails, as on a terminal that was closed.
    with Path("/dev/full").open("wb") as full, started(processes, place, "up", full.fileno()) as command:
        command.send_signal(signal.SIGHUP)
        assert command.wait(PATIENCE_S) == 130
    assert left(place) == set()


@pytest.mark.parametrize("command", [[HARNESS], [sys.executable, "-m", "harness"]], ids=["script", "module"])
def test_an_import_is_interrupted_quietly(tmp_path: Path, command: list[str]) -> None:
    # In place of typer, whose import takes its time.
    mark = tmp_path / "mark"
    slow = f"import pathlib, time\npathlib.Path({str(mark)!r}).touch()\ntime.sleep(30)\n"
    (tmp_path / "typer.py").write_text(slow, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with Popen([*command, "--version"], env=env, stdin=DEVNULL, stdout=PIPE, stderr=PIPE) as process:
        appears(mark)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, b"", b"")
