"""Booting the lab: user-mode Linux, a real kernel that runs as an ordinary process of the user's.

Its kernel is Debian's package user-mode-linux, or the lab's own (``kernels``).

It boots with the machine's own root file system, read-only under a tmpfs overlay. So every program of the
machine is there, and nothing of the machine can be changed except one results folder. The machine's kernel
enforces that (``programs/confine.py``), whatever root does in the lab. It needs no root.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from harness.hosts import NamespaceHost, runner
from harness.hosts.journal import Journal
from harness.model.errors import HarnessError, RequirementError
from harness.testbeds.lab.boot import sandbox, scratch, stubs
from harness.testbeds.lab.boot.scratch import MIB

KERNEL = "linux.uml"
MODULES = Path("/usr/lib/uml/modules")
HERE = Path(__file__).parent
EXIT_MARK = "harness-lab-exit "

PANIC = re.compile("^Kernel panic.*$", re.MULTILINE)
"""What a kernel prints when it gives up. Registers and a stack follow, which are no use to a user."""

FORBIDS_PTRACE = "the lab's kernel traces its processes, but a filter or Yama forbids ptrace(2) here"

BASE_MEMORY_BYTES = 384 * MIB
"""Kernel, daemons, fio and the page cache of hostfs; storage comes on top."""

BASE_LAYERS = 12
LAYER_BYTES = 24 * MIB
"""The base has room for so many links and protections of columns, and each further one takes so much:
captures, xfrm listeners, daemons. With 16 paths over NVMe/TCP and WiFi the base's memory was full, with 7
columns over WiFi and 9 protections as well, and the kernel killed the run."""

SLOW_INITIALISERS = "raid6_select_algo,calibrate_xor_blocks,init_btrfs_fs"
"""Benchmarks that Debian's kernel runs on itself at boot: 0.9 s for code that the lab never uses."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the lab finds programs (``init.sh``)."""

CLOCK = "time-travel="
"""How the word for a kernel's command line begins that gives it a clock of its own."""

NO_IPV6, IPV6 = "ipv6.disable=1", "ipv6.disable_ipv6=1"
"""Words for a kernel's command line: no IPv6 at all, or on no interface that does not ask for it
(Documentation/networking/ipv6.rst)."""

HIDDEN = ("/run", "/dev", "/proc", "/sys")
"""Folders of the machine that the lab replaces with its own."""


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A user-mode kernel: its program, the folder of its modules, and words for its command line.

    ``sha256`` is that of the program as it was built, "" for a package's.
    """

    binary: Path
    modules: Path
    options: tuple[str, ...] = ()
    sha256: str = ""

    def require_unchanged(self) -> None:
        """RequirementError if the program is not the one that was built."""
        found = file_sha256(self.binary) if self.binary.is_file() else "nothing"
        if self.sha256 not in ("", found):
            raise RequirementError(
                f"expected the kernel {self.binary} as it was built, with the SHA-256 {self.sha256[:12]}…, "
                f"found {found[:12]}",
                hint=f"remove {self.binary.parent} and build it again: harness kernel build",
            )

    @property
    def has_virtual_time(self) -> bool:
        """Its clock is its own: no timer of the machine's has to do with it."""
        return any(option.startswith(CLOCK) for option in self.options)


def debian_kernel() -> Kernel:
    """The kernel of the package user-mode-linux. RequirementError if it is not installed."""
    binary = shutil.which(KERNEL)
    if binary is None or not MODULES.is_dir():
        raise RequirementError(
            "expected the lab's kernel, linux.uml of the package user-mode-linux, but it is not installed",
            hint="`harness doctor` lists all that is missing and the command that installs it; where there "
            "is no such package, `harness kernel build` makes a kernel",
        )
    return Kernel(binary=Path(binary), modules=MODULES, options=(f"initcall_blacklist={SLOW_INITIALISERS}",))


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A booted lab. Its console's output (kernel and command) is appended to ``console`` as it comes.

    Its output begins at byte ``begin`` of the file. ``exchange`` is ``started.EXCHANGE`` on the machine, if
    there is one.
    """

    process: subprocess.Popen[bytes]
    console: Path
    begin: int = 0
    exchange: Path | None = None

    def said(self) -> bytes:
        """Its output so far."""
        return self.console.read_bytes()[self.begin :]

    def last_words(self) -> str:
        """The end of its output, for an error message."""
        return last_words(self.console, self.begin)

    def exit_status(self) -> int | None:
        """The status of the command, or None if the lab ended without reporting one (a crash, a kill)."""
        for line in reversed(self.said().decode("utf-8", "replace").splitlines()):
            if line.startswith(EXIT_MARK):
                return int(line.removeprefix(EXIT_MARK))
        return None


def last_words(console: Path, begin: int = 0) -> str:
    """The last lines on a console from byte ``begin`` on; if its kernel panicked, only up to the panic's
    line. ``FORBIDS_PTRACE`` if it could not even begin."""
    said = console.read_bytes()[begin:] if console.exists() else b""
    text = said.decode("utf-8", "replace")
    if "ptrace: Operation not permitted" in text:
        return FORBIDS_PTRACE
    panic = PANIC.search(text)
    return runner.last_lines(text[: panic.end()] if panic else text)


def require_visible(path: Path, what: str) -> None:
    """Refuse a path that the lab cannot see, because the lab has a folder of its own in that place."""
    for hidden in HIDDEN:
        if path.is_relative_to(hidden) or path.resolve().is_relative_to(hidden):
            raise RequirementError(
                f"{what} is {path}, which the lab cannot see: it has its own {hidden}",
                hint="move it elsewhere",
            )


@contextlib.contextmanager
def booted(
    command: Sequence[str],
    *,
    journal: Journal,
    console: Path,
    results: Path | None = None,
    storage_bytes: int = 0,
    kernel: Kernel | None = None,
    has_exchange: bool = False,
) -> Iterator[Lab]:
    """Boot the lab, run ``command`` in it as root, and halt. Leaving the context ends it in any case.

    ``results`` (a folder of the machine) is /run/results in the lab, and the only place that it can write to,
    but for a private folder that is its ``EXCHANGE``, if ``has_exchange``. ``kernel`` is Debian's by default.
    """
    memory_bytes = memory_for(storage_bytes)
    with workshop_for(journal, kernel or debian_kernel(), memory_bytes) as workshop:
        folder = workshop.make_folder("lab")
        write_settings(folder, workshop.kernel, command, results=results, early=workshop.early)
        exchange = folder / "exchange" if has_exchange else None
        if exchange is not None:
            exchange.mkdir(mode=0o700)
        core = max(os.sched_getaffinity(0))
        with workshop.start(folder, console, memory_bytes=memory_bytes, core=core, results=results) as lab:
            yield replace(lab, exchange=exchange)


def memory_for(storage_bytes: int) -> int:
    """The memory of a kernel that keeps storage of this size in it."""
    return BASE_MEMORY_BYTES + storage_bytes * 5 // 4


@dataclass(frozen=True, kw_only=True)
class Wires:
    """The ends of trunks at one kernel: words for its command line, and files that it must have open.

    ``naming`` is an ip(8) batch that gives the interfaces the names and the MTU that they have in real time.
    """

    words: tuple[str, ...] = ()
    fds: tuple[int, ...] = ()
    naming: str = ""
    clock: str = ""
    its_own: tuple[socket.socket, ...] = ()
    """Those of the files that nobody else may have open: that it hung up is how its end is noticed."""

    def hand_over(self) -> None:
        """The kernel has started."""
        for end in self.its_own:
            end.close()

    def clocked(self, options: Sequence[str]) -> list[str]:
        """A kernel's options, with the clock that it shares in place of one of its own."""
        return [self.clock if self.clock and word.startswith(CLOCK) else word for word in options]


NONE = Wires()


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Where kernels are prepared: a private folder, one for their memory, and the wrapper around them."""

    kernel: Kernel
    folder: Path
    memory_folder: Path
    environment: tuple[str, ...]
    early: Path | None = None
    """The folder of libraries that let fio begin early (``early.c``, ``stubs``), in real time."""

    def make_folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        return folder

    @contextlib.contextmanager
    def start(
        self,
        folder: Path,
        console: Path,
        *,
        memory_bytes: int,
        core: int,
        results: Path | None,
        wires: Wires = NONE,
    ) -> Iterator[Lab]:
        """Boot the kernel whose settings are in ``folder``."""
        writable = [folder, self.memory_folder, *([] if results is None else [results.resolve()])]
        begin = console.stat().st_size if console.exists() else 0
        argv = [
            *sandbox.wrapper(writable),
            *self.environment,
            # Unpinned, the kernel's helper threads and its processes chase each other over the cores, and
            # runs differ by a factor of two.
            *("taskset", "-c", str(core)),
            str(self.kernel.binary),
            f"mem={memory_bytes // MIB}M",
            *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "loglevel=1"),
            *(f"uml_dir={folder}/", "umid=lab", *(wires.clocked(self.kernel.options))),
            *wires.words,
            # Under a mapped root user, the setuid bit of mount(8) would give it to nobody, unless no
            # privileges can be gained at all.
            *("con=null", "con0=null,fd:1", "init=/usr/bin/setpriv", "--", "--no-new-privs"),
            *("/bin/sh", f"{folder}/init.sh", str(folder)),
        ]
        env = {"TMPDIR": str(self.memory_folder)}
        # The console must be a pipe: the kernel cannot poll a regular file.
        with runner.piped(argv, output=console, env=env, pass_fds=wires.fds) as process:
            yield Lab(process=process, console=console, begin=begin)


@contextlib.contextmanager
def workshop_for(journal: Journal, kernel: Kernel, memory_bytes: int) -> Iterator[Workshop]:
    """Prepare for kernels with ``memory_bytes`` together."""
    kernel.require_unchanged()
    sandbox.require_open_files()
    machine = NamespaceHost(name="machine")
    # Not in /dev/shm: the kernel mounts its own /dev before it looks for its first process.
    files, memory = (
        scratch.ScratchFolder(str(scratch.roomy_folder(size, folders) / f"harness-lab-{os.urandom(4).hex()}"))
        for size, folders in ((MIB, scratch.DISK_FOLDERS), (memory_bytes, scratch.MEMORY_FOLDERS))
    )
    with journal.hold(machine, files), journal.hold(machine, memory):
        folder = Path(files.path)
        early = None if kernel.has_virtual_time else folder / "early"
        with ThreadPoolExecutor() as pool:  # side by side, because each takes a tenth of a second
            if early is not None:
                early.mkdir()
                pool.submit(_make_stubs, early)
                compiling = pool.submit(_compile, early / "early.so", "early.c", "forking.c")
            _compile(folder / "shims.so", "traced.c", *([] if early is None else ["interrupts.c"]))
        if early is not None:
            compiling.result()
        yield Workshop(
            kernel=kernel,
            folder=folder,
            memory_folder=Path(memory.path),
            # Only for the kernel: setpriv and unshare do better without.
            environment=("env", f"LD_PRELOAD={folder / 'shims.so'}"),
            early=early,
        )


def _make_stubs(folder: Path) -> None:
    """What cannot be made is not used: fio then starts with its own libraries."""
    with contextlib.suppress(HarnessError, OSError):
        stubs.make(shutil.which("fio", path=PATH) or "fio", folder)


def _compile(library: Path, *sources: str) -> None:
    """Make a library of sources of this folder."""
    words = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library)]
    runner.run([*words, *(str(HERE / source) for source in sources), "-ldl"])


def write_settings(
    folder: Path,
    kernel: Kernel,
    command: Sequence[str],
    *,
    results: Path | None = None,
    peers: Sequence[str] = (),
    early: Path | None = None,
) -> None:
    """Write into a kernel's folder what ``init.sh`` reads there."""
    shutil.copy(HERE / "init.sh", folder)
    if results is not None:
        (folder / "results").symlink_to(results.resolve())
    settings = {
        "MODULES": str(kernel.modules),
        "RESULTS": "yes" if results is not None else "",
        "STATE": str(folder),
        "NAME": folder.name,
        "COMMAND": shlex.join(command),
        "PEERS": " ".join(peers),
        "EARLY": str(early or ""),
    }
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items())
    # File names are bytes, and may be any.
    (folder / "settings").write_text(text, encoding="utf-8", errors="surrogateescape")
