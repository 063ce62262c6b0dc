"""Makes and removes NVMe/TCP exports on the target host, one request on standard input (JSON).

It runs by itself under the distribution's Python, perhaps on another machine. Linux's target (nvmet) is set
up in configfs alone (drivers/nvme/target/configfs.c). Removal of what is absent succeeds, and so does that of
what a killed run had made in part.
"""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from typing import Any

from harness.hosts.programs.answering import answer

NVMET = Path("/sys/kernel/config/nvmet")
NAMESPACE = "1"
FIRST_PORT = 0x4800
"""Numbers of ports below it are somebody else's to give."""


def write(folder: Path, **values: object) -> None:
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")


def link(name: Path, to: Path) -> None:
    if not name.is_symlink():
        name.symlink_to(to)


def address_of(port: Path) -> tuple[str, str, str]:
    """Transport, address and TCP port that a port listens at."""
    transport, address, service = (
        (port / f"addr_{what}").read_text().strip() for what in ("trtype", "traddr", "trsvcid")
    )
    return transport, address, service


def ports(request: dict[str, Any]) -> list[Path]:
    """The ports of a request's address that are ours (none or one)."""
    wanted = ("tcp", request["address"], str(request["port"]))
    return [
        port
        for port in (NVMET / "ports").glob("*")
        if int(port.name) >= FIRST_PORT and address_of(port) == wanted
    ]


def make_port(request: dict[str, Any]) -> Path:
    """The port of a request's address: several exports may share it."""
    for port in ports(request):
        return port
    used = {port.name for port in (NVMET / "ports").glob("*")}
    number = next(n for n in range(FIRST_PORT, 1 << 16) if str(n) not in used)
    port = NVMET / "ports" / str(number)
    port.mkdir()
    write(
        port,
        addr_trtype="tcp",
        addr_adrfam="ipv6" if ":" in request["address"] else "ipv4",
        addr_traddr=request["address"],
        addr_trsvcid=request["port"],
        **({"param_inline_data_size": size} if (size := request["inline_data_bytes"]) is not None else {}),
        # Linux 6.7 and later. Refused without the keyring. TLS is then required, but that is written, too.
        **({"addr_tsas": "tls1.3", "addr_treq": "required"} if request["tls"] else {}),
    )
    return port


def create(request: dict[str, Any]) -> None:
    host = NVMET / "hosts" / request["host_nqn"]
    host.mkdir(exist_ok=True)
    subsystem = NVMET / "subsystems" / request["nqn"]
    subsystem.mkdir()
    # Its serial number is fixed as soon as somebody has asked for it, so it comes first.
    write(subsystem, attr_serial=request["serial"], attr_allow_any_host=0)
    namespace = subsystem / "namespaces" / NAMESPACE
    namespace.mkdir()
    # A file is read and written around the page cache, as LIO writes it through.
    write(namespace, device_path=request["path"], buffered_io=0, device_uuid=request["uuid"])
    write(namespace, enable=1)
    link(subsystem / "allowed_hosts" / host.name, host)
    # It listens from here on, in the network namespace of this process.
    link(make_port(request) / "subsystems" / subsystem.name, subsystem)


def delete(request: dict[str, Any]) -> None:
    subsystem = NVMET / "subsystems" / request["nqn"]
    for name in (NVMET / "ports").glob(f"*/subsystems/{subsystem.name}"):
        name.unlink()
    for port in ports(request):
        remove(port)
    for name in (subsystem / "allowed_hosts").glob("*"):
        name.unlink()
    for namespace in (subsystem / "namespaces").glob("*"):
        write(namespace, enable=0)
        namespace.rmdir()
    remove(subsystem)
    remove(NVMET / "hosts" / request["host_nqn"])


def create_outage(request: dict[str, Any]) -> None:
    for port in ports(request):
        (port / "subsystems" / request["nqn"]).unlink()


def delete_outage(request: dict[str, Any]) -> None:
    subsystem = NVMET / "subsystems" / request["nqn"]
    if subsystem.exists():
        for port in ports(request):
            link(port / "subsystems" / subsystem.name, subsystem)


def create_refusal(request: dict[str, Any]) -> None:
    (NVMET / "subsystems" / request["nqn"] / "allowed_hosts" / request["host_nqn"]).unlink()


def delete_refusal(request: dict[str, Any]) -> None:
    subsystem, host = NVMET / "subsystems" / request["nqn"], NVMET / "hosts" / request["host_nqn"]
    if subsystem.exists() and host.exists():
        link(subsystem / "allowed_hosts" / host.name, host)


def remove(folder: Path) -> None:
    """Remove an object that nothing refers to, unless something does."""
    with contextlib.suppress(FileNotFoundError):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EBUSY):
                raise


if __name__ == "__main__":
    answer(
        {
            "create": create,
            "delete": delete,
            "create-outage": create_outage,
            "delete-outage": delete_outage,
            "create-refusal": create_refusal,
            "delete-refusal": delete_refusal,
        }
    )
