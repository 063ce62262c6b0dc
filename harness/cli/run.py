"""The command ``harness run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from harness.model.errors import UsageError
from harness.parse.files import shown_path
from harness.planning import plan
from harness.planning.request import THE_RUN, RunRequest, load_request
from harness.terminal import options
from harness.terminal.console import (
    PlanOption,
    QuietOption,
    ResumeOption,
    VerboseOption,
    print_plan,
    resumed,
)
from harness.terminal.progress import process_started_s
from harness.terminal.running import begin, learn_secret, new_folder
from harness.terminal.streams import be_quiet, tell

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
        folder = new_folder(request, made)
    else:
        folder, made = resumed(resume, request, probing=False)
        if not plan_only:
            print_plan(made, tell)
    begin(made, folder, started_s, plan_only=plan_only, is_resumed=resume is not None, is_verbose=verbose)
