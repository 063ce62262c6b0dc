"""The command ``harness run``."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from harness.model import Plan
from harness.model.errors import HarnessError, UsageError
from harness.model.units import format_duration, shown
from harness.parse.files import read_text, shown_path
from harness.planning import duration, plan
from harness.planning.knee import WITH_LOADS, KneeRequest
from harness.planning.knee import make_plan as planned_knee
from harness.planning.request import THE_RUN, RunRequest, load_request
from harness.planning.sweep import OF_RUNS, SweepRequest
from harness.planning.sweep import make_plan as planned_sweep
from harness.results import planned
from harness.results.store import RunFolder, write_out
from harness.results.sweep import schedule
from harness.storage import chap
from harness.terminal import options
from harness.terminal.console import (
    PlanOption,
    QuietOption,
    ResumeOption,
    VerboseOption,
    carry_out,
    measured_again,
    measuring,
    print_plan,
    require_disk,
    resumed,
    tell_start,
)
from harness.terminal.progress import process_started_s
from harness.terminal.streams import be_quiet, say, tell
from harness.testbeds import testbed

DEFAULTS = RunRequest()


@options.taking(RunRequest)
def run(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings file (TOML); typed options win.", rich_help_panel=THE_RUN
        ),
    ] = None,
    resume: ResumeOption = None,
    plan_only: PlanOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    **typed: object,
) -> None:
    """Measure each workload on each link and protection, repeatedly."""
    started_s = process_started_s()
    be_quiet(quiet)
    request, notes = DEFAULTS, list[str]()
    if config is not None:
        request = load_request(config, notes)
        for note in notes:
            tell(f"harness: {shown_path(config)}: {note}")
    given = options.given(typed)
    # Typed options override the file's.
    request = msgspec.structs.replace(request, **given)
    if resume is not None and (
        config is not None
        or given.keys() - {"results", "chap_secret", *options.that_touch_real_hardware(RunRequest)}
    ):
        raise UsageError(
            "expected no other options with --resume, because a resumed run follows its plan",
            hint="leave them out, or begin a new run without --resume",
        )
    learn_secret(request)
    if resume is None:
        made = plan.make_plan(request)
        folder = _new_folder(request, made)
    else:
        folder, made = resumed(resume, request, probing=False)
        if not plan_only:
            print_plan(made, tell)
    begin(made, folder, started_s, plan_only=plan_only, is_resumed=resume is not None, is_verbose=verbose)


@options.taking(SweepRequest, hidden=OF_RUNS)
def sweep(
    *,
    plan_only: PlanOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    **typed: object,
) -> None:
    """Measure curves over queue depth, block size, round trip, ...

    It measures as many points as --error takes. Protection is off unless --ipsec or --protect is given.
    """
    started_s = process_started_s()
    be_quiet(quiet)
    request = SweepRequest(**options.given(typed))
    learn_secret(request)
    made = planned_sweep(request)
    begin(made, _new_folder(request, made), started_s, plan_only=plan_only, is_verbose=verbose)


@options.taking(KneeRequest, hidden=WITH_LOADS)
def knee(
    *,
    plan_only: PlanOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    **typed: object,
) -> None:
    """Find the highest load that meets a latency target.

    Latency counts from when a request was due (open loop), so queueing is in it.
    """
    started_s = process_started_s()
    be_quiet(quiet)
    request = KneeRequest(**options.given(typed))
    learn_secret(request)
    made = planned_knee(request)
    begin(made, _new_folder(request, made), started_s, plan_only=plan_only, is_verbose=verbose)


def learn_secret(request: RunRequest) -> None:
    """Read CHAP's secret for a black-box target, from its file or from the terminal."""
    if request.chap is None:
        if request.chap_secret is not None:
            raise UsageError("--chap-secret needs --chap, but none was given", hint="add --chap USER")
        return
    if request.chap_secret is not None:
        chap.keep(read_text(Path(request.chap_secret), "CHAP secret"))
    elif not sys.stdin.isatty():
        raise UsageError(
            f"expected the CHAP secret of {shown(request.chap)} to be typed, but there is no terminal",
            hint="write it into a file of your own (chmod 600), and name that with --chap-secret",
        )
    else:
        chap.keep(typer.prompt(f"CHAP secret of {request.chap}", hide_input=True, err=True))


def _new_folder(request: RunRequest, made: Plan) -> RunFolder:
    return RunFolder(Path(request.results) / made.run_id)


def begin(
    made: Plan,
    folder: RunFolder,
    started_s: float,
    *,
    plan_only: bool,
    is_resumed: bool = False,
    is_verbose: bool = False,
) -> None:
    """Carry a plan out and exit with its status, or only say what it would do."""
    testbed.require_rights(made)
    if plan_only:
        require_disk(made)
        print_plan(made)
        if is_resumed:
            _print_left(made, folder)
        return
    with measuring(made, folder, is_resumed=is_resumed) as state:
        status = _run(made, folder, state, started_s, is_verbose=is_verbose)
    raise typer.Exit(status)


def _print_left(made: Plan, folder: RunFolder) -> None:
    """Say how much of a plan the run has not measured yet, or has to measure again."""
    cells = schedule(made, folder.load_records()).expected
    time = f", about {format_duration(round(duration.left_s(made, cells)))}" if cells else ""
    say(f"left:      {_about(made)}{cells}{time}")


def _about(made: Plan) -> str:
    return "about " if made.stop else "at first " if made.sweep else ""


def _run(made: Plan, folder: RunFolder, state: Path, started_s: float, *, is_verbose: bool) -> int:
    todo = schedule(made, measured_again(folder.load_records))
    cells = todo.expected
    if next(iter(todo), None) is None:
        _print_table(folder)
        tell("nothing is left to measure")
        return 0
    tell_start(made, folder, f"{_about(made)}{cells} cells")
    outcome = carry_out(made, folder, state, started_s, cells)
    _print_table(folder)
    page = _answer(folder)
    for line in outcome.summary(is_verbose=is_verbose):
        tell(line)
    if outcome.disturbed and made.retries:
        again = planned.resume_command(made, str(folder.path))
        tell(f"measure them again on a quieter machine: {again}")
    if outcome.disturbed and made.capabilities.boots_one_kernel and _can_simulate():
        tell("what link and protocols take, which nothing disturbs: the same with --virtual-time")
    name = shlex.quote(str(folder.path))
    tell(f"a page to look at: {page}")
    tell(f"the table again: harness table {name}; where the time goes: harness explain {name}")
    return outcome.exit_code


def _can_simulate() -> bool:
    """Whether the kernel has been built that virtual time needs."""
    from harness.testbeds.lab.kernels import kernel

    with contextlib.suppress(HarnessError):
        return kernel.cached(kernel.recipe()) is not None
    return False


def _print_table(folder: RunFolder) -> None:
    from harness.cli.results import print_table
    from harness.table import Options, TableFormat

    print_table([folder.path], Options(), TableFormat.TEXT)


def _answer(folder: RunFolder) -> str:
    """Print what each column costs, and write the run's report; returns where it is, or why there is none.

    What was measured counts, whatever goes wrong here.
    """
    from harness import report
    from harness.cli.explained import print_answers, print_curves, print_tried

    file = folder.path / "report.html"
    try:
        results = report.load([folder.path])
        page = report.render(results)
    except HarnessError as error:
        return f"none ({error.message})"
    sys.stdout.write("\n")
    if results.plans[folder.load_plan().run_id].sweep:
        print_curves(results, in_short=True)
    else:
        print_answers(results)
    print_tried(results)
    sys.stdout.flush()
    try:
        write_out(file, page.encode())
    except OSError as error:
        return f"none ({error.strerror}); harness report {shlex.quote(str(folder.path))} -o FILE makes one"
    return shown_path(file)
