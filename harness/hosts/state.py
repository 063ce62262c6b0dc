"""Files that must survive a killed run: the lock with its owner, and the journals.

Each user has one folder on a file system that a reboot empties, and one on a disk for what survives a reboot.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from harness.hosts.programs import local_operations
from harness.model.errors import BusyError, RequirementError
from harness.model.texts import Prose


class Owner(msgspec.Struct, frozen=True):
    """The holder of the testbed."""

    pid: int
    run_id: Prose
    since: Prose


class NotOwn(RequirementError):
    """Somebody else has a folder of that name: its journals could name anything for removal."""


def state_folder() -> Path:
    """The user's folder, made if absent: /run/harness for root, else one in /tmp; if none can be made there,
    or somebody else has made it, in /dev/shm or $TMPDIR.

    RequirementError if it can be nowhere, or if others may write to it.
    """
    refused = []
    places = _places()
    for place in places:
        try:
            if _is_writable(place):
                return place
            refused.append(f"{place} (read-only)")
        except NotOwn:
            refused.append(f"{place} (another user's)")
        except OSError as error:
            refused.append(f"{place} ({error.strerror})")
    raise RequirementError(
        f"expected a folder for the lock and the journals, but none could be made: {', '.join(refused)}",
        hint="make room in one of them, or set TMPDIR to a folder that you may write to",
    )


def _is_writable(place: Path) -> bool:
    """Whether the user's folder, made if absent, is on a file system that takes files."""
    while True:
        own_folder(place)
        # Its last holder may just have removed it. With another folder, two runs would hold a testbed each.
        with contextlib.suppress(FileNotFoundError):
            return not os.statvfs(place).f_flag & os.ST_RDONLY


def _places() -> list[Path]:
    # Not $XDG_RUNTIME_DIR: a run from a login session and one from cron must find each other.
    uid = os.geteuid()
    own = f"harness-{uid}"
    places = [Path("/run/harness")] if uid == 0 else []
    places += [Path(folder, own) for folder in ("/tmp", "/dev/shm")]  # noqa: S108
    if asked := os.environ.get("TMPDIR"):
        places.append(Path(asked, own))
    return places


DISK = Path("/var/lib")
"""Root's folder for what has to survive a reboot (FHS 3.0, section 5.8)."""


def lasting_folder() -> Path:
    """The user's folder on a disk, which may not exist yet: /var/lib/harness for root, else one in
    /var/tmp."""
    # Root of a user namespace may not write there either.
    is_root = os.access(DISK, os.W_OK)
    return DISK / "harness" if is_root else Path(f"/var/tmp/harness-{os.geteuid()}")  # noqa: S108


def own_folder(folder: Path) -> Path:
    """A folder that only this user may write to, made if absent; RequirementError if it is anything else,
    NotOwn if it is another user's."""
    hint = f"look at what it is, then remove it: rm -r {folder}"
    try:
        return local_operations.own_folder(folder)
    except local_operations.FolderNotOwn as error:
        raise NotOwn(str(error), hint=hint) from error
    except local_operations.Exposed as error:
        raise RequirementError(str(error), hint=hint) from error


@contextlib.contextmanager
def exclusive(run_id: str) -> Iterator[Path]:
    """Hold the testbed for one run; yields the state folder. BusyError names the holder.

    The kernel drops the lock with its process, so a killed run never blocks the next one. Afterwards the
    folder is removed, unless a journal in it still names something.
    """
    folder = state_folder()
    path = folder / "lock"
    with locked(path) as file:
        # Again: it may have been made anew in the meantime, and then by anybody.
        own_folder(folder)
        owner = Owner(os.getpid(), run_id, time.strftime("%Y-%m-%d %H:%M:%S"))
        file.truncate(0)
        file.write(msgspec.json.encode(owner))
        file.flush()
        try:
            yield folder
        finally:
            # Folders may be left on which a testbed had mounted something. Removing such a place would also
            # remove what an agent has mounted there in its own namespace.
            if not any(folder.glob("*.lock")):
                for place in folder.glob("*"):
                    with contextlib.suppress(OSError):
                        place.rmdir()
            # From here on the folder may be the next holder's. Its lock keeps it, and so do journals.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    path.unlink()
            with contextlib.suppress(OSError):
                folder.rmdir()


def locked(path: Path) -> BinaryIO:
    """A file, open and locked; made if absent. BusyError if somebody else has locked it."""
    file = local_operations.locked(path)
    if file is None:
        raise BusyError(
            f"the testbed is in use by {_describe_owner(path)}",
            hint="wait for it, or end that process; two runs at once would measure each other",
        )
    return file


def owner() -> Owner | None:
    """Who holds this user's testbed; None if nobody does, or if its process is gone."""
    for place in _places():
        try:
            if place.lstat().st_uid != os.geteuid():
                continue
            found = msgspec.json.decode((place / "lock").read_bytes(), type=Owner)
        except (OSError, msgspec.DecodeError):
            continue
        # Not by the lock: to hold it for a moment, even shared, would refuse a run that begins just then.
        if Path(f"/proc/{found.pid}").exists():
            return found
    return None


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock of a file, which is not made for that."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _describe_owner(path: Path) -> str:
    try:
        owner = msgspec.json.decode(path.read_bytes(), type=Owner)
    except (OSError, msgspec.DecodeError):
        return "another run that has only just begun"
    return f"run {owner.run_id} (process {owner.pid}, since {owner.since})"
