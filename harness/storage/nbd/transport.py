"""NBD as a transport (doc/proto.md of NetworkBlockDevice/nbd): nbdkit's file plugin, and the disk of the
kernel's client.

Two small programs do it on the hosts, under the distribution's Python: ``programs/target.py`` has nbdkit
serve exports, ``programs/initiator.py`` does the handshake and hands the connection to the kernel. nbd-client
is not needed. Only objects whose names carry the run's id are made and removed. Neither side has anything
that all columns share.
"""

from __future__ import annotations

import contextlib
import functools
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from harness.hosts import Host
from harness.hosts.footprint import Leftover
from harness.model import addresses, kinds
from harness.storage import requests
from harness.storage.requests import Made
from harness.storage.transport import (
    SECTOR_BYTES,
    Disk,
    Expected,
    Export,
    Exported,
    Session,
    Shared,
    Sides,
    Transport,
    unwritten,
)
from harness.storage.udev import UdevRule

NAME = "nbd"

PORT = kinds.TRANSPORTS[NAME].port
"""IANA's for NBD."""

SOFTWARE = ("nbdkit", "--version")

FOLDER = "/run/harness/nbd"
"""On the target: has a folder for each run, by its tag."""

BACKENDS = "/sys/block/nbd*/backend"
"""What is behind each disk, in the words of who connected it (drivers/block/nbd.c, Linux 5.14)."""

CONNECT_S = 8
"""How long the target is waited for."""

LOSS_S = 10
"""How long an answer is waited for, before I/O fails; 0 is for ever."""

step = functools.partial(requests.step, __package__)


@dataclass(frozen=True)
class NbdSides(Shared):
    """Both sides of a run's NBD."""

    nonce: str

    def _qualified(self, wanted: Export) -> str:
        """What the run calls one of its exports; NBD itself asks for no form of names."""
        return f"net.storage-harness:{self.sides.tag}.{wanted.name}"

    def export_name(self, wanted: Export) -> str:
        """Not to be guessed: it is all that a server asks of who connects."""
        if self.sides.black_box is not None:
            return self.sides.black_box.name
        return f"{self._qualified(wanted)}.{self.nonce}"

    def backend(self, wanted: Export) -> str:
        """By which a disk is known: NBD has no names for disks, but the kernel keeps one for who connected
        it."""
        return f"{self._qualified(wanted)}:{wanted.lun.serial}"

    def discover(self, wanted: Export) -> dict[str, list[str]]:
        """The server's default export, which has no name (doc/proto.md)."""
        return {"": [addresses.at_port(wanted.address, wanted.port)]}

    def _portal(self, wanted: Export) -> dict[str, object]:
        folder = f"{FOLDER}/{self.sides.tag}"
        return {"address": wanted.address, "port": wanted.port, "folder": folder}

    def _loss_s(self, wanted: Export) -> int:
        return int(wanted.parameters.get("timeout", LOSS_S))

    def exports(self, wanted: Export) -> tuple[Made, ...]:
        """Exports of a portal are all ``read_only`` or none."""
        wanted.target.run(SOFTWARE)  # RequirementError if there is none
        names = {"export": self.export_name(wanted), **self._portal(wanted)}
        make = step("target", "create", **names, path=wanted.lun.path, read_only=wanted.read_only)
        remove = step("target", "delete", **names)
        return (Made(self.export_name(wanted), "NbdExport", make, remove, "nbdkit refused"),)

    def outages(self, wanted: Export) -> dict[str, Made]:
        """nbdkit is killed, and begins anew: the kernel's client does not connect a second time."""
        make = step("target", "create-outage", **self._portal(wanted))
        remove = step("target", "delete-outage", **self._portal(wanted), read_only=wanted.read_only)
        made = Made(self.export_name(wanted), "TargetOutage", make, remove, "nbdkit refused")
        return {"target-down": made}

    def connections(self, wanted: Export) -> tuple[Made | UdevRule, ...]:
        """A server that takes writes is refused where none are wanted."""
        backend = self.backend(wanted)
        make = step(
            "initiator",
            "connect",
            backend=backend,
            export=self.export_name(wanted),
            address=wanted.address,
            port=wanted.port,
            bound_to=wanted.bound_to,
            read_only=None if self.sides.black_box is not None and wanted.read_only else wanted.read_only,
            within_s=CONNECT_S,
            loss_s=self._loss_s(wanted),
        )
        remove = step("initiator", "disconnect", backend=backend)
        refused = f"no NBD connection to {addresses.at_port(wanted.address, wanted.port)}"
        connection = Made(backend, "NbdConnection", make, remove, refused)
        name = f"harness-{self.sides.tag}-nbd-{wanted.name}"
        return (self.sides.udev_rule(name, f'KERNEL=="nbd*", ATTRS{{backend}}=="{backend}"'), connection)

    def session(self, host: Host, wanted: Export) -> Session:
        """Its disk is identified by its backend and size."""
        backend = self.backend(wanted)
        asked = step("initiator", "tell", backend=backend)
        found = requests.reported(host, asked, "the NBD connection cannot be read")
        sysfs = f"/sys/block/{found['disk']}"
        expected: tuple[Expected, ...] = (
            Expected("process", f"{sysfs}/pid"),
            Expected("backend", f"{sysfs}/backend", backend),
            Expected("number of sectors", f"{sysfs}/size", str(wanted.lun.size_bytes // SECTOR_BYTES)),
        )
        if (black_box := self.sides.black_box) is not None:
            host.run(["blockdev", "--setro", f"/dev/{found['disk']}"])
            expected = (*expected[:2], *unwritten(sysfs, black_box))
        agreed = {**found["agreed"], "timeout": str(self._loss_s(wanted))}
        return Session(disk=Disk(host=host, sysfs=sysfs, expected=expected), agreed=agreed)


@contextlib.contextmanager
def shared(sides: Sides) -> Iterator[NbdSides]:
    """Names that no other run knows."""
    yield NbdSides(sides, nonce=secrets.token_hex(6))


OFFERED = (
    Transport(
        name=NAME,
        port=PORT,
        shared=shared,
        leaves=(
            Leftover(
                what="the NBD connection to",
                names=f'cat {BACKENDS} 2>/dev/null | grep -F ":$1."',
                where=BACKENDS,
            ),
            Leftover(
                what="the NBD portal",
                names=f'ls {FOLDER}/"$1" 2>/dev/null',
                where=f'{FOLDER}/"$1"',
            ),
        ),
        troubles=(
            # nbd_xmit_timeout(), nbd_handle_reply(), sock_xmit(), nbd_handle_cmd() and others of
            # drivers/block/nbd.c
            (
                re.compile(
                    r"block nbd\d+: (Connection timed out.*|Possible stuck request.*"
                    r"|Receive (control|data) failed.*|Send (control|data) failed.*"
                    r"|Other side returned error.*|Dead connection.*|Wrong magic.*"
                    r"|Unexpected reply.*|Double reply.*|Attempted send on invalid socket.*)"
                ),
                "the NBD connection dropped",
            ),
        ),
        lists=(FOLDER,),
        # By run, portal and export: a file with the path of what is exported.
        exported=(
            Exported(
                devices=f"{FOLDER}/*/*/devices/*",
                name=(5, 6),
                as_what="over NBD at the portal",
                process="../process",
            ),
        ),
        # Without the parameter it makes sixteen disks.
        initiator_modules=("nbd nbds_max=0",),
        target_software=SOFTWARE,
        versions={"nbdkit": SOFTWARE},
        export_title="an NBD export",
        session_title="an NBD connection",
        server="nbdkit",
    ),
)
