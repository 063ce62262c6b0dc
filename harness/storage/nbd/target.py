"""The target side: an export of nbdkit's, made by ``programs/target.py``."""

from __future__ import annotations

import msgspec

from harness.hosts import Host
from harness.hosts.footprint import Leftover
from harness.hosts.undo import UndoStep
from harness.storage.nbd import step
from harness.storage.requests import ask
from harness.storage.transport import Exported

SOFTWARE = ("nbdkit", "--version")

FOLDER = "/run/harness/nbd"
"""Has a folder for each run, by its tag."""

EXPORTED = Exported(
    devices=f"{FOLDER}/*/*/devices/*",
    name=(5, 6),
    as_what="over NBD at the portal",
    process="../process",
)
"""By run, portal and export: a file with the path of what is exported."""

LEAVES = (
    Leftover(
        what="the NBD portal",
        names=f'ls {FOLDER}/"$1" 2>/dev/null',
        where=f'{FOLDER}/"$1"',
    ),
)


class NbdExport(msgspec.Struct, frozen=True):
    """An export at one portal, for whoever knows its name. ``path`` is a block device or a file.

    Exports of a portal are all ``read_only`` or none.
    """

    export: str
    path: str
    address: str
    port: int
    folder: str
    read_only: bool = False

    def acquire(self, host: Host) -> None:
        host.run(SOFTWARE)  # RequirementError if there is none
        ask(host, step("target", "create", **msgspec.to_builtins(self)), "nbdkit refused")

    def undo(self) -> tuple[UndoStep, ...]:
        names = {"export": self.export, "address": self.address, "port": self.port, "folder": self.folder}
        return (step("target", "delete", **names),)
