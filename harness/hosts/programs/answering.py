"""One request on standard input (JSON) and its answer on standard output, for stand-alone programs on a
host."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

NOT_REACHED = 4
"""Exit status if nothing answers at the portal."""

DEADLINE_S = 10.0


class PortalSilent(OSError):
    """Nothing answers at the portal."""


def answer(actions: Mapping[str, Callable[[dict[str, Any]], dict[str, Any] | None]]) -> None:
    """Have the action whose name is the request's ``do`` carry it out; OSError becomes a line that says why
    it could not."""
    try:
        request = json.load(sys.stdin)
        json.dump(actions[request["do"]](request), sys.stdout)
    except PortalSilent as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(NOT_REACHED)
    except OSError as error:
        # Without a number it is a sentence of a program's own.
        sys.exit(f"{error}" if error.errno is None else f"{type(error).__name__}: {error}")


def folders_that_say(files: Iterable[Path], wanted: str) -> list[Path]:
    """The folders of these files, of those that say this."""
    found = []
    for file in files:
        with contextlib.suppress(OSError):  # it has just gone
            if file.read_text().strip() == wanted:
                found.append(file.parent)
    return found


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """TimeoutError with ``what`` if it does not hold in time."""
    until = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} within {DEADLINE_S:g} s")
        time.sleep(0.02)
