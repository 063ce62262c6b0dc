"""From a run to a price list: what its cells took of a core, and which operations each I/O is made of.

A run that asks for prices (``planning.price``) has cells that differ in one thing; any other run with
telemetry gives as much as it has. Demands are processor time, so what else a machine does hardly changes
them; what its programs waited for a processor is taken off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from harness.analysis import prices, stats
from harness.analysis.prices import Counts, Fit, Fitted, Operation, Per, Price, PriceList, Whose
from harness.analysis.theory import IoDirection
from harness.explain.evidence import Evidence, collect, depth_of
from harness.explain.path import Demands, Sealed
from harness.model import Column, Job, LinkProfile, Plan, Proposal, Record, Status
from harness.model.errors import UsageError
from harness.model.lines import counted
from harness.model.probing import CipherFigures
from harness.model.protections import protocol
from harness.model.telemetry import Telemetry
from harness.parse.jobfile import described, is_synchronous
from harness.results import machine
from harness.results.measured import Measured
from harness.results.probe_records import ProbeRecord

BLOCKS, EMULATED, LINK = "block layer", "emulated link", "link"
"""Parts of a path besides transports and protections, which have their own names."""

AROUND = Operation("fio", Per.CALL)

MOST_AROUND = 1.2
"""For what part of the time around fio's I/Os a core works: for all of it at most, and fio itself works a
little within as well."""

MOST_WAITED = 0.95
"""Of a cell whose programs waited for longer than this part of the time, that part is not known."""

SHORT_BYTES = 16 << 10
"""Of an I/O that is no longer nothing overlaps, so what is left of its time is idle time."""


def counts_of(
    at: Whose,
    column: Column,
    direction: IoDirection,
    block_bytes: int,
    *,
    in_flight: int,
    calls: float,
    path: Demands | None = None,
    is_emulated: bool = False,
    proposals: Mapping[str, Proposal] = {},
) -> dict[Operation, float]:
    """How many operations an end's core does for one I/O. ``calls`` are fio's, ``path`` is None without a
    network."""
    alone = 1 / in_flight
    found: dict[Operation, float] = {}
    if at is not Whose.TARGET:
        found |= {Operation(BLOCKS, Per.CALL, direction): calls, Operation(BLOCKS, Per.WAKE_UP): alone}
    if at is Whose.BOTH or column.is_local:
        found[Operation(BLOCKS, Per.BYTE, direction)] = float(block_bytes)
    if path is None or column.transport is None:
        return found
    name = column.transport
    found |= {
        Operation(name, Per.IO): 1.0,
        Operation(name, Per.BYTE): float(block_bytes),
        Operation(name, Per.PACKET): float(path.packets),
        Operation(name, Per.WAKE_UP): alone,
    }
    if is_emulated:
        found[Operation(EMULATED, Per.PACKET)] = float(path.packets)
        found[Operation(EMULATED, Per.WAKE_UP)] = alone * path.round_trips
    for each in column.protection:
        proposal = proposals.get(each)
        # Super-packets are fewer than the packets that are counted, so they have prices of their own.
        own = proposal is not None and proposal.segmentation_offload
        found[Operation(each if own else protocol(each), Per.PACKET)] = float(path.packets)
        found |= dict(_ciphers(at, each, path.sealed))
    return found


def _ciphers(at: Whose, name: str, sealed: Sequence[Sealed]) -> Iterator[tuple[Operation, float]]:
    """What a protection's cipher does at an end: who sends encrypts."""
    for does in ("encrypt", "decrypt"):
        parts = [part for part in sealed if at is Whose.BOTH or (part.by == at.value) is (does == "encrypt")]
        yield Operation(name, Per.PACKET, does), sum(part.packets for part in parts)
        yield Operation(name, Per.BYTE, does), sum(part.bytes for part in parts)


def calls_of(job: Job) -> float:
    """System calls of fio for one I/O: one that waits, or one to submit it and one to reap it (libaio)."""
    return 1.0 if is_synchronous(job) else 2.0


def price_list(found: Measured, name: str = "prices") -> PriceList:
    """The prices of the machine, or machines, of a run. UsageError if it has too little for any."""
    plans = [*found.plans.values()]
    settings = {plan.setting.distinct for plan in plans}
    if len(settings) != 1 or plans[0].setting.is_virtual:
        raise UsageError(
            f"expected runs in real time on one kernel, with their plans, found {counted(len(plans), 'run')}"
            + (f" on {' and '.join(sorted(each.name for each in settings))}" if plans else ""),
            hint="harness price measures one",
        )
    plan = _joined(plans)
    environment = found.environments.get(plans[0].run_id, {})
    records = [record for record in found.records if record.status is Status.OK]
    # A disturbed figure is wrong, a demand is not: what was waited for is taken off.
    calm = [msgspec.structs.replace(record, telemetry=_alone(record.telemetry)) for record in records]
    cells = [
        each
        for each in collect(calm, found.plans, found.probes)
        # Simulated radios are neither a link nor its emulation.
        if each.direction and each.block_bytes and not (plan.setting.is_own and _has_radio(plan, each.column))
    ]
    made: list[Price] = list(_of_ciphers(found.probes))
    errors, most = [], 0
    for at in (Whose.BOTH, Whose.INITIATOR, Whose.TARGET):
        of_end = [price for price in made if price.at is at]
        fitted, error, many = _fitted(at, plan, cells, records, of_end)
        if not fitted:
            continue
        errors.append(error)
        most = max(most, many)
        words = f"{counted(many, 'cell')}, {counted(plan.repeats, 'repeat')} each, by least squares"
        made += [_price(operation, at, price, words) for operation, price in fitted.items()]
    if not errors:
        raise UsageError(
            "expected cells with the use of the processors, found none",
            hint="measure with probes: without --no-probes, and in real time",
        )
    made += _idle(cells, made, plan)
    machines = machine.machines_of(environment)
    own = machine.machine_of(environment, "target")
    kernels = (
        environment.get("hosts", {}).get("target", {})
        if isinstance(environment.get("hosts"), Mapping)
        else {}
    )
    return PriceList(
        name=name,
        version=prices.VERSION,
        title=plan.setting.name,
        processor=own.processor or "",
        kernel=machine.machine_of({"hosts": {"target": kernels}}, "target").kernel or "",
        cores=next((use.cores for r in records if r.telemetry for use in r.telemetry.processors), 1),
        governor=own.governor or "",
        measured=f"{counted(len(records), 'cell')} in {counted(len(machines) or 1, 'kernel')}",
        drivers=_drivers(found.probes),
        sessions=_sessions(records),
        fit=Fit(cells=most, repeats=plan.repeats, error=round(min(10.0, max(errors)), 4)),
        prices=tuple(made),
    )


def _joined(plans: Sequence[Plan]) -> Plan:
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
    return found and msgspec.structs.replace(found, others=())


def _price(operation: Operation, at: Whose, fitted: Fitted, words: str) -> Price:
    ns, reach = fitted.ns, fitted.reach_ns
    return Price(
        part=operation.part,
        per=operation.per,
        direction=operation.direction,
        at=at,
        ns=_rounded(ns),
        low=_rounded(max(0.0, min(ns, ns - reach))),
        high=_rounded(ns + reach),
        rests_on=words,
    )


def _rounded(ns: float) -> float:
    """Four digits, so that a file can be read; monotonic, so that bounds stay in order."""
    return float(f"{ns:.4g}")


def _fitted(
    at: Whose, plan: Plan, cells: Sequence[Evidence], records: Sequence[Record], known: Sequence[Price]
) -> tuple[dict[Operation, Fitted], float, int]:
    """The prices of one end, their error, and how many cells they rest on; none where no kernel is that."""
    jobs = {job.name: job for job in plan.jobs}
    ciphers = {price.operation: price for price in known}
    made: list[tuple[Counts, float]] = []
    for cell in cells:
        job = jobs.get(cell.workload)
        own = [r for r in records if (r.column, r.workload.name) == (cell.column, cell.workload)]
        used = [each for record in own for each in _used(record, at)]
        if job is None or not used or (not cell.column.is_local and cell.path is None):
            continue
        counts = counts_of(
            at,
            cell.column,
            cell.direction or "read",
            cell.block_bytes or 0,
            in_flight=max(1, depth_of(described(job), own[0]) or 1),
            calls=calls_of(job),
            path=cell.path,
            is_emulated=is_shaped(plan.links.get(cell.column.link)),
            proposals=plan.proposals,
        )
        demand_ns, around_ns = sorted(used)[len(used) // 2]
        # What is known by itself is no matter of the fit; what has no price is one.
        demand_ns -= sum(count * ciphers[name].ns for name, count in counts.items() if name in ciphers)
        counts = {name: count for name, count in counts.items() if name not in ciphers}
        # What fio works around its I/Os is found out with the prices, and belongs to none.
        counts[AROUND] = around_ns
        if demand_ns > 0:
            made.append((counts, demand_ns))
    if not made:
        return {}, 0.0, 0
    found, error = prices.fit(made)
    if (around := found.pop(AROUND, None)) is not None and around.ns > MOST_AROUND:
        # Where every cell fills the core, its whole work would do for an explanation.
        least = [(counts, ns - MOST_AROUND * counts[AROUND]) for counts, ns in made]
        rest = [({**counts, AROUND: 0.0}, ns) for counts, ns in least if ns > 0]
        found, error = prices.fit(rest or made)
    return found, error, len(made)


def _has_radio(plan: Plan, column: Column) -> bool:
    link = plan.links.get(column.link)
    return link is not None and link.radio is not None


def is_shaped(link: LinkProfile | None) -> bool:
    """Whether a link delays packets, or limits their rate, by emulation."""
    return link is not None and link.emulated and bool(link.rate_bit_s or link.path_delay_us)


def _used(record: Record, at: Whose) -> Iterator[tuple[float, float]]:
    """How long the busiest core of an end worked while it was watched, and for how long that was before fio's
    start and after its end; both for each I/O."""
    ios = sum(io.ios for io in (record.read, record.write) if io is not None)
    waited = max((other.waited or 0.0 for other in record.others), default=0.0)
    for use in record.telemetry.processors if record.telemetry is not None and ios else ():
        ends = {*use.hosts} & {Whose.INITIATOR, Whose.TARGET}
        whose = Whose.BOTH if len(ends) > 1 else next(map(Whose, ends), None)
        if whose is at and use.busiest_core and record.fio_ns:
            # A user-mode kernel takes for its own what its process waited for the machine's processor.
            own = 1 - min(MOST_WAITED, waited if record.setting.lab_kernel else 0.0)
            around_ns = 0.0 if at is Whose.TARGET else own * max(0, use.wall_ns - record.fio_ns)
            yield own * use.busiest_core * use.wall_ns / ios, around_ns / ios


def _of_ciphers(probes: Sequence[ProbeRecord]) -> Iterator[Price]:
    """The ciphers, measured by themselves, at each end."""
    found: dict[tuple[Operation, Whose], list[float]] = {}
    for probe in probes:
        if probe.status is not Status.OK or not isinstance(probe.figures, CipherFigures):
            continue
        (name,) = probe.column.protection
        for kernel in probe.figures.kernels:
            both = len(kernel.ends) > 1
            for end in (Whose.BOTH,) if both else map(Whose, kernel.ends):
                for does, times in (("encrypt", kernel.encrypt), ("decrypt", kernel.decrypt)):
                    for per, ns in times.prices_ns.items():
                        found.setdefault((Operation(name, Per(per), does), end), []).append(ns)
    for (operation, at), samples in found.items():
        summary = stats.summarise(samples)
        yield Price(
            part=operation.part,
            per=operation.per,
            direction=operation.direction,
            at=at,
            ns=_rounded(summary.median),
            low=_rounded(summary.low),
            high=_rounded(summary.high),
            rests_on=f"the cipher by itself (AF_ALG), measured {counted(summary.n, 'time')}",
        )


def _idle(cells: Sequence[Evidence], made: Sequence[Price], plan: Plan) -> Iterator[Price]:
    """What a round trip takes besides link and work, because nothing runs until somebody is woken up."""
    jobs = {job.name: job for job in plan.jobs}
    left: dict[str, list[float]] = {}
    for cell in cells:
        path, time_ns = cell.path, cell.time_ns
        if path is None or time_ns is None or cell.depth != 1 or (cell.block_bytes or 0) > SHORT_BYTES:
            continue
        shaped = is_shaped(plan.links.get(cell.column.link))
        work_ns = 0.0
        for at in {price.at for price in made} - {Whose.NONE}:
            known = {price.operation: price for price in made if price.at is at}
            counts = counts_of(
                at,
                cell.column,
                cell.direction or "read",
                cell.block_bytes or 0,
                in_flight=1,
                calls=calls_of(jobs[cell.workload]),
                path=path,
                is_emulated=shaped,
                proposals=plan.proposals,
            )
            work_ns += sum(count * known[name].ns for name, count in counts.items() if name in known)
        rest_ns = max(0.0, time_ns.mid - path.alone_ns - work_ns)
        left.setdefault(EMULATED if shaped else LINK, []).append(rest_ns / path.round_trips)
    for part, samples in left.items():
        found = stats.summarise(samples)
        yield Price(
            part=part,
            per=Per.ROUND_TRIP,
            at=Whose.NONE,
            ns=_rounded(found.median),
            low=_rounded(found.low),
            high=_rounded(found.high),
            rests_on=f"what is left of {counted(found.n, 'cell')} with one I/O at a time",
        )


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
