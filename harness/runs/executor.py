"""The executor of a run inside a testbed, as root, in its own mount namespace: ``python -m
harness.runs.executor``.

The lab and the machine's own kernel run the same code here. Its mounts are private to this process and vanish
with it: configuration, node records and secrets never reach a disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis import disturbance
from harness.hosts import LOADED, PRIVATE, Host, NamespaceHost, of_each, runner
from harness.hosts.black_box import BlackBoxHost
from harness.hosts.footprint import module_name
from harness.hosts.journal import Journal
from harness.hosts.runner import last_lines
from harness.hosts.state import lasting_folder
from harness.model import ENDS, TRANSPORTS, LabKernel, Plan, signals, unread
from harness.model.errors import CommandFailed, HarnessError, HostLost, Interrupted, RequirementError
from harness.network import paths
from harness.results import sections
from harness.results.events import Emit, Ended, Failed, Phase, writer
from harness.results.store import RunFolder
from harness.runs import fio_startup, modules
from harness.runs.cells import CellComposer
from harness.runs.columns import Hosts
from harness.storage import chap, transports
from harness.testbeds import participants
from harness.testbeds.heartbeat import BEAT_S, VIRTUAL_BEAT_S, beating
from harness.testbeds.participants import Participant

if TYPE_CHECKING:
    from harness.observe.hops import AskedHop, Hop

TMPFS = (str(PRIVATE), "/run/netns")
INTERRUPTED = 130
"""Exit status after Ctrl-C, the one that shells use."""

_private: set[str] = set()
"""The folders over which this process has mounted a tmpfs."""


def mount_private(*more: str, virtual_time: bool = False) -> None:
    """Mount a tmpfs over each of ``TMPFS``, ``more``, and the transports' existing folders, once.

    Only this process and its children see it.
    """
    mount = _let_mount if virtual_time else _mount
    for place in (*TMPFS, *more):
        Path(place).mkdir(parents=True, exist_ok=True)
    theirs = dict.fromkeys(place for role in ENDS for place in transports.private_folders(role))
    records = (place for place in theirs if Path(place).is_dir())
    for place in dict.fromkeys((*TMPFS, *records, *more)):
        if place not in _private:
            mount(place)
            _private.add(place)


def _let_mount(place: str) -> None:
    """By mount(8). The wait for its end takes a moment of virtual time, and all that follows begins later."""
    runner.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", place])


def _mount(place: str) -> None:
    """As mount(8) does; to start that takes its time in the lab. CommandFailed if it cannot be mounted."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"mode=0700") != 0:
        raise CommandFailed(f"no tmpfs could be mounted over {place}: {os.strerror(ctypes.get_errno())}")


def get_ready() -> None:
    """On the lab's kernel: do ahead what each run does. A run finds out by itself what could not be done."""
    with contextlib.suppress(HarnessError, OSError):
        mount_private()
        fio_startup.fio()


@contextlib.contextmanager
def hosts(plan: Plan, folder: RunFolder, emit: Emit) -> Iterator[Hosts]:
    """The hosts of a run: this kernel alone, several kernels, or machines; each is reached and ready to
    serve.

    Raises HarnessError, before anything is brought up, for the first host that cannot take part.
    """
    with contextlib.ExitStack() as stack:
        # Before the others, because their agents are the first thing that is brought up.
        between = _between(plan, folder, stack) if plan.hops else ()
        here = functools.partial(NamespaceHost, lists_itself=not plan.setting.is_virtual)
        machines = plan.machines
        if machines is None:
            # All in one network namespace, because open-iscsi knows no other; each has links of its own.
            count = max((column.initiators for column in plan.columns), default=1)
            near = tuple(map(here, participants.names("initiator", count)))
            yield Hosts(target=here("target"), initiators=near, hops=between)
            return

        def reach(machine: Participant) -> Host:
            name = machine.name
            if plan.capabilities.boots_kernels and machine.address.is_local:
                return here(name)
            host = stack.enter_context(machine.reached(plan.run_id, folder.path / f"{name}.log"))
            removed, failed = host.recovered
            for what in removed:
                emit(Phase(f"removed on the {name}, left by an earlier run: {what}"))
            for what in failed:
                emit(Phase(f"could not be removed on the {name}: {what}"))
            return host

        # The initiators first: a session that a killed run left can be ended only while its target is still
        # there.
        named = participants.machines(machines.target, machines.initiators)
        initiators = tuple(reach(each) for each in named if each.role == "initiator")
        target = next((reach(each) for each in named if each.role == "target"), BlackBoxHost())
        if plan.capabilities.has_machines:
            from harness.network import interfaces  # here, because their import takes its time in the lab
            from harness.testbeds import doctor

            roles = dict.fromkeys(initiators, "initiator")
            seen = roles if isinstance(target, BlackBoxHost) else {**roles, target: "target"}
            of_each([*seen], lambda host: doctor.require(host, seen[host], plan))
            for initiator, link in itertools.product(initiators, plan.links.values()):
                if plan.storage.black_box is not None:
                    interfaces.to_portal(initiator, link, index=0, port=plan.storage.black_box.port)
                elif link.interface is not None:
                    interfaces.check(initiator, target, link)
        yield Hosts(target=target, initiators=initiators, hops=between)


def _between(plan: Plan, folder: RunFolder, stack: contextlib.ExitStack) -> tuple[Hop | AskedHop, ...]:
    """The hops of a plan, each reached until ``stack`` ends."""
    from harness.observe import hops

    return tuple(
        stack.enter_context(hops.reached(text, name=name, log=folder.path / f"{name}.log"))
        for text, name in zip(plan.hops, hops.names(len(plan.hops)), strict=True)
    )


def prepare(plan: Plan, taking_part: Hosts) -> dict[str, RequirementError]:
    """Load kernel modules. Returns the transports that a host's kernel does not support, each with the error.

    RequirementError names every module that a kernel lacks, if every column needs one of them.
    """
    # By transport; first what all columns need.
    needs: dict[str, Mapping[str, Sequence[str]]] = {"": modules.of(plan), **modules.of_transports(plan)}
    roles = {host: "target" if host is taking_part.target else "initiator" for host in taking_part.all}
    needed: dict[object, tuple[Host, list[str]]] = {}
    for host, role in roles.items():  # several may share a kernel
        names = needed.setdefault(host.kernel, (host, []))[1]
        names += itertools.chain.from_iterable(each[role] for each in needs.values())
    names_of = dict(needed.values())
    found = of_each([*names_of], lambda host: _absent(host, names_of[host]))
    absent = dict(zip(needed, found, strict=True))
    hint = "run in the lab with --testbed lab, or install a kernel that has these modules"
    if plan.setting.lab_kernel is LabKernel.DEBIAN:
        hint = "the custom kernel has them: harness kernel build, then --lab-kernel custom"
    unavailable: dict[str, RequirementError] = {}
    for name, each in needs.items():
        purpose = f" for {TRANSPORTS[name]}" if name else ""
        for host, role in roles.items():
            missing = [module_name(module) for module in each[role] if module in absent[host.kernel]]
            if missing and name not in unavailable:
                text = f"the {host.name}'s kernel lacks {', '.join(missing)}{purpose}"
                unavailable[name] = RequirementError(text, hint=hint)
    if unavailable and ("" in unavailable or unavailable.keys() == set(plan.transports)):
        raise next(iter(unavailable.values()))
    return unavailable


def _absent(host: Host, names: Sequence[str]) -> set[str]:
    """Those of these modules that a host's kernel does not have; it has loaded the others."""
    loaded = host.list_folder(LOADED)
    new = [name for name in dict.fromkeys(names) if name not in loaded]
    # One with parameters takes a program of its own.
    alone = [name for name in new if name in modules.ONLY_LOOKED_FOR or " " in name]
    together = [name for name in new if name not in alone]
    # One program for all, because each takes its time in the lab. It says only whether all are there.
    if together and host.run(["modprobe", "-a", *together], check=False).status != 0:
        alone = new
    return {name for name in alone if not _has(host, name)}


def _has(host: Host, module: str) -> bool:
    how = ["-n"] if module in modules.ONLY_LOOKED_FOR else []
    return host.run(["modprobe", *how, *module.split()], check=False).status == 0


def execute(folder: RunFolder, journal: Journal, emit: Emit) -> None:
    """Carry out the rest of the folder's plan: its cells, or its probes."""
    plan = folder.load_plan()
    # What cannot be read is measured again; the command that began this run has named it.
    with unread.noted():
        todo = sections.schedule(plan, folder.load_records())
        probed = {record.key for record in folder.load_probes() if disturbance.is_final(record, plan)}
    if not plan.capabilities.has_machines:
        mount_private(*paths.private_folders(plan.links.values()), virtual_time=plan.setting.is_virtual)
    emit(Phase("reaching the hosts"))
    beat_s = VIRTUAL_BEAT_S if plan.setting.is_virtual else BEAT_S
    heart = beating(folder.path, beat_s) if plan.capabilities.boots_kernels else contextlib.nullcontext()
    with heart, hosts(plan, folder, emit) as taking_part:
        if plan.probing:
            from harness.runs.prober import Prober, questions  # here, because most runs are of cells

            prepare(plan, taking_part)
            prober = Prober(plan, folder, emit, hosts=taking_part, journal=journal, private=PRIVATE)
            left = [(order, q) for order, q in enumerate(questions(plan)) if q.key not in probed]
            prober.execute(left)
        else:
            composer = CellComposer(plan, folder, emit, hosts=taking_part, journal=journal, private=PRIVATE)
            composer.refuse_storage()
            composer.unavailable = prepare(plan, taking_part)
            composer.execute(todo)


def run(run_folder: str, journal_path: str) -> int:
    """Run a plan to its end. ``events.jsonl`` and the exit status report the outcome."""
    folder = RunFolder(Path(run_folder))
    emit = writer(folder.path / "events.jsonl")
    Path(journal_path).parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(Path(journal_path), lasting=lasting_folder())
    failed: Failed | None = None
    plan = folder.load_plan()
    try:
        try:
            execute(folder, journal, emit)
        finally:
            fio_startup.end()
            signals.ignore()  # all that remains is to report the end
    except HostLost as error:
        failed = Failed(error.message, f"{error.hint}; then go on with: {_go_on(plan)}", error.exit_code)
    except HarnessError as error:
        failed = Failed(error.message, error.hint, error.exit_code)
    except Interrupted:
        failed = Failed("interrupted", f"finish it with: {_go_on(plan)}", INTERRUPTED)
    except Exception as error:
        # A host's answer passes through much code. The traceback goes to the console, which is a file.
        traceback.print_exc()
        what = f"the run met an unexpected error: {type(error).__name__}: {last_lines(str(error))}"
        failed = Failed(what, f"see console.log in the run's folder; then go on with: {_go_on(plan)}", 1)
    if failed is not None:
        emit(failed)
    journal.end()
    emit(Ended(tuple(journal.leaks)))
    return failed.exit_code if failed is not None else int(bool(journal.leaks))


def _go_on(plan: Plan) -> str:
    """The command that goes on with a run which did not end."""
    from harness.results import planned  # here, because most runs end

    return planned.resume_command(plan, plan.run_id)


def recover(journal_path: str) -> int:
    """Undo what a killed run on this kernel left. Prints what was removed; what was not removed is an
    error."""
    mount_private()
    removed, failed = Journal(Path(journal_path)).recover()
    for line in removed:
        sys.stdout.write(f"{line}\n")
    for line in failed:
        sys.stderr.write(f"{line}\n")
    return 1 if failed else 0


def main(argv: list[str]) -> int:
    """``run RUN_FOLDER JOURNAL`` or ``recover JOURNAL``."""
    signals.unwind()
    chap.take()
    return run(*argv[1:]) if argv[0] == "run" else recover(*argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
