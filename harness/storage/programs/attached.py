"""Reports what a path is and how it is attached to this machine, from sysfs and the mount table only.

One request on standard input (JSON), an answer on standard output. It runs by itself under the distribution's
Python. Nothing is opened but these files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

from harness.hosts.programs.answering import answer

SYSFS, MOUNTS = Path("/sys"), Path("/proc/self/mountinfo")
NETWORK = {
    **dict.fromkeys(("nfs", "nfs4"), "nfs"),
    **dict.fromkeys(("cifs", "smb3"), "smb"),
    **dict.fromkeys(("glusterfs", "fuse.glusterfs"), "glusterfs"),
    **dict.fromkeys(("ceph", "fuse.ceph-fuse"), "ceph"),
    "fuse.sshfs": "sshfs",
    "9p": "9p",
    "afs": "afs",
}
"""File systems whose storage is another machine's, by the kernel's names: ``model.FILE_SYSTEMS``."""
REPORTED = ("vers", "rsize", "wsize", "proto", "nconnect", "sec", "hard", "soft", "sync", "cache", "seal")
"""Mount options of such a file system that describe the path there: nfs(5), mount.cifs(8)."""


def text(path: Path) -> str:
    """A file of sysfs, "" if it does not exist or is not readable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def disk(number: str) -> dict[str, Any]:
    """A block device by its major:minor: its node, what it says of itself, and what attached it."""
    folder = Path(os.path.realpath(SYSFS / "dev/block" / number))
    whole = folder.parent if (folder / "partition").exists() else folder
    makers = [text(whole / "device" / name) for name in ("vendor", "model")]
    return {
        "node": f"/dev/{folder.name.replace('!', '/')}",
        "size_bytes": int(text(folder / "size") or 0) * 512,
        "identity": next(filter(None, (text(whole / n) for n in ("wwid", "device/wwid", "dm/uuid"))), ""),
        "makers": " ".join(word for word in makers if word and not word.startswith("0x")),
        "by": by(whole),
    }


def by(whole: Path) -> str:
    """What attached a disk: its session, its bus, or what it is made of."""
    if session := re.search(r"/(session[0-9]+)/", f"{whole}/"):
        target = text(SYSFS / "class/iscsi_session" / session[1] / "targetname")
        connection = SYSFS / "class/iscsi_connection" / f"connection{session[1][7:]}:0"
        return f"iSCSI from {text(connection / 'address')}:{text(connection / 'port')}, {target}"
    if text(whole / "device/transport") not in ("", "pcie"):
        where = dict(word.partition("=")[::2] for word in text(whole / "device/address").split(","))
        at = f"{where.get('traddr', '?')}:{where.get('trsvcid', '?')}"
        return (
            f"NVMe/{text(whole / 'device/transport').upper()} from {at}, {text(whole / 'device/subsysnqn')}"
        )
    if whole.name.startswith("nbd"):
        return f"NBD {text(whole / 'backend')}".strip()
    if (whole / "slaves").is_dir() and (below := sorted(p.name for p in (whole / "slaves").iterdir())):
        first = Path(os.path.realpath(SYSFS / "class/block" / below[0]))
        kind = text(whole / "dm/uuid").partition("-")[0] or ("md" if (whole / "md").exists() else "")
        return f"{kind.lower() or 'made'} of {', '.join(below)} ({by(first)})"
    for part, bus in (
        ("/usb", "USB"),
        ("/ata", "SATA"),
        ("/nvme", "NVMe"),
        ("/virtio", "virtio"),
        ("/mmc", "MMC"),
    ):
        if part in str(whole):
            return bus
    return "loop device" if whole.name.startswith("loop") else "this machine's own"


def mount_of(path: str) -> tuple[str, str, str, str]:
    """The file system on which a path lies: its type, its source, its major:minor, and its options."""
    found: tuple[int, tuple[str, str, str, str]] = (-1, ("", "", "", ""))
    for line in MOUNTS.read_text(errors="replace").splitlines():
        mount, _, rest = line.partition(" - ")
        number, _, point, own = mount.split(" ")[2:6]
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
        within = path == point or path.startswith(point.rstrip("/") + "/")
        if within and len(point) >= found[0]:
            kind, source, common = rest.split(" ")[:3]
            found = (len(point), (kind, source, number, f"{own},{common}"))
    return found[1]


def behind(path: str) -> str:
    """What is behind a file: the file system and its disk, or the other machine's storage and how it is
    mounted."""
    filesystem, source, number, options = mount_of(path)
    if filesystem not in NETWORK and not number.startswith("0:"):
        with contextlib.suppress(OSError, ValueError):
            return f"{filesystem} on {source}, {disk(number)['by']}"
    reported = [word for word in options.split(",") if word.partition("=")[0] in REPORTED]
    return ", ".join([f"{filesystem} of {source}", *dict.fromkeys(reported)])


def filesystem(path: str) -> str | None:
    """The file system of another machine on which a path lies, by the name of its column; None on others."""
    return NETWORK.get(mount_of(path)[0])


def is_direct(path: Path) -> bool:
    """Whether a file, or a new one in a folder, can be opened past the page cache. A file without a name is
    gone when it is closed (open(2), O_TMPFILE); file systems without those are not asked."""
    flags = os.O_TMPFILE | os.O_RDWR if path.is_dir() else os.O_RDONLY
    try:
        os.close(os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        return error.errno != errno.EINVAL
    return True


def look(request: dict[str, Any]) -> dict[str, Any]:
    """``kind`` is device, file, folder, new (nothing, in a folder that is there) or another word."""
    path = Path(os.path.realpath(request["path"]))
    kind, size_bytes, identity = "new" if path.parent.is_dir() else "nothing", 0, ""
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        kinds = {stat.S_IFBLK: "device", stat.S_IFREG: "file", stat.S_IFDIR: "folder"}
        kind = kinds.get(stat.S_IFMT(status.st_mode), "socket or the like")
        if kind == "device":
            return {"kind": kind, **disk(f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}")}
        size_bytes, identity = status.st_size, str(status.st_ino)
    return {
        "kind": kind,
        "is_direct": is_direct(path if kind == "file" else path.parent),
        "node": str(path),
        "size_bytes": size_bytes,
        "identity": identity,
        "makers": "",
        "by": behind(str(path)),
        "filesystem": filesystem(str(path)),
    }


if __name__ == "__main__":
    answer({"look": look})
