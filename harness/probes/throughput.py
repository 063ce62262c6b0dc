"""iperf3(1): how much TCP carries, and what UDP loses. Both ends' reports are kept, as one JSON document.

A server of the harness's own runs for the length of one test, on a port of its own, so it never meets the
user's.
"""

from __future__ import annotations

from harness.model.errors import UsageError
from harness.model.probing import Tcp, TcpFigures, Udp, UdpFigures
from harness.network.links import LinkPath
from harness.parse import iperf3 as parser
from harness.parse.iperf import IperfOutput, IperfReport
from harness.probes.tools import ProbedPath, ProbeOutcome, keep, listens, require

PORT = 52_010
"""The first of the harness's ports; each path adds its index."""

READY_S = 10.0
GRACE_S = 20.0
"""How long a test may take beyond its duration: over a path with many losses, the ends need time to
finish."""


def client(path: LinkPath, port: int, duration_s: int) -> list[str]:
    """The beginning of the client's command."""
    argv = ["iperf3", "-c", path.target_address, f"-{path.ip}", "-B", path.initiator_address, "-p", str(port)]
    return [*argv, "-t", str(duration_s), "-J", "--get-server-output"]


def tcp(probe: Tcp, probed: ProbedPath) -> ProbeOutcome:
    """TCP for as long as the probe says."""
    words = ["-P", str(probe.streams), *["-R"] * probe.reverse]
    output, outcome = _run(probed, words, probe.duration_s)
    if output is None:
        return outcome
    sent, received = output.sent or IperfReport(), output.received or IperfReport()
    outcome.figures = TcpFigures(
        sent_bytes=sent.bytes,
        received_bytes=received.bytes,
        sent_bit_s=sent.rate_bit_s,
        received_bit_s=received.rate_bit_s,
        retransmits=sent.retransmits,
        rtt_min_ns=output.rtt_min_ns,
        rtt_mean_ns=output.rtt_mean_ns,
        rtt_max_ns=output.rtt_max_ns,
        cwnd_max_bytes=output.cwnd_max_bytes,
        pmtu_bytes=output.pmtu_bytes,
    )
    outcome.moved_bytes = received.bytes or 0
    return outcome if received.rate_bit_s else outcome.refuse("iperf3 reports that nothing was received")


def udp(probe: Udp, probed: ProbedPath) -> ProbeOutcome:
    """UDP at the probe's rate, whatever the path lets through."""
    size = [] if probe.payload_bytes is None else ["-l", str(probe.payload_bytes)]
    output, outcome = _run(probed, ["-u", "-b", str(probe.rate_bit_s), *size], probe.duration_s)
    if output is None:
        return outcome
    sent, received = output.sent or IperfReport(), output.received or IperfReport()
    far = output.server.received if output.server is not None else None
    outcome.figures = UdpFigures(
        sent_bit_s=sent.rate_bit_s,
        received_bit_s=received.rate_bit_s,
        datagrams=received.datagrams,
        lost=received.lost,
        lost_percent=received.loss_percent,
        jitter_ns=received.jitter_ns,
        out_of_order=received.out_of_order if far is None else far.out_of_order,
    )
    outcome.moved_bytes = received.bytes or 0
    if not received.datagrams or received.lost == received.datagrams:
        return outcome.refuse("no datagram arrived")
    return outcome


def _run(probed: ProbedPath, words: list[str], duration_s: int) -> tuple[IperfOutput | None, ProbeOutcome]:
    """A test against a server of its own at the target."""
    path = probed.path
    for host in {host.kernel: host for host in (path.initiator, path.target)}.values():
        require(host, "iperf3")
    port = PORT + path.index
    probed.raw.mkdir(parents=True, exist_ok=True)
    with path.target.daemon(
        ["iperf3", "-s", f"-{path.ip}", "-B", path.target_address, "-p", str(port), "-J", "--forceflush"],
        log=probed.raw / "iperf3-server.stderr",
        output=probed.raw / "iperf3-server.json",
        ready=lambda: listens("tcp", path, port),
        deadline_s=READY_S,
    ):
        argv = [*client(path, port, duration_s), *words]
        done = path.initiator.run(argv, check=False, timeout_s=duration_s + GRACE_S)
    keep(probed.raw, "iperf3", done)
    outcome = ProbeOutcome()
    try:
        output = parser.parse(done.stdout or done.stderr)
    except UsageError as error:
        return None, outcome.refuse(f"iperf3 ended with status {done.status}: {error.message}")
    outcome.reasons += output.invalid
    outcome.warnings += output.warnings
    return output, outcome


OFFERED = ((Tcp, tcp), (Udp, udp))
