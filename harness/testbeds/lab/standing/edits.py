"""When files are edited: inotify(7), for which Python has no module."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

NONBLOCK, CLOSE_ON_EXEC = os.O_NONBLOCK, os.O_CLOEXEC
CHANGED, CLOSED, MOVED, DELETED = 0x4, 0x8, 0x80, 0x200
"""IN_ATTRIB (a new time, too), IN_CLOSE_WRITE, IN_MOVED_TO and IN_DELETE of inotify.h."""


@contextlib.contextmanager
def noticed(folders: Iterable[Path]) -> Iterator[int | None]:
    """A file that can be read once something in one of these folders is edited; None if there can be none."""
    libc = ctypes.CDLL(None)
    file = libc.inotify_init1(NONBLOCK | CLOSE_ON_EXEC)
    if file < 0:
        yield None
        return
    try:
        for folder in folders:  # whichever the kernel has no room for goes unnoticed
            libc.inotify_add_watch(file, os.fsencode(folder), CHANGED | CLOSED | MOVED | DELETED)
        yield file
    finally:
        os.close(file)


def forget(file: int) -> None:
    """Let it be readable only after the next edit."""
    with contextlib.suppress(BlockingIOError):
        while os.read(file, 1 << 16):
            pass
