"""Two labs of one user: each has folders of its own, and both have the project."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.lab.cli import PROJECT, ended

pytestmark = pytest.mark.lab


def test_a_clone_below_tmp_stays_in_sight() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        clone = Path(folder)
        (clone / "pyproject.toml").write_text("of the project", encoding="utf-8")
        isolated = ["sh", str(PROJECT / "tests/lab/isolated.sh"), str(clone / ".tox" / "isolated")]
        script = "pwd; ls /tmp; cat pyproject.toml; touch /tmp/isolated made"
        seen = ended([*isolated, "sh", "-euc", script], cwd=clone)
        assert (seen.status, seen.out) == (0, f"{clone}\n{clone.name}\nof the project"), seen
        assert (clone / "made").exists() and not Path("/tmp/isolated").exists()
        assert (clone / ".tox/isolated/tmp/isolated").exists()
