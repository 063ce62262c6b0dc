"""The command ``harness share``: a run for others, as a file or as text."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.explain import volumes
from harness.model.errors import UsageError
from harness.model.escape import printable
from harness.model.lines import wrapped
from harness.parse.files import shown_path
from harness.questions.share import cleaned
from harness.report import summary
from harness.report.content import LoadedResults
from harness.results import again, archive
from harness.results.store import SHARED, open_runs
from harness.table import Metric, TableFormat, render
from harness.terminal.common import output_option, write
from harness.terminal.streams import say, tell


def share_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.", readable=False)],
    to: Annotated[Path | None, output_option("RUN-ID.zip")] = None,
    is_listed: Annotated[bool, typer.Option("--list", help="Only list the contents.")] = False,
    in_markdown: Annotated[
        bool,
        typer.Option(
            "--markdown",
            help="Markdown for a forum instead: answer, table and command.",
            show_default=False,
        ),
    ] = False,
) -> None:
    """Pack a run for others, without addresses, names, serials, keys.

    First it prints every text in the file, which name replaces which, and what is left out. table, compare,
    explain, report and export take the file like a run's folder. With --markdown it prints the same figures
    as text, or writes them to --output.
    """
    if in_markdown and is_listed:
        raise UsageError("expected one of --markdown and --list, found both", hint="leave one out")

    found = open_runs([run])
    if len(found) != 1:
        raise UsageError(
            f"{shown_path(run)}: expected one run, found {len(found)}", hint="name it: results/RUN-ID"
        )
    shared = cleaned.shared(found[0])
    if in_markdown:
        text = _as_markdown(shared)
        if to is None:
            sys.stdout.write(text)
        else:
            write(to, text.encode())
            tell(f"{shown_path(to)}: {len(text)} characters. Nothing was sent anywhere.")
        return
    width = shutil.get_terminal_size().columns
    for line in shared.listing:
        say("\n".join(wrapped(printable(line), width, "  ")))
    if is_listed:
        return
    data = archive.packed(shared.files)
    file = to or Path(f"{shared.run_id}{SHARED}")
    write(file, data)
    tell(f"{shown_path(file)}: {len(data) / 1000:.0f} kB. Nothing was sent anywhere.")


def _as_markdown(shared: cleaned.SharedRun) -> str:
    """What others may have of a run, as GitHub's Markdown: its answer, its table, and the command that makes
    such a run."""
    run, plan = shared.run_id, shared.plan
    results = LoadedResults(
        records=shared.records,
        probes=shared.probes,
        plans={run: plan} if plan is not None else {},
        environments={run: shared.environment},
    )
    disks = volumes.lines(results.volumes, 80)
    lines = summary.lines(results.answers, results, 80, disks) if results.records else []
    # Names cannot end the block: no line begins with a fence.
    parts = ["\n".join(("```text", *lines, "```"))] if lines else []
    parts += [render(results.table(Metric.MB_S), TableFormat.MARKDOWN)] if results.records else []
    if plan is not None and (typed := again.command(plan)):
        parts.append(f"```sh\n{printable(typed)}\n```")
    return "\n\n".join(parts) + "\n"
