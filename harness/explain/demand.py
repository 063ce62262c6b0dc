"""From a run to a CPU cost file: what its cells took of a core, and which operations each I/O is made of.

A run that asks for CPU costs (``planning.cost``) has cells that differ in one thing; any other run with
telemetry gives as much as it has. Demands are processor time, so what else a machine does hardly changes
them; what its programs waited for a processor while others ran is taken off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from harness.analysis import cpu_costs, disturbance, interval, stats
from harness.analysis.cpu_costs import Counts, CpuCost, CpuCosts, Fit, Operation, Per, WhichEnd
from harness.analysis.interval import Interval, exact
from harness.analysis.path_demands import Demands, Sealed
from harness.analysis.theory import IoDirection
from harness.explain.evidence import Evidence, collect, depth_of
from harness.model import Column, Job, LinkProfile, Plan, Proposal, Record
from harness.model.errors import UsageError
from harness.model.lines import counted
from harness.model.probing import CipherFigures
from harness.model.protections import PROTECTIONS, has_cipher, protocol
from harness.model.telemetry import Telemetry
from harness.parse.jobfile import described, is_synchronous
from harness.results import machine
from harness.results.measured import Measured
from harness.results.probe_records import ProbeRecord

BLOCKS, EMULATED, LINK = "block layer", "emulated link", "link"
"""Parts of a path besides transports and protections, which have their own names."""

AROUND, MEANWHILE, NOTHING = Operation("fio", Per.CALL), Operation("fio", Per.IO), exact(0.0)
MOST: Mapping[Operation, float] = {AROUND: 1.0, MEANWHILE: 0.03}
"""What a core works besides I/Os, found out with the CPU costs and none of them: what fio works before the
first and after the last, or sshd while counters are read, at most for this part of that time, and what goes
on all the while, such as timers."""

MOST_WAITED = 0.95
"""Of a cell whose programs waited for longer than this part of the time, that part is not known."""

MOST_WATCHED = 3.0
"""Where cores were watched for longer than so many times as long as fio ran, what they worked for it is not
known: reading counters over a slow ssh, and starting fio, took most of that time."""

MANY = 8
"""Packets of up to so many I/Os in flight hardly come together: each wakes up who delays or encrypts them."""

SHORT_BYTES = 16 << 10
"""Of an I/O that is no longer nothing overlaps, so what is left of its time is idle time."""


def counts_of(
    at: WhichEnd,
    column: Column,
    direction: IoDirection,
    block_bytes: int,
    *,
    in_flight: int,
    calls: float,
    path: Demands | None = None,
    is_emulated: bool = False,
    keeps_up: bool = False,
    proposals: Mapping[str, Proposal] = {},
) -> dict[Operation, float]:
    """How many operations an end's core does for one I/O. ``calls`` are fio's, ``path`` is None without a
    network. If the core ``keeps_up``, it works for less time than the link is busy."""
    alone, apart = 1 / in_flight, min(1.0, MANY / in_flight)
    found: dict[Operation, float] = {}
    if at is not WhichEnd.TARGET:
        found |= {Operation(BLOCKS, Per.CALL, direction): calls, Operation(BLOCKS, Per.WAKE_UP): alone}
    if at is WhichEnd.BOTH or (column.is_local and at is WhichEnd.INITIATOR):
        found[Operation(BLOCKS, Per.BYTE, direction)] = float(block_bytes)
    if path is None or column.transport is None:
        return found
    name = column.transport
    others_wait = not keeps_up if column.protection else is_emulated and in_flight > 1
    packets = float(path.full_packets if others_wait else path.packets)
    found |= {
        Operation(name, Per.IO): 1.0,
        Operation(name, Per.BYTE, direction): float(block_bytes),
        Operation(name, Per.PACKET): packets,
        Operation(name, Per.WAKE_UP): alone,
    }
    if is_emulated:
        found[Operation(EMULATED, Per.IO)] = 1.0
        found[Operation(EMULATED, Per.PACKET)] = packets
        found[Operation(EMULATED, Per.WAKE_UP)] = apart * path.round_trips
    for each in column.protection:
        found[Operation(part_of(each, proposals), Per.PACKET)] = packets
        if each in PROTECTIONS and PROTECTIONS[each].is_queued:
            found[Operation(part_of(each, proposals), Per.WAKE_UP)] = apart
        if has_cipher(each):
            found |= dict(_ciphers(at, each, path.sealed))
    return found


def of_whole(counts: Counts) -> Counts:
    """Those operations of an I/O that are done before its first packet or after its last: what fio, the block
    layer and the disk do, and what each command takes."""
    return {
        name: count
        for name, count in counts.items()
        if name.part == BLOCKS or name.per not in (Per.BYTE, Per.PACKET)
    }


def part_of(protection: str, proposals: Mapping[str, Proposal]) -> str:
    """The part of a list that has the CPU cost of a protection's packets."""
    proposal = proposals.get(protection)
    # Super-packets are fewer than the packets that are counted, so they have CPU costs of their own.
    has_own = proposal is not None and proposal.segmentation_offload
    return protection if has_own else protocol(protection)


def _ciphers(at: WhichEnd, name: str, sealed: Sequence[Sealed]) -> Iterator[tuple[Operation, float]]:
    """What a protection's cipher does at an end: who sends encrypts."""
    for does in ("encrypt", "decrypt"):
        parts = [
            part for part in sealed if at is WhichEnd.BOTH or (part.by == at.value) is (does == "encrypt")
        ]
        yield Operation(name, Per.PACKET, does), sum(part.packets for part in parts)
        yield Operation(name, Per.BYTE, does), sum(part.bytes for part in parts)


def calls_of(job: Job) -> float:
    """System calls of fio for one I/O: one that waits, or one to submit it and one to reap it (libaio)."""
    return 1.0 if is_synchronous(job) else 2.0


def costs_of(found: Measured, name: str = "this list") -> CpuCosts:
    """The CPU costs of the kernel, or of the two machines, of some runs. UsageError if these have too little
    for any, or are of several."""
    plans = [*found.plans.values()]
    settings = {plan.setting.distinct for plan in plans}
    if len(settings) != 1 or plans[0].setting.is_virtual:
        raise UsageError(
            f"expected runs in real time on one kernel, with their plans, found {counted(len(plans), 'run')}"
            + (f" on {' and '.join(sorted(each.name for each in settings))}" if plans else ""),
            hint="harness cpu-cost measures one",
        )
    plan, environment = joined(plans), found.environments.get(plans[0].run_id, {})
    records = _counting(found.records)
    # Of a cell that was never undisturbed what was waited for is taken off; a slower processor stays.
    alone = [msgspec.structs.replace(record, telemetry=_alone(record.telemetry)) for record in records]
    jobs = {job.name: job for job in plan.jobs}
    cells = [
        each
        for each in collect(alone, found.plans, found.probes)
        if each.workload in jobs
        and (each.path is not None or (each.column.is_local and each.direction and each.block_bytes))
        # Simulated radios are neither a link nor its emulation.
        and not plan.has_radio(plan.links.get(each.column.link))
    ]
    made, errors, most = list(_of_ciphers(found.probes)), [], 0
    for at in (WhichEnd.BOTH, WhichEnd.INITIATOR, WhichEnd.TARGET):
        known = {cost.operation: cost for cost in made if cost.at is at}
        demands = [
            each for cell in cells if (each := _demand(at, plan, cell, jobs[cell.workload], records, known))
        ]
        if demands:
            fitted, error = _fitted(demands)
            errors.append(error)
            most = max(most, len(demands))
            words = f"{counted(len(demands), 'cell')}, {counted(plan.repeats, 'repeat')} each, least squares"
            made += [CpuCost.of(operation, at, each, words) for operation, each in fitted.items()]
    if not errors:
        raise UsageError(
            "expected cells with processor use, sampled for at most "
            f"{MOST_WATCHED:.0f} times fio's run time, found none",
            hint="measure in real time, without --no-probes and longer, such as --runtime 8s",
        )
    made += _idle(cells, made, plan)
    own, hosts = machine.machine_of(environment, "target"), {"hosts": environment.get("hosts")}
    return CpuCosts(
        name=name,
        version=cpu_costs.VERSION,
        title=plan.setting.name,
        processor=own.processor or "",
        kernel=machine.machine_of(hosts, "target").kernel or "",
        cores=next((use.cores for r in records if r.telemetry for use in r.telemetry.processors), 1),
        governor=own.governor or "",
        measured=f"{counted(len(records), 'repeat')} of {counted(len(cells), 'cell')}",
        drivers=_drivers(found.probes),
        sessions=_sessions(records),
        fit=Fit(
            cells=most,
            repeats=plan.repeats,
            error=round(min(10.0, max(errors)), 4),
            taken=round(stats.median([_taken(record) for record in records]), 3),
        ),
        costs=tuple(made),
    )


def _counting(records: Sequence[Record]) -> list[Record]:
    """The repeats of each cell that count: the undisturbed ones, or all if there are none."""
    cells: dict[tuple[Column, str], list[Record]] = {}
    for record in records:
        cells.setdefault((record.column, record.workload.name), []).append(record)
    return [record for own in cells.values() for record in disturbance.counting(own)]


def _taken(record: Record) -> float:
    return min(1.0, max((other.taken or 0.0 for other in record.background_load), default=0.0))


def joined(plans: Sequence[Plan]) -> Plan:
    """One plan with the jobs, links and proposals of all of them."""
    jobs = {job.name: job for plan in plans for job in plan.jobs}
    return msgspec.structs.replace(
        plans[0],
        jobs=tuple(jobs.values()),
        repeats=min(plan.repeats for plan in plans),
        links={name: link for plan in plans for name, link in plan.links.items()},
        proposals={name: proposal for plan in plans for name, proposal in plan.proposals.items()},
    )


def _alone(found: Telemetry | None) -> Telemetry | None:
    """The same as if nobody had looked at other programs."""
    return found and msgspec.structs.replace(found, background_load=())


def is_shaped(link: LinkProfile | None) -> bool:
    """Whether a link delays packets, or limits their rate, by emulation."""
    return link is not None and link.emulated and bool(link.rate_bit_s or link.path_delay_us)


def has_emulation(known: CpuCosts) -> bool:
    """Whether a list has CPU costs of emulated links: one of machines with a cable between them has none."""
    return any(cost.part == EMULATED for cost in known.costs)


def _counts(
    at: WhichEnd, plan: Plan, cell: Evidence, job: Job, in_flight: int, *, keeps_up: bool = False
) -> dict[Operation, float]:
    return counts_of(
        at,
        cell.column,
        cell.direction or "read",
        cell.block_bytes or 0,
        in_flight=in_flight,
        calls=calls_of(job),
        path=cell.path,
        is_emulated=is_shaped(plan.links.get(cell.column.link)),
        keeps_up=keeps_up,
        proposals=plan.proposals,
    )


class _Used(NamedTuple):
    """For each I/O: how long the busiest core of an end worked while it was watched, for how long that was
    before fio's start and after its end, and how long I/Os took."""

    busy_ns: float
    around_ns: float
    each_ns: float


class _Demand(NamedTuple):
    """Which operations an I/O of a cell was, what it took of a core, and what of that is known by itself."""

    counts: Counts
    used: _Used
    known_ns: float

    def besides(self, known: Mapping[Operation, float]) -> tuple[Counts, float, float]:
        """The same for ``costs.fit``: the operations with those of ``MOST`` that are not known yet, what is
        left for them, and all. No core works for longer than there is time."""
        times_ns = {AROUND: self.used.around_ns, MEANWHILE: self.used.each_ns}
        taken_ns = self.known_ns + sum(part * times_ns[name] for name, part in known.items())
        left_ns = {name: ns for name, ns in times_ns.items() if name not in known}
        most_ns = self.used.each_ns + left_ns.get(AROUND, 0.0)
        ns = min(self.used.busy_ns - taken_ns, most_ns - self.known_ns)
        return {**self.counts, **left_ns}, max(0.0, ns), self.used.busy_ns


def _demand(
    at: WhichEnd,
    plan: Plan,
    cell: Evidence,
    job: Job,
    records: Sequence[Record],
    ciphers: Mapping[Operation, CpuCost],
) -> _Demand | None:
    """What an I/O of a cell took of an end's core; None where it is not known."""
    own = [r for r in records if (r.column, r.workload.name) == (cell.column, cell.workload)]
    all_used = sorted(each for record in own for each in _used(record, at))
    if not all_used or (cell.column.is_local and at is WhichEnd.TARGET):
        return None
    # Contention only adds work, and does so in most repeats at times: so it is not the middle one.
    used = all_used[len(all_used) // 4]
    keeps_up = cell.path is not None and used.busy_ns - used.around_ns < cell.path.busy_ns
    in_flight = max(1, depth_of(described(job), own[0]) or 1)
    counts = _counts(at, plan, cell, job, in_flight, keeps_up=keeps_up)
    known_ns = sum(count * ciphers[name].ns for name, count in counts.items() if name in ciphers)
    rest = {name: count for name, count in counts.items() if name not in ciphers}
    return _Demand(rest, used, known_ns)


def _fitted(demands: Sequence[_Demand]) -> tuple[dict[Operation, Interval], float]:
    """The CPU costs, and the error of the fit."""
    known: dict[Operation, float] = {}
    while True:
        found, error = cpu_costs.fit([each.besides(known) for each in demands])
        over = [each for each in MOST if each not in known and found.get(each, NOTHING).mid > MOST[each]]
        if not over:
            # A full core has no more than the rest of its time for I/Os.
            rest = 1 - known.get(MEANWHILE, found.get(MEANWHILE, NOTHING).mid)
            own = {name: cost for name, cost in found.items() if name not in MOST}
            return {name: each.times(1 / rest) for name, each in own.items()}, error
        # Where every cell fills the core, its whole work would do for an explanation.
        known[over[0]] = MOST[over[0]]


def _used(record: Record, at: WhichEnd) -> Iterator[_Used]:
    """What the busiest core of an end did."""
    ios = sum(io.ios for io in (record.read, record.write) if io is not None)
    # A user-mode kernel takes for its own what its process waited while others ran; that its threads wait for
    # one another is work of it (``taken`` has the slower pace of a shared core as well).
    waited = max(
        ((other.taken or 0.0) - (other.slowed or 0.0) for other in record.background_load), default=0.0
    )
    own = 1 - min(MOST_WAITED, max(0.0, waited) if record.setting.lab_kernel else 0.0)
    for use in record.telemetry.processors if record.telemetry is not None and ios else ():
        ends = {*use.hosts} & {WhichEnd.INITIATOR, WhichEnd.TARGET}
        whose = WhichEnd.BOTH if len(ends) > 1 else next(map(WhichEnd, ends), None)
        if whose is at and use.busiest_core and record.fio_ns and use.wall_ns <= MOST_WATCHED * record.fio_ns:
            around_ns = own * max(0, use.wall_ns - record.fio_ns)
            yield _Used(
                own * use.busiest_core * use.wall_ns / ios, around_ns / ios, own * record.fio_ns / ios
            )


def _of_ciphers(probes: Sequence[ProbeRecord]) -> Iterator[CpuCost]:
    """The ciphers, measured by themselves, at each end."""
    found: dict[tuple[Operation, WhichEnd], list[float]] = {}
    for probe in probes:
        for kernel in probe.figures.kernels if isinstance(probe.figures, CipherFigures) else ():
            for end in (WhichEnd.BOTH,) if len(kernel.ends) > 1 else map(WhichEnd, kernel.ends):
                for does, times in (("encrypt", kernel.encrypt), ("decrypt", kernel.decrypt)):
                    for per, ns in times.costs_ns.items():
                        operation = Operation("+".join(probe.column.protection), Per(per), does)
                        found.setdefault((operation, end), []).append(ns)
    for (operation, at), samples in found.items():
        of = interval.of_samples(samples)
        words = f"the cipher by itself (AF_ALG), measured {counted(len(samples), 'time')}"
        yield CpuCost.of(operation, at, of, words)


def _idle(cells: Sequence[Evidence], made: Sequence[CpuCost], plan: Plan) -> Iterator[CpuCost]:
    """What a round trip takes besides link and work, because nothing runs until somebody is woken up."""
    jobs, left = {job.name: job for job in plan.jobs}, dict[Operation, list[float]]()
    ends = {cost.at for cost in made} - {WhichEnd.NONE}
    # In one kernel others' work may go on meanwhile, and hides some of it. Between machines each waits.
    part, words_of_part = (4, "lower quartile") if WhichEnd.BOTH in ends else (2, "middle")
    for cell in cells:
        path, time_ns = cell.path, cell.time_ns
        if path is None or time_ns is None or cell.depth != 1 or (cell.block_bytes or 0) > SHORT_BYTES:
            continue
        rest_ns = (
            time_ns.mid
            - path.alone_ns
            - (cell.lost_packets.time_ns.mid if cell.lost_packets is not None else 0.0)
        )
        for at in ends:
            known = {cost.operation: cost.ns for cost in made if cost.at is at}
            counts = _counts(at, plan, cell, jobs[cell.workload], 1)
            rest_ns -= sum(count * known.get(name, 0.0) for name, count in counts.items())
        operation = idle_of(is_shaped(plan.links.get(cell.column.link)))
        left.setdefault(operation, []).append(max(0.0, rest_ns) / path.round_trips)
    for operation, samples in left.items():
        words = f"remainder of {counted(len(samples), 'cell')} at depth 1, {words_of_part}"
        least, *_, most = ranked = [*sorted(samples), max(samples)]
        found = Interval(least, ranked[len(samples) // part], most)
        yield CpuCost.of(operation, WhichEnd.NONE, found, words)


def idle_of(is_emulated: bool) -> Operation:
    """What a round trip takes besides link and work."""
    return Operation(EMULATED if is_emulated else LINK, Per.ROUND_TRIP)


def _drivers(probes: Sequence[ProbeRecord]) -> dict[str, str]:
    return {
        probe.column.protection[0]: kernel.driver
        for probe in probes
        if isinstance(probe.figures, CipherFigures) and probe.column.protection
        for kernel in probe.figures.kernels
    }


def _sessions(records: Sequence[Record]) -> dict[str, dict[str, int]]:
    """What the ends agreed on, as far as it is numbers: names and addresses are nobody else's matter."""
    return {
        record.column.transport: {
            name: int(text) for name, text in record.session.items() if text.isascii() and text.isdecimal()
        }
        for record in records
        if record.column.transport is not None and record.session
    }
