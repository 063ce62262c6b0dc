"""NVMe/TCP as a transport. Neither side has anything that all columns share."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

from harness.hosts.footprint import Leftover, Trouble
from harness.model import NVME_TCP, BackingKind
from harness.storage import configfs, nvme
from harness.storage.nvme import initiator, target, tls
from harness.storage.nvme.initiator import Connection
from harness.storage.nvme.target import Subsystem
from harness.storage.transport import Export, Session, Sides


class NvmeTcp:
    """See ``storage.transport.Transport``."""

    name: ClassVar[str] = NVME_TCP
    port: ClassVar[int] = nvme.PORT
    leaves: ClassVar[tuple[Leftover, ...]] = (*initiator.LEAVES, *target.LEAVES)
    troubles: ClassVar[tuple[Trouble, ...]] = (*initiator.TROUBLES, *target.TROUBLES)

    def modules(self, role: str, kinds: Collection[BackingKind]) -> tuple[str, ...]:
        del kinds  # nvmet itself serves files and block devices
        return initiator.MODULES if role == "initiator" else target.MODULES

    def private_folders(self, role: str) -> tuple[str, ...]:
        del role  # nothing is written to any
        return ()

    @contextlib.contextmanager
    def shared(self, sides: Sides) -> Iterator[NvmeSides]:
        """Names that no other run knows."""
        configfs.mount(sides.target, "nvmet")
        yield NvmeSides(sides, nonce=secrets.token_hex(6))


@dataclass(frozen=True)
class NvmeSides:
    """Both sides of a run's NVMe/TCP."""

    sides: Sides
    nonce: str

    def host_nqn(self, number: int) -> str:
        """Not to be guessed: it is all that a subsystem asks of who connects."""
        return nvme.nqn(self.sides.tag, f"{self.sides.initiators[number].name}.{self.nonce}")

    @contextlib.contextmanager
    def attach(self, wanted: Export) -> Iterator[Session]:
        journal, host = self.sides.journal, self.sides.initiators[wanted.number]
        parameters = dict(wanted.parameters)
        made = Subsystem(
            nqn=nvme.nqn(self.sides.tag, wanted.name),
            serial=wanted.lun.serial,
            path=wanted.lun.path,
            address=wanted.address,
            port=wanted.port,
            host_nqn=self.host_nqn(wanted.number),
            parameters=parameters,
            tls=wanted.tls,
        )
        connection = Connection(
            nqn=made.nqn,
            address=wanted.address,
            port=wanted.port,
            host_nqn=made.host_nqn,
            bound_to=wanted.bound_to,
            read_only=wanted.read_only,
            parameters=parameters,
            tls=wanted.tls,
        )
        with contextlib.ExitStack() as stack:
            if wanted.tls:
                key = tls.make_key(made.host_nqn, made.nqn)
                for end in (wanted.target, host):
                    stack.enter_context(journal.hold(end, key))
            stack.enter_context(journal.hold(wanted.target, made))
            stack.enter_context(journal.hold(host, connection))
            disk = initiator.await_disk(host, connection, serial=wanted.lun.serial)
            agreed = initiator.negotiated(host, connection)
            nvme.require_agreed(parameters, agreed)
            yield Session(disk=disk, agreed=agreed)
