"""The kernel's log while a cell is measured: a warning of the kernel's makes the cell invalid."""

from __future__ import annotations

import contextlib
import os
import re

TELLTALES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(WARNING: CPU|BUG: |Oops|general protection fault|Kernel panic).*"), "kernel warning"),
    (re.compile(r"INFO: task .* blocked for more than.*"), "hung task"),
    (re.compile(r"detected conn error.*|session recovery timed out.*"), "the iSCSI session dropped"),
    (re.compile(r"I/O error, dev .*"), "I/O error"),
    (re.compile(r"Unable to (recover from|locate) .*", re.I), "LIO error"),
)
"""What to look for, and what it is called in the reason of an invalid cell."""


class KernelLog:
    """Reads /dev/kmsg (Documentation/ABI/testing/dev-kmsg) from the moment it is made."""

    def __init__(self) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._file, 0, os.SEEK_END)

    def read(self) -> list[str]:
        """The lines since the last call, oldest first; none where the log may not be read."""
        lines: list[str] = []
        while self._file is not None:
            try:
                line = os.read(self._file, 8192).decode("utf-8", "replace")
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Lines were overwritten before they were read; the next read goes on after the gap.
                continue
            lines.append(line.partition(";")[2].split("\n")[0])
        return lines

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def complaints(lines: list[str]) -> list[str]:
    """One reason for each line that tells of trouble, such as ``kernel warning: WARNING: CPU: 0 …``."""
    return [
        f"{kind}: {match[0]}"
        for line in lines
        for pattern, kind in TELLTALES
        if (match := pattern.search(line)) is not None
    ]
