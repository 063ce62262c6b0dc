"""The lists of system packages: which are missing here, and the command that installs them.

packages.txt says who needs each package. The other lists add to it, each for its own purpose.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.hosts import programs, releases, runner
from harness.hosts.programs.local_operations import environment
from harness.hosts.releases import LinuxDistribution
from harness.model.errors import RequirementError
from harness.parse.profiles import data_folder

ALL = "packages.txt"
KERNEL = "packages-kernel.txt"
"""The packages for building and using the custom kernel."""

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
        """The one to install: the first of apt's lists; without lists that of releases/ for this release."""
        if len(self.names) == 1 or shutil.which("apt-cache") is None:
            return self.names[0]
        offered = next((name for name in self.names if _is_offered(name)), None)
        return offered or _named_in_releases(self.names) or self.names[0]

    @property
    def word(self) -> str:
        """The word that ``facts.sh`` checks for it: the program or module that it brings, or its own name."""
        if self.shown_by == "-":
            return f"package:{self.name}"
        kind, _, module = self.shown_by.partition(":")
        return f"python:{module}" if module else f"program:{kind}"

    @property
    def brings(self) -> str:
        """What to look for where no package's name is known."""
        kind, _, what = self.word.partition(":")
        return f"Python's {what}" if kind == "python" else what

    @property
    def installed(self) -> bool:
        """By the program or module that it brings; by the package manager only if it brings neither."""
        kind, _, module = self.shown_by.partition(":")
        if self.shown_by == "-":
            if shutil.which("dpkg-query") is not None:
                return installed_version(self.names) is not None
            system = releases.here()
            names = system.names_of(self.names) if system is not None else None
            if system is None or not names or system.manager not in QUERIES:
                return True  # the other packages' lines check for programs
            return runner.run([*QUERIES[system.manager], *names], check=False).status == 0
        if module:
            # Not from the folder that the user works in, whose files may be anybody's.
            return runner.run([programs.PYTHON, "-I", "-c", f"import {module}"], check=False).status == 0
        return shutil.which(kind, path=environment()["PATH"]) is not None

    def __str__(self) -> str:
        return f"{self.name} ({self.purpose})"


QUERIES = {"dnf": ("rpm", "--query"), "zypper": ("rpm", "--query"), "pacman": ("pacman", "-Qq")}
"""What fails if a package is not installed, by package manager; dpkg-query(1) has an answer of its own."""


def are_offered(names: Sequence[str]) -> bool:
    """Whether this release of Debian has any of these packages. True if apt has no lists yet: it may."""
    if shutil.which("apt-cache") is None:
        return False
    # In the image of a container apt mostly does not know what this release has.
    return any(map(_is_offered, names)) or not _is_offered("libc6-dev")


def _named_in_releases(names: Sequence[str]) -> str | None:
    """The first of ``names`` that the kernel of this release is made of."""
    release = releases.release_here()
    words = re.split(r"[ ;,()]+", release.kernel) if release is not None else ()
    return next((name for name in names if name in words), None)


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
    """The command that installs packages on this machine."""
    system = releases.here()
    if system is None and shutil.which("apt-get") is not None:
        system = releases.named(["debian"])
    return command(system, packages, is_root=os.geteuid() == 0)


def command(system: LinuxDistribution | None, packages: Sequence[Package], *, is_root: bool) -> str:
    """The command that installs packages on a distribution.

    What it has no name for is named by what it provides. apt has no lists in images of containers and clouds,
    and in old ones packages that are gone, so it gets them first.
    """
    names: list[str] = []
    rest = []
    for package in packages:
        found = system.names_of(package.names) if system is not None else None
        if system is not None and found == package.names[:1] and system.names_as:
            found = (package.name,)  # of several, the one that this release has
        if found:
            names += found
        else:
            rest.append(package.brings)
    parts = []
    if system is not None and names:
        steps = ["apt-get update"] * (system.manager == "apt-get")
        steps.append(f"{system.install} {' '.join(dict.fromkeys(names))}")
        parts.append(" && ".join(step if is_root else f"sudo {step}" for step in steps))
    if rest:
        parts.append(f"install what provides {', '.join(rest)}")
    return ", and ".join(parts)


def lacking(absent: Iterable[Package], what: str = "the custom kernel") -> RequirementError:
    """The error that names all packages that ``what`` needs, and the command that installs them."""
    absent = list(absent)
    return RequirementError(
        f"{what} needs packages that are missing: {', '.join(map(str, absent))}",
        hint=install_command(absent),
    )
