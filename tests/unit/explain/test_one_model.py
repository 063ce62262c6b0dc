"""The same figure for the same thing, whichever command says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis.limit import Limit
from harness.explain import demand, explain, what_if
from harness.explain.predicted import Ends, NetworkPath, Predicted, predict
from harness.explain.text import Explained
from harness.results.measured import Measured

FIGURES = Path(__file__).parents[3] / "docs" / "figures"
PATH = ("round_trip", "window", "link", "transport", "framing")


@pytest.fixture(scope="module", params=["make-run", "protections"])
def stored(request: pytest.FixtureRequest) -> Measured:
    return Measured.read([FIGURES / request.param])


def test_the_path_takes_the_same_in_verdicts_and_predictions(stored: Measured) -> None:
    ends, plan = Ends(target=demand.costs_of(stored)), demand.joined([*stored.plans.values()])
    verdicts = {
        (each.evidence.column, each.evidence.workload): each
        for each in explain(stored.records, stored.plans, stored.probes)
    }
    compared = 0
    for (column, workload), cell in verdicts.items():
        link = plan.links.get(column.link)
        if column.is_local or link is None or plan.has_radio(link):
            continue
        path = NetworkPath(column=column, link=link, proposals=plan.proposals)
        (found,) = predict(ends, [path], [job for job in plan.jobs if job.name == workload])
        _compare(cell, found)
        compared += 1
    assert compared >= 8


def _compare(cell: Explained, found: Predicted) -> None:
    said, parts = cell.verdict, found.breakdown_ns
    hidden = said.overlapped_ns.keys() & {*PATH}
    assert not hidden and sum(said.waterfall_ns.values()) == said.whole_ns
    for name in PATH:
        # A core that is slower than the link hides some of it; nothing makes it longer.
        assert parts.get(name, 0.0) <= said.waterfall_ns.get(name, 0) * 1.001 + 1
        if found.limited_by is not Limit.CPU:
            assert parts.get(name, 0.0) == pytest.approx(said.waterfall_ns.get(name, 0), rel=0.01, abs=1500)


def test_a_change_starts_from_the_prediction(stored: Measured) -> None:
    changed = what_if.of_run(stored, "rate=2x")
    ends, plan = (
        Ends(target=demand.costs_of(stored, ", ".join(stored.runs))),
        demand.joined([*stored.plans.values()]),
    )
    for each in changed.cells:
        column = next(column for column in plan.columns if column.label == each.name)
        path = NetworkPath(column=column, link=plan.links.get(column.link), proposals=plan.proposals)
        (found,) = predict(ends, [path], [job for job in plan.jobs if job.name == each.workload])
        assert each.predicted_mb_s == found.mb_s
