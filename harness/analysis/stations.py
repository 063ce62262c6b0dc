"""One I/O as work of stations: the ends' cores, each direction of the link (or the air, which both share) and
the device; and how long it takes with others in flight.

One alone takes its critical path (``critical_path``). Of many the time between two completions lies between
the asymptotic bounds of a closed network and that of a batch (Lazowska and others, Quantitative System
Performance, 1984, chapter 5). All of it grows with each station's work, so more rate, a cheaper operation, a
wider window or a deeper queue never make an I/O slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harness.analysis.critical_path import critical_path
from harness.analysis.limit import Limit
from harness.analysis.path_demands import Demands
from harness.model import ENDS


class CellDemands(msgspec.Struct, frozen=True, kw_only=True):
    """What one I/O asks of the stations, in ns; of a mix each direction is one, with its ``share``.

    ``work`` is what each end's core works on packets and bytes (``critical_path``), and ``whole`` what it
    works before the first packet or after the last. ``sealing`` is what protections have of ``work``.
    ``device_ns`` is the disk's, ``idle_ns`` what round trips take besides link and work, ``path`` None
    without a network.
    """

    path: Demands | None = None
    work: Mapping[str, float] = {}
    sealing: Mapping[str, float] = {}
    whole: Mapping[str, float] = {}
    device_ns: float = 0.0
    idle_ns: float = 0.0
    share: float = 1.0


class Each(msgspec.Struct, frozen=True, kw_only=True):
    """The time between two completions, what limits, and the parts of the time that one I/O is in flight, in
    ns: ``queue`` is its wait for stations that others keep busy. ``utilization`` is that of what limits."""

    ns: float
    limited_by: Limit
    utilization: float
    parts: dict[str, float]


def each(cells: Sequence[CellDemands], depth: int, waits: float) -> Each:
    """What I/Os take with so many in flight, of which those that began together leave together: ``waits`` is
    how far from the asymptotic bound (0) towards a batch (1)."""
    served = [_served(cell, depth) for cell in cells]
    parts = _mixed(cells, [{**of, **_critical(cell)} for cell, of in zip(cells, served, strict=True)])
    lost_ns = parts.get("lost_packets", 0.0) / depth
    alone_ns = sum(ns for name, ns in parts.items() if name != "lost_packets")
    found = bounds(cells)
    servers = [ns for limit, ns in found.items() if limit is not Limit.WINDOW]
    full_ns = max(servers)
    least_ns = max(alone_ns / depth, *found.values())
    found[Limit.LATENCY] = alone_ns / depth
    if depth == 1:
        found[Limit.LATENCY] = sum(parts.get(name, 0.0) for name in _WAITED)
    limit = max(found, key=found.__getitem__)
    batch_ns = (max(alone_ns, full_ns) + (depth - 1) * full_ns) / depth
    most_ns = min(batch_ns, mean_value_ns(alone_ns, servers, depth))
    each_ns = least_ns + waits * max(0.0, most_ns - least_ns) + lost_ns
    if len(cells) > 1:
        # A mix takes no longer than as many of one kind after those of the other.
        all_of = (msgspec.structs.replace(cell, share=1.0) for cell in cells)
        in_turn = [each([cell], depth, waits).ns for cell in all_of]
        each_ns = min(each_ns, sum(cell.share * ns for cell, ns in zip(cells, in_turn, strict=True)))
    # Of one alone what overlaps shows once; while others are in flight each station's service does.
    all_served, critical_ns = _mixed(cells, served), sum(parts.values())
    hidden_ns, left_ns = sum(all_served.values()) - critical_ns, depth * each_ns - critical_ns
    shown = min(1.0, max(0.0, left_ns / hidden_ns)) if hidden_ns > 0 else 0.0
    parts = {name: ns + shown * (all_served[name] - ns) for name, ns in parts.items()}
    return Each(
        ns=each_ns,
        limited_by=limit,
        utilization=found[limit] / each_ns,
        parts={**parts, "queue": max(0.0, depth * each_ns - sum(parts.values()))},
    )


_WAITED = ("round_trip", "window", "idle", "lost_packets", "transport")
"""What nothing works meanwhile."""


def bounds(cells: Sequence[CellDemands]) -> dict[Limit, float]:
    """The least time per I/O at any depth: how long one occupies the busiest core, the busiest direction of
    the link and the device, and how long TCP's window takes to let its bytes go."""
    cores, ways = dict[str, float](), dict[str, float]()
    for cell in cells:
        for end in {*cell.work, *cell.whole}:
            ns = cell.work.get(end, 0.0) + cell.whole.get(end, 0.0)
            cores[end] = cores.get(end, 0.0) + cell.share * ns
        if cell.path is not None:
            of_way = {"": cell.path.busy_ns} if cell.path.is_shared or not cell.path.ways else cell.path.ways
            for way, ns in of_way.items():
                ways[way] = ways.get(way, 0.0) + cell.share * ns
    return {
        Limit.CPU: max(cores.values(), default=0.0),
        Limit.LINK: max(ways.values(), default=0.0),
        Limit.DEVICE: sum(cell.share * cell.device_ns for cell in cells),
        Limit.WINDOW: sum(cell.share * cell.path.window_each_ns for cell in cells if cell.path is not None),
    }


def path_least_ns(cells: Sequence[CellDemands], depth: int) -> float:
    """``Demands.least_ns`` of a mix: each direction of the link carries its own part of it."""
    found = bounds(cells)
    alone_ns = sum(cell.share * cell.path.alone_ns for cell in cells if cell.path is not None)
    return max(alone_ns / depth, found[Limit.LINK], found[Limit.WINDOW])


def _mixed(cells: Sequence[CellDemands], parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for cell, of_one in zip(cells, parts, strict=True):
        for name, ns in of_one.items():
            found[name] = found.get(name, 0.0) + cell.share * ns
    return found


def _critical(cell: CellDemands) -> dict[str, float]:
    """The parts of which one I/O alone has less than is served, because others go on meanwhile: those of the
    critical path over the link, with the cores' work before and after it."""
    path, whole = cell.path, cell.whole
    if path is None:
        return {}
    found = critical_path(path, cell.work, cell.sealing, cell.idle_ns / max(1, path.round_trips))
    # The link's part is data, headers and framing alike; beyond one round trip others are the transport's.
    on_link_ns = path.alone_ns - path.round_trip_ns - path.window_ns - path.more_trips_ns
    of_link = found.link_ns / on_link_ns if on_link_ns > 0 else 0.0
    more_trips_ns = max(0.0, found.delay_ns - path.round_trip_ns)
    work = {"core": found.core_ns, "initiator": found.initiator_ns, "target": found.target_ns}
    return {
        "link": of_link * path.link_ns,
        "round_trip": min(path.round_trip_ns, found.delay_ns),
        "window": found.window_ns,
        "transport": of_link * (path.transport_ns - path.more_trips_ns) + more_trips_ns,
        "framing": of_link * path.framing_ns,
        "idle": found.idle_ns,
        **_work(cell, {end: whole.get(end, 0.0) + ns for end, ns in work.items()}),
    }


def _served(cell: CellDemands, depth: int) -> dict[str, float]:
    """What each takes of one I/O, whatever goes on at the same time."""
    path, ends = cell.path, {*cell.work, *cell.whole}
    work = _work(cell, {end: cell.work.get(end, 0.0) + cell.whole.get(end, 0.0) for end in ends})
    if path is None:
        return {"device": cell.device_ns, **work}
    return {
        "device": cell.device_ns,
        "link": path.link_ns,
        "round_trip": path.round_trip_ns,
        "window": path.window_ns,
        "transport": path.transport_ns,
        "framing": path.framing_ns,
        "lost_packets": depth * path.lost_at_ns(depth),
        "idle": cell.idle_ns,
        **work,
    }


def _work(cell: CellDemands, ns: Mapping[str, float]) -> dict[str, float]:
    """By its part's name: one core's is ``cpu``, and that of two has the end before it."""
    if "core" in {*cell.work, *cell.whole} or cell.path is None:
        return {"cpu": ns.get("core", 0.0) if "core" in ns else sum(ns.values())}
    return {f"{end}_cpu": ns.get(end, 0.0) for end in ENDS}


def mean_value_ns(alone_ns: float, servers: Sequence[float], depth: int) -> float:
    """The time between two completions of ``depth`` requests, each of which takes ``alone_ns`` by itself.
    ``servers`` are what it takes of each; what is not a server's delays all requests alike.

    Exact mean value analysis of a closed network (Reiser and Lavenberg, Journal of the ACM 27(2), 1980;
    Lazowska, chapter 6) is for services that vary as if by chance. The asymptotic bound is for those that
    never do: what is measured lies between the two.
    """
    think_ns = max(0.0, alone_ns - sum(servers))
    queues = [0.0] * len(servers)
    each_ns = alone_ns
    for requests in range(1, depth + 1):
        times = [server * (1 + queue) for server, queue in zip(servers, queues, strict=True)]
        each_ns = (think_ns + sum(times)) / requests
        queues = [time_ns / each_ns for time_ns in times]
    return each_ns
