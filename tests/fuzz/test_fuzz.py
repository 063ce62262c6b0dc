"""A minute of fuzzing, the same cases each time: as many as the machine comes to in that time."""

from __future__ import annotations

import pytest

from tests.fuzz.doors import DOORS
from tests.fuzz.driver import fuzz

SEED = 20261121
SECONDS = {"parsers": 20, "cuts": 10, "folders": 24}
"""With what it takes to begin a minute in all. The doors `planted` and `words` are tried by hand: what they
find (endless files, -o on a device, `config check` with a job file) is known and not mended yet."""


@pytest.mark.parametrize("name", list(SECONDS))
def test_no_case_fails(name: str) -> None:
    told = fuzz(DOORS[name], seed=SEED, seconds=SECONDS[name])
    assert told.cases >= 20
    assert not told.findings, str(told)
