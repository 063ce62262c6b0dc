"""A host's operations on the local machine: the harness uses them for its own kernel, the agent for its
machine.

It is sent along with the agent (``programs.source``), so the standard library of Python 3.9 has to do.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import queue
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

Message = dict[str, Any]

CLOCK_READINGS = 20
POLL_S = 0.01

BEGINS = b'{"id":'
LARGEST_JOURNAL_BYTES = 16 << 20
"""A run writes some 100 KB."""

CHUNK_BYTES = 1 << 16
RELAY_WINDOW = 8
"""How many chunks of a relayed connection may be on their way to one end before that end has read them."""


# What a host is asked


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of every program: the caller's, with the C locale so that output can be parsed, and
    with administrators' programs."""
    folders = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/local/sbin:/usr/sbin:/sbin"
    return {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "", "PATH": folders, **(extra or {})}


def read_files(paths: Sequence[str]) -> list[str]:
    """The text of each file, "" if it cannot be read."""
    return [_text(path) for path in paths]


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def write_secret(path: Path, text: str) -> None:
    """Make a file that only its owner may read, and its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text, encoding="utf-8")


def clock_offset_ns() -> int:
    """The time of day minus the monotonic clock."""
    # Of many readings the fastest one: on a busy machine ms may pass in the middle of a reading.
    readings = []
    for _ in range(CLOCK_READINGS):
        before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, now - (before + after) // 2))
    return min(readings)[1]


class KernelLog:
    """Reads /dev/kmsg (Documentation/ABI/testing/dev-kmsg) from the moment it is made."""

    def __init__(self) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._file, 0, os.SEEK_END)

    def read(self) -> list[str]:
        """The lines since the last call, oldest first; none if it may not be read."""
        lines: list[str] = []
        while self._file is not None:
            try:
                line = os.read(self._file, 8192).decode("utf-8", "replace")
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Lines were overwritten before they were read; the next read goes on after the gap.
                continue
            lines.append(line.partition(";")[2].split("\n")[0])
        return lines


# Folders and locks


class FolderNotOwn(OSError):
    """Somebody else has a folder of that name: its journals could name anything for removal."""


class Exposed(ValueError):
    """Others may write to a folder of ours, or it is none."""


def own_folder(folder: Path) -> Path:
    """A folder that only this user may write to, made if absent; FolderNotOwn or Exposed if it is not."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # its last holder has just removed it
            found = folder.lstat()
            break
    is_ours = found.st_uid == os.geteuid()
    if not stat.S_ISDIR(found.st_mode) or not is_ours or found.st_mode & 0o022:
        words = f"expected {folder} to be a folder that only its owner, uid {os.geteuid()}, may write to"
        raise Exposed(words) if is_ours else FolderNotOwn(words)
    return folder


def locked(path: Path) -> BinaryIO | None:
    """A file, open and locked, made if absent; None if somebody else has locked it."""
    while True:
        # Not exist_ok, which fails if the folder is there at first and then is not.
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(mode=0o700)
        try:
            file = path.open("a+b")
        except FileNotFoundError:
            continue  # its last holder has just removed the folder
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        # Its holder may have removed the file between the open and the lock here: then it locks nobody out.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


def _sync(folder: Path) -> None:
    """Write the names in a folder to its disk: fsync(2) of a file does not do that."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


# The journal


class DamagedJournal(Exception):
    """A journal that is damaged, of another version or not a journal: what it names is unknown."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"expected {path} to be a journal of what is up, but {why}")


class JournalFile:
    """An append-only file, one JSON object a line: ``{"id", "entry"}``, and ``{"id"}`` once it is undone.

    An entry says what it is for people (``what``) and how it is undone (``steps``: ``hosts.undo``). If
    somebody removes the file, it is made again. If ``is_shared``, it lies in a folder that others use as
    well, and is locked from its first line on: whoever finds an unlocked one may undo what it says.
    """

    def __init__(self, path: Path, *, is_shared: bool = False) -> None:
        self.path = path
        self._is_shared = is_shared
        self._lock: BinaryIO | None = None
        self._pending: dict[int, Message] | None = None

    @property
    def pending(self) -> dict[int, Message]:
        """What is written down and not crossed out, by number, oldest first; a killed writer's too."""
        if self._pending is None:
            self._pending = read(self.path)
        return self._pending

    def open(self, number: int, entry: Message) -> None:
        """Write down what is about to be brought up; it is on the disk when this returns."""
        self._write({"id": number, "entry": entry}, {**self.pending, number: entry})

    def close(self, number: int) -> None:
        """Cross out what has been undone."""
        self._write({"id": number}, {each: entry for each, entry in self.pending.items() if each != number})

    def take_up(self) -> None:
        """Go on with a shared one, if it is there: nobody else undoes what it says."""
        if self.path.exists():
            self._lock = locked(self.path)

    def end(self) -> None:
        """Remove the file if all that it names is undone; otherwise what is still open stays written down."""
        # As it is on the disk: whoever else went on with it counts too, and what cannot be read stays.
        with contextlib.suppress(DamagedJournal):
            if not read(self.path):
                self.path.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _write(self, line: Message, pending: dict[int, Message]) -> None:
        lines = [line]
        if not self.path.exists():
            lines = [{"id": number, "entry": entry} for number, entry in pending.items()]
            self._make()
        append(self.path, *lines)
        self._pending = pending

    def _make(self) -> None:
        with contextlib.suppress(FileExistsError):
            self.path.parent.mkdir(mode=0o700)
        if self._is_shared:
            own_folder(self.path.parent)
            while (lock := locked(self.path)) is None:
                time.sleep(POLL_S)  # another one looks whether it is a killed one's
            self._lock = lock
            for folder in (self.path.parent, self.path.parent.parent):
                _sync(folder)


def append(journal: Path, *lines: Message) -> None:
    with journal.open("a+b") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        is_torn = file.read(1) not in (b"", b"\n")
        file.write(b"\n" * is_torn + b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


def read(journal: Path) -> dict[int, Message]:
    """What was brought up and not undone, by number, oldest first. Raises DamagedJournal."""
    try:
        found = journal.lstat()
        if not stat.S_ISREG(found.st_mode):  # a folder, a FIFO
            raise DamagedJournal(journal, "it is not a regular file")
        if found.st_size > LARGEST_JOURNAL_BYTES:
            raise DamagedJournal(journal, f"it is larger than {LARGEST_JOURNAL_BYTES >> 20} MiB")
        data = journal.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DamagedJournal(journal, error.strerror or str(error)) from error
    pending: dict[int, Message] = {}
    for number, text in enumerate(data.split(b"\n"), 1):
        try:
            line = json.loads(text)
        except (UnicodeDecodeError, RecursionError):
            line = None
        except ValueError:
            if text[: len(BEGINS)] == BEGINS[: len(text)] or not text.strip(b"\0"):
                continue  # torn by the kill, or a power cut: what it names was not yet acted on
            line = None
        if not _is_line(line):
            raise DamagedJournal(journal, f"its line {number} is of another version, or of something else")
        if "entry" in line:
            pending[line["id"]] = line["entry"]
        else:
            pending.pop(line["id"], None)
    return pending


def _is_line(line: Any) -> bool:
    """Whether it is a line that ``JournalFile`` writes."""
    if not isinstance(line, dict) or not isinstance(line.get("id"), int) or line.keys() - {"id", "entry"}:
        return False
    entry = line.get("entry", {"what": "", "steps": []})
    if not isinstance(entry, dict) or not isinstance(entry.get("steps"), list):
        return False
    types = {"what": (str, None), "netns": (str, ""), "lasting": (bool, False)}
    are_typed = all(isinstance(entry.get(name, default), kind) for name, (kind, default) in types.items())
    return are_typed and all(map(_is_step, entry["steps"]))


def _is_step(step: Any) -> bool:
    return (
        isinstance(step, dict)
        and isinstance(step.get("input", ""), str)
        and all(
            isinstance(words, list) and all(isinstance(word, str) for word in words)
            for words in (step.get("argv"), step.get("absent", []))
        )
    )


def left(folder: Path, pattern: str) -> Iterator[Path]:
    """The shared journals in a folder whose writers are gone, newest first, each locked in the meantime."""
    for path in sorted(own_folder(folder).glob(pattern), reverse=True) if folder.exists() else ():
        # What is no file cannot be locked, and is reported by its reader.
        lock = locked(path) if path.is_file() else contextlib.nullcontext()
        if lock is not None:
            with lock:
                yield path


def recover(journal: Path, undo: Callable[[Message], tuple[list[str], bool]]) -> tuple[list[str], list[str]]:
    """Undo what a killed run left, newest first; returns (what was removed, what could not be), and deletes
    the journal if all was. One that cannot be read is renamed, so that it stops nobody, and is reported.

    ``undo`` carries out an entry: a phrase for each step that failed, and whether there was anything to undo.
    """
    removed: list[str] = []
    failed: list[str] = []
    try:
        pending = read(journal)
    except DamagedJournal as error:
        return [], [f"{error}; {set_aside(journal)}"]
    for number, entry in reversed(list(pending.items())):
        problems, found = undo(entry)
        if problems:
            failed.append(f"{entry['what']}: {'; '.join(problems)}")
        else:
            removed += [entry["what"]] * found
            # By the next try it could be somebody else's: a file of the same name, say.
            append(journal, {"id": number})
    if not failed:
        journal.unlink(missing_ok=True)
    return removed, failed


def set_aside(journal: Path) -> str:
    """Rename a journal that cannot be read, so that it stops nobody; returns a sentence about it."""
    aside = journal.with_name(f"{journal.name}.{time.time_ns()}.unreadable")
    try:
        journal.rename(aside)
    except OSError as error:
        return f"remove it by hand, because it could not be renamed: {error.strerror}"
    return f"it is {aside} now, and what it names may still be there"


# Unix sockets


class Relay:
    """One end of a connection to a unix socket that is carried through the agent's channel.

    Each end sends ``RELAY_WINDOW`` chunks, and then one for each that the other has read. So the waiting data
    is bounded, and an end that does not read delays only its own connection.
    """

    def __init__(self, near: socket.socket) -> None:
        self.near = near
        self._window = threading.Semaphore(RELAY_WINDOW)
        self._inbox: queue.Queue[bytes] = queue.Queue()
        self._over = False

    def carry(self, send: Callable[[str | None], object]) -> None:
        """Carry until either end closes it. ``send`` takes a chunk in base64, "" at the end; None: one was
        read."""
        reader = threading.Thread(target=self._read, args=(send,), daemon=True)
        reader.start()
        with contextlib.suppress(OSError):
            while data := self._inbox.get():
                self.near.sendall(data)
                send(None)
        self.shut()
        reader.join()

    def _read(self, send: Callable[[str | None], object]) -> None:
        with contextlib.suppress(OSError):
            while not self._over and (data := self.near.recv(CHUNK_BYTES)):
                self._window.acquire()
                send(base64.b64encode(data).decode())
        send("")

    def take(self, data: bytes | None) -> bool:
        """What the other end sent. False if that was more than it may."""
        if data is None:
            self._window.release()
        else:
            self._inbox.put(data)
        return self._inbox.qsize() <= RELAY_WINDOW + 1

    def shut(self) -> None:
        """Close it at this end; what was read is still sent."""
        with contextlib.suppress(OSError):
            self.near.shutdown(socket.SHUT_RDWR)
        self._over = True
        self._window.release()
