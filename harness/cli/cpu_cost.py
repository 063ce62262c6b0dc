"""The command ``harness cpu-cost``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from tabulate import tabulate

from harness.analysis.cpu_costs import CpuCosts
from harness.explain import compared, demand, predicted
from harness.model import Plan, temporary
from harness.model.errors import Interrupted, UsageError
from harness.model.units import format_percent
from harness.parse.cpu_costs import load_cpu_costs, written
from harness.parse.files import shown_path
from harness.parse.hosts import LOCAL, parse_address
from harness.planning.cpu_costs import CpuCostRequest, make_plan
from harness.probes import by_itself
from harness.results.measured import Measured
from harness.results.store import RunFolder
from harness.terminal import options
from harness.terminal.common import output_option, write
from harness.terminal.console import PlanOption, QuietOption, carry_out, measuring, print_plan, tell_start
from harness.terminal.progress import process_started_s
from harness.terminal.streams import be_quiet, tell
from harness.testbeds import testbed

OPTIONS = (
    *("links", "ipsec", "protect", "transports", "testbed", "kernels", "lab_kernel", "target", "initiators"),
    *("repeats", "retries", "runtime", "cipher_driver", "backing", "results", "seed"),
)
"""Those of ``harness run`` that matter to CPU costs."""


@options.taking(CpuCostRequest, only=OPTIONS)
def cpu_cost(
    *,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WHAT]…",
            help="Nothing: measure the lab, or --target. ssh://[USER@]HOST or local: measure single "
            "operations there, without root. Folders of runs: derive CPU costs from them. Two files: "
            "compare them.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path | None, output_option("standard output")] = None,
    plan_only: PlanOption = False,
    quiet: QuietOption = False,
    **typed: object,
) -> None:
    """Measure the CPU cost of single operations, in ns.

    That is per packet, byte, system call, wake-up and I/O.
    """
    be_quiet(quiet)
    named = what or []
    if any(name.endswith(".toml") for name in named):
        if len(named) != 2:
            raise UsageError(
                f"expected two CPU cost files to compare, found {len(named)}",
                hint="name two files, NAME.toml",
            )
        sys.stdout.write(_compared(*map(load_cpu_costs, named)) + "\n")
        return
    place = named[0] if len(named) == 1 else ""
    if place == LOCAL or place.startswith("ssh://"):
        found = by_itself.measure(parse_address(place, "WHAT"))
    elif named:
        found = demand.costs_of(Measured.read([Path(name) for name in named]))
    else:
        made = make_plan(CpuCostRequest(**options.given(typed)))
        testbed.require_rights(made)
        if plan_only:
            print_plan(made)
            return
        found = _measured(
            made, keep=typed.get("results") is not None, results=Path(str(typed.get("results")))
        )
    text = written(found)
    if output is None:
        sys.stdout.write(text)
    else:
        write(output, text.encode())
        tell(f"the CPU cost file: {shown_path(output)}")
    if found.fit is not None:
        tell(
            f"{len(found.costs)} CPU costs from {found.fit.cells} cells; the middle one of these is off by "
            f"{format_percent(found.fit.error)} where it is left out"
        )
        for doubt in predicted.doubts(predicted.Ends(target=found)):
            tell(doubt)


def _measured(made: Plan, *, keep: bool, results: Path) -> CpuCosts:
    """Carry the plan out; its run is kept only where somebody asked for its folder."""
    with temporary.folder() as private:
        folder = RunFolder((results if keep else private) / made.run_id)
        try:
            with measuring(made, folder, is_resumed=False) as state:
                cells = len(made.places) * made.repeats
                tell_start(made, folder, f"{cells} cells")
                outcome = carry_out(made, folder, state, process_started_s(), cells)
        except Interrupted as interruption:
            if not keep:
                interruption.hint = "nothing of it is kept; with --results FOLDER it can be resumed"
            raise
        for line in outcome.summary():
            tell(line)
        return demand.costs_of(Measured.read([folder.path]))


def _compared(a: CpuCosts, b: CpuCosts) -> str:
    table, sentence = compared.of_lists(a, b)
    return tabulate(table, compared.HEADINGS, disable_numparse=True) + f"\n\n{sentence}"
