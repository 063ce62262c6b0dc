"""The initiator side: a connection of the kernel's, made by ``programs/initiator.py``, and its disk."""

from __future__ import annotations

import re

import msgspec

from harness.hosts import Host
from harness.hosts.footprint import Leftover, Trouble
from harness.hosts.undo import UndoStep
from harness.model import addresses
from harness.storage.nbd import qualified, step
from harness.storage.requests import ask, reported
from harness.storage.transport import Disk, Expected

MODULES = ("nbd nbds_max=0",)
"""Without the parameter it makes sixteen disks."""

BACKENDS = "/sys/block/nbd*/backend"
"""What is behind each disk, in the words of who connected it (drivers/block/nbd.c, Linux 5.14)."""

LEAVES = (
    Leftover(
        what="the NBD connection to",
        names=f'cat {BACKENDS} 2>/dev/null | grep -F ":$1."',
        where=BACKENDS,
    ),
)
TROUBLES: tuple[Trouble, ...] = (
    # nbd_xmit_timeout(), nbd_handle_reply(), sock_xmit(), nbd_handle_cmd() and others of drivers/block/nbd.c
    (
        re.compile(
            r"block nbd\d+: (Connection timed out.*|Possible stuck request.*|Receive (control|data) failed.*"
            r"|Send (control|data) failed.*|Other side returned error.*|Dead connection.*|Wrong magic.*"
            r"|Unexpected reply.*|Double reply.*|Attempted send on invalid socket.*)"
        ),
        "the NBD connection dropped",
    ),
)

CONNECT_S = 8
"""How long the target is waited for."""

LOSS_S = 10
"""How long an answer is waited for, before I/O fails."""


def backend(tag: str, name: str, serial: str) -> str:
    """By which a disk is known: NBD has no names for disks, but the kernel keeps one for who connected it."""
    return f"{qualified(tag, name)}:{serial}"


class NbdConnection(msgspec.Struct, frozen=True):
    """An initiator's connection to an export, with the disk that it brings.

    ``bound_to`` is the network interface that it may use alone; None leaves that to the routing. With
    ``read_only`` a server that takes writes is refused.
    """

    backend: str
    export: str
    address: str
    port: int
    bound_to: str | None = None
    read_only: bool = False

    def acquire(self, host: Host) -> None:
        request = {**msgspec.to_builtins(self), "within_s": CONNECT_S, "loss_s": LOSS_S}
        what = f"no NBD connection to {addresses.at_port(self.address, self.port)}"
        ask(host, step("initiator", "connect", **request), what)

    def undo(self) -> tuple[UndoStep, ...]:
        return (step("initiator", "disconnect", backend=self.backend),)


SECTOR_BYTES = 512


def await_disk(host: Host, connection: NbdConnection, *, size_bytes: int) -> tuple[Disk, dict[str, str]]:
    """The disk of a connection that is up, identified by its backend and size, and what was agreed on."""
    asked = step("initiator", "tell", backend=connection.backend)
    found = reported(host, asked, "the NBD connection cannot be read")
    sysfs = f"/sys/block/{found['disk']}"
    disk = Disk(
        host=host,
        sysfs=sysfs,
        device=f"/dev/{found['disk']}",
        expected=(
            Expected("process", f"{sysfs}/pid"),
            Expected("backend", f"{sysfs}/backend", connection.backend),
            Expected("number of sectors", f"{sysfs}/size", str(size_bytes // SECTOR_BYTES)),
        ),
    )
    disk.check()
    return disk, found["agreed"]
