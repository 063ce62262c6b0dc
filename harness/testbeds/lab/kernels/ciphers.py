"""The processor's ciphers for Debian's user-mode kernel, which has generic ones: modules, built in a minute.

Debian's kernel takes modules of others: it has neither versions of symbols nor signatures
(CONFIG_MODVERSIONS, CONFIG_MODULE_SIG). They must be of exactly its source and its configuration, or
structures could differ. What makes user-mode Linux compile them is ``ciphers.patch``, as for the lab's own
kernel.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import subprocess
from pathlib import Path

from harness.hosts import packages, runner
from harness.hosts.journal import Journal
from harness.model import CIPHERS_CLOSED_SINCE, caches
from harness.model.errors import CommandFailed, RequirementError
from harness.testbeds.lab import boot
from harness.testbeds.lab.boot.scratch import MIB
from harness.testbeds.lab.kernels import kernel
from harness.testbeds.lab.kernels import source as sources
from harness.testbeds.lab.kernels.building import BUILDS, HERE, Report, Steps, keep, working
from harness.testbeds.lab.kernels.kernel import Recipe
from harness.testbeds.lab.kernels.source import Tarball

WHAT = "the processor's ciphers for Debian's kernel"
COMMAND = "harness kernel ciphers"
PATCHES = ("ciphers.patch", "rip.patch")
PACKAGES = "packages-ciphers.txt"
CACHE = (BUILDS, "ciphers")

MODULES = {
    "crypto/crypto_simd": "CRYPTO_SIMD",
    "arch/x86/crypto/aesni-intel": "CRYPTO_AES_NI_INTEL",
    "arch/x86/crypto/chacha-x86_64": "CRYPTO_CHACHA20_X86_64",
    "arch/x86/crypto/poly1305-x86_64": "CRYPTO_POLY1305_X86_64",
    "arch/x86/crypto/sha1-ssse3": "CRYPTO_SHA1_SSSE3",
    "arch/x86/crypto/sha256-ssse3": "CRYPTO_SHA256_SSSE3",
    "arch/x86/crypto/sha512-ssse3": "CRYPTO_SHA512_SSSE3",
}
"""The modules by their places in the source, and the option of each."""

USERS = ("esp4", "macsec", "algif_aead", "algif_skcipher", "algif_hash")
"""Modules that use ciphers: the processor's are loaded before them (softdep, modprobe.d(5)). On its own the
kernel looks for a module only if it knows no cipher of a name, and it knows generic ones."""

UNUSED = (
    *(f"{folder}/*.[chS]" for folder in ("drivers", "fs", "sound", "net", "samples")),
    *("Documentation/*.[rty]*", "tools/[a-nq-z]*", "arch/[a-tv-w]*/*.[chS]", "arch/*.dts*"),
)
"""What of the source is not unpacked, which would take half of the time. Kconfig files are needed."""

TOOLCHAIN = re.compile(r"(?:# )?CONFIG_(?:AS|CC|CLANG|GCC|LD|LLD|PAHOLE|RUSTC)_")
"""Lines of a configuration that say what compiled it, and may differ."""

SHOWN_BY = "rfc4106-gcm-aesni"
"""In /proc/crypto: what AES-GCM of ESP is then encrypted with."""

DOWNLOAD_DEADLINE_S = 900.0
BOOT_DEADLINE_S = 60.0

BUILD_BYTES = 600 * MIB
"""The source without what is not unpacked, its archive, and the objects. What is kept takes 1 MiB."""


def release() -> str:
    """That of Debian's kernel, such as 6.1.176, by the folder of its modules."""
    boot.debian_kernel()
    return max(folder.name for folder in boot.MODULES.iterdir() if (folder / "modules.dep").exists())


def are_possible() -> bool:
    """Whether this processor and Debian's kernel, if it is installed, can have them."""
    try:
        return not kernel.lacking_instructions() and sources.version_of(release()) < CIPHERS_CLOSED_SINCE
    except RequirementError:
        return False


def recipe() -> Recipe:
    """What determines the modules, but for the compiler: without one they are of use, too.

    RequirementError without Debian's kernel.
    """
    found = release()
    binary = boot.debian_kernel().binary
    version = sources.version_of(found)
    texts = {
        name: (HERE / name).read_text(encoding="utf-8") for name in PATCHES if sources.is_for(name, version)
    }
    texts["config"] = runner.run([str(binary), "--showconfig"]).stdout
    texts["options"] = "".join(f"CONFIG_{option}=m\n" for option in MODULES.values())
    return Recipe(source_version=found, compiler="", files=texts)


def cached() -> boot.Kernel | None:
    """Debian's kernel with these modules, if they have been built where the lab sees them."""
    try:
        folder = _folder(recipe())
        boot.require_visible(folder, WHAT)
    except RequirementError:
        return None
    return _kernel(folder) if folder.exists() else None


def _folder(wanted: Recipe) -> Path:
    return caches.folder(*CACHE, wanted.key)


def _kernel(folder: Path) -> boot.Kernel:
    return dataclasses.replace(boot.debian_kernel(), modules=folder / "lib" / "modules")


def build(report: Report) -> bool:
    """Build them, if they are not in the cache; whether they had to be built.

    RequirementError names all that is missing; BusyError if another process builds them. They are kept only
    when Debian's kernel has booted and encrypts with them.
    """
    if lacks := kernel.lacking_instructions():
        raise RequirementError(
            f"expected a processor with {', '.join(kernel.INSTRUCTIONS)}, but it lacks {', '.join(lacks)}",
            hint="nothing to do: the generic ciphers are the fastest on this processor",
        )
    if sources.version_of(found := release()) >= CIPHERS_CLOSED_SINCE:
        raise RequirementError(
            f"expected a kernel of Debian's before Linux {'.'.join(map(str, CIPHERS_CLOSED_SINCE))}, "
            f"for which {WHAT} can be built, found {found}",
            hint="use the custom kernel, which has them: make lab-kernel, then --lab-kernel custom",
        )
    if absent := packages.missing(PACKAGES):
        raise packages.lacking(absent, WHAT)
    wanted = recipe()
    if (folder := _folder(wanted)).exists():
        return False
    boot.require_visible(folder, WHAT)
    cache = caches.make(*CACHE)
    with working(cache, WHAT, BUILD_BYTES) as work:
        if folder.exists():
            return False
        result = _build(wanted, work, cache / "build.log", report)
        report("trying them", 0.95)
        _try(_kernel(result), work)
        keep(result, folder)
    return True


def _source(wanted: Recipe, work: Path, report: Report) -> Tarball:
    """Debian's source of exactly this release: as installed, or from where apt gets packages."""
    version = "{}.{}".format(*sources.version_of(wanted.source_version))
    name = f"linux-source-{version}"
    installed = packages.installed_version([name])
    if installed is not None and _upstream(installed[1]) == wanted.source_version:
        return _tarball(name, installed[1], Path("/usr/src", f"{name}.tar.xz"))
    offered = runner.run(["apt-cache", "madison", name], check=False).stdout.splitlines()
    found = [line.split("|")[1].strip() for line in offered if line.count("|") == 2]
    fitting = next((one for one in found if _upstream(one) == wanted.source_version), None)
    if fitting is None:
        others = ", ".join(dict.fromkeys(map(_upstream, found))) or "none"
        raise RequirementError(
            f"expected the package {name} of Linux {wanted.source_version}, of which Debian's user-mode "
            f"kernel is made, found {others}",
            hint="apt-get update; or use the custom kernel: make lab-kernel",
        )
    report(f"getting {name} {fitting}", 0)
    # Root in a user namespace cannot become the user _apt. What comes is checked against apt's signed lists.
    apt = ["apt-get", "-o", "APT::Sandbox::User=root", "download"]
    got = ["env", f"--chdir={work}", *apt, f"{name}={fitting}"]
    runner.run(got, timeout_s=DOWNLOAD_DEADLINE_S)
    (package,) = work.glob("*.deb")
    runner.run(["dpkg-deb", "--extract", str(package), str(work / "package")])
    package.unlink()
    return _tarball(name, fitting, work / "package/usr/src" / f"{name}.tar.xz")


def _upstream(version: str) -> str:
    """6.1.176 of 6.1.176-1 (deb-version(7), without the epoch that the kernel has not)."""
    return version.partition("-")[0]


def _tarball(name: str, version: str, path: Path) -> Tarball:
    return Tarball(
        title=f"{name} {version}", version=sources.version_of(version), identity=version, path=path
    )


def _build(wanted: Recipe, work: Path, log: Path, report: Report) -> Path:
    """Build in ``work``; returns the folder in it that is to be kept."""
    source, result = (work / name for name in ("source", "result"))
    for folder in (source, result):
        folder.mkdir()
    origin = _source(wanted, work, report)
    steps = Steps.within(work, WHAT, log, report)
    unpacking = functools.partial(steps.run, f"unpacking {origin.title}", until=(0.2, 0.5))
    origin.unpack(unpacking, source, without=UNUSED)
    for name in PATCHES:
        if name in wanted.files:
            steps.patch(HERE / name, source, origin.title, 0.5)
    config = source / ".config"
    config.write_text(wanted.files["config"] + wanted.files["options"], encoding="utf-8")
    make = ("make", "-C", str(source), f"-j{len(os.sched_getaffinity(0))}")
    steps.run("configuring", *make, "olddefconfig", until=(0.5, 0.6), lines=40)
    _require_same(wanted, config.read_text(encoding="utf-8"))
    steps.run("preparing", *make, "modules_prepare", until=(0.6, 0.8), lines=120)
    # Symbols of the kernel itself are not known here: Debian's kernel says at the end whether it has them.
    names = [f"{place}.ko" for place in MODULES]
    steps.run("compiling", *make, "KBUILD_MODPOST_WARN=1", *names, until=(0.8, 0.95), lines=60)
    modules = result / "lib" / "modules" / wanted.source_version
    (modules / "ciphers").mkdir(parents=True)
    theirs = boot.MODULES / wanted.source_version
    # The other files are lists, which depmod(8) makes anew.
    for part in ("kernel", "modules.order", "modules.builtin", "modules.builtin.modinfo"):
        (modules / part).symlink_to(theirs / part)
    for name in names:
        into = modules / "ciphers" / Path(name).name
        runner.run(["strip", "--strip-debug", "-o", str(into), str(source / name)])
    runner.run(["depmod", "--basedir", str(result), wanted.source_version])
    with (modules / "modules.softdep").open("a", encoding="utf-8") as file:
        for user in USERS:
            file.write(f"softdep {user} pre: {' '.join(Path(place).name for place in MODULES)}\n")
    return result


def _require_same(wanted: Recipe, taken: str) -> None:
    """The configuration is Debian's with these options, or structures of modules and kernel may differ."""
    asked = wanted.files["config"] + wanted.files["options"]
    lost = [line for line in kernel.dropped(asked, taken) if not TOOLCHAIN.match(line)]
    if lost:
        raise RequirementError(
            f"expected the source of Linux {wanted.source_version} to take the configuration of Debian's "
            f"user-mode kernel, but it dropped: {', '.join(lost)}",
            hint="use the custom kernel: make lab-kernel",
        )


def _try(made: boot.Kernel, work: Path) -> None:
    """CommandFailed unless Debian's kernel takes the modules."""
    journal, console = Journal(work / "journal.jsonl"), work / "console.log"
    command = ["sh", "-c", f"modprobe {USERS[0]} && grep -qw {SHOWN_BY} /proc/crypto"]
    try:
        with boot.booted(command, journal=journal, console=console, kernel=made) as booted:
            booted.process.wait(BOOT_DEADLINE_S)
            status, words = booted.exit_status(), booted.last_words()
    except subprocess.TimeoutExpired:
        status, words = None, f"it did not end within {BOOT_DEADLINE_S:g} s"
    finally:
        journal.end()
    if status != 0:
        raise CommandFailed(
            f"{WHAT} were built, but the kernel does not use them: {words}",
            hint="use the custom kernel: make lab-kernel",
        )
