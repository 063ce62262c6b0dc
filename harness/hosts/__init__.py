"""Where commands run. What is brought up asks only this of a host, so a host may be anything:
a network namespace of this machine, another kernel, another machine.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import importlib
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from harness.hosts import namespaces, runner
from harness.hosts.programs import local_operations
from harness.hosts.runner import DEFAULT_TIMEOUT_S, Completed
from harness.hosts.undo import UndoEntry
from harness.model.errors import CommandFailed, RequirementError

PRIVATE = Path("/run/harness/private")
"""On every host: a folder in memory for sockets and secrets, which only the run's processes see."""

BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""Random for each boot of a kernel (random(4))."""

LOADED = "/sys/module"
"""A folder for each module that a kernel has loaded, and for some that are built in."""

OF_ITS_READER = ("/proc/net/", "/proc/sys/net/")
"""Folders that show a process its own network namespace."""


class Ledger(Protocol):
    """A record of what is up on a host: written before something is brought up, crossed out after it is
    undone."""

    def open(self, entry: UndoEntry) -> int: ...

    def close(self, number: int) -> None: ...


class ReadableHost(abc.ABC):
    """A machine, or part of one, whose files and program outputs can be read.

    Its ``name`` is for people: ``initiator``, ``target``, ``hop``.
    """

    name: str

    @property
    @abc.abstractmethod
    def kernel(self) -> object:
        """Equal for two hosts that share a kernel."""

    @property
    def boots(self) -> int:
        """How often the run has had it boot anew: its counters begin again each time."""
        return 0

    @abc.abstractmethod
    def run(
        self, argv: Sequence[str], *, timeout_s: float = DEFAULT_TIMEOUT_S, check: bool = True
    ) -> Completed:
        """Run a program to its end; see ``harness.hosts.runner.run`` for what it raises."""

    @abc.abstractmethod
    def read_files(self, paths: Sequence[str]) -> list[str]:
        """The text of small files (procfs, sysfs), as this host sees them; "" for an absent file."""


H = TypeVar("H", bound=ReadableHost)
T = TypeVar("T")


def of_each(hosts: Sequence[H], ask: Callable[[H], T]) -> list[T]:
    """What ``ask`` finds of each host, in their order. Several machines are asked at the same time."""
    if len({host.kernel for host in hosts}) < 2:
        return [ask(host) for host in hosts]
    from concurrent.futures import ThreadPoolExecutor  # here, because its import takes its time in the lab

    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(ask, hosts))


class Daemon(Protocol):
    """A program that keeps running, as seen by its starter."""

    def ended(self) -> bool:
        """Whether it has ended. HostLost if its host is gone."""
        ...

    def signal(self, number: int) -> None:
        """Send it a signal (signal(7)); do nothing if it has ended."""
        ...


class Host(ReadableHost):
    """A host of a run: commands run on it, and things are brought up there."""

    netns: str | None = None
    """The network namespace of its kernel, None for anything else."""

    @property
    def ledger(self) -> Ledger | None:
        """Its own ledger, if it can lose its connection and must then undo things itself; otherwise None: the
        run's journal."""
        return None

    @abc.abstractmethod
    def in_netns(self, name: str, netns: str) -> Host:
        """The network namespace ``netns`` of the same kernel, as a host. RequirementError if it can have
        none."""

    def reboot(self, within_s: float) -> None:
        """Have it boot anew, and wait until it is back. HostLost if that takes longer."""
        del within_s
        raise RequirementError(f"expected a machine that can boot anew, found the {self.name} of a lab")

    @abc.abstractmethod
    def kernel_messages(self) -> list[str]:
        """The kernel log's lines since the last call, oldest first; none if it may not be read."""

    @abc.abstractmethod
    def clock_offset_ns(self) -> int:
        """Its time of day minus its monotonic clock. Only setting the clock, or sleeping, changes this."""

    @abc.abstractmethod
    def call(self, room: str, program: str, function: str, *words: str) -> bytes:
        """The result of a function of a package's program there, as JSON, without starting a program.

        It only reads, and takes no longer than reading some files does. CommandFailed if it fails.
        """

    @abc.abstractmethod
    def write_secret(self, path: Path, text: str) -> None:
        """Make a file that only its owner may read, and its folder if necessary."""

    @abc.abstractmethod
    def reach(self, path: Path) -> contextlib.AbstractContextManager[Path]:
        """A unix socket here that leads to the unix socket ``path`` there, while the context lasts."""

    def run(
        self,
        argv: Sequence[str],
        *,
        input: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        check: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        completed = self._run(argv, input, timeout_s, env or {})
        return completed.require_success() if check else completed

    def list_folder(self, path: str) -> list[str]:
        """The names in a folder. CommandFailed if it cannot be listed."""
        return self.run(["ls", path]).stdout.splitlines()

    @contextlib.contextmanager
    def daemon(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        ready: Callable[[], bool],
        deadline_s: float,
        env: Mapping[str, str] | None = None,
        output: Path | None = None,
    ) -> Iterator[Daemon]:
        """Keep a program running while the context lasts, unless it ends earlier.

        Its output is appended to ``log``; ``output`` takes its standard output, separate from its standard
        error. The context is entered when ``ready()`` is true for the first time; CommandFailed if the
        program ends before that or ``deadline_s`` passes. At the end it is asked to stop, and then killed.
        """
        what = f"`{runner.command_line(argv)}` on the {self.name}"
        with self._spawned(argv, log, output, env or {}) as daemon:
            runner.await_condition(
                lambda: daemon.ended() or ready(), deadline_s=deadline_s, what=f"{what} to become ready"
            )
            if daemon.ended():
                raise CommandFailed(f"{what} ended while it started: {runner.tail(log)}")
            yield daemon

    @abc.abstractmethod
    def _run(
        self, argv: Sequence[str], input: str | None, timeout_s: float, env: Mapping[str, str]
    ) -> Completed: ...

    @abc.abstractmethod
    def _spawned(
        self, argv: Sequence[str], log: Path, output: Path | None, env: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[Daemon]: ...


@dataclass(frozen=True)
class _Child:
    """A daemon that is a child of this process."""

    process: subprocess.Popen[bytes]

    def ended(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@dataclass(frozen=True)
class NamespaceHost(Host):
    """This kernel: in the network namespace ``netns`` (a name under /run/netns), or the caller's own.

    ``ip netns exec`` would remount /sys and hide configfs. So a thread enters the namespace, as nsenter(1)
    would: this changes only the network. If it ``lists_itself``, folders are listed without a program: in
    virtual time one less is another order of what follows.
    """

    name: str
    netns: str | None = None
    lists_itself: bool = False

    def in_netns(self, name: str, netns: str) -> NamespaceHost:
        return dataclasses.replace(self, name=name, netns=netns)

    @property
    def kernel(self) -> object:
        return "this kernel"

    def kernel_messages(self) -> list[str]:
        return _kernel_log().read()

    def clock_offset_ns(self) -> int:
        return local_operations.clock_offset_ns()

    def _run(
        self, argv: Sequence[str], input: str | None, timeout_s: float, env: Mapping[str, str]
    ) -> Completed:
        # The command line that a person can repeat.
        entered = () if self.netns is None else ("nsenter", f"--net=/run/netns/{self.netns}", "--")
        try:
            done = runner.run(argv, input=input, timeout_s=timeout_s, check=False, env=env, netns=self.netns)
        except namespaces.NotEntered as error:
            done = Completed(argv=tuple(argv), status=1, stdout="", stderr=str(error))
        return dataclasses.replace(done, argv=(*entered, *argv))

    @contextlib.contextmanager
    def _spawned(
        self, argv: Sequence[str], log: Path, output: Path | None, env: Mapping[str, str]
    ) -> Iterator[Daemon]:
        with runner.spawned(argv, log=log, output=output, env=env, netns=self.netns) as process:
            yield _Child(process)

    def read_files(self, paths: Sequence[str]) -> list[str]:
        netns = self.netns
        if netns is not None and any(path.startswith(OF_ITS_READER) for path in paths):
            # As this thread sees them: /proc/net is that of the process's first thread.
            seen = [path.replace("/proc/net/", "/proc/thread-self/net/", 1) for path in paths]
            try:
                return namespaces.within(netns, lambda: local_operations.read_files(seen))
            except namespaces.NotEntered:
                return [""] * len(paths)
        return local_operations.read_files(paths)

    def list_folder(self, path: str) -> list[str]:
        if not self.lists_itself:
            return super().list_folder(path)
        try:
            return sorted(entry.name for entry in Path(path).iterdir() if entry.name[0] != ".")
        except OSError as error:
            raise CommandFailed(f"{path} of the {self.name} cannot be listed: {error.strerror}") from error

    def call(self, room: str, program: str, function: str, *words: str) -> bytes:
        called = importlib.import_module(f"{room}.programs.{program}")
        try:
            return msgspec.json.encode(getattr(called, function)(*words))
        except (OSError, ValueError) as error:
            raise CommandFailed(f"the {self.name} could not do it: {error}") from error

    def write_secret(self, path: Path, text: str) -> None:
        local_operations.write_secret(path, text)

    @contextlib.contextmanager
    def reach(self, path: Path) -> Iterator[Path]:
        yield path


@cache
def _kernel_log() -> local_operations.KernelLog:
    """One log for the process, because it runs on one kernel."""
    return local_operations.KernelLog()
