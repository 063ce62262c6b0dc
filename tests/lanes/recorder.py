"""A plugin of pytest: writes down what became of each test (--record), repeats what failed (--again), or
leaves out what `make test` has had and what no change reaches (--reached)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Result(msgspec.Struct):
    """What became of a test, and how long it took with its fixtures."""

    outcome: str = PASSED
    seconds: float = 0.0


class Session(msgspec.Struct):
    """One pytest: its exit status, and its tests by their node ids."""

    status: int
    tests: dict[str, Result] = {}

    @property
    def failed(self) -> list[str]:
        return [name for name, test in self.tests.items() if test.outcome == FAILED]


def read(file: Path) -> Session | None:
    """What was written down; None if pytest did not get so far."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Session)
    except (OSError, msgspec.MsgspecError):
        return None


def counted(file: Path) -> tuple[int, int]:
    """How many tests of a session that is under way have ended, and how many it has: 0 until it is known."""
    try:
        first, *ended = _progress(file).read_text(encoding="ascii").split()
        return len(ended), int(first)
    except (OSError, ValueError):
        return 0, 0


def _progress(file: Path) -> Path:
    """Where a session tells how far it is: how many tests it has, then a word for each that has ended."""
    return file.with_suffix(".progress")


class Recorder:
    """Writes a session down when it ends, and how far it is until then."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.tests: dict[str, Result] = {}
        _progress(file).unlink(missing_ok=True)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._begins(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if not _progress(self.file).exists():  # each of its processes collects all
            self._begins(len(ids))

    def _begins(self, tests: int) -> None:
        _progress(self.file).write_text(f"{tests}\n", encoding="ascii")

    def pytest_runtest_logfinish(self) -> None:
        with _progress(self.file).open("a", encoding="ascii") as reported:
            reported.write("x\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self.tests.setdefault(report.nodeid, Result())
        test.seconds += report.duration
        # A test has three reports, and whatever comes after a failure does not mend it.
        if report.outcome != PASSED and test.outcome != FAILED:
            test.outcome = report.outcome

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.file.write_bytes(msgspec.json.encode(Session(int(exitstatus), self.tests)))


def leave(config: pytest.Config, items: list[pytest.Item], wanted: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


class Again:
    """Leaves only the tests that failed in a session of before."""

    def __init__(self, before: Session) -> None:
        self.failed = frozenset(before.failed)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        leave(config, items, [item for item in items if item.nodeid in self.failed])


class Reached:
    """Leaves out the modules that a change does not reach, and what `make test` has had."""

    def __init__(self, modules: list[str]) -> None:
        self.modules = frozenset(modules)

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        name = collection_path.relative_to(config.rootpath).as_posix()
        return (collection_path.name.startswith("test_") and name not in self.modules) or None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        leave(config, items, [item for item in items if item.get_closest_marker("core") is None])


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("lanes")
    group.addoption("--record", type=Path, help="write down what became of each test")
    group.addoption("--again", type=Path, help="only the tests that failed, as such a file has them")
    group.addoption("--reached", type=Path, help="only modules of such a file, without what make test has")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # of pytest-xdist, whose controller hears of all tests
        return
    if file := config.getoption("record"):
        config.pluginmanager.register(Recorder(file))
    if file := config.getoption("reached"):
        config.pluginmanager.register(Reached(msgspec.json.decode(file.read_bytes(), type=list[str])))
    if file := config.getoption("again"):
        before = read(file)
        if before is None:
            raise pytest.UsageError(f"expected a file of --record, found none: {file}")
        config.pluginmanager.register(Again(before))
