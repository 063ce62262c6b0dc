"""Volumes that are attached to the initiator already, whatever attached them: only read, or a new file in
them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import msgspec

from harness.hosts import Host
from harness.model import AttachedVolume
from harness.model.errors import CellInvalid, UsageError
from harness.model.escape import printable
from harness.storage import requests
from harness.storage.backing import ReadyStorage
from harness.storage.guard import check_path

_step = functools.partial(requests.step, __package__)


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What a path is (``kind``), and what attached it (``by``), as its host sees it."""

    kind: str
    node: str
    size_bytes: int
    identity: str
    makers: str
    by: str


def look(host: Host, path: str) -> Looked:
    """UsageError unless the path is a block device, a file, or a new name in a folder."""
    check_path(path)
    reported = requests.reported(host, _step("attached", "look", path=path), f"{path} cannot be looked at")
    found = msgspec.convert(reported, Looked)
    if found.kind not in ("device", "file", "new"):
        what = "nothing of that name" if found.kind == "nothing" else f"a {found.kind}"
        hint = f"name a new file in it, which is made and removed: --volume {path.rstrip('/')}/bench.img"
        raise UsageError(
            printable(f"expected {path} to be a block device, a file, or a new file's name, found {what}"),
            hint=printable(hint) if found.kind == "folder" else "`lsblk --paths` lists the devices",
        )
    return found


@contextlib.contextmanager
def reading(host: Host, volume: AttachedVolume, size_bytes: int) -> Iterator[ReadyStorage]:
    """A volume to be read, if it still is the one that was planned with; CellInvalid if not."""
    found = look(host, volume.path)
    if (found.identity, found.kind == "new") != (volume.identity, False) or found.size_bytes < size_bytes:
        raise CellInvalid(
            printable(f"expected {volume.path} still to be the same volume, found another or a smaller one"),
            hint="begin a new run",
        )
    yield ReadyStorage(path=found.node, size_bytes=size_bytes)
