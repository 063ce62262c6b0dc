"""`harness explain --try`: which cells it takes, and what it refuses or only plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Backing, BackingKind, Column, Machines, Plan, TestbedKind
from harness.planning import forecasts
from harness.results.store import RunFolder
from tests.unit.cli.test_cli import assert_refused
from tests.unit.command import harness
from tests.unit.results_folder import made_plan, write
from tests.unit.table.test_table import record


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
    folder = forecasting(tmp_path)
    # Without the parameters that a session negotiated, nothing is known of the path, and nothing foretold.
    done = harness("explain", str(folder), "--try", cwd=tmp_path)
    assert_refused(done, "no change is forecast", status=2)
    assert_refused(
        harness("explain", str(folder), "--try", "--cell", "wird", cwd=tmp_path), "wird", "rand-read-4k"
    )
    assert_refused(harness("explain", str(folder), "--cell", "wifi", cwd=tmp_path), "--try")
    forecasting(tmp_path, "r2")
    assert_refused(harness("explain", str(tmp_path), "--try", cwd=tmp_path), "one run", "2")
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["r1", "r2"]


def test_what_leaves_the_lab_is_planned_and_has_to_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = forecasting(tmp_path)
    outside: Plan = made_plan(
        "r9",
        columns=(Column("wired"),),
        testbed=TestbedKind.MACHINES,
        machines=Machines(target="ssh://root@nas", initiators=("local",)),
        backing=Backing(kind=BackingKind.RAMDISK, size_bytes=1 << 27),
    )
    monkeypatch.setattr(forecasts, "make_plans", lambda *_: [outside])
    done = harness("explain", str(folder), "--try", cwd=tmp_path)
    assert done.returncode == 0, done
    assert f"harness run --resume {tmp_path}/r9 --target ssh://root@nas" in done.stderr
    assert RunFolder(tmp_path / "r9").load_plan() == outside and not (tmp_path / "r9" / "cells").exists()
