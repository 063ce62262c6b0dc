"""Ends the iSCSI session to one target, and removes its records; the request is JSON on standard input.

``{"iqn", "portal", "interface", "bound_to", "initiator_iqn"}``: ``interface`` is the iface record that binds
the session to the network interface ``bound_to``, "" for open-iscsi's default. If no iscsid runs (a killed
run took it along), one is kept running meanwhile, since only that can end a session. What is absent needs
no ending.
"""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

DEADLINE_S = 10.0
NOTHING_FOUND = 21
"""iscsiadm(8), exit status: no records, targets or sessions found."""
NOT_CONNECTED = 32
"""include/iscsi_err.h of open-iscsi: ISCSI_ERR_SESSION_NOT_CONNECTED."""
CONFIGURATION = Path("/etc/iscsi")


def find_session(iqn: str) -> str:
    """The kernel's name of the session to a target, "" if there is none."""
    for file in Path("/sys/class/iscsi_session").glob("*/targetname"):
        try:
            if file.read_text().strip() == iqn:
                return file.parent.name
        except OSError:
            continue  # it has just ended
    return ""


def iscsid_answers() -> bool:
    return "@ISCSIADM_ABSTRACT_NAMESPACE" in Path("/proc/net/unix").read_text()


def start_iscsid(stack: ExitStack, initiator_iqn: str) -> None:
    """Keep an iscsid running until the stack is unwound."""
    name = CONFIGURATION / "initiatorname.iscsi"
    if not name.exists():
        name.write_text(f"InitiatorName={initiator_iqn}\n")
    process = subprocess.Popen(
        ["iscsid", "--foreground"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    end = time.monotonic() + DEADLINE_S
    while not iscsid_answers() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)


def iscsiadm(*words: str) -> int:
    return subprocess.run(["iscsiadm", *words], stdin=subprocess.DEVNULL, capture_output=True).returncode


def node(request: dict[str, str], *words: str) -> int:
    bound = ["--interface", request["interface"]] if request["interface"] else []
    record = ["--targetname", request["iqn"], "--portal", request["portal"], *bound]
    return iscsiadm("--mode", "node", *record, *words)


def iface(request: dict[str, str], *words: str) -> int:
    return iscsiadm("--mode", "iface", "--interface", request["interface"], *words)


def main() -> None:
    request = json.load(sys.stdin)
    session = find_session(request["iqn"])
    with ExitStack() as stack:
        # Records are missing if a killed run left this: their folder went with it. Without its iface record
        # no other is found, not even to be absent.
        if request["interface"]:
            iface(request, "--op", "new")
            iface(request, "--op", "update", "--name", "iface.net_ifacename", "--value", request["bound_to"])
        if session:
            node(request, "--op", "new")
            if not iscsid_answers():
                start_iscsid(stack, request["initiator_iqn"])
            end = time.monotonic() + DEADLINE_S
            # An iscsid that finds a session at its start connects it anew, and will not end it meanwhile.
            while (status := node(request, "--logout")) == NOT_CONNECTED and time.monotonic() < end:
                time.sleep(0.1)
            if status != 0 and find_session(request["iqn"]):
                sys.exit(f"{session} to {request['iqn']} could not be logged out (iscsiadm said {status})")
        status = node(request, "--op", "delete")
        if status not in (0, NOTHING_FOUND):
            sys.exit(f"the record of {request['iqn']} could not be deleted (iscsiadm said {status})")
        if request["interface"]:
            iface(request, "--op", "delete")


main()
