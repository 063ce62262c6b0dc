"""A shared run as a file: a ZIP archive of what a run's folder has as JSON."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import re
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from harness.model import temporary
from harness.model.errors import Unreadable, UsageError
from harness.model.escape import printable
from harness.parse.files import LARGEST_DATA_BYTES, read_bytes, shown_path

_BEGINS, _MEMBER_BEGINS = b"PK\x03\x04", b"PK\x01\x02"
_MEMBER = re.compile(r"(?:plan|environment)\.json|(?:cells|probes)/[^./\\\0][^/\\\0]*\.json")
UNTIL_THE_END = contextlib.ExitStack()
atexit.register(UNTIL_THE_END.close)
_COMPRESSIONS = (0, 8)
"""Stored, and DEFLATE (APPNOTE.TXT 4.4.5)."""
_MOST_BYTES, _MOST_MEMBERS = 64 << 20, 100_000
"""Of an archive: a run of so many cells is some 40 MB, and the names of millions would fill the memory."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of all that is in it: the earliest that the format has."""


def packed(files: Mapping[str, object]) -> bytes:
    """The archive of files by name, each with what it has as JSON. It is the same for the same run."""
    import zipfile  # here and below, because most results are folders

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files.items():
            text = msgspec.json.format(msgspec.json.encode(content), indent=1)
            archive.writestr(zipfile.ZipInfo(name, _DATE), text, zipfile.ZIP_DEFLATED)
    return data.getvalue()


def is_member(name: str) -> bool:
    """Whether an archive may have a file of this name."""
    return _MEMBER.fullmatch(name) is not None


_FOLDERS: set[Path] = set()


def is_unpacked(folder: Path) -> bool:
    """Whether it ends with this program, as what an archive had."""
    return folder in _FOLDERS


@functools.cache
def unpacked(path: Path) -> Path:
    """A folder with what an archive has, until this program ends; ``path`` itself if it is none.

    It may be anybody's: nothing but the files of a run is unpacked, and of no more bytes than a file may
    have. Unreadable if it is damaged, UsageError if it has others.
    """
    if not path.is_file() or read_bytes(path, first=len(_BEGINS)) != _BEGINS:
        return path
    import zipfile

    kind: type[UsageError] = UsageError
    try:
        data = read_bytes(path, most=_MOST_BYTES)
        if data.count(_MEMBER_BEGINS) > _MOST_MEMBERS:
            raise zipfile.BadZipFile(f"it has more than {_MOST_MEMBERS} files")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            other = next((each.filename for each in members if not is_member(each.filename)), None)
            is_small = sum(each.file_size for each in members) <= LARGEST_DATA_BYTES
            if any(each.compress_type not in _COMPRESSIONS for each in members):
                raise zipfile.BadZipFile("it is compressed as no shared run is")
            if members and other is None and is_small:
                folder = UNTIL_THE_END.enter_context(temporary.folder()) / path.name
                _FOLDERS.add(folder)
                for member in members:
                    file = folder / member.filename
                    file.parent.mkdir(parents=True, exist_ok=True)
                    # In pieces, and no more than it says, which zipfile heeds: a member may unpack to more.
                    with archive.open(member) as packed_file, file.open("wb") as whole:
                        shutil.copyfileobj(packed_file, whole)
                return folder
            wrong = f"it has {printable(other)}" if other is not None else "it has nothing, or is too large"
    # ValueError: an offset before the file's begin, a name that is not UTF-8.
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError, ValueError) as error:
        kind, wrong = Unreadable, printable(str(error)) or "it is damaged"
    raise kind(
        f"{shown_path(path)}: expected a shared run: {wrong}",
        hint="a run's folder is read as it is",
    )
