"""One probe between two looks at what the kernels counted: tool, proof, record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from harness.hosts import Host
from harness.model import Column, Plan, Status
from harness.model.beside import InterfaceUse
from harness.model.errors import HarnessError, HostLost, RequirementError
from harness.model.probing import Cipher, Forwarding, PacketRate, Ping, Probe, Tcp, Udp, UdpLatency
from harness.network.links import LinkPath
from harness.observe import counters
from harness.observe.counters import Traffic
from harness.observe.neighbours import Watch
from harness.probes import cipher, datagrams, echo, packets, throughput
from harness.probes.tools import UNPROTECTED, Outcome, ProbedPath
from harness.protection.ipsec.witness import Witnesses
from harness.results.probe_records import ProbeRecord

NET_DEV = "/proc/net/dev"

MEASURES: Mapping[type[Probe], Callable[..., Outcome]] = {
    Ping: echo.measure,
    Tcp: throughput.tcp,
    Udp: throughput.udp,
    PacketRate: packets.measure,
    Forwarding: packets.forwarding,
    UdpLatency: datagrams.measure,
    Cipher: cipher.measure,
}


def blank(plan: Plan, column: Column, probe: Probe, *, repeat: int = 1, order: int = 0) -> ProbeRecord:
    """The record of a probe that has not been made."""
    link = plan.links[column.link]
    return ProbeRecord(
        run_id=plan.run_id,
        testbed=plan.testbed,
        link=column.link,
        protection=column.protection,
        probe=probe,
        repeat=repeat,
        order=order,
        status=Status.FAILED,
        started_unix_s=time.time(),
        emulated=link.emulated,
        link_title=link.title,
        ipsec_mode=plan.ipsec_mode.value if column.protection else None,
        encrypts=plan.encrypts(column),
        clock=plan.clock,
        lab_kernel=plan.lab_kernel,
    )


def raw_folder(folder: Path, record: ProbeRecord) -> Path:
    """Where the unmodified outputs of a probe's tools go, in a run's folder."""
    return folder / "raw" / "probes" / record.key


def measure(
    record: ProbeRecord, probed: ProbedPath, *, observer: counters.Observer, watch: Watch, folder: Path
) -> ProbeRecord:
    """The record with what came of its probe. Whatever goes wrong is its status and reason.

    ``watch`` watches who else uses the machines, ``folder`` is the run's. Raises HostLost alone.
    """
    if _uses_esp(record) and probed.path.is_shared:
        return msgspec.structs.replace(record, status=Status.SKIPPED, reason=UNPROTECTED)
    began = time.monotonic_ns()
    record = msgspec.structs.replace(record, started_unix_s=time.time())
    probed.raw.mkdir(parents=True, exist_ok=True)
    try:
        record = _measure(record, probed, observer, watch)
    except HostLost:
        raise
    except RequirementError as error:
        record = msgspec.structs.replace(record, status=Status.SKIPPED, reason=str(error))
    except (HarnessError, OSError) as error:
        record = msgspec.structs.replace(record, status=Status.FAILED, reason=str(error))
    return msgspec.structs.replace(
        record,
        wall_ns=time.monotonic_ns() - began,
        raw=tuple(str(f.relative_to(folder)) for f in sorted(probed.raw.rglob("*")) if f.is_file()),
    )


def _measure(
    record: ProbeRecord, probed: ProbedPath, observer: counters.Observer, watch: Watch
) -> ProbeRecord:
    path = probed.path
    witnesses = probed.witnesses if _uses_esp(record) else None
    esp_before = _esp_bytes(witnesses) if witnesses is not None else ()
    interfaces = _watch_interfaces(path)
    counted = observer.watch()
    with watch() as watching:
        outcome = MEASURES[type(record.probe)](record.probe, probed)
    seen, grown = counted(), interfaces()
    esp = None
    if witnesses is not None:
        esp = min(now - was for was, now in zip(esp_before, _esp_bytes(witnesses), strict=True))
        if esp < outcome.moved_bytes:
            outcome.refuse(f"{outcome.moved_bytes} bytes were moved, but ESP carried only {esp}")
    return msgspec.structs.replace(
        record,
        status=Status.INVALID if outcome.reasons else outcome.status,
        reason="; ".join(outcome.reasons) or None,
        warnings=tuple(outcome.warnings),
        figures=outcome.figures,
        processors=seen.processors,
        interfaces=(*grown, *seen.interfaces),
        others=watching.taken(),
        unseen=dict(seen.unseen),
        protected_bytes=esp,
    )


def _uses_esp(record: ProbeRecord) -> bool:
    """A cipher by itself sends nothing."""
    return record.is_protected and not isinstance(record.probe, Cipher)


def _esp_bytes(witnesses: Witnesses) -> tuple[int, ...]:
    """What all security associations of a path have carried so far; the initiator's first."""
    return tuple(sum(state.bytes for state in report.states) for report in witnesses.look())


def _watch_interfaces(path: LinkPath) -> Callable[[], tuple[InterfaceUse, ...]]:
    """Begin to watch the interfaces of both ends; what is returned says by what they grew."""
    seen: list[tuple[Host, str]] = [
        (path.initiator, path.initiator_iface),
        (path.target, path.target_iface),
    ]
    before = [_traffic(host)[iface] for host, iface in seen]

    def done() -> tuple[InterfaceUse, ...]:
        return tuple(
            first.grown(_traffic(host)[iface], host.name, iface)
            for (host, iface), first in zip(seen, before, strict=True)
        )

    return done


def _traffic(host: Host) -> dict[str, Traffic]:
    return counters.traffic(host.read_files([NET_DEV])[0])
