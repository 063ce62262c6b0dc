"""One measurement: fio, with the evidence of where its bytes went read before and after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.hosts import Host
from harness.model import ClientPart, Io, Proof, Record, Status, WifiState, Workload
from harness.model.beside import InterfaceUse
from harness.model.errors import HarnessError
from harness.network import wifi, wireless
from harness.network.links import LinkPath
from harness.parse import fio
from harness.parse.jobfile import moves_read, moves_write
from harness.protection import bait, proof
from harness.protection.capture import Capture, Seen
from harness.runs import together
from harness.runs.together import Client
from harness.storage.iscsi.initiator import RemoteDisk


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One initiator's connection to its LUN, up: its link, its session, its disk."""

    path: LinkPath
    disk: RemoteDisk
    capture: Capture
    session: dict[str, str]
    esp: dict[str, str]
    protection: proof.Protection | None = None
    control: bait.Control | None = None
    is_wireless: bool = False
    aloft: wifi.Aloft | None = None


@dataclass(kw_only=True)
class Part:
    """The result of one initiator's fio, and what makes it invalid."""

    initiator: str
    job: fio.FioJob | None = None
    started_unix_s: float | None = None
    proof: Proof | None = None
    wifi: tuple[WifiState, ...] = ()
    interfaces: tuple[InterfaceUse, ...] = ()
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def read(self) -> Io | None:
        return self.job.read if self.job else None

    @property
    def write(self) -> Io | None:
        return self.job.write if self.job else None


@dataclass(kw_only=True)
class Done:
    """All parts of one measurement, and what concerns it as a whole.

    ``before`` are reasons against the previous measurement on these lanes, from what was seen since.
    """

    parts: list[Part]
    before: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def on_disk(
    host: Host, job: str, raw: Path, *, timeout_s: float, env: Mapping[str, str] | None = None
) -> Done:
    """Run one fio job on a host; ``raw`` is the folder for its input and output."""
    argv = ["fio", "--output-format=json+", "-"]
    done = host.run(argv, input=job, timeout_s=timeout_s, check=False, env=env)
    for name, text in (("job.fio", job), ("fio.json", done.stdout), ("fio.stderr", done.stderr)):
        if text:
            (raw / name).write_text(text, encoding="utf-8")
    part = Part(initiator=host.name)
    if done.status != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        part.reasons.append(f"fio ended with status {done.status}: {last}")
    try:
        output = fio.parse(done.stdout)
    except HarnessError as error:
        part.reasons.append(str(error))
        return Done(parts=[part])
    part.warnings += output.warnings
    if len(output.jobs) != 1:
        part.reasons.append(f"expected one job in fio's output, found {len(output.jobs)}")
        return Done(parts=[part])
    (part.job,) = output.jobs
    return Done(parts=[part])


def over_lanes(
    lanes: Sequence[Lane],
    job: Callable[[str], str],
    raw: Path,
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    during: contextlib.AbstractContextManager[object] | None = None,
) -> Done:
    """Run ``job(device)`` on each lane's disk, all at once, and judge what each path carried.

    ``during`` is entered for as long as fio runs. Raises CellInvalid if a disk is no longer the one of its
    session.
    """
    for lane in lanes:
        lane.disk.check()
    with contextlib.ExitStack() as stack:
        watched = {
            number: stack.enter_context(
                wireless.watch(lane.path.initiator, lane.path.initiator_iface, raw / f"iw-{number}.txt")
            )
            for number, lane in enumerate(lanes)
            if lane.is_wireless
        }
        aloft = {
            number: stack.enter_context(wifi.proved(lane.aloft))
            for number, lane in enumerate(lanes)
            if lane.aloft is not None
        }
        late = [reason for lane in lanes for reason in judge_late(lane, lane.capture.glance())]
        before = [proof.snapshot(lane.path, lane.protection, begins=True) for lane in lanes]
        with during or contextlib.nullcontext():
            if len(lanes) == 1:
                (lane,) = lanes
                done = on_disk(lane.path.initiator, job(lane.disk.device), raw, timeout_s=timeout_s, env=env)
            else:
                done = _together(lanes, job, raw, timeout_s=timeout_s)
        after = [proof.snapshot(lane.path, lane.protection, begins=False) for lane in lanes]
        seen = [
            proof.collect(lane.path, first, last, lane.capture, protected=lane.protection is not None)
            for lane, first, last in zip(lanes, before, after, strict=True)
        ]
    done.before = late
    for lane, part, first, last, found in zip(lanes, done.parts, before, after, seen, strict=True):
        part.proof, failures = proof.judge(
            lane.path,
            first,
            last,
            found,
            lane.capture,
            lane.protection,
            read_bytes=part.read.bytes if part.read else 0,
            write_bytes=part.write.bytes if part.write else 0,
        )
        part.reasons += failures
        part.interfaces = proof.interfaces(lane.path, first, last)
    for number, (air,) in aloft.items():
        part = done.parts[number]
        moved = sum(io.bytes for io in (part.read, part.write) if io is not None)
        part.reasons += wifi.judge(air, moved, lanes[number].path.profile.mtu_bytes)
        if part.proof is not None:
            part.proof = msgspec.structs.replace(part.proof, air=air)
    for number, watch in watched.items():
        part = done.parts[number]
        part.wifi = tuple(watch.states())
        failures, doubts = wireless.judge(part.wifi)
        part.reasons += failures
        part.warnings += doubts
    return done


def judge_late(lane: Lane, seen: Sequence[Seen]) -> list[str]:
    """Reasons against a cell from frames that were sent after its captures had been judged."""
    count = sum(each.cleartext for each in seen)
    if lane.protection is None or not count:
        return []
    return [f"{count} cleartext segments of the portal were on the link after the cell"]


def _together(lanes: Sequence[Lane], job: Callable[[str], str], raw: Path, *, timeout_s: float) -> Done:
    clients = [
        Client(name=lane.path.initiator.name, host=lane.path.initiator, job=job(lane.disk.device))
        for lane in lanes
    ]
    ran = together.run_together(clients, folder=raw, timeout_s=timeout_s)
    parts = [
        Part(
            initiator=part.name,
            job=part.job,
            started_unix_s=part.started_unix_s,
            reasons=[part.reason] if part.reason else [],
        )
        for part in ran.parts
    ]
    return Done(parts=parts, warnings=list(ran.warnings))


def summarise(done: Done, workload: Workload, record: Record) -> Record:
    """The record with the measurement: its figures, its proofs, and its status with the reasons."""
    for part in done.parts:
        if part.job is not None:
            part.reasons += part.job.invalid
            if part.read is None and part.write is None and not part.job.invalid:
                part.reasons.append("fio completed no I/O")
    several = len(done.parts) > 1
    name = [f"{part.initiator}: " if several else "" for part in done.parts]
    reasons = [f"{n}{reason}" for n, part in zip(name, done.parts, strict=True) for reason in part.reasons]
    warnings = [f"{n}{doubt}" for n, part in zip(name, done.parts, strict=True) for doubt in part.warnings]
    first = done.parts[0]
    read, write = (first.read, first.write)
    if several:
        read, write = together.total([part.job for part in done.parts if part.job is not None])
    # The proof covers what a verification reads after a write, but the figures do not include it.
    read, write = (read if moves_read(workload) else None, write if moves_write(workload) else None)
    reasons += done.reasons
    return msgspec.structs.replace(
        record,
        status=Status.INVALID if reasons else Status.OK,
        reason="; ".join(reasons) or None,
        warnings=(*warnings, *done.warnings),
        read=read,
        write=write,
        sync_latency=first.job.sync_latency if first.job and not several else None,
        fio_ns=max((io.runtime_ns for io in (read, write) if io is not None), default=0),
        proof=None if several else first.proof,
        clients=tuple(_client(part, workload) for part in done.parts) if several else (),
        wifi=first.wifi,
    )


def _client(part: Part, workload: Workload) -> ClientPart:
    return ClientPart(
        initiator=part.initiator,
        status=Status.INVALID if part.reasons else Status.OK,
        reason="; ".join(part.reasons) or None,
        read=part.read if moves_read(workload) else None,
        write=part.write if moves_write(workload) else None,
        started_unix_s=part.started_unix_s,
        proof=part.proof,
        wifi=part.wifi,
    )
