"""The custom kernel: built by an ordinary user from Debian's source of Linux, or another, with
``kernel.config``.

Debian's user-mode kernel has no 802.11, no null_blk and no virtual time. This one is kept in the user's cache
folder, under a key of everything that went into it. So it is built once, and never mistaken for another.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from harness.hosts import packages
from harness.model import KERNEL_KEY, LabKernel, caches, kinds
from harness.model.errors import RequirementError, UsageError
from harness.model.texts import Commit, KernelKey, KernelRelease, Prose
from harness.model.units import shown
from harness.testbeds.lab import boot
from harness.testbeds.lab.boot.scratch import MIB
from harness.testbeds.lab.kernels import source as sources
from harness.testbeds.lab.kernels.building import (
    BUILDS,
    ENVIRONMENT,
    HERE,
    Report,
    Steps,
    cache_folder,
    compiler,
    keep,
    working,
)
from harness.testbeds.lab.kernels.source import Source, Tree
from harness.testbeds.lab.kernels.trees import kept_folder, patched_files
from harness.testbeds.lab.kernels.upstream import Upstream

WHAT = "the custom kernel"

CONFIG = HERE / "kernel.config"
PATCHES = tuple(sorted(HERE.glob("*.patch")))

COSTED = "charge.patch"
"""Only in the kernel for virtual time by a CPU cost file, so that no other figure depends on it."""

BUILD_BYTES = 2200 * MIB
"""The size of source and objects during the build; the kernel that is kept takes 12 MiB."""

COMPILE_LINES = 1600
"""How many lines make prints while it compiles this configuration; only for the progress bar."""

VIRTUAL_TIME = (
    "time-travel=inf-cpu",
    "time-travel-start=1700000000000000000",
    "norandmaps",
    "initcall_blacklist=jent_mod_init",
)
"""Words for the kernel's command line: its clock stands still except while everything waits for a timer.

A fixed start, and processes without random addresses, make runs repeat to the last digit
(arch/um/kernel/time.c; Documentation/admin-guide/kernel-parameters.txt). No entropy is gathered from jitter:
where a clock has none, crypto/jitterentropy.c of Linux 6.12 waits for it for ever as it starts.
"""

INSTRUCTIONS = ("aes", "pclmulqdq", "ssse3")
"""What a processor must have for all of the ciphers in ``kernel.config``, as named in /proc/cpuinfo."""

GENERIC_CIPHERS = (
    "clearcpuid=aes,pclmulqdq,ssse3,avx,avx2,avx512f,avx512vl,avx512bw,vaes,vpclmulqdq,gfni,sha_ni"
)
"""A word for the kernel's command line: it does not use these instructions (``ciphers.patch``)."""


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
    """``build.json``, next to a built kernel: what it is and what it was built from.

    ``lacks`` is what its source does not have of all that was asked for. ``commit`` is the one that a git
    tree was at when the kernel was built (``source.Tree``), else empty.
    """

    key: KernelKey
    release: KernelRelease
    source_version: Prose
    compiler: Prose
    sha256: Prose
    seconds: float
    lacks: tuple[Prose, ...] = ()
    commit: Commit = ""


@dataclass(frozen=True, kw_only=True)
class Cached:
    """A complete kernel in the cache."""

    folder: Path
    built: Built

    @property
    def kernel(self) -> boot.Kernel:
        return boot.Kernel(
            binary=self.folder / "linux",
            modules=self.folder / "modules",
            # Its links carry only what a run sends, and no solicitations of routers or neighbours, unless a
            # run asks for IPv6.
            options=(boot.NO_IPV6,),
            sha256=self.built.sha256,
        )


def recipe(source: Source | None = None, *, simulated: bool = False) -> Recipe:
    """The inputs of a kernel built now, by default from Debian's source that is installed, or kernel.org's.

    RequirementError if there is none, or no compiler, or no such patch for it if it is to be ``simulated``.
    """
    source = source or sources.of(None)
    if simulated and not sources.is_for(COSTED, source.version):
        raise RequirementError(
            f"expected Linux 6.1, the only version whose kernel can have CPU costs, found {source.title}",
            hint="use virtual time without --cpu-costs",
        )
    files = [CONFIG, *(patch for patch in PATCHES if sources.is_for(patch.name, source.version))]
    files = [file for file in files if simulated or file.name != COSTED]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    lines = texts[CONFIG.name].splitlines(keepends=True)
    texts[CONFIG.name] = "".join(
        line for line in lines if sources.is_for(line.partition("=")[0], source.version)
    )
    return Recipe(source_version=source.identity, compiler=compiler(), files=texts)


def cached(wanted: Recipe) -> Cached | None:
    """The kernel of a recipe, if it has been built."""
    return by_key(wanted.key)


def by_key(key: str) -> Cached | None:
    """The kernel of a key, if it has been built.

    RequirementError if what is kept of it is damaged. UsageError if it is no key: a path in its place would
    start the program of any folder.
    """
    if not KERNEL_KEY.fullmatch(key):
        raise UsageError(
            f"expected the key of a kernel, 12 of 0-9 and a-f, found {shown(key)}",
            hint="name its source: --lab-kernel SOURCE",
        )
    folder = cache_folder() / key
    try:
        text = (folder / "build.json").read_bytes()
    except OSError:
        return None
    try:
        return Cached(folder=folder, built=msgspec.json.decode(text, type=Built))
    except msgspec.DecodeError as error:
        raise RequirementError(
            f"expected {folder / 'build.json'} unchanged since the kernel was built: {error}",
            hint=f"remove {folder} and build it again: harness kernel build",
        ) from error


def lacking_instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    """Those of ``INSTRUCTIONS`` that this machine's processor does not have."""
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return tuple(name for name in INSTRUCTIONS if name not in flags)


def named(word: str) -> Cached:
    """Another kernel than the default one, by its key or by the word for its source.

    RequirementError if it has not been built, UsageError if the word is neither.
    """
    found = by_key(word) if KERNEL_KEY.fullmatch(word) else None
    if found is None:
        found = cached(recipe(sources.of(word)))
    if found is None:
        raise RequirementError(
            f"expected a kernel of {word}, but it has not been built, or its configuration, source or "
            "compiler has changed since",
            hint=f"build it: harness kernel build --source {shlex.quote(word)}",
        )
    return found


def custom_kernel(key: str = "") -> boot.Kernel:
    """The custom kernel, for ``boot.booted``: the default one, or that of a key.

    RequirementError if it has not been built.
    """
    found = by_key(key) if key else cached(recipe())
    if found is None and key:
        raise RequirementError(
            f"expected the kernel {key} in {cache_folder()}, but it is not there",
            hint="build it again: harness kernel build --source …",
        )
    if found is None:
        raise RequirementError(
            "expected the custom kernel, but it has not been built, or its configuration, source or "
            "compiler has changed since",
            hint="build it: make lab-kernel, or if all that it needs is installed: harness kernel build",
        )
    boot.require_visible(found.folder, "the custom kernel")
    return found.kernel


def with_costs() -> Built:
    """The custom kernel for virtual time by a CPU cost file. RequirementError if it has not been built."""
    if (found := cached(recipe(simulated=True))) is None:
        raise RequirementError(
            "expected the custom kernel with CPU costs, but it has not been built",
            hint="build it, which takes as long as the other one: harness kernel build --simulated-cpu-costs",
        )
    return found.built


def has_radios(release: str | None = None) -> bool:
    """Whether the custom kernel, built or not, has 802.11: the default one, or one of another release."""
    version = sources.of(None).version if release is None else sources.version_of(release)
    return kinds.RADIOS is not None and sources.is_for(kinds.RADIOS.kernel_option, version)


def usual() -> LabKernel:
    """What the lab boots if nobody asks: Debian's kernel, or where that is not installed its own, if it is
    built."""
    try:
        boot.debian_kernel()
    except RequirementError:
        with contextlib.suppress(RequirementError):
            custom_kernel()
            return LabKernel.CUSTOM
    return LabKernel.DEBIAN


def build(report: Report, source: Source | None = None, *, simulated: bool = False) -> tuple[Cached, bool]:
    """The kernel of a source, built if it is not in the cache; and whether it had to be built.

    Debian's source that is installed is held to all of ``kernel.config``. Another source may lack lines of
    it: ``Built.lacks`` names them.

    Everything that the build needs is checked first: RequirementError names all that is missing. BusyError if
    another build is running. A build that ends early, in whatever way, leaves nothing that counts as built.
    """
    if absent := sources.absent_packages(is_given=source is not None):
        raise packages.lacking(absent)
    inputs = partial(recipe, simulated=True) if simulated else recipe
    wanted = inputs() if source is None else inputs(source)
    if found := cached(wanted):
        return found, False
    cache = caches.make(BUILDS)
    with working(cache, WHAT, BUILD_BYTES) as work:
        if found := cached(wanted):  # whoever held the lock before built it
            return found, False
        if isinstance(source, Tree):
            with kept_folder(cache, source.path) as kept:
                result = _build(wanted, source, work, kept, cache / "build.log", report)
        else:
            result = _build(wanted, source, work, work, cache / "build.log", report)
        keep(result, cache / wanted.key)
    made = cached(wanted)
    assert made is not None, "it has just been put there"  # noqa: S101
    return made, True


def _build(wanted: Recipe, given: Source | None, work: Path, base: Path, log: Path, report: Report) -> Path:
    """Build in ``work``; returns the folder in it that is to be kept. ``given`` is not Debian's default.

    Source and objects are in ``base``, where a tree's are those of its build before.
    """
    started = time.monotonic()
    origin = given or sources.of(None)
    if isinstance(origin, Upstream):
        origin.fetch(report)
    source, objects = base / "source", base / "objects"
    patched, installed, result = (work / name for name in ("patched", "installed", "result"))
    config = work / CONFIG.name
    for folder in (source, objects, patched, installed, result):
        folder.mkdir(exist_ok=True)
    config.write_text(wanted.files[CONFIG.name], encoding="utf-8")
    steps = Steps.within(work, WHAT, log, report)
    patches = [patch for patch in PATCHES if patch.name in wanted.files]
    if isinstance(origin, Tree):
        # The patched files are made apart, so that those that are the same as before stay as old as they are.
        origin.lend(patched_files([wanted.files[patch.name] for patch in patches]), patched)
    else:
        patched = source
        unpacking = partial(steps.run, f"unpacking {origin.title}", until=(0, 0.05))
        origin.unpack(unpacking, source)
    for patch in patches:
        steps.patch(patch, patched, origin.title, 0.05)
    if isinstance(origin, Tree):
        report(f"copying what differs in {origin.title}", 0.05)
        cleaning = partial(steps.run, f"cleaning the copy of {origin.title}", until=(0.05, 0.05))
        origin.renew(cleaning, source, patched)
    make = ("make", "-C", str(source), f"O={objects}", f"-j{len(os.sched_getaffinity(0))}")
    chosen = {"KCONFIG_ALLCONFIG": str(config)}
    steps.run("configuring", *make, "allnoconfig", until=(0.05, 0.07), lines=40, env=chosen)
    lacks = dropped(wanted.files[CONFIG.name], (objects / ".config").read_text(encoding="utf-8"))
    if given is None:
        require_none(lacks)
    # It becomes the number in uname -v, so that a result says which kernel made it.
    number = {"KBUILD_BUILD_VERSION": wanted.key}
    steps.run("compiling", *make, "linux", "modules", until=(0.07, 0.98), lines=COMPILE_LINES, env=number)
    where = {"INSTALL_MOD_PATH": str(installed), "INSTALL_MOD_STRIP": "1"}
    steps.run("collecting", *make, "modules_install", until=(0.98, 1), lines=20, env=where)
    steps.run("collecting", "strip", "-o", str(result / "linux"), str(objects / "linux"), until=(1, 1))
    (installed / "lib/modules").rename(result / "modules")
    (release,) = (folder.name for folder in (result / "modules").iterdir())
    for link in ("build", "source"):  # they point to what is about to be removed
        (result / "modules" / release / link).unlink(missing_ok=True)
    shutil.copy(objects / ".config", result / "config")
    built = Built(
        key=wanted.key,
        release=release,
        source_version=wanted.source_version,
        compiler=wanted.compiler,
        sha256=boot.file_sha256(result / "linux"),
        seconds=round(time.monotonic() - started, 1),
        lacks=lacks,
        commit=origin.commit if isinstance(origin, Tree) else "",
    )
    (result / "build.json").write_bytes(msgspec.json.format(msgspec.json.encode(built)))
    return result


def dropped(asked: str, taken: str) -> tuple[str, ...]:
    """The lines of a configuration that a source does not take: Kconfig drops them silently."""
    there = set(taken.splitlines())
    return tuple(line for line in asked.splitlines() if line.startswith("CONFIG_") and line not in there)


def require_none(lacks: Sequence[str]) -> None:
    """Refuse a source that does not take all lines."""
    if lacks:
        raise RequirementError(
            f"expected the kernel's source to accept every line of {CONFIG.name}, "
            f"but it dropped: {', '.join(lacks)}",
            hint="the Kconfig files of the source say what an option depends on",
        )


def lacking(built: Built, source: Source) -> str:
    """What a kernel does not have, in one sentence, or nothing."""
    known = [f"{what} ({why})" for what, why in sources.missed(source.version).items()]
    if not (words := [*known, *built.lacks]):
        return ""
    return f"Linux {built.release} does not have {', '.join(words)}: what cannot work without them is skipped"
