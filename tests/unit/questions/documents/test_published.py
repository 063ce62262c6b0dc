"""Published curves as data: what they name is planned, and how they are compared with ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.published import Curve, Figure, curves, lines
from tests.unit.command import harness
from tests.unit.planning.test_custom_kernel import built  # noqa: F401  (a fixture)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("curve", curves(), ids=lambda curve: curve.title)
def test_each_figure_is_of_cells_that_its_run_has(curve: Curve) -> None:
    planned = {}
    for run in curve.runs:
        done = harness(*curve.words(run), "--plan", cwd=Path("/"))
        assert done.returncode == 0, done.stderr
        planned[run] = done.stdout.replace(",", " ").split()
    for figure in curve.figure:
        for cell in {figure.of, figure.compared_with or figure.of}:
            run, link, workload = cell.split()
            assert {link, workload} <= {*planned[run]}
    assert any(figure.published for figure in curve.figure)


def test_a_figure_is_a_rate_or_a_ratio_and_is_close_within_ten_percent() -> None:
    def said(published: float, compared_with: str | None) -> tuple[list[str], bool]:
        figure = Figure(what="reads", of="a", compared_with=compared_with, published=published)
        curve = Curve(title="x", source="y", known="k", assumed="a", options={}, runs={}, figure=(figure,))
        return lines(curve, {"a": 3.0, "b": 2.0})

    found, is_close = said(1.4, "b")
    assert is_close and found[-2].split() == ["reads", "1.4", "1.500", "+7.1%"]
    for rate, compared_with, words, is_near in ((1.3, "b", "+15.4%", False), (3.0, None, "+0.0%", True)):
        found, is_close = said(rate, compared_with)
        assert is_close is is_near and found[-2].endswith(words)
