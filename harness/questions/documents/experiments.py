"""What is measured for each published article, as data: a file of ``profiles/articles/``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

import msgspec

from harness.model.errors import UsageError
from harness.parse.profiles import data_folder

Values = dict[str, str | tuple[str, ...]]
"""Options of a command by their names, without dashes."""


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One command for an article, by its file's name, and its options. ``virtual`` are its further ones in
    virtual time; None: it is not made there, because of ``no_virtual``. ``quick`` and ``quick_virtual`` make
    a short trial of it."""

    article: str = ""
    command: Literal["run", "probe"]
    profile: str
    options: Values = {}
    virtual: Values | None = None
    no_virtual: str = ""
    quick: Values = {}
    quick_virtual: Values = {}

    def words(self, *, virtual: bool, quick: bool = False) -> list[str]:
        """The command's words behind ``harness``."""
        short = (self.quick_virtual if virtual else self.quick) if quick else {}
        further = (self.virtual or {}) if virtual else {}
        options = {"profile": self.profile} | self.options | further | short
        clock = ["--virtual-time"] if virtual else []
        several = ((name, [value] if isinstance(value, str) else value) for name, value in options.items())
        typed = (word for name, values in several for value in values for word in (f"--{name}", value))
        return [self.command, *clock, *typed]

    def command_line(self, *, virtual: bool) -> str:
        """The whole command as it is typed."""
        return shlex.join(["harness", *self.words(virtual=virtual)])


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    order: int
    experiment: tuple[Experiment, ...]


def experiments() -> tuple[Experiment, ...]:
    """All experiments, by article; UsageError says what is wrong with a file."""
    files = {file.stem: _read(file) for file in data_folder().glob("profiles/articles/*.toml")}
    return tuple(
        msgspec.structs.replace(experiment, article=article)
        for article, file in sorted(files.items(), key=lambda each: each[1].order)
        for experiment in file.experiment
    )


def _read(file: Path) -> _File:
    try:
        return msgspec.toml.decode(file.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not a readable list of experiments: {error}") from error
