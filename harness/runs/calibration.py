"""Virtual time: a fio that does not spin on its clock before it starts (``programs/calibrate.c``)."""

from __future__ import annotations

from pathlib import Path

from harness.hosts import Host, programs

SOURCE = programs.path(__package__, "calibrate.c")


def shim(host: Host, folder: Path) -> dict[str, str]:
    """Compile it on a host, in a folder of its; returns the environment that a fio there is to be given."""
    library = folder / "calibrate.so"
    argv = ["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-", "-ldl"]
    host.run(argv, input=SOURCE.read_text(encoding="utf-8"), timeout_s=60)
    return {"LD_PRELOAD": str(library)}
