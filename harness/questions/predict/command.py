"""The command ``harness predict``."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer
from tabulate import tabulate

from harness.explain import predicted, what_if
from harness.explain.predicted import Ends, NetworkPath
from harness.model import CAPABILITIES, Job, TestbedKind
from harness.model.choices import TextFormat
from harness.model.errors import UsageError
from harness.model.escape import as_json
from harness.parse.cpu_costs import load_cpu_costs
from harness.parse.jobfile import load_jobs
from harness.planning import axes, plan
from harness.planning.request import RunRequest
from harness.questions.predict import printed
from harness.questions.predict import score as scores
from harness.terminal import options
from harness.terminal.common import WhatIfOption, format_option
from harness.terminal.streams import tell

OPTIONS = (
    *("links", "ipsec", "protect", "transports", "profile", "workloads", "depths", "blocks", "numjobs"),
    *("ip", "ipsec_mode"),
)
"""Those of ``harness run`` that say which matrix."""


@options.taking(RunRequest, only=OPTIONS)
def predict_command(
    *,
    cpu_costs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The target's CPU costs: a file, or a name in profiles/cpu-costs/.",
            show_default=False,
        ),
    ] = None,
    initiator_cpu_costs: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="CPU costs of the initiator, if they differ.", show_default=False),
    ] = None,
    format: Annotated[str, format_option(TextFormat)] = "text",
    score: Annotated[
        bool, typer.Option("--score", help="Show how accurate earlier predictions were.")
    ] = False,
    if_faster: WhatIfOption = None,
    **typed: object,
) -> None:
    """Predict a matrix from CPU cost files, without measuring.

    Each figure has an interval.
    """
    shape = TextFormat(format)
    if score:
        known = scores.load()
        sys.stdout.write((as_json(known) if shape is TextFormat.JSON else scores.text(known)) + "\n")
        return
    if cpu_costs is None:
        raise UsageError(
            "expected CPU costs to predict from, found none",
            hint="add --cpu-costs FILE; harness cpu-cost makes one",
        )
    ends = Ends(
        target=load_cpu_costs(cpu_costs),
        initiator=load_cpu_costs(initiator_cpu_costs) if initiator_cpu_costs else None,
    )
    columns, jobs, notes = network_paths(RunRequest(**options.given(typed)))
    found = predicted.predict(ends, columns, jobs)
    outside = [*predicted.doubts(ends), *scores.outside(scores.load(), ends, columns, jobs)]
    changed = None if if_faster is None else what_if.worked_out(ends, columns, jobs, if_faster)
    if shape is TextFormat.JSON:
        as_it_is = printed.document(ends, found, outside)
        shown = as_it_is if changed is None else msgspec.structs.replace(changed, outside=tuple(outside))
        sys.stdout.write(as_json(shown) + "\n")
        return
    lines = tabulate(list(printed.rows(found)), printed.HEADINGS, disable_numparse=True)
    sys.stdout.write("\n".join([printed.sentence(ends), "", lines, *outside, ""]))
    if changed is not None:
        sys.stdout.write("\n".join(["", *what_if.lines(changed), ""]))
    for note in notes:
        tell(f"note: {note}")


def network_paths(request: RunRequest) -> tuple[list[NetworkPath], tuple[Job, ...], list[str]]:
    """The columns of a matrix of the lab, its workloads, and notes on these. UsageError as for any run."""
    notes: list[str] = []
    jobs = plan.picked(load_jobs(request.profile, notes)[1], request.workloads)
    jobs = axes.varied(
        jobs, depths=request.depths, blocks=request.blocks, numjobs=request.numjobs, notes=notes
    )
    columns, links, proposals = plan.columns_of(request, CAPABILITIES[TestbedKind.LAB, False], None)
    return (
        [NetworkPath(column=each, link=links.get(each.link), proposals=proposals) for each in columns],
        jobs,
        notes,
    )
