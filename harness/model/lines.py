"""Text in lines of a terminal's width."""

from __future__ import annotations

import textwrap

_KEPT = "\N{NO-BREAK SPACE}%"


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The lines of a text, none longer than ``width``, those after the first with ``indent``.

    Names are not cut at a hyphen, nor figures from their percent sign.
    """
    # textwrap breaks lines at ASCII's blanks alone.
    lines = textwrap.wrap(text.replace(" %", _KEPT), width, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace(_KEPT, " %") for line in lines]
