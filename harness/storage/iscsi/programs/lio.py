"""Makes and removes LIO objects on the target host, by requests that are JSON.

It runs by itself under the distribution's Python (python3-rtslib-fb), perhaps on another machine. Removing an
absent object succeeds.
"""

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import rtslib_fb  # type: ignore[import-not-found]

from harness.hosts.programs.serving import serve

DBROOT = Path(Path("/sys/kernel/config/target/dbroot").read_text().strip())
# rtslib would change `dbroot`, a setting of the kernel's that the machine's own targets share, to its own
# default. So it is given the present value as its default.
rtslib_fb.RTSRoot._preferred_dbroot = str(DBROOT)


def find(objects: Iterable[Any], attribute: str, value: object) -> list[Any]:
    """The objects whose ``attribute`` equals ``value`` (none or one)."""
    return [item for item in objects if getattr(item, attribute) == value]


def create_backstore(request: dict[str, Any]) -> None:
    name, path, serial = request["name"], request["path"], request["serial"]
    if request["kind"] == "file":
        rtslib_fb.FileIOStorageObject(
            name, dev=path, size=request["size_bytes"], wwn=serial, write_back=False
        )
    else:
        rtslib_fb.BlockStorageObject(name, dev=path, wwn=serial)


def delete_backstore(request: dict[str, Any]) -> None:
    for storage in find(rtslib_fb.RTSRoot().storage_objects, "name", request["name"]):
        storage.delete()
    # The file in which LIO keeps its reservations.
    (DBROOT / "pr" / f"aptpl_{request['serial']}").unlink(missing_ok=True)


def create_target(request: dict[str, Any]) -> None:
    storage = find(rtslib_fb.RTSRoot().storage_objects, "name", request["backstore"])[0]
    target = rtslib_fb.Target(rtslib_fb.FabricModule("iscsi"), request["iqn"], mode="create")
    group = rtslib_fb.TPG(target, 1, mode="create")
    for attribute, value in (
        ("authentication", 1),
        ("generate_node_acls", 0),
        ("demo_mode_write_protect", 1),
        ("cache_dynamic_acls", 0),
        # Discovery shows nothing to initiators without an ACL.
        ("demo_mode_discovery", 0),
    ):
        group.set_attribute(attribute, value)
    for name, value in request["parameters"].items():
        group.set_parameter(name, value)
    lun = rtslib_fb.LUN(group, 0, storage)
    rtslib_fb.NetworkPortal(group, request["address"], request["port"], mode="create")
    acl = rtslib_fb.NodeACL(group, request["initiator_iqn"], mode="create")
    acl.chap_userid = request["chap_user"]
    acl.chap_password = request["secret"]
    rtslib_fb.MappedLUN(acl, 0, lun, write_protect=request["read_only"])
    group.enable = True


def delete_target(request: dict[str, Any]) -> None:
    for target in find(rtslib_fb.FabricModule("iscsi").targets, "wwn", request["iqn"]):
        target.delete()


def create_discovery_login(request: dict[str, Any]) -> None:
    fabric = rtslib_fb.FabricModule("iscsi")
    if fabric.discovery_enable_auth or fabric.discovery_userid or any(fabric.targets):
        return  # it applies to all targets of this kernel, and only their owner may change it
    fabric.discovery_userid = request["name"]
    fabric.discovery_password = request["secret"]
    fabric.discovery_enable_auth = True


def delete_discovery_login(request: dict[str, Any]) -> None:
    fabric = rtslib_fb.FabricModule("iscsi")
    if fabric.discovery_userid == request["name"]:
        fabric.clear_discovery_auth_settings()


ACTIONS = {
    "create-backstore": create_backstore,
    "delete-backstore": delete_backstore,
    "create-discovery-login": create_discovery_login,
    "delete-discovery-login": delete_discovery_login,
    "create-target": create_target,
    "delete-target": delete_target,
}


def carry_out(text: str, netns: str | None) -> None:
    request = json.loads(text)
    try:
        with within(netns):
            ACTIONS[request["do"]](request)
    except (rtslib_fb.RTSLibError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def within(netns: str | None) -> Iterator[None]:
    """Act in a network namespace, for a portal is in that of the program that makes it."""
    if netns is None:
        yield
        return
    with Path("/proc/self/ns/net").open() as own, Path("/run/netns", netns).open() as there:
        enter(there.fileno())
        try:
            yield
        finally:
            enter(own.fileno())


def enter(file: int) -> None:
    """Enter the network namespace of a file (setns(2), CLONE_NEWNET); OSError if that is refused."""
    if ctypes.CDLL(None, use_errno=True).setns(file, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    serve(carry_out, enters=True)
