"""What CI runs: what is repeated, what is said last, which lanes a change reaches, the cells of a square."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests.lab.square import square
from tests.lanes import __main__ as lanes
from tests.lanes import changes, recorder
from tests.lanes.__main__ import Attempt, Outcome, Ran
from tests.lanes.recorder import Result, Session

pytestmark = pytest.mark.thorough

GREEN, RED = (
    Session(0, {"t::a": Result("passed", 1.0)}),
    Session(1, {"t::a": Result("passed", 1.0), "t::b": Result("failed", 2.0), "t::s": Result("skipped")}),
)


def ran(lane: str, status: int = 0, session: Session | None = GREEN) -> Ran:
    return Ran(lane=lane, status=status, wall_s=2.0, processor_s=1.0, output=f"of {lane}", session=session)


def of(*attempts: Ran) -> tuple[Attempt, list[tuple[str, Session | None]]]:
    """Attempts as they come, and what was asked for."""
    asked: list[tuple[str, Session | None]] = []
    left = list(attempts)

    def attempt(lane: str, again: Session | None) -> Ran:
        asked.append((lane, again))
        found = next(each for each in left if each.lane == lane)
        left.remove(found)
        return found

    return attempt, asked


def closing(outcome: Outcome) -> list[str]:
    said = list(lanes.summary(outcome, {}, 5.0))
    return said[next(number for number, line in enumerate(said) if line.startswith("====")) :]


def test_what_failed_in_a_lane_that_measures_is_repeated_alone_and_said_last() -> None:
    again = ran("lab", session=Session(0, {"t::b": Result("passed")}))
    attempt, asked = of(ran("lab", 1, RED), ran("unit"), again)
    said: list[str] = []
    outcome = lanes.run_all(["lab", "unit"], attempt, said.append)
    assert asked[2:] == [("lab", RED)] and {lane for lane, _ in asked[:2]} == {"lab", "unit"}
    assert (outcome.failed, outcome.mended) == ([], ["t::b"])
    assert any("of lab" in text for text in said), "the first output is kept"
    assert closing(outcome) == [
        "==== 3 passed, 1 skipped in 5.00s ====",
        "passed at the second attempt: t::b",
    ]


@pytest.mark.parametrize("lane", ["unit", "lint", "docs", "fuzz"])
def test_other_lanes_have_no_second_attempt(lane: str) -> None:
    attempt, asked = of(ran(lane, 1, RED))
    outcome = lanes.run_all([lane], attempt, lambda _: None)
    assert (len(asked), outcome.failed) == (1, [lane])
    assert closing(outcome) == ["==== 1 failed, 1 passed, 1 skipped in 5.00s ====", f"failed: {lane}"]


@pytest.mark.parametrize(
    "session",
    [None, GREEN, Session(2, RED.tests), Session(5), Session(3, RED.tests)],
    ids=["a crash", "another command", "a collection error", "no tests", "an internal error"],
)
def test_what_failed_otherwise_than_by_a_test_is_not_repeated(session: Session | None) -> None:
    attempt, asked = of(ran("lab", 1, session))
    outcome = lanes.run_all(["lab"], attempt, lambda _: None)
    assert (len(asked), outcome.failed) == (1, ["lab"])
    assert closing(outcome)[-1] == "failed: lab"


def test_a_lane_without_a_failed_test_counts_as_an_error() -> None:
    outcome = Outcome(attempts=[ran("lab", 1, None), ran("unit")], mended=[], failed=["lab"])
    assert closing(outcome)[0] == "==== 1 passed, 1 error in 5.00s ===="


@pytest.mark.parametrize(
    "again",
    [
        ran("lab", 1, RED),
        ran("lab", 0, Session(0, {})),
        ran("lab", 0, Session(0, {"t::b": Result("skipped")})),
        ran("lab", 1, None),
    ],
    ids=["failed again", "no tests", "skipped", "a crash"],
)
def test_a_second_attempt_has_to_pass(again: Ran) -> None:
    attempt, _ = of(ran("lab", 1, RED), again)
    outcome = lanes.run_all(["lab"], attempt, lambda _: None)
    assert (outcome.failed, outcome.mended) == (["lab"], [])
    assert closing(outcome)[-1] == "failed: lab"


TESTS = """
import pathlib
import pytest

def test_good(): pass

@pytest.mark.parametrize("way", ["a b", "c"])
def test_bad(way): assert pathlib.Path("mended").exists()

@pytest.fixture
def broken(): assert pathlib.Path("mended").exists()

def test_set_up(broken): pass

@pytest.mark.skip
def test_skipped(): pass
"""


def test_the_plugin_writes_down_what_failed_and_repeats_that_alone(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.lanes import recorder\n"
        "def pytest_addoption(parser, pluginmanager):\n"
        "    pluginmanager.register(recorder)\n    recorder.add_options(parser)\n"
    )
    (tmp_path / "test_it.py").write_text(TESTS)

    def session(*words: str) -> Session:
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", ".", *words]
        subprocess.run(
            [*argv, "--record", "record.json"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(changes.ROOT)},
            capture_output=True,
            check=False,
        )
        found = recorder.read(tmp_path / "record.json")
        assert found is not None
        return found

    first = session()
    bad = ["test_it.py::test_bad[a b]", "test_it.py::test_bad[c]", "test_it.py::test_set_up"]
    assert (first.status, first.failed) == (1, bad)
    assert {name: test.outcome for name, test in first.tests.items()} == {
        **dict.fromkeys(bad, "failed"),
        "test_it.py::test_good": "passed",
        "test_it.py::test_skipped": "skipped",
    }
    (tmp_path / "before.json").write_bytes((tmp_path / "record.json").read_bytes())
    (tmp_path / "mended").touch()
    again = session("--again", "before.json")
    assert (again.status, sorted(again.tests), again.failed) == (0, bad, [])


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return changes.imports()


@pytest.mark.parametrize(
    ("path", "stock", "bare"),
    [
        ("harness/testbeds/lab/boot/init.sh", True, True),
        ("harness/hosts/remote.py", True, True),
        ("harness/model/__init__.py", True, True),  # imported by the rooms
        ("harness/analysis/ratios.py", False, False),
        ("harness/explain/remedy.py", False, False),
        ("harness/report/page.py", False, False),
        ("harness/removed.py", True, True),  # who imported it is not known
        ("packages-test.txt", True, True),
        ("tools/try-on.sh", True, True),
        ("docs/machines.md", True, False),
        ("docs/report.md", False, False),
        ("CHANGELOG.md", False, False),
        ("harness/hosts/README.md", False, False),
        ("Makefile", False, True),
        ("tests/machines/site.py", True, False),
        ("tests/lab/cli.py", True, False),  # imported by tests.machines
        ("tests/systems/test_bare.py", False, True),
        ("tests/unit/test_lanes.py", False, False),
        ("tests/data/results", False, False),
    ],
)
def test_a_lane_runs_when_a_change_can_reach_it(
    graph: grimp.ImportGraph, path: str, stock: bool, bare: bool
) -> None:
    other = "README.md"
    for lane, expected in (("stock", stock), ("bare", bare)):
        assert changes.reached_by(lane, [other, path], graph) == (path if expected else None), lane


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_lane_is_left_out_by_its_last_green_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    git(tmp_path, "init", "--quiet")
    (tmp_path / "README.md").write_text("one")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=one")
    commit = changes.commit_of_clone()
    assert commit == git(tmp_path, "rev-parse", "HEAD")
    assert changes.why_not("stock") is None, "it was never green"
    changes.note_green("stock", commit)
    changes.note_green("lab", commit)
    assert commit[:12] in (changes.why_not("stock") or "")
    assert changes.why_not("lab") is None, "it runs always"
    (tmp_path / "README.md").write_text("two")
    assert changes.commit_of_clone() == "" and changes.why_not("stock") is not None
    (tmp_path / "packages.txt").write_text("new, and not committed")
    assert changes.changed_since(commit) == ["README.md", "packages.txt"]
    assert changes.why_not("stock") is None
    (tmp_path / "packages.txt").unlink()
    changes.note_green("stock", "1" * 40)
    assert changes.why_not("stock") is None, "that commit is not in the clone's history"


def test_lanes_that_are_named_are_lanes_of_tox() -> None:
    known = set(lanes.lanes_of_tox())
    assert known >= lanes.MEASURING | lanes.WITHOUT_PYTEST | set(changes.WATCHED)
    assert not {"unit", "lint", "docs", "fuzz"} & lanes.MEASURING


@pytest.mark.parametrize(("rows", "columns"), [(14, 4), (5, 8), (1, 3), (4, 4), (3, 1)])
def test_a_square_has_each_row_and_each_column(rows: int, columns: int) -> None:
    cells = square(range(rows), range(columns))
    assert {row for row, _ in cells} == set(range(rows))
    assert {column for _, column in cells} == set(range(columns))
    assert len(cells) == len(set(cells)) == max(rows, columns)


def test_durations_are_kept_line_by_line() -> None:
    outcome = Outcome(attempts=[ran("lab", 1, RED), ran("lab")], mended=["t::b"], failed=[])
    file = lanes.keep(outcome, "abc")
    assert lanes.keep(outcome, "abc") == file
    first, *others = file.read_text().splitlines()
    assert len(others) == 3
    assert '"commit":"abc","lane":"lab","status":1,"wall_s":2.0,"processor_s":1.0' in first
    assert '"tests":{"t::a":1.0,"t::b":2.0}' in first
