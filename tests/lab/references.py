"""Figures of virtual time, by what made them: the same to the last digit, whichever machine it is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from harness.testbeds.lab.kernels import kernel, source

FOLDER = Path(__file__).parents[1] / "data" / "virtual"


def folder() -> Path:
    """That of this system, which may not exist yet.

    A version of Linux has a TCP of its own, and one of fio its own order of random blocks. That of fio also
    tells Debian's releases apart, and with them tc(8): Debian 12's makes 49.984 us of a delay of 50 us.
    """
    major, minor = source.version_of(kernel.recipe().source_version)
    fio = shutil.which("fio")
    assert fio is not None
    version = subprocess.run([fio, "--version"], capture_output=True, encoding="utf-8", check=True)
    return FOLDER / f"linux-{major}.{minor}-{version.stdout.strip()}"
