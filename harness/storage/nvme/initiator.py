"""The initiator side: a connection of the kernel's, made by ``programs/initiator.py``, and its disk."""

from __future__ import annotations

import re
import uuid
from typing import Any

import msgspec

from harness.hosts import Host
from harness.hosts.footprint import Leftover, Trouble
from harness.hosts.undo import UndoStep
from harness.model import addresses
from harness.model.errors import CommandFailed
from harness.storage.nvme import KEYS, step
from harness.storage.requests import ask, reported
from harness.storage.transport import Disk, Expected

MODULES = ("nvme_fabrics", "nvme_tcp")
LEAVES = (
    Leftover(
        what="the NVMe/TCP connection to",
        names='cat /sys/class/nvme/*/subsysnqn 2>/dev/null | grep -F ":$1."',
        where="/sys/class/nvme/*",
    ),
)
TROUBLES: tuple[Trouble, ...] = (
    # nvme_tcp_error_recovery(), nvme_tcp_reconnect_or_remove(), nvme_tcp_timeout() and others of
    # drivers/nvme/host/tcp.c; a disk on the machine's own bus says none of it.
    (
        re.compile(
            r"nvme nvme\d+: (starting error recovery|Reconnecting in .*|Removing controller.*"
            r"|queue \d+: timeout.*|.*failed to send request.*|.*receive failed.*)"
        ),
        "the NVMe/TCP connection dropped",
    ),
)

CONNECT_S = 8
"""How long the target is waited for."""

LOSS_S = 10
"""How long a controller that has lost its target tries to reach it, before its I/O fails."""

KEEP_ALIVE_S = 5

TLS_VERSION = "1.3"
"""The only one: NVMe/TCP Transport Specification 1.0c, section 3.6.1.1."""


def host_id(host_nqn: str) -> str:
    """The host identifier of a host's name: the kernel wants the same pair each time."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, host_nqn))


class NvmeController(msgspec.Struct, frozen=True):
    """An initiator's controller for a subsystem, with the disk that it brings.

    ``bound_to`` is the network interface that its connections may use alone; None leaves that to the routing.
    With ``read_only`` the target is told to refuse writes to the namespace. With ``tls`` it is made with TLS,
    or not at all.
    """

    nqn: str
    address: str
    port: int
    host_nqn: str
    bound_to: str | None = None
    read_only: bool = False
    parameters: dict[str, str] = {}
    tls: bool = False

    @property
    def _options(self) -> str:
        """What is written to /dev/nvme-fabrics."""
        asked = [
            key.typed_as if key.words else f"{key.typed_as}={self.parameters[name]}"
            for name, key in KEYS.items()
            if self.parameters.get(name, "No") != "No"
        ]
        return ",".join(
            (
                "transport=tcp",
                f"traddr={self.address}",
                f"trsvcid={self.port}",
                f"nqn={self.nqn}",
                f"hostnqn={self.host_nqn}",
                f"hostid={host_id(self.host_nqn)}",
                f"keep_alive_tmo={KEEP_ALIVE_S}",
                "reconnect_delay=1",
                f"ctrl_loss_tmo={LOSS_S}",
                *([f"host_iface={self.bound_to}"] if self.bound_to else []),
                *(["tls"] if self.tls else []),
                *asked,
            )
        )

    def acquire(self, host: Host) -> None:
        request = {
            "nqn": self.nqn,
            "options": self._options,
            "within_s": CONNECT_S,
            "read_only": self.read_only,
        }
        what = f"no NVMe/TCP connection to {addresses.at_port(self.address, self.port)}"
        ask(host, step("initiator", "connect", **request), what)

    def undo(self) -> tuple[UndoStep, ...]:
        return (step("initiator", "disconnect", nqn=self.nqn),)


def _reported(host: Host, connection: NvmeController) -> dict[str, Any]:
    asked = step("initiator", "tell", nqn=connection.nqn)
    return reported(host, asked, "the NVMe/TCP connection cannot be read")


def await_disk(host: Host, connection: NvmeController, *, serial: str) -> Disk:
    """The disk of a connection that is up, identified by its subsystem and serial."""
    found = _reported(host, connection)
    sysfs = f"/sys/block/{found['disk']}"
    disk = Disk(
        host=host,
        sysfs=sysfs,
        device=f"/dev/{found['disk']}",
        expected=(
            Expected("state", f"/sys/class/nvme/{found['controller']}/state", "live"),
            Expected("subsystem", f"{sysfs}/device/subsysnqn", connection.nqn),
            Expected("serial number", f"{sysfs}/device/serial", serial),
        ),
    )
    disk.check()
    return disk


def negotiated(host: Host, connection: NvmeController) -> dict[str, str]:
    """What the two ends agreed on, from sysfs and the controller's own data, and the disk's queue.

    ``sqsize`` is one less than the commands that a queue takes. Digests are in no file: the kernel connects
    only if the target agrees to what was asked for (``nvme_tcp_init_connection()``).
    """
    agreed: dict[str, str] = _reported(host, connection)["agreed"]
    digests = {name: connection.parameters.get(name, "No") for name, key in KEYS.items() if key.words}
    # The key of the controller's connections (nvme_tcp_setup_ctrl()); its number differs each time.
    has_key = agreed.pop("tls_key", "") != ""
    if has_key is not connection.tls:
        wanted, found = ("with", "without") if connection.tls else ("without", "with")
        raise CommandFailed(f"a connection {wanted} TLS was expected, found one {found}")
    return {**agreed, **digests, **({"tls": TLS_VERSION} if has_key else {})}
