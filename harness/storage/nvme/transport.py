"""NVMe/TCP as a transport. Neither side has anything that all columns share."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from harness.hosts import Host
from harness.hosts.footprint import Leftover, Trouble
from harness.model import NVME_TCP, BackingKind
from harness.storage import configfs, nvme
from harness.storage.nvme import initiator, target, tls
from harness.storage.nvme.initiator import Connection
from harness.storage.nvme.target import Subsystem
from harness.storage.transport import Export, Exported, Session, Shared, Sides


class NvmeTcp:
    """See ``storage.transport.Transport``."""

    name: ClassVar[str] = NVME_TCP
    port: ClassVar[int] = nvme.PORT
    leaves: ClassVar[tuple[Leftover, ...]] = (*initiator.LEAVES, *target.LEAVES)
    troubles: ClassVar[tuple[Trouble, ...]] = (*initiator.TROUBLES, *target.TROUBLES)
    lists: ClassVar[tuple[str, ...]] = ("/sys/class/nvme", target.SUBSYSTEMS)
    exported: ClassVar[tuple[Exported, ...]] = (
        Exported(
            devices=f"{target.SUBSYSTEMS}/*/namespaces/*/device_path",
            name=(-4, -3),
            as_what="over NVMe by the subsystem",
            enabled="enable",
        ),
    )
    column_s: ClassVar[float] = 0.5
    needs_own_kernel: ClassVar[bool] = True
    target_software: ClassVar[tuple[str, ...]] = ()
    versions: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    export_title: ClassVar[str] = "an NVMe/TCP subsystem"
    session_title: ClassVar[str] = "an NVMe/TCP connection"
    server: ClassVar[str] = "nvmet"

    def modules(self, role: str, kinds: Collection[BackingKind]) -> tuple[str, ...]:
        del kinds  # nvmet itself serves files and block devices
        return initiator.MODULES if role == "initiator" else target.MODULES

    def private_folders(self, role: str) -> tuple[str, ...]:
        del role  # nothing is written to any
        return ()

    def get_ready(self, host: Host) -> None:
        del host  # its programs start soon enough

    @contextlib.contextmanager
    def shared(self, sides: Sides) -> Iterator[NvmeSides]:
        """Names that no other run knows."""
        if sides.luns:
            configfs.mount(sides.target, "nvmet")
        yield NvmeSides(sides, nonce=secrets.token_hex(6))


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
        connection = Connection(
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


OFFERED = (NvmeTcp(),)
