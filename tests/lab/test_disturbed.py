"""Busy loops beside a run: what they spoil is marked, and measured again once they have ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.analysis import disturbance
from harness.model import Status
from harness.results.machine import MACHINE
from harness.results.store import RunFolder
from tests.lab.cli import COMMAND_DEADLINE_S, events, harness_once, running, wait_for

pytestmark = pytest.mark.lab

RUN = ("--link", "wired", "--ipsec", "off", "--workload", "rand-read-4k", "--repeats", "1", "--size", "32M")
LOOPS = 3


@contextlib.contextmanager
def loops() -> Iterator[None]:
    """Others who want the core that the lab takes, as much as it does and more."""
    core = str(max(os.sched_getaffinity(0)))
    with contextlib.ExitStack() as stack:
        for _ in range(LOOPS):
            argv = ["taskset", "-c", core, sys.executable, "-c", "while True: pass"]
            # In a session each: those of one share what one process would have (sched(7), autogroup).
            loop = stack.enter_context(subprocess.Popen(argv, start_new_session=True))
            stack.callback(loop.kill)
        yield


def ended(folder: Path) -> list[dict[str, object]]:
    return [event for event in events(folder) if event["event"] == "cell-ended"]


def test_what_others_spoil_is_marked_and_measured_again(tmp_path: Path) -> None:
    with running(tmp_path, *RUN, "--runtime", "1s", "--retries", "1") as process:
        (folder,) = tmp_path.iterdir()
        with loops():
            assert wait_for(lambda: bool(ended(folder)), deadline_s=120), process.poll()
        out, err = process.communicate(timeout=COMMAND_DEADLINE_S)
    first, *again = ended(folder)
    found = first["disturbed"]
    # Three loops have three quarters of the core, of which the cell has some idle time to lose first.
    assert isinstance(found, dict) and 0.3 < found["share"] <= 1, first
    # Or other machines did, whose share of the processor is more than half of it all.
    assert "other programs used" in found["cause"] or "the hypervisor gave" in found["cause"], found
    assert f"but disturbed: {found['cause']}" in " ".join(err.split())
    assert first["status"] == "ok" and len(again) <= 1
    # Where yet others keep the machine busy, it is waited for in vain.
    waited = "waiting until other programs calm down" in err
    assert again or waited, err
    (record,) = RunFolder(folder).load_records()
    share = disturbance.share(record)
    assert record.status is Status.OK and share is not None
    if disturbance.is_disturbed(record):
        assert " !" in out and "harness run --resume" in err
    else:
        assert share < found["share"] and "disturbed, do not use" not in out


def test_the_machine_below_the_lab_is_known(tmp_path: Path) -> None:
    with running(tmp_path, *RUN, "--runtime", "0.3s") as process:
        process.wait(timeout=COMMAND_DEADLINE_S)
    (folder,) = tmp_path.iterdir()
    facts = RunFolder(folder).load_environment()[MACHINE]
    assert facts["cpus"] == os.cpu_count() and facts["kernel"] == Path("/proc/version").read_text().strip()
    done = harness_once("table", str(folder))
    assert f"Machine: {facts['cpu']}, {facts['cpus']} processors" in done.out, done
    assert not (folder / "machine.live").exists()
