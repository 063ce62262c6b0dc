"""The initiator's side: open-iscsi (iscsid(8), iscsiadm(8)) and the disk of a session.

The initiator's netlink has no namespaces: sessions live in the first network namespace of a kernel.
open-iscsi keeps its node records in ``iscsi.RECORDS``. The testbed has put a tmpfs there, so nothing of the
run's can survive (``harness.runs.executor``).
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.hosts import Host, programs
from harness.hosts.footprint import Leftover, Trouble
from harness.hosts.journal import Journal
from harness.hosts.runner import Completed
from harness.hosts.undo import UndoStep
from harness.model import addresses
from harness.model.errors import CommandFailed
from harness.storage.iscsi import KEYS
from harness.storage.transport import Disk, Expected, NoAnswer

MODULES = ("iscsi_tcp", "sd_mod")
LEAVES = (
    Leftover(
        what="the iSCSI session to",
        names='cat /sys/class/iscsi_session/*/targetname 2>/dev/null | grep -F ":$1."',
        where="/sys/class/iscsi_session/*",
    ),
)
TROUBLES: tuple[Trouble, ...] = (
    (re.compile(r"detected conn error.*|session recovery timed out.*"), "the iSCSI session dropped"),
)

CONFIGURATION = Path("/etc/iscsi/iscsid.conf")
SESSIONS = "/sys/class/iscsi_session"
SETTLE_DEADLINE_S = 10.0
LOGIN_S = 8
"""How long iscsid waits for the portal."""

NOT_REACHED = (4, 8)
"""iscsiadm(8), exit status: no connection to the portal, or none in time."""

EXISTS = 15
"""iscsiadm(8), exit status: such a record exists (ISCSI_ERR_SESS_EXISTS of include/iscsi_err.h)."""

START_DEADLINE_S = 60.0
"""For a unit that waits for others, including the network's."""

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


WITH_CHAP = "node.session.auth.authmethod = CHAP"
"""In the configuration, and in each record that was made from it."""


def configuration(chap_user: str, secret: str) -> str:
    """iscsid.conf of a run: manual start, CHAP, and failures reported after seconds instead of minutes."""
    return "\n".join(
        (
            "node.startup = manual",
            "node.leading_login = No",
            WITH_CHAP,
            f"node.session.auth.username = {chap_user}",
            f"node.session.auth.password = {secret}",
            "node.session.initial_login_retry_max = 1",
            f"node.conn[0].timeo.login_timeout = {LOGIN_S}",
            "node.conn[0].timeo.logout_timeout = 5",
            "node.session.timeo.replacement_timeout = 10",
            "node.session.err_timeo.abort_timeout = 5",
            "node.session.err_timeo.lu_reset_timeout = 5",
            "",
        )
    )


SOCKET = "@ISCSIADM_ABSTRACT_NAMESPACE"
UNITS = ("iscsid.socket", "iscsid.service")
BUS = {"SYSTEMCTL_FORCE_BUS": "1"}
"""For systemctl(1), which agents can use over D-Bus alone: with systemd's own socket it gives up if it cannot
see process 1, as in a process namespace (``getpeercred()`` in src/basic/socket-util.c)."""

SYSTEMD = "/run/systemd"
"""It has the folder ``system`` if systemd runs (sd_booted(3))."""

STATES = ("sh", "-c", 'exec systemctl show --property=Id,LoadState,ActiveState "$@"', "sh")
"""systemctl(1) fails if there is no D-Bus; or it does not exist."""

RUNS = "grep -qsx iscsid /proc/[0-9]*/comm"
"""Whether an iscsid runs. Its socket does not tell, for systemd may listen there and start one when asked."""

UNLESS_NEEDED = """
udevadm settle --timeout=10
for session in /sys/class/iscsi_session/session*; do test -e "$session" && exit; done
"""
"""Not while there is a session: the run's sessions have ended by now, so it is somebody else's who has come
to need iscsid. Nor before udev has processed the run's last disk, for which it would start the unit again."""

STOP = f"""
export SYSTEMCTL_FORCE_BUS=1
{UNLESS_NEEDED}
systemctl stop --quiet "$@" || exit
systemctl reset-failed --quiet "$@" || true
"""

ASK_TO_END = f"""
{UNLESS_NEEDED}
{RUNS} || exit 0
iscsiadm --killiscsid 0
while {RUNS}; do sleep 0.1; done
"""


class IscsidService(msgspec.Struct, frozen=True):
    """The machine's own iscsid, started by systemd, for a machine whose units were not active before.

    Not a second daemon: iscsiadm reaches the one behind iscsid.socket, and udev starts
    iscsid.service as soon as there is an iSCSI disk (70-open-iscsi.rules), which fails where there is another
    daemon.
    """

    unit: str
    inactive: tuple[str, ...]

    def acquire(self, host: Host) -> None:
        host.run(["systemctl", "start", self.unit], timeout_s=START_DEADLINE_S, env=BUS)

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("sh", "-c", STOP, "sh", *self.inactive)),)


class WokenIscsid(msgspec.Struct, frozen=True):
    """The machine's own iscsid where systemd cannot be asked: the first request to its socket starts it."""

    socket: str

    def acquire(self, host: Host) -> None:
        """Nothing to do: who makes a session's record waits for its answer."""

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("sh", "-c", ASK_TO_END)),)


@contextlib.contextmanager
def iscsid(
    journal: Journal, host: Host, *, initiator_iqn: str, chap_user: str, secret: str, log: Path
) -> Iterator[None]:
    """Make sure that an iscsid answers: the machine's, which is left as it was found, or one of the run's
    own."""
    host.write_secret(CONFIGURATION, configuration(chap_user, secret))
    host.write_secret(CONFIGURATION.with_name("initiatorname.iscsi"), f"InitiatorName={initiator_iqn}\n")
    with contextlib.ExitStack() as stack:
        service = _service(host)
        if service is not None:
            if service.unit in service.inactive:
                stack.enter_context(journal.hold(host, service))
        elif not _somebody_listens(host):
            argv = ["iscsid", "--foreground"]
            ready = functools.partial(_somebody_listens, host)
            stack.enter_context(host.daemon(argv, log=log, ready=ready, deadline_s=10))
        elif host.run(["sh", "-c", RUNS], check=False).status != 0:
            stack.enter_context(journal.hold(host, WokenIscsid(SOCKET)))
        yield


def _service(host: Host) -> IscsidService | None:
    """The machine's iscsid and the parts of it that are not active now; None if systemd does not know it, or
    cannot be asked."""
    try:
        runs = "system" in host.list_folder(SYSTEMD)
    except CommandFailed:
        runs = False
    if not runs:
        return None
    said = host.run([*STATES, *UNITS], check=False, env=BUS).stdout
    units = [dict(line.split("=", 1) for line in unit.splitlines()) for unit in said.split("\n\n")]
    states = {unit["Id"]: unit["ActiveState"] for unit in units if unit.get("LoadState") == "loaded"}
    if UNITS[1] not in states:
        return None
    return IscsidService(
        UNITS[1], tuple(unit for unit in UNITS if states.get(unit) in ("inactive", "failed"))
    )


def _somebody_listens(host: Host) -> bool:
    (sockets,) = host.read_files(["/proc/net/unix"])
    return SOCKET in sockets


class IscsiSession(msgspec.Struct, frozen=True):
    """A session that is logged in to one portal of one target; its records are removed when it ends.

    Its own iface record names the initiator. The iscsid that logs in may be the machine's, which uses the
    machine's name if the record has none (``__session_create`` in open-iscsi's usr/initiator.c). The record
    also has CHAP and timeouts. ``bound_to`` is the only network interface that its connection may use; None
    leaves that to the routing. ``parameters`` is what it asks for (``harness.storage.iscsi``).
    """

    iqn: str
    address: str
    port: int
    initiator_iqn: str
    bound_to: str | None = None
    parameters: dict[str, str] = {}

    @property
    def _portal(self) -> str:
        return addresses.at_port(self.address, self.port)

    @property
    def _interface(self) -> str:
        """The name of the session's own iface record: no two sessions of a host have the same portal."""
        # It becomes a file's name and part of others' words, where a colon would mean something.
        return f"harness-{self.address.replace(':', '-')}-{self.port}"

    def _node(self, host: Host, *words: str, check: bool = True) -> Completed:
        argv = ["iscsiadm", "--mode", "node", "--targetname", self.iqn, "--portal", self._portal]
        return host.run([*argv, "--interface", self._interface, *words], timeout_s=40, check=check)

    def acquire(self, host: Host) -> None:
        names = {"iface.initiatorname": self.initiator_iqn}
        if self.bound_to:
            names["iface.net_ifacename"] = self.bound_to
        words = [word for name_and_value in names.items() for word in name_and_value]
        host.run(["unshare", "--mount", "sh", "-euc", MAKE_IFACE, "sh", self._interface, *words])
        self._make_record(host)
        for name, value in self.parameters.items():
            self._node(host, "--op", "update", "--name", KEYS[name].typed_as, "--value", value)
        done = self._node(host, "--login", check=False)
        if done.status in NOT_REACHED:
            raise NoAnswer(f"expected the portal {self._portal} to answer within {LOGIN_S} s, but it did not")
        done.require_success()

    def _make_record(self, host: Host) -> None:
        """Make the node record from the run's iscsid.conf, whose secret is in no command line then.

        iscsiadm(8) asks iscsid where that file is, and takes its own defaults, without CHAP, if it is not
        told within a second (``get_config_file()`` in open-iscsi's usr/iscsiadm.c).
        """
        end = time.monotonic() + START_DEADLINE_S
        while True:
            self._node(host, "--op", "new")
            if WITH_CHAP in self._node(host).stdout:
                return
            if time.monotonic() > end:
                raise CommandFailed(
                    f"expected iscsid to answer within {START_DEADLINE_S:g} s, but it did not",
                    hint="`systemctl status iscsid` there may say why",
                )
            self._node(host, "--op", "delete")
            time.sleep(0.1)

    def undo(self) -> tuple[UndoStep, ...]:
        request = {
            "iqn": self.iqn,
            "portal": self._portal,
            "interface": self._interface,
            "bound_to": self.bound_to or "",
            "initiator_iqn": self.initiator_iqn,
        }
        program = (programs.PYTHON, "-I", "-S", "-c", programs.source(__package__, "logout"))
        return (UndoStep(program, input=msgspec.json.encode(request).decode()),)


MAKE_IFACE = f"""
for class in iscsi_host iscsi_session; do
    for any in "/sys/class/$class"/*; do
        test ! -e "$any" || mount -t tmpfs none "/sys/class/$class" 2>/dev/null || true
        break
    done
done
interface=$1
shift
iscsiadm --mode iface --interface "$interface" --op new || test $? = {EXISTS}
while test $# != 0; do
    iscsiadm --mode iface --interface "$interface" --op update --name "$1" --value "$2"
    shift 2
done
"""
"""For sh(1), in a mount namespace of its own: makes an iface record, which has nothing to do with sessions.
iscsiadm(8) would read all that the kernel says of each one's host, in case that is an adapter with records of
its own (iface_setup_host_bindings() in open-iscsi's usr/iface.c): in the lab, with 32 sessions, that took
2.2 s instead of 0.3. The record exists if an earlier cell's session could not be ended in time. Arguments:
its name, then names and values of what it says."""


def find_session(host: Host, iqn: str) -> str | None:
    """The kernel's name (``session3``) of the session to ``iqn``, or None."""
    names = host.list_folder(SESSIONS)
    targets = host.read_files([f"{SESSIONS}/{name}/targetname" for name in names])
    return next((name for name, said in zip(names, targets, strict=True) if said.strip() == iqn), None)


def await_disk(host: Host, session: IscsiSession, *, serial: str) -> tuple[str, Disk]:
    """Wait until the kernel has made LUN 0 of the session a disk, and identify it by its serial number; the
    kernel's name of the session with it.

    CommandFailed if it does not, or if the session is not the one that was asked for.
    """
    name = find_session(host, session.iqn)
    if name is None:
        raise CommandFailed(f"iscsiadm logged in to {session.iqn}, but the kernel has no such session")
    (said,) = host.read_files([f"{SESSIONS}/{name}/initiatorname"])
    if said.strip() != session.initiator_iqn:
        raise CommandFailed(
            f"expected {name} to be {session.initiator_iqn}'s, found {said.strip() or 'no name'}"
        )
    end = time.monotonic() + SETTLE_DEADLINE_S
    while not (found := _disks(host, f"{SESSIONS}/{name}/device")):
        if time.monotonic() > end:
            raise CommandFailed(
                f"LUN 0 of {session.iqn} did not become a disk within {SETTLE_DEADLINE_S:g} s"
            )
        time.sleep(0.02)
    sysfs = found[0]
    disk = Disk(
        host=host,
        sysfs=sysfs,
        device=f"/dev/{sysfs.rpartition('/')[2]}",
        expected=(
            Expected("session state", f"{SESSIONS}/{name}/state", "LOGGED_IN"),
            Expected("serial number", f"{sysfs}/device/vpd_pg80", serial, is_part=True),
        ),
    )
    disk.check()
    return name, disk


LIST_DISKS = 'ls -d "$0"/target*/*:0/block/*/queue'
"""For sh(1). The name of LUN 0 ends in :0. The kernel makes ``queue`` after all that is read of a disk here
(device_add_disk())."""


def _disks(host: Host, session: str) -> list[str]:
    """The disk that is LUN 0 of a session, once it is whole; both as folders of sysfs."""
    found = host.run(["sh", "-c", LIST_DISKS, session], check=False).stdout.splitlines()
    return [queue.removesuffix("/queue") for queue in found]


def negotiated(session: str, disk: Disk) -> dict[str, str]:
    """What the two ends negotiated (RFC 7143, section 13), read back from sysfs, and the disk's queue."""
    number = session.removeprefix("session")
    names = {
        **{name: f"{SESSIONS}/{session}/{name}" for name in SESSION_PARAMETERS},
        **{
            name: f"/sys/class/iscsi_connection/connection{number}:0/{name}" for name in CONNECTION_PARAMETERS
        },
        **{name.rpartition("/")[2]: f"{disk.sysfs}/{name}" for name in QUEUE_PARAMETERS},
    }
    values = disk.host.read_files(list(names.values()))
    return {name: value.strip() for name, value in zip(names, values, strict=True) if value.strip()}
