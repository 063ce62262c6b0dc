"""Waits until the machine is idle before disturbed cells are measured again."""

from __future__ import annotations

import time

from harness.analysis import disturbance
from harness.observe.interference import Watch
from harness.results.events import Emit, Phase

PATIENCE_S = 60.0
"""How long a run waits in all for the machine to become idle."""

LOOK_S = 0.5
"""How long one check for idleness takes."""


class Patience:
    """A run's patience with other programs, which all its waits use up together."""

    def __init__(self, watch: Watch, emit: Emit) -> None:
        self._watch = watch
        self._emit = emit
        self._left_s = PATIENCE_S

    def wait_for_idle(self) -> bool:
        """Wait until other programs leave room for a measurement; False if the patience ends first."""
        is_reported = False
        while self._left_s > 0:
            # A look at machines over SSH takes longer than the sleep in it.
            began_s = time.monotonic()
            with self._watch() as watching:
                time.sleep(LOOK_S)
            is_idle = disturbance.is_idle(watching.taken())
            self._left_s -= time.monotonic() - began_s
            if is_idle:
                return True
            if not is_reported:
                most_s = max(0.0, self._left_s)
                self._emit(Phase(f"waiting until the machine is idle, at most {most_s:.0f} s"))
            is_reported = True
        return False
