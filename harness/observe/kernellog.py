"""The kernel's log while a cell is measured: a kernel warning makes the cell invalid."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.hosts.footprint import Trouble

TROUBLES: tuple[Trouble, ...] = (
    (re.compile(r"\b(WARNING: CPU|BUG: |Oops|general protection fault|Kernel panic).*"), "kernel warning"),
    (re.compile(r"INFO: task .* blocked for more than.*"), "hung task"),
    (re.compile(r"I/O error, dev .*"), "I/O error"),
)
"""Troubles that any cell may meet. Resources that a run sets up have more (``TROUBLES``)."""


def complaints(lines: list[str], more: Sequence[Trouble] = ()) -> list[str]:
    """One reason for each line that reports trouble, such as ``kernel warning: WARNING: CPU: 0 …``."""
    return [
        f"{kind}: {match[0]}"
        for line in lines
        for pattern, kind in (*TROUBLES, *more)
        if (match := pattern.search(line)) is not None
    ]
