"""A fault in the middle of a load: what it breaks and makes whole again, while the load's program runs."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.hosts import PRIVATE, Host, NamespaceHost, runner
from harness.hosts.faults import Rebooted
from harness.hosts.journal import Journal, Resource
from harness.model import Cell, End, Plan, Record
from harness.model.addresses import UNIQUE_LOCAL
from harness.model.errors import CommandFailed, RequirementError
from harness.model.stalls import LogLine
from harness.network import faults
from harness.network.links import LinkPath
from harness.observe.counters import kernel_of
from harness.questions.fault import logs
from harness.questions.fault.requests import LoadOutput, judged
from harness.questions.fault.section import (
    OF_DISKS,
    OF_THE_AIR,
    REBOOT,
    REBOOT_S,
    ROAM,
    SECTION,
    WITH_RESET,
    Fault,
    Faults,
)
from harness.questions.fault.timers import possible, speaks_of
from harness.runs import around, fio_startup, modules
from harness.runs.measure import ConnectedLun, Meanwhile
from harness.storage import configfs
from harness.storage import faults as of_disks

WATCHDOG_S = 10.0
"""A fault that nobody ended is ended by its host itself, so long after it was due to end."""

STARTING_S = 1.0
"""The load's program counts its own time, from when it has started. What it takes for the time before the
fault ends so long before that, and what it takes for the fault so long after it."""

INTERFACE_S = 120.0
"""A machine that has booted has its interfaces by then."""

MOST_MESSAGES = 200
"""The first ones, for a device that fails says so for each request; and the last ones of timers."""

_LINE = re.compile(r"^\[ *(\d+)\.(\d{6})\] (.*)$", re.MULTILINE)
"""Of dmesg(1): seconds of the monotonic clock."""


def places(
    kind: str,
    lun: ConnectedLun,
    most_s: float = 0.0,
    made_again: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> faults.Places:
    """What a fault (``section.KINDS``) breaks of a connected LUN, and where, for ``most_s`` where the kernel
    can end it by itself. ``made_again`` makes the target again that boots meanwhile.

    RequirementError if its column has nothing of that kind.
    """
    path = lun.path
    if lun.link.is_shared and kind in faults.OF_PORTALS:
        if not path.sees_target:
            faults.require_alone(path, 1 + int(lun.session.get("queues", 0)))
        return faults.blocked(path, kind, math.ceil(most_s))
    if kind in faults.OF_LINKS:
        return faults.OF_LINKS[kind](lun.link)
    if kind == REBOOT:
        require_apart(path)
        return [(path.target, Rebooted(path.target.name, REBOOT_S, made_again))]
    if kind == "connection-reset":
        return [(path.target, faults.Reset(path.initiator_address, path.port))]
    then = places("connection-reset", lun) if kind in WITH_RESET else []
    if kind in OF_DISKS:
        return [(path.target, of_disks.OF_DISKS[kind]())]
    if kind in lun.outages:
        return [(path.target, lun.outages[kind]), *then]
    of_air = [lun.up.air_path.breaks()] if lun.up.air_path is not None else []
    known = [layer.breaks() for layer in lun.up.layers] + of_air
    found = [breaks[kind] for breaks in known if kind in breaks]
    if not found:
        protections = " and ".join(layer.title for layer in lun.up.layers) or "no protection"
        raise RequirementError(f"expected a column that {kind} can break, found one with {protections}")
    return [*found, *then]


class AroundFault(around.Around):
    """One fault in one cell."""

    def __init__(self, plan: Faults, fault: Fault, modules: Sequence[str] = (), *, is_here: bool) -> None:
        """``modules`` are those of the target's kernel. ``is_here``: the initiator's clock is this
        process's."""
        self.plan, self.fault, self.modules, self.is_here = plan, fault, modules, is_here
        self.parameters = fault.parameters
        self.may = Meanwhile(reconnects=True, breaks_air=fault.kind in (*OF_THE_AIR, ROAM))
        self._over_file = PRIVATE / f"over-{time.time_ns()}" if fault.kind == REBOOT else None
        lasts = str(self._over_file or f"{fault.lasts_s + 2 * STARTING_S:g}")
        self.program = fio_startup.open_loop(f"{plan.before_s - STARTING_S:g}", lasts, f"{plan.after_s:g}")
        self._clock = InitiatorClock()
        self._logs_ahead_ns: Mapping[End, int] = {}
        self._began_ns = self._ended_ns = 0

    @contextlib.contextmanager
    def while_it_runs(self, lun: ConnectedLun, journal: Journal, folder: Path) -> Iterator[None]:
        made_again = functools.partial(self._made_again, lun.link, journal)
        broken = places(self.fault.kind, lun, self.fault.lasts_s + WATCHDOG_S, made_again)
        ends_s = self.plan.before_s + self.fault.lasts_s
        ends = logs.ends(lun.path, boots=self.fault.kind == REBOOT)
        over, failures = threading.Event(), list[BaseException]()

        def break_it() -> None:
            try:
                with contextlib.ExitStack() as stack:
                    for host, resource in broken:
                        if resource.undo():
                            stack.enter_context(watchdog(host, resource, ends_s + WATCHDOG_S, folder))
                    if over.wait(self.plan.before_s):
                        return
                    self._logs_ahead_ns = logs.ahead_ns(ends)
                    if not self.is_here:
                        self._clock = marked(lun.path.initiator, self.fault.name)
                    with contextlib.ExitStack() as fault:
                        self._began_ns = time.monotonic_ns()
                        for host, resource in broken:
                            fault.enter_context(journal.hold(host, resource))
                            # What a journal's steps cannot make whole again, but only this process can.
                            fault.callback(getattr(resource, "restore", lambda: None))
                        over.wait(self._began_ns / 1e9 + self.fault.lasts_s - time.monotonic())
                    self._ended_ns = time.monotonic_ns()
                    if self._over_file is not None:
                        lun.path.initiator.write_secret(self._over_file, "")
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=break_it)
        thread.start()
        try:
            with logs.tcp_watched(ends, lun.path.port, folder):
                yield
        finally:
            over.set()
            thread.join()
        if failures:
            raise failures[0]

    @contextlib.contextmanager
    def _made_again(self, link: LinkPath, journal: Journal) -> Iterator[None]:
        """Of a target that boots meanwhile, when its interface is as it was before."""
        host, iface = link.target, link.target_iface
        with journal.keeping(host):
            yield
            for module in self.modules:
                # One that the kernel does not have is of a transport that has no column
                # (``executor.prepare``).
                host.run(["modprobe", *module.split()], check=False)
            configfs.mount(host, "target")
            runner.await_condition(
                lambda: is_up(host, iface, link.target_address),
                deadline_s=INTERFACE_S,
                what=f"{link.target_address} on {iface} of the {host.name}, which has booted",
                interval_s=0.5,
            )
            journal.make_again(host)

    def judged(self, record: Record, lun: ConnectedLun, raw: Path) -> Record:
        if not self._ended_ns:
            raise CommandFailed("expected the load to outlast the fault, but it ended before that")
        report = msgspec.json.decode((raw / "fio.json").read_bytes(), type=LoadOutput).around
        start_ns = report.start_ns - self._clock.ahead_ns
        stall = judged(
            report,
            fault=self.fault.name,
            began_ns=max(0, self._began_ns - start_ns),
            ended_ns=max(0, self._ended_ns - start_ns),
        )
        logged = [
            (int(seconds) * 10**9 + int(parts) * 1000, text)
            for seconds, parts, text in _LINE.findall(lun.path.initiator.run(["dmesg"]).stdout)
        ]
        began_ns = next((at_ns for at_ns, text in logged if text == self._clock.mark), self._began_ns)
        messages = [
            LogLine(at_ns=at_ns + stall.began_ns - began_ns, text=text)
            for at_ns, text in logged
            if at_ns + stall.began_ns >= began_ns and text != self._clock.mark
        ]
        heard = [
            LogLine(at_ns=said.at_ns - start_ns, text=said.text, source=said.source, end=said.end)
            for said in logs.heard(lun.up.layers, raw, self._logs_ahead_ns)
            if said.at_ns - start_ns >= stall.began_ns
        ]
        known = [timer for timer, _ in possible(record)]
        spoken = [line for line in (*messages, *heard) if any(speaks_of(timer, line) for timer in known)]
        spoken.sort(key=_when)
        kept = sorted({*messages[:MOST_MESSAGES], *spoken[-MOST_MESSAGES:]}, key=_when)
        stall = msgspec.structs.replace(
            stall, messages=tuple(kept), hops=len(lun.link.hops), parameters=self.fault.parameters
        )
        return msgspec.structs.replace(record, stall=stall)


def _when(line: LogLine) -> int:
    return line.at_ns


def require_apart(path: LinkPath) -> None:
    """RequirementError if a reboot of the target would end this process, or another run's."""
    here, there = (kernel_of(host) for host in (NamespaceHost(name="machine"), path.target))
    if here == there:
        raise RequirementError(
            "expected another machine as the target, found this one, which would boot anew",
            hint="run the harness elsewhere",
        )
    if path.target.read_files([f"{PRIVATE.parent}/initiator.lock"])[0]:
        raise RequirementError(
            "expected a target that no other run uses, found it as the initiator of one",
            hint="wait for that run",
        )


def is_up(host: Host, iface: str, address: str) -> bool:
    """Whether an interface has its address, if that is not the run's own, and carries packets."""
    shown = host.run(["ip", "-o", "address", "show", "dev", iface, "up"], check=False).stdout
    return f" {address}/" in shown or (bool(shown) and address.startswith(UNIQUE_LOCAL))


class InitiatorClock(NamedTuple):
    """An initiator's monotonic clock is so far ahead of this process's. Its kernel's log, which keeps another
    one, has a line ``mark`` of when the fault began."""

    ahead_ns: int = 0
    mark: str | None = None


def marked(host: Host, fault: str) -> InitiatorClock:
    """Write the line, and ask for the clock."""
    mark = f"harness: {fault} begins ({time.time_ns()})"
    host.run(["sh", "-c", 'echo "$1" > /dev/kmsg', "sh", mark])
    return InitiatorClock(logs.host_ahead_ns(host, "monotonic_ns"), mark)


@contextlib.contextmanager
def watchdog(host: Host, resource: Resource, after_s: float, folder: Path) -> Iterator[None]:
    """Have the host undo a fault by itself, if nobody else has done so until then."""
    steps = [f"printf %s {shlex.quote(step.input)} | {shlex.join(step.argv)}" for step in resource.undo()]
    script = "; ".join([f"sleep {after_s:g}", *steps])
    log = folder / f"watchdog-{host.name}.log"
    with host.daemon(["sh", "-c", script], log=log, ready=lambda: True, deadline_s=5):
        yield


def of(plan: Plan, cell: Cell) -> AroundFault | None:
    if SECTION.name not in plan.sections:
        return None
    of_plan = SECTION.of(plan)
    is_here = plan.capabilities.shares_kernel
    # Of all transports: cells after this one find them loaded.
    names = [*modules.of(plan)["target"]]
    for needs in modules.of_transports(plan).values():
        names += needs["target"]
    of_target = dict.fromkeys(names)
    return AroundFault(of_plan, of_plan.of_jobs[cell.workload], [*of_target], is_here=is_here)


OFFERED = (of,)
