"""A lab that stays up between commands: runs in it, what spoils it, and what is left once it has ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.hosts.state import state_folder
from harness.runs import executor
from harness.testbeds.lab import persistent
from tests.lab.cli import (
    Measured,
    alive,
    descendants,
    harness,
    harness_once,
    measure,
    running,
    wait_for,
    well,
)
from tests.lab.test_interruption import scratch_folders

pytestmark = pytest.mark.lab

SHORT = ("--link=wired", "--ipsec=off", "--size=32M", "--workload=rand-read-4k")
GONE_WITHIN_S = 20.0


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Path]:
    """The results folder of a lab that is up; it is ended afterwards."""
    folder = tmp_path / "results"
    before = scratch_folders()
    well(harness("lab", "start", "--results", str(folder), "--memory", "64"))
    yield folder
    harness("lab", "stop")
    assert scratch_folders() <= before


def up() -> persistent.LabState:
    """What is kept up."""
    found = persistent.ask(state_folder())
    assert found is not None
    return found


def run_in(results: Path, name: str, *words: str) -> Measured:
    """A short run; its folder is moved out, so that each is the only one there."""
    measured = measure(results, *SHORT, *words)
    measured.folder.rename(results.parent / name)
    return Measured(done=measured.done, folder=results.parent / name)


def facts(run: Measured) -> Any:
    """What the run's environment has about a lab that was up before."""
    return run.environment["machine"].get("persistent_lab")


def test_two_runs_share_a_lab_and_nothing_is_left(results: Path) -> None:
    lab_state = up()
    processes = {lab_state.pid: descendants(os.getpid()).get(lab_state.pid, "")} | descendants(lab_state.pid)
    assert len(processes) > 2
    runs = [run_in(results, "first"), run_in(results, "second")]
    watched = []
    for number, run in enumerate(runs):
        (record,) = run.ok().values()
        assert record.telemetry is not None
        watched.append(record.telemetry.background_load)
        assert facts(run)["runs_before"] == number
    assert any(watched)  # unless who looks got no processor for seconds
    assert 0 < facts(runs[0])["up_s"] < facts(runs[1])["up_s"]
    assert (up().runs, up().before) == (2, "")

    other = run_in(results, "third", "--size=128M")
    well(other.done)
    assert facts(other) is None
    assert "it has memory for 64 MiB of storage, not for 128 MiB" in " ".join(other.done.err.split())

    assert "the lab has ended" in harness_once("lab", "stop").out
    assert wait_for(lambda: not alive(processes), deadline_s=GONE_WITHIN_S)
    assert harness_once("lab", "status").status == 1


def test_of_changed_code_the_worker_is_new_and_the_kernel_is_not(results: Path) -> None:
    """A file of the harness looks changed; what the worker loads is then what is there."""
    runs = [run_in(results, "first", "--smoke")]
    file = Path(executor.__file__)
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    try:
        os.utime(file)
        runs.append(run_in(results, "second", "--smoke"))
    finally:
        os.utime(file, ns=times)
    runs.append(run_in(results, "third", "--smoke"))
    assert [run.done.status for run in runs] == [0, 0, 0], [run.done for run in runs]
    assert [facts(run)["runs_before"] for run in runs] == [0, 1, 2]
    first_s, second_s, third_s = (facts(run)["up_s"] for run in runs)
    assert first_s < second_s < third_s
    assert (up().runs, up().before) == (3, "")


def test_a_killed_run_costs_the_lab_its_kernel(results: Path) -> None:
    with running(results, *SHORT, "--runtime=20s") as process:
        process.send_signal(signal.SIGKILL)
    assert wait_for(lambda: "was given up" in up().before, deadline_s=60)
    for folder in results.iterdir():
        folder.rename(results.parent / "killed")
    run = run_in(results, "next")
    well(run.done)
    assert facts(run)["runs_before"] == 0


def test_a_killed_lab_daemon_takes_its_kernel_along(results: Path) -> None:
    processes = descendants(up().pid)
    folders = scratch_folders()
    os.kill(up().pid, signal.SIGKILL)
    assert wait_for(lambda: not alive(processes), deadline_s=GONE_WITHIN_S)
    well(harness_once("clean"))
    assert len(folders - scratch_folders()) == 2
    assert not results.exists() or not list(results.iterdir())
    well(harness_once("lab", "start", "--results", str(results), "--idle", "1s", "--memory", "64"))
    state = state_folder()
    assert wait_for(lambda: not persistent.is_up(state), deadline_s=GONE_WITHIN_S)
