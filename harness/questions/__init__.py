"""The questions that the harness answers beside the matrix. Each is a folder, and can be taken out.

A question knows what is below this package, and no other question. Its ``question.toml`` has its command, and
``OFFERED`` of its ``__init__.py`` what it adds to other commands and to schemas, imported once it is used.
Nothing outside its folder names it. Only its ``command.py``, ``plan.py`` and ``around.py`` may import what
measures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness.model.kinds import offered

Ask = Callable[[str, str], str] | None
"""Asks a question at the terminal, after another word if that is not empty. None without a terminal."""


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


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something that ``harness explain`` does with runs before it explains them: ``options`` are the
    annotations of its own, by what is typed behind ``--``. ``load`` imports what is called with the paths and
    the typed values if there is one."""

    options: Mapping[str, Any]
    load: Callable[[], Callable[[Sequence[Path], Mapping[str, Any]], None]]


class OfferedCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command of its own: ``place`` is module and function, and what it does is the function's docstring.
    It stands below ``heading`` in ``harness --help``; ``examples`` are lines."""

    name: str
    place: str
    heading: str
    examples: str = ""


class InHelp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``question.toml`` says: its ``commands``, whose places are in its folder, and ``examples`` below
    the help of others, by their names."""

    commands: tuple[OfferedCommand, ...] = ()
    examples: dict[str, str] = {}


class PrintedType(NamedTuple):
    """What is printed as JSON: its type, the title of its schema, and a command that prints it."""

    type: Any
    title: str
    command: str


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a question adds; ``schemas`` loads what it prints as JSON, by name."""

    name: str
    explains: tuple[Source, ...] = ()
    acts: tuple[Action, ...] = ()
    schemas: Callable[[], Mapping[str, PrintedType]] = dict


def declared() -> dict[str, InHelp]:
    """What all of them declare, by the module that a question is."""
    files = sorted(Path(__file__).parent.glob("*/question.toml"))
    found = [msgspec.toml.decode(file.read_bytes(), type=InHelp) for file in files]
    return {f"{__name__}.{file.parent.name}": each for file, each in zip(files, found, strict=True)}


@functools.cache
def questions() -> tuple[Offer, ...]:
    """What all of them offer, in the order of their names."""
    return tuple(offered(__name__, within=""))
