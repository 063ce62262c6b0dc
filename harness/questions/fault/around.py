"""A fault in the middle of a load: what it breaks and makes whole again, while the load's program runs."""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from harness.hosts import Host
from harness.hosts.journal import Journal, Resource
from harness.hosts.undo import UndoStep
from harness.model import Cell, Plan, Record
from harness.model.errors import CommandFailed
from harness.model.stalls import KernelMessage
from harness.network import links
from harness.network.links import LinkPath
from harness.questions.fault.requests import LoadOutput, judged
from harness.questions.fault.section import SECTION, Fault, Faults
from harness.runs import around, fio_startup
from harness.runs.measure import ConnectedLun

WATCHDOG_S = 10.0
"""A fault that nobody ended is ended by its host itself, so long after it was due to end."""

STARTING_S = 1.0
"""For the load's program to start, so that what it counts as before the fault is before it."""

MOST_MESSAGES = 200
"""The first ones: a device that fails says so for each request."""

_LINE = re.compile(r"^\[ *(\d+)\.(\d{6})\] (.*)$", re.MULTILINE)
"""Of dmesg(1): seconds of the monotonic clock."""


class LinkDown(msgspec.Struct, frozen=True):
    """An interface that is down. Its addresses stay, and the kernel restores their routes (ip-link(8))."""

    iface: str

    def acquire(self, host: Host) -> None:
        host.run(["ip", "link", "set", "dev", self.iface, "down"])

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("ip", "link", "set", "dev", self.iface, "up")),)


class PacketLoss(msgspec.Struct, frozen=True):
    """An interface whose netem loses packets: its parameters meanwhile and ``before``, without the rate,
    which stays if nobody says it (netem_change() of net/sched/sch_netem.c)."""

    iface: str
    meanwhile: str
    before: str

    def acquire(self, host: Host) -> None:
        host.run(self._change(self.meanwhile))

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(self._change(self.before)),)

    def _change(self, parameters: str) -> tuple[str, ...]:
        return ("tc", "qdisc", "change", "dev", self.iface, "root", "netem", *parameters.split())


def _lost(path: LinkPath) -> list[tuple[Host, Resource]]:
    own = msgspec.structs.replace(path.profile, rate_bit_s=None)
    meanwhile = links.netem(msgspec.structs.replace(own, loss_percent=100.0)) or ""
    before = links.netem(own) or f"limit {links.QUEUE_PACKETS}"
    return [(host, PacketLoss(iface, meanwhile, before)) for _, host, iface, _, _ in links.ends(path)]


Where = Callable[[LinkPath], list[tuple[Host, Resource]]]

OF_KINDS: Mapping[str, Where] = {
    "link-down": lambda path: [(path.target, LinkDown(path.target_iface))],
    "initiator-link-down": lambda path: [(path.initiator, LinkDown(path.initiator_iface))],
    "loss-100": _lost,
}
"""What each kind (``section.KINDS``) breaks, and where on a path."""


class AroundFault(around.Around):
    """One fault in one cell."""

    def __init__(self, faults: Faults, fault: Fault) -> None:
        self.faults, self.fault = faults, fault
        times = (faults.before_s + STARTING_S, fault.lasts_s, faults.after_s)
        self.program = fio_startup.open_loop(*(f"{time_s:g}" for time_s in times))
        self._began_ns = self._ended_ns = 0

    @contextlib.contextmanager
    def while_it_runs(self, lun: ConnectedLun, journal: Journal, folder: Path) -> Iterator[None]:
        broken = OF_KINDS[self.fault.kind](lun.link)
        ends_s = self.faults.before_s + self.fault.lasts_s
        over, failures = threading.Event(), list[BaseException]()

        def break_it() -> None:
            try:
                with contextlib.ExitStack() as stack:
                    for host, resource in broken:
                        stack.enter_context(watchdog(host, resource, ends_s + WATCHDOG_S, folder))
                    if over.wait(self.faults.before_s):
                        return
                    with contextlib.ExitStack() as fault:
                        self._began_ns = time.monotonic_ns()
                        for host, resource in broken:
                            fault.enter_context(journal.hold(host, resource))
                        over.wait(self._began_ns / 1e9 + self.fault.lasts_s - time.monotonic())
                    self._ended_ns = time.monotonic_ns()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=break_it)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if failures:
            raise failures[0]

    def judged(self, record: Record, lun: ConnectedLun, raw: Path) -> Record:
        if not self._ended_ns:
            raise CommandFailed("expected the load to outlast the fault, but it ended before that")
        report = msgspec.json.decode((raw / "fio.json").read_bytes(), type=LoadOutput).around
        start_ns = report.start_ns
        stall = judged(
            report,
            fault=self.fault.name,
            began_ns=max(0, self._began_ns - start_ns),
            ended_ns=max(0, self._ended_ns - start_ns),
        )
        said = lun.path.initiator.run(["dmesg"]).stdout
        messages = [
            KernelMessage(at_ns=at_ns, text=text)
            for seconds, parts, text in _LINE.findall(said)
            if (at_ns := int(seconds) * 10**9 + int(parts) * 1000 - start_ns) >= 0
        ]
        stall = msgspec.structs.replace(stall, messages=tuple(messages[:MOST_MESSAGES]))
        return msgspec.structs.replace(record, stall=stall)


@contextlib.contextmanager
def watchdog(host: Host, resource: Resource, after_s: float, folder: Path) -> Iterator[None]:
    """Have the host undo a fault by itself, if nobody else has done so until then."""
    script = "; ".join([f"sleep {after_s:g}", *(shlex.join(step.argv) for step in resource.undo())])
    log = folder / f"watchdog-{host.name}.log"
    with host.daemon(["sh", "-c", script], log=log, ready=lambda: True, deadline_s=5):
        yield


def of(plan: Plan, cell: Cell) -> AroundFault | None:
    if SECTION.name not in plan.sections:
        return None
    faults = SECTION.of(plan)
    return AroundFault(faults, faults.of_jobs[cell.workload])


OFFERED = (of,)
