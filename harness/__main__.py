"""``harness``, which is ``python -m harness``."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Entry point: import the command line, which takes a while, and run it."""
    # So far nothing is up that would have to be taken down.
    signal.signal(signal.SIGINT, lambda number, _frame: os._exit(128 + number))
    # Open a closed standard stream: otherwise the next file opened would get its number, and its text. What
    # cannot be printed to a closed standard output stays an error (EBADF), as of other programs.
    for name, mode, access in (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            # For as long as the process lives.
            setattr(sys, name, open(os.open(os.devnull, access), mode))  # noqa: SIM115, PTH123
    from harness.cli import main

    main()


if __name__ == "__main__":
    main()
