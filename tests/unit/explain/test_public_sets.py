"""Published figures: the verdicts on them are those that were fixed, and the score is the documented one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import oracle
from harness.explain.oracle import Judged
from harness.explain.verdict import Confidence
from harness.parse import reported

FOUND = list(oracle.rows())
PAGE = (Path(__file__).parents[3] / "docs" / "oracle.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "judged"), [(n, j) for n, j, _, _ in FOUND], ids=lambda each: getattr(each, "title", each)
)
def test_a_verdict_is_as_it_was_fixed(name: str, judged: Judged) -> None:
    assert oracle.fixed()[name][judged.title] == (oracle.in_short(judged), str(judged.confidence))
    assert judged.decides or judged.confidence is Confidence.HIGH


def test_every_figure_has_a_source_and_what_the_authors_found() -> None:
    figures = {(name, judged.title) for name, judged, _, _ in FOUND}
    for known in (oracle.fixed(), oracle.explanations()):
        assert {(name, title) for name, of in known.items() for title in of} == figures
    for file in oracle.FOLDER.glob("*.toml"):
        if file.name not in (oracle.VERDICTS, oracle.EXPLANATIONS):
            assert all(each.source.startswith("https://") for each in reported.load(file))


def test_the_goals_are_met_and_the_page_has_the_score() -> None:
    words, is_met = oracle.summary(FOUND)
    assert is_met and words in PAGE
    for row in oracle.table(FOUND):
        assert row in PAGE


def test_a_miss_with_confidence_high_is_no_pass() -> None:
    name, judged, scored, said = next(row for row in FOUND if row[2] == "hit" and row[1].confidence == "high")
    words, is_met = oracle.summary([*FOUND, (name, judged, "miss", said)])
    assert not is_met and "wrong with confidence high: 1" in words and scored == "hit"
