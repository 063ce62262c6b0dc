"""The questions that the harness answers beside the matrix. Each is a folder, and can be taken out.

A question knows what is below this package, and no other question. Its ``offer.py`` has ``OFFERED``: what it
adds to commands and schemas, imported once it is used. Nothing outside its folder names it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from harness.model.offered import offered

Ask = Callable[[str, str], str]
"""Asks at the terminal, after a word on what was wrong with the answer before ("" for none)."""


class Explanation(NamedTuple):
    """``lines`` are for people, of which those that begin with a blank stay whole; ``document`` is for
    programs."""

    lines: Sequence[str]
    document: msgspec.Struct


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Something else than results that ``harness explain`` explains: an option of its own.

    ``option`` is the annotation of its parameter. ``load`` imports what explains the typed value, with
    ``Ask``. ``files`` are shipped ones that it reads, a pattern below the folder of data.
    """

    name: str
    option: Any
    load: Callable[[], Callable[[Any, Ask], Explanation]]
    files: str = ""


class PrintedType(NamedTuple):
    """What is printed as JSON: its type, the title of its schema, and a command that prints it."""

    type: Any
    title: str
    command: str


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a question adds. ``examples`` are lines below the help of commands, by these; ``schemas`` loads
    what it prints as JSON, by name."""

    name: str
    explains: tuple[Source, ...] = ()
    examples: Mapping[str, tuple[str, ...]] = {}
    schemas: Callable[[], Mapping[str, PrintedType]] = dict


@functools.cache
def questions() -> tuple[Offer, ...]:
    """What all of them offer, in the order of their names."""
    return tuple(offered(__name__, within="offer"))


def examples_of(command: str) -> list[str]:
    """Lines below its help."""
    return [line for question in questions() for line in question.examples.get(command, ())]
