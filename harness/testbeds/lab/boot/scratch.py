"""The folders on the machine for a lab's files and memory while it runs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from harness.hosts import Host
from harness.hosts.undo import UndoStep
from harness.model.errors import RequirementError
from harness.parse.files import Room

MIB = 1 << 20


class ScratchFolder(msgspec.Struct, frozen=True):
    """A private folder for what the lab needs on the machine while it runs."""

    lasting: ClassVar[bool] = True

    path: str

    def acquire(self, host: Host) -> None:
        host.run(["mkdir", "-m", "0700", self.path])

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("rm", "-rf", "--one-file-system", self.path)),)


DISK_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108
MEMORY_FOLDERS = ("/dev/shm", *DISK_FOLDERS)  # noqa: S108


def roomy_folder(size_bytes: int, candidates: Sequence[str]) -> Path:
    """The first folder with ``size_bytes`` free that allows execution; $TMPDIR comes first.

    The lab's memory is a file that is mapped with PROT_EXEC. A container's /dev/shm often has only 64 MB,
    which would end in SIGBUS, or is noexec, which ends at once.
    """
    asked = os.environ.get("TMPDIR")
    tried = []
    for folder in dict.fromkeys((asked, *candidates) if asked else candidates):
        if not re.fullmatch(r"/[\w./-]*", folder):
            # It becomes a word of the kernel's command line.
            tried.append(f"{folder!r} (not absolute, or unusual characters in its name)")
        elif not Path(folder).is_dir():
            tried.append(f"{folder} (no folder)")
        elif not os.access(folder, os.W_OK):
            tried.append(f"{folder} (not writable)")
        elif os.statvfs(folder).f_flag & os.ST_NOEXEC:
            tried.append(f"{folder} (noexec)")
        elif (room := Room.of(folder)).files == 0:
            tried.append(f"{folder} (no inodes left)")
        elif room.free_bytes < size_bytes:
            tried.append(f"{folder} ({room.free_bytes // MIB} MiB free)")
        else:
            return Path(folder)
    raise RequirementError(
        f"the lab needs a folder with {size_bytes // MIB} MiB free that allows execution; "
        f"none of these does: {', '.join(tried)}",
        hint="set TMPDIR to such a folder",
    )
