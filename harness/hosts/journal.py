"""The journal: each resource is written down before it is set up and crossed out once it is removed.

Whatever the harness brings up outside its own processes is a *resource*: a small frozen struct that knows how
to acquire itself on a host, and what would undo that (``hosts.undo``). ``Journal.hold`` is the only way to
bring one up. So after a SIGKILL the journal says exactly what may be left, and how to remove it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

import msgspec

from harness.hosts import Host, Ledger, NamespaceHost, state
from harness.hosts.programs import local_operations
from harness.hosts.undo import UndoEntry, Undone, UndoStep, carry_out
from harness.model import signals
from harness.model.errors import DeviceRefused, HarnessError, HostLost


class Resource(Protocol):
    """Something with a lifetime in the kernel or on disk.

    ``acquire`` raises DeviceRefused if it finds something of somebody else's in its place. It has then
    changed nothing, and is not undone. The steps of ``undo`` identify what they remove by its own name or the
    run's, and tolerate that it is absent. A class variable ``lasting`` that is true says that the resource
    lies on a disk and survives a reboot. Something of somebody else's may have taken its place by then, and
    is kept. An attribute ``what`` is what it is called, in place of its class.
    """

    __struct_fields__: ClassVar[tuple[str, ...]]

    def acquire(self, host: Host) -> None: ...

    def undo(self) -> tuple[UndoStep, ...]: ...


Breaks = Callable[[], Mapping[str, tuple[Host, Resource]]]
"""What can break a link or a protection that is up, by the name of each fault, and on which host."""


R = TypeVar("R", bound=Resource)


def _called(resource: Resource) -> str:
    return str(getattr(resource, "what", type(resource).__name__))


class UnreadableJournal(HarnessError):
    """A journal that is damaged, of another version or not a journal: what it names is unknown."""

    def __init__(self, error: local_operations.DamagedJournal) -> None:
        super().__init__(str(error), hint="`harness clean` renames it, so that you can look at it")


@dataclass(eq=False)
class _HeldResource:
    """A resource that is up, and the number of its entry."""

    host: Host
    resource: Resource
    entry: UndoEntry
    ledger: Ledger
    number: int


@dataclass(eq=False)
class _Act:
    """What a run does on a host each time that it has booted, and what it holds meanwhile."""

    host: Host
    again: Callable[[], object]
    kept: tuple[Resource, ...]


class Journal:
    """What a run has brought up on this kernel, in files (``local_operations.JournalFile``).

    A host that can be cut off keeps a ledger of its own, which is then used instead. What survives a reboot
    is written down in the folder ``lasting``, on a disk. Without that folder, or if nothing can be written
    there, it goes with all the rest.
    """

    def __init__(self, path: Path, *, lasting: Path | None = None) -> None:
        self.path = path
        self._file = local_operations.JournalFile(path)
        self._lasting: Journal | None = None
        if lasting is not None:
            # A name of its own, because others share the folder.
            self._lasting = Journal(lasting / f"journal-{time.time_ns()}-{os.getpid()}.jsonl")
            self._lasting._file = local_operations.JournalFile(self._lasting.path, is_shared=True)
        self._held: list[_HeldResource | _Act] = []
        self.leaks: list[str] = []
        """One sentence for each resource that could not be undone. A run with any has failed."""

    @contextlib.contextmanager
    def hold(self, host: Host, resource: R) -> Iterator[R]:
        """Acquire a resource while the context lasts; it is written down before the first act."""
        what = f"{_called(resource)} {getattr(resource, resource.__struct_fields__[0])}"
        lasting: bool = getattr(resource, "lasting", False)
        entry = UndoEntry(what=what, steps=resource.undo(), netns=host.netns, lasting=lasting)
        held = _HeldResource(host, resource, entry, *self._write_down(host, entry))
        with contextlib.ExitStack() as stack:
            stack.callback(self._release, held)
            try:
                resource.acquire(host)
            except DeviceRefused:
                # What is there belongs to somebody else.
                stack.pop_all()
                held.ledger.close(held.number)
                raise
            self._held.append(held)
            yield resource

    @contextlib.contextmanager
    def each_boot(self, host: Host, again: Callable[[], object], *kept: Resource) -> Iterator[None]:
        """While the context lasts, have ``make_again`` call ``again`` in this place, for what ends with a
        kernel and is no resource: daemons, keys. ``kept`` are held from before a host boots until then.
        """
        act = _Act(host, again, kept)
        self._held.append(act)
        try:
            yield
        finally:
            self._held.remove(act)

    @contextlib.contextmanager
    def keeping(self, host: Host) -> Iterator[None]:
        """Hold what is to be ``kept`` while a host boots anew, and until all there is made again."""
        with contextlib.ExitStack() as stack:
            for act in [act for act in self._held if isinstance(act, _Act) and act.host is host]:
                for resource in act.kept:
                    stack.enter_context(self.hold(host, resource))
            yield

    def make_again(self, host: Host) -> None:
        """Acquire all that is held on a host again, in the same order, after it has booted anew.

        What lies on its disk is still there. What needs no undoing was an act, and is over.
        """
        for held in [held for held in self._held if held.host is host]:
            if isinstance(held, _Act):
                held.again()
            elif held.resource.undo() and not held.entry.lasting:
                held.ledger.close(held.number)
                held.number = held.ledger.open(held.entry)
                held.resource.acquire(host)

    def _write_down(self, host: Host, entry: UndoEntry) -> tuple[Ledger, int]:
        """Write an entry down; returns where, and under which number."""
        if host.ledger is None and entry.lasting and self._lasting is not None:
            with contextlib.suppress(OSError, state.NotOwn):
                state.own_folder(self._lasting.path.parent)
                return self._lasting, self._lasting.open(entry)
        ledger = host.ledger or self
        return ledger, ledger.open(entry)

    def _release(self, held: _HeldResource) -> None:
        if held in self._held:
            self._held.remove(held)
        signals.surely(lambda: self._undo(held))

    def _undo(self, held: _HeldResource) -> None:
        resource = held.resource
        # What cannot be undone must neither hide the first error nor keep the rest from being undone.
        try:
            problems = carry_out(resource.undo(), held.host.run).problems
            if not problems:
                held.ledger.close(held.number)
            self.leaks += [f"{_called(resource)} was not undone: {problem}" for problem in problems]
        except HostLost:
            # A lost host undoes everything by itself; the composer says so, once for the host.
            return
        except (HarnessError, OSError) as error:
            self.leaks.append(f"{_called(resource)} was not undone: {error}")

    def open(self, entry: UndoEntry) -> int:
        """Write down what is about to be brought up; returns its number. Raises UnreadableJournal."""
        try:
            # A journal is continued if a killed run is: what it names must not count as undone.
            number = max(self._file.pending, default=0) + 1
        except local_operations.DamagedJournal as error:
            raise UnreadableJournal(error) from error
        self._file.open(number, msgspec.to_builtins(entry))
        return number

    def close(self, number: int) -> None:
        """Cross out what has been undone."""
        self._file.close(number)

    def end(self) -> None:
        """Remove the file if all that it names is undone; otherwise what is still open stays written down."""
        self._file.end()
        if self._lasting is not None:
            self._lasting.end()
            with contextlib.suppress(OSError):
                self._lasting.path.parent.rmdir()

    def open_entries(self) -> dict[int, UndoEntry]:
        """What was brought up and not undone, by number, newest first. Raises UnreadableJournal."""
        try:
            pending = local_operations.read(self.path)
        except local_operations.DamagedJournal as error:
            raise UnreadableJournal(error) from error
        return {number: msgspec.convert(pending[number], UndoEntry) for number in reversed(pending)}

    def recover(self) -> tuple[list[str], list[str]]:
        """Undo what it names; returns (what was removed, what could not be), and deletes it if all was."""

        def undo(entry: local_operations.Message) -> Undone:
            found = msgspec.convert(entry, UndoEntry)
            return carry_out(found.steps, reachable(found).run)

        return local_operations.recover(self.path, undo)


def reachable(entry: UndoEntry) -> Host:
    """Where to undo it: in its namespace, or on this machine if the namespace ended with its processes.

    LIO's objects belong to no namespace, and whatever belonged to one has gone with it.
    """
    gone = entry.netns is not None and not Path(f"/run/netns/{entry.netns}").exists()
    return NamespaceHost(name="machine", netns=None if gone else entry.netns)


def left_on_disk(folder: Path) -> Iterator[Journal]:
    """The journals in ``Journal``'s folder on disk whose writers are gone, each locked in the meantime.

    In another user's folder is none of them.
    """
    if not folder.exists():
        return
    with contextlib.suppress(state.NotOwn):
        state.own_folder(folder)
        yield from map(Journal, local_operations.left(folder, "journal-*.jsonl"))
    with contextlib.suppress(OSError):
        folder.rmdir()
