"""The command ``harness table``. It imports nothing that measures: a table should be there at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from harness.model.errors import UsageError
from harness.model.probing import NAMED, View
from harness.parse import references
from harness.results.measured import Measured
from harness.results.store import RESULTS, open_probes
from harness.table import Metric, Options, RatioTo, TableFormat
from harness.terminal.common import (
    MetricOption,
    PoolOption,
    ReferenceOption,
    ResultsPaths,
    format_option,
)
from harness.terminal.tables import print_table


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


def print_view(
    paths: Sequence[Path], view: View, reference: str | None, format: TableFormat = TableFormat.TEXT
) -> None:
    """Print a view of the probes or cells in ``paths``, with the published figures of that view."""
    from harness.table import views  # here, because most tables are the matrix

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
        found, what, remedy = views.build_scale(records), "cells", "harness run --lab-initiators 8"
    elif view is View.COUNTERS:
        cells = Measured.read(paths)
        found, what, remedy = (
            views.build_counters(cells.records, [*cells.plans.values()]),
            "cells",
            "harness run",
        )
    else:
        found, what = views.build(view, open_probes(paths), published), "probes"
        shown = [name for name, probes in NAMED.items() if any(probe.figures_of(view) for probe in probes)]
        remedy = f"harness probe --probe {' --probe '.join(shown)}"
    if not any(not row.is_published for row in found.rows):
        raise UsageError(
            f"expected {what} that the view {view} can show, found none in {', '.join(map(str, paths))}",
            hint=f"make some with: {remedy}",
        )
    sys.stdout.write(views.render(found, format).rstrip("\n") + "\n")
