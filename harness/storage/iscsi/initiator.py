"""The initiator's iscsid(8), and how it is configured. Sessions are ``programs/session.py``'s.

The initiator's netlink has no namespaces: sessions live in the first network namespace of a kernel.
open-iscsi keeps its node records in ``RECORDS``. The testbed has put a tmpfs there, so nothing of the
run's can survive (``harness.runs.executor``).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.hosts.undo import UndoStep
from harness.model.errors import CommandFailed
from harness.storage.chap import Secrets

RECORDS = ("/etc/iscsi", "/var/lib/iscsi")
"""The folders of open-iscsi's configuration and, in Debian 13, of its records of nodes, with their
secrets."""

CONFIGURATION = Path("/etc/iscsi/iscsid.conf")
LOGIN_S = 8
"""How long iscsid waits for the portal."""

START_DEADLINE_S = 60.0
"""For a unit that waits for others, including the network's."""


OWN_NAME = "/proc/1/root/etc/iscsi/initiatorname.iscsi"
"""The machine's own name, past what the run has put over that folder."""


def own_name(host: Host) -> str:
    """The machine's name as an initiator, which the ACL of a target may know; "" if it has none."""
    (text,) = host.read_files([OWN_NAME])
    names = (
        line.partition("=")[2].strip() for line in text.splitlines() if line.startswith("InitiatorName=")
    )
    return next(names, "")


def _chap(user: str, secrets: Secrets) -> list[str]:
    """How sessions and discovery authenticate: in both directions if the target has a secret."""
    lines = []
    for of in ("node.session", "discovery.sendtargets"):
        lines += [f"{of}.auth.authmethod = CHAP", f"{of}.auth.username = {user}"]
        lines += [f"{of}.auth.password = {secrets.own}"]
        if secrets.target:
            lines += [f"{of}.auth.username_in = {secrets.target_user}"]
            lines += [f"{of}.auth.password_in = {secrets.target}"]
    return lines


def configuration(chap_user: str, secrets: Secrets | None) -> str:
    """iscsid.conf of a run: manual start, CHAP if there are secrets, and failures reported after seconds
    instead of minutes."""
    return "\n".join(
        (
            "node.startup = manual",
            "node.leading_login = No",
            *(_chap(chap_user, secrets) if secrets is not None else ["node.session.auth.authmethod = None"]),
            f"discovery.sendtargets.timeo.login_timeout = {LOGIN_S}",
            f"discovery.sendtargets.timeo.auth_timeout = {LOGIN_S}",
            "discovery.sendtargets.reopen_max = 1",
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
"""Whether an iscsid runs. Its socket does not show it: systemd may listen there and start one on demand."""

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


class SocketActivatedIscsid(msgspec.Struct, frozen=True):
    """The machine's own iscsid where systemd cannot be asked: the first request to its socket starts it."""

    socket: str

    def acquire(self, host: Host) -> None:
        """Nothing to do: who makes a session's record waits for its answer."""

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("sh", "-c", ASK_TO_END)),)


@contextlib.contextmanager
def iscsid(
    journal: Journal, host: Host, *, initiator_iqn: str, chap_user: str, secrets: Secrets | None, log: Path
) -> Iterator[None]:
    """Make sure that an iscsid answers: the machine's, which is left as it was found, or one of the run's
    own."""
    host.write_secret(CONFIGURATION, configuration(chap_user, secrets))
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
            stack.enter_context(journal.hold(host, SocketActivatedIscsid(SOCKET)))
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
