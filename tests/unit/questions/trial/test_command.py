"""What ``harness explain --try`` takes, and who suggests it."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

import msgspec
import pytest

from harness.model import Column, Machines, Plan, TestbedKind
from harness.questions.trial import command as trial
from harness.questions.trial.section import SECTION
from harness.report import load, summary
from harness.results import sections
from harness.results.store import RunFolder
from tests.unit.cli.test_cli import assert_refused
from tests.unit.command import harness
from tests.unit.results_folder import made_plan, write
from tests.unit.table.test_table import record

FIGURES = Path(__file__).parents[4] / "docs" / "figures"


def forecasting(results: Path, run_id: str = "r1", **changes: object) -> Path:
    """A run of 4K reads that take 20 ms each over a slow link: a deeper queue would help."""
    plan = made_plan(run_id, columns=(Column("wifi"), Column("local")), **changes)
    records = [
        record(rate, run_id=run_id, link=link, workload="rand-read-4k", repeat=repeat, block_bytes=4096)
        for link, rate in (("local", 400.0), ("wifi", 1.8))
        for repeat in (1, 2, 3)
    ]
    return write(results, records, plan)


def test_nothing_to_try_is_said(tmp_path: Path) -> None:
    folder = str(forecasting(tmp_path))
    forecasting(tmp_path, "r2")
    for words, named in (
        # Without the parameters that a session negotiated, nothing is known of the path, nothing forecast.
        ((folder, "--try"), ["no change is forecast"]),
        ((folder, "--try", "--cell", "wird"), ["wird", "rand-read-4k"]),
        ((folder, "--cell", "wifi"), ["--try"]),
        ((str(tmp_path), "--try"), ["one run", "2"]),
    ):
        assert_refused(harness("explain", *words, cwd=tmp_path), *named)
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["r1", "r2"]


def test_what_leaves_the_lab_has_to_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = forecasting(tmp_path)
    machines = Machines(target="ssh://root@server", initiators=("local",))
    outside = made_plan("r9", columns=(Column("wired"),), testbed=TestbedKind.MACHINES, machines=machines)
    monkeypatch.setattr(trial, "make_plans", lambda *_: [outside])
    done = harness("explain", str(folder), "--try", cwd=tmp_path)
    assert done.returncode == 0, done
    assert f"harness run --resume {tmp_path}/r9 --target ssh://root@server" in done.stderr
    assert RunFolder(tmp_path / "r9").load_plan() == outside and not (tmp_path / "r9" / "cells").exists()


def test_a_forecast_ends_with_the_command_that_tries_it(monkeypatch: pytest.MonkeyPatch) -> None:
    results, made = load([FIGURES / "make-run"]), list[Plan]()
    lines = summary.lines(results.answers, results, 80, command=partial(sections.command, results))
    (number,) = (number for number, line in enumerate(lines) if line.startswith("  harness "))
    assert " ".join(lines[number - 2 : number]).split()[-2:] == ["Measure", "it:"]
    name, *words = shlex.split(lines[number])
    monkeypatch.setattr(trial, "_measure", lambda plan, _folder: made.append(plan))
    assert name == "harness" and harness(*words, cwd=FIGURES).returncode == 0
    (plan,) = made
    forecasts = SECTION.of(plan).forecasts
    assert {each.workload for each in forecasts} == {"rand-read-4k"} and len(forecasts) == 4
    # What cannot be made has none.
    plans = {run: msgspec.structs.replace(plan, jobs=()) for run, plan in results.plans.items()}
    assert sections.command(msgspec.structs.replace(results, plans=plans), results.explained) == ""
