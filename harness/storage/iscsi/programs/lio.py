"""Makes and removes objects of LIO on the target host, one request on standard input (JSON).

It runs by itself under the distribution's Python, perhaps on another machine. Linux's target is set up in
configfs alone (drivers/target/target_core_configfs.c and iscsi/iscsi_target_configfs.c). Removal of what is
absent succeeds, and so does that of what a killed run had made in part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.hosts.programs.answering import answer

TARGET = Path("/sys/kernel/config/target")
CORE, ISCSI = TARGET / "core", TARGET / "iscsi"
NOBODY = "NULL"
"""What a name or password says that is not set."""

FEATURES = {"discovery_auth", "lio_version", "cpus_allowed_list"}
"""Folders and files next to those of targets."""

PLUGINS = {"file": "fileio"}
"""By kind of backing; others are block devices."""

ATTRIBUTES = {
    "authentication": 1,
    "generate_node_acls": 0,
    "demo_mode_write_protect": 1,
    "cache_dynamic_acls": 0,
    # Discovery shows nothing to initiators without an ACL.
    "demo_mode_discovery": 0,
}


def write(folder: Path, **values: object) -> None:
    # Without a line's end, which would be part of a name or password.
    for name, value in values.items():
        (folder / name).write_text(str(value))


def read(file: Path) -> str:
    return file.read_text().strip()


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def remove(folder: Path) -> None:
    """Remove an object with its links to others; what the kernel made in it goes with it."""
    for link in folder.iterdir():
        if link.is_symlink():
            link.unlink()
    folder.rmdir()


def stores(name: str) -> Iterator[Path]:
    """The backstores of a name: one or none."""
    return CORE.glob(f"*_*/{name}")


def create_backstore(request: dict[str, Any]) -> None:
    plugin, path = PLUGINS.get(request["kind"], "iblock"), request["path"]
    used = {int(adapter.name.rpartition("_")[2]) for adapter in CORE.glob("*_*")}
    number = next(n for n in itertools.count() if n not in used)
    store = made(made(CORE / f"{plugin}_{number}") / request["serial"])
    # A file is written through, as long as nobody asks for buffers.
    of_file = f"fd_dev_name={path},fd_dev_size={request['size_bytes']}"
    write(store, control=of_file if plugin == "fileio" else f"udev_path={path}")
    write(store, udev_path=path)
    write(store, enable=1)
    write(store / "wwn", vpd_unit_serial=request["serial"])


def delete_backstore(request: dict[str, Any]) -> None:
    for store in stores(request["serial"]):
        remove(store)
        store.parent.rmdir()
    # The file in which LIO keeps its reservations.
    (Path(read(TARGET / "dbroot")) / "pr" / f"aptpl_{request['serial']}").unlink(missing_ok=True)


def create_target(request: dict[str, Any]) -> None:
    (store,) = stores(request["backstore"])
    ISCSI.mkdir(exist_ok=True)
    group = made(made(ISCSI / request["iqn"]) / "tpgt_1")
    write(group / "attrib", **ATTRIBUTES)
    write(group / "param", **request["parameters"])
    lun = made(group / "lun/lun_0")
    (lun / "store").symlink_to(store)
    made(group / f"np/{request['address']}:{request['port']}")
    acl = made(group / "acls" / request["initiator_iqn"])
    write(acl / "auth", userid=request["chap_user"], password=request["secret"])
    mapped = made(acl / "lun_0")
    (mapped / "lun").symlink_to(lun)
    write(mapped, write_protect=int(request["read_only"]))
    write(group, enable=1)


def delete_target(request: dict[str, Any]) -> None:
    target = ISCSI / request["iqn"]
    for group in target.glob("tpgt_*"):
        if read(group / "enable") != "0":
            write(group, enable=0)
        for below in ("acls/*/lun_*", "acls/*", "lun/lun_*", "np/*"):
            for folder in group.glob(below):
                remove(folder)
        group.rmdir()
    if target.exists():
        target.rmdir()


def create_outage(request: dict[str, Any]) -> None:
    write(ISCSI / request["iqn"] / "tpgt_1", enable=0)


def delete_outage(request: dict[str, Any]) -> None:
    group = ISCSI / request["iqn"] / "tpgt_1"
    # LIO refuses to enable what is enabled.
    if group.exists() and read(group / "enable") == "0":
        write(group, enable=1)


def _set_user(iqn: str, name: str) -> None:
    for auth in (ISCSI / iqn).glob("tpgt_1/acls/*/auth"):
        write(auth, userid=name)


def create_refusal(request: dict[str, Any]) -> None:
    _set_user(request["iqn"], f"not-{request['chap_user']}")


def delete_refusal(request: dict[str, Any]) -> None:
    _set_user(request["iqn"], request["chap_user"])


def create_discovery_login(request: dict[str, Any]) -> None:
    ISCSI.mkdir(exist_ok=True)
    login = ISCSI / "discovery_auth"
    others = {folder.name for folder in ISCSI.iterdir()} - FEATURES
    if read(login / "enforce_discovery_auth") != "0" or read(login / "userid") not in ("", NOBODY) or others:
        return  # it applies to all targets of this kernel, and only their owner may change it
    write(login, userid=request["name"], password=request["secret"], enforce_discovery_auth=1)


def delete_discovery_login(request: dict[str, Any]) -> None:
    login = ISCSI / "discovery_auth"
    if login.exists() and read(login / "userid") == request["name"]:
        write(login, password=NOBODY, userid=NOBODY, enforce_discovery_auth=0)


if __name__ == "__main__":
    answer(
        {
            "create-backstore": create_backstore,
            "delete-backstore": delete_backstore,
            "create-discovery-login": create_discovery_login,
            "delete-discovery-login": delete_discovery_login,
            "create-outage": create_outage,
            "delete-outage": delete_outage,
            "create-refusal": create_refusal,
            "delete-refusal": delete_refusal,
            "create-target": create_target,
            "delete-target": delete_target,
        }
    )
