"""Cells whose bottleneck was put in, as bench/whom_to_blame.py --save kept them, judged again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bench import whom_to_blame as bench
from bench.whom_to_blame import Judged, Score
from harness.analysis.limit import Limit
from harness.explain import waterfall
from harness.explain.text import Explained
from harness.explain.verdict import Confidence
from tests.unit.explain.test_explain import known

FILE = Path(__file__).parents[2] / "data" / "injections.json"


@pytest.fixture(scope="module")
def cells() -> list[Judged]:
    return msgspec.json.decode(FILE.read_bytes(), type=list[Judged])


def test_the_verdict_is_what_was_put_in(cells: list[Judged]) -> None:
    verdicts = [Explained.of(cell.evidence).verdict for cell in cells]
    assert all(sum(said.waterfall_ns.values()) == said.whole_ns for said in verdicts)
    found = [(cell.injected, said.limited_by) for cell, said in zip(cells, verdicts, strict=True)]
    assert len(found) >= 40
    assert sum(put_in is said for put_in, said in found) >= bench.PART * len(found), bench.confusion(found)
    # Nothing is blamed for what something else did: what is not named is unknown.
    assert sum(said not in (put_in, Limit.UNKNOWN) for put_in, said in found) == 0, bench.confusion(found)
    drawn = bench.confusion([(Limit.LINK, Limit.LINK), (Limit.LINK, Limit.CPU), (Limit.CPU, Limit.CPU)])
    assert "2 of 3 verdicts are what was put in (66.7%)" in drawn
    (row,) = [line.split() for line in drawn.splitlines() if line.startswith("link")]
    assert row == ["link", "1", "1"]


def test_every_experiment_is_there(cells: list[Judged]) -> None:
    assert {cell.experiment for cell in cells} == {experiment.name for experiment in bench.EXPERIMENTS}
    counts = Counter(cell.injected for cell in cells)
    # Where nothing is protected the processor's work is the lab's, and all of these links are emulated. The
    # target was watched in all of them.
    never = {Limit.UNKNOWN, Limit.FRAMING, Limit.LOST_PACKETS, Limit.CPU, Limit.TARGET, Limit.LATENCY}
    assert set(counts) == set(Limit) - never and min(counts.values()) >= 4
    # In virtual time one I/O alone is explained, beyond TCP's windows, which take time to grow.
    alone = [c.evidence for c in cells if c.evidence.is_virtual and c.evidence.depth == 1]
    steady = [found for found in alone if found.path is not None and found.path.round_trip_ns < 3e6]
    assert len(steady) >= 20
    for found in steady:
        guess = known(waterfall.best_guess(found))
        assert abs(waterfall.parts(guess)["rest"]) < 0.02 * guess.whole_ns, found.name


def test_the_target_is_half_of_an_answer_and_a_cache_s_disk_a_wrong_one(cells: list[Judged]) -> None:
    cell, cache = Explained.of(cells[0].evidence), "a cache of the target's answered"
    for injected, said, doubt, score in (
        (Limit.LINK, Limit.LINK, "", Score.RIGHT),
        (Limit.LINK, Limit.TARGET, "", Score.WRONG),
        (Limit.DEVICE, Limit.TARGET, "", Score.HALF),
        (Limit.CPU, Limit.UNKNOWN, "", Score.ABSTAINED),
        (Limit.UNKNOWN, Limit.LINK, cache, Score.RIGHT),
        (Limit.UNKNOWN, Limit.LINK, "", Score.ABSTAINED),
        (Limit.UNKNOWN, Limit.DEVICE, cache, Score.WRONG),
    ):
        verdict = replace(cell.verdict, limited_by=said, doubt=doubt)
        assert bench.scored(injected, replace(cell, verdict=verdict)) is score, (injected, said, doubt)


def test_the_goals_of_one_end() -> None:
    right, wrong = ("disk", Score.RIGHT, Confidence.HIGH), ("disk", Score.WRONG, Confidence.MEDIUM)
    unsaid = ("disk", Score.HALF, Confidence.MEDIUM)
    assert bench.is_good_enough([*[right] * 9, wrong])
    assert not bench.is_good_enough([*[right] * 8, wrong, wrong])
    assert not bench.is_good_enough([*[right] * 99, ("disk", Score.WRONG, Confidence.HIGH)])
    assert bench.is_good_enough([*[right] * 6, *[unsaid] * 4]) and not bench.is_good_enough([right, unsaid])
    assert bench.is_good_enough([right, ("narrow", Score.ABSTAINED, Confidence.NONE)])
    (row,) = [row for row in bench.scores([right, wrong, unsaid]) if row[0] == "disk"]
    assert row[:6] == ["disk", "3", "1", "1", "0", "1"]


def test_with_one_end_flash_that_is_slow_in_any_order_is_named_and_no_answer_is_wrong() -> None:
    cells = msgspec.json.decode((FILE.parent / "one-end.json").read_bytes(), type=list[Judged])
    found = [(cell.experiment, bench.scored(cell.injected, Explained.of(cell.evidence))) for cell in cells]
    assert Counter(found)["flash", Score.RIGHT] == 6 and Counter(found)["moving10000", Score.RIGHT] == 5
    assert Score.WRONG not in {score for _, score in found}
    assert all(cell.evidence.command_ns is not None for cell in cells)
    assert {cell.experiment for cell in cells} == {"flash", "moving10000", "target-core10"}
