"""What a command refuses is not in its help."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.planning import knee, sweep
from tests.unit.command import harness


@pytest.mark.parametrize(
    ("words", "refused"),
    [("sweep --over depth=1..4", sweep.OF_RUNS.values()), ("knee --p99 2ms", knee.WITH_LOADS.values())],
)
def test_an_option_that_is_refused_is_not_listed(words: str, refused: list[str], tmp_path: Path) -> None:
    command = words.split()[0]
    listed = harness(command, "--help", cwd=tmp_path).stdout
    for option in refused:
        assert f"{option} " not in listed
        value = "5%" if option == "--confidence" else "3"
        done = harness(*words.split(), option, value, "--plan", cwd=tmp_path)
        assert done.returncode == 2 and f"{option} is for harness run" in done.stderr, done
