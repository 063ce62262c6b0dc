"""How far lanes are, on one line: ``[412/4800] 6 min left``."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness.model.units import about
from tests.lanes import recorder

EVERY_S = 20.0
"""Where lines stay; on a terminal one line is written anew each second."""

TRUSTED = 0.2
"""From this part of the work on, what is left is judged by how fast it went so far."""


Say = Callable[[str], None]
Expected = dict[str, tuple[int, float]]
"""For each lane its tests and its seconds of processor."""


def left_s(done: float, elapsed_s: float, expected_s: float) -> float:
    """Seconds that are left, by the part that is done, and before that by what it usually takes."""
    return max(0.0, expected_s - elapsed_s) if done < TRUSTED else elapsed_s * (1 - done) / done


def words(ended: int, tests: int, seconds: float) -> str:
    """What is shown."""
    return f"[{ended}/{max(ended, tests)}] {about(seconds)} left"


class Progress(threading.Thread):
    """Says how far all lanes are, until it is stopped. ``folder`` has the records of those that run."""

    def __init__(self, folder: Path, expected: Expected, expected_s: float, say: Say) -> None:
        super().__init__(daemon=True)
        self.folder, self.expected, self.expected_s, self.say = folder, expected, expected_s, say
        self.ended: set[str] = set()
        self.began = time.monotonic()
        self._stopped = threading.Event()
        self._is_terminal = sys.stdout.isatty()

    def now(self) -> str:
        """How far it is."""
        ended = tests = 0
        work = done = 0.0
        for lane, (usual, processor_s) in self.expected.items():
            some, all_of_it = recorder.counted(self.folder / f"{lane}.json")
            all_of_it = all_of_it or usual
            if lane in self.ended:
                some = all_of_it
            ended, tests = ended + some, tests + all_of_it
            work, done = work + processor_s, done + processor_s * min(1.0, some / max(1, all_of_it))
        elapsed_s = time.monotonic() - self.began
        return words(ended, tests, left_s(done / max(1.0, work), elapsed_s, self.expected_s))

    def run(self) -> None:
        while not self._stopped.wait(1.0 if self._is_terminal else EVERY_S):
            text = self.now()
            self.say(f"\r\x1b[K{text}\r" if self._is_terminal else f"{text}\n")

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        if self._is_terminal:
            self.say("\r\x1b[K")
