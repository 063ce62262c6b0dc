"""Words that a user chooses from."""

from __future__ import annotations

import difflib
import enum

from harness.model.errors import UsageError
from harness.model.escape import printable

_ALSO = {"github": ("markdown", "md")}
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
        close = difflib.get_close_matches(typed, named, n=1)
        meant = f"did you mean {named[close[0]]}? " if close else ""
        raise UsageError(
            f"'{printable(str(value))}' is no {cls.__doc__}",
            hint=f"{meant}one of: {', '.join(map(str, cls))}",
        )
