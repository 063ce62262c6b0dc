"""NBD as a transport. Neither side has anything that all columns share."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from harness.hosts import Host
from harness.hosts.footprint import Leftover, Trouble
from harness.model import NBD, BackingKind
from harness.storage import nbd
from harness.storage.nbd import initiator, target
from harness.storage.nbd.initiator import NbdConnection
from harness.storage.nbd.target import NbdExport
from harness.storage.transport import Export, Exported, Session, Shared, Sides


class Nbd:
    """See ``storage.transport.Transport``."""

    name: ClassVar[str] = NBD
    port: ClassVar[int] = nbd.PORT
    leaves: ClassVar[tuple[Leftover, ...]] = (*initiator.LEAVES, *target.LEAVES)
    troubles: ClassVar[tuple[Trouble, ...]] = initiator.TROUBLES
    lists: ClassVar[tuple[str, ...]] = (target.FOLDER,)
    exported: ClassVar[tuple[Exported, ...]] = (target.EXPORTED,)
    column_s: ClassVar[float] = 0.7
    needs_own_kernel: ClassVar[bool] = False
    target_software: ClassVar[tuple[str, ...]] = target.SOFTWARE
    versions: ClassVar[Mapping[str, tuple[str, ...]]] = {"nbdkit": target.SOFTWARE}
    export_title: ClassVar[str] = "an NBD export"
    session_title: ClassVar[str] = "an NBD connection"
    server: ClassVar[str] = "nbdkit"

    def modules(self, role: str, kinds: Collection[BackingKind]) -> tuple[str, ...]:
        del kinds  # nbdkit serves files and block devices
        return initiator.MODULES if role == "initiator" else ()

    def private_folders(self, role: str) -> tuple[str, ...]:
        del role  # a later run has to find what a killed one left
        return ()

    def get_ready(self, host: Host) -> None:
        del host  # its programs start soon enough

    @contextlib.contextmanager
    def shared(self, sides: Sides) -> Iterator[NbdSides]:
        """Names that no other run knows."""
        yield NbdSides(sides, nonce=secrets.token_hex(6))


@dataclass(frozen=True)
class NbdSides(Shared):
    """Both sides of a run's NBD."""

    sides: Sides
    nonce: str

    def export_name(self, wanted: Export) -> str:
        """Not to be guessed: it is all that a server asks of who connects."""
        return f"{nbd.qualified(self.sides.tag, wanted.name)}.{self.nonce}"

    @contextlib.contextmanager
    def export(self, wanted: Export) -> Iterator[None]:
        made = NbdExport(
            export=self.export_name(wanted),
            path=wanted.lun.path,
            address=wanted.address,
            port=wanted.port,
            folder=f"{target.FOLDER}/{self.sides.tag}",
            read_only=wanted.read_only,
        )
        with self.sides.journal.hold(wanted.target, made):
            yield

    @contextlib.contextmanager
    def connect(self, wanted: Export) -> Iterator[Session]:
        host = self.sides.initiators[wanted.number]
        connection = NbdConnection(
            backend=initiator.backend(self.sides.tag, wanted.name, wanted.lun.serial),
            export=self.export_name(wanted),
            address=wanted.address,
            port=wanted.port,
            bound_to=wanted.bound_to,
            read_only=wanted.read_only,
        )
        with self.sides.journal.hold(host, connection):
            disk, agreed = initiator.await_disk(host, connection, size_bytes=wanted.lun.size_bytes)
            yield Session(disk=disk, agreed=agreed)


OFFERED = (Nbd(),)
