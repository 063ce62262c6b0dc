"""What becomes of a run that is killed, interrupted, or met by a second one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.model import Status
from harness.results.store import RunFolder
from harness.testbeds.lab.boot.scratch import DISK_FOLDERS, MEMORY_FOLDERS
from tests.lab.cli import (
    alive,
    descendants,
    events,
    harness,
    harness_once,
    is_sampled,
    only_run,
    running,
    wait_for,
    well,
)

pytestmark = [pytest.mark.lab, pytest.mark.broken]

RUN = ("--link=local", "--link=wired", "--ipsec=off", "--repeats=3", "--runtime=1s", "--size=32M")
WORKLOAD = "--workload=rand-read-4k"
CELLS = 6
PROTECTED_RUN = ("--link=wired", "--ipsec=on", "--repeats=3", "--runtime=2s", "--size=32M")
PROTECTED_CELLS = 3
GONE_WITHIN_S = 10.0
ENDED_WITHIN_S = 120.0


def scratch_folders() -> set[str]:
    """What the lab keeps in folders for temporary files, by the names that it gives."""
    return {
        str(entry)
        for folder in {*DISK_FOLDERS, *MEMORY_FOLDERS}
        for pattern in ("harness-lab-*", "vm_file-*")
        for entry in Path(folder).glob(pattern)
        if entry.stat().st_uid == os.geteuid()  # others' labs come and go
    }


def reach(results: Path, *, cells: int) -> Path:
    """Wait until so many cells have ended, or more, and another is under way; returns the run's folder."""

    def reached() -> bool:
        reported = [event["event"] for event in events(only_run(results))]
        return reported.count("cell-ended") >= cells and reported[-1] == "cell-started"

    assert wait_for(reached, deadline_s=60), events(only_run(results))
    return only_run(results)


def kernels(process: subprocess.Popen[str]) -> dict[int, str]:
    """The processes of a run's lab, which are all those below the command."""
    found = descendants(process.pid)
    assert any("linux.uml" in name for name in found.values()), found
    return found


def record_bytes(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in RunFolder(folder).record_files()}


@pytest.fixture
def before() -> Iterator[set[str]]:
    """The scratch folders there were, after `harness clean`: a test must leave no others."""
    harness("clean")
    folders = scratch_folders()
    yield folders
    harness("clean")


@pytest.mark.core
def test_killed_then_cleaned_then_resumed(tmp_path: Path, before: set[str]) -> None:
    with running(tmp_path, *RUN, WORKLOAD) as process:
        folder = reach(tmp_path, cells=2)
        processes = kernels(process)
        process.kill()
        process.wait()
        assert wait_for(lambda: not alive(processes), deadline_s=GONE_WITHIN_S), alive(processes)
    kept = record_bytes(folder)
    assert 2 <= len(kept) < CELLS
    left = scratch_folders() - before
    assert len(left) == 2, "a SIGKILL leaves no time to remove the folders of the files and of the memory"

    cleaned = well(harness("clean"))
    assert all(folder in cleaned.err for folder in left), (left, cleaned)
    assert scratch_folders() <= before
    assert "nothing was left behind" in harness("clean").out

    resumed = well(harness("run", "--results", str(tmp_path), "--resume", folder.name))
    assert f"{CELLS - len(kept)} cells" in resumed.err
    records = record_bytes(folder)
    assert len(records) == CELLS
    assert {name: records[name] for name in kept} == kept, "what was measured stays as it is, byte for byte"
    ended = [event["key"] for event in events(folder) if event["event"] == "cell-ended"]
    assert sorted(ended) == sorted(Path(name).stem for name in records), "nothing was measured twice"

    well(harness("run", "--results", str(tmp_path), "--resume", folder.name))
    assert record_bytes(folder) == records, "a finished run has nothing left to measure"


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        signal.SIGTERM,
        *(pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGHUP, signal.SIGQUIT)),
    ],
    ids=lambda number: signal.Signals(number).name,
)
def test_interrupted(tmp_path: Path, before: set[str], number: signal.Signals) -> None:
    # Longer than other commands take, however busy the machine is.
    with running(tmp_path, *RUN, WORKLOAD, "--runtime=3s", "--repeats=30") as process:
        folder = reach(tmp_path, cells=1)
        processes = kernels(process)
        if number is signal.SIGINT:
            second_run_is_refused(tmp_path, holder=process, run_id=folder.name)
        process.send_signal(number)
        said, errors = process.communicate(timeout=ENDED_WITHIN_S)
        assert process.returncode == 128 + signal.SIGINT, (said, errors)
        assert alive(processes) == {}
    assert "harness: interrupted; everything has been taken down" in errors and "Traceback" not in errors
    assert f"harness run --resume {folder}\n" in errors, "it says how to go on"
    assert scratch_folders() <= before
    assert "nothing was left behind" in harness("clean").out
    assert 1 <= len(record_bytes(folder)) < 10 * CELLS
    RunFolder(folder).load_records()


def test_ipsec_is_proved_behind_an_interruption_too(tmp_path: Path, before: set[str]) -> None:
    with running(tmp_path, *PROTECTED_RUN, WORKLOAD) as process:
        folder = reach(tmp_path, cells=1)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=ENDED_WITHIN_S)
        assert process.returncode == 128 + signal.SIGINT, (said, errors)
    kept = record_bytes(folder)
    assert 1 <= len(kept) < PROTECTED_CELLS
    captured = capture_bytes(folder)
    assert set(captured) == {"initiator-1.pcap", "target-1.pcap"}

    well(harness("run", "--results", str(tmp_path), "--resume", folder.name))
    records = record_bytes(folder)
    assert len(records) == PROTECTED_CELLS
    assert {name: records[name] for name in kept} == kept, "what was measured stays as it is, byte for byte"
    for record in RunFolder(folder).load_records():
        assert (record.status, record.reason) == (Status.OK, None)
        assert record.proof is not None
        assert is_sampled(record.proof), record.proof
        assert record.proof.cleartext_segments == 0, record.proof
    again = capture_bytes(folder)
    assert set(again) == {*captured, "initiator-2.pcap", "target-2.pcap"}, "files of its own"
    assert {name: again[name] for name in captured} == captured
    assert scratch_folders() <= before


def capture_bytes(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.rglob("*.pcap")}


def second_run_is_refused(results: Path, *, holder: subprocess.Popen[str], run_id: str) -> None:
    names = sorted(entry.name for entry in results.iterdir())
    for words in (("run", "--results", str(results), *RUN), ("clean",), ("lab", "exec", "--", "true")):
        refused = harness_once(*words)
        assert refused.status == 2, refused
        assert run_id in refused.err
        assert f"process {holder.pid}" in " ".join(refused.err.split())
        assert "Traceback" not in refused.err
    assert sorted(entry.name for entry in results.iterdir()) == names, "the refused run made no folder"
    assert holder.poll() is None, "the first goes on"
