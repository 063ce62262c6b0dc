"""A failure at every step of a run in turn, on hosts that only record: all is released or reported."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.hosts.journal import Journal
from harness.model import Status
from harness.model.errors import HarnessError, Interrupted
from tests.unit.fakes import USERS, Command, Failure, World
from tests.unit.runs.test_teardown import Outcome, measure

pytestmark = pytest.mark.thorough


Runs = tuple[Failure, list[tuple[World, Outcome]]]


@pytest.fixture(scope="module", params=Failure)
def failing_runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    """Runs whose first, second, third, … step fails in one way, until a run has no such step; made once."""
    # To open some hundred files is half of the work of each on a disk, and less in memory.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        runs: list[tuple[World, Outcome]] = []
        while True:
            world = World(fail_at=len(runs) + 1, failure=request.param)
            outcome = measure(world, Path(folder, str(len(runs))))
            if world.failed is None:
                break
            runs.append((world, outcome))
        assert len(runs) > 100
        yield request.param, runs


def recovered(world: World, journal: Journal) -> tuple[list[str], list[str]]:
    """What a later process removes on the hosts of ``world``, by what is written down alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.hosts.journal.reachable", lambda entry: world.host("machine", entry.netns))
        return Journal(journal.path).recover()


def test_whatever_step_fails_all_is_released_or_reported(failing_runs: Runs) -> None:
    failure, runs = failing_runs
    reported = 0
    for world, outcome in runs:
        where = f"{failure} of {world.failed}"
        assert {*USERS} <= {*world.things}, where
        assert not any(thing.startswith("daemon ") for thing in world.left), where
        left_over = list(outcome.journal.open_entries().values())
        # A look for leftovers that failed is reported as well, but nothing need be left.
        leaks = [leak for leak in outcome.journal.leaks if not leak.startswith("could not list what is left")]
        seen = [leak for leak in leaks if leak.endswith("is still there")]
        assert not seen or left_over, where
        leaks = [leak for leak in leaks if leak not in seen]
        kinds = [leak.partition(" was not undone: ")[0] for leak in leaks]
        assert list(dict.fromkeys(kinds)) == [entry.what.split()[0] for entry in left_over], where
        if left_over:
            reported += 1
            # The journal is enough to undo the rest, newest first. What a step had undone before it was made
            # to hang is not there any more.
            removed, failed = recovered(world, outcome.journal)
            assert (removed, failed) == ([e.what for e in left_over if e.what in removed], []), where
        assert not world.left and {*USERS} <= {*world.things}, where
    # An interruption is obeyed once all is released.
    assert reported == 0 if failure is Failure.INTERRUPT else reported > 5


@pytest.mark.parametrize("failing_runs", [Failure.STATUS, Failure.HANG], indirect=True)
def test_whatever_step_fails_other_cells_are_measured(failing_runs: Runs) -> None:
    stopped: list[Command] = []
    for world, outcome in failing_runs[1]:
        where = f"{failing_runs[0]} of {world.failed}"
        assert world.failed is not None
        if outcome.error is not None:
            assert isinstance(outcome.error, HarnessError | OSError), where
            stopped.append(world.failed)
            continue
        assert len(outcome.records) == 6 and len(outcome.bad) <= 1, where
        for record in outcome.bad:
            assert record.status in (Status.FAILED, Status.INVALID) and record.reason, where
    # Only what all columns share, and the description of the hosts at the end, may stop a whole run.
    shared = re.compile(
        r"ls /sys/(module|kernel/config)$"
        r"|modprobe|/usr/bin/python3 -I|write .*(/private/chap|/etc/iscsi/)"
        r"|daemon iscsid|lscpu$|sh -c .\n(newline=|path=\$1 have=)"
    )
    assert stopped
    assert [c for c in stopped if not shared.match(str(c).partition(": ")[2])] == []


@pytest.mark.parametrize("failing_runs", [Failure.INTERRUPT], indirect=True)
def test_an_interrupted_run_keeps_its_cells_and_says_so(failing_runs: Runs) -> None:
    for world, outcome in failing_runs[1]:
        assert isinstance(outcome.error, Interrupted) and outcome.bad == [], world.failed
    assert max(len(outcome.records) for _, outcome in failing_runs[1]) == 6
