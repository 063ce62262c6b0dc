"""The commands that show figures, or pass them on: table, compare, export.

They import nothing that measures: a table should be there at once.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from harness.model.errors import UsageError
from harness.model.probing import NAMED
from harness.model.units import parse_percent
from harness.parse import references
from harness.results.measured import Measured
from harness.results.store import RESULTS, open_probes
from harness.table import Metric, Options, RatioTo, TableFormat, comparison, export
from harness.table.views import View, build_counters, build_scale
from harness.table.views import build as build_view
from harness.table.views import render as render_view
from harness.terminal.common import (
    MetricOption,
    PoolOption,
    ReferenceOption,
    ResultsPaths,
    format_option,
    output_option,
    write,
)
from harness.terminal.streams import NARROW, tell
from harness.terminal.tables import print_table

NOT_JUDGED = 3
"""Exit status of a comparison in which not one cell could be judged."""


def table(
    paths: ResultsPaths = None,
    metric: MetricOption = "MB/s",
    format: Annotated[str, format_option(TableFormat)] = "text",
    ratio: Annotated[
        str,
        typer.Option(
            metavar="COLUMN", help="Add ratios: none, local (to the disk), ipsec (to the link without it)."
        ),
    ] = "none",
    view: Annotated[
        str | None,
        typer.Option(
            metavar="VIEW", help=f"Another table than the matrix: {', '.join(View)}.", show_default=False
        ),
    ] = None,
    reference: ReferenceOption = None,
    is_pooled: PoolOption = False,
) -> None:
    """Print results as a table.

    It takes one run, several, or fio's own output. --reference adds published figures.
    """
    shape = TableFormat(format)
    if view is None and reference is not None:
        view = references.view_of(reference)
    if view is not None:
        if (Metric(metric), RatioTo(ratio)) != (Metric.MB_S, RatioTo.NONE):
            raise UsageError("--metric and --ratio apply to the matrix, but --view was given as well")
        print_view(paths or [Path(RESULTS)], View(view), reference, shape)
        return
    options = Options(
        metric=Metric(metric),
        ratio=RatioTo(ratio),
        reference=references.load_reference(reference) if reference else None,
    )
    print_table(paths or [Path(RESULTS)], options, shape, is_pooled=is_pooled)


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


def export_command(
    paths: ResultsPaths = None,
    format: Annotated[str, format_option(export.ExportFormat)] = "csv",
    output: Annotated[Path | None, output_option("standard output")] = None,
) -> None:
    """Write all records as rows for other programs.

    A record has a row for reads and one for writes.
    """
    shape = export.ExportFormat(format)
    if output is None and shape is export.ExportFormat.PARQUET and sys.stdout.isatty():
        raise UsageError("Parquet cannot go to a terminal", hint="name a file with -o")
    files = paths or [Path(RESULTS)]
    found = Measured.read(files)
    data = export.encode(found.records, shape, found.environments, found.plans, found.curves)
    if output is None:
        sys.stdout.buffer.write(data)
    else:
        write(output, data)


def print_view(
    paths: Sequence[Path], view: View, reference: str | None, format: TableFormat = TableFormat.TEXT
) -> None:
    """Print a view of the probes or cells in ``paths``, with the published figures of that view."""
    published = None
    if reference is not None:
        if references.view_of(reference) != view:
            raise UsageError(
                f"the reference {reference} does not fit the view {view}",
                hint=f"it is for {references.view_of(reference) or 'the matrix: leave --view out'}",
            )
        published = references.load_path_reference(reference)
    if view is View.SCALE:
        records = Measured.read(paths).records
        found, what, remedy = build_scale(records), "cells", "harness run --lab-initiators 8"
    elif view is View.COUNTERS:
        cells = Measured.read(paths)
        found, what, remedy = build_counters(cells.records, [*cells.plans.values()]), "cells", "harness run"
    else:
        found, what = build_view(view, open_probes(paths), published), "probes"
        shown = [name for name, probes in NAMED.items() if any(probe.figures_of(view) for probe in probes)]
        remedy = f"harness probe --probe {' --probe '.join(shown)}"
    if not any(not row.is_published for row in found.rows):
        raise UsageError(
            f"expected {what} that the view {view} can show, found none in {', '.join(map(str, paths))}",
            hint=f"make some with: {remedy}",
        )
    sys.stdout.write(render_view(found, format).rstrip("\n") + "\n")
