"""The journal: written down before it is done, crossed out once it is undone.

Whatever the harness brings up outside its own processes is a *resource*: a small frozen struct that knows how
to acquire itself on a host, and what would undo that (``hosts.undo``). ``Journal.hold`` is the only way to
bring one up. So after a SIGKILL the journal says exactly what may be left, and how to remove it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar, Protocol, TypeVar

import msgspec

from harness.hosts import Host, Ledger, signals, state
from harness.hosts.undo import Entry, Step, carry_out
from harness.model.errors import BusyError, DeviceRefused, HarnessError, HostLost
from harness.model.units import format_size


class Resource(Protocol):
    """Something with a lifetime in the kernel or on disk.

    ``acquire`` raises DeviceRefused if it finds something of somebody else's in its place. It has then
    changed nothing, and is not undone. The steps of ``undo`` identify what they remove by its own name or the
    run's, and tolerate that it is absent. A class variable ``lasting`` that is true says that the resource
    lies on a disk and survives a reboot. Something of somebody else's may have taken its place by then, and
    is kept.
    """

    __struct_fields__: ClassVar[tuple[str, ...]]

    def acquire(self, host: Host) -> None: ...

    def undo(self) -> tuple[Step, ...]: ...


R = TypeVar("R", bound=Resource)


class _Line(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    id: int
    entry: Entry | None = None


_BEGINS = b'{"id":'

LARGEST_BYTES = 16 << 20
"""A run writes some 100 KB."""


class Unreadable(HarnessError):
    """A journal that is damaged, of another version or not a journal: what it names is unknown."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"expected {path} to be a journal of what is up, but {why}",
            hint="`harness clean` renames it, so that you can look at it",
        )


class Journal:
    """An append-only file, one JSON object a line: ``{"id", "entry"}``, and ``{"id"}`` once it is undone.

    It is for this kernel. A host that can be cut off keeps a ledger of its own, which is then used instead.
    What survives a reboot is written down in the folder ``lasting``, on a disk. Without that folder, or if
    nothing can be written there, it goes with all the rest.
    """

    def __init__(self, path: Path, *, lasting: Path | None = None) -> None:
        self.path = path
        self._lasting = None if lasting is None else _OnDisk(lasting)
        self._last: int | None = None
        self._torn: bool | None = None
        self.leaks: list[str] = []
        """One sentence for each resource that could not be undone. A run with any has failed."""

    @contextlib.contextmanager
    def hold(self, host: Host, resource: R) -> Iterator[R]:
        """Acquire a resource while the context lasts; it is written down before the first act."""
        what = f"{type(resource).__name__} {getattr(resource, resource.__struct_fields__[0])}"
        lasting: bool = getattr(resource, "lasting", False)
        entry = Entry(what=what, steps=resource.undo(), netns=host.netns, lasting=lasting)
        ledger, number = self._write_down(host, entry)
        with contextlib.ExitStack() as stack:
            stack.callback(self._release, ledger, number, host, resource)
            try:
                resource.acquire(host)
            except DeviceRefused:
                # What is there belongs to somebody else.
                stack.pop_all()
                ledger.close(number)
                raise
            yield resource

    def _write_down(self, host: Host, entry: Entry) -> tuple[Ledger, int]:
        """Write an entry down; returns where, and under which number."""
        if host.ledger is None and entry.lasting and self._lasting is not None:
            with contextlib.suppress(OSError, state.NotOwn):
                return self._lasting, self._lasting.open(entry)
        ledger = host.ledger or self
        return ledger, ledger.open(entry)

    def _release(self, ledger: Ledger, number: int, host: Host, resource: Resource) -> None:
        signals.surely(lambda: self._undo(ledger, number, host, resource))

    def _undo(self, ledger: Ledger, number: int, host: Host, resource: Resource) -> None:
        # What cannot be undone must neither hide the first error nor keep the rest from being undone.
        try:
            problems = carry_out(resource.undo(), host.run)
            if not problems:
                ledger.close(number)
            self.leaks += [f"{type(resource).__name__} was not undone: {problem}" for problem in problems]
        except HostLost:
            # A lost host undoes everything by itself; the composer says so, once for the host.
            return
        except (HarnessError, OSError) as error:
            self.leaks.append(f"{type(resource).__name__} was not undone: {error}")

    def open(self, entry: Entry) -> int:
        """Write down what is about to be brought up; returns its number."""
        if self._last is None:
            # A journal is continued if a killed run is: what it names must not count as undone.
            self._last = max((line.id for line in self._lines()), default=0)
        self._last += 1
        self._append(_Line(self._last, entry))
        return self._last

    def close(self, number: int) -> None:
        """Cross out what has been undone."""
        self._append(_Line(number))

    def end(self) -> None:
        """Remove the file if all that it names is undone; otherwise what is still open stays written down."""
        if not self.open_entries():
            self.path.unlink(missing_ok=True)
        if self._lasting is not None:
            self._lasting.end()

    def _append(self, line: _Line) -> None:
        if self._torn is None:
            self._torn = self._read()[-1:] not in (b"", b"\n")
        with self.path.open("ab") as file:
            file.write(b"\n" * self._torn + msgspec.json.encode(line) + b"\n")
            self._torn = False
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> bytes:
        """What was written. Unreadable if it cannot be a journal: a folder, a FIFO, a disk image."""
        try:
            found = self.path.lstat()
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable(self.path, "it is not a regular file")
            if found.st_size > LARGEST_BYTES:
                raise Unreadable(self.path, f"it is larger than {format_size(LARGEST_BYTES)}")
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise Unreadable(self.path, error.strerror or str(error)) from error

    def _lines(self) -> Iterator[_Line]:
        for number, text in enumerate(self._read().split(b"\n"), 1):
            try:
                if text.strip(b"\0"):  # a power cut may leave these of a last line
                    yield msgspec.json.decode(text, type=_Line)
            except (ValueError, RecursionError) as error:
                # Only the last line of a run can be torn, and what it names was not yet acted on.
                is_whole = isinstance(error, msgspec.ValidationError | UnicodeDecodeError | RecursionError)
                if is_whole or text[: len(_BEGINS)] != _BEGINS[: len(text)]:
                    words = "is of another version, or of something else"
                    raise Unreadable(self.path, f"its line {number} {words}") from error

    def set_aside(self) -> Path:
        """Rename it, so that it stops nobody any more; returns its new name."""
        aside = self.path.with_name(f"{self.path.name}.{time.time_ns()}.unreadable")
        return self.path.rename(aside)

    def open_entries(self) -> dict[int, Entry]:
        """What was brought up and not undone, by number, newest first. Raises Unreadable."""
        pending: dict[int, Entry] = {}
        for line in self._lines():
            if line.entry is not None:
                pending[line.id] = line.entry
            else:
                pending.pop(line.id, None)
        return dict(reversed(pending.items()))


class _OnDisk(Journal):
    """A journal with a name of its own in a folder that a reboot does not empty.

    It is locked from its first line on: whoever finds an unlocked one may undo what it says. Containers that
    share the folder so leave each other's alone. If one removes it, the journal is made again.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / f"journal-{time.time_ns()}-{os.getpid()}.jsonl")
        self._lock: BinaryIO | None = None

    def open(self, entry: Entry) -> int:
        if self._lock is None:
            self._make()
        return super().open(entry)

    def _append(self, line: _Line) -> None:
        if self._lock is not None and not self.path.exists():
            with self._lock as removed:
                removed.seek(0)
                self._make(removed.read())
        super()._append(line)

    def _make(self, content: bytes = b"") -> None:
        state.own_folder(self.path.parent)
        self._lock = state.locked(self.path)
        self._lock.write(content)
        self._lock.flush()
        for folder in (self.path.parent, self.path.parent.parent):
            state.sync(folder)

    def end(self) -> None:
        super().end()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()


def left_on_disk(folder: Path) -> Iterator[Journal]:
    """The journals in ``Journal``'s folder on disk whose writers are gone, each locked in the meantime.

    In another user's folder is none of them.
    """
    if not folder.exists():
        return
    try:
        paths = sorted(state.own_folder(folder).glob("journal-*.jsonl"), reverse=True)
    except state.NotOwn:
        return
    for path in paths:
        try:
            lock: contextlib.AbstractContextManager[object] = state.locked(path)
        except BusyError:
            continue
        except OSError:  # for example a folder, which its reader will report
            lock = contextlib.nullcontext()
        with lock:
            yield Journal(path)
    with contextlib.suppress(OSError):
        folder.rmdir()
