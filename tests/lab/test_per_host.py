"""Target and initiators in kernels of their own: reached by SSH, joined by links, and gone together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.model.errors import RequirementError
from harness.testbeds.lab.per_host import management
from tests.lab import machine
from tests.lab.cli import BUSY, HARNESS, PROJECT, alive, descendants, harness, lacks, wait_for, well
from tests.lab.test_interruption import GONE_WITHIN_S, scratch_folders

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]

PER_HOST = ("lab", "exec", "--memory", "64", "--per-host", "2")


@pytest.fixture(scope="module", autouse=True)
def ssh_is_there() -> None:
    try:
        management.require_ssh()
    except RequirementError as error:
        lacks(str(error))


def test_kernels_per_host_are_reached_by_ssh_and_joined_by_shaped_links() -> None:
    harness("clean")
    before, folders = machine.snapshot(), scratch_folders()
    environment = ("env", f"PYTHONPATH={PROJECT}", f"PATH={os.environ['PATH']}:/usr/sbin:/sbin")
    done = well(
        harness(*PER_HOST, "--", *environment, sys.executable, "-m", "tests.lab.inside.per_host_wiring")
    )
    assert done.out.endswith("all is well\n"), done
    assert machine.differences(before, machine.snapshot()) == {}
    assert scratch_folders() <= folders


def test_the_command_s_status_is_reported_and_all_kernels_end_with_it() -> None:
    done = harness(*PER_HOST, "--", "sh", "-c", "echo said; ssh target 'exit 7'")
    assert (done.status, done.out, done.err) == (7, "said\n", "")


def test_a_killed_harness_takes_all_kernels_along(tmp_path: Path) -> None:
    harness("clean")
    folders = scratch_folders()
    said = tmp_path / "said"
    end = time.monotonic() + 600
    while True:
        command = [HARNESS, *PER_HOST, "--", "sh", "-c", "echo begun; sleep 100"]
        with (
            said.open("w") as file,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file) as process,
        ):
            try:
                assert wait_for(lambda: said.stat().st_size > 0, deadline_s=90)
                if BUSY not in said.read_text(encoding="utf-8"):
                    assert said.read_text(encoding="utf-8").strip() == "begun"
                    kernels = descendants(process.pid)
                    break
            finally:
                process.send_signal(signal.SIGKILL)
        assert time.monotonic() < end
        time.sleep(1)
    assert sum(name.endswith("linux.uml") for name in kernels.values()) >= 3, kernels
    assert wait_for(lambda: not alive(kernels), deadline_s=GONE_WITHIN_S), alive(kernels)
    assert "ScratchFolder" in harness("clean").err
    assert scratch_folders() <= folders
