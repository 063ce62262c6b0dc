"""What each testbed can do here: every missing requirement at once, and the command that mends it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from harness import lab, packages
from harness import run as runner
from harness.errors import HarnessError
from harness.lab import kernel

HOST_MODULES = (
    *("target_core_mod", "iscsi_target_mod", "target_core_iblock", "target_core_file", "brd"),
    *("iscsi_tcp", "sd_mod", "veth", "sch_netem", "bridge", "ifb", "cls_matchall", "act_mirred"),
    *("xfrm_user", "esp4"),
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at. ``mend`` is a command or an advice, empty if all is well.

    ``testbed`` is ``both``, ``lab``, ``kernel`` (the lab's own) or ``host``; the last two may lack.
    """

    testbed: str
    ok: bool
    text: str
    mend: str = ""


def findings() -> Iterator[Finding]:
    """Look at everything that the testbeds need; one finding each, nothing is changed."""
    missing = packages.missing(packages.RUN)
    if missing:
        yield Finding(
            testbed="both",
            ok=False,
            text=f"packages are missing: {', '.join(map(str, missing))}",
            mend=packages.install_command(missing),
        )
    else:
        yield Finding(
            testbed="both", ok=True, text=f"all {len(packages.listed(packages.RUN))} packages are installed"
        )
    yield from _lab_findings()
    yield _kernel_finding()
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


def _kernel_finding() -> Finding:
    build = "harness kernel build"
    absent = packages.missing(packages.KERNEL)
    if absent:
        names = ", ".join(package.name for package in absent)
        text, mend = f"the lab's own kernel cannot be built without {names}", packages.install_command(absent)
        return Finding(testbed="kernel", ok=False, text=text, mend=f"{mend} && {build}")
    found = kernel.cached(kernel.recipe())
    if found is None:
        text = "the lab's own kernel, for real WiFi, modelled disks and virtual time, is not built"
        return Finding(testbed="kernel", ok=False, text=text, mend=build)
    return Finding(
        testbed="kernel", ok=True, text=f"the lab's own kernel {found.built.release} is built: {found.folder}"
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
