"""configfs, where the kernel's targets are set up (Documentation/filesystems/configfs.rst)."""

from __future__ import annotations

from harness.hosts import Host

CONFIGFS = "/sys/kernel/config"


def mount(host: Host, subsystem: str) -> None:
    """Mount configfs in its usual place. The mount stays, as after any use.

    ``subsystem`` is the folder of the target to configure. If it does not appear, its user reports why.
    """
    if host.run(["test", "-d", f"{CONFIGFS}/{subsystem}"], check=False).status != 0:
        host.run(["mount", "-t", "configfs", "configfs", CONFIGFS], check=False)
