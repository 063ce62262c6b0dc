"""Where the harness keeps what it can make again: kernels, modules, sources."""

from __future__ import annotations

import os
from pathlib import Path


def folder(*names: str) -> Path:
    """``$XDG_CACHE_HOME/harness``, or ``~/.cache/harness``, and a folder in it; it may not exist.

    RuntimeError if there is no home.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    # XDG Base Directory Specification: a relative path is ignored.
    return Path(given if given.startswith("/") else Path.home() / ".cache", "harness", *names)


def make(*names: str) -> Path:
    """The same, made if absent. It and what is around it are this user's alone, whatever the umask."""
    folder().parent.mkdir(parents=True, exist_ok=True)
    for count in range(len(names) + 1):
        made = folder(*names[:count])
        made.mkdir(mode=0o700, exist_ok=True)
        # The umask may have taken more, and versions before left more.
        made.chmod(0o700)
    return folder(*names)
