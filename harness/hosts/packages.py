"""The lists of system packages: which are missing here, and the command that installs them.

packages.txt says who needs each package. The other lists add to it, each for its own purpose.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.hosts import programs, runner
from harness.model.errors import RequirementError
from harness.parse.profiles import data_folder

ALL = "packages.txt"
KERNEL = "packages-kernel.txt"
"""The packages for building and using the lab's own kernel."""

PATHS = "packages-paths.txt"
"""The packages for links with some kinds of hops; each package's text begins with the kind."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A line of a list: what shows that the package is installed, who needs it for what, and its
    purpose.

    Any one of ``names`` suffices. Of those that this release of Debian has, the first gets installed.
    ``needed_by``, only in packages.txt, has the needs (``ipsec``, ``wifi``, …, "" for every run) by role
    (``lab``, ``target``, …).
    """

    names: tuple[str, ...]
    shown_by: str
    purpose: str
    needed_by: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The one to install."""
        if len(self.names) == 1 or shutil.which("apt-cache") is None:
            return self.names[0]
        return next((name for name in self.names if _is_offered(name)), self.names[0])

    @property
    def word(self) -> str:
        """The word that ``facts.sh`` checks for it: the program or module that it brings, or its own name."""
        if self.shown_by == "-":
            return f"package:{self.name}"
        kind, _, module = self.shown_by.partition(":")
        return f"python:{module}" if module else f"program:{kind}"

    @property
    def installed(self) -> bool:
        """By the program or module that it brings; by dpkg only if it brings neither."""
        kind, _, module = self.shown_by.partition(":")
        if self.shown_by == "-":
            if shutil.which("dpkg-query") is None:
                return True  # not Debian: the other packages' lines check for its programs
            return installed_version(self.names) is not None
        if module:
            return runner.run([programs.PYTHON, "-c", f"import {module}"], check=False).status == 0
        return shutil.which(kind, path=runner.environment()["PATH"]) is not None

    def __str__(self) -> str:
        return f"{self.name} ({self.purpose})"


def _is_offered(name: str) -> bool:
    # `apt-get install` would take the dot of linux-source-6.1 for any character, and find linux-source-6.12.
    return runner.run(["apt-cache", "madison", name], check=False).stdout != ""


def installed_version(names: Sequence[str]) -> tuple[str, str] | None:
    """The first of ``names`` that is installed, by dpkg, with its version; None if none is."""
    for name in names:
        done = runner.run(["dpkg-query", "-W", "-f=${Status} ${Version}", name], check=False)
        status, _, version = done.stdout.rpartition(" ")
        if status == "install ok installed":
            return name, version
    return None


def listed(name: str = KERNEL) -> list[Package]:
    """The packages of a list."""
    lines = (data_folder() / name).read_text(encoding="utf-8").splitlines()
    return [_package(line, has_roles=name == ALL) for line in lines if line and not line.startswith("#")]


def _package(line: str, *, has_roles: bool) -> Package:
    names, shown_by, *who, purpose = line.split(maxsplit=3 if has_roles else 2)
    roles = (role.partition(":") for each in who for role in each.split(","))
    return Package(
        names=tuple(names.split("|")),
        shown_by=shown_by,
        purpose=purpose,
        needed_by={role: what for role, _, what in roles},
    )


def missing(name: str = KERNEL) -> list[Package]:
    return [package for package in listed(name) if not package.installed]


def require(kind: str) -> None:
    """RequirementError if a package is missing that hops of this kind need."""
    absent = [p for p in missing(PATHS) if p.purpose.startswith(f"{kind}:")]
    if absent:
        raise RequirementError(
            f"{kind} needs packages that are missing: {', '.join(p.name for p in absent)}",
            hint=install_command(absent),
        )


def install_command(packages: Sequence[Package]) -> str:
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install --no-install-recommends {' '.join(p.name for p in packages)}"
