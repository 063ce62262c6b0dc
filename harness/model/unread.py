"""Records that cannot be read: each is reported by name, and all others are still read.

A command notes them, goes on with the others, and names them at its end, with status 1. Where nobody notes
them, the first one is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from harness.model.errors import Unreadable

T = TypeVar("T")


class _Noted(list[Unreadable]):
    """Errors with different messages, of which there may be thousands."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = set[str]()


_NOTED: ContextVar[_Noted | None] = ContextVar("noted", default=None)


@contextlib.contextmanager
def noted() -> Iterator[list[Unreadable]]:
    """While it lasts, what cannot be read is added to the list, once each."""
    found = _Noted()
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)


@contextlib.contextmanager
def passed_on() -> Iterator[list[Unreadable]]:
    """The same for a part of what is read; at its end whoever notes errors has them too."""
    with noted() as found:
        yield found
    for error in found:
        note(error)


def sentences(found: Sequence[Unreadable]) -> tuple[str, ...]:
    """For a table or page that lacks these: none, or one sentence."""
    if not found:
        return ()
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return (f"Incomplete: {found[0].message}{more}.",)


def note(error: Unreadable) -> None:
    """Note an error; raises it if nobody notes any."""
    found = _NOTED.get()
    if found is None:
        raise error
    if error.message not in found.messages:
        found.messages.add(error.message)
        found.append(error)


def each(files: Iterable[Path], read: Callable[[Path], T]) -> Iterator[T]:
    """What ``read`` makes of each file. Those for which it raises Unreadable are noted and left out."""
    for file in files:
        try:
            found = read(file)
        except Unreadable as error:
            note(error)
        else:
            yield found
