"""What a machine would reach, from CPU costs alone: predicted, and never measured.

Each end's core (one for both where they share a kernel) works an I/O's operations times their costs, and the
link carries its dialogue: the cells of ``analysis.stations``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from harness.analysis import cpu_costs, disturbance, interval, path_demands, stations, wire
from harness.analysis.cpu_costs import CpuCost, CpuCosts, Operation, WhichEnd
from harness.analysis.interval import COVERED, Interval
from harness.analysis.limit import Limit
from harness.analysis.theory import IoDirection
from harness.analysis.wire import framing_of_column
from harness.explain import demand
from harness.model import Column, Job, LinkProfile, Proposal, protections
from harness.model.errors import UsageError
from harness.parse.jobfile import described

PREDICTED = "predicted"
"""The mark of everything here: nothing of it was measured."""

WAITS, WAITS_PER_HOST = 0.5, 1.0
"""How far from the asymptotic bound towards a batch: interrupts and kernel threads come before who sends the
next request, so that what arrives together leaves together. In one kernel not all of it does, and between two
all: a batch is at one end while the other idles (found in three series of two machines)."""

WHOLE_OF_MIDDLE = 2.44
"""How far 90 % of normal errors reach, if the middle one is 1."""

MOST_LEFT_OPEN = 0.5
"""How much of the fit's error the CPU costs may leave open besides it: of CPU costs fitted together one is
too high where another is too low, so that their sum is known better than any of them."""

OTHER, BORROWED = {"read": "write", "write": "read"}, 0.1
"""Where a list has CPU costs of one direction alone they stand for both, with so much more of a deviation."""

LEAST = 0.2
"""Of the cores' work an interval takes no smaller part: no least squares are as unsure as that."""

UNSURE = {
    Limit.CPU: 0.08,
    Limit.LINK: 0.1,
    Limit.DEVICE: 0.1,
    Limit.WINDOW: 0.1,
    Limit.LATENCY: 0.1,
}
"""By how much the model itself errs, besides its CPU costs: the standard deviation of the logarithm, by what
limits (`python bench/predictions.py`)."""


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Whose CPU costs count: those of one kernel that has both ends (``target`` alone), or of two
    machines."""

    target: CpuCosts
    initiator: CpuCosts | None = None

    def of_each(self) -> dict[WhichEnd, CpuCosts]:
        """The list of each core. UsageError if a list has no CPU costs of that end."""
        if self.initiator is None and self.target.at(WhichEnd.BOTH):
            return {WhichEnd.BOTH: self.target}
        found = {WhichEnd.INITIATOR: self.initiator or self.target, WhichEnd.TARGET: self.target}
        for at, known in found.items():
            if not known.at(at):
                what = "both ends in one kernel" if known.at(WhichEnd.BOTH) else "single operations alone"
                raise UsageError(
                    f"expected CPU costs of the {at}, found {what} in {known.name}",
                    hint="'harness cpu-cost --kernels per-host', or with --target, measures both ends",
                )
        return found


class NetworkPath(msgspec.Struct, frozen=True, kw_only=True):
    """A column that is to be predicted: ``link`` is None for the initiator's own disk."""

    column: Column
    link: LinkProfile | None = None
    proposals: Mapping[str, Proposal] = {}


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """A cell: ``rate_mb_s`` is the throughput in 10^6 bytes per second, with its 90 % interval and the
    sources of uncertainty, as fractions of the figure.

    ``name`` is its column's label. ``bound_mb_s`` is the most that the path lets through. ``breakdown_ns``
    are the parts of the time of one I/O. ``why_not`` says why there is no figure. ``mark`` is always
    "predicted": nothing was measured.
    """

    name: str
    workload: str
    mark: str = PREDICTED
    rate_mb_s: Interval | None = None
    limited_by: Limit | None = None
    bound_mb_s: float | None = None
    breakdown_ns: dict[str, float] = {}
    why_not: str = ""

    @property
    def mb_s(self) -> float | None:
        return None if self.rate_mb_s is None else self.rate_mb_s.mid

    @property
    def made_of(self) -> Mapping[str, float]:
        """The sources of uncertainty."""
        return self.rate_mb_s.made_of if self.rate_mb_s is not None else {}


class PrintedPredicted(Predicted, frozen=True, kw_only=True):
    """A predicted cell. ``mb_s``, ``low_mb_s`` and ``high_mb_s`` (in ``rate_mb_s``), ``then``
    (``limited_by``), ``rests_on`` (``breakdown_ns``) and ``unsure`` (``made_of`` in ``rate_mb_s``) are keys
    of earlier versions, and go with the next one."""

    mb_s: float | None = None
    low_mb_s: float | None = None
    high_mb_s: float | None = None
    then: Limit | None = None
    rests_on: dict[str, float] = {}
    unsure: Mapping[str, float] = {}

    @classmethod
    def of(cls, found: Predicted) -> PrintedPredicted:
        rate = found.rate_mb_s
        return cls(
            **{name: getattr(found, name) for name in found.__struct_fields__},
            mb_s=found.mb_s,
            low_mb_s=None if rate is None else rate.low,
            high_mb_s=None if rate is None else rate.high,
            then=found.limited_by,
            rests_on=found.breakdown_ns,
            unsure=found.made_of,
        )


class _NoCost(Exception):
    """What lacks a CPU cost, in words."""


def predict(
    ends: Ends, network_paths: Sequence[NetworkPath], jobs: Sequence[Job], *, further: float = 0.0
) -> list[Predicted]:
    """All cells, column by column; ``further`` is how much further towards a batch than is likely. UsageError
    if the lists are not of the ends that are needed."""
    lists = {at: _End(found, found.at(at), found.at(WhichEnd.NONE)) for at, found in ends.of_each().items()}
    waits = min(1.0, max(0.0, further + (WAITS if WhichEnd.BOTH in lists else WAITS_PER_HOST)))
    return [_cell(lists, network_path, job, waits) for network_path in network_paths for job in jobs]


class _End(NamedTuple):
    """A list, and of its CPU costs those of an end and of idling."""

    known: CpuCosts
    work: Mapping[Operation, CpuCost]
    idle: Mapping[Operation, CpuCost]


def _cell(lists: Mapping[WhichEnd, _End], network_path: NetworkPath, job: Job, waits: float) -> Predicted:
    made = Predicted(name=network_path.column.label, workload=job.name)
    try:
        cells = [
            _direction(lists, network_path, job, direction, share) for share, direction in _directions(job)
        ]
    except _NoCost as error:
        return msgspec.structs.replace(made, why_not=str(error))
    depth, likely = cells[0].depth, [cell.at(0.0) for cell in cells]

    def each_ns_at(scale: float) -> float:
        return stations.each([cell.at(scale) for cell in cells], depth, waits).ns

    found = stations.each(likely, depth, waits)
    fit_error, is_borrowed = cells[0].fit_error, any(cell.is_borrowed for cell in cells)
    worked = [sum((*of.work.values(), *of.whole.values())) * of.share for of in likely]
    share = sum(worked) / max(found.ns, sum(worked), 1.0)
    fit = WHOLE_OF_MIDDLE * fit_error * share
    # What the CPU costs leave open, as seen in the time. Where one is too high another is too low, so of
    # their sum that is too much, and cells that were left out of the fit show by how much.
    left_open = abs(math.log(each_ns_at(1.0) / each_ns_at(-1.0))) / 2
    each_ns = interval.of_sources(
        found.ns,
        {
            "CPU costs": min(left_open, MOST_LEFT_OPEN * fit),
            "fit": fit,
            "model": COVERED * UNSURE[found.limited_by],
            "the other direction's CPU costs": COVERED * BORROWED * share * is_borrowed,
        },
    )
    mb = (described(job).block_bytes or 0) * 1e3
    # Nothing goes faster than the path lets it.
    least_ns = stations.path_least_ns(likely, depth)
    return msgspec.structs.replace(
        made,
        rate_mb_s=msgspec.structs.replace(
            each_ns,
            low=mb / each_ns.high,
            mid=mb / found.ns,
            high=mb / min(found.ns, max(each_ns.low, least_ns)),
        ),
        limited_by=found.limited_by,
        bound_mb_s=mb / least_ns if least_ns else None,
        breakdown_ns={name: ns for name, ns in found.parts.items() if ns},
    )


def _directions(job: Job) -> list[tuple[float, IoDirection]]:
    """The directions of a job's I/Os, with the part of each. ``_NoCost`` for what has no CPU cost."""
    options, workload = dict(job.options), described(job)
    if any(options.get(name) not in (None, "0") for name in ("fsync", "fdatasync", "sync", "end_fsync")):
        raise _NoCost("flushes have no CPU cost")
    if workload.block_bytes is None or workload.in_flight is None:
        raise _NoCost("its blocks have several sizes, or its depth is unknown")
    if workload.rate_iops or workload.rate_bytes_s:
        raise _NoCost("its rate is fixed by the workload")
    if workload.direction == "both":
        reads = float(options.get("rwmixread") or 50) / 100
        return [(reads, "read"), (1 - reads, "write")]
    return [(1.0, "write" if workload.direction == "write" else "read")]


class _Cell(NamedTuple):
    """One direction of a cell: what it asks of the stations with each core's work so many of its reaches from
    its best guess, and what else its figure rests on."""

    at: Callable[[float], stations.CellDemands]
    depth: int
    fit_error: float
    is_borrowed: bool


def _direction(
    lists: Mapping[WhichEnd, _End], network_path: NetworkPath, job: Job, direction: IoDirection, share: float
) -> _Cell:
    workload = described(job)
    block_bytes, depth = workload.block_bytes or 1, workload.in_flight or 1
    demands = None
    link, transport = network_path.link, network_path.column.transport
    if link is not None and transport is not None:
        agreed = next(iter(lists.values())).known.sessions.get(transport)
        if agreed is None:
            raise _NoCost(f"{transport} has no CPU costs here")
        session = {name: str(value) for name, value in agreed.items()}
        depth = min(depth, wire.transport(transport).most_commands(session) or depth)
        framing = framing_of_column(network_path.column, network_path.proposals, link)
        demands = path_demands.of_session(link, framing, transport, session, direction, block_bytes)
        if demands is None or (network_path.column.protection and framing is None):
            raise _NoCost("what goes over the wire is unknown")
    elif not network_path.column.is_local:
        raise _NoCost("its link is unknown")
    is_emulated = demand.is_shaped(link) and any(demand.has_emulation(end.known) for end in lists.values())
    works: dict[str, _Work] = {}
    for whose, (_, known, _) in lists.items():
        if network_path.column.is_local and whose is WhichEnd.TARGET:
            continue
        works["core" if whose is WhichEnd.BOTH else whose.value] = _work(
            known, whose, network_path, job, direction, demands, depth=depth, is_emulated=is_emulated
        )
    idle = next(iter(lists.values())).idle.get(demand.idle_of(is_emulated))

    def at(scale: float) -> stations.CellDemands:
        scaled = {
            name: max(LEAST, 1 + scale * work.reach_ns / max(1.0, work.ns)) for name, work in works.items()
        }
        return stations.CellDemands(
            path=demands,
            work={name: scaled[name] * (work.ns - work.whole_ns) for name, work in works.items()},
            sealing={name: scaled[name] * work.sealing_ns for name, work in works.items()},
            whole={name: scaled[name] * work.whole_ns for name, work in works.items()},
            idle_ns=idle.ns * demands.round_trips if idle and demands is not None else 0.0,
            share=share,
        )

    return _Cell(
        at=at,
        depth=depth,
        fit_error=max(end.known.fit.error if end.known.fit is not None else 0.5 for end in lists.values()),
        is_borrowed=any(work.is_borrowed for work in works.values()),
    )


class _Work(NamedTuple):
    """What an end's core works for one I/O, and how far the interval of that reaches. ``whole_ns`` of it is
    before an I/O's first packet or after the last, and ``sealing_ns`` is what protections have of the other.
    If it ``is_borrowed``, some CPU costs are of the other direction."""

    ns: float
    reach_ns: float
    whole_ns: float
    sealing_ns: float
    is_borrowed: bool


def _work(
    known: Mapping[Operation, CpuCost],
    at: WhichEnd,
    network_path: NetworkPath,
    job: Job,
    direction: IoDirection,
    demands: path_demands.Demands | None,
    *,
    depth: int,
    is_emulated: bool,
) -> _Work:
    """``_NoCost`` for what lacks a CPU cost."""

    def of_counts(*, keeps_up: bool) -> _Work:
        counts = demand.counts_of(
            at,
            network_path.column,
            direction,
            described(job).block_bytes or 1,
            in_flight=depth,
            calls=demand.calls_of(job),
            path=demands,
            is_emulated=is_emulated,
            keeps_up=keeps_up,
            proposals=network_path.proposals,
        )
        others = {name: name._replace(direction=OTHER.get(name.direction, "")) for name in counts}
        is_borrowed = any(name not in known and other in known for name, other in others.items())
        counts = {name if name in known else others[name]: count for name, count in counts.items()}
        whole = demand.of_whole(counts)
        own = {*network_path.column.protection, *map(protections.protocol, network_path.column.protection)}
        sealing = {n: count for n, count in counts.items() if n.part in own and n not in whole}
        whole_ns, sealing_ns = (cpu_costs.demand_ns(each, known)[0] for each in (whole, sealing))
        return _Work(*cpu_costs.demand_ns(counts, known), whole_ns, sealing_ns, is_borrowed)

    try:
        found = of_counts(keeps_up=False)
        if not network_path.column.protection or demands is None or found.ns >= demands.busy_ns:
            return found
        # A core that keeps up with the link acknowledges more packets by themselves, as far as it has time.
        most = of_counts(keeps_up=True)
    except KeyError as error:
        operation: Operation = error.args[0]
        raise _NoCost(f"no CPU cost of {operation.part} for each {operation.per}".rstrip()) from error
    more_ns = max(0.0, min(most.ns, demands.busy_ns) - found.ns)
    return found._replace(ns=found.ns + more_ns, sealing_ns=found.sealing_ns + more_ns)


def doubts(ends: Ends) -> list[str]:
    """What is wrong with the lists themselves: on a busy machine a round trip waits for other programs."""
    lists = [found for found in (ends.target, ends.initiator) if found is not None]
    return [
        f"the CPU costs of {found.name} were measured while other programs took {found.fit.taken:.0%} of the "
        "processors: the limits may be right, the figures are not; measure again on a quieter machine"
        for found in lists
        if found.fit is not None and found.fit.taken > disturbance.THRESHOLD
    ]
