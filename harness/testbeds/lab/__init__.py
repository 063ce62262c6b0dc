"""The lab: user-mode Linux, a real kernel that runs as an ordinary process of the user's.

Its kernel is Debian's package user-mode-linux, or the lab's own (``harness.testbeds.lab.kernel``).

It boots with the machine's own root file system, read-only under a tmpfs overlay. So every program of the
machine is there, and nothing of the machine can be changed except one results folder. The machine's kernel
enforces that (``programs/confine.py``), whatever root does in the lab. It needs no root.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import msgspec

from harness.hosts import Host, NamespaceHost, programs, runner
from harness.hosts.journal import Journal
from harness.hosts.undo import Step
from harness.model.errors import RequirementError, TestbedError
from harness.parse.files import Room
from harness.testbeds.lab import building, management, wiring
from harness.testbeds.lab.wiring import NONE, Wires

KERNEL = "linux.uml"
MODULES = Path("/usr/lib/uml/modules")
HERE = Path(__file__).parent
CONFINE = programs.path(__package__, "confine.py")
EARLY = "early.so"
EXIT_MARK = "harness-lab-exit "
RESULTS = "/run/results"
"""In the lab, the folder of the machine that it may write to."""

EXCHANGE = "/run/exchange"
"""Where a lab that has one finds the folder that it shares with whoever booted it."""

BEGIN_MARK = b"harness-lab-begins\n"
"""What the first of several kernels prints on its console when it has reached the others."""

PANIC = re.compile("^Kernel panic.*$", re.MULTILINE)
"""What a kernel prints when it gives up. Registers and a stack follow, which tell a user nothing."""

FORBIDS_PTRACE = "the lab's kernel traces its processes, but a filter or Yama forbids ptrace(2) here"

MOST_INITIATORS = 16
"""A kernel's command line has 2048 bytes (COMMAND_LINE_SIZE of um), and each initiator takes 45 of the
target's."""

PEERS_DEADLINE_S = 60.0
MIB = 1 << 20
BASE_MEMORY_BYTES = 384 * MIB
"""Kernel, daemons, fio and the page cache of hostfs; storage comes on top."""

BASE_PATHS = 8
PATH_BYTES = 32 * MIB
"""The base has room for so many paths, and each further one takes so much: captures, witnesses, daemons. With
16 paths over NVMe/TCP and WiFi the base's memory was full, and the kernel killed the run."""

SLOW_INITIALISERS = "raid6_select_algo,calibrate_xor_blocks,init_btrfs_fs"
"""Benchmarks that Debian's kernel runs on itself at boot: 0.9 s for code that the lab never uses."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the lab finds programs (``init.sh``)."""

NO_IPV6, IPV6 = "ipv6.disable=1", "ipv6.disable_ipv6=1"
"""Words for a kernel's command line: no IPv6 at all, or on no interface that is not told to speak it
(Documentation/networking/ipv6.rst)."""

HIDDEN = ("/run", "/dev", "/proc", "/sys")
"""Folders of the machine that the lab replaces with its own."""


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
        found = building.file_sha256(self.binary) if self.binary.is_file() else "nothing"
        if self.sha256 not in ("", found):
            raise RequirementError(
                f"expected the kernel {self.binary} as it was built, with the SHA-256 {self.sha256[:12]}…, "
                f"found {found[:12]}",
                hint=f"remove {self.binary.parent} and build it again: harness kernel build",
            )

    @property
    def has_virtual_time(self) -> bool:
        """Its clock is its own: no timer of the machine's has to do with it."""
        return any(option.startswith("time-travel=") for option in self.options)


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

    Its output begins at byte ``begin`` of the file. ``exchange`` is ``EXCHANGE`` on the machine, if there is
    one.
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


class ScratchFolder(msgspec.Struct, frozen=True):
    """A private folder for what the lab needs on the machine while it runs."""

    lasting: ClassVar[bool] = True

    path: str

    def acquire(self, host: Host) -> None:
        host.run(["mkdir", "-m", "0700", self.path])

    def undo(self) -> tuple[Step, ...]:
        return (Step(("rm", "-rf", "--one-file-system", self.path)),)


DISK_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108
MEMORY_FOLDERS = ("/dev/shm", *DISK_FOLDERS)  # noqa: S108


def roomy_folder(size_bytes: int, candidates: Sequence[str]) -> Path:
    """The first folder with ``size_bytes`` free that allows execution; $TMPDIR comes first.

    The lab's memory is a file that is mapped with PROT_EXEC. A container's /dev/shm often has only 64 MB,
    which would end in SIGBUS, or is noexec, which ends at once.
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
        elif os.statvfs(folder).f_flag & os.ST_NOEXEC:
            tried.append(f"{folder} (noexec)")
        elif (room := Room.of(folder)).files == 0:
            tried.append(f"{folder} (no inodes left)")
        elif room.free_bytes < size_bytes:
            tried.append(f"{folder} ({room.free_bytes // MIB} MiB free)")
        else:
            return Path(folder)
    raise RequirementError(
        f"the lab needs a folder with {size_bytes // MIB} MiB free that allows execution; "
        f"none of these does: {', '.join(tried)}",
        hint="set TMPDIR to such a folder",
    )


OPEN_FILES = 4096
"""How many files a kernel may have to keep open: hostfs has one for each inode that it caches
(fs/hostfs/hostfs_kern.c), 1168 in a run of one cell with IPsec. Beyond its limit it starts no program any
more, and without init it panics."""


def require_open_files() -> None:
    """Let programs that are started have ``OPEN_FILES`` open or more; RequirementError if that is refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES:
        return  # the sandbox's shell raises the other limit to this one
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, OPEN_FILES))
    except (OSError, ValueError) as error:
        raise RequirementError(
            f"the lab's kernel needs {OPEN_FILES} open files, but the hard limit is {hard} here (ulimit -Hn)",
            hint="raise it where the session begins: limits.conf(5), LimitNOFILE= of a service, "
            f"--ulimit nofile={OPEN_FILES} of a container",
        ) from error


def sandbox(writable: Sequence[Path] | None = None) -> list[str]:
    """A wrapper under which a SIGKILL of any process ends all of them: the lab's processes never outlive it.

    Without it they would go on as processes of the machine. It also ends them when the harness dies. With
    ``writable``, they can write only to these folders of the machine, and gain no rights there.
    """
    spaces = ["--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc"]
    mapped = ["--user", "--map-root-user", *spaces]
    # A container's root may not be allowed to make namespaces, but in a user namespace of its own it is.
    # Where parts of /proc are hidden, as in containers, the kernel refuses a second /proc there
    # (mount_too_revealing() of fs/namespace.c). Then the first stays, read-only. It leads to no process
    # outside the user namespace, because in that one alone this root has rights (ptrace_may_access()).
    # For a root without a user namespace it would: that way has a /proc of its own, or is not taken.
    ways = [[*mapped, "--mount-proc"], mapped]
    if os.geteuid() == 0:
        ways.insert(0, [*spaces, "--mount-proc"])
    inner = [] if writable is None else [sys.executable, "-I", "-S", str(CONFINE), *map(str, writable), "--"]
    for way in ways:
        tried = runner.run(["unshare", *way, *inner, "true"], check=False)
        if tried.status == 0:
            break
    else:
        raise _refused(tried.stderr.strip())
    # The shell is process 1 of the namespace. The kernel must not be: it ends a panic with signals that
    # process 1 ignores, and would spin for ever. A session's usual 1024 open files are too few (OPEN_FILES).
    script = 'ulimit -S -n "$(ulimit -H -n)"; "$@"; exit $?'
    return ["setpriv", "--pdeathsig", "KILL", "unshare", *way, *inner, "sh", "-c", script, "sh"]


CONTAINERS = "docs/install.md says what a container needs"


def _refused(said: str) -> RequirementError:
    """Why there can be no sandbox, from what the last way to it ``said``."""
    if said.startswith(f"{CONFINE.stem}: "):
        return RequirementError(
            f"the lab cannot be confined: {said.removeprefix(f'{CONFINE.stem}: ')}",
            hint=f"it takes Linux 5.12 or later, and a seccomp filter that allows it; {CONTAINERS}",
        )
    if runner.run(["unshare", "true"], check=False).status != 0:
        # It asks for nothing, which only a filter refuses.
        return RequirementError(
            "the lab needs namespaces of its own, so that nothing of it can outlive it, but a seccomp filter "
            "forbids unshare(2) here, as that of a container does",
            hint=f"start the container with tools/container-seccomp.json; {CONTAINERS}",
        )
    if runner.run(["unshare", "--user", "--map-root-user", "true"], check=False).status == 0:
        return RequirementError(
            f"the lab needs mounts of its own, but in a user namespace this machine refuses them: {said}",
            hint=f"AppArmor or a seccomp filter may forbid them; {CONTAINERS}",
        )
    if os.geteuid() == 0 and "uid_map" in said:
        return RequirementError(
            "the lab needs a user namespace, into which root may be mapped only by CAP_SETFCAP, "
            "which is missing",
            hint=f"start it as another user, who needs no capability (--user 1000:1000); {CONTAINERS}",
        )
    return RequirementError(
        "the lab needs user namespaces, so that nothing of it can outlive it, but they are refused here: "
        f"{said}",
        hint="as root: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000 (and, on "
        f"Ubuntu, kernel.apparmor_restrict_unprivileged_userns=0); not in a chroot(1); {CONTAINERS}",
    )


def require_visible(path: Path, what: str) -> None:
    """Refuse a path that the lab cannot see, because the lab has a folder of its own in that place."""
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
    has_exchange: bool = False,
) -> Iterator[Lab]:
    """Boot the lab, run ``command`` in it as root, and halt. Leaving the context ends it in any case.

    ``results`` (a folder of the machine) is /run/results in the lab, and the only place that it can write to,
    but for a private folder that is its ``EXCHANGE``, if ``has_exchange``. ``kernel`` is Debian's by default.
    """
    memory_bytes = _memory(storage_bytes)
    with _workshop(journal, kernel or debian_kernel(), memory_bytes) as workshop:
        folder = workshop.make_folder("lab")
        _write_settings(folder, workshop.kernel, command, results=results, early=workshop.early)
        exchange = folder / "exchange" if has_exchange else None
        if exchange is not None:
            exchange.mkdir(mode=0o700)
        core = max(os.sched_getaffinity(0))
        with workshop.start(folder, console, memory_bytes=memory_bytes, core=core, results=results) as lab:
            yield replace(lab, exchange=exchange)


@contextlib.contextmanager
def boot_apart(
    command: Sequence[str],
    *,
    initiators: int,
    journal: Journal,
    console: Path,
    results: Path | None = None,
    storage_bytes: int = 0,
    mtu_bytes: int = 1500,
    kernel: Kernel | None = None,
) -> Iterator[Lab]:
    """Boot a kernel for the target and one for each initiator, and run ``command`` in the first initiator's.

    The command starts once ``ssh target``, ``ssh initiator2`` and so on work there. When it ends, everything
    ends. The first initiator's ``trunk_name(0)`` is connected to the target's ``trunk_name(0)``, the second's
    to the target's ``trunk_name(1)``, and so on, with packets of up to ``mtu_bytes``. ``results`` and
    ``console`` are the first initiator's; beside ``console.log`` there is a ``console-target.log`` for the
    target's, and so on. The storage's memory is the target's; ``kernel`` is as for ``boot``. TestbedError if
    a kernel does not come up.
    """
    management.require_ssh()
    target_core, *cores = sorted(os.sched_getaffinity(0), reverse=True)
    if kernel is not None and kernel.has_virtual_time:
        cores = [target_core]  # one of them runs at a time
    names = [management.initiator_name(number) for number in range(1, initiators + 1)]
    peers = [management.TARGET, *names[1:]]
    memory = {management.TARGET: _memory(storage_bytes), **dict.fromkeys(names, _memory(0))}
    core = {management.TARGET: target_core, **dict(zip(names, itertools.cycle(cores or [target_core])))}
    with contextlib.ExitStack() as stack:
        workshop = stack.enter_context(_workshop(journal, kernel or debian_kernel(), sum(memory.values())))
        folders = {name: workshop.make_folder(name) for name in memory}
        client = folders[names[0]] / "ssh"
        management.make_client(client)
        servers = {peer: folders[peer] / "sshd" for peer in peers}
        for peer, folder in servers.items():
            _write_settings(folders[peer], workshop.kernel, management.serve(folder, client))
        management.introduce(client, servers)
        _write_settings(folders[names[0]], workshop.kernel, command, results=results, peers=peers)
        wires = stack.enter_context(
            wiring.in_one_time(names, mtu_bytes, core=target_core, console=console)
            if workshop.kernel.has_virtual_time
            else wiring.in_real_time(names, mtu_bytes)
        )
        networks = [management.target_network(initiators)]
        networks += [management.initiator_network(number) for number in range(1, initiators + 1)]
        for name, network in zip((management.TARGET, *names), networks, strict=True):
            (folders[name] / "network").write_text(wires[name].naming + network, encoding="utf-8")
        kernels = {}
        for name in (*peers, names[0]):
            log = console if name == names[0] else console.with_name(f"{console.stem}-{name}.log")
            kernels[name] = stack.enter_context(
                workshop.start(
                    folders[name],
                    log,
                    memory_bytes=memory[name],
                    core=core[name],
                    results=results if name == names[0] else None,
                    wires=wires[name],
                )
            )
            wires[name].hand_over()
        yield _await_peers(kernels, names[0])


def _memory(storage_bytes: int) -> int:
    return BASE_MEMORY_BYTES + storage_bytes * 5 // 4


def _await_peers(kernels: dict[str, Lab], first: str) -> Lab:
    """The first initiator's kernel, once it has reached the others; TestbedError if it cannot."""
    lab = kernels[first]
    end = time.monotonic() + PEERS_DEADLINE_S
    while BEGIN_MARK not in (said := lab.said()):
        ended = [name for name, kernel in kernels.items() if kernel.process.poll() is not None]
        if ended or time.monotonic() > end:
            what = f"the kernel of {ended[0]} ended" if ended else f"{PEERS_DEADLINE_S:g} s passed"
            words = "; ".join(f"{name}: {kernel.last_words()}" for name, kernel in kernels.items())
            raise TestbedError(
                f"{what} before all kernels could be reached over ssh; their consoles end with: {words}"
            )
        time.sleep(0.05)
    return replace(lab, begin=lab.begin + said.index(BEGIN_MARK) + len(BEGIN_MARK))


@dataclass(frozen=True, kw_only=True)
class _Workshop:
    """Where kernels are prepared: a private folder, one for their memory, and the wrapper around them."""

    kernel: Kernel
    folder: Path
    memory_folder: Path
    environment: tuple[str, ...]
    early: Path | None = None
    """The library that lets fio begin early (``early.c``), in real time."""

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
            *sandbox(writable),
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
def _workshop(journal: Journal, kernel: Kernel, memory_bytes: int) -> Iterator[_Workshop]:
    """Prepare for kernels with ``memory_bytes`` together."""
    kernel.require_unchanged()
    require_open_files()
    machine = NamespaceHost(name="machine")
    # Not in /dev/shm: the kernel mounts its own /dev before it looks for its first process.
    scratch, memory = (
        ScratchFolder(str(roomy_folder(size, folders) / f"harness-lab-{os.urandom(4).hex()}"))
        for size, folders in ((MIB, DISK_FOLDERS), (memory_bytes, MEMORY_FOLDERS))
    )
    with journal.hold(machine, scratch), journal.hold(machine, memory):
        folder = Path(scratch.path)
        made = {folder / "shims.so": ["traced.c"]}
        if not kernel.has_virtual_time:
            made[folder / "shims.so"].append("interrupts.c")
            made[folder / EARLY] = ["early.c"]
        with ThreadPoolExecutor() as pool:  # side by side, because each takes a tenth of a second
            list(pool.map(_compile, made.keys(), made.values()))
        yield _Workshop(
            kernel=kernel,
            folder=folder,
            memory_folder=Path(memory.path),
            # Only for the kernel: setpriv and unshare do better without.
            environment=("env", f"LD_PRELOAD={folder / 'shims.so'}"),
            early=None if kernel.has_virtual_time else folder / EARLY,
        )


def _compile(library: Path, sources: Sequence[str]) -> None:
    """Make a library of sources of this folder."""
    words = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library)]
    runner.run([*words, *(str(HERE / source) for source in sources), "-ldl"])


def _write_settings(
    folder: Path,
    kernel: Kernel,
    command: Sequence[str],
    *,
    results: Path | None = None,
    peers: Sequence[str] = (),
    early: Path | None = None,
) -> None:
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
