"""Proof that a cell's bytes took the path its column names: counters of both ends, and the capture."""

from __future__ import annotations

from dataclasses import dataclass

from harness.beside import InterfaceUse
from harness.capture import Capture
from harness.counters import NOTHING, Traffic, traffic
from harness.hosts import Host
from harness.ipsec import EspState, read_states
from harness.links import LinkPath
from harness.model import Proof

ENOUGH_FRAMES = 32
"""So many samples are to be expected before it proves something that there is none."""


@dataclass(frozen=True, kw_only=True)
class EndCounters:
    """One end of a link at one moment: interface bytes, TCP retransmissions, ESP states by SPI."""

    link_bytes: int
    retransmits: int
    traffic: Traffic = NOTHING
    outbound: dict[str, EspState]
    inbound: dict[str, EspState]


def _retransmitted_segments(proc_net_snmp: str) -> int:
    rows = [line.split() for line in proc_net_snmp.splitlines() if line.startswith("Tcp:")]
    if len(rows) != 2:
        return 0
    return int(dict(zip(rows[0], rows[1], strict=True)).get("RetransSegs", "0"))


def _counters(host: Host, path: LinkPath, iface: str, local: str, *, protected: bool) -> EndCounters:
    devices, snmp = host.read_files(["/proc/net/dev", "/proc/net/snmp"])
    states = read_states(host, path) if protected else []
    counted = traffic(devices).get(iface, NOTHING)
    return EndCounters(
        link_bytes=counted.rx_bytes + counted.tx_bytes,
        traffic=counted,
        retransmits=_retransmitted_segments(snmp),
        outbound={state.spi: state for state in states if state.source == local},
        inbound={state.spi: state for state in states if state.destination == local},
    )


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Both ends at one moment."""

    initiator: EndCounters
    target: EndCounters


def snapshot(path: LinkPath, *, protected: bool) -> Snapshot:
    """Read all counters that a proof compares."""
    near = (path.initiator, path, path.initiator_iface, path.initiator_address)
    far = (path.target, path, path.target_iface, path.target_address)
    return Snapshot(
        initiator=_counters(*near, protected=protected), target=_counters(*far, protected=protected)
    )


def interfaces(path: LinkPath, before: Snapshot, after: Snapshot) -> tuple[InterfaceUse, ...]:
    """What the interfaces of both ends counted between two snapshots."""
    return (
        before.initiator.traffic.grown(after.initiator.traffic, path.initiator.name, path.initiator_iface),
        before.target.traffic.grown(after.target.traffic, path.target.name, path.target_iface),
    )


def _grown(before: dict[str, EspState], after: dict[str, EspState], what: str) -> int:
    """How much a counter of the SAs grew; an SA that a rekey brought counts from zero."""
    return sum(
        getattr(state, what) - (getattr(before[spi], what) if spi in before else 0)
        for spi, state in after.items()
    )


def judge(
    before: Snapshot,
    after: Snapshot,
    capture: Capture,
    *,
    read_bytes: int,
    write_bytes: int,
    protected: bool,
) -> tuple[Proof, list[str], list[str]]:
    """Compare what fio moved with what the path saw.

    Returns the proof, the reasons why it fails (empty: it holds), and warnings. Data that fio read
    flows from target to initiator, and has to be covered by that direction's counters at both ends.
    """
    ends = dict(zip(("initiator", "target"), capture.look(), strict=True))
    near, far = (before.initiator, after.initiator), (before.target, after.target)
    to_initiator = {
        "target": _grown(far[0].outbound, far[1].outbound, "bytes"),
        "initiator": _grown(near[0].inbound, near[1].inbound, "bytes"),
    }
    to_target = {
        "target": _grown(far[0].inbound, far[1].inbound, "bytes"),
        "initiator": _grown(near[0].outbound, near[1].outbound, "bytes"),
    }
    totals = {end: to_initiator[end] + to_target[end] for end in to_initiator}
    proof = Proof(
        link_bytes_initiator=near[1].link_bytes - near[0].link_bytes,
        link_bytes_target=far[1].link_bytes - far[0].link_bytes,
        esp_bytes=min(totals.values()),
        esp_bytes_initiator=totals["initiator"],
        esp_bytes_target=totals["target"],
        esp_packets_sampled=sum(seen.esp for seen in ends.values()),
        esp_sampling=capture.one_in,
        cleartext_segments=sum(seen.cleartext for seen in ends.values()),
        rekeys=len(near[1].outbound.keys() - near[0].outbound.keys()),
        tcp_retransmits=near[1].retransmits + far[1].retransmits - near[0].retransmits - far[0].retransmits,
    )
    reasons: list[str] = []
    warnings: list[str] = []
    moved = read_bytes + write_bytes
    for end, link_bytes in (
        ("initiator", proof.link_bytes_initiator),
        ("target", proof.link_bytes_target),
    ):
        if link_bytes < moved:
            reasons.append(f"fio moved {moved} bytes, but the {end}'s interface only {link_bytes}")
    if protected:
        if proof.rekeys:
            warnings.append(f"{proof.rekeys} rekeys: counters of the SAs that ended are not in the proof")
        else:
            reasons += [
                f"fio read {read_bytes} and wrote {write_bytes} bytes, but ESP at the {end} carried "
                f"only {to_initiator[end]} and {to_target[end]}"
                for end in totals
                if to_initiator[end] < read_bytes or to_target[end] < write_bytes
            ]
        if proof.cleartext_segments:
            reasons.append(f"{proof.cleartext_segments} cleartext segments of the portal were on the link")
        # At each end, for it also shows that the capture there is alive and would have seen cleartext.
        for end, (first, last) in {"initiator": near, "target": far}.items():
            sent = _grown(first.outbound, last.outbound, "packets")
            if not ends[end].esp and sent < 2 * capture.one_in:
                warnings.append(
                    f"the {end} sent {sent} ESP packets, and the sample of one in {capture.one_in} has none"
                )
            elif not ends[end].esp:
                reasons.append(f"the capture of what the {end} sent holds no ESP")
    elif capture.of_cleartext:
        # Frames are captured before they are split, of up to 64 KiB each.
        if not proof.cleartext_segments and moved > ENOUGH_FRAMES * capture.one_in << 16:
            reasons.append("of the portal's segments none was seen on the link")
    elif proof.esp_packets_sampled:
        reasons.append(f"IPsec is off, but {proof.esp_packets_sampled} ESP packets were on the link")
    return proof, reasons, warnings
