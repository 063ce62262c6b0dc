"""Sweeps that somebody damaged: a stored one, and smaller ones of networks that are calculated."""

from __future__ import annotations

from pathlib import Path

from harness.model import Cell, Plan, Record
from harness.questions.sweep.section import SECTION
from harness.results.axes import curve_of, workloads
from tests.fuzz.sections import PLANNED, saved
from tests.unit.questions.carried_out import measure
from tests.unit.questions.sweep.test_sweep import carried_out, network, planned

STORED = Path(__file__).parents[3] / "docs" / "figures" / "sweep-virtual"


def _trial(plan: Plan, cell: Cell, order: int) -> Record:
    """What is measured of a network whose every point is known."""
    found = curve_of(plan, SECTION.of(plan).over, cell.column, workloads(plan.jobs)[cell.workload])
    assert found is not None
    return measure(plan, cell, order, network({"depth": 1, "block": 4096, **found[1]}))


def _depth() -> Path:
    plan = planned("depth=1..64", ipsec=("both",), links=("wired",))
    return saved(plan, carried_out(plan, most=9, of=_trial))


def _two_axes() -> Path:
    plan = planned("depth=1,4,16", "rtt=0.1ms..10ms", ipsec=("off",), links=("wired",))
    return saved(plan, carried_out(plan, most=7, of=_trial))


PLANNED |= {"stored": lambda: STORED, "depth": _depth, "two axes": _two_axes}
