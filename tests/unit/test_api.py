"""`import harness` in a program: results, their table, what limits them, and what differs."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import harness
from harness.model.errors import RequirementError, UsageError
from harness.table import TableFormat, render, views

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"


@pytest.fixture(scope="module")
def measured() -> harness.Results:
    return harness.open_results(FIGURES / "make-run")


def again(measured: harness.Results) -> harness.Results:
    """The same figures as if another run had measured them."""
    records = tuple(msgspec.structs.replace(record, run_id="another") for record in measured.records)
    return msgspec.structs.replace(measured, records=records)


def test_it_says_what_the_commands_say(measured: harness.Results, tmp_path: Path) -> None:
    assert measured.records and not measured.lacks
    table = measured.table(metric="IOPS")
    workloads = {record.workload.name for record in measured.records}
    assert "IOPS" in render(table) and len(table.rows) == len(workloads)
    assert (table.unit, measured.table(metric="p99").unit) == ("IOPS", "µs")
    assert {cell.evidence.workload for cell in measured.explain()} == workloads
    found = measured.compare(again(measured))
    assert found.is_judged and not found.slower_by(0.05)
    with pytest.raises(UsageError, match="expected two different sets of results"):
        measured.compare(measured)
    # What cannot be read is said.
    with pytest.raises(UsageError, match="holds no results"):
        harness.open_results(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        harness.nothing  # noqa: B018
    assert dir(harness) == harness.__all__ and harness.UsageError is UsageError


def test_what_is_wrong_is_said_and_what_is_natural_is_taken(
    measured: harness.Results, tmp_path: Path
) -> None:
    def refused(call: Callable[[], object]) -> str:
        with pytest.raises(harness.UsageError) as found:
            call()
        return str(found.value)

    anything: Any = harness.open_results
    assert refused(anything) == 'expected a path, found none (open_results("results/"))'
    wrongs: list[Any] = [["results/"], None, 5, b"results/", measured]
    for wrong in wrongs:
        said = f"expected a path, found {type(wrong).__name__}"
        assert refused(functools.partial(anything, wrong)).startswith(said)
        assert wrong is measured or refused(functools.partial(measured.compare, wrong)).startswith(said)
    for path in ("nowhere", tmp_path / "nowhere", "a\0b"):
        assert refused(functools.partial(harness.open_results, path))
    # Results or their path; a part as a number or as typed.
    other = again(measured)
    (tmp_path / "after").mkdir()
    for number, record in enumerate(other.records):
        (tmp_path / "after" / f"{number}.json").write_bytes(msgspec.json.encode(record))
    expected = measured.compare(other, margin=0.1)
    for after in (tmp_path / "after", str(tmp_path / "after")):
        assert measured.compare(after, margin="10%").cells == expected.cells
    assert expected.slower_by("5%") == expected.slower_by(0.05) == expected.slower_by(0) == []
    margins: list[Any] = ["x", "5", "0%", -0.1, 1, 5.0, float("nan"), True, [5]]
    for margin in margins:
        assert refused(functools.partial(measured.compare, other, margin=margin)).startswith("margin: ")
        assert refused(functools.partial(expected.slower_by, margin))
    names: list[Any] = ["furlongs", "", 5, None]
    for name in names:
        for call in (measured.table, functools.partial(measured.compare, other)):
            assert refused(functools.partial(call, metric=name)).startswith("there is no metric ")
        assert refused(functools.partial(measured.view, name)).startswith("there is no view ")
    assert refused(functools.partial(measured.table, ratio="x"))


def test_runs_of_probes_alone_are_read(tmp_path: Path) -> None:
    probed = harness.open_results(FIGURES / "switches")
    assert probed.probes and not probed.records and probed.plans and not probed.lacks
    assert "Bytes" in views.render(probed.view("udp-latency"), TableFormat.TEXT)
    assert not probed.view("scale").rows and not probed.view("pppoe").rows
    assert probed.explain() == []
    both = harness.open_results(FIGURES / "switches", FIGURES / "make-run")
    assert both.view("counters").rows and both.table().rows and len(both.probes) > len(probed.probes)
    with pytest.raises(UsageError, match="no records to make a table from"):
        probed.table()
    with pytest.raises(UsageError, match="B has no cells to compare"):
        both.compare(probed)
    # Of a run whose only probe is damaged nothing is left.
    (tmp_path / "probes").mkdir()
    shutil.copy(FIGURES / "switches" / "plan.json", tmp_path)
    (tmp_path / "probes" / "x.json").write_text("{")
    with pytest.raises(UsageError, match=r"x\.json"):
        harness.open_results(tmp_path)


def test_the_page_s_program_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    program = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    (tmp_path / "results").symlink_to(FIGURES / "make-run")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    done = python(program, cwd=tmp_path)
    assert done.returncode == 0 and "p99" in done.stdout, done.stderr


MEASURING = ("runs", "probes", "testbeds", "protection", "network", "storage", "observe", "hosts", "cli")

READ_ONLY = """
import os, socket, sys
from pathlib import Path
for name in ("fcntl", "pwd", "grp", "termios", "resource"):
    sys.modules[name] = None
for name in ("fork", "sched_getaffinity", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_NOFOLLOW"):
    delattr(os, name)
del socket.AF_UNIX
import harness, harness.report
results, others = map(harness.open_results, sys.argv[1:3])
assert results.table().rows and results.explain() and results.compare(others).cells
assert "<svg" in harness.report.render(harness.report.load([Path(sys.argv[1])]))
print(Path(harness.__file__).parent)
print([name for name in sys.modules if name.startswith("harness.") and name.split(".")[1] in sys.argv[3:]])
"""


def python(program: str, *words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    argv, around = [sys.executable, "-c", program, *words], {**os.environ, **more}
    return subprocess.run(argv, cwd=cwd, env=around, capture_output=True, text=True, check=False)


def assert_reads_only(folder: Path) -> None:
    """Runs are read by the package in ``folder``, where modules that only Linux has are blocked."""
    runs = (str(FIGURES / "ladder"), str(FIGURES / "protections"))
    done = python(READ_ONLY, *runs, *MEASURING, cwd=folder, PYTHONPATH=str(folder))
    assert (done.returncode, done.stdout) == (0, f"{folder / 'harness'}\n[]\n"), done.stderr


def test_who_reads_needs_nothing_of_what_measures_nor_does_what_is_installed(tmp_path: Path) -> None:
    assert_reads_only(ROOT)
    made, copy = tmp_path / "made", tmp_path / "copy"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(made)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = made.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(copy)
    for package in MEASURING:
        shutil.rmtree(copy / "harness" / package)
    assert_reads_only(copy)


def test_pandas_makes_a_data_frame(measured: harness.Results, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = measured.to_pandas()
    assert len(frame) == len(measured.records)
    assert set(frame["column"]) == {record.column.label for record in measured.records}
    assert frame["bandwidth_bytes_s"].dtype == "float64" and frame["repeat"].dtype == "int64"
    assert not frame["is_estimated"].any()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RequirementError, match="expected pandas, found none"):
        measured.to_pandas()
