"""Virtual time: keeps fio from spinning on its clock before it starts (``programs/calibrate.c``)."""

from __future__ import annotations

from pathlib import Path

from harness.hosts import Host, programs

SOURCE = programs.path(__package__, "calibrate.c")


def shim(host: Host, folder: Path) -> dict[str, str]:
    """Compile it on a host, in a folder there; returns the environment for a fio on that host."""
    library = folder / "calibrate.so"
    argv = ["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-", "-ldl"]
    host.run(argv, input=SOURCE.read_text(encoding="utf-8"), timeout_s=60)
    return {"LD_PRELOAD": str(library)}
