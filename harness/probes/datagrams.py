"""UDP round trips by a small C program, ``programs/round_trip.c``, which each host compiles for itself."""

from __future__ import annotations

import msgspec

from harness.hosts import PRIVATE, Host, programs
from harness.model.escape import printable
from harness.model.histogram import Histogram
from harness.model.probing import UdpLatency, UdpLatencyFigures
from harness.probes.tools import ProbedPath, ProbeOutcome, keep, listens, require

SOURCE = programs.path(__package__, "round_trip.c")
BINARY = PRIVATE / "round_trip"

PORT = 52_300
"""The first of the harness's ports, as for iperf3."""

LONGEST_S = 120
"""After this time the program prints what it has: 100 000 round trips of 1 ms."""

READY_S = 10.0
COMPILE_S = 60.0


class _PrintedRoundTrips(msgspec.Struct):
    """What the program prints."""

    round_trips: int
    lost: int
    total_ns: int
    min_ns: int | None = None
    max_ns: int | None = None
    bins: dict[int, int] = {}


def measure(probe: UdpLatency, probed: ProbedPath) -> ProbeOutcome:
    """Send datagrams there and back."""
    path = probed.path
    for host in {path.initiator.kernel: path.initiator, path.target.kernel: path.target}.values():
        build(host)
    port = PORT + path.index
    with path.target.daemon(
        [str(BINARY), "echo", path.target_address, str(port)],
        log=probed.raw / "echo.stderr",
        ready=lambda: listens("udp", path, port),
        deadline_s=READY_S,
    ):
        own = path.initiator_address if path.is_shared else "-"
        argv = [str(BINARY), "measure", path.target_address, str(port), own, str(probe.payload_bytes)]
        argv += [str(probe.count), probe.socket, str(LONGEST_S)]
        done = path.initiator.run(argv, check=False, timeout_s=LONGEST_S + 30)
    keep(probed.raw, "round_trip", done)
    return understand(done.stdout, done.stderr, probe)


def understand(stdout: str, stderr: str, probe: UdpLatency) -> ProbeOutcome:
    """Read the program's output."""
    outcome = ProbeOutcome()
    try:
        printed = msgspec.json.decode(stdout, type=_PrintedRoundTrips, strict=False)
    except msgspec.DecodeError as error:
        said = printable(stderr.strip()[-160:]) or str(error)
        return outcome.refuse(f"expected figures from the round trips' program, found: {said}")
    histogram = Histogram(printed.bins)
    if histogram.count != printed.round_trips:
        return outcome.refuse(
            f"expected {printed.round_trips} round trips in the program's bins, found {histogram.count}"
        )
    p50, p99, p99_9 = histogram.percentiles_ns((50, 99, 99.9)) if printed.round_trips else (None, None, None)
    outcome.figures = UdpLatencyFigures(
        round_trips=printed.round_trips,
        lost=printed.lost,
        mean_ns=printed.total_ns / printed.round_trips if printed.round_trips else None,
        min_ns=printed.min_ns,
        max_ns=printed.max_ns,
        p50_ns=p50,
        p99_ns=p99,
        p99_9_ns=p99_9,
        histogram=histogram,
    )
    outcome.moved_bytes = 2 * printed.round_trips * probe.payload_bytes
    if not printed.round_trips:
        return outcome.refuse("no datagram came back")
    if printed.lost:
        outcome.warnings.append(
            f"{printed.lost} of {printed.lost + printed.round_trips} datagrams did not come back"
        )
    if printed.round_trips + printed.lost < probe.count:
        why = "too many were lost in a row" if printed.lost else f"{LONGEST_S} s had passed"
        outcome.warnings.append(f"it ended after {printed.round_trips} of {probe.count} round trips: {why}")
    return outcome


def build(host: Host) -> None:
    """Compile the program on a host, unless it is there already. RequirementError without a compiler."""
    if host.run(["test", "-x", str(BINARY)], check=False).status == 0:
        return
    require(host, "cc")
    argv = ["cc", "-O2", "-x", "c", "-o", str(BINARY), "-"]
    host.run(argv, input=SOURCE.read_text(encoding="utf-8"), timeout_s=COMPILE_S)


OFFERED = ((UdpLatency, measure),)
