"""A table that was made before, as long as nothing that it was made from has changed.

The cache identifies its inputs by name, inode, size and time of modification (in ns) of every file and folder
that a table reads, and so also the code that made it. For a run's records it uses only the folder's state and
their names: to check each of them would take a tenth of the time of reading them. The harness writes a record
anew and renames it (``results.write_atomically``), which changes its folder; so does whatever else makes,
renames or removes a file there. The cache misses a record that somebody overwrote in place, without any other
change in the run's folder.

The cache can only fail to help: it ignores a file of its own that is damaged, unreadable or of other results,
and gives up on one that it cannot write. Two commands at once each write a whole file and rename it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import marshal
import operator
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from harness.model import caches, unread
from harness.model.errors import HarnessError
from harness.results.store import RunFolder, below
from harness.table.options import Options, Table

KEPT = 32
"""How many tables the cache keeps; it removes the oldest first."""

_SETTLED_NS = 100_000_000
"""A file changed more recently than this could change again within the same tick of the file system's
clock."""

_STATE = operator.attrgetter("st_ino", "st_size", "st_mtime_ns")
_CHANGE = operator.attrgetter("st_ino", "st_ctime_ns", "st_mtime_ns")
"""For a folder: nobody can set the time of its last change of entries."""
_DIGEST_BYTES = 32


def cached(paths: Sequence[Path], options: Options, make: Callable[[], Table]) -> Table:
    """The table of ``paths`` with ``options``: the cached one, or what ``make`` returns.

    Raises what ``make`` raises, and nothing else.
    """
    question = _digest([os.fsencode(path.absolute()) for path in paths], msgspec.msgpack.encode(options))
    try:
        file = caches.folder() / f"{question.hex()[:32]}.table"
        found, newest_ns = _identity(paths)
    except (HarnessError, OSError, ValueError, RuntimeError):
        # There is no such path, and ``make`` says so in a sentence; or there is no home.
        return make()
    table = _load(file, found)
    if table is None:
        now_ns, lost = time.time_ns(), unread.count()
        table = make()
        # A table without records that cannot be read must name them each time.
        if now_ns - newest_ns > _SETTLED_NS and unread.count() == lost:
            _store(file, found, table)
    return table


def _identity(paths: Sequence[Path]) -> tuple[bytes, int]:
    """A digest of the state of all that is read, and the time of the latest change, in ns."""
    states: list[object] = [_code()]
    newest_ns = 0
    for path in paths:
        for names, files in _levels(path):
            states.append((names, files))
            newest_ns = max(newest_ns, max((changed_ns for _, _, changed_ns in files), default=0))
    return _digest(marshal.dumps(states)), newest_ns


_Level = tuple[list[str], list[tuple[int, int, int]]]


def _levels(path: Path) -> Iterator[_Level]:
    """The path itself, its entries, those of the run folders in it, and those of their ``cells``; without
    runs, those of all folders below it: all inputs."""
    yield [str(path)], [_STATE(path.stat())]
    if not path.is_dir():
        return
    folders = [] if RunFolder.is_at(path) else _folders(path)
    if folders and not any(RunFolder.is_at(Path(folder)) for folder in folders):
        yield from (_entries(place) for place, _ in below(path))
        return
    for run in (str(path), *folders):
        yield _entries(run)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            yield _names(f"{run}/cells")


def _folders(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir())


def _entries(path: str) -> _Level:
    # No loop in Python, and no path lookup for each entry: this is all the work of showing a table again.
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        names = os.listdir(folder)  # noqa: PTH208 -- pathlib knows no open folder
        return names, list(map(_STATE, map(functools.partial(os.stat, dir_fd=folder), names)))
    finally:
        os.close(folder)


def _names(path: str) -> _Level:
    # The state before the names: a change in between gives another state, and is noticed.
    state = _CHANGE(os.stat(path))  # noqa: PTH116 -- as below
    return os.listdir(path), [state]  # noqa: PTH208


def _code() -> list[int]:
    """The state of the package's modules: another version may make another table from the same records."""
    states: list[int] = []
    for folder, folders, names in os.walk(Path(__file__).parents[1]):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        modules = sorted(name for name in names if name.endswith(".py"))
        # No path of pathlib for each: it would take most of the time of showing a table again.
        states += [os.stat(f"{folder}/{name}").st_mtime_ns for name in modules]  # noqa: PTH116
    return states


def _digest(*parts: bytes | list[bytes]) -> bytes:
    return hashlib.blake2b(marshal.dumps(parts), digest_size=_DIGEST_BYTES).digest()


def _load(file: Path, identity: bytes) -> Table | None:
    try:
        data = file.read_bytes()
    except OSError:
        return None
    payload = data[2 * _DIGEST_BYTES :]
    if data[: 2 * _DIGEST_BYTES] != identity + _digest(payload):
        return None
    return msgspec.msgpack.decode(payload, type=Table)


def _store(file: Path, identity: bytes, table: Table) -> None:
    payload = msgspec.msgpack.encode(table)
    scratch = file.with_name(f".{file.stem}.{os.getpid()}")
    with contextlib.suppress(OSError):
        caches.make()
        try:
            scratch.write_bytes(identity + _digest(payload) + payload)
            scratch.replace(file)
        finally:
            scratch.unlink(missing_ok=True)
        tables = sorted(file.parent.glob("*.table"), key=lambda other: other.stat().st_mtime_ns)
        for old in tables[:-KEPT]:
            old.unlink(missing_ok=True)
