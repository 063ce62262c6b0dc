"""NVMe/TCP (NVM Express TCP Transport Specification): Linux's target nvmet, and the disk of its initiator.

Two small programs do it on the hosts, under the distribution's Python: ``programs/nvmet.py`` makes exports in
configfs, ``programs/nvme.py`` connects through /dev/nvme-fabrics. Neither nvmetcli nor nvme-cli is needed.
Only objects whose names carry the run's id are made and removed.

A killed run leaves subsystems (with their namespaces), ports from ``nvmet.FIRST_PORT`` on, and hosts on the
target, and controllers with their disks on the initiator. All but the ports have names with ``PREFIX`` and
the run's id.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.analysis import theory
from harness.analysis.theory import Burst
from harness.hosts import Host, programs
from harness.hosts.undo import Step
from harness.model import End
from harness.model.errors import CellInvalid, CommandFailed

PORT = 4420
"""IANA's for NVMe over fabrics."""

PREFIX = "nqn.2026-11.net.storage-harness"

MODULES = {"target": ("nvmet", "nvmet_tcp"), "initiator": ("nvme_fabrics", "nvme_tcp")}

CONNECT_S = 8
"""How long the target is waited for."""

LOSS_S = 10
"""How long a controller that has lost its target tries to reach it, before its I/O fails."""

KEEP_ALIVE_S = 5

TARGET_PARAMETERS = ("inline_data_bytes",)
"""Up to how many bytes of a write go with its command, and need no R2T (ICDOFF and IOCCSZ)."""

NUMBERS = {"queues": "nr_io_queues", "queue_size": "queue_size"}
FLAGS = {"header_digest": "hdr_digest", "data_digest": "data_digest"}
"""What an initiator may ask for, with the kernel's words (drivers/nvme/host/fabrics.c). All else is up to the
kernel: a queue for each processor, 128 commands each, no digests, 16 KiB with a command."""


def nqn(tag: str, name: str) -> str:
    """An NVMe qualified name (NVM Express Base Specification 2.0, section 4.5)."""
    return f"{PREFIX}:{tag}.{name}"


def host_id(host_nqn: str) -> str:
    """The host identifier of a host's name: the kernel wants the same pair each time."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, host_nqn))


def _step(program: str, do: str, **request: object) -> Step:
    text = msgspec.json.encode({"do": do, **request}).decode()
    return Step((programs.PYTHON, "-I", "-S", "-c", programs.source(__package__, program)), input=text)


def _ask(host: Host, step: Step, what: str, *, timeout_s: float = 60) -> str:
    done = host.run(step.argv, input=step.input, timeout_s=timeout_s, check=False)
    if done.status != 0:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CommandFailed(f"{what}: {words[-1]}", hint="the kernel log of both hosts says more")
    return done.stdout


class Export(msgspec.Struct, frozen=True):
    """A subsystem with one namespace, at one portal, for one host.

    ``serial`` is the subsystem's, by which the initiator knows the disk. ``path`` is a block device or a
    file.
    """

    nqn: str
    serial: str
    path: str
    address: str
    port: int
    host_nqn: str
    parameters: dict[str, str] = {}

    def acquire(self, host: Host) -> None:
        request = msgspec.to_builtins(self)
        parameters = request.pop("parameters")
        inline = {name: parameters.get(name) for name in TARGET_PARAMETERS}
        _ask(host, _step("nvmet", "create", **request, **inline), "nvmet refused")

    def undo(self) -> tuple[Step, ...]:
        return (
            _step(
                "nvmet",
                "delete",
                nqn=self.nqn,
                address=self.address,
                port=self.port,
                host_nqn=self.host_nqn,
            ),
        )


class Connection(msgspec.Struct, frozen=True):
    """An initiator's controller for a subsystem, with the disk that it brings.

    ``bound_to`` is the network interface that its connections may use alone; None leaves that to the routing.
    With ``read_only`` the target is told to refuse writes to the namespace.
    """

    nqn: str
    address: str
    port: int
    host_nqn: str
    bound_to: str | None = None
    read_only: bool = False
    parameters: dict[str, str] = {}

    @property
    def _options(self) -> str:
        """What /dev/nvme-fabrics is told."""
        asked = [f"{NUMBERS[name]}={value}" for name, value in self.parameters.items() if name in NUMBERS]
        asked += [word for name, word in FLAGS.items() if self.parameters.get(name) == "Yes"]
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
        what = f"no NVMe/TCP connection to {self.address}:{self.port}"
        _ask(host, _step("nvme", "connect", **request), what)

    def undo(self) -> tuple[Step, ...]:
        return (_step("nvme", "disconnect", nqn=self.nqn),)


@dataclass(frozen=True, kw_only=True)
class NvmeDisk:
    """The block device of a connection, as found through sysfs: never by assuming a name."""

    host: Host
    controller: str
    sysfs: str
    device: str
    nqn: str
    serial: str

    def check(self) -> None:
        """Make sure, just before a job, that the device still is what was connected to.

        Raises CellInvalid if the controller is gone or not live, another disk has taken the name, or
        something (multipath, LVM, md) has taken hold of it.
        """
        state, nqn, serial, here = (
            text.strip()
            for text in self.host.read_files(
                [
                    f"/sys/class/nvme/{self.controller}/state",
                    f"{self.sysfs}/device/subsysnqn",
                    f"{self.sysfs}/device/serial",
                    f"{self.sysfs}/size",
                ]
            )
        )
        if state != "live" or not here:
            raise CellInvalid(
                f"{self.controller} was expected to be live with {self.device}, but is {state or 'gone'}"
            )
        if (nqn, serial) != (self.nqn, self.serial):
            raise CellInvalid(
                f"{self.device} was expected to be the disk {self.serial} of {self.nqn}, "
                f"but is {serial} of {nqn}"
            )
        holders = self.host.run(["ls", f"{self.sysfs}/holders"]).stdout.split()
        if holders:
            raise CellInvalid(f"{self.device} was expected to be free, but is held by {', '.join(holders)}")


def _told(host: Host, connection: Connection) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.json.decode(
        _ask(host, _step("nvme", "tell", nqn=connection.nqn), f"nothing is known of {connection.nqn}")
    )
    return told


def await_disk(host: Host, connection: Connection, *, serial: str) -> NvmeDisk:
    """The disk of a connection that is up, identified by its subsystem and serial."""
    told = _told(host, connection)
    disk = NvmeDisk(
        host=host,
        controller=told["controller"],
        sysfs=f"/sys/block/{told['disk']}",
        device=f"/dev/{told['disk']}",
        nqn=connection.nqn,
        serial=serial,
    )
    disk.check()
    return disk


def negotiated(host: Host, connection: Connection) -> dict[str, str]:
    """What the two ends agreed on, from sysfs and the controller's own data, and the disk's queue.

    ``sqsize`` is one less than the commands that a queue takes. Digests are in no file: the kernel connects
    only if the target agrees to what was asked for (``nvme_tcp_init_connection()``).
    """
    agreed: dict[str, str] = _told(host, connection)["agreed"]
    digests = {name: connection.parameters.get(name, "No") for name in FLAGS}
    return {**agreed, **digests}


def require_agreed(asked: Mapping[str, str], agreed: Mapping[str, str]) -> None:
    """CommandFailed if an initiator did not get what it asked for: targets may grant less."""
    # The kernel counts the admin queue as well.
    got = {"queues": int(agreed["queue_count"]) - 1, "queue_size": int(agreed["sqsize"]) + 1}
    for name, value in asked.items():
        if name in got and got[name] != int(value):
            raise CommandFailed(f"{name} of {value} was asked for, but {got[name]} was agreed on")


# One I/O

CAPSULE_BYTES = 8 + 64
"""NVMe/TCP Transport Specification 1.0, section 3.6.2.1: of a command capsule, a header and the command."""

HEADER_BYTES = 24
"""The same, sections 3.6.2.2 to 3.6.2.5: of a response capsule, of an R2T, and before data either way."""


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """What the ends agreed on and send: Linux sends all that one end has to say at once (MSG_MORE).

    Without ``disable_sqflow`` each read's data is followed by a response capsule. Digests are off.
    ``in_capsule_bytes`` and ``window_bytes`` are as in ``negotiated`` and ``theory.Dialogue``.
    """

    in_capsule_bytes: int
    window_bytes: int

    def bursts(self, wire: theory.Wire, direction: theory.Direction, block_bytes: int) -> list[Burst]:
        def sent(by: End, length: int, *, after_disk: bool = False) -> Burst:
            return theory.sent(wire, self, by, [(length, False)], after_disk=after_disk)

        if direction == "read":
            answer = HEADER_BYTES + block_bytes + HEADER_BYTES
            return [sent("initiator", CAPSULE_BYTES), sent("target", answer, after_disk=True)]
        done = sent("target", HEADER_BYTES, after_disk=True)
        if block_bytes <= self.in_capsule_bytes:
            return [sent("initiator", CAPSULE_BYTES + block_bytes), done]
        return [
            sent("initiator", CAPSULE_BYTES),
            sent("target", HEADER_BYTES),
            sent("initiator", HEADER_BYTES + block_bytes),
            done,
        ]
