"""Programs that run by themselves on a host, under the distribution's Python, perhaps on another machine.

They come to it through standard input or a command line, so nothing of ours is installed there, and they
import nothing of the harness and nothing beyond the standard library (``lio.py``: and rtslib). Each is in
the folder ``programs`` of the room that sends it. What is written in C is compiled where it is needed.
"""

from __future__ import annotations

import importlib
from pathlib import Path

PYTHON = "/usr/bin/python3"
"""The distribution's own: rtslib is a package of its, and no virtual environment goes to another machine."""


def path(room: str, name: str) -> Path:
    """A file in the folder ``programs`` of a room, which is a package of ours."""
    return Path(importlib.import_module(room).__path__[0], "programs", name)


def source(room: str, name: str) -> str:
    """The text of a program of a room's."""
    return path(room, f"{name}.py").read_text(encoding="utf-8")
