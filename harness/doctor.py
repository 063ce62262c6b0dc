"""What each testbed can do here: every missing requirement at once, and the command that mends it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from harness import lab, programs
from harness import run as runner
from harness.errors import HarnessError
from harness.profiles import data_folder

HOST_MODULES = (
    *("target_core_mod", "iscsi_target_mod", "target_core_iblock", "target_core_file", "brd"),
    *("iscsi_tcp", "sd_mod", "veth", "sch_netem", "bridge", "ifb", "cls_matchall", "act_mirred"),
    *("xfrm_user", "esp4"),
)


@dataclass(frozen=True, kw_only=True)
class Package:
    """A line of packages.txt: what shows that the package is there, and what needs it."""

    name: str
    shown_by: str
    needed_by: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at. ``mend`` is a command or an advice, empty if all is well."""

    testbed: str
    ok: bool
    text: str
    mend: str = ""


def packages() -> list[Package]:
    """The system packages of the project, as packages.txt lists them."""
    lines = (data_folder() / "packages.txt").read_text(encoding="utf-8").splitlines()
    return [
        Package(name=fields[0], shown_by=fields[1], needed_by=fields[2])
        for line in lines
        if line and not line.startswith("#") and len(fields := line.split(maxsplit=2)) == 3
    ]


def is_installed(package: Package) -> bool:
    """By the program or module that it brings; by dpkg only where it brings neither."""
    kind, _, module = package.shown_by.partition(":")
    if package.shown_by == "-":
        if shutil.which("dpkg-query") is None:
            return True  # not Debian: its programs are looked for by the other packages' lines
        done = runner.run(["dpkg-query", "-W", "-f=${Status}", package.name], check=False)
        return done.stdout == "install ok installed"
    if module:
        return runner.run([programs.PYTHON, "-c", f"import {module}"], check=False).status == 0
    return shutil.which(kind, path=runner.environment()["PATH"]) is not None


def missing_packages() -> list[Package]:
    return [package for package in packages() if not is_installed(package)]


def findings() -> Iterator[Finding]:
    """Look at everything that the testbeds need; one finding each, nothing is changed."""
    missing = missing_packages()
    if missing:
        names = [package.name for package in missing]
        sudo = "" if os.geteuid() == 0 else "sudo "
        yield Finding(
            testbed="both",
            ok=False,
            text="packages are missing: " + ", ".join(f"{p.name} ({p.needed_by})" for p in missing),
            mend=f"{sudo}apt-get install --no-install-recommends {' '.join(names)}",
        )
    else:
        yield Finding(testbed="both", ok=True, text=f"all {len(packages())} packages are installed")
    yield from _lab_findings()
    yield from _host_findings()


def _lab_findings() -> Iterator[Finding]:
    for what, check in (
        ("user namespaces hold the lab together", lab.sandbox),
        ("a folder for its memory", lambda: lab.roomy_folder(lab.BASE_MEMORY_BYTES, lab.MEMORY_FOLDERS)),
        ("a folder for its files", lambda: lab.roomy_folder(lab.MIB, lab.DISK_FOLDERS)),
    ):
        try:
            found = check()
        except HarnessError as error:
            yield Finding(testbed="lab", ok=False, text=error.message, mend=error.hint or "")
        else:
            detail = "" if isinstance(found, list) else f": {found}"
            yield Finding(testbed="lab", ok=True, text=what + detail)
    if lab.needs_xstate_shim():
        yield Finding(
            testbed="lab",
            ok=True,
            text="this processor has AMX; the kernel gets a ptrace() that can deal with it",
        )


def _host_findings() -> Iterator[Finding]:
    if os.geteuid() != 0:
        yield Finding(
            testbed="host",
            ok=False,
            text="this machine's own kernel can only be used by root",
            mend="use the lab, or run as root with --testbed host",
        )
        return
    absent = [
        module
        for module in HOST_MODULES
        if runner.run(["modprobe", "--dry-run", "--quiet", module], check=False).status != 0
    ]
    if absent:
        yield Finding(
            testbed="host",
            ok=False,
            text=f"this machine's kernel lacks {', '.join(absent)}",
            mend="use the lab, or a kernel with these modules",
        )
    else:
        yield Finding(testbed="host", ok=True, text="this machine's kernel has all modules")
