"""What ``harness explain --try`` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import report
from harness.explain.text import Explained
from harness.model import Plan
from harness.model.errors import UsageError
from harness.model.units import unknown_name
from harness.questions.trial.plan import make_plans
from harness.results import planned, sections
from harness.results.store import RunFolder, open_runs
from harness.terminal.console import carry_out, measuring, print_plan
from harness.terminal.progress import process_started_s
from harness.terminal.streams import tell


def try_forecasts(paths: Sequence[Path], typed: Mapping[str, Any]) -> None:
    """Carry out the changes that are forecast of these cells of a run, as a run next to it. What reaches
    outside the lab has to be typed, so of that only the plan is made."""
    wanted = typed["cell"] or ()
    if not typed["try"]:
        raise UsageError("--cell is for --try, but only one of the two was given", hint="add --try")
    runs = open_runs(paths)
    if len(runs) != 1:
        raise UsageError(f"expected one run to try, found {len(runs)}", hint="name it: results/RUN-ID")
    cells = report.load(paths).explained
    found = [cell for cell in cells if not wanted or _names(cell) & {*wanted}]
    if unknown := [each for each in wanted if not any(each in _names(cell) for cell in cells)]:
        raise unknown_name("cell", unknown[0], sorted({name for cell in cells for name in _names(cell)}))
    plans = make_plans(runs[0].load_plan(), found)
    if not plans:
        raise UsageError(
            "no change is forecast of these cells that can be made here",
            hint="harness explain says of each cell what would help",
        )
    for made in plans:
        folder = RunFolder(runs[0].path.parent / made.run_id)
        if outside := planned.outside(made):
            folder.save_plan(made)
            what = " ".join(dict.fromkeys(option for option, _ in outside))
            tell(f"it reaches outside the lab ({what}), so that has to be typed:")
            tell(planned.resume_command(made, str(folder.path)))
            continue
        _measure(made, folder)


def _names(cell: Explained) -> set[str]:
    """As which it may be asked for."""
    column, workload = cell.evidence.column.label, cell.evidence.workload
    return {column, workload, f"{column} {workload}"}


def _measure(made: Plan, folder: RunFolder) -> None:
    """Carry out a plan that was made of another run's."""
    print_plan(made, tell)
    with measuring(made, folder, is_resumed=False) as state:
        cells = sections.schedule(made, folder.load_records()).expected
        outcome = carry_out(made, folder, state, process_started_s(), cells)
    for line in outcome.summary():
        tell(line)
