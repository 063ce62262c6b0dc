"""iSCSI as a transport: LIO at the target, open-iscsi at the initiator."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from harness.model import ISCSI
from harness.storage import configfs, iscsi
from harness.storage.configfs import CONFIGFS
from harness.storage.iscsi import initiator, target
from harness.storage.iscsi.initiator import IscsiSession
from harness.storage.iscsi.target import Backstore, DiscoveryLogin, IscsiTarget, iqn
from harness.storage.transport import Export, Exported, Session, Shared, Sides, Transport

CHAP_USER = "harness"


@dataclass(frozen=True)
class IscsiSides(Shared):
    """Both sides of a run's iSCSI, up."""

    sides: Sides
    secret: str
    nonce: str

    def __repr__(self) -> str:
        return f"IscsiSides({self.sides.tag!r})"  # without the secret

    def initiator_iqn(self, number: int) -> str:
        """A name that nobody can guess: LIO serves one login of known names at a time, however long it
        takes."""
        return iqn(self.sides.tag, f"initiator{number + 1}.{self.nonce}")

    @contextlib.contextmanager
    def export(self, wanted: Export) -> Iterator[None]:
        made = IscsiTarget(
            iqn=iqn(self.sides.tag, wanted.name),
            backstore=wanted.lun.serial,
            address=wanted.address,
            port=wanted.port,
            initiator_iqn=self.initiator_iqn(wanted.number),
            chap_user=CHAP_USER,
            secret=self.secret,
            read_only=wanted.read_only,
            parameters=dict(wanted.parameters),
        )
        with self.sides.journal.hold(wanted.target, made):
            yield

    @contextlib.contextmanager
    def connect(self, wanted: Export) -> Iterator[Session]:
        host = self.sides.initiators[wanted.number]
        session = IscsiSession(
            iqn(self.sides.tag, wanted.name),
            wanted.address,
            wanted.port,
            self.initiator_iqn(wanted.number),
            bound_to=wanted.bound_to,
            parameters=dict(wanted.parameters),
        )
        with self.sides.journal.hold(host, session):
            name, disk = initiator.await_disk(host, session, serial=wanted.lun.serial)
            agreed = initiator.negotiated(name, disk)
            iscsi.require_agreed(wanted.parameters, agreed)
            yield Session(disk=disk, agreed=agreed)


@contextlib.contextmanager
def shared(sides: Sides) -> Iterator[IscsiSides]:
    """Backstores, and an iscsid for each initiator."""
    up = IscsiSides(sides, secret=secrets.token_hex(8), nonce=secrets.token_hex(6))
    with contextlib.ExitStack() as stack:
        if sides.luns:
            configfs.mount(sides.target, "target")
            login = DiscoveryLogin(f"harness-{sides.tag}", up.secret)
            stack.enter_context(sides.journal.hold(sides.target, login))
        for lun in sides.luns:
            store = Backstore(lun.serial, lun.kind, lun.path, lun.size_bytes, lun.serial)
            stack.enter_context(sides.journal.hold(sides.target, store))
        for number, host in enumerate(sides.initiators):
            stack.enter_context(
                initiator.iscsid(
                    sides.journal,
                    host,
                    initiator_iqn=up.initiator_iqn(number),
                    chap_user=CHAP_USER,
                    secret=up.secret,
                    log=sides.logs / f"iscsid-{host.name}.log",
                )
            )
        yield up


OFFERED = (
    Transport(
        name=ISCSI,
        port=target.PORT,
        shared=shared,
        leaves=(*initiator.LEAVES, *target.LEAVES),
        troubles=(*initiator.TROUBLES, *target.TROUBLES),
        lists=(initiator.SESSIONS, f"{CONFIGFS}/target"),
        exported=(
            Exported(
                devices=f"{CONFIGFS}/target/core/*/*/udev_path",
                name=(-3, -1),
                as_what="by LIO as the backstore",
                is_exclusive=True,
            ),
        ),
        column_s=0.7,
        initiator_modules=initiator.MODULES,
        target_modules=target.MODULES,
        file_modules=target.FILE_MODULES,
        block_modules=target.BLOCK_MODULES,
        initiator_folders=iscsi.RECORDS,
        versions={
            "open-iscsi": ("iscsiadm", "--version"),
        },
        export_title="an iSCSI target",
        session_title="an iSCSI session",
        server="LIO",
    ),
)
