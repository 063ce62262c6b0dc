"""System packages beside those of packages.txt: what is missing of a list, and what installs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from harness import programs
from harness import run as runner
from harness.errors import RequirementError
from harness.profiles import data_folder

KERNEL = "packages-kernel.txt"
"""What building and using the lab's own kernel needs on top of packages.txt (``harness.requirements``)."""

PATHS = "packages-paths.txt"
"""What links with hops of some kinds need, whose word begins what is said of a package."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A line of a list: what shows that the package is there, and what needs it."""

    name: str
    shown_by: str
    needed_by: str

    @property
    def installed(self) -> bool:
        """By the program or module that it brings; by dpkg only where it brings neither."""
        kind, _, module = self.shown_by.partition(":")
        if self.shown_by == "-":
            if shutil.which("dpkg-query") is None:
                return True  # not Debian: its programs are looked for by the other packages' lines
            done = runner.run(["dpkg-query", "-W", "-f=${Status}", self.name], check=False)
            return done.stdout == "install ok installed"
        if module:
            return runner.run([programs.PYTHON, "-c", f"import {module}"], check=False).status == 0
        return shutil.which(kind, path=runner.environment()["PATH"]) is not None

    def __str__(self) -> str:
        return f"{self.name} ({self.needed_by})"


def listed(name: str = KERNEL) -> list[Package]:
    """The packages of a list."""
    lines = (data_folder() / name).read_text(encoding="utf-8").splitlines()
    return [
        Package(name=fields[0], shown_by=fields[1], needed_by=fields[2])
        for line in lines
        if line and not line.startswith("#") and len(fields := line.split(maxsplit=2)) == 3
    ]


def missing(name: str = KERNEL) -> list[Package]:
    return [package for package in listed(name) if not package.installed]


def require(kind: str) -> None:
    """RequirementError if a package is missing that hops of this kind need."""
    absent = [p for p in missing(PATHS) if p.needed_by.startswith(f"{kind}:")]
    if absent:
        raise RequirementError(
            f"{kind} needs packages that are missing: {', '.join(p.name for p in absent)}",
            hint=install_command(absent),
        )


def install_command(packages: Sequence[Package]) -> str:
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install --no-install-recommends {' '.join(p.name for p in packages)}"
