"""Where a run's time goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

COLUMNS_UP, COLUMNS_DOWN = "columns up", "columns down"
CELLS = "fio's start, proof, counters"
"""Around fio; what fio measured for is within it."""
PROBES, OTHERS = "probes", "waiting for other programs"


class Stopwatch:
    """Seconds of each part of a run. What is a part of its own within another one counts for itself only.

    In virtual time nothing is counted: there each look at the clock takes a moment, and would change the run.
    """

    def __init__(self, *, is_virtual: bool = False) -> None:
        self._is_virtual = is_virtual
        self.parts_s: dict[str, float] = {}
        self._within_s = 0.0

    @contextlib.contextmanager
    def on(self, part: str) -> Iterator[None]:
        if self._is_virtual:
            yield
            return
        began_s, around_s = time.monotonic(), self._within_s
        self._within_s = 0.0
        try:
            yield
        finally:
            took_s = time.monotonic() - began_s
            self.parts_s[part] = self.parts_s.get(part, 0.0) + took_s - self._within_s
            self._within_s = around_s + took_s
