"""configfs, where the kernel's targets are set up (Documentation/filesystems/configfs.rst)."""

from __future__ import annotations

from harness.hosts import Host

CONFIGFS = "/sys/kernel/config"


def mount(host: Host, subsystem: str) -> None:
    """Have configfs where it belongs; it stays, as after any use.

    ``subsystem`` is the folder of whoever is to be set up. Who uses it says what is wrong if it is not there.
    """
    if host.run(["test", "-d", f"{CONFIGFS}/{subsystem}"], check=False).status != 0:
        host.run(["mount", "-t", "configfs", "configfs", CONFIGFS], check=False)
