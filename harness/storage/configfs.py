"""configfs, where the kernel's targets are set up (Documentation/filesystems/configfs.rst)."""

from __future__ import annotations

import contextlib

from harness.hosts import Host
from harness.model.errors import CommandFailed

CONFIGFS = "/sys/kernel/config"


def mount(host: Host, subsystem: str) -> None:
    """Mount configfs in its usual place. The mount stays, as after any use.

    ``subsystem`` is the folder of the target to configure. If it does not appear, its user reports why.
    """
    found: list[str] = []
    with contextlib.suppress(CommandFailed):
        found = host.list_folder(CONFIGFS)
    if subsystem not in found:
        host.run(["mount", "-t", "configfs", "configfs", CONFIGFS], check=False)
