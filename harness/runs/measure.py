"""One measurement: fio, with counters and captures read before and after it to prove where its bytes went."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.hosts import Host
from harness.hosts.journal import Resource
from harness.model import ClientPart, Job, Record, Status
from harness.model.errors import HarnessError
from harness.network import wireless
from harness.network.links import LinkPath
from harness.parse import fio, jobfile
from harness.parse.jobfile import moves_read, moves_write
from harness.protection import proof
from harness.protection.capture import Seen
from harness.runs import distributed, fio_startup
from harness.runs.columns import ColumnPath
from harness.runs.outcome import Done, InitiatorResult
from harness.storage import guard
from harness.storage.transport import Disk


@dataclass(frozen=True, kw_only=True)
class ConnectedLun:
    """One initiator's connection to its LUN, up: its path, its session, its disk."""

    up: ColumnPath
    disk: Disk
    session: dict[str, str]
    is_wireless: bool = False
    device: guard.Device | None = None
    """Of somebody else's LUN that is written to."""
    outages: Mapping[str, Resource] = field(default_factory=dict)
    """What can happen to the server of a target that is the run's, by the fault's name."""

    @property
    def path(self) -> LinkPath:
        """What the session runs on."""
        return self.up.path

    @property
    def link(self) -> LinkPath:
        return self.up.link

    @property
    def is_protected(self) -> bool:
        return self.up.watched[0].layer is not None


class Meanwhile(NamedTuple):
    """What may happen to a path during a measurement: the portal's connections are others at its end, and
    stations lose their access points."""

    reconnects: bool = False
    breaks_air: bool = False


def on_disk(
    host: Host,
    job: str,
    raw: Path,
    *,
    timeout_s: float,
    program: fio_startup.Fio = fio_startup.Fio(),  # noqa: B008 -- it is frozen
    initiators: Sequence[str] = (),
) -> Done:
    """Run one fio job on a host, or those of several ``initiators`` in their order; ``raw`` is the folder for
    its input and output."""
    done = program.run(host, job, timeout_s)
    for name, text in (("job.fio", job), ("fio.json", done.stdout), ("fio.stderr", done.stderr)):
        if text:
            (raw / name).write_text(text, encoding="utf-8")
    parts = [InitiatorResult(initiator=name) for name in initiators or [host.name]]
    several = len(parts) > 1
    whole = Done(parts=parts)
    # What concerns fio as a whole is a lone part's, as if there were no others to share it.
    reasons, warnings = (whole.reasons, whole.warnings) if several else (parts[0].reasons, parts[0].warnings)
    if program.argv[0] != "fio":
        warnings += done.stderr.splitlines()
    if done.status != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        reasons.append(f"fio ended with status {done.status}: {last}")
    try:
        output = fio.parse(done.stdout)
    except HarnessError as error:
        reasons.append(str(error))
        return whole
    warnings += output.warnings
    if len(output.jobs) != len(parts):
        expected = f"{len(parts)} jobs" if several else "one job"
        reasons.append(f"expected {expected} in fio's output, found {len(output.jobs)}")
        return whole
    for part, found in zip(parts, output.jobs, strict=True):
        part.job = found
    return whole


def on_connected_luns(
    connected_luns: Sequence[ConnectedLun],
    job: Callable[[str], str],
    raw: Path,
    *,
    timeout_s: float,
    apart: bool = True,
    is_brief: bool = False,
    may: Meanwhile = Meanwhile(),  # noqa: B008 -- it is frozen
    program: fio_startup.Fio = fio_startup.Fio(),  # noqa: B008 -- it is frozen
    during: contextlib.AbstractContextManager[object] | None = None,
    judge_previous: Callable[[list[str]], object] = lambda _reasons: None,
) -> Done:
    """Run ``job(device)`` on each connected LUN's disk, all at once, and judge what each path carried.

    ``during`` is entered for as long as fio runs. ``judge_previous`` is called before that, with the reasons
    against the previous measurement on these connected LUNs, from what was seen since. Initiators that are
    not ``apart``, but in one kernel, share one fio, which begins all jobs at once. If a job ``is_brief``, it
    ends before a radio would be asked meanwhile. Raises CellInvalid if a disk is no longer the one of its
    session.
    """
    for connected_lun in connected_luns:
        connected_lun.disk.check()
    with contextlib.ExitStack() as stack:
        watched = [
            _Watched(
                connected_lun,
                raw / f"iw-{number}.txt",
                stack,
                may,
                is_brief=is_brief,
            )
            for number, connected_lun in enumerate(connected_luns)
        ]
        late = [
            judge_late(connected_lun, [each.capture.look() for each in connected_lun.up.watched])
            for connected_lun in connected_luns
        ]
        judge_previous(list(itertools.chain.from_iterable(late)))
        for each in watched:
            each.begin()
        with during or contextlib.nullcontext():
            if apart and len(connected_luns) > 1:
                jobs_of = [
                    (connected_lun.path.initiator, job(connected_lun.disk.device))
                    for connected_lun in connected_luns
                ]
                done = distributed.run_distributed(jobs_of, folder=raw, timeout_s=timeout_s)
            else:
                jobs = [job(connected_lun.disk.device) for connected_lun in connected_luns]
                done = on_disk(
                    connected_luns[0].path.initiator,
                    jobfile.together(jobs) if len(jobs) > 1 else jobs[0],
                    raw,
                    timeout_s=timeout_s,
                    program=program,
                    initiators=[connected_lun.path.initiator.name for connected_lun in connected_luns],
                )
        for each in watched:
            each.end()
        for each in watched:
            each.collect()
    for each, part in zip(watched, done.parts, strict=True):
        each.judge(part)
    return done


class _Watched:
    """What is read of a connected LUN during a measurement: its captures, counters and, on the air, frames
    and states of the association, which go to the file ``log``. ``stack`` ends when nothing more is to be
    seen."""

    def __init__(
        self,
        connected_lun: ConnectedLun,
        log: Path,
        stack: contextlib.ExitStack,
        may: Meanwhile,
        *,
        is_brief: bool,
    ) -> None:
        self._connected_lun, link = connected_lun, connected_lun.link
        self._may = may
        self._association = (
            stack.enter_context(wireless.watch(link.initiator, link.initiator_iface, log, is_brief=is_brief))
            if connected_lun.is_wireless
            else None
        )
        self._air_path = connected_lun.up.air_path
        self._airs = stack.enter_context(self._air_path.proved()) if self._air_path else []

    def begin(self) -> None:
        """Read the counters of each protection, the outermost first."""
        self._before = [proof.snapshot(each, begins=True) for each in self._connected_lun.up.watched]

    def end(self) -> None:
        """Read them again."""
        self._after = [proof.snapshot(each, begins=False) for each in self._connected_lun.up.watched]

    def collect(self) -> None:
        """Take the frames of each protection that its capture saw meanwhile."""
        between = zip(self._connected_lun.up.watched, self._before, self._after, strict=True)
        self._seen = [proof.collect(*each) for each in between]

    def judge(self, part: InitiatorResult) -> None:
        """Add to a part what proves that its bytes took their path, and what does not."""
        proofs = []
        between = zip(self._connected_lun.up.watched, self._before, self._after, self._seen, strict=True)
        for each in between:
            judged, failures = proof.judge(
                *each,
                read_bytes=part.read.bytes if part.read else 0,
                write_bytes=part.write.bytes if part.write else 0,
                reconnects=self._may.reconnects,
            )
            proofs.append(judged)
            part.reasons += failures
        part.proof = proof.of_all(proofs)
        part.interfaces = proof.interfaces(self._connected_lun.link, self._before[0], self._after[0])
        if self._air_path is not None and self._airs:
            (air,) = self._airs
            moved = sum(io.bytes for io in (part.read, part.write) if io is not None)
            # Who associates anew is counted anew.
            part.reasons += self._air_path.judge(air, 0 if self._may.breaks_air else moved)
            part.proof = msgspec.structs.replace(part.proof, air=air)
        if self._association is not None:
            part.wifi = tuple(self._association())
            associated = [state for state in part.wifi if state.bssid is not None]
            failures, doubts = wireless.judge(associated if self._may.breaks_air else part.wifi)
            part.reasons += failures
            part.warnings += doubts


def judge_late(connected_lun: ConnectedLun, looks: Iterable[Sequence[Seen]]) -> list[str]:
    """Reasons against a cell from what the connected LUN's captures have seen since it was judged.

    Only a protection has to hold for so long.
    """
    if not connected_lun.is_protected:
        return []
    found = list(itertools.chain.from_iterable(looks))
    count = sum(seen.cleartext for seen in found)
    clear = [f"{count} cleartext segments of the portal were on the link after the cell"] if count else []
    return clear + list(dict.fromkeys(f"after the cell, {seen.fault}" for seen in found if seen.fault))


def summarise(done: Done, job: Job, record: Record) -> Record:
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
    read, write = fio.total([part.job for part in done.parts if part.job is not None])
    # The proof covers what a verification reads after a write, but the figures do not include it.
    read, write = (read if moves_read(job) else None, write if moves_write(job) else None)
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
        clients=tuple(_client(part, job) for part in done.parts) if several else (),
        wifi=first.wifi,
    )


def _client(part: InitiatorResult, job: Job) -> ClientPart:
    return ClientPart(
        initiator=part.initiator,
        status=Status.INVALID if part.reasons else Status.OK,
        reason="; ".join(part.reasons) or None,
        read=part.read if moves_read(job) else None,
        write=part.write if moves_write(job) else None,
        started_unix_s=part.started_unix_s,
        proof=part.proof,
        wifi=part.wifi,
    )
