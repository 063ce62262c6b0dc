"""The command ``harness predict``."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer
from tabulate import tabulate

from harness.cli import options
from harness.cli.streams import tell
from harness.explain import ExplainFormat, predicted, scored, what_if
from harness.explain.predicted import Ends
from harness.model.errors import UsageError
from harness.model.escape import as_json
from harness.parse.cpu_costs import load_cpu_costs
from harness.planning.cpu_costs import network_paths
from harness.planning.request import RunRequest

OPTIONS = (
    *("links", "ipsec", "protect", "transports", "profile", "workloads", "depths", "blocks", "numjobs"),
    *("ip", "ipsec_mode"),
)
"""Those of ``harness run`` that say which matrix."""


@options.taking(RunRequest, only=OPTIONS)
def predict_command(
    *,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="The target's CPU costs: a file, or of profiles/cpu-costs/.",
            show_default=False,
        ),
    ] = None,
    initiator_machine: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="The initiator's, if it is another machine.", show_default=False),
    ] = None,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",
    score: Annotated[
        bool, typer.Option("--score", help="How right predictions were that were measured afterwards.")
    ] = False,
    if_faster: Annotated[
        str | None,
        typer.Option(
            "--what-if",
            metavar="PART=2x,…",
            help="What each part is worth, if it alone were so many times as fast: cipher=2x,rtt=0.5x. 2x: "
            "all of them in turn.",
            show_default=False,
        ),
    ] = None,
    **typed: object,
) -> None:
    """Say what a matrix would be, from CPU cost files alone: predicted, with intervals, and never
    measured."""
    shape = ExplainFormat(format)
    if score:
        known = scored.load()
        sys.stdout.write((as_json(known) if shape is ExplainFormat.JSON else scored.text(known)) + "\n")
        return
    if machine is None:
        raise UsageError(
            "expected CPU costs to predict from, found none",
            hint="add --machine LIST; harness cpu-cost makes one",
        )
    ends = Ends(
        target=load_cpu_costs(machine),
        initiator=load_cpu_costs(initiator_machine) if initiator_machine else None,
    )
    columns, jobs, notes = network_paths(RunRequest(**options.given(typed)))
    found = predicted.predict(ends, columns, jobs)
    outside = [*predicted.doubts(ends), *scored.outside(scored.load(), ends, columns, jobs)]
    changed = None if if_faster is None else what_if.worked_out(ends, columns, jobs, if_faster)
    if shape is ExplainFormat.JSON:
        as_it_is = predicted.document(ends, found, outside)
        shown = as_it_is if changed is None else msgspec.structs.replace(changed, outside=tuple(outside))
        sys.stdout.write(as_json(shown) + "\n")
        return
    lines = tabulate(list(predicted.rows(found)), predicted.HEADINGS, disable_numparse=True)
    sys.stdout.write("\n".join([predicted.sentence(ends), "", lines, *outside, ""]))
    if changed is not None:
        sys.stdout.write("\n".join(["", *what_if.lines(changed), ""]))
    for note in notes:
        tell(f"note: {note}")
