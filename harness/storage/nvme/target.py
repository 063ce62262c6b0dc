"""The target side: an export of Linux's nvmet, made by ``programs/target.py``."""

from __future__ import annotations

import re

import msgspec

from harness.hosts import Host
from harness.hosts.footprint import Leftover, Trouble
from harness.hosts.undo import UndoStep
from harness.storage import configfs
from harness.storage.nvme import TARGET_PARAMETERS, step
from harness.storage.requests import ask

MODULES = ("nvmet", "nvmet_tcp")

FIRST_PORT = 0x4800
"""Numbers of nvmet's ports below it are somebody else's to give (``programs/target.py``)."""

SUBSYSTEMS = f"{configfs.CONFIGFS}/nvmet/subsystems"

LEAVES = (
    Leftover(
        what="the NVMe subsystem",
        names=f'ls {SUBSYSTEMS} 2>/dev/null | grep -F ":$1."',
        where=f"{SUBSYSTEMS}/*",
    ),
    Leftover(
        what="the entry of the NVMe host",
        names=f'ls {configfs.CONFIGFS}/nvmet/hosts 2>/dev/null | grep -F ":$1."',
        where=f"{configfs.CONFIGFS}/nvmet/hosts/*",
    ),
    Leftover(
        # Ports have numbers for names. One of ours that leads to nothing is some run's.
        what="the port of nvmet",
        names=f"for port in {configfs.CONFIGFS}/nvmet/ports/*; do "
        f'test -d "$port" && test "${{port##*/}}" -ge {FIRST_PORT} && '
        'test -z "$(ls "$port/subsystems")" && echo "${port##*/}"; done',
    ),
)
TROUBLES: tuple[Trouble, ...] = (
    # nvmet_keep_alive_timer(), nvmet_ctrl_fatal_error(), nvmet_tcp_fatal_error() of drivers/nvme/target
    (re.compile(r"nvmet: ctrl \d+ (keep-alive timer|fatal error).*"), "nvmet error"),
    (re.compile(r"nvmet_tcp: queue \d+: .*"), "nvmet error"),
)


class Subsystem(msgspec.Struct, frozen=True):
    """A subsystem with one namespace, at one portal, for one host.

    ``serial`` is the subsystem's, by which the initiator knows the disk. ``path`` is a block device or a
    file. With ``tls`` its portal refuses every connection that does not begin with TLS 1.3.
    """

    nqn: str
    serial: str
    path: str
    address: str
    port: int
    host_nqn: str
    parameters: dict[str, str] = {}
    tls: bool = False

    def acquire(self, host: Host) -> None:
        request = msgspec.to_builtins(self)
        parameters = request.pop("parameters")
        inline = {name: parameters.get(name) for name in TARGET_PARAMETERS}
        ask(host, step("target", "create", **request, **inline), "nvmet refused")

    def undo(self) -> tuple[UndoStep, ...]:
        names = {"nqn": self.nqn, "address": self.address, "port": self.port, "host_nqn": self.host_nqn}
        return (step("target", "delete", **names),)
