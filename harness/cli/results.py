"""The commands that show what was measured: table, compare, explain, report, plot, export."""

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
    print_view,
    tell_recovery,
)
from harness.cli.progress import process_started_s
from harness.cli.streams import tell
from harness.explain import answer, published, twin
from harness.explain.evidence import collect
from harness.model import LINK_LOCAL
from harness.model.errors import UsageError
from harness.model.units import parse_percent, shown
from harness.parse import references
from harness.parse.files import shown_path
from harness.parse.profiles import load_link
from harness.results import planned, probe_store
from harness.results.store import RunFolder, open_environments, open_plans, open_results, open_runs, write_out
from harness.runs import plan
from harness.runs.request import Request
from harness.table import Metric, Options, Ratio, TableFormat, build, cached, comparison, export, render
from harness.table.views import View
from harness.testbeds import testbed

DEFAULTS = Request()
NARROW = 80
"""The width of a terminal, in characters, where there is none."""

RESULTS_HELP = "Run folders, folders of runs, records, or plain fio JSON outputs."
METRIC_HELP = "MB/s, MiB/s, IOPS, mean, p50, p99 or p99.9 (latency)."


def table(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Run folders, folders of runs, records, or plain fio JSON outputs.", show_default="results/"
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="MB/s, MiB/s, IOPS, mean, p50, p99 or p99.9 (latency).")
    ] = "MB/s",
    format: Annotated[str, typer.Option(help="plain, github, html, csv, latex or json.")] = "plain",
    ratio: Annotated[
        str,
        typer.Option(help="none, local (ratio to the local column) or ipsec (to the column without IPsec)."),
    ] = "none",
    view: Annotated[
        str | None,
        typer.Option(help=f"Show probes instead of the matrix: {', '.join(View)}.", show_default=False),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help=f"Add published figures: {', '.join(references.names())}.", show_default=False),
    ] = None,
) -> None:
    """Print the matrix of one run, of several, or of fio outputs that you already have; or a view of
    probes."""
    if view is None and reference is not None:
        view = references.view_of(reference)
    if view is not None:
        if (Metric(metric), Ratio(ratio)) != (Metric.MB_S, Ratio.NONE):
            raise UsageError("--metric and --ratio apply to the matrix, but --view was given as well")
        print_view(paths or [Path(DEFAULTS.results)], View(view), reference, TableFormat(format))
        return
    options = Options(
        metric=Metric(metric),
        ratio=Ratio(ratio),
        reference=references.load_reference(reference) if reference else None,
    )
    print_table(paths or [Path(DEFAULTS.results)], options, TableFormat(format))


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Results: what `harness table` takes.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Results to compare with A.")],
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 1 if a cell is shown to be slower by this much or more, e.g. 5%.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="MB/s, MiB/s, IOPS, mean, p50, p99 or p99.9 (latency).")
    ] = "MB/s",
    format: Annotated[str, typer.Option(help="plain, json or github.")] = "plain",
) -> None:
    """Say for each cell whether B is faster or slower than A, by how much, or that it is inconclusive."""
    chosen, shape = Metric(metric), comparison.CompareFormat(format)
    margin = parse_percent(fail_if_slower, what="--fail-if-slower") if fail_if_slower else None
    found = comparison.compare(_side(a), _side(b), chosen, margin or comparison.MARGIN)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.write(comparison.render(found, shape, width) + "\n")
    slower = found.slower_by(margin) if margin else []
    if slower:
        names = ", ".join(cell.name for cell in slower)
        tell(f"slower by {fail_if_slower} or more: {names}")
    if margin and found.disturbed:
        names = ", ".join(cell.name for cell in found.disturbed)
        tell(f"not judged, because disturbed: {names}")
    if slower:
        raise typer.Exit(1)


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
    files = paths or [Path(DEFAULTS.results)]
    if with_twin:
        for run in open_runs(files):
            _measure_twin(run)
    results = report.load(files)
    if shape is explain.ExplainFormat.JSON:
        sys.stdout.write(explain.as_json(results.explained()).decode() + "\n")
    elif summary:
        print_answers(results)
    else:
        sys.stdout.write(explain.text(results.explained()) + "\n")


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
    page = report.render(report.load(paths or [Path(DEFAULTS.results)]))
    _write(output, page.encode())
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
    results = report.load(paths or [Path(DEFAULTS.results)])
    _write(file, report.picture(chosen, results, Metric(metric), file))
    tell(f"the picture: {shown_path(file)}")


def export_command(
    paths: Annotated[list[Path] | None, typer.Argument(help=RESULTS_HELP, show_default="results/")] = None,
    to: Annotated[str, typer.Option(help=f"{', '.join(export.ExportFormat)}.")] = "csv",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to.", show_default="standard output"),
    ] = None,
) -> None:
    """Print all records, a row for each direction, for other programs to draw or store."""
    format = export.ExportFormat(to)
    if output is None and format is export.ExportFormat.PARQUET and sys.stdout.isatty():
        raise UsageError("Parquet cannot go to a terminal", hint="name a file with -o")
    files = paths or [Path(DEFAULTS.results)]
    data = export.encode(open_results(files), format, open_environments(files))
    if output is None:
        sys.stdout.buffer.write(data)
    else:
        _write(output, data)


def _write(file: Path, data: bytes) -> None:
    """Write what a user named with -o: a file, whole or not at all, or an existing device or pipe."""
    try:
        write_out(file, data)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"expected {shown_path(file)} to take the output: {said}",
            hint="name another file with -o",
        ) from error


def _side(path: Path) -> comparison.Side:
    return comparison.Side(
        records=open_results([path]), plans=open_plans([path]), environments=open_environments([path])
    )


def print_answers(results: report.Results) -> None:
    """What each column costs, and why; to standard error if nothing can be compared."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else NARROW
    if found := results.answers():
        sys.stdout.write(answer.in_words(found, width) + "\n")
    else:
        tell("nothing to compare: add --link local, or protected columns with --protect off beside them")


def print_table(paths: list[Path], options: Options, format: TableFormat) -> None:
    found = cached(
        paths,
        options,
        lambda: build(open_results(paths), options, open_plans(paths), open_environments(paths)),
    )
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.write(render(found, format, width).rstrip("\n") + "\n")
