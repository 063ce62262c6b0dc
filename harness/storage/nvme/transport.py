"""NVMe/TCP as a transport. Neither side has anything that all columns share."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.model import NVME_TCP
from harness.storage import configfs, nvme
from harness.storage.nvme import initiator, target, tls
from harness.storage.nvme.initiator import NvmeController
from harness.storage.nvme.target import Subsystem
from harness.storage.transport import Export, Exported, Session, Shared, Sides, Transport


@dataclass(frozen=True)
class NvmeSides(Shared):
    """Both sides of a run's NVMe/TCP."""

    sides: Sides
    nonce: str
    _keys: dict[str, tls.SessionKey] = field(default_factory=dict, repr=False)
    """Of each export with TLS, by its name."""

    def host_nqn(self, number: int) -> str:
        """Not to be guessed: it is all that a subsystem asks of who connects."""
        return nvme.nqn(self.sides.tag, f"initiator{number + 1}.{self.nonce}")

    @contextlib.contextmanager
    def export(self, wanted: Export) -> Iterator[None]:
        made = Subsystem(
            nqn=nvme.nqn(self.sides.tag, wanted.name),
            serial=wanted.lun.serial,
            path=wanted.lun.path,
            address=wanted.address,
            port=wanted.port,
            host_nqn=self.host_nqn(wanted.number),
            parameters=dict(wanted.parameters),
            tls=wanted.tls,
        )
        with contextlib.ExitStack() as stack:
            if wanted.tls:
                key = self._keys[wanted.name] = tls.make_key(made.host_nqn, made.nqn)
                stack.enter_context(self.sides.journal.hold(wanted.target, key))
            stack.enter_context(self.sides.journal.hold(wanted.target, made))
            yield

    @contextlib.contextmanager
    def connect(self, wanted: Export) -> Iterator[Session]:
        journal, host = self.sides.journal, self.sides.initiators[wanted.number]
        connection = NvmeController(
            nqn=nvme.nqn(self.sides.tag, wanted.name),
            address=wanted.address,
            port=wanted.port,
            host_nqn=self.host_nqn(wanted.number),
            bound_to=wanted.bound_to,
            read_only=wanted.read_only,
            parameters=dict(wanted.parameters),
            tls=wanted.tls,
        )
        with contextlib.ExitStack() as stack:
            if wanted.tls:
                stack.enter_context(journal.hold(host, self._keys[wanted.name]))
            stack.enter_context(journal.hold(host, connection))
            disk = initiator.await_disk(host, connection, serial=wanted.lun.serial)
            agreed = initiator.negotiated(host, connection)
            nvme.require_agreed(wanted.parameters, agreed)
            yield Session(disk=disk, agreed=agreed)


@contextlib.contextmanager
def shared(sides: Sides) -> Iterator[NvmeSides]:
    """Names that no other run knows."""
    if sides.luns:
        configfs.mount(sides.target, "nvmet")
    yield NvmeSides(sides, nonce=secrets.token_hex(6))


OFFERED = (
    Transport(
        name=NVME_TCP,
        port=nvme.PORT,
        shared=shared,
        leaves=(*initiator.LEAVES, *target.LEAVES),
        troubles=(*initiator.TROUBLES, *target.TROUBLES),
        lists=("/sys/class/nvme", target.SUBSYSTEMS),
        exported=(
            Exported(
                devices=f"{target.SUBSYSTEMS}/*/namespaces/*/device_path",
                name=(-4, -3),
                as_what="over NVMe by the subsystem",
                enabled="enable",
            ),
        ),
        column_s=0.5,
        initiator_modules=initiator.MODULES,
        target_modules=target.MODULES,
        needs_own_kernel=True,
        export_title="an NVMe/TCP subsystem",
        session_title="an NVMe/TCP connection",
        server="nvmet",
    ),
)
