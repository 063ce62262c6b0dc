"""Makes and removes NBD exports on the target host, one request on standard input (JSON).

It runs by itself under the distribution's Python, perhaps on another machine. nbdkit's file plugin serves
what is in a folder, so an export is a symbolic link in there. All exports of a portal share a server, which
begins with the first and ends with the last. Removal of what is absent succeeds, and so does that of what a
killed run had made in part.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from harness.hosts.programs.answering import answer, wait_until

FILTERS = ("--filter=exportname", "--filter=fua")
SETTINGS = (
    # The names of exports are kept secret: a portal asks whoever connects for nothing else.
    "exportname-list=empty",
    # A write is on the disk when it is answered, as with LIO and nvmet, and what was read is read again.
    *("fuamode=force", "cache=none", "fadvise=random"),
)


class Portal:
    """Where a server listens, and its folder: ``exports`` has the links, ``devices`` the paths in files."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.address, self.port = request["address"], str(request["port"])
        self.folder = Path(request["folder"], f"{self.address}-{self.port}")
        self.exports, self.devices = self.folder / "exports", self.folder / "devices"
        self.process_file = self.folder / "process"

    def server(self) -> int | None:
        """The process that serves it. The file's number may be somebody else's by now."""
        try:
            number = int(self.process_file.read_text())
            words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return number if str(self.process_file).encode() in words else None

    def start(self, *, read_only: bool) -> None:
        """Returns when it listens, in the network namespace of this process; nbdkit goes on by itself."""
        argv = ["nbdkit", "--pidfile", str(self.process_file), "--ipaddr", self.address, "--port", self.port]
        argv += [*(["--readonly"] if read_only else []), *FILTERS, "file", f"dir={self.exports}", *SETTINGS]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError((done.stderr.strip().splitlines() or ["nbdkit did not start"])[-1])

    def stop(self) -> None:
        number = self.server()
        if number is None:
            return
        # Its clients have gone.
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
        wait_until(lambda: self.server() is None, f"nbdkit, process {number}, did not end")


def create(request: dict[str, Any]) -> None:
    portal = Portal(request)
    for folder in (portal.exports, portal.devices):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (portal.devices / request["export"]).write_text(f"{request['path']}\n")
    (portal.exports / request["export"]).symlink_to(request["path"])
    if portal.server() is None:
        portal.start(read_only=request["read_only"])


def delete(request: dict[str, Any]) -> None:
    portal = Portal(request)
    for folder in (portal.exports, portal.devices):
        (folder / request["export"]).unlink(missing_ok=True)
    if portal.exports.exists() and any(portal.exports.iterdir()):
        return
    portal.stop()
    portal.process_file.unlink(missing_ok=True)
    # Each before the one that has it.
    for folder in (portal.exports, portal.devices, portal.folder, *list(portal.folder.parents)[:2]):
        with contextlib.suppress(OSError):
            folder.rmdir()


def create_outage(request: dict[str, Any]) -> None:
    Portal(request).stop()


def delete_outage(request: dict[str, Any]) -> None:
    portal = Portal(request)
    if portal.server() is None and portal.exports.exists():
        portal.start(read_only=request["read_only"])


if __name__ == "__main__":
    answer(
        {
            "create": create,
            "delete": delete,
            "create-outage": create_outage,
            "delete-outage": delete_outage,
        }
    )
