"""Enumerations that a user chooses from."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection

from harness.model.units import unknown_name

Known = Collection[str] | Callable[[], Collection[str]]
"""Values of an option that completion offers, or what finds them."""


def offering(known: Known) -> Callable[[str], list[str]]:
    """For Typer's ``autocompletion``: also behind the comma of a list, or the plus of nested protections."""

    def offer(incomplete: str) -> list[str]:
        done = incomplete[: max(incomplete.rfind(mark) for mark in ",+") + 1]
        return [f"{done}{name}" for name in (known() if callable(known) else known)]

    return offer


_ALSO = {"text": ("plain",), "markdown": ("github", "md")}
"""Other words for choices, lower case."""


class Choice(enum.StrEnum):
    """Words that a user may type, in upper or lower case."""

    @classmethod
    def _missing_(cls, value: object) -> Choice:
        named = {choice.casefold(): choice for choice in cls} | {
            word: choice for choice in cls for word in _ALSO.get(choice, ())
        }
        typed = str(value).casefold()
        if typed in named:
            return named[typed]
        raise unknown_name(cls.__doc__ or "choice", str(value), map(str, cls))


class TextFormat(Choice):
    """format"""

    TEXT = "text"
    JSON = "json"
