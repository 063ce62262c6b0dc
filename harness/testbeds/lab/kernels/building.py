"""Builds in the user's cache folder: in a fixed environment, and what is kept of them."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import packages, runner
from harness.model import caches
from harness.model.errors import BusyError, CommandFailed, RequirementError
from harness.testbeds.lab.boot import sandbox
from harness.testbeds.lab.boot.scratch import MIB

HERE = Path(__file__).parent

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
"""The whole environment of a build: CFLAGS, MAKEFLAGS and clocks would leave traces in it."""

SILENCE_S = 3600
"""How long a step may print nothing: a machine that is busy builds slowly."""

POLL_S = 0.2

_SIGNALLED = 128


class BrokenOff(CommandFailed):
    """A program of a build was interrupted: its output may be incomplete."""


Report = Callable[[str, float], None]
"""Gets what is being done, and which part of the whole build is done (0 to 1)."""


BUILDS = "kernel"
"""The folder of builds in the user's cache."""


def cache_folder() -> Path:
    """Where builds are kept."""
    return caches.folder(BUILDS)


def compiler() -> str:
    """The compiler's name and version. RequirementError if there is none."""
    found = shutil.which("cc", path=ENVIRONMENT["PATH"])
    if found is None:
        raise packages.lacking(package for package in packages.listed() if package.shown_by == "cc")
    return runner.run([found, "--version"]).stdout.partition("\n")[0]


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock that ends with this process, however the process ends; BusyError if another has it."""
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError(
                f"another process is building {what}, in {path.parent}",
                hint="wait for that build; its output is in a log there",
            ) from None
        yield


@contextlib.contextmanager
def working(cache: Path, what: str, needs_bytes: int) -> Iterator[Path]:
    """The only build of ``what`` in this folder of the cache: yields a folder for it, which is then removed.

    What a killed build left in it is removed first. RequirementError if there is too little room.
    """
    if (free := shutil.disk_usage(cache).free) < needs_bytes:
        raise RequirementError(
            f"expected {needs_bytes // MIB} MiB of free space in {cache} to build {what}, "
            f"found {free // MIB}",
            hint="make room, or set XDG_CACHE_HOME to a folder that has more",
        )
    work = cache / "building"
    with locked(cache / "lock", what):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def keep(result: Path, place: Path) -> None:
    """Put what was built into its place once all of it is on the disk: it is there whole or not at all."""
    runner.run(["sync", "--file-system", str(result)], timeout_s=SILENCE_S)
    result.rename(place)


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Runs the programs that build ``what``. Their output goes to ``log``, and the progress to ``report``.

    Their own temporary files go to the folder ``temporary``.
    """

    what: str
    wrapper: tuple[str, ...]
    temporary: Path
    log: Path
    report: Report

    @classmethod
    def within(cls, work: Path, what: str, log: Path, report: Report) -> Steps:
        """Of a build in ``work``. Programs started here end with this process, and have no network."""
        temporary = work / "temporary"
        temporary.mkdir()
        log.write_bytes(b"")
        wrapper = (*sandbox.wrapper(), "nice")
        return cls(what=what, wrapper=wrapper, temporary=temporary, log=log, report=report)

    def patch(self, patch: Path, source: Path, title: str, done: float) -> None:
        """Apply a patch to a source with this title. The build is ``done`` to that part."""
        words = ("--no-backup-if-mismatch", f"--directory={source}", f"--input={patch}")
        self.run(f"applying {patch.name} to {title}", "patch", "-p1", *words, until=(done, done))

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
            # Beneath the wrapper's shell a signal is 128 and its number.
            by_itself = 0 < process.returncode < _SIGNALLED
            raise (CommandFailed if by_itself else BrokenOff)(
                f"{self.what} could not be built: {doing} {fault}: {runner.tail(self.log)}",
                hint=f"see {self.log} for all output",
            )


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")
