"""Ends the iSCSI session to one target, and removes its records; the request is JSON on standard input.

``{"iqn", "portal", "interface", "bound_to", "initiator_iqn"}``: ``interface`` is the session's iface record,
``bound_to`` the network interface that it binds the session to, "" for none. If no iscsid knows the session,
because a killed run took it along, or because the machine's was started again, the kernel is told to forget
it: its target learns that from the end of the connection.
Absent sessions and records count as removed.
"""

import contextlib
import json
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from harness.hosts.programs.answering import folders_that_say

DEADLINE_S = 10.0
NOTHING_FOUND = 21
"""iscsiadm(8), exit status: no records, targets or sessions found."""
UNKNOWN, NOT_CONNECTED = 2, 32
"""include/iscsi_err.h of open-iscsi: ISCSI_ERR_SESS_NOT_FOUND, ISCSI_ERR_SESSION_NOT_CONNECTED."""
SESSIONS = Path("/sys/class/iscsi_session")
CONFIGURATION = Path("/etc/iscsi")
RECORDS = (CONFIGURATION, Path("/var/lib/iscsi"))
"""Where iface records are; the second since Debian 13."""
MULTIPATHS = Path("/etc/multipath/wwids")

NETLINK_ISCSI = 8
STOP_CONN, DESTROY_CONN, DESTROY_SESSION = 18, 14, 12
STOP_CONN_TERM = 1
EVENT_BYTES = 512
"""include/scsi/iscsi_if.h of Linux: events from user space, and room for any struct iscsi_uevent."""


def find_session(iqn: str) -> str:
    """The kernel's name of the session to a target, "" if there is none."""
    found = folders_that_say(SESSIONS.glob("*/targetname"), iqn)
    return found[0].name if found else ""


def iscsid_answers() -> bool:
    return "@ISCSIADM_ABSTRACT_NAMESPACE" in Path("/proc/net/unix").read_text()


def forget(session: str) -> None:
    """Make the kernel end a session of iscsi_tcp, without a message to its target; OSError if it refuses."""
    handle = int(Path("/sys/class/iscsi_transport/tcp/handle").read_text())
    number = int(session.removeprefix("session"))
    events = []
    for path in Path("/sys/class/iscsi_connection").glob(f"connection{number}:*"):
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


def iscsiadm(*words: str) -> int:
    return subprocess.run(["iscsiadm", *words], stdin=subprocess.DEVNULL, capture_output=True).returncode


def node(request: dict[str, str], *words: str) -> int:
    record = [
        "--targetname",
        request["iqn"],
        "--portal",
        request["portal"],
        "--interface",
        request["interface"],
    ]
    return iscsiadm("--mode", "node", *record, *words)


def iface(request: dict[str, str], *words: str) -> int:
    return iscsiadm("--mode", "iface", "--interface", request["interface"], *words)


def log_out(request: dict[str, str]) -> int:
    """The status of iscsiadm."""
    end = time.monotonic() + DEADLINE_S
    # An iscsid that finds a session at its start reconnects it, and does not end it in the meantime.
    while (status := node(request, "--logout")) in (UNKNOWN, NOT_CONNECTED) and time.monotonic() < end:
        if not find_session(request["iqn"]):
            break
        time.sleep(0.1)
    return status


def end(request: dict[str, str], session: str) -> None:
    """End the session, or exit with the reason why it goes on."""
    # An iscsid that was started again drops a session that it cannot log in to, say for want of its secret.
    status, why = log_out(request) if iscsid_answers() else UNKNOWN, ""
    if status == UNKNOWN and find_session(request["iqn"]):
        try:
            forget(session)
        except OSError as error:
            why = f", and the kernel did not end it: {error}"
    if status != 0 and find_session(request["iqn"]):
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
                subprocess.run(["multipath", *words], stdin=subprocess.DEVNULL, capture_output=True)


def carry_out(request: dict[str, str]) -> None:
    session = find_session(request["iqn"])
    # A killed run leaves no records: their folder went with it. Without its iface record, iscsiadm finds no
    # other record, not even to report that it is absent.
    has_records = any((folder / "ifaces" / request["interface"]).exists() for folder in RECORDS)
    if not has_records:
        iface(request, "--op", "new")
        iface(request, "--op", "update", "--name", "iface.initiatorname", "--value", request["initiator_iqn"])
        if request["bound_to"]:
            iface(request, "--op", "update", "--name", "iface.net_ifacename", "--value", request["bound_to"])
    if session:
        if not has_records:
            node(request, "--op", "new")
        with contextlib.suppress(OSError):
            leave_multipath(session)
        end(request, session)
    status = node(request, "--op", "delete")
    if status not in (0, NOTHING_FOUND):
        sys.exit(f"the record of {request['iqn']} could not be deleted (iscsiadm said {status})")
    iface(request, "--op", "delete")


if __name__ == "__main__":
    carry_out(json.load(sys.stdin))
