"""NVMe/TCP as a transport. Neither side has anything that all columns share."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from harness.analysis import theory
from harness.analysis.bounds import whole
from harness.hosts.footprint import Leftover, Trouble
from harness.model import NVME_TCP, BackingKind
from harness.storage import configfs, nvme
from harness.storage.nvme import initiator, target, tls
from harness.storage.nvme.dialogue import Dialogue, Overheads
from harness.storage.nvme.initiator import Connection
from harness.storage.nvme.target import Subsystem
from harness.storage.transport import Export, Session, Sides


class NvmeTcp:
    """See ``storage.transport.Transport``."""

    name: ClassVar[str] = NVME_TCP
    port: ClassVar[int] = nvme.PORT
    remedy: ClassVar[str] = "a larger param_inline_data_size of nvmet's port"
    window_bytes: ClassVar[int | None] = None
    leaves: ClassVar[tuple[Leftover, ...]] = (*initiator.LEAVES, *target.LEAVES)
    troubles: ClassVar[tuple[Trouble, ...]] = (*initiator.TROUBLES, *target.TROUBLES)

    def modules(self, role: str, kinds: Collection[BackingKind]) -> tuple[str, ...]:
        del kinds  # nvmet itself serves files and block devices
        return initiator.MODULES if role == "initiator" else target.MODULES

    def private_folders(self, role: str) -> tuple[str, ...]:
        del role  # nothing is written to any
        return ()

    def dialogue(
        self, agreed: Mapping[str, str], direction: theory.Direction, window_bytes: int
    ) -> theory.Dialogue | None:
        del direction  # the ends agree on nothing that differs by it
        at_once = whole(agreed, "in_capsule_bytes")
        if at_once is None:
            return None
        return Dialogue(in_capsule_bytes=at_once, window_bytes=window_bytes, tls="tls" in agreed)

    def overheads(self, agreed: Mapping[str, str]) -> Overheads:
        return Overheads(agreed=agreed)

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
