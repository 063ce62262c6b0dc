"""Testbeds start a run's executor (``harness.runs.executor``), follow it and end it.

``lab``: in the user-mode kernel, for every user. ``host``: on this machine's own kernel, for root, in a mount
and a process namespace of its own. ``machines``: here, as the user, with a connection to each machine. All of
them run the same code, which reports its progress in a file.
"""

from __future__ import annotations

import compileall
import contextlib
import dataclasses
import functools
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import harness
from harness.hosts import NamespaceHost, runner
from harness.hosts.journal import Journal, UnreadableJournal, left_on_disk
from harness.hosts.state import lasting_folder
from harness.model import Ciphers, LabKernel, Plan, TestbedKind, signals
from harness.model.errors import HarnessError, RequirementError, TestbedError
from harness.model.units import format_size, unknown_name
from harness.observe import environment, interference
from harness.parse.files import Room
from harness.results.events import CellEnded, CellStarted, Ended, Event, EventReader, Phase
from harness.results.machine import MACHINE, TOOLS
from harness.results.planned import resume_command
from harness.results.store import RunFolder
from harness.storage import chap, transports
from harness.testbeds import entry_points
from harness.testbeds.heartbeat import HEARTBEAT
from harness.testbeds.lab import boot, persistent
from harness.testbeds.lab.kernels import ciphers, kernel

AUTO = "auto"
POLL_S = 0.05
ROOM_FOR_LAST_WORDS_BYTES = 64 << 10
"""If the results folder has less room than this, a run that ended without a message had no room for one."""

INSIDE = "-inside"
"""Suffix of a journal that was written inside the testbed ``host``."""

PRIVATE_MOUNTS = ("unshare", "--mount", "--propagation", "private")

UNWIND_DEADLINE_S = 60
"""How long an interrupted run on the machine's own kernel may take to undo everything."""


STALL_S = 90.0
"""Real seconds without a heartbeat before a guest counts as stalled. The tenth of a virtual second between
two beats takes it less than a real second, and some 20 s on a badly overloaded machine."""

STOPPED_S = 2.0
"""Who looks so much later than it meant to was itself stopped (Ctrl-Z), and perhaps the guest with it."""


def choose(wanted: str) -> TestbedKind:
    """``auto`` is the lab: the machine's own kernel is used only if it is named."""
    if wanted not in (AUTO, *TestbedKind):
        raise unknown_name("testbed", wanted, [AUTO, *TestbedKind])
    return TestbedKind.LAB if wanted == AUTO else TestbedKind(wanted)


def require_rights(plan: Plan) -> None:
    """Refuse what this user may not do, before anything is made."""
    if plan.capabilities.is_users_kernel and os.geteuid() != 0:
        raise RequirementError(
            "the testbed `host` uses this machine's own kernel, which needs root",
            hint="use the default testbed, the lab, which needs none",
        )


def events(plan: Plan, folder: Path, journal: Journal, journal_folder: Path) -> Generator[Event, None, None]:
    """Start the plan's testbed on a run folder and yield its events until it has ended.

    TestbedError if it ends without a message. Closing the iterator (Ctrl-C, an exception) ends it: on the
    machine's own kernel after it has undone everything, in the lab at once, because everything is in the
    lab's kernel.
    """
    reported_end = False
    log = folder / "events.jsonl"
    reader = EventReader(log, start=log.stat().st_size if log.exists() else 0)
    console = folder / "console.log"
    begin = console.stat().st_size if console.exists() else 0
    pulse = Pulse(folder, plan) if plan.capabilities.boots_kernels else None
    starting: contextlib.AbstractContextManager[Process]
    if plan.capabilities.boots_kernels:
        lab_state, reason = _persistent_lab(plan, folder, journal_folder)
        if reason:
            yield Phase(f"booting a lab for this run: the persistent one cannot be used, because {reason}")
        starting = (
            _in_lab(plan, folder, console, journal)
            if lab_state is None
            else _in_persistent_lab(lab_state, folder, journal_folder)
        )
    else:
        starting = _unwinding(plan, folder, console, journal_folder)
    try:
        with starting as process:
            while True:
                # Checked before reading, so that the last events of an ended process are still read.
                ended = process.poll() is not None
                for event in reader.read():
                    if pulse is not None:
                        pulse.note(event)
                    reported_end = reported_end or isinstance(event, Ended)
                    yield event
                    if reported_end:
                        with contextlib.suppress(Exception):
                            process.wait(timeout=5)
                        return
                if ended:
                    break
                if pulse is not None:
                    pulse.require()
                time.sleep(POLL_S)
    finally:
        if not reported_end:
            journal.leaks += _leaks_after(reader.read(), plan)
    room = Room.of(folder)
    if room.free_bytes < ROOM_FOR_LAST_WORDS_BYTES or room.files == 0:
        free = "no inodes" if room.files == 0 else format_size(room.free_bytes)
        raise TestbedError(
            f"the results folder {folder} is full ({free} free)",
            hint=f"make room, then go on with: {resume_command(plan, plan.run_id)}",
        )
    raise TestbedError(
        f"the {plan.setting.testbed} testbed ended without finishing the run: "
        f"{boot.last_words(console, begin)}",
        hint=f"its console is in {console}; go on with: {resume_command(plan, plan.run_id)}",
    )


def _leaks_after(last_words: list[Event], plan: Plan) -> list[str]:
    """What an abandoned run could not undo, unless a journal here names it."""
    for event in last_words:
        if isinstance(event, Ended):
            return list(event.leaks)
    if not plan.capabilities.has_machines:
        return []
    return ["the run's resources on the machines, which remove them within half a minute"]


class Pulse:
    """Whether time passes in a guest.

    Virtual time stands still for ever if something in the guest never waits, and so does every deadline in
    the guest; real time does in a kernel that misses a timer. The real clock goes on, so a stalled guest is
    found from outside.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._file = folder / HEARTBEAT
        self._plan = plan
        self._last = b""
        self._since = self._looked = time.monotonic()
        self._doing = "it had not begun"

    def note(self, event: Event) -> None:
        """Note what the guest is doing."""
        self._since = time.monotonic()
        match event:
            case CellStarted():
                self._doing = f"it was measuring the cell {event.key}"
            case CellEnded():
                self._doing = f"it had measured the cell {event.key}"
            case Phase():
                self._doing = f"it was {event.text}"

    def require(self) -> None:
        """TestbedError if there was neither a heartbeat nor an event for ``STALL_S``."""
        before, self._looked = self._looked, time.monotonic()
        if self._looked - before > STOPPED_S:
            self._since += self._looked - before
        with contextlib.suppress(OSError):
            beat = self._file.read_bytes()
            if beat != self._last:
                self._last, self._since = beat, self._looked
        if self._looked - self._since <= STALL_S:
            return
        if self._plan.setting.is_virtual:
            raise TestbedError(
                f"the guest has stalled: virtual time stood still for {STALL_S:g} s of real time, because "
                f"something in the guest never waits; {self._doing}",
                hint="its kernel was ended; the console and logs in the run's folder may say what was busy",
            )
        raise TestbedError(
            f"the guest has stalled: it was not heard of for {STALL_S:g} s; {self._doing}",
            hint=f"its kernel was ended; go on with: {resume_command(self._plan, self._plan.run_id)}",
        )


class Process(Protocol):
    """The operations on the process of a run's executor."""

    def poll(self) -> int | None: ...

    def wait(self, timeout: float) -> int: ...


def room_bytes(plan: Plan) -> int:
    """The memory of the lab that a run's storage takes, and what keeps its columns up."""
    initiators = max((column.initiators for column in plan.columns), default=1)
    storage_bytes = plan.storage.backing.size_bytes * (1 if plan.storage.shared_lun else initiators)
    layers = sum(
        column.initiators * (1 + len(column.protection)) for column in plan.columns if column.has_path
    )
    return storage_bytes + max(0, layers - boot.BASE_LAYERS) * boot.LAYER_BYTES


def _persistent_lab(plan: Plan, folder: Path, state: Path) -> tuple[persistent.LabState | None, str]:
    """The lab that is up, if a run can use it; if not, why, as ``… because REASON``.

    No reason if none is up.
    """
    try:
        if (lab_state := persistent.ask(state, is_waiting=False)) is None:
            return None, ""
        if plan.setting.is_virtual:
            return None, "time is real"
        if not plan.capabilities.shares_kernel:
            return None, "there is only one kernel"
        name = plan.setting.lab_kernel or LabKernel.DEBIAN
        needs = persistent.terms(name, _kernel(plan), room_bytes(plan), folder.parent)
        if (reason := persistent.why_not(lab_state.terms, needs)) is not None:
            return None, reason
        lab_state = persistent.ask(state)
    except TestbedError as error:
        return None, f"nothing is heard: {error.message}"
    if lab_state is not None and lab_state.fault:
        return None, f"there is no kernel: {lab_state.fault}"
    return lab_state, ""


@contextlib.contextmanager
def _in_persistent_lab(
    lab_state: persistent.LabState, folder: Path, journal_folder: Path
) -> Iterator[Process]:
    """Its daemon has the journal."""
    found = {"up_s": round(lab_state.up_s, 1), "runs_before": lab_state.runs}
    with persistent.run(journal_folder, folder, lab_state) as run:
        _note_machine(RunFolder(folder), {"persistent_lab": found, TOOLS: _tools()})
        with interference.looking(folder, lab_state.pid):
            yield run


def _kernel(plan: Plan) -> boot.Kernel:
    """The kernel that the lab boots for a plan. RequirementError if it is gone, or its ciphers."""
    chosen = _chosen(plan)
    options = [word for word in chosen.options if word != boot.NO_IPV6]
    # Links of IPv4 stay without what IPv6 sends unasked. A lab that stays up for runs of IPv4 is another one.
    return dataclasses.replace(chosen, options=(*options, boot.IPV6)) if plan.speaks_ipv6 else chosen


def _chosen(plan: Plan) -> boot.Kernel:
    if plan.setting.lab_kernel is not LabKernel.CUSTOM:
        if plan.setting.ciphers is not Ciphers.ACCELERATED:
            return boot.debian_kernel()
        if (found := ciphers.cached()) is None:
            raise RequirementError(
                f"expected {ciphers.WHAT}, with which this run was planned, but they are gone",
                hint=f"build them again: {ciphers.COMMAND}",
            )
        return found
    chosen = kernel.custom_kernel(
        plan.setting.other_kernel.key if plan.setting.other_kernel is not None else ""
    )
    options = [*chosen.options]
    options += [kernel.GENERIC_CIPHERS] if plan.setting.has_generic else []
    options += kernel.VIRTUAL_TIME if plan.setting.is_virtual else ()
    return dataclasses.replace(chosen, options=tuple(options))


@contextlib.contextmanager
def _in_lab(plan: Plan, folder: Path, console: Path, journal: Journal) -> Iterator[Process]:
    """The lab's own journal ends with its kernel, like everything that it names."""
    boot.require_visible(Path(sys.prefix), "the Python environment")
    boot.require_visible(Path(__file__).resolve(), "the harness")
    command = entry_points.command(entry_points.EXECUTOR, "run", entry_points.RESULTS, entry_points.JOURNAL)
    boots: Callable[..., contextlib.AbstractContextManager[boot.Lab]] = boot.booted
    if plan.machines is not None:
        from harness.testbeds.lab import per_host  # here, because most runs have one kernel

        mtu_bytes = max((link.mtu_bytes for link in plan.links.values()), default=1500)
        count = len(plan.machines.initiators)
        boots = functools.partial(per_host.booted, initiators=count, mtu_bytes=mtu_bytes)
    booting = boots(
        command,
        journal=journal,
        console=console,
        results=folder,
        storage_bytes=room_bytes(plan),
        kernel=_kernel(plan),
    )

    def note() -> None:
        # The lab has the machine's programs, and there each would take its time to start.
        _note_machine(RunFolder(folder), {} if plan.machines else {TOOLS: _tools()})

    if plan.setting.is_virtual:  # there it must not matter who is faster
        note()
    watching = contextlib.nullcontext() if plan.setting.is_virtual else interference.looking(folder)
    with booting as booted, watching:
        # While the kernel boots, which takes longer than both.
        _keep_compiled()
        if not plan.setting.is_virtual:
            note()
        yield booted.process


def _keep_compiled() -> None:
    """Compile those modules of the harness that are not: the lab cannot write them, and would each time."""
    package = Path(harness.__file__).parent
    if not sys.dont_write_bytecode and os.access(package, os.W_OK):
        with contextlib.suppress(OSError):
            compileall.compile_dir(package, quiet=2)


def _tools() -> dict[str, str]:
    """The versions of the tools that the lab finds."""
    return environment.versions(NamespaceHost(name=MACHINE), transports.versions(), env={"PATH": boot.PATH})


def _note_machine(folder: RunFolder, more: Mapping[str, object] | None = None) -> None:
    """Write down what the machine is: nothing inside the lab can know it."""
    # A full disk, or a damaged file of a resumed run, ends the run elsewhere, with a better message.
    with contextlib.suppress(HarnessError, OSError):
        facts = environment.describe_machine(NamespaceHost(name=MACHINE))
        folder.save_environment({**folder.load_environment(), MACHINE: {**facts, **(more or {})}})


@contextlib.contextmanager
def _unwinding(plan: Plan, folder: Path, console: Path, journal_folder: Path) -> Iterator[Process]:
    """A run's inside on this machine's kernel, or with machines. It gets the time to undo everything if it
    has to end early. It keeps a journal of its own; with machines, so do their agents."""
    inner = journal_folder / f"journal-{folder.name}{INSIDE}.jsonl"
    command = entry_points.command(entry_points.EXECUTOR, "run", str(folder), str(inner))
    if plan.capabilities.is_users_kernel:
        # A process namespace, so that a SIGKILL also ends the daemons; what stays in the kernel is in the
        # journal. Other users of the machine are seen in its own procfs, which is kept.
        keep = 'mkdir -p "$0" && mount --bind /proc "$0" && exec "$@"'
        outer = [*PRIVATE_MOUNTS, "sh", "-c", keep, str(interference.MACHINES_PROC)]
        spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*outer, *spaces, *command]
    command = ["setpriv", "--pdeathsig", "KILL", *command]
    with runner.piped(command, output=console, env=chap.environment()) as process:
        try:
            yield process
        finally:
            signals.surely(lambda: _ask_to_end(process))


def _ask_to_end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(Exception):
            process.wait(timeout=UNWIND_DEADLINE_S)


def recover(state: Path) -> tuple[list[str], list[str]]:
    """Undo what earlier, killed runs left, by their journals; returns (removed, not removed).

    Only call this while holding the testbed: the journals must have no living owner.
    """
    removed, failed = persistent.tidy(state)
    for path in sorted(state.glob("journal-*.jsonl")):
        if path.stem.endswith(INSIDE):
            # It names things of this machine's kernel, which are undone in the kernel's own namespaces.
            done = runner.run(
                [*PRIVATE_MOUNTS, *entry_points.command(entry_points.EXECUTOR, "recover", str(path))],
                check=False,
                timeout_s=UNWIND_DEADLINE_S,
            )
            removed += done.stdout.splitlines()
            failed += done.stderr.splitlines()
        else:
            gone, left = Journal(path).recover()
            removed += gone
            failed += left
    # After what depended on it: a reboot leaves these names behind.
    for journal in left_on_disk(lasting_folder()):
        gone, left = journal.recover()
        removed += gone
        failed += left
    return removed, failed


def left(state: Path) -> tuple[str, ...]:
    """What is still up according to this machine's journals. Only call this while holding the testbed."""
    journals = (Journal(path) for path in sorted(state.glob("journal-*.jsonl")))
    found = itertools.chain(journals, left_on_disk(lasting_folder()))
    names: list[str] = []
    for journal in found:
        try:
            names += [entry.what for entry in journal.open_entries().values()]
        except UnreadableJournal:
            names.append(f"what {journal.path} names")
    return tuple(names)
