"""Connects an initiator to an NVMe/TCP subsystem, reports what was negotiated, and disconnects.

One request on standard input (JSON), an answer on standard output. It runs by itself under the distribution's
Python, and needs no nvme-cli: /dev/nvme-fabrics takes a connection in words
(drivers/nvme/host/fabrics.c), an ioctl carries admin commands (linux/nvme_ioctl.h). A controller is found by
its subsystem's NQN; one that is absent needs no disconnecting.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import signal
import struct
from pathlib import Path
from typing import Any

from harness.hosts.programs.answering import PortalSilent, answer, folders_that_say, wait_until

FABRICS = Path("/dev/nvme-fabrics")
CONTROLLERS, DISKS = Path("/sys/class/nvme"), Path("/sys/block")

ADMIN_COMMAND = 0xC0484E41
"""NVME_IOCTL_ADMIN_CMD: _IOWR('N', 0x41, struct nvme_passthru_cmd), which has 72 bytes."""
IDENTIFY, SET_FEATURES = 0x06, 0x09
CONTROLLER = 1
"""NVM Express Base Specification 2.0, figure 273: CNS of the controller's own data structure."""
PAGE_BYTES = 4096
WRITE_PROTECT = 0x84
"""The same, figure 317: the feature, and of its value (figure 370) 1, write protected."""

GET_LOG_PAGE, DISCOVERY_LOG = 0x02, 0x70
LOG_BYTES, RECORD_BYTES, NVM_SUBSYSTEM = 64 << 10, 1024, 2
"""So much of the log is read; the type of a record that is no referral."""
SET_READ_ONLY = 0x125D
"""BLKROSET of linux/fs.h."""

NO_ANSWER = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT)


QUEUE = ("scheduler", "nr_requests", "max_sectors_kb", "max_hw_sectors_kb", "write_cache")


def controllers(nqn: str, host_nqn: str = "") -> list[Path]:
    """The kernel's controllers of a subsystem: those of a host's name, or all."""
    found = folders_that_say(CONTROLLERS.glob("nvme*/subsysnqn"), nqn)
    return folders_that_say((each / "hostnqn" for each in found), host_nqn) if host_nqn else found


def disks(nqn: str) -> list[Path]:
    """The disks of a subsystem: with multipath the one before its paths, which are hidden."""
    shown = folders_that_say(DISKS.glob("nvme*/hidden"), "0")
    return [disk for disk in shown if folders_that_say([disk / "device/subsysnqn"], nqn)]


def only(request: dict[str, Any]) -> Path:
    """The disk of the namespace that is meant, or of the only one."""
    found = disks(request["nqn"])
    if number := request.get("namespace"):
        found = [disk for disk in found if (disk / "nsid").read_text().strip() == str(number)]
    if len(found) != 1:
        numbers = ", ".join(sorted((disk / "nsid").read_text().strip() for disk in disks(request["nqn"])))
        raise OSError(f"expected one namespace (choose with --lun), found: {numbers}")
    return found[0]


def queue(controller: Path) -> Path:
    """Where the requests of a controller's one namespace wait.

    With multipath the disk has none, and newer kernels show no such files of it
    (``blk_mq_queue_attr_visible()`` in block/blk-sysfs.c): its path has them, which is below the controller.
    Without multipath that is where the disk itself is.
    """
    return min(controller.glob("nvme*n*/queue"))


def opened(request: dict[str, Any]) -> None:
    """Have the kernel connect a controller."""

    def give_up(_number: int, _frame: object) -> None:
        raise PortalSilent(f"nothing answered within {request['within_s']} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(request["within_s"])
    try:
        with FABRICS.open("r+b", buffering=0) as device:
            device.write(request["options"].encode())
    except OSError as error:
        if error.errno in NO_ANSWER:
            raise PortalSilent(error.strerror) from error
        raise
    signal.alarm(0)


def discover(request: dict[str, Any]) -> dict[str, Any]:
    """The subsystems that a discovery controller lists (NVM Express Base Specification 2.0, section
    5.16.1.23: a header and records of 1024 bytes each)."""
    opened(request)
    name, data = request["nqn"], array.array("B", bytes(LOG_BYTES))
    try:
        (controller,) = controllers(name, request["host_nqn"])
        admin(controller, GET_LOG_PAGE, data, words=(DISCOVERY_LOG | (LOG_BYTES // 4 - 1) << 16,))
    finally:
        for each in controllers(name, request["host_nqn"]):
            (each / "delete_controller").write_text("1")
    (count,) = struct.unpack_from("<Q", data, 8)
    found: dict[str, list[str]] = {}
    for at in range(RECORD_BYTES, min(LOG_BYTES, RECORD_BYTES * (count + 1)), RECORD_BYTES):
        service, subsystem, address = (
            bytes(data[at + start : at + start + length]).split(b"\0")[0].decode("ascii", "replace").strip()
            for start, length in ((32, 32), (256, 256), (512, 256))
        )
        if data[at + 2] == NVM_SUBSYSTEM:
            found.setdefault(subsystem, []).append(f"{address} {service}")
    return {"targets": found}


def connect(request: dict[str, Any]) -> None:
    """Connect, and wait for the disk. A subsystem that is somebody else's is only read, and not one to which
    this machine is connected already: with multipath, I/O could take that connection."""
    is_reached = request.get("host_nqn") is not None
    if is_reached and controllers(request["nqn"]):
        raise OSError("this machine is connected to it already: measure its disk with --volume")
    opened(request)
    wait_until(lambda: bool(disks(request["nqn"])), "the subsystem's namespace did not become a disk")
    if is_reached:
        sizes = (disk / "size" for disk in disks(request["nqn"]))
        for size in sizes:
            wait_until(lambda size=size: size.read_text().strip() != "0", f"{size} stayed 0")  # type: ignore[misc]
        for disk in disks(request["nqn"]):
            with Path("/dev", disk.name).open("rb", buffering=0) as device:
                fcntl.ioctl(device, SET_READ_ONLY, struct.pack("=i", 1))
        return
    (controller,), (disk,) = controllers(request["nqn"]), disks(request["nqn"])
    # What the kernel chooses where there is a queue for each of several processors. Where there is one, it
    # chooses mq-deadline (elevator_get_default() in block/elevator.c), which makes sequential I/Os that wait
    # into one, and a core that could work on the next one then waits for all of them.
    (queue(controller) / "scheduler").write_text("none")
    if request["read_only"]:
        protect(controller, disk)


def admin(
    controller: Path, opcode: int, data: array.array[int], *, namespace: int = 0, words: tuple[int, ...]
) -> None:
    """An admin command; its data comes back in ``data``. ``words`` are its command dwords 10 to 15."""
    address, length = data.buffer_info()
    command = bytearray(
        struct.pack(
            "=BBHIIIQQII6III",
            *(opcode, 0, 0, namespace, 0, 0, 0),
            *(address if length else 0, 0, length),
            *(*words, *[0] * (6 - len(words))),
            *(0, 0),
        )
    )
    with Path("/dev", controller.name).open("rb", buffering=0) as device:
        status = fcntl.ioctl(device, ADMIN_COMMAND, command, True)
    if status:
        raise OSError(f"{controller.name} refused the admin command {opcode:#x} with status {status:#x}")


def protect(controller: Path, disk: Path) -> None:
    """Have the target refuse all writes to the namespace, and wait until the kernel knows."""
    number = int((disk / "nsid").read_text())
    admin(controller, SET_FEATURES, array.array("B"), namespace=number, words=(WRITE_PROTECT, 1))
    (controller / "rescan_controller").write_text("1")
    wait_until(lambda: (disk / "ro").read_text().strip() == "1", f"{disk.name} did not become read-only")


def tell(request: dict[str, Any]) -> dict[str, Any]:
    """The negotiated state of a connection. Lengths are in bytes."""
    (controller,), disk = controllers(request["nqn"]), only(request)
    data = array.array("B", bytes(4096))
    admin(controller, IDENTIFY, data, words=(CONTROLLER,))
    # NVM Express Base Specification 2.0, figure 275, and for fabrics its section 6.
    (capsule_units,) = struct.unpack_from("<I", data, 1792)
    transfer = data[77]
    agreed = {
        name: (controller / name).read_text().strip()
        for name in ("transport", "queue_count", "sqsize", "kato", "cntlid")
    }
    for name in ("reconnect_delay", "ctrl_loss_tmo", "fast_io_fail_tmo"):
        with contextlib.suppress(FileNotFoundError):
            agreed[name] = (controller / name).read_text().strip()
    with contextlib.suppress(FileNotFoundError):  # before Linux 6.7, or without a key
        agreed["tls_key"] = (controller / "tls_key").read_text().strip()
    agreed |= {name: (queue(controller) / name).read_text().strip() for name in QUEUE}
    agreed |= {
        # 0 stands for no limit.
        "max_transfer_bytes": str(PAGE_BYTES << transfer if transfer else 0),
        "in_capsule_bytes": str(max(0, 16 * capsule_units - 64)),
    }
    return {"controller": controller.name, "disk": disk.name, "agreed": agreed}


def disconnect(request: dict[str, Any]) -> None:
    nqn, host_nqn = request["nqn"], request.get("host_nqn") or ""
    for controller in controllers(nqn, host_nqn):
        with contextlib.suppress(FileNotFoundError):
            (controller / "delete_controller").write_text("1")
    wait_until(
        lambda: not controllers(nqn, host_nqn) and not (disks(nqn) and not controllers(nqn)),
        f"the controller of {nqn} did not go",
    )


if __name__ == "__main__":
    answer({"discover": discover, "connect": connect, "tell": tell, "disconnect": disconnect})
