"""Temporary changes of a kernel's settings in /proc/sys (sysctl(8))."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.hosts.undo import UndoStep


class Sysctl(msgspec.Struct, frozen=True):
    """A file below /proc/sys that has another value for a while; ``old`` is its previous value."""

    path: str
    value: str
    old: str

    def acquire(self, host: Host) -> None:
        host.run(["tee", self.path], input=self.value)

    def undo(self) -> tuple[UndoStep, ...]:
        # Absent if its interface has gone.
        return (UndoStep(("tee", self.path), input=self.old, absent=("No such file or directory",)),)


@dataclass
class _Shared:
    stack: contextlib.ExitStack
    users: int = 0


_shared: dict[tuple[object, str | None, str], _Shared] = {}
"""The sysctls in use, by kernel, network namespace and path. Columns of a run come and go in any order: the
first that needs a value sets it, the last restores the old one."""


def is_held(host: Host, path: str) -> bool:
    """Whether a column of the run holds it: what is read then is not the machine's value."""
    return (host.kernel, host.netns, path) in _shared


@contextlib.contextmanager
def held(journal: Journal, host: Host, sysctl: Sysctl) -> Iterator[None]:
    """A sysctl has another value, as long as anybody in this process holds it."""
    key = (host.kernel, host.netns, sysctl.path)
    if key not in _shared:
        with contextlib.ExitStack() as stack:
            stack.enter_context(journal.hold(host, sysctl))
            _shared[key] = _Shared(stack.pop_all())
    shared = _shared[key]
    shared.users += 1
    try:
        yield
    finally:
        shared.users -= 1
        if not shared.users:
            del _shared[key]
            shared.stack.close()


@contextlib.contextmanager
def set_to(journal: Journal, host: Host, paths: Sequence[str], value: str) -> Iterator[None]:
    """``held``, of whatever values they have now. What has the value already, and nobody holds, is left
    alone."""
    # By a program: below /proc/sys/net are the values of the reader's network namespace.
    found = host.run(["cat", *paths]).stdout.split()
    with contextlib.ExitStack() as stack:
        for path, old in zip(paths, found, strict=True):
            if old != value or is_held(host, path):
                stack.enter_context(held(journal, host, Sysctl(path, value, old)))
        yield
