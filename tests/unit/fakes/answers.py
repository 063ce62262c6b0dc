"""What a program says to a fake's user."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

Answer = tuple[int, str, str]
"""Exit status, standard output, standard error."""

DONE: Answer = (0, "", "")
NO: Answer = (1, "", "")


def asked(argv: tuple[str, ...], text: str, programs: Collection[str]) -> Any:
    """What one of these programs of Python is asked to do; None if it is another command."""
    is_one = argv[:4] == ("/usr/bin/python3", "-I", "-S", "-c") and argv[4] in programs
    return json.loads(text) if is_one else None
