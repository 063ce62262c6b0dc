"""Examines a block device and all that lies on it, on the host that owns it: ``survey.py KINDS PATH``.

``KINDS`` are JSON: what ``Exported`` of ``transport.py`` has of each kind of export.

This program runs by itself under the distribution's Python, perhaps on another machine: it imports nothing of
the harness. It only gathers facts, as JSON; ``guard.py`` decides what they mean.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any


def _text(path: Path) -> str:
    """A file of procfs or sysfs, "" if it does not exist or is not readable."""
    try:
        return path.read_bytes().replace(b"\0", b"").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def _number(path: str) -> str:
    """major:minor of the block device that an absolute path leads to, else ""."""
    try:
        status = Path(path).stat()
    except OSError:
        return ""
    if not path.startswith("/") or not stat.S_ISBLK(status.st_mode):
        return ""
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _unescaped(field: str) -> str:
    r"""A field of proc(5), which writes a blank as \040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _mounts(processes: list[str]) -> dict[str, dict[str, str]]:
    """Number of a device → mount point → a process that sees it there; every namespace and chroot once."""
    found: dict[str, dict[str, str]] = {}
    views = set()
    for process in ["self", *processes]:
        folder = Path("/proc", process)
        try:
            root = (folder / "root").stat()
            view = ((folder / "ns/mnt").readlink(), root.st_dev, root.st_ino)
        except OSError:
            continue  # it has ended, or is not readable
        if view in views:
            continue
        views.add(view)
        for line in _text(folder / "mountinfo").splitlines():
            mount, _, rest = line.partition(" - ")
            number, _, point = mount.split(" ")[2:5]
            if number.startswith("0:"):  # btrfs and similar file systems have numbers of their own
                number = _number(_unescaped(rest.split(" ")[1]))
            seen_by = "" if process == "self" else process
            found.setdefault(number, {}).setdefault(_unescaped(point), seen_by)
    return found


def _writers(processes: list[str]) -> dict[str, dict[str, str]]:
    """Number of a device → process → its name, if it has the device open for writing."""
    found: dict[str, dict[str, str]] = {}
    for process in processes:
        folder = Path("/proc", process)
        for descriptor in _names(folder / "fd"):
            link = folder / "fd" / descriptor
            try:
                # The name comes first: to access a file of a dead network file system could hang.
                number = _number(str(link)) if str(link.readlink()).startswith("/dev/") else ""
            except OSError:
                continue
            flags = re.search(r"^flags:\s*([0-7]+)", _text(folder / "fdinfo" / descriptor), re.MULTILINE)
            if number and flags and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                found.setdefault(number, {})[process] = _text(folder / "comm")
    return found


def _related(number: str, via: str, loops: dict[str, list[str]]) -> list[tuple[str, str]]:
    """(how, number) of what lies on a device, and of what it lies on as far as that can hold it."""
    folder = Path("/sys/dev/block", number).resolve()
    partition = (folder / "partition").exists()
    related = []
    if partition and via in ("", "backing"):
        related.append(("disk", _text(folder.parent / "dev")))
    # Unlike the device mapper and md, a loop device shares its file with others that use the file.
    if file := _text(folder / "loop/backing_file"):
        related.append(("backing", _number(file)))
    wwid = _text(folder / "device/wwid") or _text(folder / "wwid")
    if wwid and via in ("", "disk", "backing"):
        for name in _names(Path("/sys/block")):
            other = Path("/sys/block", name)
            if wwid == (_text(other / "device/wwid") or _text(other / "wwid")):
                related.append(("twin", _text(other / "dev")))
    if via != "disk":
        parts = [name for name in _names(folder) if (folder / name / "partition").exists()]
        related += [("partition", _text(folder / name / "dev")) for name in parts]
    related += [("holder", _text(folder / "holders" / name / "dev")) for name in _names(folder / "holders")]
    related += [("loop", loop) for loop in loops.get(number, [])]
    return [(how, other) for how, other in related if other]


def _serial(disk: Path) -> str:
    for name in ("serial", "device/serial", "dm/uuid", "loop/backing_file"):
        if text := _text(disk / name):
            return text
    try:
        return (disk / "device/vpd_pg80").read_bytes()[4:].decode("utf-8", "replace").strip("\0 ")
    except OSError:
        return ""


def _block(number: str, via: str, below: str) -> dict[str, Any]:
    """What sysfs reports of one device, and whether it can be opened exclusively."""
    folder = Path("/sys/dev/block", number).resolve()
    disk = folder.parent if (folder / "partition").exists() else folder
    event = dict(line.partition("=")[::2] for line in _text(folder / "uevent").splitlines())
    # DEVNAME has the slashes that the folder's name cannot have: cciss/c0d0.
    node = f"/dev/{event.get('DEVNAME', folder.name)}"
    problem, busy = "", False
    if _number(node) != number:
        problem = f"{node}, its node, is missing or leads to another device"
    elif via in ("", "partition", "backing"):
        try:
            # open(2): without O_CREAT, O_EXCL fails with EBUSY if the system uses the device.
            os.close(os.open(node, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            busy = error.errno == errno.EBUSY
            problem = "" if busy else os.strerror(error.errno or 0)
    return {
        "number": number,
        "via": via,
        "below": below,
        "node": node,
        "size_bytes": int(_text(folder / "size") or 0) * 512,
        "read_only": _text(folder / "ro") == "1",
        "serial": _serial(disk),
        "wwn": _text(disk / "wwid") or _text(disk / "device/wwid"),
        "model": _text(disk / "device/model"),
        "diskseq": _text(disk / "diskseq"),
        "dm_name": _text(folder / "dm/name"),
        "dm_uuid": _text(folder / "dm/uuid"),
        "md_level": _text(folder / "md/level"),
        "bcache": (folder / "bcache/set").exists() or (folder / "bcache/dev").exists(),
        "problem": problem,
        "busy": busy,
    }


def _exports(kinds: list[dict[str, Any]]) -> tuple[dict[str, dict[str, bool]], dict[str, set[str]]]:
    """Number of a device → how it is exported → whether that keeps others from opening it; and the processes
    that export it."""
    found: dict[str, dict[str, bool]] = {}
    servers: dict[str, set[str]] = {}
    for kind in kinds:
        for file in sorted(Path("/").glob(kind["devices"].lstrip("/"))):
            if kind["enabled"] and _text(file.with_name(kind["enabled"])) != "1":
                continue
            number = _number(_text(file))
            if kind["process"]:
                file_named = os.path.normpath(file.parent / kind["process"])
                process = _text(Path(file_named))
                # Its number may be another process's by now.
                if file_named.encode() not in _words(process):
                    continue
                servers.setdefault(number, set()).add(process)
            how = f"{kind['as_what']} {'/'.join(file.parts[slice(*kind['name'])])}"
            found.setdefault(number, {})[how] = kind["is_exclusive"]
    return found, servers


def _words(process: str) -> list[bytes]:
    """The command line of a process; [] if there is none of that number."""
    try:
        return Path("/proc", str(int(process)), "cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return []


def survey(path: str, kinds: list[dict[str, Any]]) -> dict[str, Any]:
    """A Survey, as plain data."""
    try:
        kind = stat.S_IFMT(Path(path).stat().st_mode)
    except FileNotFoundError:
        return {"found": "nothing of that name"}
    except OSError as error:
        return {"found": f"out of reach ({error.strerror})"}
    if kind != stat.S_IFBLK:
        others = {
            stat.S_IFREG: "a regular file",
            stat.S_IFDIR: "a directory",
            stat.S_IFCHR: "a character device",
        }
        return {"found": others.get(kind, "neither a file nor a device")}
    loops: dict[str, list[str]] = {}
    for name in _names(Path("/sys/block")):
        if file := _text(Path("/sys/block", name, "loop/backing_file")):
            loops.setdefault(_number(file), []).append(_text(Path("/sys/block", name, "dev")))
    exports, servers = _exports(kinds)
    btrfs = {_text(device / "dev"): device.parts[-3] for device in Path("/sys/fs/btrfs").glob("*/devices/*")}
    swaps = [_number(_unescaped(line.split()[0])) for line in _text(Path("/proc/swaps")).splitlines()[1:]]
    processes = [name for name in _names(Path("/proc")) if name.isdigit()]
    mounts, writers = _mounts(processes), _writers(processes)
    blocks: dict[str, dict[str, Any]] = {}
    todo = [("", _number(path), "")]
    while todo:
        via, number, below = todo.pop(0)
        if number in blocks:
            continue
        blocks[number] = {
            **_block(number, via, below),
            "btrfs": btrfs.get(number, ""),
            "swap": number in swaps,
            "mounts": mounts.get(number, {}),
            "exports": exports.get(number, {}),
            # Who exports it has it open for that.
            "writers": {
                process: name
                for process, name in writers.get(number, {}).items()
                if process not in servers.get(number, ())
            },
        }
        todo += [(how, other, number) for how, other in _related(number, via, loops)]
    return {"found": "", "blocks": list(blocks.values())}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(survey(sys.argv[2], json.loads(sys.argv[1]))))
