"""The fastest start of fio in the lab.

There it finds stubs in place of libraries that its jobs cannot need (``testbeds/lab/boot/stubs.py``). A
library in front of its own lets it wait a tenth of a second less before its jobs begin and after they end,
and gets the memory for their state at once (``early.c``). It is loaded once, has calibrated and tested the
processor's clock, and forks for each job file (``forking.c``).

A start costs 0.3 s more without the stubs, and 0.17 s more without the library (docs/decisions.md). The
environment of a run says which of them it had.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.hosts import Host, programs, runner
from harness.hosts.runner import Completed, ForkingProgram
from harness.model.errors import HarnessError
from harness.testbeds.entry_points import EARLY

RELIABLE, UNRELIABLE = "cs: reliable_tsc: yes", "cs: reliable_tsc: no"
"""What ``fio --cpuclock-test`` prints (fio_monotonic_clocktest() in fio's gettime.c)."""

NOT_LOADED = "cannot be preloaded"
"""What ld.so(8) prints of a library that it then goes without."""

_loaded = contextlib.ExitStack()

LIBRARIES, PRELOAD = "LD_LIBRARY_PATH", "LD_PRELOAD"


@dataclass(frozen=True, kw_only=True)
class Fio:
    """What fio is started with on a kernel.

    ``has_tested_clock``: there fio has tested the processor's clock and would choose it, so it need not be
    tested at each start, which takes some 0.1 s. ``env`` lets it start and its jobs begin early. ``argv`` is
    fio itself, or what does an open loop in its place.
    """

    argv: Sequence[str] = ("fio", "--output-format=json+", "-")
    has_tested_clock: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    loaded: ForkingProgram | None = field(default=None, compare=False)

    def run(self, host: Host, job: str, timeout_s: float) -> Completed:
        """Run a job file on a host; see ``Host.run`` for what it raises."""
        if self.loaded is not None and self.loaded.is_up:
            return self.loaded.run(job, timeout_s)
        return host.run(self.argv, input=job, timeout_s=timeout_s, check=False, env=self.env)

    def read_only(self) -> Fio:
        """The same, but it refuses to write (fio(1))."""
        argv = (*self.argv[:-1], "--readonly", self.argv[-1])
        return replace(self, argv=argv, loaded=None)

    @property
    def described(self) -> dict[str, bool]:
        """How it differs from fio as installed, for the environment."""
        return {
            "has_stubs": LIBRARIES in self.env,
            "has_preloaded_library": PRELOAD in self.env,
            "has_tested_clock": self.has_tested_clock,
            "forks": self.loaded is not None,
        }


def in_virtual_time(host: Host, folder: Path) -> Fio:
    """It does not spin on its clock before it starts (``programs/calibrate.c``), by a library that is
    compiled on the host, in a folder there."""
    source = programs.path(__package__, "calibrate.c").read_text(encoding="utf-8")
    library = folder / "calibrate.so"
    argv = ["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-", "-ldl"]
    host.run(argv, input=source, timeout_s=60)
    return Fio(env={PRELOAD: str(library)})


def open_loop(*times_s: str) -> Fio:
    """What reads a job file of an open loop and prints a report as fio's; with times, around a fault."""
    argv = (programs.PYTHON, "-I", "-S", "-c", programs.source(__package__, "open_loop"))
    return Fio(argv=(*argv, *times_s))


@functools.cache
def fio() -> Fio:
    """fio on this kernel, with what lets it begin early there, if it starts with that. It is tried once."""
    ways: list[dict[str, str]] = [{}]
    if folder := os.environ.get(EARLY):
        stubs = {LIBRARIES: folder} if Path(folder, "stubs.so").exists() else {}
        ways = [{**stubs, PRELOAD: f"{folder}/early.so"}, stubs, {}]
        with contextlib.suppress(HarnessError, OSError):
            loaded = ForkingProgram(Fio.argv, ways[0], runner.DEFAULT_TIMEOUT_S)
            _loaded.callback(loaded.end)
            return Fio(has_tested_clock=True, env=ways[0], loaded=loaded)
    for env in ways:
        # It also shows that the program starts. A missing fio is reported by whoever starts it.
        with contextlib.suppress(HarnessError, OSError):
            done = runner.run(["fio", "--cpuclock-test"], check=False, env=env)
            if (RELIABLE in done.stdout or UNRELIABLE in done.stdout) and NOT_LOADED not in done.stderr:
                is_good = done.status == 0 and RELIABLE in done.stdout
                return Fio(has_tested_clock=is_good, env=env)
    return Fio()


def end() -> None:
    """No more jobs are run: nothing of it may be left in the kernel."""
    _loaded.close()
