"""Opens the iSCSI session to one target by open-iscsi, reports what was negotiated, and ends it.

One request on standard input (JSON), an answer on standard output. It runs by itself under the distribution's
Python. A session's own iface record, ``interface``, names the initiator: the iscsid that logs in may be the
machine's, which uses the machine's name if the record has none (``__session_create`` in open-iscsi's
usr/initiator.c). ``bound_to`` is the network interface that the record binds the session to, "" for none. If
no iscsid knows the session at its end, because a killed run took it along, or because the machine's was
started again, the kernel is told to forget it: its target learns that from the end of the connection.
Absent sessions and records count as removed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.hosts.programs.answering import PortalSilent, answer, folders_that_say, wait_until

DEADLINE_S = 10.0
RECORD_S = 60.0
"""How long iscsid may take to answer: its unit waits for others, including the network's."""

EXISTS, NOTHING_FOUND = 15, 21
"""iscsiadm(8), exit status: such a record exists; no records, targets or sessions found."""
NOT_REACHED = (4, 8, 11)
"""The same: no connection to the portal, or none in time, or no answer."""
UNKNOWN, NOT_CONNECTED = 2, 32
"""include/iscsi_err.h of open-iscsi: ISCSI_ERR_SESS_NOT_FOUND, ISCSI_ERR_SESSION_NOT_CONNECTED."""
FROM_CONFIGURATION = "node.conn[0].timeo.login_timeout = {within_s}\n"
"""In each record that was made from the run's iscsid.conf, by the fields of a request."""
ENDED = 19
REFUSED = {
    24: "it refuses the login: expected another name or secret of CHAP, or an ACL with this initiator's "
    "name, {initiator_iqn}",
    ENDED: "it ended the login: perhaps it requires CHAP, or has no target of this name",
    21: "it shows no target to this initiator, {initiator_iqn}",
}
"""The same of targets that answer: include/iscsi_err.h of open-iscsi."""
ENDED_OF_MUTUAL = (
    "the login ended: either the target could not prove the second secret (mutual CHAP), or it has no "
    "target of this name"
)
"""With CHAP in both directions: iscsiadm(8) has one status for both ends."""

Request = dict[str, Any]

SESSIONS = Path("/sys/class/iscsi_session")
CONFIGURATION = Path("/etc/iscsi")
CONNECTIONS = Path("/sys/class/iscsi_connection")
RECORDS = (CONFIGURATION, Path("/var/lib/iscsi"))
"""Where iface records are; the second since Debian 13."""
MULTIPATHS = Path("/etc/multipath/wwids")

NETLINK_ISCSI = 8
STOP_CONN, DESTROY_CONN, DESTROY_SESSION = 18, 14, 12
STOP_CONN_TERM = 1
EVENT_BYTES = 512
"""include/scsi/iscsi_if.h of Linux: events from user space, and room for any struct iscsi_uevent."""


def find_session(request: Request) -> str:
    """The kernel's name of the request's session, "" if there is none. The user may have one to the same
    target, by another iface record."""
    found = folders_that_say(SESSIONS.glob("*/targetname"), request["iqn"])
    mine = [each.name for each in found if (each / "ifacename").read_text().strip() == request["interface"]]
    return mine[0] if mine else ""


def iscsid_answers() -> bool:
    return "@ISCSIADM_ABSTRACT_NAMESPACE" in Path("/proc/net/unix").read_text()


def forget(session: str) -> None:
    """Make the kernel end a session of iscsi_tcp, without a message to its target; OSError if it refuses."""
    handle = int(Path("/sys/class/iscsi_transport/tcp/handle").read_text())
    number = int(session.removeprefix("session"))
    events = []
    for path in CONNECTIONS.glob(f"connection{number}:*"):
        connection = int(path.name.partition(":")[2])
        events.append((STOP_CONN, struct.pack("=IIQI", number, connection, 0, STOP_CONN_TERM)))
        events.append((DESTROY_CONN, struct.pack("=II", number, connection)))
    events.append((DESTROY_SESSION, struct.pack("=I", number)))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ISCSI) as kernel:
        kernel.settimeout(DEADLINE_S)
        for kind, body in events:
            event = (struct.pack("=IIQ", kind, 0, handle) + body).ljust(EVENT_BYTES, b"\0")
            kernel.send(struct.pack("=IHHII", 16 + len(event), kind, 1, 0, 0) + event)
            (refused,) = struct.unpack_from("=i", kernel.recv(4096), 20)
            if refused:
                raise OSError(-refused, f"event {kind} was refused")


def ran(*words: str, within_s: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within_s)


def node(request: Request, *words: str) -> subprocess.CompletedProcess[str]:
    record = ("--targetname", request["iqn"], "--portal", request["portal"])
    return ran("iscsiadm", "--mode", "node", *record, "--interface", request["interface"], *words)


def require(done: subprocess.CompletedProcess[str], request: Request) -> None:
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        if done.returncode == ENDED and request["is_mutual"]:
            raise OSError(ENDED_OF_MUTUAL)
        if done.returncode in REFUSED:
            raise OSError(REFUSED[done.returncode].format_map(request))
        raise OSError(f"iscsiadm ended with status {done.returncode}: {said[-1]}")


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


def make_iface(request: Request) -> None:
    words = ["iface.initiatorname", request["initiator_iqn"]]
    if request["bound_to"]:
        words += ["iface.net_ifacename", request["bound_to"]]
    require(ran("unshare", "--mount", "sh", "-euc", MAKE_IFACE, "sh", request["interface"], *words), request)


def make_record(request: Request) -> None:
    """Make the node record from the run's iscsid.conf, whose secret is in no command line then.

    iscsiadm(8) asks iscsid where that file is, and takes its own defaults, without CHAP, if it is not
    told within a second (``get_config_file()`` in open-iscsi's usr/iscsiadm.c).
    """
    until = time.monotonic() + RECORD_S
    while True:
        require(node(request, "--op", "new"), request)
        if FROM_CONFIGURATION.format_map(request) in node(request).stdout:
            return
        if time.monotonic() > until:
            raise TimeoutError(
                f"expected iscsid to answer within {RECORD_S:g} s, but it did not: `systemctl status iscsid` "
                "there may say why"
            )
        require(node(request, "--op", "delete"), request)
        time.sleep(0.1)


def discover(request: Request) -> dict[str, Any]:
    """The targets that a portal shows (SendTargets, RFC 7143, appendix C), each with its portals."""
    make_iface(request)
    words = ("--type", "sendtargets", "--portal", request["portal"], "--interface", request["interface"])
    began = time.monotonic()
    try:
        # It may not have heard where iscsid.conf is, and tries for a minute and a half then.
        within_s = 3 * request["within_s"]
        done = ran("iscsiadm", "--mode", "discovery", *words, "--op", "nonpersistent", within_s=within_s)
    except subprocess.TimeoutExpired:
        done = None
    finally:
        ran("iscsiadm", "--mode", "iface", "--interface", request["interface"], "--op", "delete")
    if done is None or done.returncode in NOT_REACHED:
        # Not ``within_s``: it tries twice, and each look-up and connection has its own time.
        raise PortalSilent(f"nothing answered within {time.monotonic() - began:.1f} s")
    require(done, request)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        portal, _, name = line.partition(" ")
        found.setdefault(name.strip(), []).append(portal.rpartition(",")[0])
    return {"targets": found}


def connect(request: Request) -> None:
    asked_by = os.getppid()
    make_iface(request)
    make_record(request)
    for name, value in request["parameters"].items():
        require(node(request, "--op", "update", "--name", name, "--value", value), request)
    # Who is to undo this may have done so by now.
    if os.getppid() != asked_by:
        sys.exit("who asked for the session has gone")
    done = node(request, "--login")
    if done.returncode in NOT_REACHED:
        raise PortalSilent(f"nothing answered within {request['within_s']} s")
    require(done, request)


def disk_of(session: Path, lun: int) -> Path | None:
    """The disk that is that LUN of a session, once it is whole: the kernel makes ``queue`` after all that is
    read of a disk here (device_add_disk())."""
    found = session.glob(f"device/target*/*:{lun}/block/*")
    return next((disk for disk in found if (disk / "queue").exists()), None)


def luns(request: Request) -> dict[str, Any]:
    """The logical units that are disks (type 0 of SPC-4, 6.6.2), each with its number and what it says of
    itself; and where the session's connection goes."""
    name = find_session(request)
    session, connection = SESSIONS / name, CONNECTIONS / f"connection{name.removeprefix('session')}:0"

    def disks() -> dict[int, Path | None]:
        units = folders_that_say(session.glob("device/target*/*/type"), "0")
        return {number: disk_of(session, number) for number in (int(u.name.split(":")[3]) for u in units)}

    with contextlib.suppress(TimeoutError):
        wait_until(lambda: bool(disks()) and None not in disks().values(), "")
    found = []
    for number, disk in sorted(disks().items()):
        if disk is not None:
            facts = {"lun": number, "node": f"/dev/{disk.name}"}
            for key, file in ABOUT.items():
                with contextlib.suppress(OSError):
                    facts[key] = (disk / file).read_text().strip()
            found.append(facts)
    where = [(connection / each).read_text().strip() for each in ("address", "port")]
    return {"luns": found, "address": where[0], "port": int(where[1])}


ABOUT = {
    "vendor": "device/vendor",
    "model": "device/model",
    "wwid": "device/wwid",
    "sectors": "size",
    "block_bytes": "queue/logical_block_size",
    "read_only": "ro",
}
"""What a disk says of itself, by the names of its files."""


def tell(request: Request) -> dict[str, Any]:
    """What the two ends negotiated (RFC 7143, section 13), and the queue of the session's disk, once there is
    one. ``files`` are their names below the session, its connection, and the disk."""
    name = find_session(request)
    if not name:
        raise FileNotFoundError(f"iscsiadm logged in to {request['iqn']}, but the kernel has no such session")
    session = SESSIONS / name
    mine = (session / "initiatorname").read_text().strip()
    if mine != request["initiator_iqn"]:
        raise PermissionError(
            f"expected {name} to be {request['initiator_iqn']}'s, found {mine or 'no name'}"
        )
    lun = request["lun"]
    wait_until(
        lambda: disk_of(session, lun) is not None, f"LUN {lun} of {request['iqn']} did not become a disk"
    )
    disk = disk_of(session, lun)
    connection = CONNECTIONS / f"connection{name.removeprefix('session')}:0"
    agreed = {}
    for folder, names in zip((session, connection, disk), request["files"], strict=True):
        for each in names:
            with contextlib.suppress(OSError):
                agreed[each.rpartition("/")[2]] = (folder / each).read_text().strip()
    agreed = {each: text for each, text in agreed.items() if text}
    return {"session": str(session), "disk": str(disk), "agreed": agreed}


def log_out(request: Request) -> int:
    """The status of iscsiadm."""
    end = time.monotonic() + DEADLINE_S
    # An iscsid that finds a session at its start reconnects it, and does not end it in the meantime.
    while (status := node(request, "--logout").returncode) in (UNKNOWN, NOT_CONNECTED):
        if not find_session(request) or time.monotonic() > end:
            break
        time.sleep(0.1)
    return status


def end(request: Request, session: str) -> None:
    """End the session, or exit with the reason why it goes on."""
    # An iscsid that was started again drops a session that it cannot log in to, say for want of its secret.
    status, why = log_out(request) if iscsid_answers() else UNKNOWN, ""
    if status == UNKNOWN and find_session(request):
        try:
            forget(session)
        except OSError as error:
            why = f", and the kernel did not end it: {error}"
    if status != 0 and find_session(request):
        sys.exit(f"{session} to {request['iqn']} could not be logged out (iscsiadm said {status}){why}")


def leave_multipath(session: str) -> None:
    """Make multipathd let go of the session's disks, and cross them out of its list of disks to keep.

    If the user's configuration takes every disk (find_multipaths), it took these as well.
    """
    known = MULTIPATHS.read_text().split() if MULTIPATHS.exists() else []
    for disk in SESSIONS.glob(f"{session}/device/target*/*:*"):
        # As multipath names it: SPC's type of designator, then the designator.
        name = (disk / "wwid").read_text().strip().replace("naa.", "3")
        if f"/{name}/" in known:
            for words in ("-f", name), ("-w", *(f"/dev/{block.name}" for block in disk.glob("block/*"))):
                ran("multipath", *words)


def disconnect(request: Request) -> None:
    session = find_session(request)
    # A killed run leaves no records: their folder went with it. Without its iface record, iscsiadm finds no
    # other record, not even to report that it is absent.
    has_records = any((folder / "ifaces" / request["interface"]).exists() for folder in RECORDS)
    if not has_records:
        make_iface(request)
    if session:
        if not has_records:
            node(request, "--op", "new")
        with contextlib.suppress(OSError):
            leave_multipath(session)
        end(request, session)
    status = node(request, "--op", "delete").returncode
    if status not in (0, NOTHING_FOUND):
        sys.exit(f"the record of {request['iqn']} could not be deleted (iscsiadm said {status})")
    ran("iscsiadm", "--mode", "iface", "--interface", request["interface"], "--op", "delete")


if __name__ == "__main__":
    answer({"discover": discover, "connect": connect, "luns": luns, "tell": tell, "disconnect": disconnect})
