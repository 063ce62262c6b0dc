"""Where the harness keeps what it can make again: kernels, modules, sources."""

from __future__ import annotations

import os
from pathlib import Path

from harness.model.errors import RequirementError


def folder(*names: str) -> Path:
    """``$XDG_CACHE_HOME/harness``, or ``~/.cache/harness``, and a folder in it; it may not exist.

    RequirementError if there is no home.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    # XDG Base Directory Specification: a relative path is ignored.
    if given.startswith("/"):
        return Path(given, "harness", *names)
    try:
        return Path.home() / ".cache" / "harness" / Path(*names)
    except RuntimeError as error:  # neither $HOME nor an entry of this user in passwd(5)
        raise RequirementError(
            "expected a home folder for what is kept between runs, found none", hint="set HOME"
        ) from error


def make(*names: str) -> Path:
    """The same, made if absent. It and what is around it are this user's alone, whatever the umask."""
    folder().parent.mkdir(parents=True, exist_ok=True)
    for count in range(len(names) + 1):
        made = folder(*names[:count])
        made.mkdir(mode=0o700, exist_ok=True)
        # The umask may have taken more, and versions before left more.
        made.chmod(0o700)
    return folder(*names)
