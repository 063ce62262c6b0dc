"""Folders of sweeps and of searches for knees that somebody damaged: what reads their curves, and what would
go on with them."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path
from random import Random

import msgspec

from harness.model import Cell, Plan, Record
from harness.results.axes import curve_of, workloads
from harness.results.store import RunFolder
from tests.fuzz.driver import Case, several
from tests.fuzz.folders import damage, in_folder
from tests.unit.planning import test_knee as of_knees
from tests.unit.planning import test_sweep as of_sweeps

STORED = Path(__file__).parents[2] / "docs" / "figures" / "sweep-virtual"
RUN_ID = "20261129-010203-5eed"

COMMANDS: dict[str, tuple[str, ...]] = {
    "table": ("table", "RUN"),
    "table as json": ("table", "RUN", "--format", "json"),
    "explain": ("explain", "RUN"),
    "explain as json": ("explain", "RUN", "--format", "json"),
    "summary": ("explain", "RUN", "--summary"),
    "what if": ("explain", "RUN", "--what-if", "2x"),
    "report": ("report", "RUN", "-o", "page.html"),
    **{f"plot {kind}": ("plot", kind, "RUN", "-o", "a.svg") for kind in ("curves", "response", "heat-map")},
    **{f"export to {name}": ("export", "RUN", "--to", name) for name in ("csv", "jsonl")},
    "compare": ("compare", "RUN", "GOOD"),
    "resume": ("run", "--resume", "./RUN", "--plan"),
    "cpu-cost": ("cpu-cost", "RUN"),
}


@cache
def runs() -> dict[str, Path]:
    """A stored sweep, and smaller ones of networks and queues that are calculated, as far as they came."""
    found = {"stored": STORED}
    one = of_sweeps.planned("depth=1..64", ipsec=("both",), links=("wired",))
    two = of_sweeps.planned("depth=1,4,16", "rtt=0.1ms..10ms", ipsec=("off",), links=("wired",))
    found["depth"] = _saved(one, of_sweeps.carried_out(one, most=9, of=_trial))
    found["two axes"] = _saved(two, of_sweeps.carried_out(two, most=7, of=_trial))
    search = of_knees.planned()
    found["knee"] = _saved(search, of_knees.carried_out(search))
    found["search"] = _saved(search, of_knees.carried_out(search)[:5])
    return found


def _trial(plan: Plan, cell: Cell, order: int) -> Record:
    """What is measured of a network whose every point is known."""
    found = curve_of(plan, cell.column, workloads(plan.jobs)[cell.workload])
    assert found is not None
    return of_sweeps.measure(plan, cell, order, of_sweeps.network({"depth": 1, "block": 4096, **found[1]}))


def _saved(plan: Plan, records: list[Record]) -> Path:
    made = tempfile.TemporaryDirectory(prefix="fuzz-")
    atexit.register(made.cleanup)
    run = RunFolder(Path(made.name, RUN_ID))
    run.save_plan(msgspec.structs.replace(plan, run_id=RUN_ID))
    for record in records:
        run.save_record(msgspec.structs.replace(record, run_id=RUN_ID))
    run.save_environment({})
    return run.path


class Sweeps:
    name = "sweeps"

    def draw(self, chance: Random) -> Case:
        # The stored one takes ten times as long as each of the others.
        of = chance.choice([*[each for each in runs() if each != "stored"] * 5, "stored"])
        command = chance.choice(list(COMMANDS))
        return Case(f"{of}: {command}", several(chance, lambda chance: damage(chance, runs()[of])))

    def check(self, case: Case) -> None:
        of, _, command = case.start.partition(": ")
        in_folder(COMMANDS[command], case.parts, runs()[of])
