"""Programs that run by themselves on a host, under the distribution's Python, perhaps on another machine.

They come to it through standard input or a command line, so nothing of ours is installed there, and they
import nothing of the harness and nothing beyond the standard library (``lio.py``: and rtslib).
``calibrate.c`` is compiled where it is needed.
"""

from __future__ import annotations

from pathlib import Path

PYTHON = "/usr/bin/python3"
"""The distribution's own: rtslib is a package of its, and no virtual environment goes to another machine."""


def source(name: str) -> str:
    """The text of one of the programs in this folder."""
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
