"""The command ``harness reproduce``: it has other commands measure, and shows what came of it."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.analysis import disturbance
from harness.hosts import state
from harness.model import Record, Status
from harness.model.errors import BusyError, HarnessError, RequirementError, UsageError
from harness.model.units import unknown_name
from harness.parse import references
from harness.parse.files import shown_path
from harness.questions.documents import page
from harness.questions.documents.experiments import Experiment, experiments
from harness.results.probe_records import ProbeRecord
from harness.results.store import RESULTS, RunFolder, open_runs
from harness.terminal.common import output_option, write
from harness.terminal.console import QuietOption, prepare_results
from harness.terminal.progress import BEGUN_S
from harness.terminal.streams import QUIET, be_quiet, complain, tell, tell_error
from harness.testbeds.lab.kernels import kernel

LOOK_S = 2.0
"""How often it looks whether a testbed in use is free."""

FOLDER, QUICK_FOLDER = Path(RESULTS) / "articles", Path(RESULTS) / "articles-quick"


def reproduce_command(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RESULTS]…",
            help="Folders of runs.",
            show_default=f"{FOLDER}/, with --quick {QUICK_FOLDER}/",
        ),
    ] = None,
    output: Annotated[Path | None, output_option("articles.html; with --run in the folder of runs")] = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="First measure what is missing, skipped, failed or disturbed.",
        ),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short measurements, in minutes: only a trial.")
    ] = False,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--article",
            metavar="NAME",
            help=f"Only this one: {', '.join(references.names())}. Repeatable.",
            show_default="all",
        ),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Repeat five published measurements, and compare.

    The page has the question of each, its figures next to ours, and the answer.
    """
    be_quiet(quiet)
    places = paths or [QUICK_FOLDER if quick else FOLDER]
    for name in names or ():
        if name not in references.names():
            raise unknown_name("article", name, references.names())
    reasons: dict[str, str] = {}
    failed = False
    if run:
        if len(places) > 1:
            raise UsageError("expected one folder for the runs of --run, found several")
        output = output or places[0] / "articles.html"
        reasons, failed = _measure(places[0], names or references.names(), context, quick=quick)
    elif not paths and not places[0].exists():
        raise UsageError(
            f"there is no {places[0]} yet", hint="harness reproduce --run measures what it needs"
        )
    found = page.load(places, names or (), reasons)
    made = page.render_page(found)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.write(page.text(found, width) + "\n")
    sys.stdout.flush()
    output = output or Path("articles.html")
    write(output, made.encode())
    tell(f"the page: {shown_path(output)}")
    if failed:
        raise typer.Exit(1)


def _measure(
    folder: Path, names: list[str], context: typer.Context, *, quick: bool
) -> tuple[dict[str, str], bool]:
    """Measure what ``folder`` lacks. Returns why commands measured nothing, and whether one failed."""
    prepare_results(folder)
    no_virtual_time = ""
    try:
        kernel.custom_kernel()
    except RequirementError as error:
        no_virtual_time = str(error)
    reasons, failed = {}, False
    for experiment in experiments():
        for virtual in (False, True):
            if experiment.article not in names or (virtual and experiment.virtual is None):
                continue
            if virtual and no_virtual_time:
                reasons[experiment.command_line(virtual=True)] = no_virtual_time
                complain(f"{experiment.article}: not measured in virtual time: {no_virtual_time}")
                continue
            run = _last(experiment, folder, virtual=virtual)
            if run is not None and _is_done(run):
                tell(f"{experiment.article}: there is {shown_path(run.path)} already")
                continue
            words = [*experiment.words(virtual=virtual, quick=quick), "--results", str(folder)]
            if run is not None:
                words = [experiment.command, "--resume", str(run.path.absolute())]
            tell(f"{experiment.article}: harness {' '.join(words)}")
            try:
                status = when_free(words, context)
            except HarnessError as error:
                tell_error(error)
                reasons[experiment.command_line(virtual=virtual)] = str(error)
                failed = True
            else:
                run = _last(experiment, folder, virtual=virtual)
                failed |= bool(status) and (run is None or _has_failed(run))
    return reasons, failed


def _last(experiment: Experiment, folder: Path, *, virtual: bool) -> RunFolder | None:
    """The last run of an experiment, if there is one."""
    runs = page.runs_of(experiment, open_runs([folder]), virtual=virtual)
    return max(runs, key=lambda run: run.run_id, default=None)


def _records(run: RunFolder) -> Sequence[Record | ProbeRecord]:
    return run.load_probes() if run.load_plan().probing else run.load_records()


def _is_done(run: RunFolder) -> bool:
    """Whether nothing of it need be measured: nothing is missing, skipped, failed or disturbed."""
    plan = run.load_plan()
    cells = len(plan.columns) * len(plan.probing or plan.jobs) * plan.repeats
    return sum(disturbance.is_final(record, plan) for record in _records(run)) >= cells


def _has_failed(run: RunFolder) -> bool:
    """Whether it ended badly for another reason than that something was skipped."""
    statuses = {record.status for record in _records(run)}
    return bool(statuses - {Status.OK, Status.SKIPPED}) or Status.SKIPPED not in statuses


def when_free(words: list[str], context: typer.Context) -> int:
    """As ``harness``, once nobody else holds the testbed."""
    while True:
        try:
            return harness(words, context)
        except BusyError as error:
            tell(f"waiting: {error.message}")
        time.sleep(LOOK_S)
        while state.owner() is not None:
            time.sleep(LOOK_S)


def harness(words: list[str], context: typer.Context) -> int:
    """The exit status of another command of the program; HarnessError as it raises it.

    What it would print belongs to standard error here, for the answer is still to come.
    """
    begun = BEGUN_S.set(time.monotonic())
    try:
        with contextlib.redirect_stdout(io.StringIO() if QUIET.get() else sys.stderr):
            command: Any = context.find_root().command
            return command.main(words, prog_name="harness", standalone_mode=False) or 0
    finally:
        BEGUN_S.reset(begun)
