"""What all unit tests have in common."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables are kept in a folder of the test's own, and not in the user's."""
    # Not mktemp(), which looks through all folders of all tests so far.
    folder = tmp_path_factory.getbasetemp() / "caches" / str(next(NUMBERS))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "harness"
