"""A plugin of pytest: writes down what became of each test (--record), or repeats what failed (--again)."""

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


class Recorder:
    """Writes a session down when it ends."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.tests: dict[str, Result] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self.tests.setdefault(report.nodeid, Result())
        test.seconds += report.duration
        # A test has three reports, and whatever comes after a failure does not mend it.
        if report.outcome != PASSED and test.outcome != FAILED:
            test.outcome = report.outcome

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.file.write_bytes(msgspec.json.encode(Session(int(exitstatus), self.tests)))


class Again:
    """Leaves only the tests that failed in a session of before."""

    def __init__(self, before: Session) -> None:
        self.failed = frozenset(before.failed)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if item.nodeid not in self.failed]
        items[:] = [item for item in items if item.nodeid in self.failed]
        config.hook.pytest_deselected(items=others)


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("lanes")
    group.addoption("--record", type=Path, help="write down what became of each test")
    group.addoption("--again", type=Path, help="only the tests that failed, as such a file has them")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # of pytest-xdist, whose controller hears of all tests
        return
    if file := config.getoption("record"):
        config.pluginmanager.register(Recorder(file))
    if file := config.getoption("again"):
        before = read(file)
        if before is None:
            raise pytest.UsageError(f"expected a file of --record, found none: {file}")
        config.pluginmanager.register(Again(before))
