"""NBD as a transport. Neither side has anything that all columns share."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from harness.model import NBD
from harness.storage import nbd
from harness.storage.nbd import initiator, target
from harness.storage.nbd.initiator import NbdConnection
from harness.storage.nbd.target import NbdExport
from harness.storage.transport import Export, Session, Shared, Sides, Transport


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


@contextlib.contextmanager
def shared(sides: Sides) -> Iterator[NbdSides]:
    """Names that no other run knows."""
    yield NbdSides(sides, nonce=secrets.token_hex(6))


OFFERED = (
    Transport(
        name=NBD,
        port=nbd.PORT,
        shared=shared,
        leaves=(*initiator.LEAVES, *target.LEAVES),
        troubles=initiator.TROUBLES,
        lists=(target.FOLDER,),
        exported=(target.EXPORTED,),
        column_s=0.7,
        initiator_modules=initiator.MODULES,
        target_software=target.SOFTWARE,
        versions={"nbdkit": target.SOFTWARE},
        export_title="an NBD export",
        session_title="an NBD connection",
        server="nbdkit",
    ),
)
