"""One probe with the kernels' counters read before and after it: tool, proof, record."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from harness import probes
from harness.model import Column, Plan, Status
from harness.model.errors import CommandFailed, HarnessError, HostLost, RequirementError
from harness.model.kinds import offered
from harness.model.probing import Probe
from harness.model.ranges import out_of_range
from harness.observe import counters
from harness.observe.interference import Watch
from harness.probes.tools import UNPROTECTED, ProbedPath, ProbeOutcome, counted
from harness.protection.layer import Layer
from harness.results.probe_records import ProbeRecord
from harness.results.store import set_aside


@functools.cache
def measures() -> Mapping[type[Probe], Callable[..., ProbeOutcome]]:
    """How each kind of probe is measured, as the modules of this package declare."""
    return dict(offered(probes.__name__))


def blank(plan: Plan, column: Column, probe: Probe, *, repeat: int = 1, order: int = 0) -> ProbeRecord:
    """The record of a probe that has not been made."""
    link = plan.links[column.link]
    return ProbeRecord(
        run_id=plan.run_id,
        setting=plan.setting,
        column=column,
        probe=probe,
        repeat=repeat,
        order=order,
        status=Status.FAILED,
        started_unix_s=time.time(),
        emulated=link.emulated,
        link_title=link.title,
        encrypts=plan.encrypts(column),
        overrides=plan.overrides,
    )


def raw_folder(folder: Path, record: ProbeRecord) -> Path:
    """The folder for the unmodified outputs of a probe's tools, in a run's folder."""
    return folder / "raw" / "probes" / record.key


def measure(
    record: ProbeRecord, probed: ProbedPath, *, observer: counters.Observer, watch: Watch, folder: Path
) -> ProbeRecord:
    """The record with the result of its probe. Whatever goes wrong becomes its status and reason.

    ``watch`` measures what other programs take of the machines; ``folder`` is the run's. Raises HostLost
    only.
    """
    if _is_protected(record) and probed.path.is_shared:
        return msgspec.structs.replace(record, status=Status.SKIPPED, reason=UNPROTECTED)
    measures()  # imported before the time of anything is taken
    began = time.monotonic_ns()
    record = msgspec.structs.replace(record, started_unix_s=time.time())
    set_aside(probed.raw)
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
    layers = probed.layers if _is_protected(record) else ()
    carried_before = _carried(layers)
    ends = ((path.initiator, path.initiator_iface), (path.target, path.target_iface))
    was = [counted(*end) for end in ends]
    with watch() as watching:
        watched = observer.watch()
        outcome = measures()[type(record.probe)](record.probe, probed)
        seen = watched()
    now = [counted(*end) for end in ends]
    outcome.warnings += seen.warnings
    grown = []
    for (host, iface), first, last in zip(ends, was, now, strict=True):
        grown.append(first.grown(last, host.name, iface))
        if first.went_back(last):
            outcome.refuse(_replaced(f"the {host.name}'s interface {iface}"))
    grown_bytes = []
    for layer, before, after in zip(layers, carried_before, _carried(layers), strict=True):
        least = min(later - sooner for sooner, later in zip(before, after, strict=True))
        if least < 0:
            outcome.refuse(_replaced(layer.title))
        elif least < outcome.moved_bytes:
            outcome.refuse(
                f"expected {layer.title} to carry the {outcome.moved_bytes} bytes moved, found only {least}"
            )
        grown_bytes.append(max(0, least))
    record = msgspec.structs.replace(
        record,
        status=Status.INVALID if outcome.reasons else outcome.status,
        reason="; ".join(outcome.reasons) or None,
        warnings=tuple(outcome.warnings),
        figures=outcome.figures,
        processors=seen.processors,
        interfaces=(*grown, *seen.interfaces),
        background_load=watching.taken(),
        lost_hops=dict(seen.lost_hops),
        protected_bytes=min(grown_bytes, default=None),
    )
    if wrong := out_of_range(record):
        raise CommandFailed(f"the probe has an impossible figure: {wrong}")
    return record


def _replaced(what: str) -> str:
    return f"the counters of {what} went backwards, so what they count was replaced or removed"


def _is_protected(record: ProbeRecord) -> bool:
    return record.is_protected and record.probe.SENDS


def _carried(layers: Sequence[Layer]) -> list[list[int]]:
    """What each layer has carried so far, in both directions, by the counters of both ends."""
    return [[look.tally.out.bytes + look.tally.into.bytes for look in layer.look()] for layer in layers]
