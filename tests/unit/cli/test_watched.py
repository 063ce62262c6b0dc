"""A report during a run: written for each new record, and whole at every end."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from harness.cli import report as watching
from harness.hosts import state
from harness.hosts.state import Owner
from harness.model import Record
from harness.model.errors import Interrupted
from harness.report import load, render
from harness.results.columns import BASIC_WORKLOADS
from harness.results.store import RunFolder
from tests.unit.command import harness
from tests.unit.results_folder import COLUMNS, made_plan
from tests.unit.table.test_table import record

PLAN = made_plan(columns=COLUMNS[:2], repeats=1, retries=0)
CELLS = [
    record(1.0 + place, workload=name, link=column.link)
    for place, (name, column) in enumerate(itertools.product(BASIC_WORKLOADS, COLUMNS[:2]))
]
ALL = len(CELLS)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that has just begun."""
    folder = RunFolder(tmp_path / "results" / PLAN.run_id)
    folder.path.mkdir(parents=True)
    folder.save_plan(PLAN)
    return folder


def is_owned(monkeypatch: pytest.MonkeyPatch, run_id: str = PLAN.run_id) -> None:
    monkeypatch.setattr(watching, "owner", lambda: Owner(os.getpid(), run_id, ""))


def follow(run: RunFolder, monkeypatch: pytest.MonkeyPatch, steps: Sequence[Callable[[], None]]) -> list[str]:
    """What is said of the run if these things happen between the looks at it; then its process is gone."""
    left = list(steps)
    reported: list[str] = []

    def pause(seconds: float) -> None:
        assert seconds >= watching.PAUSE_S
        left.pop(0)()
        if not left:
            monkeypatch.setattr(watching, "owner", lambda: None)

    is_owned(monkeypatch)
    monkeypatch.setattr("time.sleep", pause)
    watching.watch([run.path.parent], reported.append)
    assert not left
    return reported


def adding(run: RunFolder, *records: Record) -> Callable[[], None]:
    def add() -> None:
        for each in records:
            run.save_record(each)

    return add


def test_each_record_and_the_end_make_a_page(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = adding(run)
    steps = [nothing, adding(run, CELLS[0]), nothing, adding(run, *CELLS[1:3]), nothing]
    pages = [f"r1 goes on: 1 of {ALL} cells", f"r1 goes on: 3 of {ALL} cells", ""]
    assert follow(run, monkeypatch, steps) == pages


def test_it_says_how_long_the_rest_takes(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    is_owned(monkeypatch)
    # The first cell, which brings up its column, does not count.
    walls_s = (900, 60, 120, 120)
    measured = [
        msgspec.structs.replace(cell, wall_ns=wall_s * 10**9, started_unix_s=float(place))
        for place, (cell, wall_s) in enumerate(zip(CELLS, walls_s, strict=False))
    ]
    adding(run, *reversed(measured))()
    assert watching.going([run.path]) == f"r1 goes on: 4 of {ALL} cells, {2 * (ALL - 4)} min left"


def test_it_ends_with_the_last_cell_of_this_run(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    adding(run, *CELLS[1:])()
    is_owned(monkeypatch, "r2")
    assert watching.going([run.path]) == ""
    reported = follow(run, monkeypatch, [adding(run, CELLS[0])])
    assert reported == [f"r1 goes on: {ALL - 1} of {ALL} cells", ""]
    is_owned(monkeypatch)
    assert watching.going([run.path]) == ""


def test_an_interruption_leaves_the_page_as_usual(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    adding(run, CELLS[0])()
    reported: list[str] = []
    is_owned(monkeypatch)
    monkeypatch.setattr("time.sleep", Mock(side_effect=Interrupted))
    with pytest.raises(Interrupted):
        watching.watch([run.path], reported.append)
    assert reported == [f"r1 goes on: 1 of {ALL} cells", ""]


def test_only_a_page_of_a_run_that_goes_on_loads_itself_again(run: RunFolder) -> None:
    adding(run, CELLS[0])()
    results = load([run.path])
    page = render(results, going="r1 goes on: 1 of <8> cells")
    assert '<meta http-equiv="refresh"' in page
    assert "r1 goes on: 1 of &lt;8&gt; cells." in page
    assert "default-src 'none'" in page
    assert 'http-equiv="refresh"' not in render(results)


def test_without_a_run_the_command_writes_the_page_once(run: RunFolder, tmp_path: Path) -> None:
    adding(run, CELLS[0])()
    assert harness("report", "results", "--watch", "-o", "page.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == render(load([run.path]))


def test_the_owner_is_known_while_its_process_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_places", lambda: [tmp_path / "harness"])
    assert state.owner() is None
    with state.exclusive("r1"):
        found = state.owner()
        assert found is not None and (found.run_id, found.pid) == ("r1", os.getpid())
    assert state.owner() is None
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "lock").write_bytes(msgspec.json.encode(Owner(gone.pid, "r1", "")))
    assert state.owner() is None
