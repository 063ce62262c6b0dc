"""Forecasts are tried: what is said of a faster link comes true where processors cost nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.model import Status
from harness.results.store import RunFolder
from tests.lab.cli import harness, measure, well

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

HOW = ("--virtual-time", "--disk", "ram", "--size", "32M", "--no-probes", "--link", "local")
WHAT = ("--link=fast-ethernet", "--protect=off", "--workload=rand-read-4k", "--workload=seq-read-256k")


def test_a_change_is_made_and_said_stands_next_to_measured(tmp_path: Path) -> None:
    first = measure(tmp_path, *HOW, *WHAT)
    well(first.done)
    done = well(harness("explain", str(first.folder), "--try", "--format", "json"))
    tried = json.loads(done.out)["tried"]
    assert {each["forecast"]["step"]["kind"] for each in tried} >= {"rate"}
    assert all(each["is_within"] for each in tried), tried

    (folder,) = {first.folder.parent / each["tried_by"] for each in tried}
    plan, records = RunFolder(folder).load_plan(), RunFolder(folder).load_records()
    assert {(each.column, each.workload.name) for each in records} == {*plan.places}
    assert all(each.status is Status.OK and each.proof is not None for each in records)
    # The first run's page has both.
    page = tmp_path / "page.html"
    well(harness("report", str(first.folder), "-o", str(page)))
    assert "2 of 2 forecasts hit" in page.read_text(encoding="utf-8")
