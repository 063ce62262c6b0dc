"""Files that a user wrote: text and TOML, refused with file, line and key where something is wrong."""

from __future__ import annotations

import codecs
import dataclasses
import itertools
import re
import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.errors import UsageError
from harness.escape import printable
from harness.units import check_name, shown, unknown_name

LARGEST_FILE_BYTES = 1 << 20
"""No file that a person writes is larger; /dev/zero and disk images are."""

T = TypeVar("T", bound=msgspec.Struct)


def read_text(path: Path, kind: str) -> str:
    """The text of a file that a user wrote: regular, at most 1 MiB, UTF-8 without byte order mark or NUL.

    UsageError, beginning with ``kind`` and the file's name, for every other file and for none.
    """
    label = f"{kind} file {shown_path(path)}"
    try:
        if not path.is_file():
            found = "something that is no regular file" if path.exists() else "nothing there"
            raise UsageError(f"{label}: expected a text file, found {found}", hint="check the path")
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{label} cannot be read: {error.strerror}", hint="check the path and its permissions"
        ) from error
    if len(data) > LARGEST_FILE_BYTES:
        raise UsageError(f"{label}: expected at most 1 MiB of text, found more", hint="check the path")
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


def shown_path(path: Path) -> str:
    """``path`` whole, unable to drive a terminal."""
    return printable(str(path))


def _line_at(data: bytes, offset: int) -> int:
    return data[:offset].count(b"\n") + 1


@dataclasses.dataclass(frozen=True)
class TomlFile:
    """A file of a kind, and its text, to say where in it something is wrong."""

    kind: str
    path: Path
    text: str

    def refuse(self, key: str, message: str, hint: str) -> UsageError:
        pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]|\s*\[+\s*{re.escape(key)}\b")
        lines = (n for n, line in enumerate(self.text.split("\n"), 1) if pattern.match(line))
        where = [f"{self.kind} file {shown_path(self.path)}"]
        where += [f"line {n}" for n in itertools.islice(lines, 1)]
        return UsageError(f"{', '.join(where)}, {printable(key[:60])}: {message}", hint=hint)

    def parse(self) -> dict[str, object]:
        try:
            return tomllib.loads(self.text)
        # Beside its own error tomllib raises ValueError for integers of over 4300 digits.
        except (ValueError, RecursionError) as error:
            label = f"{self.kind} file {shown_path(self.path)}"
            reason, hint = str(error), "compare it with a shipped file"
            if found := re.search(r" \(at line ([0-9]+), column [0-9]+\)$", reason):
                line = self.text.split("\n")[int(found[1]) - 1]
                label += f", line {found[1]}, {shown(line.strip())}"
                reason = reason[: found.start()]
                if "overwrite" in reason:
                    raise UsageError(f"{label}: the key is there twice", hint="remove one") from error
            raise UsageError(f"{label}: no valid TOML ({printable(reason)})", hint=hint) from error

    def load_named(self, cls: type[T], **given: object) -> T:
        """``load`` of a ``cls`` whose ``name`` is that of the file."""
        if "name" in self.parse():
            raise self.refuse("name", "the name is that of the file", "remove the key, or rename the file")
        return self.load(cls, name=check_name(self.kind, self.path.stem), **given)

    def load(self, cls: type[T], **given: object) -> T:
        """The file as a ``cls``: keys known, types right, text of one visible line.

        ``given`` are fields that do not come from the file. UsageError names file, line and key.
        """
        data = self.parse()
        fields = [field for field in cls.__struct_fields__ if field not in given]
        for key in data:
            if key not in fields:
                error = unknown_name("key", key, fields)
                raise self.refuse(key, error.message, error.hint or "")
        try:
            value = msgspec.convert({**data, **given}, cls)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).replace("`", "").partition(" - at $.")
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
