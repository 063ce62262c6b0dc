"""A minute of fuzzing, the same cases each time: as many as the machine comes to in that time."""

from __future__ import annotations

import pytest

from tests.fuzz.doors import DOORS
from tests.fuzz.driver import fuzz

SEED = 20261121
SECONDS = {
    "parsers": 9,
    "cuts": 5,
    "jobs": 3,
    "folders": 8,
    "sections": 6,
    "planted": 6,
    "zips": 5,
    "shares": 4,
}
SECONDS |= {"costs": 2, "settings": 3, "words": 6}
SECONDS = {name: SECONDS.get(name, 1) for name in DOORS}
"""With what it takes to begin a minute in all."""


@pytest.mark.parametrize("name", list(SECONDS))
def test_no_case_fails(name: str) -> None:
    reported = fuzz(DOORS[name], seed=SEED, seconds=SECONDS[name])
    assert reported.cases >= 20
    assert not reported.findings, str(reported)
