"""The stored score of forecasts."""

from __future__ import annotations

from tools import scores


def test_the_forecasts_by_link_are_those_of_each() -> None:
    each, by_link = scores.load("forecasts-each"), scores.load("forecasts")
    assert sum(int(row[2]) for row in by_link.rows) == len(each.rows)
    assert sum(bool(row[-1]) for row in each.rows) == 109
