"""Busy loops during a run, and a run that is suspended: what that spoils is marked, and measured again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.analysis import disturbance
from harness.model import Status
from harness.results.machine import MACHINE
from harness.results.store import RunFolder
from tests.lab.cli import COMMAND_DEADLINE_S, events, harness_once, running, wait_for
from tests.lab.machine import below

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


@pytest.mark.core
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
    waited = "waiting until the machine is idle" in err
    assert again or waited, err
    (record,) = RunFolder(folder).load_records()
    share = disturbance.share(record)
    assert record.status is Status.OK and share is not None
    if disturbance.is_disturbed(record):
        assert " !" in out and "harness run --resume" in err
    else:
        assert share < found["share"] and "disturbed, do not use" not in out


def of_run(pid: int, *, kernels_alone: bool) -> list[int]:
    """The processes of a run: the command, its helpers, the lab's kernels, and what those trace; or only the
    kernels, which are bound to one processor."""
    found, kernels = [pid, *below(pid)], list[int]()
    for each in found:
        with contextlib.suppress(OSError):  # it has ended
            status = Path(f"/proc/{each}/status").read_text()
            if len(os.sched_getaffinity(each)) == 1 and "TracerPid:\t0\n" in status:
                kernels.append(each)
    return kernels if kernels_alone else found


def suspend(process: subprocess.Popen[str], for_s: float, *, kernels_alone: bool = False) -> None:
    """Stop a run, and let it go on."""
    stopped = of_run(process.pid, kernels_alone=kernels_alone)
    for number, then_s in ((signal.SIGSTOP, for_s), (signal.SIGCONT, 0)):
        for each in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)
        time.sleep(then_s)


@pytest.mark.parametrize("kernels_alone", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_suspension_is_marked(tmp_path: Path, kernels_alone: bool) -> None:
    with running(tmp_path, *RUN, "--runtime", "5s", "--retries", "0") as process:
        (folder,) = tmp_path.iterdir()
        assert wait_for(lambda: "cell-started" in (folder / "events.jsonl").read_text(), deadline_s=120)
        while not ended(folder) and process.poll() is None:
            suspend(process, 1.5, kernels_alone=kernels_alone)
            time.sleep(1.5)
        out, err = process.communicate(timeout=COMMAND_DEADLINE_S)
    (only,) = ended(folder)
    assert only["status"] == "ok", (only, err)
    found = only["disturbed"]
    assert isinstance(found, dict) and "stood still for" in found["cause"], only
    (record,) = RunFolder(folder).load_records()
    (use,) = record.background_load
    # The part that counts lasted as long as it was given, and was stopped more than once.
    assert use.suspended_ns is not None and use.suspended_ns > 1e9
    assert disturbance.is_disturbed(record) and " !" in out and "stood still for" in " ".join(out.split())


@pytest.mark.parametrize("words", [RUN, (*RUN, "--virtual-time")], ids=["real", "virtual"])
def test_a_run_outlives_a_long_suspension(tmp_path: Path, words: tuple[str, ...]) -> None:
    """All processes stop, also those of the kernel's, as when a scheduler suspends a job."""
    with running(tmp_path, *words, "--runtime", "2s", "--retries", "0") as process:
        (folder,) = tmp_path.iterdir()
        assert wait_for(lambda: "cell-started" in (folder / "events.jsonl").read_text(), deadline_s=120)
        suspend(process, 20)
        _, err = process.communicate(timeout=COMMAND_DEADLINE_S)
    assert process.returncode == 0, err
    (record,) = RunFolder(folder).load_records()
    assert record.status is Status.OK and "panic" not in (folder / "console.log").read_text()


def test_the_machine_below_the_lab_is_known(tmp_path: Path) -> None:
    with running(tmp_path, *RUN, "--runtime", "0.3s") as process:
        process.wait(timeout=COMMAND_DEADLINE_S)
    (folder,) = tmp_path.iterdir()
    facts = RunFolder(folder).load_environment()[MACHINE]
    assert facts["cpus"] == os.cpu_count() and facts["kernel"] == Path("/proc/version").read_text().strip()
    done = harness_once("table", str(folder))
    assert f"Machine: {facts['cpu']}, {facts['cpus']} processors" in done.out, done
    assert not (folder / "machine.live").exists()
