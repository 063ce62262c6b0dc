"""A heartbeat from inside the guest shows ``testbed``, which watches from outside, that time passes there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

HEARTBEAT = "heartbeat"
"""The file in a run's folder that is written while the run goes on."""

VIRTUAL_BEAT_S, BEAT_S = 0.1, 10.0
"""Seconds between two beats. Virtual time stands still while one is written; in real time that takes some
0.1 ms of what is measured."""


@contextlib.contextmanager
def beating(folder: Path, beat_s: float) -> Iterator[None]:
    """Count up in a file while the context lasts; then remove the file."""
    file = folder / HEARTBEAT
    end = threading.Event()

    def beat() -> None:
        count = 0
        while not end.wait(beat_s):
            count += 1
            # A full disk ends the run elsewhere, with a better message.
            with contextlib.suppress(OSError):
                file.write_text(str(count), encoding="utf-8")

    heart = threading.Thread(target=beat, daemon=True)
    heart.start()
    try:
        yield
    finally:
        end.set()
        heart.join()
        file.unlink(missing_ok=True)
