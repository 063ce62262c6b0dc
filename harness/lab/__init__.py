"""The lab: a user-mode kernel, a real one that runs as an ordinary process of the user's.

It is Debian's package user-mode-linux, or one of our own (``harness.lab.kernel``).

It boots with the machine's own root file system read-only under a tmpfs overlay, so every program of
the machine is there, and nothing of the machine can be changed but one results folder. It needs no root.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness import run as runner
from harness.errors import RequirementError
from harness.hosts import Host, NamespaceHost
from harness.journal import Journal

KERNEL = "linux.uml"
MODULES = Path("/usr/lib/uml/modules")
HERE = Path(__file__).parent
EXIT_MARK = "harness-lab-exit "
MIB = 1 << 20
BASE_MEMORY_BYTES = 384 * MIB
"""Kernel, daemons, fio and the page cache of hostfs; storage comes on top."""

SLOW_INITIALISERS = "raid6_select_algo,calibrate_xor_blocks,init_btrfs_fs"
"""Benchmarks that Debian's kernel runs on itself at boot: 0.9 s for code that the lab never uses."""

HIDDEN = ("/run", "/dev", "/proc", "/sys")
"""Folders of the machine that the lab has its own of."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A user-mode kernel: its program, the folder of its modules, and words for its command line.

    ``sets_any_xstate``: it runs on processors with AMX as it is, without ``xstate.c``.
    """

    binary: Path
    modules: Path
    options: tuple[str, ...] = ()
    sets_any_xstate: bool = False


def debian_kernel() -> Kernel:
    """The kernel of the package user-mode-linux. RequirementError if it is not installed."""
    binary = shutil.which(KERNEL)
    if binary is None or not MODULES.is_dir():
        raise RequirementError(
            "the lab's kernel, linux.uml of the package user-mode-linux, was needed and is not installed",
            hint="`harness doctor` lists all that is missing and the command that installs it",
        )
    return Kernel(binary=Path(binary), modules=MODULES, options=(f"initcall_blacklist={SLOW_INITIALISERS}",))


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A booted lab. Its console's output (kernel and command) is appended to ``console`` as it comes."""

    process: subprocess.Popen[bytes]
    console: Path

    def exit_status(self) -> int | None:
        """The status of the command, or None if the lab ended without telling (a crash, a kill)."""
        for line in reversed(self.console.read_text(encoding="utf-8", errors="replace").splitlines()):
            if line.startswith(EXIT_MARK):
                return int(line.removeprefix(EXIT_MARK))
        return None


class ScratchFolder(msgspec.Struct, frozen=True, tag="folder"):
    """A private folder for what the lab needs on the machine while it runs."""

    path: str

    def acquire(self, host: Host) -> None:
        host.run(["mkdir", "-m", "0700", self.path])

    def release(self, host: Host) -> None:
        host.run(["rm", "-rf", "--one-file-system", self.path])


DISK_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108
MEMORY_FOLDERS = ("/dev/shm", *DISK_FOLDERS)  # noqa: S108


def roomy_folder(size_bytes: int, candidates: Sequence[str]) -> Path:
    """The first folder with ``size_bytes`` free that allows execution; $TMPDIR goes before all others.

    The lab's memory is a file that is mapped with PROT_EXEC. A container's /dev/shm is often 64 MB,
    which would end in SIGBUS, or noexec, which ends at once.
    """
    asked = os.environ.get("TMPDIR")
    tried = []
    for folder in dict.fromkeys((asked, *candidates) if asked else candidates):
        if not re.fullmatch(r"/[\w./-]*", folder):
            # It becomes a word of the kernel's command line.
            tried.append(f"{folder!r} (not absolute, or unusual characters in its name)")
        elif not Path(folder).is_dir():
            tried.append(f"{folder} (no folder)")
        elif not os.access(folder, os.W_OK):
            tried.append(f"{folder} (not writable)")
        elif (found := os.statvfs(folder)).f_flag & os.ST_NOEXEC:
            tried.append(f"{folder} (noexec)")
        elif found.f_bavail * found.f_frsize < size_bytes:
            tried.append(f"{folder} ({found.f_bavail * found.f_frsize // MIB} MiB free)")
        else:
            return Path(folder)
    raise RequirementError(
        f"the lab needs a folder with {size_bytes // MIB} MiB free that allows execution; "
        f"none of these does: {', '.join(tried)}",
        hint="set TMPDIR to such a folder",
    )


def needs_xstate_shim() -> bool:
    """Whether this processor has AMX, whose state the user-mode kernel cannot set (see xstate.c)."""
    return "amx_tile" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")


def sandbox() -> list[str]:
    """A wrapper under which a SIGKILL of any process ends all: the lab's processes never outlive it.

    Without it they would go on natively on the machine. The death of the harness is noticed too.
    """
    spaces = ["--pid", "--fork", "--kill-child", "--mount-proc", "--net"]
    mapped = ["--user", "--map-root-user", *spaces]
    # A container's root may lack the right to make namespaces, and have it like anybody in one of its own.
    ways = [spaces, mapped] if os.geteuid() == 0 else [mapped]
    way = next((way for way in ways if runner.run(["unshare", *way, "true"], check=False).status == 0), None)
    if way is None:
        raise RequirementError(
            "the lab needs user namespaces, so that nothing of it can outlive it, and this machine "
            "does not allow them to ordinary users",
            hint="as root: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000 "
            "(and, on Ubuntu, kernel.apparmor_restrict_unprivileged_userns=0)",
        )
    # The shell is process 1 of the namespace. The kernel must not be: a panic ends it by signals that
    # process 1 does not take, and it would spin for ever.
    return ["setpriv", "--pdeathsig", "KILL", "unshare", *way, "sh", "-c", '"$@"; exit $?', "sh"]


def require_visible(path: Path, what: str) -> None:
    """Refuse a path that the lab cannot see, because it has a folder of its own in that place."""
    for hidden in HIDDEN:
        if path.is_relative_to(hidden) or path.resolve().is_relative_to(hidden):
            raise RequirementError(
                f"{what} is {path}, which the lab cannot see: it has its own {hidden}",
                hint="move it elsewhere",
            )


@contextlib.contextmanager
def boot(
    command: Sequence[str],
    *,
    journal: Journal,
    console: Path,
    results: Path | None = None,
    storage_bytes: int = 0,
    kernel: Kernel | None = None,
) -> Iterator[Lab]:
    """Boot the lab, run ``command`` in it as root, and halt; leaving the context ends it in any case.

    ``results`` (a folder of the machine) is /run/results in the lab, and the one place it can write to.
    ``kernel`` is Debian's, unless another is given.
    """
    kernel = kernel or debian_kernel()
    memory_bytes = BASE_MEMORY_BYTES + storage_bytes * 5 // 4
    machine = NamespaceHost(name="machine")
    # Not in /dev/shm: the kernel mounts its own /dev before it looks for its first process.
    scratch = ScratchFolder(str(roomy_folder(MIB, DISK_FOLDERS) / f"harness-lab-{os.urandom(4).hex()}"))
    with journal.hold(machine, scratch):
        folder = Path(scratch.path)
        _write_settings(folder, command, results, kernel.modules)
        wrapper = sandbox()
        if needs_xstate_shim() and not kernel.sets_any_xstate:
            shim = folder / "xstate.so"
            runner.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(shim), str(HERE / "xstate.c")])
            # For the kernel alone: setpriv and unshare are better off without.
            wrapper += ["env", f"LD_PRELOAD={shim}"]
        argv = [
            *wrapper,
            # Unpinned, the kernel's helper threads and its processes chase each other over the cores,
            # and runs swing by a factor of two.
            *("taskset", "-c", str(max(os.sched_getaffinity(0)))),
            str(kernel.binary),
            f"mem={memory_bytes // MIB}M",
            *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "loglevel=1"),
            *(f"uml_dir={folder}/", "umid=lab", *kernel.options),
            # Under a mapped root user the setuid bit of mount(8) gives it to nobody, unless privileges
            # cannot be gained at all.
            *("con=null", "con0=null,fd:1", "init=/usr/bin/setpriv", "--", "--no-new-privs"),
            *("/bin/sh", f"{folder}/init.sh", str(folder)),
        ]
        env = {"TMPDIR": str(roomy_folder(memory_bytes, MEMORY_FOLDERS))}
        # The console has to be a pipe: the kernel cannot poll a regular file.
        with runner.piped(argv, output=console, env=env) as process:
            yield Lab(process=process, console=console)


def _write_settings(folder: Path, command: Sequence[str], results: Path | None, modules: Path) -> None:
    shutil.copy(HERE / "init.sh", folder)
    if results is not None:
        (folder / "results").symlink_to(results.resolve())
    settings = {
        "MODULES": str(modules),
        "RESULTS": "yes" if results is not None else "",
        "STATE": str(folder),
        "COMMAND": shlex.join(command),
    }
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items())
    (folder / "settings").write_text(text, encoding="utf-8")
