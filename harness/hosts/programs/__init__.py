"""Stand-alone programs for a host, under the distribution's Python, perhaps on another machine.

They reach the host through standard input or a command line, so nothing has to be installed there. They
import the standard library and modules of a folder ``programs``, which are sent with them. Each is in the
folder ``programs`` of the package that sends it. Programs in C are compiled where they are needed.
"""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path

PYTHON = "/usr/bin/python3"
"""The distribution's own, because another machine has no virtual environment of ours."""


def path(room: str, name: str) -> Path:
    """A file in the folder ``programs`` of one of the harness's packages."""
    return Path(importlib.import_module(room).__path__[0], "programs", name)


SHARED = re.compile(r"^from (harness[.\w]*)\.programs\.(\w+) import ", re.MULTILINE)

SENT_TOGETHER = """\
import sys, types
for name, text in {shared!r}.items():
    sys.modules[name] = types.ModuleType(name)
    exec(text, vars(sys.modules[name]))
exec({program!r})
"""


@functools.cache
def source(room: str, name: str) -> str:
    """The text of a package's program, with the modules of such folders that it imports."""
    text = path(room, f"{name}.py").read_text(encoding="utf-8")
    shared = {f"{of}.programs.{module}": source(of, module) for of, module in SHARED.findall(text)}
    return SENT_TOGETHER.format(shared=shared, program=text) if shared else text
