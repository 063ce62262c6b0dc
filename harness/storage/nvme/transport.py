"""NVMe/TCP (NVM Express TCP Transport Specification) as a transport: the kernel's nvmet, and the disk of its
initiator.

Two small programs do it on the hosts, under the distribution's Python: ``programs/target.py`` makes exports
in configfs, ``programs/initiator.py`` connects through /dev/nvme-fabrics. Neither nvmetcli nor nvme-cli is
needed. Only objects whose names carry the run's id are made and removed. Neither side has anything that all
columns share.

With TLS (NVMe/TCP Transport Specification 1.0c, section 3.6.1.1; Linux 6.7) both ends find a pre-shared key
in their kernel's keyring `.nvme` (``programs/key.py``), by an identity that is made of the names of host and
subsystem. The kernel hands each new connection to `tlshd` of ktls-utils, which negotiates TLS 1.3; from then
on the kernel itself encrypts (kTLS).
"""

from __future__ import annotations

import contextlib
import functools
import re
import secrets
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from harness.hosts import Host
from harness.hosts.footprint import Leftover
from harness.model import addresses, kinds
from harness.model.errors import CommandFailed, RequirementError
from harness.storage import configfs, requests
from harness.storage.configfs import CONFIGFS
from harness.storage.requests import Made
from harness.storage.transport import (
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

DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
"""The name of every discovery controller (NVM Express Base Specification 2.0, section 4.5)."""

NAME = "nvme-tcp"

PORT = kinds.TRANSPORTS[NAME].port

KEYS = kinds.TRANSPORTS[NAME].parameters
"""What an initiator may ask for (drivers/nvme/host/fabrics.c). All else is up to the
kernel: a queue for each processor, 128 commands each, no digests, 16 KiB with a command. The target's side is
``inline_data_bytes``: up to how many bytes of a write go with its command, and need no R2T (ICDOFF and
IOCCSZ)."""

CONNECT_S = 8
"""How long the target is waited for."""

TIMES_S = {"keep_alive_tmo": 5, "reconnect_delay": 1, "ctrl_loss_tmo": 10}
"""A controller that has lost its target tries to reach it for so long, and then its I/O fails."""

TLS_VERSION = "1.3"
"""The only one: NVMe/TCP Transport Specification 1.0c, section 3.6.1.1."""

SECRET_BYTES = 32
"""As long as the output of SHA-256, to which the identity commits the key."""

FIRST_PORT = 0x4800
"""Numbers of nvmet's ports below it are somebody else's to give (``programs/target.py``)."""

SUBSYSTEMS = f"{CONFIGFS}/nvmet/subsystems"

step = functools.partial(requests.step, __package__)


def nqn(tag: str, name: str) -> str:
    """An NVMe qualified name (NVM Express Base Specification 2.0, section 4.5)."""
    return f"nqn.2026-11.net.storage-harness:{tag}.{name}"


@dataclass(frozen=True)
class NvmeSides(Shared):
    """Both sides of a run's NVMe/TCP."""

    nonce: str
    _secrets: dict[str, str] = field(default_factory=dict, repr=False)
    """Of each export's keys, by its name."""

    def nqn(self, wanted: Export) -> str:
        return (
            self.sides.black_box.name
            if self.sides.black_box is not None
            else nqn(self.sides.tag, wanted.name)
        )

    def _names(self, wanted: Export) -> dict[str, object]:
        """What identifies a connection. Of somebody else's subsystem the user may have one as well: ours is
        known by the run's own name of the host."""
        if (black_box := self.sides.black_box) is None:
            return {"nqn": self.nqn(wanted)}
        host_nqn = self.host_nqn(wanted.number)
        return {"nqn": black_box.name, "host_nqn": host_nqn, "namespace": black_box.lun}

    def discover(self, wanted: Export) -> dict[str, list[str]]:
        """The subsystems that the portal's discovery controller lists."""
        ours = replace(wanted, parameters={})
        options = self.options(ours).replace(f"nqn={self.nqn(wanted)},host", f"nqn={DISCOVERY},host")
        words = [word for word in options.split(",") if word.partition("=")[0] not in TIMES_S]
        names = {"nqn": DISCOVERY, "host_nqn": self.host_nqn(wanted.number)}
        request = step("initiator", "discover", **names, options=",".join(words), within_s=CONNECT_S)
        host, what = self.sides.initiators[wanted.number], f"no subsystems are shown at {wanted.address}"
        found: dict[str, list[str]] = requests.reported(host, request, what)["targets"]
        return found

    def host_nqn(self, number: int) -> str:
        """Not to be guessed: it is all that a subsystem asks of who connects."""
        return nqn(self.sides.tag, f"initiator{number + 1}.{self.nonce}")

    def _keys(self, wanted: Export) -> tuple[Made, ...]:
        """The key of one session with TLS, in one kernel's keyring. Both ends may have the same kernel: it is
        the same key."""
        if not wanted.tls:
            return ()
        secret = self._secrets[wanted.name]
        # Version 0, a retained key (R), SHA-256 (01); the same source.
        identity = f"NVMe0R01 {self.host_nqn(wanted.number)} {self.nqn(wanted)}"
        make = step("key", "insert", identity=identity, secret=secret)
        refused = "the key of a TLS session could not be put into the keyring"
        return (Made(identity, "SessionKey", make, step("key", "remove", identity=identity), refused),)

    def exports(self, wanted: Export) -> tuple[Made, ...]:
        """A subsystem with one namespace, at one portal, for one host; its serial is the disk's.

        With TLS its portal refuses every connection that does not begin with TLS 1.3.
        """
        names = {
            "nqn": self.nqn(wanted),
            "address": wanted.address,
            "port": wanted.port,
            "host_nqn": self.host_nqn(wanted.number),
        }
        self._secrets[wanted.name] = secrets.token_hex(SECRET_BYTES)
        make = step(
            "target",
            "create",
            **names,
            serial=wanted.lun.serial,
            # By which an initiator knows the disk again after the target has booted: nvmet would draw
            # another.
            uuid=str(uuid.uuid4()),
            path=wanted.lun.path,
            tls=wanted.tls,
            inline_data_bytes=wanted.parameters.get("inline_data_bytes"),
        )
        remove = step("target", "delete", **names)
        made = Made(self.nqn(wanted), "Subsystem", make, remove, "nvmet refused")
        return (*self._keys(wanted), made)

    def outages(self, wanted: Export) -> dict[str, Made]:
        """A port without its subsystem ends that one's controllers, and does not listen. A subsystem that
        allows no host takes no new ones."""
        names = {"nqn": self.nqn(wanted), "address": wanted.address, "port": wanted.port}
        names["host_nqn"] = self.host_nqn(wanted.number)

        def made(what: str, thing: str) -> Made:
            make, remove = (step("target", f"{do}-{thing}", **names) for do in ("create", "delete"))
            return Made(self.nqn(wanted), what, make, remove, "nvmet refused")

        return {
            "target-down": made("TargetOutage", "outage"),
            "login-refused": made("LoginRefusal", "refusal"),
        }

    def connections(self, wanted: Export) -> tuple[Made | UdevRule, ...]:
        """A controller for a subsystem, with the disk that it brings: with TLS, or not at all. The target is
        told to refuse writes where none are wanted."""
        name = self.nqn(wanted)
        names = self._names(wanted)
        make = step(
            "initiator",
            "connect",
            **names,
            options=self.options(wanted),
            within_s=CONNECT_S,
            read_only=wanted.read_only,
        )
        remove = step("initiator", "disconnect", **names)
        refused = f"no NVMe/TCP connection to {addresses.at_port(wanted.address, wanted.port)}"
        rule = self.sides.udev_rule(
            f"harness-{self.sides.tag}-nvme-{wanted.name}", f'ATTRS{{subsysnqn}}=="{name}"'
        )
        return (rule, *self._keys(wanted), Made(name, "NvmeController", make, remove, refused))

    def options(self, wanted: Export) -> str:
        """What is written to /dev/nvme-fabrics."""
        host_nqn = self.host_nqn(wanted.number)
        return ",".join(
            (
                "transport=tcp",
                f"traddr={wanted.address}",
                f"trsvcid={wanted.port}",
                f"nqn={self.nqn(wanted)}",
                f"hostnqn={host_nqn}",
                # The kernel wants the same pair each time.
                f"hostid={uuid.uuid5(uuid.NAMESPACE_URL, host_nqn)}",
                *(f"{name}={value}" for name, value in TIMES_S.items() if name not in wanted.parameters),
                *([f"host_iface={wanted.bound_to}"] if wanted.bound_to else []),
                *(["tls"] if wanted.tls else []),
                *(
                    key.typed_as if key.words else f"{key.typed_as}={wanted.parameters[name]}"
                    for name, key in KEYS.items()
                    if wanted.parameters.get(name, "No") != "No"
                ),
            )
        )

    def session(self, host: Host, wanted: Export) -> Session:
        """Its disk is identified by its subsystem and serial."""
        name = self.nqn(wanted)
        asked = step("initiator", "tell", **self._names(wanted))
        found = requests.reported(host, asked, "the NVMe/TCP connection cannot be read")
        sysfs = f"/sys/block/{found['disk']}"
        expected: tuple[Expected, ...] = (
            Expected("state", f"/sys/class/nvme/{found['controller']}/state", "live"),
            Expected("subsystem", f"{sysfs}/device/subsysnqn", name),
            Expected("serial number", f"{sysfs}/device/serial", wanted.lun.serial),
        )
        if (black_box := self.sides.black_box) is not None:
            expected = (*expected[:2], *unwritten(sysfs, black_box))
        agreed = negotiated(found["agreed"], wanted)
        return Session(disk=Disk(host=host, sysfs=sysfs, expected=expected), agreed=agreed)


def negotiated(reported: Mapping[str, str], wanted: Export) -> dict[str, str]:
    """What the two ends agreed on, from sysfs and the controller's own data, and the disk's queue.

    ``sqsize`` is one less than the commands that a queue takes. Digests are in no file: the kernel connects
    only if the target agrees to what was asked for (``nvme_tcp_init_connection()``). RequirementError if it
    is less than was asked for, CommandFailed if TLS is there without having been asked for, or the other way
    round.
    """
    agreed = dict(reported)
    # The key of the controller's connections (nvme_tcp_setup_ctrl()); its number differs each time.
    has_key = agreed.pop("tls_key", "") != ""
    if has_key is not wanted.tls:
        asked, found = ("with", "without") if wanted.tls else ("without", "with")
        raise CommandFailed(f"expected a connection {asked} TLS, found one {found}")
    # The kernel counts the admin queue as well.
    got = {"queues": int(agreed["queue_count"]) - 1, "queue_size": int(agreed["sqsize"]) + 1}
    for name, value in wanted.parameters.items():
        if name in got and got[name] != int(value):
            raise RequirementError(
                f"expected {name}={value}, but the two ends agreed on {got[name]}",
                hint="leave it out, or ask for a value that both ends accept",
            )
    digests = {name: wanted.parameters.get(name, "No") for name, key in KEYS.items() if key.words}
    return {**agreed, **digests, **({"tls": TLS_VERSION} if has_key else {})}


@contextlib.contextmanager
def shared(sides: Sides) -> Iterator[NvmeSides]:
    """Names that no other run knows."""
    if sides.luns:
        configfs.mount(sides.target, "nvmet")
    yield NvmeSides(sides, nonce=secrets.token_hex(6))


OFFERED = (
    Transport(
        name=NAME,
        port=PORT,
        shared=shared,
        leaves=(
            Leftover(
                what="the NVMe/TCP connection to",
                names='cat /sys/class/nvme/*/subsysnqn 2>/dev/null | grep -F ":$1."',
                where="/sys/class/nvme/*",
            ),
            Leftover(
                what="the NVMe subsystem",
                names=f'ls {SUBSYSTEMS} 2>/dev/null | grep -F ":$1."',
                where=f"{SUBSYSTEMS}/*",
            ),
            Leftover(
                what="the entry of the NVMe host",
                names=f'ls {CONFIGFS}/nvmet/hosts 2>/dev/null | grep -F ":$1."',
                where=f"{CONFIGFS}/nvmet/hosts/*",
            ),
            Leftover(
                # Ports have numbers for names. One of ours that leads to nothing is some run's.
                what="the port of nvmet",
                names=f"for port in {CONFIGFS}/nvmet/ports/*; do "
                f'test -d "$port" && test "${{port##*/}}" -ge {FIRST_PORT} && '
                'test -z "$(ls "$port/subsystems")" && echo "${port##*/}"; done',
            ),
        ),
        troubles=(
            # nvme_tcp_error_recovery(), nvme_tcp_reconnect_or_remove(), nvme_tcp_timeout() and others of
            # drivers/nvme/host/tcp.c; a disk on the machine's own bus says none of it.
            (
                re.compile(
                    r"nvme nvme\d+: (starting error recovery|Reconnecting in .*|Removing controller.*"
                    r"|queue \d+: timeout.*|.*failed to send request.*|.*receive failed.*)"
                ),
                "the NVMe/TCP connection dropped",
            ),
            # nvmet_keep_alive_timer(), nvmet_ctrl_fatal_error(), nvmet_tcp_fatal_error() of
            # drivers/nvme/target
            (re.compile(r"nvmet: ctrl \d+ (keep-alive timer|fatal error).*"), "nvmet error"),
            (re.compile(r"nvmet_tcp: queue \d+: .*"), "nvmet error"),
        ),
        lists=("/sys/class/nvme", SUBSYSTEMS),
        exported=(
            Exported(
                devices=f"{SUBSYSTEMS}/*/namespaces/*/device_path",
                name=(-4, -3),
                as_what="over NVMe by the subsystem",
                enabled="enable",
            ),
        ),
        initiator_modules=("nvme_fabrics", "nvme_tcp"),
        target_modules=("nvmet", "nvmet_tcp"),
        export_title="an NVMe/TCP subsystem",
        session_title="an NVMe/TCP connection",
        server="nvmet",
    ),
)
