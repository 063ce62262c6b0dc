"""What all unit tests have in common."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.installed import asked_once
from tests.unit.processes import Server

NUMBERS = itertools.count()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not read what `make check` leaves out: each of its processes would take half a second for it."""
    if config.option.markexpr != "not thorough" or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.thorough\n" in collection_path.read_text(encoding="utf-8") or None


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What can be made again is kept in a folder of the test's own, and not in the user's."""
    # Not mktemp(), which looks through all folders of all tests so far.
    folder = tmp_path_factory.getbasetemp() / "caches" / str(next(NUMBERS))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "harness"


@pytest.fixture(autouse=True, scope="session")
def nothing_takes_long() -> Iterator[None]:
    """Installed programs are asked the same question once; what is written need not survive a power cut."""
    with asked_once(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """What processes are forked from."""
    server = Server()
    yield server
    server.close()


@pytest.fixture
def processes(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """Starts commands in processes of their own, whose testbed is the test's."""
    server.testbed = tmp_path_factory.getbasetemp() / "testbeds" / str(next(NUMBERS))
    server.testbed.mkdir(parents=True)
    return server
