"""What tells a run's machines from those of other runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.results.measured import Measured
from harness.results.store import RunFolder
from harness.table.matrix import build
from tests.unit.parsing import known
from tests.unit.table.test_table import record


def test_figures_of_two_machines_or_kernels_are_never_one_median(tmp_path: Path) -> None:
    def run(name: str, mb_s: float, **facts: Any) -> None:
        folder = RunFolder(tmp_path / name)
        folder.save_record(record(mb_s, run_id=name, link="wired"))
        host = {"cpu": "Zen 4", "cpus": 8, "kernel": "Linux version 6.12.41 (x)"} | facts
        folder.save_environment({"hosts": {"initiator": host}})

    run("a", 515.0)
    run("b", 525.0, load="3")
    assert len(build(Measured.read([tmp_path]).records).columns) == 1, "the load is none of a machine's names"
    run("c", 1545.0, cpu="Zen 5")
    table = build(Measured.read([tmp_path]).records)
    assert [column.label for column in table.columns] == ["lab, on Zen 4 wired", "lab, on Zen 5 wired"]
    assert [known(cell).value for cell in table.cells[0]] == [520.0, 1545.0]
    assert len(build(Measured.read([tmp_path], is_pooled=True).records).columns) == 1
    # What tells two kernels of one machine apart is the kernel; what is unknown is taken for neither.
    run("c", 1545.0, kernel="Linux version 6.12.57 (x)")
    RunFolder(tmp_path / "d").save_record(record(100.0, run_id="d", link="wired"))
    names = [column.label for column in build(Measured.read([tmp_path]).records).columns]
    kernels = ["Linux 6.12.41", "Linux 6.12.57", "an unknown machine"]
    assert names == [f"lab, on {name} wired" for name in kernels]
    assert len(build(Measured.read([tmp_path / "a", tmp_path / "d"]).records).columns) == 1
