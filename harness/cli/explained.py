"""The commands that say why: explain, and the report with its plots."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from harness import explain, report
from harness.explain import published, what_if
from harness.hosts.state import owner
from harness.model import LINK_LOCAL, Plan, Record
from harness.model.choices import TextFormat
from harness.model.errors import Interrupted, UsageError
from harness.model.escape import as_json, printable
from harness.model.lines import wrapped
from harness.model.units import about, shown
from harness.parse import references
from harness.parse.files import shown_path
from harness.parse.profiles import load_link
from harness.questions import Explanation, questions
from harness.results import sections
from harness.results.measured import Measured
from harness.results.store import RESULTS, open_runs
from harness.table import Metric
from harness.terminal import options
from harness.terminal.answers import print_answers, print_curves, print_outcomes
from harness.terminal.common import (
    AuthorOption,
    MetricOption,
    NotesOption,
    PoolOption,
    ReferenceOption,
    ResultsPaths,
    TitleOption,
    WhatIfOption,
    format_option,
    output_option,
    write,
)
from harness.terminal.progress import left_s
from harness.terminal.streams import NARROW, tell

PAUSE_S = 3.0
"""Between two looks at the folders."""

SHARE = 0.1
"""The most of a processor's time that pages may take away from a run that goes on."""


SOURCES = tuple(source for question in questions() for source in question.explains)


ACTIONS = tuple(action for question in questions() for action in question.acts)


@options.adding(
    {f"{name}_": option for action in ACTIONS for name, option in action.options.items()}
    | {source.name: source.option for source in SOURCES}
)
def explain_command(
    paths: ResultsPaths = None,
    format: Annotated[str, format_option(TextFormat)] = "text",
    summary: Annotated[bool, typer.Option("--summary", help="Only what each column costs and why.")] = False,
    with_twin: Annotated[
        bool,
        typer.Option(
            "--twin",
            help="Of the last version: the cost of processors is in every answer now.",
            hidden=True,
        ),
    ] = False,
    if_faster: WhatIfOption = None,
    reference: ReferenceOption = None,
    **more: Any,
) -> None:
    """Show what limits each cell, where time goes, what would help.

    It also says how certain that is. --reference and the options below it explain other figures than
    results.
    """
    shape = TextFormat(format)
    asked = [(source, value) for source in SOURCES if (value := more.get(source.name))]
    instead = [("--reference", reference), *((f"--{source.name}", value) for source, value in asked)]
    acts = {name: more.get(f"{name}_") for action in ACTIONS for name in action.options}
    others = [("--summary", summary), *((f"--{name}", value) for name, value in acts.items())]
    if if_faster is not None and (given := [name for name, value in (*others, *instead) if value]):
        raise UsageError(f"expected one of --what-if and {given[0]}, found both", hint="leave one out")
    if given := [name for name, value in instead if value is not None]:
        if paths or len(given) > 1:
            both = " and ".join(given) if len(given) > 1 else f"results or {given[0]}, found both"
            raise UsageError(f"expected one of {both}", hint="leave one out")
        if reference is not None:
            sys.stdout.write(_concluded(reference, shape) + "\n")
        else:
            ((source, value),) = asked
            _answer(source.load()(value, _ask if sys.stdin.isatty() else None), shape)
        return
    files = paths or [Path(RESULTS)]
    if if_faster is not None:
        _change(what_if.of_run(Measured.read(files), if_faster), shape)
        return
    if with_twin:
        tell("note: --twin does nothing more; what processors take is in every answer (implementation_ns)")
    for action in ACTIONS:
        typed = {name: acts[name] for name in action.options}
        if any(typed.values()):
            action.load()(files, typed)
    results = report.load(files)
    if shape is TextFormat.JSON:
        tried = [each for outcome in results.outcomes for each in outcome.found]
        found = explain.as_json(results.explained, results.corrections, tried, results.volumes)
        sys.stdout.write(found + "\n")
        return
    print_curves(results, in_short=summary)
    # Of fio outputs without a plan nothing is known that their curves do not show.
    is_shown = results.section_tables or (results.curves and not any(curve.links for curve in results.curves))
    if is_shown and not (results := results.rest).records:
        return
    if summary:
        print_answers(results, results.corrections)
        print_outcomes(results)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(explain.text(results.explained, width, results.corrections) + "\n")
        print_outcomes(results)


def _change(found: what_if.PrintedWhatIf, shape: TextFormat) -> None:
    """What changes would give that nobody made."""
    if shape is TextFormat.JSON:
        sys.stdout.write(as_json(found) + "\n")
        return
    said = [what_if.sentence(found), "", *what_if.lines(found), *found.outside]
    sys.stdout.write("\n".join(map(printable, said)) + "\n")


def _answer(found: Explanation, shape: TextFormat) -> None:
    if shape is TextFormat.JSON:
        sys.stdout.write(as_json(found.document) + "\n")
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else NARROW
    for line in found.lines:
        # Commands stay whole, to be copied.
        cut = [printable(line)] if line.startswith(" ") else wrapped(printable(line), width, "    ")
        sys.stdout.write("\n".join(cut) + "\n")


def _ask(question: str, word: str) -> str:
    if word:
        tell(word)
    return str(typer.prompt(question, default="", show_default=False, err=True)).strip()


def _concluded(name: str, shape: TextFormat) -> str:
    if references.view_of(name) is not None:
        raise UsageError(
            f"expected a published matrix of storage, but {shown(name)} has figures of paths",
            hint="try --reference iscsi-ipsec",
        )
    matrix = references.load_reference(name)
    links = {column.link for column in matrix.columns} - {LINK_LOCAL}
    found = published.conclude(matrix, {link: load_link(link) for link in sorted(links)})
    return as_json(found) if shape is TextFormat.JSON else published.text(found)


def report_command(
    paths: ResultsPaths = None,
    output: Annotated[Path, output_option("report.html")] = Path("report.html"),
    title: TitleOption = None,
    author: AuthorOption = "",
    notes: NotesOption = None,
    watched: Annotated[bool, typer.Option("--watch", help="Update it until the run has ended.")] = False,
    is_pooled: PoolOption = False,
) -> None:
    """Write an HTML report: answer, matrix, charts, environment.

    The page is one file and loads nothing from the network.
    """
    words = report.Words(author=author, notes=notes or ())
    words = words if title is None else msgspec.structs.replace(words, title=title)
    taken = paths or [Path(RESULTS)]

    def write_page(going: str) -> None:
        results = report.load(taken, is_pooled=is_pooled)
        results = results if is_pooled else results.side_by_side
        write(output, report.render(results, words, going=going).encode())

    if watched:
        tell(f"the report, until the run has ended or Ctrl-C: {shown_path(output)}")
        watch(taken, write_page)
    else:
        write_page("")
    tell(f"the report: {shown_path(output)}")


def watch(paths: Sequence[Path], write: Callable[[str], None]) -> None:
    """Calls ``write`` with how far the run in ``paths`` is, whenever it has a new record.

    The last call, once the run has ended or at an interruption, has no words: then the page is as usual.
    """
    seen = ""
    try:
        while words := going(paths):
            began = time.monotonic()
            if words != seen and _has_records(paths):
                write(words)
                tell(words)
                seen = words
            took_s = time.monotonic() - began
            time.sleep(max(PAUSE_S, took_s / SHARE))
    except Interrupted:
        if _has_records(paths):
            write("")
        raise
    write("")


def going(paths: Sequence[Path]) -> str:
    """How far the run is that this user's testbed is in use by; empty if none in ``paths`` goes on."""
    holder = owner()
    if holder is None:
        return ""
    for run in open_runs(paths):
        if run.has_plan and (plan := run.load_plan()).run_id == holder.run_id:
            records = run.load_records()
            todo = sections.schedule(plan, records)
            # How many remain of a block is known where the next one is.
            left = todo.expected if next(iter(todo), None) is not None else 0
            return f"{run.run_id} goes on: {_how_far(plan, records, left, todo.max_s)}" if left else ""
    return ""


def _how_far(plan: Plan, records: Sequence[Record], left: int, max_s: float | None) -> str:
    """``12 of 64 cells, 3 min left``: as long as the later half of those that are measured; a run with a
    section at most as long as it may. In virtual time that is not known."""
    is_adaptive = sections.is_adaptive(plan)
    what, least = ("points", "at least ") if is_adaptive else ("cells", "about " if plan.stop else "")
    done = len(records)
    far = f"{done} of {least}{done + left} {what}"
    measured = sorted(records, key=lambda record: record.started_unix_s)
    ends_s = [0.0, *itertools.accumulate(record.wall_ns / 1e9 for record in measured)]
    if plan.setting.is_virtual or not ends_s[-1]:
        return far
    if is_adaptive:
        return far if max_s is None else f"{far}, at most {about(max_s - ends_s[-1])} left"
    seconds = left_s(ends_s, done + left)
    return far if seconds is None else f"{far}, {about(seconds)} left"


def _has_records(paths: Sequence[Path]) -> bool:
    return any(run.record_files() for run in open_runs(paths))


def plot(
    kind: Annotated[str, typer.Argument(metavar="CHART", help=f"{', '.join(report.ChartKind)}.")],
    paths: ResultsPaths = None,
    output: Annotated[Path | None, output_option("CHART.svg")] = None,
    metric: MetricOption = "MB/s",
    theme: Annotated[str, typer.Option(metavar="THEME", help=f"{', '.join(report.Theme)}.")] = "light",
    scale: Annotated[float, typer.Option(metavar="N", help="Scale of a PNG.", min=0.5, max=8)] = 2.0,
    title: TitleOption = None,
    author: AuthorOption = "",
    notes: NotesOption = None,
) -> None:
    """Draw one chart of the report as SVG or PNG.

    The suffix of --output chooses the format. The chart names the runs that its figures come from.
    --metric is for the charts matrix and bars.
    """
    chosen = report.ChartKind(kind)
    file = output or Path(f"{chosen}.svg")
    results = report.load(paths or [Path(RESULTS)]).side_by_side
    words = report.Words(title=title or "", author=author, notes=notes or ())
    drawn = report.picture(
        chosen, results, Metric(metric), file, words=words, theme=report.Theme(theme), scale=scale
    )
    write(file, drawn)
    tell(f"the picture: {shown_path(file)}")
