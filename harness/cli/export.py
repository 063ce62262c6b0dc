"""The command ``harness export``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from harness.model.errors import UsageError
from harness.results.measured import Measured
from harness.results.store import RESULTS
from harness.table import export
from harness.terminal.common import (
    ResultsPaths,
    format_option,
    output_option,
    write,
)


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
