"""Cells whose bottleneck was put in, as bench/whom_to_blame.py --save kept them, judged again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from bench.whom_to_blame import EXPERIMENTS, PART, Judged, confusion
from harness.explain import Explained, Limit, waterfall

FILE = Path(__file__).parents[2] / "data" / "injections.json"
FEWEST = 40


@pytest.fixture(scope="module")
def cells() -> list[Judged]:
    return msgspec.json.decode(FILE.read_bytes(), type=list[Judged])


def test_the_verdict_is_what_was_put_in(cells: list[Judged]) -> None:
    found = [(cell.injected, Explained.of(cell.evidence).verdict.limited_by) for cell in cells]
    assert len(found) >= FEWEST
    assert sum(put_in is said for put_in, said in found) >= PART * len(found), confusion(found)
    # Nothing is blamed for what something else did: what is not named is unknown.
    assert sum(said not in (put_in, Limit.UNKNOWN) for put_in, said in found) == 0, confusion(found)


def test_every_experiment_is_there(cells: list[Judged]) -> None:
    assert {cell.experiment for cell in cells} == {experiment.name for experiment in EXPERIMENTS}
    counts = Counter(cell.injected for cell in cells)
    # Where nothing is protected the processor's work is the lab's, and all of these links are emulated. The
    # target was watched in all of them.
    assert set(counts) == set(Limit) - {Limit.UNKNOWN, Limit.FRAMING, Limit.CPU, Limit.TARGET}
    assert min(counts.values()) >= 4


def test_every_waterfall_adds_up(cells: list[Judged]) -> None:
    for cell in cells:
        verdict = Explained.of(cell.evidence).verdict
        assert sum(verdict.waterfall_ns.values()) == verdict.whole_ns


def test_in_virtual_time_one_io_alone_is_explained(cells: list[Judged]) -> None:
    """Beyond TCP's windows, which take time to grow, the closed form leaves next to nothing."""
    alone = [c.evidence for c in cells if c.evidence.is_virtual and c.evidence.depth == 1]
    steady = [found for found in alone if found.path is not None and found.path.round_trip_ns < 3e6]
    assert len(steady) >= 20
    for found in steady:
        guess = waterfall.best_guess(found)
        assert guess is not None
        assert abs(waterfall.parts(guess)["rest"]) < 0.02 * guess.whole_ns, found.name


def test_the_confusion_table_shows_what_is_confused() -> None:
    drawn = confusion([(Limit.LINK, Limit.LINK), (Limit.LINK, Limit.CPU), (Limit.CPU, Limit.CPU)])
    assert "2 of 3 verdicts are what was put in (66.7%)" in drawn
    (row,) = [line.split() for line in drawn.splitlines() if line.startswith("link")]
    assert row == ["link", "1", "1"]
