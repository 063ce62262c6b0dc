"""What a program says to a fake's user."""

from __future__ import annotations

Answer = tuple[int, str, str]
"""Exit status, standard output, standard error."""

DONE: Answer = (0, "", "")
NO: Answer = (1, "", "")
