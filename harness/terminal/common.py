"""Options and arguments that several commands have, declared once, and what writes the file of -o. It
imports nothing that measures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.model.choices import Choice, offering
from harness.model.errors import UsageError
from harness.parse import references
from harness.parse.files import shown_path
from harness.results.metrics import Metric
from harness.results.store import write_out


def format_option(choices: type[Choice]) -> Any:
    return typer.Option("--format", metavar="FORMAT", help=f"Output format: {', '.join(choices)}.")


def output_option(default: str | None = None) -> Any:
    """Where a command writes to; ``default`` is for the help."""
    return typer.Option(
        "--output", "-o", metavar="FILE", help="File to write.", show_default=default or False
    )


def write(file: Path, data: bytes) -> None:
    """Write what a user named with -o: a file, whole or not at all, or an existing device or pipe."""
    try:
        write_out(file, data)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"expected {shown_path(file)} to take the output: {said}",
            hint="name another file with -o",
        ) from error


ResultsPaths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[RESULTS]…",
        help="Folders of runs, shared runs, records, or fio's JSON output.",
        show_default="results/",
        readable=False,  # who reads them says what to try, click does not
    ),
]
PoolOption = Annotated[
    bool,
    typer.Option("--pool", help="Merge runs of different machines or kernels into one column."),
]
MetricOption = Annotated[
    str,
    typer.Option(
        metavar="METRIC", help=f"{', '.join(Metric)} (mean and percentiles: latency; core: busiest core, %)."
    ),
]
ReferenceOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Published figures: {', '.join(references.names())}.",
        show_default=False,
        autocompletion=offering(references.names),
    ),
]
WhatIfOption = Annotated[
    str | None,
    typer.Option(
        "--what-if",
        metavar="PART=2x,…",
        help="Predict the gain if parts were faster: cipher=2x,rtt=0.5x; 2x: each part alone.",
        show_default=False,
    ),
]
YOURS = "In your words"
TitleOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Title.", show_default=False, rich_help_panel=YOURS),
]
AuthorOption = Annotated[
    str, typer.Option(metavar="TEXT", help="Author.", show_default=False, rich_help_panel=YOURS)
]
NotesOption = Annotated[
    list[str] | None,
    typer.Option("--note", metavar="TEXT", help="A sentence of your own. Repeatable.", rich_help_panel=YOURS),
]
