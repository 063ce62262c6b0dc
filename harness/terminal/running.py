"""A run from its plan to its answer, for all commands that measure cells."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer

from harness.model import Plan
from harness.model.errors import HarnessError, UsageError
from harness.model.units import format_duration, shown
from harness.parse.files import read_text, shown_path
from harness.planning import duration
from harness.planning.request import RunRequest
from harness.results import planned, sections
from harness.results.store import RunFolder, write_out
from harness.storage import chap
from harness.terminal.console import (
    carry_out,
    measured_again,
    measuring,
    print_plan,
    require_disk,
    tell_start,
)
from harness.terminal.progress import process_started_s
from harness.terminal.streams import be_quiet, say, tell
from harness.testbeds import testbed


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


R = TypeVar("R", bound=RunRequest)


def measure(
    request: R, make_plan: Callable[[R], Plan], *, plan_only: bool, is_verbose: bool, is_quiet: bool
) -> None:
    """Plan a new run, carry it out and exit with its status."""
    started_s = process_started_s()
    be_quiet(is_quiet)
    learn_secret(request)
    made = make_plan(request)
    folder = new_folder(request, made)
    begin(made, folder, started_s, plan_only=plan_only, is_verbose=is_verbose)


def new_folder(request: RunRequest, made: Plan) -> RunFolder:
    """Where the results of a new run go."""
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
            cells = sections.schedule(made, folder.load_records()).expected
            time = f", about {format_duration(round(duration.left_s(made, cells)))}" if cells else ""
            say(f"left:      {_about(made)}{cells}{time}")
        return
    with measuring(made, folder, is_resumed=is_resumed) as state:
        status = _run(made, folder, state, started_s, is_verbose=is_verbose)
    raise typer.Exit(status)


def _about(made: Plan) -> str:
    return "about " if made.stop else "at first " if sections.is_adaptive(made) else ""


def _run(made: Plan, folder: RunFolder, state: Path, started_s: float, *, is_verbose: bool) -> int:
    todo = sections.schedule(made, measured_again(folder.load_records))
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
    from harness.table import Options, TableFormat
    from harness.terminal.tables import print_table

    print_table([folder.path], Options(), TableFormat.TEXT)


def _answer(folder: RunFolder) -> str:
    """Print what each column costs, and write the run's report; returns where it is, or why there is none.

    What was measured counts, whatever goes wrong here.
    """
    from harness import report
    from harness.terminal.answers import print_answers, print_curves, print_outcomes

    file = folder.path / "report.html"
    try:
        results = report.load([folder.path])
        page = report.render(results)
    except HarnessError as error:
        return f"none ({error.message})"
    sys.stdout.write("\n")
    print_curves(results, in_short=True)
    rest = results.rest
    if rest.records and not sections.is_adaptive(results.plans[folder.load_plan().run_id]):
        print_answers(rest)
    print_outcomes(results)
    sys.stdout.flush()
    try:
        write_out(file, page.encode())
    except OSError as error:
        return f"none ({error.strerror}); harness report {shlex.quote(str(folder.path))} -o FILE makes one"
    return shown_path(file)
