"""ping(8): round trips of echo requests, sparse or at the cadence of I/O, on an idle or a loaded path."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from harness.model.errors import HarnessError, HostLost, UsageError
from harness.model.probing import Ping, PingFigures, Tcp, TcpFigures
from harness.model.telemetry import RoundTrips
from harness.network.links import LinkPath
from harness.parse import echo as parser
from harness.probes.tools import UNPROTECTED, ProbedPath, ProbeOutcome, keep, require

S_NS = 1_000_000_000

ANSWER_S = 2
"""How long ping waits for the last reply, in whole seconds: it accepts no fractions."""

RAMP_S = 1

IN_RUN_REPEATS = 3
"""Of a lab's emulated links, the rounds in which round trips are measured before each cell."""

CELL_COUNT = 20
CELL_INTERVAL_S = 0.002
"""Before a cell: the cadence of I/O, and much shorter than the cell itself."""


def command(path: LinkPath, count: int, interval_s: float, payload_bytes: int) -> list[str]:
    """ping's command, from the initiator to the target, by the link's interface."""
    argv = ["ping", "-n", "-c", str(count), "-i", f"{interval_s:g}", "-s", str(payload_bytes)]
    argv += ["-W", str(ANSWER_S), "-w", str(math.ceil(count * interval_s) + ANSWER_S)]
    if path.is_shared:
        argv += ["-I", path.initiator_address]
    return [*argv, path.target_address]


def round_trips(text: str, interval_s: float, payload_bytes: int) -> tuple[RoundTrips, list[str]]:
    """The round trips in ping's text, and why they must not be used. UsageError if it has no summary."""
    run = parser.parse_ping(text).runs[0]
    times = sorted(parser.reply_times_ns(text))
    complete = len(times) == run.received
    found = RoundTrips(
        interval_ns=round(interval_s * S_NS),
        payload_bytes=payload_bytes,
        sent=run.transmitted,
        received=run.received or 0,
        min_ns=run.rtt_min_ns,
        mean_ns=run.rtt_avg_ns,
        p50_ns=nearest_rank(times, 50) if complete else None,
        p99_ns=nearest_rank(times, 99) if complete else None,
        max_ns=run.rtt_max_ns,
        stddev_ns=run.rtt_mdev_ns,
    )
    return found, list(run.invalid)


def nearest_rank(ordered: Sequence[float], percent: float) -> float | None:
    """The least value such that ``percent`` of all are not above it; None for no values."""
    return ordered[math.ceil(percent / 100 * len(ordered)) - 1] if ordered else None


def before_cell(path: LinkPath, *, protected: bool) -> tuple[RoundTrips | None, str | None]:
    """Round trips at the cadence of I/O, or why there are none. Raises HostLost only."""
    if protected and path.is_shared:
        return None, UNPROTECTED
    argv = command(path, CELL_COUNT, CELL_INTERVAL_S, 56)
    try:
        done = path.initiator.run(argv, check=False, timeout_s=10)
        found, problems = round_trips(done.stdout, CELL_INTERVAL_S, 56)
    except HostLost:
        raise
    except (HarnessError, OSError) as error:
        return None, str(error)
    if problems or not found.received:
        return None, "; ".join(problems) or f"none of {found.sent} echo requests was answered"
    return found, None


def measure(probe: Ping, probed: ProbedPath) -> ProbeOutcome:
    """Ping the target, while TCP fills the path if the probe is ``loaded``."""
    if not probe.loaded:
        return _ping(probe, probed)
    from harness.probes import throughput  # here, because no cell has such a load

    # The load begins before the first request, and ends after the last.
    load = Tcp(duration_s=math.ceil(probe.count * probe.interval_s) + 2 * RAMP_S)
    with ThreadPoolExecutor(1) as pool:
        carrying = pool.submit(throughput.tcp, load, probed)
        time.sleep(RAMP_S)
        outcome = _ping(probe, probed)
        carried = carrying.result()
    outcome.reasons += [f"the load: {reason}" for reason in carried.reasons]
    if isinstance(outcome.figures, PingFigures) and isinstance(carried.figures, TcpFigures):
        outcome.figures = msgspec.structs.replace(outcome.figures, load_bit_s=carried.figures.received_bit_s)
    outcome.moved_bytes += carried.moved_bytes
    return outcome


def _ping(probe: Ping, probed: ProbedPath) -> ProbeOutcome:
    path = probed.path
    require(path.initiator, "ping")
    argv = command(path, probe.count, probe.interval_s, probe.payload_bytes)
    timeout_s = probe.count * probe.interval_s + ANSWER_S + 10
    done = path.initiator.run(argv, check=False, timeout_s=timeout_s)
    text = keep(probed.raw, "ping", done)
    try:
        found, problems = round_trips(text, probe.interval_s, probe.payload_bytes)
    except UsageError as error:
        return ProbeOutcome().refuse(f"ping ended with status {done.status}: {error.message}")
    outcome = ProbeOutcome(figures=PingFigures(round_trips=found), reasons=problems)
    outcome.moved_bytes = 2 * found.received * probe.payload_bytes
    if not found.received:
        return outcome.refuse(f"none of {found.sent} echo requests was answered")
    if found.received < found.sent:
        outcome.warnings.append(f"{found.sent - found.received} of {found.sent} echo requests were lost")
    return outcome


OFFERED = ((Ping, measure),)
