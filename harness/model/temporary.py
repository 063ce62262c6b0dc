"""Private temporary folders, and the removal of those that killed commands left."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "harness-tmp-"
LOCK = ".lock"
"""A file in each, which is locked while the folder is used."""

YOUNG_S = 60.0
"""A folder may be younger than its lock."""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder of this user's alone below ``$TMPDIR``, while the context lasts."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as made, Path(made, LOCK).open("xb") as lock:
        # Results are read on any system; commands that `clean` cleans up after need Linux.
        with contextlib.suppress(ModuleNotFoundError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(made)


def remove_left() -> list[str]:
    """Remove this user's folders that nobody holds any more; returns their paths."""
    import fcntl

    removed = []
    for each in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            found = each.lstat()
            is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if not is_ours or time.time() - found.st_mtime < YOUNG_S:
                continue
            with (each / LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(each)
            removed.append(str(each))
    return removed
