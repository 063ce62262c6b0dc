"""The commands that draw: ``harness report`` and ``harness plot``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from harness import report
from harness.hosts.state import owner
from harness.model import Plan, Record
from harness.model.errors import Interrupted
from harness.model.units import about
from harness.parse.files import shown_path
from harness.results import sections
from harness.results.store import RESULTS, open_runs
from harness.table import Metric
from harness.terminal.common import (
    AuthorOption,
    MetricOption,
    NotesOption,
    PoolOption,
    ResultsPaths,
    TitleOption,
    output_option,
    write,
)
from harness.terminal.progress import left_s
from harness.terminal.streams import tell

PAUSE_S = 3.0
"""Between two looks at the folders."""

SHARE = 0.1
"""The most of a processor's time that pages may take away from a run that goes on."""


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
