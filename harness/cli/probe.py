"""The command ``harness probe``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from harness.analysis import disturbance
from harness.cli.table import print_view
from harness.model import Plan
from harness.model.errors import UsageError
from harness.model.units import format_duration
from harness.planning import probe_plan
from harness.planning.probe_plan import ProbeRequest
from harness.results.store import RunFolder
from harness.runs.prober import questions
from harness.table.views import View
from harness.terminal import options
from harness.terminal.console import (
    PlanOption,
    QuietOption,
    ResumeOption,
    VerboseOption,
    carry_out,
    machines_of,
    measured_again,
    measuring,
    resumed,
    tell_start,
)
from harness.terminal.progress import process_started_s
from harness.terminal.streams import be_quiet, say, tell
from harness.testbeds import testbed


@options.taking(ProbeRequest)
def probe(
    *,
    resume: ResumeOption = None,
    plan_only: PlanOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    **typed: object,
) -> None:
    """Measure the network alone: ping, TCP, UDP, packets per second.

    What each probe does: docs/paths.md#probes.
    """
    started_s = process_started_s()
    be_quiet(quiet)
    request = ProbeRequest(**options.given(typed))
    asked = None if request.profile is None else probe_plan.load_profile(request.profile)
    if asked is not None and request.probes:
        raise UsageError("--profile has its own probes, but --probe was given as well", hint="leave one out")
    if resume is None:
        name = request.profile or probe_plan.NO_PROFILE
        made = probe_plan.make_plan(request.on(asked), request.asked(asked), name)
        folder = RunFolder(Path(request.results) / made.run_id)
    else:
        folder, made = resumed(resume, request, probing=True)
        if not plan_only:
            _print_plan(made, tell)
    testbed.require_rights(made)
    if plan_only:
        _print_plan(made)
        return
    with measuring(made, folder, is_resumed=resume is not None) as state:
        status = _run(made, folder, state, started_s, asked, is_verbose=verbose)
    if status:
        raise typer.Exit(status)


def _run(
    made: Plan,
    folder: RunFolder,
    state: Path,
    started_s: float,
    asked: probe_plan.ProbeProfile | None,
    *,
    is_verbose: bool,
) -> int:
    records = measured_again(lambda: folder.load_probes())
    done = {record.key for record in records if disturbance.is_final(record, made)}
    left = sum(question.key not in done for question in questions(made))
    status = 0
    lines = ["nothing is left to probe"]
    if left:
        tell_start(made, folder, f"{left} probes")
        outcome = carry_out(made, folder, state, started_s, left)
        status, lines = outcome.exit_code, outcome.summary("probe", is_verbose=is_verbose)
    again = f"harness table {shlex.quote(str(folder.path))}"
    for view, reference in _views(made, asked):
        print_view([folder.path], view, reference)
        sys.stdout.write("\n")
        lines.append(
            f"the table again: {again} --view {view}{f' --reference {reference}' if reference else ''}"
        )
    for line in lines:
        tell(line)
    return status


def _views(made: Plan, asked: probe_plan.ProbeProfile | None) -> list[tuple[View, str | None]]:
    """The view of the run's profile, with its reference; without a profile, the views of its probes."""
    # A resumed run's profile may have been a file, and a folder of results must not choose which file is
    # read.
    if asked is None and made.profile in probe_plan.names():
        asked = probe_plan.load_profile(made.profile)
    if asked is not None:
        return [(View(asked.view), asked.reference)]
    return [(view, None) for view in dict.fromkeys(probe.VIEW for probe in made.probing)]


def _print_plan(made: Plan, to: Callable[[str], None] = say) -> None:
    to(f"testbed: {made.setting.testbed}")
    if machines := machines_of(made):
        to(f"machines: {machines}")
    to("columns: " + ", ".join(map(made.shown, made.columns)))
    to("probes:  " + ", ".join(probe.name for probe in made.probing))
    to(
        f"in all:  {len(questions(made))}, about {format_duration(round(probe_plan.estimate_s(made)))}",
    )
    sys.stdout.flush()
