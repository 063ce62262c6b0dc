"""A heartbeat from inside the guest shows ``testbed``, which watches from outside, that virtual time
passes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

HEARTBEAT = "heartbeat"
"""The file in a run's folder that is written while the run goes on."""

BEAT_S = 0.1
"""Virtual seconds between two beats. A beat costs none: virtual time stands still while it is written."""


@contextlib.contextmanager
def beating(folder: Path) -> Iterator[None]:
    """Count up in a file while the context lasts; then remove the file."""
    file = folder / HEARTBEAT
    end = threading.Event()

    def beat() -> None:
        count = 0
        while not end.wait(BEAT_S):
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
