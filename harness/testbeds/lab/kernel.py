"""The lab's own kernel: built from Debian's source of Linux with ``kernel.config``, by an ordinary user.

Debian's user-mode kernel has no 802.11, no null_blk and no virtual time. This one is kept in the user's cache
folder, under a key of everything that went into it. So it is built once, and never mistaken for another.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.hosts import packages, runner
from harness.model.errors import BusyError, CommandFailed, RequirementError
from harness.testbeds import lab

CONFIG = lab.HERE / "kernel.config"
PATCHES = tuple(sorted(lab.HERE.glob("*.patch")))

TIMESTAMP = "Thu Jan  1 00:00:00 UTC 1970"
"""The build date of every kernel: a true date would make each kernel different."""

ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "ARCH": "um",
    "KBUILD_BUILD_USER": "harness",
    "KBUILD_BUILD_HOST": "lab",
    "KBUILD_BUILD_TIMESTAMP": TIMESTAMP,
}
"""The whole environment of the build: CFLAGS, MAKEFLAGS and clocks would leave traces in it."""

BUILD_BYTES = 2200 * lab.MIB
"""The size of source and objects during the build; the kernel that is kept takes 12 MiB."""

COMPILE_LINES = 1600
"""How many lines make prints while it compiles this configuration; only for the progress bar."""

SILENCE_S = 3600
"""How long a step may print nothing: a machine that is busy builds slowly."""

POLL_S = 0.2

VIRTUAL_TIME = ("time-travel=inf-cpu", "time-travel-start=1700000000000000000", "norandmaps")
"""Words for the kernel's command line: its clock stands still except while everything waits for a timer.

A fixed start, and processes without random addresses, make runs repeat to the last digit
(arch/um/kernel/time.c; Documentation/admin-guide/kernel-parameters.txt).
"""

INSTRUCTIONS = ("aes", "pclmulqdq", "ssse3")
"""What a processor must have for all of the ciphers in ``kernel.config``, as named in /proc/cpuinfo."""

PORTABLE_CIPHERS = (
    "clearcpuid=aes,pclmulqdq,ssse3,avx,avx2,avx512f,avx512vl,avx512bw,vaes,vpclmulqdq,gfni,sha_ni"
)
"""A word for the kernel's command line: it does not use these instructions (``ciphers.patch``)."""

Report = Callable[[str, float], None]
"""Gets what is being done, and which part of the whole build is done (0 to 1)."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Debian's package of a version of Linux; it does not have some of the options in ``kernel.config``."""

    package: str
    unknown: tuple[str, ...] = ()

    @property
    def archive(self) -> Path:
        return Path("/usr/src", f"{self.package}.tar.xz")

    @property
    def config(self) -> str:
        lines = CONFIG.read_text(encoding="utf-8").splitlines(keepends=True)
        return "".join(line for line in lines if line.partition("=")[0] not in self.unknown)


SOURCES = (
    # TLS for NVMe/TCP came with Linux 6.7 (be8e82caa685).
    Source(package="linux-source-6.1", unknown=("CONFIG_NVME_TCP_TLS", "CONFIG_NVME_TARGET_TCP_TLS")),
    # Since Linux 6.10 the option is inverted: the absence of BASE_SMALL (b3e90f375b3c and the commit after
    # it).
    Source(package="linux-source-6.12", unknown=("CONFIG_BASE_FULL",)),
)
"""Each release of Debian has one of them. If several are installed, the first one counts."""


class Recipe(msgspec.Struct, frozen=True):
    """Everything that determines the kernel; ``files`` are the configuration and the patches, by name."""

    source_version: str
    compiler: str
    files: dict[str, str]

    @property
    def key(self) -> str:
        """12 hexadecimal digits, which differ for every difference in the inputs."""
        return hashlib.sha256(msgspec.json.encode((self, ENVIRONMENT), order="sorted")).hexdigest()[:12]


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """``build.json``, beside a built kernel: what it is and what it was built from."""

    key: str
    release: str
    source_version: str
    compiler: str
    sha256: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Cached:
    """A complete kernel in the cache."""

    folder: Path
    built: Built

    @property
    def kernel(self) -> lab.Kernel:
        return lab.Kernel(
            binary=self.folder / "linux",
            modules=self.folder / "modules",
            # Its links carry only what a run sends, and no solicitations of routers or neighbours.
            options=("ipv6.disable=1",),
            sets_any_xstate=True,
        )


def cache_folder() -> Path:
    """Where kernels are kept: ``$XDG_CACHE_HOME/harness/kernel``, or below ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "harness", "kernel").absolute()


def recipe() -> Recipe:
    """The inputs of a kernel built now. RequirementError if there is no source."""
    source, version = installed_source()
    compiler = shutil.which("cc", path=ENVIRONMENT["PATH"])
    if compiler is None:
        raise _lacking(packages.missing())
    patches = {file.name: file.read_text(encoding="utf-8") for file in PATCHES}
    return Recipe(
        source_version=version,
        compiler=runner.run([compiler, "--version"]).stdout.partition("\n")[0],
        files={CONFIG.name: source.config, **patches},
    )


def installed_source() -> tuple[Source, str]:
    """The source of a kernel built now, and its version. RequirementError if there is none."""
    by_package = {source.package: source for source in SOURCES}
    found = packages.installed_version(list(by_package))
    if found is None:
        raise _lacking(packages.missing())
    package, version = found
    return by_package[package], version


def cached(wanted: Recipe) -> Cached | None:
    """The kernel of a recipe, if it has been built."""
    folder = cache_folder() / wanted.key
    try:
        text = (folder / "build.json").read_bytes()
    except OSError:
        return None
    return Cached(folder=folder, built=msgspec.json.decode(text, type=Built))


def lacking_instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    """Those of ``INSTRUCTIONS`` that this machine's processor does not have."""
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return tuple(name for name in INSTRUCTIONS if name not in flags)


def own_kernel() -> lab.Kernel:
    """The lab's own kernel, for ``lab.boot``. RequirementError if it has not been built."""
    found = cached(recipe())
    if found is None:
        raise RequirementError(
            "expected the lab's own kernel, but it has not been built, or its configuration, source or "
            "compiler has changed since",
            hint="build it: make lab-kernel, or if all that it needs is installed: harness kernel build",
        )
    lab.require_visible(found.folder, "the lab's own kernel")
    return found.kernel


def build(report: Report) -> tuple[Cached, bool]:
    """The kernel, built if it is not in the cache; and whether it had to be built.

    Everything that the build needs is checked first: RequirementError names all that is missing. BusyError if
    another build is running. A build that ends early, in whatever way, leaves nothing that counts as built.
    """
    absent = packages.missing()
    if absent:
        raise _lacking(absent)
    wanted = recipe()
    if found := cached(wanted):
        return found, False
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if free < BUILD_BYTES:
        raise RequirementError(
            f"expected {BUILD_BYTES // lab.MIB} MiB of free space in {cache} to build the lab's own kernel, "
            f"found {free // lab.MIB}",
            hint="make room, or set XDG_CACHE_HOME to a folder that has more",
        )
    with _locked(cache / "lock"), _work_folder(cache / "building") as work:
        if found := cached(wanted):  # whoever held the lock before built it
            return found, False
        result = _build(wanted, work, cache / "build.log", report)
        # Renamed when all of it is on the disk: a kernel is there whole or not at all.
        runner.run(["sync", "--file-system", str(result)], timeout_s=SILENCE_S)
        result.rename(cache / wanted.key)
    made = cached(wanted)
    assert made is not None, "it has just been put there"  # noqa: S101
    return made, True


def _lacking(absent: Sequence[packages.Package]) -> RequirementError:
    return RequirementError(
        f"the lab's own kernel needs packages that are missing: {', '.join(map(str, absent))}",
        hint=packages.install_command(absent),
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with this process, however the process ends."""
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError(
                f"another process is building the lab's own kernel, in {path.parent}",
                hint="wait for that build; its output is in build.log there",
            ) from None
        yield


@contextlib.contextmanager
def _work_folder(path: Path) -> Iterator[Path]:
    """A folder while the context lasts; what a killed build left in it is removed first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """Runs the programs of a build. Their output goes to ``log``, and the progress to ``report``.

    Their own temporary files go to the folder ``temporary``.
    """

    wrapper: tuple[str, ...]
    temporary: Path
    log: Path
    report: Report

    def run(
        self, doing: str, *argv: str, until: tuple[float, float], lines: int = 1, env: Mapping[str, str] = {}
    ) -> None:
        """Run one to its end. It takes the build from the first to the second part of ``until``.

        ``lines`` is about how much it prints in all. CommandFailed if it fails, or prints nothing for an
        hour.
        """
        begin, end = until
        self.report(doing, begin)
        before = printed = _lines(self.log)
        heard_s = time.monotonic()
        fault = "failed"
        # The compiler's temporary files leave no trace in the kernel, and must leave none in /tmp.
        around = {**ENVIRONMENT, "TMPDIR": str(self.temporary), **env}
        words = [f"{name}={value}" for name, value in around.items()]
        with runner.piped([*self.wrapper, "env", "-i", *words, *argv], output=self.log) as process:
            while process.poll() is None:
                if (now := _lines(self.log)) != printed:
                    printed, heard_s = now, time.monotonic()
                elif time.monotonic() - heard_s > SILENCE_S:
                    fault = f"printed nothing for {SILENCE_S:g} s"
                    break
                self.report(doing, begin + (end - begin) * min(1, (printed - before) / lines))
                time.sleep(POLL_S)
        if process.returncode != 0:
            raise CommandFailed(
                f"the lab's own kernel could not be built: {doing} {fault}: {runner.tail(self.log)}",
                hint=f"see {self.log} for all output",
            )


def _build(wanted: Recipe, work: Path, log: Path, report: Report) -> Path:
    """Build in ``work``; returns the folder in it that is to be kept."""
    started = time.monotonic()
    source, objects, result, temporary = (
        work / name for name in ("source", "objects", "result", "temporary")
    )
    archive = installed_source()[0].archive
    config = work / CONFIG.name
    for folder in (source, objects, result, temporary):
        folder.mkdir()
    config.write_text(wanted.files[CONFIG.name], encoding="utf-8")
    log.write_bytes(b"")
    # Programs started here end with this process, and have no network.
    steps = _Steps(wrapper=(*lab.sandbox(), "nice"), temporary=temporary, log=log, report=report)
    steps.run(
        f"unpacking {archive.name}",
        *("tar", "--extract", f"--file={archive}", f"--directory={source}"),
        *("--strip-components=1", "--no-same-owner"),
        until=(0, 0.05),
    )
    for patch in PATCHES:
        steps.run("patching", "patch", "-p1", f"--directory={source}", f"--input={patch}", until=(0.05, 0.05))
    make = ("make", "-C", str(source), f"O={objects}", f"-j{len(os.sched_getaffinity(0))}")
    chosen = {"KCONFIG_ALLCONFIG": str(config)}
    steps.run("configuring", *make, "allnoconfig", until=(0.05, 0.07), lines=40, env=chosen)
    require_taken(wanted.files[CONFIG.name], (objects / ".config").read_text(encoding="utf-8"))
    # It becomes the number in uname -v, so that a result says which kernel made it.
    number = {"KBUILD_BUILD_VERSION": wanted.key}
    steps.run("compiling", *make, "linux", "modules", until=(0.07, 0.98), lines=COMPILE_LINES, env=number)
    installed = {"INSTALL_MOD_PATH": str(objects / "installed"), "INSTALL_MOD_STRIP": "1"}
    steps.run("collecting", *make, "modules_install", until=(0.98, 1), lines=20, env=installed)
    steps.run("collecting", "strip", "-o", str(result / "linux"), str(objects / "linux"), until=(1, 1))
    (objects / "installed/lib/modules").rename(result / "modules")
    (release,) = (folder.name for folder in (result / "modules").iterdir())
    for link in ("build", "source"):  # they point to what is about to be removed
        (result / "modules" / release / link).unlink(missing_ok=True)
    shutil.copy(objects / ".config", result / "config")
    built = Built(
        key=wanted.key,
        release=release,
        source_version=wanted.source_version,
        compiler=wanted.compiler,
        sha256=hashlib.sha256((result / "linux").read_bytes()).hexdigest(),
        seconds=round(time.monotonic() - started, 1),
    )
    (result / "build.json").write_bytes(msgspec.json.format(msgspec.json.encode(built)))
    return result


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def require_taken(asked: str, taken: str) -> None:
    """Refuse a configuration of which the source dropped a line: Kconfig does so silently."""
    there = set(taken.splitlines())
    dropped = [line for line in asked.splitlines() if line.startswith("CONFIG_") and line not in there]
    if dropped:
        raise RequirementError(
            f"expected the kernel's source to accept every line of {CONFIG.name}, "
            f"but it dropped: {', '.join(dropped)}",
            hint="the Kconfig files of the source say what an option depends on",
        )
