"""The interface that each transport implements to carry a target's storage to an initiator.

A transport is a package next to this file, whose module ``transport`` offers it. Whoever measures, judges or
explains knows this protocol alone.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harness.hosts import Host
from harness.hosts.footprint import Leftover, Trouble
from harness.hosts.journal import Journal, Resource
from harness.model import BackingKind, BlackBoxTarget
from harness.model.errors import CellInvalid, CommandFailed
from harness.storage.chap import Secrets
from harness.storage.udev import UdevRule


class NoAnswer(CommandFailed):
    """Nothing answers at a target's portal. Code that knows the path can say what may block it."""


SECTOR_BYTES = 512
"""Of sysfs, which counts a disk's size in them whatever its own blocks are."""


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
    """Where to read which block devices a host exports, for a disk's guard: its kernel, or files that a
    target of the harness writes.

    ``devices`` is the pattern of the files that have a device's path. ``name`` are the parts of such a file's
    own path that name the export: the first, and the one behind the last. ``as_what`` stands before that name
    in a sentence. ``enabled`` is a file next to it that has a 1 while it is exported, "" if it always is.
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

    Without ``luns`` nothing is exported: initiators find somebody else's target, or nobody. With
    ``black_box`` they find that one, whose CHAP secrets are ``secrets``.
    """

    journal: Journal
    tag: str
    target: Host
    initiators: tuple[Host, ...]
    luns: tuple[Lun, ...]
    logs: Path
    black_box: BlackBoxTarget | None = None
    secrets: Secrets | None = field(default=None, repr=False)

    def udev_rule(self, name: str, match: str) -> UdevRule:
        """Keeps the initiator's machine from disks that are measured: see ``udev``."""
        return UdevRule(name, match, is_own=self.black_box is None)


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


ABOUT = {"lun": "nsid", "model": "device/model", "wwid": "wwid", "sectors": "size"}
"""Files in a disk's folder of sysfs, by what they say."""


class Expected(NamedTuple):
    """``what`` of a disk must be ``wanted``, by a file of its host; "" if anything will do."""

    what: str
    path: str
    wanted: str = ""
    is_part: bool = False
    """The file says more: a page of SCSI, with a header."""


def unwritten(sysfs: str, portal: BlackBoxTarget) -> tuple[Expected, ...]:
    """Of the disk of a black-box target: it is the one that was planned with, and its kernel
    refuses writes."""
    identity = (Expected("identity", f"{sysfs}/{file}", portal.wwid) for file in portal.identified_by)
    return (Expected("read-only mark", f"{sysfs}/ro", "1"), *identity)


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The initiator's block device of a session, as found through sysfs: never by assuming a name.

    ``sysfs`` is its folder there.
    """

    host: Host
    sysfs: str
    expected: tuple[Expected, ...]

    @property
    def device(self) -> str:
        """Its node."""
        return f"/dev/{self.sysfs.rpartition('/')[2]}"

    def check(self) -> None:
        """Make sure, just before a job, that the device still is what was connected to.

        Raises CellInvalid if the session is gone or not in order, another disk has taken the name, or
        something (multipath, LVM, md) has taken hold of it.
        """
        expected = (*self.expected, Expected("size", f"{self.sysfs}/size"))
        texts = self.host.read_files([path for _, path, *_ in expected])
        for (what, _, wanted, is_part), text in zip(expected, texts, strict=True):
            said = text.strip()
            if not said or (wanted not in said if is_part else said != (wanted or said)):
                found = "another" if is_part and said else said or "none"
                raise CellInvalid(
                    f"expected the {what} of {self.device} to be {wanted or 'there'}, found {found}"
                )
        if holders := self.host.list_folder(f"{self.sysfs}/holders"):
            raise CellInvalid(
                f"expected {self.device} to be free, but {', '.join(holders)} holds it",
                hint="keep multipathd and LVM away from disks of the harness",
            )


@dataclass(frozen=True, kw_only=True)
class Session:
    """A session that is up: its disk, and what the two ends agreed on, in the words of the transport."""

    disk: Disk
    agreed: dict[str, str]


@dataclass(frozen=True)
class Shared(abc.ABC):
    """What all columns of a transport share, up: both sides of a run."""

    sides: Sides

    @abc.abstractmethod
    def exports(self, wanted: Export) -> Sequence[Resource]:
        """The target's part of an export. RequirementError if it lacks a program."""

    @abc.abstractmethod
    def connections(self, wanted: Export) -> Sequence[Resource]:
        """The initiator's part of a connection to an export."""

    @abc.abstractmethod
    def outages(self, wanted: Export) -> Mapping[str, Resource]:
        """What can happen to the target's server, by the fault's name. ``target-down``: while it is held, the
        server has no connections and takes none; ``login-refused``: it takes no new ones."""

    @abc.abstractmethod
    def session(self, host: Host, wanted: Export) -> Session:
        """The session of an initiator's connection, which is up. Nothing of its disk is checked yet.

        Raises RequirementError if the two ends agreed on something else than was asked for, CommandFailed for
        all else.
        """

    @abc.abstractmethod
    def discover(self, wanted: Export) -> Mapping[str, Sequence[str]]:
        """The targets that a portal shows, by their names, each with its portals; NoAnswer if nobody does."""

    def luns(self, wanted: Export) -> dict[str, Any]:
        """The disks (``luns``) of a target that is connected to, each with what its kernel says of it, and
        the ``address`` and ``port`` of the connection."""
        host = self.sides.initiators[wanted.number]
        sysfs = self.session(host, wanted).disk.sysfs
        texts = host.read_files([f"{sysfs}/{file}" for file in ABOUT.values()])
        facts = {name: text.strip() for name, text in zip(ABOUT, texts, strict=True)}
        unit = {**facts, "lun": int(facts["lun"] or 0), "node": f"/dev/{sysfs.rpartition('/')[2]}"}
        return {"luns": [unit], "address": wanted.address, "port": wanted.port}

    @contextlib.contextmanager
    def connection(self, wanted: Export) -> Iterator[None]:
        """What an initiator connects by, while the context lasts; no disk is chosen yet."""
        with self._held(self.sides.initiators[wanted.number], self.connections(wanted)):
            yield

    @contextlib.contextmanager
    def export(self, wanted: Export) -> Iterator[None]:
        """Export a LUN. CommandFailed if the target refuses."""
        with self._held(wanted.target, self.exports(wanted)):
            yield

    @contextlib.contextmanager
    def connect(self, wanted: Export) -> Iterator[Session]:
        """Have the initiator connect to an export; raises what ``session`` and ``Disk.check`` do,
        and NoAnswer if nothing answers at the portal."""
        with self.connection(wanted):
            session = self.session(self.sides.initiators[wanted.number], wanted)
            session.disk.check()
            yield session

    @contextlib.contextmanager
    def attach(self, wanted: Export) -> Iterator[Session]:
        """Both; of a black-box target, the second."""
        exported = contextlib.nullcontext() if self.sides.black_box else self.export(wanted)
        with exported, self.connect(wanted) as session:
            yield session

    @contextlib.contextmanager
    def _held(self, host: Host, resources: Sequence[Resource]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for each in resources:
                stack.enter_context(self.sides.journal.hold(host, each))
            yield


@dataclass(frozen=True, kw_only=True)
class Transport:
    """One transport to a target's storage, and all that other modules need to know of it. ``port`` is its
    IANA port.

    What its ends send is ``analysis.wire``'s, and what it needs of packages is in packages.txt, by its name.
    ``shared`` brings up what all columns share, for the length of a context.

    ``leaves`` is what may be left of a run, ``troubles`` are the kernel's messages of a session that was
    disturbed (``hosts/footprint.py``). ``lists`` are the folders that list what it brings up in a kernel, and
    ``exported`` says which devices it exports.
    The modules are the kernel's, in modprobe(8)'s words, so perhaps with parameters; some a target needs only
    for files or block devices. What a run writes to ``initiator_folders`` is its own: it hides them.

    ``target_software`` is a command that succeeds where its target's programs and libraries are, () if the
    kernel alone is the target. ``versions`` are the commands that print the versions of its programs, at both
    ends.
    ``export_title`` and ``session_title`` are what a target makes and an initiator opens, with their
    articles; ``server`` is what a machine that can be a target has.
    """

    name: str
    port: int
    shared: Callable[[Sides], AbstractContextManager[Shared]]
    leaves: tuple[Leftover, ...]
    troubles: tuple[Trouble, ...]
    lists: tuple[str, ...]
    exported: tuple[Exported, ...]
    initiator_modules: tuple[str, ...]
    target_modules: tuple[str, ...] = ()
    file_modules: tuple[str, ...] = ()
    block_modules: tuple[str, ...] = ()
    initiator_folders: tuple[str, ...] = ()
    target_software: tuple[str, ...] = ()
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    export_title: str
    session_title: str
    server: str

    def modules(self, role: str, kinds: Collection[BackingKind]) -> tuple[str, ...]:
        """The kernel modules of a role (target, initiator), if storage of these kinds is exported."""
        if role == "initiator":
            return self.initiator_modules
        of_devices = self.block_modules if {*kinds} - {BackingKind.FILE} else ()
        of_files = self.file_modules if BackingKind.FILE in kinds else ()
        return (*self.target_modules, *of_devices, *of_files)
