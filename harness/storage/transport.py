"""What carries a target's storage to an initiator: the protocol that each transport implements.

A transport is a room beside this file, whose module ``transport`` offers it. Whoever measures, judges or
explains knows this protocol alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from harness.hosts import Host
from harness.hosts.footprint import Leftover, Trouble
from harness.hosts.journal import Journal
from harness.model import BackingKind
from harness.model.errors import CommandFailed


class NoAnswer(CommandFailed):
    """Nothing answers at a target's portal. Whoever knows the way there can say what may be in it."""


@dataclass(frozen=True, kw_only=True)
class Lun:
    """A piece of storage that is exported. By ``serial``, with the run's id in it, the initiator knows it.

    ``kind`` is a file or a block device, at ``path`` on the target.
    """

    serial: str
    kind: BackingKind
    path: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Where a host tells which block devices it exports, for a disk's guard: its kernel, or files that a
    target of the harness writes.

    ``devices`` is the pattern of the files that have a device's path. ``name`` are the parts of such a file's
    own path that name the export: the first, and the one behind the last. ``as_what`` stands before that name
    in a sentence. ``enabled`` is a file beside it that has a 1 while it is exported, "" if it always is.
    Without ``is_exclusive`` the kernel keeps nobody else from opening the device. ``process`` is a file, by
    its way from the folder of such a file, with the id of the process that exports the device and has that
    file in its command line; "" if the kernel exports it.
    """

    devices: str
    name: tuple[int, int]
    as_what: str
    enabled: str = ""
    is_exclusive: bool = False
    process: str = ""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Who takes part in a run by one transport. ``logs`` is the folder for what daemons print.

    Without ``luns`` nothing is exported: initiators find somebody else's target, or nobody.
    """

    journal: Journal
    tag: str
    target: Host
    initiators: tuple[Host, ...]
    luns: tuple[Lun, ...]
    logs: Path


@dataclass(frozen=True, kw_only=True)
class Export:
    """One export that is wanted, for one initiator: ``number`` of ``Sides.initiators``.

    ``name`` is unique in the run for each transport. ``target`` is where the portal listens, perhaps a
    network namespace of ``Sides.target``. ``bound_to`` is the initiator's network interface that the session
    may use alone; None leaves that to the routing. With ``read_only`` the target refuses writes.
    ``parameters`` are those that the two ends have to agree on, in the transport's own words. With ``tls``
    the transport's own connections are protected; only NVMe/TCP can do that.
    """

    name: str
    number: int
    lun: Lun
    target: Host
    address: str
    port: int
    bound_to: str | None = None
    read_only: bool = False
    tls: bool = False
    parameters: Mapping[str, str]


class Disk(Protocol):
    """The initiator's block device of a session."""

    @property
    def device(self) -> str:
        """Its node, ``/dev/…``."""
        ...

    @property
    def sysfs(self) -> str:
        """Its folder in sysfs."""
        ...

    def check(self) -> None:
        """Raises CellInvalid if, just before a job, the device is not what was connected to any more, or
        something (multipath, LVM, md) has taken hold of it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Session:
    """A session that is up: its disk, and what the two ends agreed on, in the words of the transport."""

    disk: Disk
    agreed: dict[str, str]


class Shared(Protocol):
    """What all columns of a transport share, up."""

    def export(self, wanted: Export) -> AbstractContextManager[None]:
        """Export a LUN. CommandFailed if the target refuses."""
        ...

    def connect(self, wanted: Export) -> AbstractContextManager[Session]:
        """Have the initiator connect to an export.

        Raises NoAnswer if nobody answers at the portal, RequirementError if the two ends agreed on something
        else than was asked for, CommandFailed for all else.
        """
        ...

    @contextlib.contextmanager
    def attach(self, wanted: Export) -> Iterator[Session]:
        """Both."""
        with self.export(wanted), self.connect(wanted) as session:
            yield session


class Transport(Protocol):
    """One way to a target's storage, and all that others have to know of it. ``port`` is its standard's.

    What its ends send is ``analysis.wire``'s, and what it needs of packages is in packages.txt, by its name.
    ``leaves`` is what may be left of a run, ``troubles`` are the kernel's messages of a session that was
    disturbed (``hosts/footprint.py``). ``lists`` are the folders that list what it brings up in a kernel, and
    ``exported`` says which devices it exports. ``column_s`` is how long it takes to bring up a column.

    With ``needs_own_kernel`` Debian's user-mode kernel lacks it. ``target_software`` is a command that
    succeeds where its target's programs and libraries are, () if the kernel alone is the target. ``versions``
    are the commands that tell the versions of its programs, at both ends.
    ``export_title`` and ``session_title`` are what a target makes and an initiator opens, with their
    articles; ``server`` is what a machine that can be a target has.
    """

    name: ClassVar[str]
    port: ClassVar[int]
    leaves: ClassVar[tuple[Leftover, ...]]
    troubles: ClassVar[tuple[Trouble, ...]]
    lists: ClassVar[tuple[str, ...]]
    exported: ClassVar[tuple[Exported, ...]]
    column_s: ClassVar[float]
    needs_own_kernel: ClassVar[bool]
    target_software: ClassVar[tuple[str, ...]]
    versions: ClassVar[Mapping[str, tuple[str, ...]]]
    export_title: ClassVar[str]
    session_title: ClassVar[str]
    server: ClassVar[str]

    def modules(self, role: str, kinds: Collection[BackingKind]) -> tuple[str, ...]:
        """The kernel modules of a role (target, initiator), if storage of these kinds is exported: each in
        modprobe(8)'s words, so perhaps with parameters."""
        ...

    def private_folders(self, role: str) -> tuple[str, ...]:
        """What a run hides on a machine for its part: what it writes there is its own."""
        ...

    def get_ready(self, host: Host) -> None:
        """On a kernel of the run's own: do ahead what takes time and is the same in every run."""
        ...

    def shared(self, sides: Sides) -> AbstractContextManager[Shared]:
        """Bring up what all columns share, for the length of the context."""
        ...
