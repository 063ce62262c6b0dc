"""Prints the matrix of results, or what stands in its place. It imports nothing that measures."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from harness.api import Results
from harness.table import Options, TableFormat, render


def print_table(paths: list[Path], options: Options, format: TableFormat, *, is_pooled: bool = False) -> None:
    """The matrix; instead of it curves, and what questions show, unless more is asked for."""
    results = Results.read(paths, is_pooled=is_pooled)
    if options == Options() and format is TableFormat.TEXT and (results.curves or results.section_tables):
        from harness.table import curves  # here, because most results have none

        tables = [curves.render(results.curves)] if results.curves else []
        tables += results.section_tables
        sys.stdout.write("\n\n".join(tables) + "\n")
        results = results.rest
        if not results.records:
            return
        sys.stdout.write("\n")
    found = results.table_of(options)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.write(render(found, format, width).rstrip("\n") + "\n")
