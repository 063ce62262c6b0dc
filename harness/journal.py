"""Written down before it is acted on, crossed out once it is undone.

Whatever the harness brings up outside its own processes is a *resource*: a small frozen struct that
knows how to acquire and how to release itself on a host. ``Journal.hold`` is the only way to bring one
up, so after a SIGKILL the journal names exactly what may be left, and ``harness.recovery`` releases it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from harness.errors import DeviceRefused, HarnessError
from harness.hosts import Host


class Resource(Protocol):
    """Something with a lifetime in the kernel or on disk; ``release`` of what is absent does nothing.

    ``acquire`` raises DeviceRefused if it finds something of somebody else's in its place, and has then
    changed nothing: it will not be released.
    """

    def acquire(self, host: Host) -> None: ...

    def release(self, host: Host) -> None: ...


R = TypeVar("R", bound=Resource)


_NOTHING = msgspec.Raw()


class _Line(msgspec.Struct, omit_defaults=True):
    id: int
    # Empty, not None: msgspec decodes `Raw | None` as null alone.
    host: msgspec.Raw = _NOTHING
    resource: msgspec.Raw = _NOTHING


class Journal:
    """An append-only file, one JSON object a line: ``{"id", "host", "resource"}``, later ``{"id"}``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A journal is gone on with if a killed run is: what it names must not be taken for undone.
        self._next = max((line.id for line in self._lines()), default=0)
        self._torn = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
        self.leaks: list[str] = []
        """One sentence for each resource whose release failed; a run with any has failed."""

    @contextlib.contextmanager
    def hold(self, host: Host, resource: R) -> Iterator[R]:
        """Acquire a resource for the length of the context, journalled before the first act."""
        self._next += 1
        number = self._next
        self._append(
            _Line(number, msgspec.Raw(msgspec.json.encode(host)), msgspec.Raw(msgspec.json.encode(resource)))
        )
        with contextlib.ExitStack() as stack:
            stack.callback(self._release, number, host, resource)
            try:
                resource.acquire(host)
            except DeviceRefused:
                # What is there is not ours to release.
                stack.pop_all()
                self._append(_Line(number))
                raise
            yield resource

    def _release(self, number: int, host: Host, resource: Resource) -> None:
        # A failed release must neither hide the first error nor stop the releases that follow.
        try:
            resource.release(host)
            self._append(_Line(number))
        except KeyboardInterrupt:
            # To stop halfway would leave it for good, so what was interrupted is done again first.
            self._release(number, host, resource)
            raise
        except (HarnessError, OSError) as error:
            self.leaks.append(f"{type(resource).__name__} was not undone: {error}")

    def close(self) -> None:
        """Remove the file if all that it names is undone; what is still open stays written down."""
        if not self.open_entries():
            self.path.unlink(missing_ok=True)

    def _append(self, line: _Line) -> None:
        with self.path.open("ab") as file:
            file.write(b"\n" * self._torn + msgspec.json.encode(line) + b"\n")
            self._torn = False
            file.flush()
            os.fsync(file.fileno())

    def _lines(self) -> Iterator[_Line]:
        for text in self.path.read_bytes().splitlines() if self.path.exists() else ():
            try:
                yield msgspec.json.decode(text, type=_Line)
            except msgspec.ValidationError:
                raise  # whole, but not of ours: nothing to pass over in silence
            except msgspec.DecodeError:
                # Only the last line of a run can be torn, and what it names was not yet acted on.
                continue

    def open_entries(self) -> list[tuple[msgspec.Raw, msgspec.Raw]]:
        """(host, resource) as raw JSON of all that was acquired and not released, newest first."""
        pending: dict[int, tuple[msgspec.Raw, msgspec.Raw]] = {}
        for line in self._lines():
            if bytes(line.resource):
                pending[line.id] = (line.host, line.resource)
            else:
                pending.pop(line.id, None)
        return list(reversed(pending.values()))
