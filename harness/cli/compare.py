"""The command ``harness compare``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.model.units import parse_percent
from harness.results.measured import Measured
from harness.table import Metric, comparison
from harness.terminal.common import (
    MetricOption,
    format_option,
)
from harness.terminal.streams import NARROW, tell

NOT_JUDGED = 3
"""Exit status of a comparison in which not one cell could be judged."""


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Results, as for harness table.", readable=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="Results to compare with A.", readable=False)],
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 1 if a cell is slower by this much or more, e.g. 5%.",
            show_default=False,
        ),
    ] = None,
    metric: MetricOption = "MB/s",
    format: Annotated[str, format_option(comparison.CompareFormat)] = "text",
) -> None:
    """Compare two results: which cells are faster or slower.

    For each cell: whether B is faster or slower than A and by how much, or that it is inconclusive.

    Exit status: 0 a cell was judged; 1 with --fail-if-slower, a cell is slower (standard error names it),
    or a record cannot be read; 2 wrong usage; 3 no cell could be judged. Lines above the table say why.
    """
    chosen, shape = Metric(metric), comparison.CompareFormat(format)
    margin = parse_percent(fail_if_slower, what="--fail-if-slower") if fail_if_slower else None
    found = comparison.compare(Measured.read([a]), Measured.read([b]), chosen, margin or comparison.MARGIN)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else NARROW
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
    if not found.is_judged:
        if shape is comparison.CompareFormat.JSON:
            tell(" ".join(found.missing))
        raise typer.Exit(NOT_JUDGED)
