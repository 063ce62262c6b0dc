"""Text wrapped to the terminal's width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

_KEPT = "\N{NO-BREAK SPACE}%"


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The lines of a text, none longer than ``width``, those after the first with ``indent``.

    Names are not cut at a hyphen, nor figures from their percent sign.
    """
    # textwrap breaks lines at ASCII's blanks alone.
    lines = textwrap.wrap(text.replace(" %", _KEPT), width, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace(_KEPT, " %") for line in lines]


def listed(names: Sequence[str], most: int = 3, joint: str = ", ") -> str:
    """``a, b, c and 4 more``: the first names, and how many there are besides."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return joint.join(names[:most]) + more


def counted(count: int, noun: str) -> str:
    """``1 repeat``, ``3 repeats``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def capital(words: str) -> str:
    """With a capital letter at the beginning; names behind it keep theirs."""
    return words[:1].upper() + words[1:]
