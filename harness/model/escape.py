"""Names that others chose, made harmless for the place where they are shown.

A job, link or host name comes from files that anybody may have written. Unescaped, it could drive a terminal,
open a tag, start a spreadsheet's formula or break a table.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

import msgspec

_MARKDOWN = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    **{character: f"\\{character}" for character in "\\`*_|~"},
}
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{ALMOST EQUAL TO}": r"$\approx$",
    "µ": r"$\mu$",
    "\N{EN DASH}": "--",
    "\N{EM DASH}": "---",
    # \\ at the end of a row would take a following [ for its optional argument.
    "[": "{[}",
    "]": "{]}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_MARKDOWN_TABLE = str.maketrans(_MARKDOWN)
_LATEX_TABLE = str.maketrans(_LATEX)


def printable(text: str) -> str:
    """``text`` with everything that is not a visible character or a plain space as ``\\x1b`` and the like.

    That includes control characters of both sets, line and paragraph separators, the marks that reverse the
    direction of writing, and unpaired surrogates.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def for_html(text: str) -> str:
    """For element content and quoted attributes; ASCII only, so that no charset has to be declared."""
    return for_page(text).encode("ascii", "xmlcharrefreplace").decode("ascii")


def for_page(text: str) -> str:
    """The same for a page or a picture that is UTF-8, where µ takes two bytes instead of six."""
    return html.escape(printable(text))


def for_markdown(text: str) -> str:
    """For a cell or a line of GitHub's Markdown: no tag, no emphasis, no link, no new column."""
    return re.sub(r"\](?=[(\[])", r"\\]", printable(text).translate(_MARKDOWN_TABLE))


def for_latex(text: str) -> str:
    """For running text and ``tabular`` cells."""
    return printable(text).translate(_LATEX_TABLE)


_FORMULA = ("=", "+", "-", "@", "|", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a formula begins with: the last four are the full-width forms of the first; `|` is DDE's."""


def for_csv(text: str) -> str:
    """For a spreadsheet: a text that looks like a formula gets an apostrophe (OWASP, "CSV Injection")."""
    text = printable(text)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def as_json(value: Any) -> str:
    """``value`` as indented JSON in ASCII: names keep every character, and none can drive a terminal."""
    return in_ascii(json.dumps(msgspec.to_builtins(value), indent=2, allow_nan=False))


def in_ascii(text: str) -> str:
    """The same JSON, with all that is not ASCII as escapes (RFC 8259, section 7), and DEL, too."""
    return _BEYOND_ASCII.sub(_escaped, text)


_BEYOND_ASCII = re.compile("[^\0-~]")


def _escaped(character: re.Match[str]) -> str:
    units = character[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
