"""The initiator side: open-iscsi (iscsid(8), iscsiadm(8)) and the disk that a session brings.

The initiator's netlink is not namespaced: sessions live in the first network namespace of a kernel.
open-iscsi keeps its node records under /etc/iscsi; the testbed has put a tmpfs there, so nothing of
ours can survive (``harness.inside``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness import iscsi, programs
from harness.errors import CellInvalid, CommandFailed
from harness.hosts import Host
from harness.undo import Step

CONFIGURATION = Path("/etc/iscsi/iscsid.conf")
SETTLE_DEADLINE_S = 10.0

SESSION_PARAMETERS = (
    "initial_r2t",
    "immediate_data",
    "first_burst_len",
    "max_burst_len",
    "max_outstanding_r2t",
    "data_pdu_in_order",
    "data_seq_in_order",
    "erl",
    "recovery_tmo",
)
CONNECTION_PARAMETERS = ("max_recv_dlength", "max_xmit_dlength", "header_digest", "data_digest")
QUEUE_PARAMETERS = ("device/queue_depth", "queue/scheduler", "queue/max_sectors_kb", "queue/nr_requests")


def configuration(chap_user: str, secret: str) -> str:
    """iscsid.conf of a run: manual start, CHAP, and failures reported in seconds instead of minutes."""
    return "\n".join(
        (
            "node.startup = manual",
            "node.leading_login = No",
            "node.session.auth.authmethod = CHAP",
            f"node.session.auth.username = {chap_user}",
            f"node.session.auth.password = {secret}",
            "node.session.initial_login_retry_max = 1",
            "node.conn[0].timeo.login_timeout = 8",
            "node.conn[0].timeo.logout_timeout = 5",
            "node.session.timeo.replacement_timeout = 10",
            "node.session.err_timeo.abort_timeout = 5",
            "node.session.err_timeo.lu_reset_timeout = 5",
            "",
        )
    )


@contextlib.contextmanager
def iscsid(host: Host, *, initiator_iqn: str, chap_user: str, secret: str, log: Path) -> Iterator[None]:
    """Keep iscsid running, unless the machine runs one already (then that one is used, untouched)."""
    host.write_secret(CONFIGURATION, configuration(chap_user, secret))
    host.write_secret(CONFIGURATION.with_name("initiatorname.iscsi"), f"InitiatorName={initiator_iqn}\n")
    if _iscsid_answers(host):
        yield
        return
    with host.daemon(["iscsid", "--foreground"], log=log, ready=lambda: _iscsid_answers(host), deadline_s=10):
        yield


def _iscsid_answers(host: Host) -> bool:
    (sockets,) = host.read_files(["/proc/net/unix"])
    return "@ISCSIADM_ABSTRACT_NAMESPACE" in sockets


class IscsiSession(msgspec.Struct, frozen=True):
    """A logged-in session to one portal of one target; its node record goes when it ends.

    ``bound_to`` is the network interface that its connection may use alone (open-iscsi's iface,
    ``net_ifacename``); None leaves that to the routing. ``parameters`` is what it asks for
    (``harness.iscsi``).
    """

    iqn: str
    address: str
    port: int
    initiator_iqn: str
    bound_to: str | None = None
    parameters: dict[str, str] = {}

    @property
    def _portal(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def _interface(self) -> str:
        """The name of the session's own iface record, "" for open-iscsi's default."""
        return f"harness-{self.bound_to}-{self.port}" if self.bound_to else ""

    def _node(self, host: Host, *words: str) -> None:
        argv = ["iscsiadm", "--mode", "node", "--targetname", self.iqn, "--portal", self._portal]
        if self._interface:
            argv += ["--interface", self._interface]
        host.run([*argv, *words], timeout_s=40)

    def acquire(self, host: Host) -> None:
        if self.bound_to:
            record = ["iscsiadm", "--mode", "iface", "--interface", self._interface]
            host.run([*record, "--op", "new"])
            host.run([*record, "--op", "update", "--name", "iface.net_ifacename", "--value", self.bound_to])
        self._node(host, "--op", "new")
        if _iscsid_initiator_name(host) != self.initiator_iqn:
            self._node(host, "--op", "update", "--name", "iface.initiatorname", "--value", self.initiator_iqn)
        for name, value in self.parameters.items():
            self._node(host, "--op", "update", "--name", iscsi.KEYS[name].node, "--value", value)
        self._node(host, "--login")

    def undo(self) -> tuple[Step, ...]:
        request = {
            "iqn": self.iqn,
            "portal": self._portal,
            "interface": self._interface,
            "bound_to": self.bound_to or "",
            "initiator_iqn": self.initiator_iqn,
        }
        program = (programs.PYTHON, "-c", programs.source("logout"))
        return (Step(program, input=msgspec.json.encode(request).decode()),)


def _iscsid_initiator_name(host: Host) -> str:
    (text,) = host.read_files([str(CONFIGURATION.with_name("initiatorname.iscsi"))])
    return text.partition("=")[2].strip()


def find_session(host: Host, iqn: str) -> str | None:
    """The kernel's name (``session3``) of the session to ``iqn``, or None."""
    script = 'grep -lFx -- "$1" /sys/class/iscsi_session/*/targetname'
    done = host.run(["sh", "-c", script, "sh", iqn], check=False)
    names = [line.split("/")[-2] for line in done.stdout.splitlines()]
    return names[0] if names else None


@dataclass(frozen=True, kw_only=True)
class RemoteDisk:
    """The block device of a session, as found through sysfs: never by assuming a name."""

    host: Host
    session: str
    sysfs: str
    device: str
    serial: str

    def check(self) -> None:
        """Make sure, just before a job, that the device still is what was logged in to.

        Raises CellInvalid if the session is gone or not LOGGED_IN, another disk has taken the name, or
        something (multipath, LVM, md) has taken hold of it.
        """
        state, disk_serial, here = self.host.read_files(
            [
                f"/sys/class/iscsi_session/{self.session}/state",
                f"{self.sysfs}/device/vpd_pg80",
                f"{self.sysfs}/size",
            ]
        )
        if state.strip() != "LOGGED_IN" or not here:
            raise CellInvalid(
                f"{self.session} was expected to be logged in with {self.device}, "
                f"but is {state.strip() or 'gone'}"
            )
        if self.serial not in disk_serial:
            raise CellInvalid(f"{self.device} was expected to be the disk {self.serial}, but is another")
        holders = self.host.run(["ls", f"{self.sysfs}/holders"]).stdout.split()
        if holders:
            raise CellInvalid(
                f"{self.device} was expected to be free, but is held by {', '.join(holders)}",
                hint="keep multipathd and LVM away from disks with vendor LIO-ORG",
            )


def await_disk(host: Host, session: IscsiSession, *, serial: str) -> RemoteDisk:
    """Wait until the kernel has made LUN 0 of the session a disk, and identify it by its serial."""
    name = find_session(host, session.iqn)
    if name is None:
        raise CommandFailed(f"iscsiadm logged in to {session.iqn}, but the kernel has no such session")
    # The name ends in :0 for LUN 0; an unmatched pattern stays as it is, hence the test.
    script = (
        'for disk in /sys/class/iscsi_session/"$1"/device/target*/*:0/block/*; do '
        'test -e "$disk/size" && echo "$disk"; done'
    )
    end = time.monotonic() + SETTLE_DEADLINE_S
    while True:
        found = host.run(["sh", "-c", script, "sh", name], check=False).stdout.split()
        if found:
            break
        if time.monotonic() > end:
            raise CommandFailed(
                f"LUN 0 of {session.iqn} did not become a disk within {SETTLE_DEADLINE_S:g} s"
            )
        time.sleep(0.02)
    disk = RemoteDisk(
        host=host, session=name, sysfs=found[0], device=f"/dev/{found[0].rsplit('/', 1)[1]}", serial=serial
    )
    disk.check()
    return disk


def negotiated(disk: RemoteDisk) -> dict[str, str]:
    """What the two ends agreed on (RFC 7143, section 13), read back from sysfs, and the disk's queue."""
    number = disk.session.removeprefix("session")
    names = {
        **{name: f"/sys/class/iscsi_session/{disk.session}/{name}" for name in SESSION_PARAMETERS},
        **{
            name: f"/sys/class/iscsi_connection/connection{number}:0/{name}" for name in CONNECTION_PARAMETERS
        },
        **{name.rpartition("/")[2]: f"{disk.sysfs}/{name}" for name in QUEUE_PARAMETERS},
    }
    values = disk.host.read_files(list(names.values()))
    return {name: value.strip() for name, value in zip(names, values, strict=True) if value.strip()}
