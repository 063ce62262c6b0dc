"""What CI runs: what is repeated and said last, which modules a change reaches, the cells of a square."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.square import square
from tests.lanes import __main__ as lanes
from tests.lanes import changes, progress, recorder
from tests.lanes.__main__ import Attempt, Outcome, Ran
from tests.lanes.changes import WEEK_S, Green
from tests.lanes.recorder import Result, Session

pytestmark = pytest.mark.thorough

GREEN = Session(0, {"t::a": Result("passed", 1.0)})
RED = Session(1, {**GREEN.tests, "t::b": Result("failed", 2.0), "t::s": Result("skipped")})


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
    return list(lanes.closing(outcome, {}, 5.0))


def run_all(names: list[str], attempt: Attempt, said: list[str] | None = None) -> Outcome:
    said = [] if said is None else said
    return lanes.run_all(names, attempt, lambda ran: said.append(lanes.ended(ran)), said.append)


def test_what_failed_in_a_lane_that_measures_is_repeated_alone_and_said_last() -> None:
    again = ran("lab", session=Session(0, {"t::b": Result("passed")}))
    attempt, asked = of(ran("lab", 1, RED), ran("unit"), again)
    said: list[str] = []
    outcome = run_all(["lab", "unit"], attempt, said)
    assert asked[2:] == [("lab", RED)] and {lane for lane, _ in asked[:2]} == {"lab", "unit"}
    assert (outcome.failed, outcome.mended) == ([], ["t::b"])
    assert any("of lab" in text for text in said), "the first output is kept"
    last = "==== 3 passed, 1 skipped in 5.00s ===="
    assert closing(outcome) == ["passed at the second attempt: t::b", last]


@pytest.mark.parametrize("lane", ["unit", "lint", "docs", "fuzz"])
def test_other_lanes_have_no_second_attempt(lane: str) -> None:
    attempt, asked = of(ran(lane, 1, RED))
    outcome = run_all([lane], attempt)
    assert (len(asked), outcome.failed) == (1, [lane])
    assert closing(outcome) == [f"failed: {lane}", "==== 1 failed, 1 passed, 1 skipped in 5.00s ===="]


@pytest.mark.parametrize(
    "session",
    [None, GREEN, Session(2, RED.tests), Session(5), Session(3, RED.tests)],
    ids=["a crash", "another command", "a collection error", "no tests", "an internal error"],
)
def test_what_failed_otherwise_than_by_a_test_is_not_repeated(session: Session | None) -> None:
    attempt, asked = of(ran("lab", 1, session))
    outcome = run_all(["lab"], attempt)
    assert (len(asked), outcome.failed) == (1, ["lab"])
    assert closing(outcome)[0] == "failed: lab"


def test_a_lane_without_a_failed_test_counts_as_an_error() -> None:
    outcome = Outcome(attempts=[ran("lab", 1, None), ran("unit")], mended=[], failed=["lab"])
    assert closing(outcome)[-1] == "==== 1 passed, 1 error in 5.00s ===="


SKIPPED = Session(0, {"t::b": Result("skipped")})


@pytest.mark.parametrize(
    ("status", "again"),
    [(1, RED), (0, Session(0, {})), (0, SKIPPED), (1, None)],
    ids=["failed again", "no tests", "skipped", "a crash"],
)
def test_a_second_attempt_has_to_pass(status: int, again: Session | None) -> None:
    attempt, _ = of(ran("lab", 1, RED), ran("lab", status, again))
    outcome = run_all(["lab"], attempt)
    assert (outcome.failed, outcome.mended) == (["lab"], [])
    assert closing(outcome)[0] == "failed: lab"


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
        env = {"PYTHONPATH": str(changes.ROOT)}
        argv += ["--record", "record.json"]
        subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, check=False)
        found = recorder.read(tmp_path / "record.json")
        assert found is not None
        return found

    first = session()
    bad = ["test_it.py::test_bad[a b]", "test_it.py::test_bad[c]", "test_it.py::test_set_up"]
    assert (first.status, first.failed) == (1, bad)
    others = {"test_it.py::test_good": "passed", "test_it.py::test_skipped": "skipped"}
    outcomes = {name: test.outcome for name, test in first.tests.items()}
    assert outcomes == {**dict.fromkeys(bad, "failed"), **others}
    (tmp_path / "before.json").write_bytes((tmp_path / "record.json").read_bytes())
    (tmp_path / "mended").touch()
    again = session("--again", "before.json")
    assert (again.status, sorted(again.tests), again.failed) == (0, bad, [])
    assert recorder.counted(tmp_path / "record.json") == (3, 3)
    (tmp_path / "record.progress").write_text("x\n", "ascii")  # as if its first line were gone
    assert recorder.counted(tmp_path / "record.json") == (0, 0)


def test_of_reached_modules_it_leaves_out_what_make_test_has_had(tmp_path: Path) -> None:
    for name in ("one", "two"):
        marked = "import pytest\n@pytest.mark.core\ndef test_core(): pass\ndef test_other(): pass\n"
        (tmp_path / f"test_{name}.py").write_text(marked)
    plugin = recorder.Reached(["test_one.py"])
    words = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    found = recorder.Recorder(tmp_path / "record.json")
    assert pytest.main([*words, "-W", "ignore"], plugins=[plugin, found]) == 0
    assert list(found.tests) == ["test_one.py::test_other"]


@pytest.fixture(scope="module")
def reach() -> changes.Reach:
    return changes.Reach()


EVERY = {module for module in changes.test_modules() if not module.startswith("tests/browser/")}
LAB, MACHINES, SYSTEMS = (
    {module for module in EVERY if module.startswith(f"tests/{folder}/")}
    for folder in ("lab", "machines", "systems")
)


@pytest.mark.parametrize(
    ("path", "reached", "not_reached"),
    [
        ("harness/testbeds/lab/boot/init.sh", EVERY, ""),
        ("harness/hosts/remote.py", EVERY, ""),
        ("harness/model/__init__.py", {*EVERY, "page"}, ""),
        ("harness/analysis/ratios.py", {*EVERY, "page"}, ""),
        ("harness/explain/remedy.py", "explain trial page", "interruption isolated confined short bare"),
        ("harness/report/page.py", "page portals", "interruption probes matrix"),
        ("harness/questions/documents/page.py", "articles", "page matrix interruption probes"),
        ("harness/storage/nvme/transport.py", "transports short", "matrix interruption probes"),
        ("harness/protection/macsec/kind.py", "protections transports", "interruption persistent_lab"),
        ("harness/network/links.py", EVERY, ""),
        ("harness/questions/fault/around.py", "fault", "knee matrix"),
        ("harness/questions/knee/search.py", "knee", "sweep matrix"),
        ("harness/observe/snmp/hop.py", "snmp", "matrix interruption"),
        ("harness/testbeds/lab/kernels/clock.patch", "virtual_time lab_kernel", "persistent_lab matrix"),
        ("harness/removed.py", EVERY, ""),  # who imported it is not known
        ("harness/hosts/README.md", "", EVERY),
        ("packages-test.txt", EVERY, ""),
        ("profiles/links/wired.toml", EVERY, ""),  # the default
        ("profiles/links/openflow.toml", "openflow probes", "matrix interruption"),
        ("profiles/links/routed.toml", "paths", "matrix interruption"),
        ("ipsec/README.md", "", EVERY),
        ("tools/try-on.sh", MACHINES | SYSTEMS, "matrix"),
        ("Makefile", "bare", "matrix"),
        ("docs/machines.md", MACHINES, "matrix"),
        ("docs/reading.md", "", EVERY),
        ("CHANGELOG.md", "", EVERY),
        ("tests/machines/site.py", MACHINES, "bare matrix"),
        ("tests/lab/cli.py", EVERY, ""),
        ("tests/lab/inside/fails_closed.py", "broken", "matrix distributed"),
        ("tests/lab/test_interruption.py", "interruption", "matrix"),
        ("tests/data/virtual/linux-6.1-fio-3.33/iscsi-ipsec.json", "virtual_time", "matrix"),
        ("tests/unit/test_lanes.py", "", EVERY),
    ],
)
def test_a_module_runs_when_a_change_can_reach_it(
    reach: changes.Reach, path: str, reached: set[str] | str, not_reached: set[str] | str
) -> None:
    def modules(these: set[str] | str) -> set[str]:
        words = these.split() if isinstance(these, str) else these
        patterns = [re.compile(rf"\b(test_)?{word}\b") for word in words]
        found = {each for each in changes.test_modules() if any(known.search(each) for known in patterns)}
        assert len(found) >= len(words)
        return found

    found = reach.by(["README.txt", path])
    assert modules(reached) - found.keys() == set()
    assert modules(not_reached) & found.keys() == set()
    assert set(found.values()) <= {path}


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_module_is_left_out_by_its_last_green_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    for folder in ("harness", "tests/lab", "bench"):
        (tmp_path / folder).mkdir(parents=True)
    names = ["tests/lab/test_one.py", "tests/lab/test_two.py"]
    one, two = (tmp_path / name for name in names)
    one.write_text("1")
    two.write_text("2")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=one")
    commit = changes.commit_of_clone()
    assert commit == git(tmp_path, "rev-parse", "HEAD")
    monkeypatch.setattr(changes.Reach, "__init__", lambda _: None)
    monkeypatch.setattr(changes.Reach, "by", lambda _, changed: {path: path for path in changed})

    def ran(green: Green, now_s: float = 100.0) -> list[str]:
        green.save()
        assert Green.load() == green
        return sorted(changes.to_run(Green.load(), now_s)[0])

    green = Green()
    assert ran(green) == names, "none was ever green"
    green.note(names, [], commit, 100.0)
    assert ran(green) == []
    one.write_text("other")
    assert changes.commit_of_clone() == "" and changes.changed_since(commit) == names[:1]
    assert ran(green) == names[:1]
    green.note(names, names[1:], "1" * 40, 100.0)
    assert ran(green) == names[:1], "that commit is not in the clone's history; the other was not green"
    green.note(names[:1], [], commit, 100.0)
    assert (green.since, ran(green, 100.0 + WEEK_S)) == (1, names[:1])
    assert ran(green, 101.0 + WEEK_S) == names, "a week"
    green.since = changes.OFTEN
    assert ran(green) == names, "twenty green runs"
    green.note(names, [], commit, 100.0)
    assert (green.since, green.everything_unix_s) == (0, 100.0)
    one.write_text("1")
    green.modules[names[1]] = "1" * 40
    assert ran(green) == [], "what was left before waits while nothing changes that it stands on"
    two.write_text("other")
    assert ran(green) == names[1:]


@pytest.mark.parametrize(
    ("changed", "package"),
    [
        ("harness/observe/hops.py harness/observe/counters.py tests/unit/test_hops.py README.md", "observe"),
        ("harness/observe/hops.py harness/table/build.py", None),
        ("harness/model/ends.py", None),
        ("harness/api.py", None),
        ("harness/observe/hops.py tests/lab/cli.py", None),
        ("tests/lab/test_interruption.py", None),
    ],
)
def test_a_change_of_one_package_runs_what_there_is_time_for(
    changed: str, package: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert changes.only_package(changed.split()) == package
    took = {"a": {"lab": 350.0}, "b": {"lab": 200.0}, "d": {"stock": 600.0}}
    took["c"] = {"lab": 70.0, "stock": 50.0}
    assert changes.in_time("abcd", took) == {"a", "c"}
    assert changes.in_time(["new"], {}) == {"new"}, "what never ran is not known to take long"
    monkeypatch.setattr(changes, "ALL_S", 400.0)
    assert changes.in_time("acb", took) == {"a"}


def test_of_a_package_the_modules_that_name_it_run_first(reach: changes.Reach) -> None:
    order = reach.nearest_first(EVERY, "storage")
    assert {*order} == EVERY
    assert order.index("tests/lab/test_target.py") < order.index("tests/lab/test_confined.py")


def test_durations_are_read_by_module_of_lanes_that_were_green() -> None:
    took = Session(0, {"t.py::a": Result("passed", 1.0), "t.py::b[x]": Result("passed", 2.0)})
    for status, session in ((1, RED), (0, took)):
        lanes.keep(Outcome(attempts=[ran("broken", status, session)], mended=[], failed=[]), "abc")
    assert changes.durations_by_module()["t.py"] == {"broken": 3.0}


def test_what_a_lane_that_failed_otherwise_had_is_not_green() -> None:
    modules = ["tests/lab/test_a.py", "tests/lab/test_b.py", "tests/machines/test_c.py"]
    failed = Session(1, {"tests/lab/test_a.py::t": Result("failed")})
    for session, green in ((failed, modules[1:]), (None, modules[2:])):
        Green().save()
        outcome = Outcome(attempts=[ran("lab", 1, session), ran("stock")], mended=[], failed=["lab"])
        lanes.note_green(outcome, modules, "c" * 40)
        assert Green.load().modules == dict.fromkeys(green, "c" * 40)


@pytest.mark.parametrize(
    ("done", "elapsed_s", "left"),
    [(0.0, 10.0, 390.0), (0.1, 500.0, 0.0), (0.5, 300.0, 300.0), (1.0, 9.0, 0.0)],
)
def test_what_is_left_goes_by_what_was_done(done: float, elapsed_s: float, left: float) -> None:
    assert progress.left_s(done, elapsed_s, 400.0) == left


def test_progress_counts_tests_of_lanes_that_ran_run_and_will_run(tmp_path: Path) -> None:
    (tmp_path / "unit.progress").write_text("800\n" + "x\n" * 200)
    expected = {"docs": (1, 40.0), "unit": (900, 400.0), "core": (30, 100.0)}
    shown = progress.Progress(tmp_path, expected, 600.0, print)
    shown.ended.add("docs")
    assert re.fullmatch(r"\[201/831\] .* left", shown.now())
    assert progress.words(412, 4800, 361.0) == "[412/4800] 6 min left"


def test_of_lanes_that_leave_modules_out_a_part_of_the_time_is_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    took = {f"tests/lab/test_{name}.py": {"lab": seconds} for name, seconds in (("a", 30.0), ("b", 90.0))}
    monkeypatch.setattr(changes, "test_modules", lambda: [*took, "tests/machines/test_c.py"])
    monkeypatch.setattr(changes, "durations_by_module", lambda: took)
    reached = ["tests/lab/test_a.py", "tests/machines/test_c.py"]
    parts = {
        lane: changes.part_of(lane, lanes.FOLDER_OF[lane], reached) for lane in ("lab", "broken", "stock")
    }
    assert parts == {"lab": 0.25, "broken": 0.5, "stock": 1.0}
    known = lanes.Durations(
        test_s=10.0,
        all_s=1000.0,
        lane={
            name: lanes.Known(tests=20, wall_s=wall_s, processor_s=100.0, when="")
            for name, wall_s in (("lab", 600.0), ("broken", 600.0), ("docs", 50.0), ("unit", 50.0))
        },
    )
    everything = [*known.lane]
    expected, of_all_s = lanes.to_expect(known, {"lab": 0.25}, everything)
    assert expected == {"lab": (5, 25.0)} and of_all_s == 150.0
    assert lanes.to_expect(known, dict.fromkeys(everything, 1.0), everything)[1] == 1000.0


def test_a_test_that_passed_alone_is_written_down_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "unexplained.toml"
    file.write_text('"t::a" = "2026-11-28, abc"\n')
    monkeypatch.setattr(lanes, "UNEXPLAINED", file)
    assert lanes.write_unexplained(["t::a", 't::b["x"]'], "c" * 40) == ['t::b["x"]']
    assert lanes.write_unexplained(["t::a", 't::b["x"]'], "") == []


def test_lanes_that_are_named_are_lanes_of_tox() -> None:
    known = {name.partition(":")[2] for name in lanes.config() if name.startswith("testenv:")}
    of_all = set(lanes.lanes_of_tox())
    assert known >= lanes.MEASURING | lanes.WITHOUT_PYTEST | {*lanes.TEST}
    assert of_all == {*lanes.FOLDER_OF, *lanes.TEST, "without"} - {"core", "core-custom"}
    assert lanes.durations().lane.keys() == of_all | {*lanes.TEST}
    assert not {"unit", "lint", "docs", "fuzz"} & lanes.MEASURING


def test_contributing_has_the_table_of_lanes() -> None:
    assert "\n".join(lanes.table()) in (changes.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


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
