"""Packets per second: floods of echo requests until their sum stops growing, and what a hop lets through.

The target answers at full speed only with its limits on ICMP off (icmp_ratelimit and icmp_ratemask in
Documentation/networking/ip-sysctl.rst). ``unlimited`` keeps them off for the length of a probe.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.hosts.runner import Completed
from harness.model import IPV4, IPV6, Family
from harness.model.errors import RequirementError, UsageError
from harness.model.probing import (
    Flood,
    FloodStep,
    Forwarding,
    ForwardingFigures,
    HopRate,
    PacketRate,
    PacketRateFigures,
)
from harness.network import sysctls
from harness.network.links import LinkPath
from harness.observe import counters
from harness.parse.echo import EchoRun, parse_hping3, parse_ping
from harness.probes.tools import ProbedPath, ProbeOutcome, counted, keep, require

LIMITS: dict[Family, tuple[str, ...]] = {
    IPV4: ("/proc/sys/net/ipv4/icmp_ratelimit", "/proc/sys/net/ipv4/icmp_ratemask"),
    IPV6: ("/proc/sys/net/ipv6/icmp/ratelimit",),
}

GROWTH = 1.05
"""The sum counts as still growing if one more process raises it by at least this factor."""

GRACE_S = 15.0
S_NS = 1_000_000_000
KILLED = 128 + 9
"""The exit status that a shell and timeout(1) report for a program that SIGKILL ended."""

PAYLOAD_BYTES = 1
GAPS_US = (1000, 500, 200, 100, 50, 20)
"""Gaps between two requests of one hping3, from slow to fast. It sends by a timer's signals. If it has to
send more than its processor can, it receives no replies, so a shorter gap is tried only while replies
grow."""


def unlimited(journal: Journal, host: Host, family: Family = IPV4) -> contextlib.AbstractContextManager[None]:
    """Make a host answer echo requests without a limit while the context lasts."""
    return sysctls.set_to(journal, host, LIMITS[family], "0")


def measure(probe: PacketRate, probed: ProbedPath) -> ProbeOutcome:
    """Run more and more floods at once, until their sum stops growing or ``most_at_once`` run."""
    require(probed.path.initiator, probe.tool)
    if probe.tool is Flood.HPING3:
        _require_ipv4(probed.path)
    with unlimited(probed.journal, probed.path.target, probed.path.ip):
        return _until_saturated(probe, probed)


def _until_saturated(probe: PacketRate, probed: ProbedPath) -> ProbeOutcome:
    outcome = ProbeOutcome()
    if probe.tool is Flood.HPING3 and probed.layers:
        raise RequirementError(
            "hping3 listens where packets are still encrypted, so it hears no replies through IPsec",
            hint="use the probe that floods with ping",
        )
    steps: list[FloodStep] = []
    best: FloodStep | None = None
    saturated = False
    gap_us = None if probe.tool is Flood.PING else GAPS_US[0]
    for shorter_us in () if gap_us is None else GAPS_US:
        step = _step(probe, probed, 1, shorter_us, outcome)
        steps.append(step)
        if best is not None and step.replies_per_s < GROWTH * best.replies_per_s:
            break
        best, gap_us = step, shorter_us
    for at_once in range(1 if best is None else 2, probe.most_at_once + 1):
        step = _step(probe, probed, at_once, gap_us, outcome)
        steps.append(step)
        if best is not None and step.replies_per_s < GROWTH * best.replies_per_s:
            saturated = True
            break
        best = step
    if outcome.reasons:
        return outcome
    if best is None or not best.received:
        return outcome.refuse("no echo request was answered")
    # Each flood ends with a request on its way.
    lossless = best.sent - best.received <= best.at_once
    outcome.figures = PacketRateFigures(
        steps=tuple(steps),
        at_once=best.at_once,
        replies_per_s=best.replies_per_s,
        packets_per_s=2 * best.replies_per_s if lossless else None,
        counted_per_s=best.counted_per_s,
        lost_percent=best.lost_percent,
        is_saturated=saturated,
    )
    if not lossless:
        outcome.warnings.append(
            f"{best.lost_percent:.2g} % of the requests were lost, so the packet rate is not twice the "
            f"rate of replies"
        )
    if not saturated:
        outcome.warnings.append(f"the sum still grew with {probe.most_at_once} at once")
    outcome.moved_bytes = 2 * sum(step.received for step in steps) * PAYLOAD_BYTES
    return outcome


def _step(
    probe: PacketRate, probed: ProbedPath, at_once: int, gap_us: int | None, outcome: ProbeOutcome
) -> FloodStep:
    """So many floods at once. If a tool's output makes no sense, ``outcome`` gets a reason."""
    path = probed.path
    argv = _ping(path, probe) if gap_us is None else _hping3(path, probe, gap_us)
    parse = parse_ping if gap_us is None else parse_hping3

    def flood(_number: int) -> Completed:
        return path.initiator.run(argv, check=False, timeout_s=probe.duration_s + GRACE_S)

    before = counted(path.target, path.target_iface)
    with ThreadPoolExecutor(at_once) as pool:
        ended = list(pool.map(flood, range(at_once)))
    grown = before.grown(counted(path.target, path.target_iface), path.target.name, path.target_iface)
    sent = received = 0
    replies_per_s = longest_s = 0.0
    for number, done in enumerate(ended, 1):
        gap = "" if gap_us is None else f"-{gap_us}us"
        text = keep(probed.raw, f"{probe.tool}{gap}-{at_once}-{number}", done)
        if done.status == KILLED and gap_us is not None:
            # Its timer left it no time, not even to end when asked: it heard nothing, so this was too fast.
            outcome.warnings.append(f"hping3 every {gap_us} us starved itself and had to be killed")
            continue
        try:
            one_sent, one_received, seconds = _printed(parse(text).runs[0])
        except UsageError as error:
            outcome.refuse(f"{probe.tool} ended with status {done.status}: {error.message}")
            continue
        sent, received = sent + one_sent, received + one_received
        replies_per_s += one_received / seconds
        longest_s = max(longest_s, seconds)
    return FloodStep(
        at_once=at_once,
        gap_us=gap_us,
        sent=sent,
        received=received,
        counted_per_s=(grown.rx_packets + grown.tx_packets) / longest_s if longest_s else 0.0,
        replies_per_s=replies_per_s,
        lost_percent=100 * (sent - received) / sent if sent else 0.0,
    )


def _ping(path: LinkPath, probe: PacketRate) -> list[str]:
    source = ["-I", path.initiator_address] if path.is_shared else []
    flood = ["ping", "-n", "-q", "-f", "-s", str(PAYLOAD_BYTES), "-w", str(probe.duration_s)]
    return [*flood, *source, path.target_address]


def _printed(run: EchoRun) -> tuple[int, int, float]:
    """Sent, received, and in how many seconds. UsageError if the text does not say."""
    if run.invalid or not run.elapsed_ns or run.received is None:
        raise UsageError("; ".join(run.invalid) or "it does not say how long it took")
    return run.transmitted, run.received, run.elapsed_ns / S_NS


def _hping3(path: LinkPath, probe: PacketRate | Forwarding, gap_us: int | None = None) -> list[str]:
    """hping3 for so long, with the time that it took: hping3 has no option for that, and does not print
    it."""
    words = ["-i", f"u{gap_us}", "--icmp"]
    if gap_us is None:
        # The target's kernel receives an unexpected echo reply and ignores it.
        words = ["--flood", "--icmp", "-C", "0"]
    script = 'time timeout --signal=INT --kill-after=3 "$0" hping3 "$@"'
    common = ["-q", "-n", "-I", path.initiator_iface, *words]
    return ["bash", "-c", script, str(probe.duration_s), path.target_address, *common]


def forwarding(probe: Forwarding, probed: ProbedPath) -> ProbeOutcome:
    """Flood the target with packets that nobody answers, and count what left each hop and what arrived."""
    path = probed.path
    require(path.initiator, "hping3")
    _require_ipv4(path)
    argv = _hping3(path, probe)
    outcome = ProbeOutcome()
    near, far = (path.initiator, path.initiator_iface), (path.target, path.target_iface)
    hops = [(hop, counters.traffic_of(hop)) for hop in path.hops]
    sent, arrived = counted(*near).tx_packets, counted(*far).rx_packets
    done = path.initiator.run(argv, check=False, timeout_s=probe.duration_s + GRACE_S)
    sent, arrived = max(0, counted(*near).tx_packets - sent), max(0, counted(*far).rx_packets - arrived)
    text = keep(probed.raw, "hping3", done)
    try:
        run = parse_hping3(text).runs[0]
    except UsageError as error:
        return outcome.refuse(f"hping3 ended with status {done.status}: {error.message}")
    if not run.elapsed_ns or not sent:
        return outcome.refuse("no packet left the initiator" if not sent else "hping3's time is unknown")
    seconds = run.elapsed_ns / S_NS
    outcome.figures = ForwardingFigures(
        offered_per_s=sent / seconds,
        arrived_per_s=arrived / seconds,
        lost_percent=max(0.0, 100 * (sent - arrived) / sent),
        hops=tuple(
            HopRate(host=hop.name, interface=use.interface, packets_per_s=use.tx_packets / seconds)
            for hop, before in hops
            for iface, after in counters.traffic_of(hop).items()
            if iface != "lo"
            for use in [before.get(iface, counters.NOTHING).grown(after, hop.name, iface)]
        ),
    )
    return outcome if arrived else outcome.refuse("no packet arrived at the target")


def _require_ipv4(path: LinkPath) -> None:
    if path.ip != IPV4:
        raise RequirementError(
            "hping3 speaks IPv4 alone, and this link speaks IPv6", hint="use the probe that floods with ping"
        )


OFFERED = ((PacketRate, measure), (Forwarding, forwarding))
