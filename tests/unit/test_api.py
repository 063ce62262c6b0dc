"""`import harness` in a program: results, their table, what limits them, and what differs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import harness
from harness.model.errors import RequirementError, UsageError
from harness.table import render

FIGURES = Path(__file__).parents[2] / "docs" / "figures"


@pytest.fixture(scope="module")
def measured() -> harness.Results:
    return harness.open_results(FIGURES / "make-run")


def again(measured: harness.Results) -> harness.Results:
    """The same figures as if another run had measured them."""
    records = tuple(msgspec.structs.replace(record, run_id="another") for record in measured.records)
    return msgspec.structs.replace(measured, records=records)


def test_it_says_what_the_commands_say(measured: harness.Results) -> None:
    assert measured.records and not measured.lacks
    table = measured.table(metric="IOPS")
    workloads = {record.workload for record in measured.records}
    assert "IOPS" in render(table) and len(table.rows) == len(workloads)
    assert {cell.evidence.workload for cell in measured.explain()} == workloads
    found = measured.compare(again(measured))
    assert found.is_judged and not found.slower_by(0.05)
    with pytest.raises(UsageError, match="expected two different sets of results"):
        measured.compare(measured)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no results"):
        harness.open_results(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        harness.nothing  # noqa: B018


def test_pandas_is_asked_for_only_where_it_is_used(
    measured: harness.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RequirementError, match="expected pandas, found none"):
        measured.to_pandas()


def test_the_page_s_program_runs(tmp_path: Path, measured: harness.Results) -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    program = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    (tmp_path / "results").symlink_to(FIGURES / "make-run")
    (tmp_path / "after").mkdir()
    for number, record in enumerate(again(measured).records):
        (tmp_path / "after" / f"{number}.json").write_bytes(msgspec.json.encode(record))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "p99" in done.stdout, done.stderr


READ_ONLY = """
import socket, sys
for name in ("fcntl", "pwd", "grp", "termios", "resource"):
    sys.modules[name] = None
del socket.AF_UNIX
import harness
results = harness.open_results(sys.argv[1])
assert results.table().rows and results.explain()
import harness.report
measuring = ("runs", "probes", "testbeds", "protection", "network", "storage", "observe", "hosts")
print(sorted(name for name in sys.modules if name.startswith(tuple(f"harness.{room}" for room in measuring))))
"""


def test_who_reads_needs_nothing_of_what_measures() -> None:
    """Nor anything that only Linux has."""
    argv = [sys.executable, "-c", READ_ONLY, str(FIGURES / "make-run")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
