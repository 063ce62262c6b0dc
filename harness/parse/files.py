"""Files that others wrote: a limited number of bytes, and a user's text and TOML.

Errors name the file, and for TOML also line and key. A file that is not regular is not read at all: a pipe
may never deliver anything, and a device may never end.
"""

from __future__ import annotations

import codecs
import dataclasses
import errno
import itertools
import os
import re
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.model import texts
from harness.model.errors import Unreadable, UsageError
from harness.model.escape import printable
from harness.model.units import check_name, shown, unknown_name

LARGEST_FILE_BYTES = 1 << 20
"""No file that a person writes is larger; /dev/zero and disk images are."""

LARGEST_DATA_BYTES = 256 << 20
"""No record and no tool's output is larger: the longest, iperf3's for a whole day, has some 90 MB."""

T = TypeVar("T", bound=msgspec.Struct)

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(mode: int) -> str:
    """The kind of a file by its mode (``st_mode``), in words."""
    return next((words for is_one, words in _KINDS if is_one(mode)), "a file")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Room:
    """The free space of a folder's file system; ``files`` is None if they are not counted."""

    free_bytes: int
    files: int | None

    @classmethod
    def of(cls, folder: Path | str) -> Room:
        found = os.statvfs(folder)
        # btrfs makes inodes as they are needed, and reports that it has none.
        return cls(
            free_bytes=found.f_bavail * found.f_frsize, files=found.f_favail if found.f_files else None
        )


def _flags(*names: str) -> int:
    """Flags of open(2), as far as the system has them: Windows has only O_BINARY."""
    return sum(getattr(os, name, 0) for name in names)


_CAREFUL = _flags("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
"""Do not wait for a pipe, and do not make a terminal the controlling one."""
_NO_LINK = _flags("O_NOFOLLOW")


def read_bytes(
    path: Path | str,
    *,
    kind: str = "",
    most: int = LARGEST_DATA_BYTES,
    first: int | None = None,
    follow: bool = True,
) -> bytes:
    """The bytes of a regular file, at most ``most``, or its ``first``; UsageError for anything else and for
    no file.

    Without ``follow`` a symbolic link is refused: whoever made a folder must not choose what is read
    elsewhere. ``kind`` is for the sentence.
    """
    label = f"{kind} file {shown_path(path)}" if kind else shown_path(path)
    flags = os.O_RDONLY | _CAREFUL | (0 if follow else _NO_LINK)
    found = "nothing there"
    try:
        descriptor = os.open(path, flags)
        try:
            state = os.fstat(descriptor)
            if stat.S_ISREG(state.st_mode):
                if first is None and state.st_size > most:
                    raise UsageError(
                        f"{label}: expected at most {most >> 20} MiB, found {state.st_size >> 20}",
                        hint="is it the right file?",
                    )
                # As much as it has by its own size: those of procfs, which may never end, have nothing.
                with open(descriptor, "rb", closefd=False) as file:
                    return file.read(state.st_size if first is None else min(first, state.st_size))
            found = kind_of(state.st_mode)
        finally:
            os.close(descriptor)
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"expected a path, found '{shown_path(path)}'", hint="name a file") from error
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            found = "a symbolic link"
        elif error.errno == errno.ENXIO:
            found = "a socket or a device without a driver"
        elif error.errno != errno.ENOENT:
            raise Unreadable(
                f"{label} cannot be read: {error.strerror}", hint="check the path, its owner and its mode"
            ) from error
    raise UsageError(f"{label}: expected a regular file, found {found}", hint="check the path")


def read_text(path: Path, kind: str) -> str:
    """The text of a file that a user wrote: regular, at most 1 MiB, UTF-8 without byte order mark or NUL.

    UsageError, beginning with ``kind`` and the file's name, for every other file and for no file.
    """
    label = f"{kind} file {shown_path(path)}"
    data = read_bytes(path, kind=kind, most=LARGEST_FILE_BYTES)
    marks = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if data.startswith(marks):
        raise UsageError(
            f"{label}, line 1: expected plain UTF-8, found a byte order mark",
            hint="save it as UTF-8 without BOM",
        )
    if b"\0" in data:
        raise UsageError(
            f"{label}, line {_line_at(data, data.index(0))}: expected text, found a NUL byte",
            hint="is it a binary file, or UTF-16? Save it as UTF-8",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{label}, line {_line_at(data, error.start)}: expected UTF-8, "
            f"found the byte 0x{data[error.start]:02x}",
            hint="is it Latin-1? Save it as UTF-8",
        ) from error


def shown_path(path: Path | str) -> str:
    """The whole ``path``, unable to drive a terminal."""
    return printable(str(path))


def unreadable(path: Path | str, error: OSError) -> Unreadable:
    """The error for what may not be looked at."""
    return Unreadable(
        f"{shown_path(path)} cannot be read: {error.strerror}", hint="check who owns it and its mode"
    )


def _line_at(data: bytes, offset: int) -> int:
    return data[:offset].count(b"\n") + 1


@dataclasses.dataclass(frozen=True)
class TomlFile:
    """A file of a kind, with its text, to say in which line something is wrong."""

    kind: str
    path: Path
    text: str
    updated: Callable[[dict[str, object]], dict[str, object]] = dict
    """Replaces old keys and values by those that are known."""

    def refuse(self, key: str, message: str, hint: str) -> UsageError:
        pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]|\s*\[+\s*{re.escape(key)}\b")
        lines = (n for n, line in enumerate(self.text.split("\n"), 1) if pattern.match(line))
        where = [f"{self.kind} file {shown_path(self.path)}"]
        where += [f"line {n}" for n in itertools.islice(lines, 1)]
        return UsageError(f"{', '.join(where)}, {printable(key[:60])}: {message}", hint=hint)

    def parse(self) -> dict[str, object]:
        try:
            return self.updated(tomllib.loads(self.text))
        # Besides its own error, tomllib raises ValueError for integers of over 4300 digits.
        except (ValueError, RecursionError) as error:
            label = f"{self.kind} file {shown_path(self.path)}"
            reason, hint = str(error), "compare it with a shipped file"
            if found := re.search(r" \(at line ([0-9]+), column [0-9]+\)$", reason):
                line = self.text.split("\n")[int(found[1]) - 1]
                label += f", line {found[1]}, {shown(line.strip())}"
                reason = reason[: found.start()]
                if "overwrite" in reason:
                    raise UsageError(f"{label}: the key appears twice", hint="remove one") from error
            raise UsageError(f"{label}: expected valid TOML: {printable(reason)}", hint=hint) from error

    def load_named(self, cls: type[T], **given: object) -> T:
        """``load`` of a ``cls`` whose ``name`` is the file's."""
        if "name" in self.parse():
            raise self.refuse(
                "name", "the name comes from the file's name", "remove the key, or rename the file"
            )
        return self.load(cls, name=check_name(self.kind, self.path.stem), **given)

    def load(self, cls: type[T], **given: object) -> T:
        """The file as a ``cls``: with known keys, correct types, and text of one visible line.

        ``given`` are fields that do not come from the file. UsageError names file, line and key.
        """
        data = self.parse()
        # A field that is unset by default is the program's own.
        fields = [
            field.name
            for field in msgspec.structs.fields(cls)
            if field.name not in given and field.default is not msgspec.UNSET
        ]
        for key in data:
            if key not in fields:
                error = unknown_name("key", key, fields)
                raise self.refuse(key, error.message, error.hint or "")
        try:
            value = msgspec.convert({**data, **given}, cls)
        except msgspec.ValidationError as error:
            words = texts.in_words(error, {**data, **given})
            reason, _, where = words.replace("`", "").partition(" - at $.")
            missing = re.search(r"missing required field (\w+)", reason)
            key = missing[1] if missing else re.split(r"[.\[]", where)[0]
            hint = f"the documentation of {self.kind} files describes every key"
            raise self.refuse(key, reason, hint) from error
        for field in fields:
            content = getattr(value, field)
            if isinstance(content, str) and not content.isprintable():
                raise self.refuse(
                    field,
                    f"expected one line of visible characters, found {shown(content)}",
                    "remove line breaks and control characters",
                )
        return value
