"""Programs that run by themselves on a host, under the distribution's Python, perhaps on another machine.

They reach the host through standard input or a command line, so nothing has to be installed there. They
import nothing of the harness and nothing beyond the standard library (``lio.py`` also imports rtslib). Each
is in the folder ``programs`` of the room that sends it. Programs in C are compiled where they are needed.
"""

from __future__ import annotations

import importlib
from pathlib import Path

PYTHON = "/usr/bin/python3"
"""The distribution's own: rtslib is one of its packages, and another machine has no virtual environment of
ours."""


def path(room: str, name: str) -> Path:
    """A file in the folder ``programs`` of a room, which is a package of the harness."""
    return Path(importlib.import_module(room).__path__[0], "programs", name)


def source(room: str, name: str) -> str:
    """The text of a program of a room's."""
    return path(room, f"{name}.py").read_text(encoding="utf-8")
