"""The commands that say why: explain, and the report with its plots."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness import explain, report
from harness.analysis.schedule import Schedule
from harness.cli.console import (
    carry_out,
    holding,
    prepare_results,
    print_plan,
    tell_recovery,
)
from harness.cli.progress import process_started_s
from harness.cli.results import METRIC_HELP, RESULTS_HELP, write
from harness.cli.streams import tell
from harness.explain import answer, published, twin
from harness.explain.evidence import collect
from harness.model import LINK_LOCAL
from harness.model.errors import UsageError
from harness.model.units import shown
from harness.parse import references
from harness.parse.files import shown_path
from harness.parse.profiles import load_link
from harness.results import planned, probe_store
from harness.results.store import RESULTS, RunFolder, open_runs
from harness.runs import plan
from harness.table import Metric
from harness.testbeds import testbed

NARROW = 80
"""The width of a terminal, in characters, where there is none."""


def explain_command(
    paths: Annotated[list[Path] | None, typer.Argument(help=RESULTS_HELP, show_default="results/")] = None,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",
    summary: Annotated[bool, typer.Option("--summary", help="What each column costs, and why.")] = False,
    with_twin: Annotated[
        bool,
        typer.Option(
            "--twin",
            help="First measure the digital twin of each run that has none, in virtual time. The difference "
            "is the processors' cost.",
        ),
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(help="A published matrix instead of results: what its figures show."),
    ] = None,
) -> None:
    """Say for each cell what limits it, how sure that is, where the time goes, and what would help."""
    shape = explain.ExplainFormat(format)
    if reference is not None:
        if paths:
            raise UsageError("expected results or --reference, found both", hint="leave one out")
        sys.stdout.write(_concluded(reference, shape) + "\n")
        return
    files = paths or [Path(RESULTS)]
    if with_twin:
        for run in open_runs(files):
            _measure_twin(run)
    results = report.load(files)
    if shape is explain.ExplainFormat.JSON:
        sys.stdout.write(explain.as_json(results.explained()).decode() + "\n")
    elif summary:
        print_answers(results)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(explain.text(results.explained(), width) + "\n")


def print_answers(results: report.Results) -> None:
    """What each column costs, and why; to standard error if nothing can be compared."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else NARROW
    if found := results.answers():
        sys.stdout.write(answer.in_words(found, width) + "\n")
    else:
        tell("nothing to compare: add --link local, or protected columns with --protect off beside them")


def _measure_twin(run: RunFolder) -> None:
    """Measure a run's twin, unless it has one or is in virtual time itself."""
    run.require_plain()
    plan_of_run = run.load_plan()
    evidence = collect(run.load_records(), {plan_of_run.run_id: plan_of_run}, probe_store.load(run))
    made = twin.plan_of(plan_of_run, evidence)
    if made is None or twin.is_current(run, made):
        return
    folder = twin.folder_of(run)
    planned.check(made, f"the twin of {shown(str(run.path))}")
    tell(f"the twin of {made.run_id} in virtual time, kept in {shown_path(folder.path)}")
    print_plan(made, tell)
    with holding(made.run_id) as state:
        tell_recovery(*testbed.recover(state))
        prepare_results(folder.path)
        folder.save_plan(made)
        cells = Schedule(made, folder.load_records()).expected
        outcome = carry_out(
            made, folder, state, process_started_s(), cells=cells, cell_estimate_s=plan.mean_cell_s(made)
        )
    for line in outcome.summary():
        tell(line)


def _concluded(name: str, shape: explain.ExplainFormat) -> str:
    if references.view_of(name) is not None:
        raise UsageError(
            f"expected a published matrix of storage, but {shown(name)} has figures of paths",
            hint="try --reference document-003",
        )
    matrix = references.load_reference(name)
    links = {column.link for column in matrix.columns} - {LINK_LOCAL}
    found = published.conclude(matrix, {link: load_link(link) for link in sorted(links)})
    return published.as_json(found).decode() if shape is explain.ExplainFormat.JSON else published.text(found)


def report_command(
    paths: Annotated[list[Path] | None, typer.Argument(help=RESULTS_HELP, show_default="results/")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one page to look at: matrix, distributions, roofline, environment. It needs no network."""
    page = report.render(report.load(paths or [Path(RESULTS)]))
    write(output, page.encode())
    tell(f"the report: {shown_path(output)}")


def plot(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"{', '.join(report.Kind)}.")],
    paths: Annotated[list[Path] | None, typer.Argument(help=RESULTS_HELP, show_default="results/")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="FILE.svg or FILE.png.")
    ] = None,
    metric: Annotated[str, typer.Option(help=f"Of matrix and bars: {METRIC_HELP}")] = "MB/s",
) -> None:
    """Draw one of the report's pictures as SVG or PNG."""
    chosen = report.Kind(kind)
    file = output or Path(f"{chosen}.svg")
    results = report.load(paths or [Path(RESULTS)])
    write(file, report.picture(chosen, results, Metric(metric), file))
    tell(f"the picture: {shown_path(file)}")
