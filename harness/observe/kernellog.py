"""The kernel's log while a cell is measured: a kernel warning makes the cell invalid."""

from __future__ import annotations

import re

TELLTALES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(WARNING: CPU|BUG: |Oops|general protection fault|Kernel panic).*"), "kernel warning"),
    (re.compile(r"INFO: task .* blocked for more than.*"), "hung task"),
    (re.compile(r"detected conn error.*|session recovery timed out.*"), "the iSCSI session dropped"),
    (re.compile(r"I/O error, dev .*"), "I/O error"),
    (re.compile(r"Unable to (recover from|locate) .*", re.I), "LIO error"),
)
"""What to look for, and its name in the reason of an invalid cell."""


def complaints(lines: list[str]) -> list[str]:
    """One reason for each line that reports trouble, such as ``kernel warning: WARNING: CPU: 0 …``."""
    return [
        f"{kind}: {match[0]}"
        for line in lines
        for pattern, kind in TELLTALES
        if (match := pattern.search(line)) is not None
    ]
