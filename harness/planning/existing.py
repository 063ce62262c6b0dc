"""Existing storage that a run measures: a LUN behind a portal, or a volume that is already attached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from harness.model import (
    LINK_LOCAL,
    PRE_EXISTING,
    SWANCTL,
    AttachedVolume,
    Backing,
    BackingKind,
    BlackBoxTarget,
    Column,
    IpsecMode,
    Job,
    LinkProfile,
    Proposal,
)
from harness.model.errors import UsageError
from harness.model.units import format_size, parse_size, shown
from harness.parse.hosts import LOCAL, parse_portal
from harness.parse.jobfile import moves_write
from harness.parse.profiles import is_real, real_link
from harness.planning.request import DEFAULT_SIZE, RunRequest, Version
from harness.results import rules
from harness.storage import guard
from harness.testbeds import portals

ZONES = frozenset(("zonemode", "zonerange", "zonesize", "zoneskip"))

PlannedPaths = tuple[tuple[Column, ...], dict[str, LinkProfile], dict[str, Proposal]]
"""Columns with their links and proposals."""


@dataclass(frozen=True, kw_only=True)
class Existing:
    """What is there, if anything is: a ``unit`` behind a portal or a ``volume``, and the part of it that is
    measured, ``backing``. ``request`` has all that follows from it, ``jobs`` are those that it may have."""

    request: RunRequest
    jobs: tuple[Job, ...]
    backing: Backing | None = None
    unit: portals.FoundUnit | None = None
    volume: AttachedVolume | None = None

    @property
    def black_box(self) -> BlackBoxTarget | None:
        return self.unit.portal if self.unit is not None else None

    def pre_existing(self, paths: PlannedPaths, notes: list[str]) -> PlannedPaths:
        """The paths to a portal with their pre-existing protections; for a volume its one column; other paths
        unchanged."""
        if self.volume is not None:
            return (self.volume.column,), {}, {}
        if self.unit is None:
            return paths
        columns, links, _ = paths
        where, iface, rate_bit_s = self.unit.portal.typed, self.unit.iface, self.unit.rate_bit_s
        titled = {
            name: msgspec.structs.replace(
                link,
                title=f"{where} ({link.interface})",
                rate_bit_s=rate_bit_s if link.interface == iface else None,
            )
            for name, link in links.items()
        }
        columns, proposals = _pre_existing(columns, titled, self.unit.portal, self.request, notes)
        return columns, titled, proposals


def find(request: RunRequest, jobs: tuple[Job, ...], notes: list[str]) -> Existing:
    """The existing storage that a request names. UsageError for what is not possible there, DeviceRefused if
    the guard forbids writing to it."""
    request, swanctl = _with_connection(request)
    if request.volume is not None:
        return _attached(request, jobs, notes)
    if request.portal is not None:
        return _behind_portal(request, swanctl, jobs, notes)
    return Existing(request=request, jobs=jobs)


def _with_connection(request: RunRequest) -> tuple[RunRequest, str]:
    """The request, with what is found in place of a connection of the user's; and that connection, or ""."""
    words = [word.strip(" ") for text in request.protect for word in text.split(",")]
    named = list(dict.fromkeys(word for word in words if word.startswith(SWANCTL)))
    if not named:
        return request, ""
    if request.portal is None:
        raise UsageError(
            f"--protect {shown(named[0])} needs --portal, but none was named",
            hint="name a black-box target, or a protection that the run brings up",
        )
    if len(named) > 1 or PRE_EXISTING in words:
        raise UsageError(
            f"expected one connection, or {PRE_EXISTING}, per run, found {', '.join(words)}",
            hint="measure each in a run of its own, with --protect off in each",
        )
    words = [PRE_EXISTING if word in named else word for word in words]
    return msgspec.structs.replace(request, protect=tuple(words)), named[0].removeprefix(SWANCTL)


def _behind_portal(request: RunRequest, swanctl: str, jobs: tuple[Job, ...], notes: list[str]) -> Existing:
    unit = _found(request, swanctl)
    portal, title = unit.portal, f"LUN {unit.portal.lun} of {unit.portal.name}: {unit.title}"
    again = f"--destroy {portal.unit}"
    if not portal.is_export:
        again = f"--iqn {portal.name} --lun {portal.lun} {again}"
    consent = portal.unit if portal.unit in request.destroy else None
    request = _towards(unit, request, writes=consent is not None)
    if consent is None:
        on_it = f"; found on it: {unit.found_on_it}" if unit.found_on_it else ""
        how = f"a new file with --volume, or, if everything on it may be lost, {again}"
        jobs = _reading(jobs, notes, "a LUN", how)
        notes.append(f"{title}; the run only reads it{on_it}")
        return Existing(
            request=request, jobs=jobs, unit=unit, backing=_part(BackingKind.BLOCK, unit.size_bytes, request)
        )
    _require_within(jobs)
    asked = parse_portal(portal.typed)
    if not portal.is_export and (not (request.iqn or asked.name) or request.lun is None):
        raise UsageError(
            f"to write to a LUN, name it twice: found only --destroy {shown(consent)}",
            hint=f"if everything on it may be lost: {again}",
        )
    if len(request.initiators) > 1:
        raise UsageError(
            "expected one initiator to write to a LUN, found several: they would write over each other",
            hint="name one --initiator, or leave --destroy out: several may read",
        )
    backing = _part(BackingKind.BLOCK, unit.size_bytes, request, consent)
    if unit.device is not None and (refusal := guard.judge_unit(unit.device, needed_bytes=backing.end_bytes)):
        raise refusal
    notes.append(f"{title}; {_overwritten(backing)}")
    return Existing(request=request, jobs=jobs, unit=unit, backing=backing)


def _attached(request: RunRequest, jobs: tuple[Job, ...], notes: list[str]) -> Existing:
    path, initiator = request.volume or "", (request.initiators or (LOCAL,))[0]
    refused = ("--target", request.target), ("--portal", request.portal), ("--backing", request.backing)
    _require_alone("--volume", (*refused, ("--link", request.links), ("--disk", request.disk)))
    volume, kind, size_bytes = portals.look_at(path, initiator=initiator)
    request = msgspec.structs.replace(request, links=(LINK_LOCAL,))
    if volume.is_new:
        backing = Backing(kind=kind, size_bytes=parse_size(request.size or DEFAULT_SIZE))
        return Existing(request=request, jobs=jobs, volume=volume, backing=backing)
    if path in request.destroy and kind is BackingKind.BLOCK:
        _require_within(jobs)
        backing = _part(kind, size_bytes, request, path)
        portals.require_unit(path, initiator=initiator, needed_bytes=backing.end_bytes)
        notes.append(f"{volume.title}; {_overwritten(backing)}")
        return Existing(request=request, jobs=jobs, volume=volume, backing=backing)
    how = "a new file with --volume"
    if kind is BackingKind.BLOCK:
        how += f", or, if everything on it may be lost, --destroy {path}"
    jobs = _reading(jobs, notes, "a volume", how)
    return Existing(request=request, jobs=jobs, volume=volume, backing=_part(kind, size_bytes, request))


def _require_within(jobs: Sequence[Job]) -> None:
    """UsageError for jobs that leave the part that may be overwritten: fio's zones go on to a disk's end."""
    if leaving := [job.name for job in jobs if moves_write(job) and ZONES & dict(job.options).keys()]:
        raise UsageError(
            f"{', '.join(leaving)}: expected writes in one region, found zones",
            hint=f"leave out {', '.join(sorted(ZONES))}",
        )


def _overwritten(backing: Backing) -> str:
    first, last = format_size(backing.offset_bytes), format_size(backing.end_bytes)
    return f"the run overwrites it from {first} to {last}"


def _part(kind: BackingKind, size_bytes: int, request: RunRequest, consent: str | None = None) -> Backing:
    """Storage that is there, or so much of it as is asked for, in whole MiB. Where it is written to, less has
    to be filled."""
    size_bytes = size_bytes // rules.MIB * rules.MIB
    most_bytes = size_bytes if consent is None else min(size_bytes, parse_size(DEFAULT_SIZE))
    first, dots, last = (request.size or "").rpartition("..")
    offset_bytes = parse_size(first) if dots else 0
    end_bytes = parse_size(last) if request.size else most_bytes
    if end_bytes > size_bytes or offset_bytes >= end_bytes or offset_bytes % rules.MIB:
        raise UsageError(
            f"expected --size within its {format_size(size_bytes)}, from a whole MiB on, "
            f"found {request.size}",
            hint="leave it out to read all of it; 1G..2G reads only that range",
        )
    return Backing(kind=kind, size_bytes=end_bytes - offset_bytes, offset_bytes=offset_bytes, destroy=consent)


def _require_alone(option: str, others: Sequence[tuple[str, object]]) -> None:
    """UsageError if one of the others was asked for as well."""
    for other, is_asked in others:
        if is_asked:
            raise UsageError(
                f"expected {option} or {other}, found both: {option} names existing storage",
                hint="leave one out",
            )


def _reading(jobs: Sequence[Job], notes: list[str], what: str, how: str) -> tuple[Job, ...]:
    """The jobs that only read; the others get a note, ``how`` they are had. UsageError if there are none."""
    found = tuple(job for job in jobs if not moves_write(job))
    others = [job.name for job in jobs if job not in found]
    how = f"for writing, name {how}"
    if others:
        notes.append(f"not measured, because the run only reads {what}: {', '.join(others)}; {how}")
    if not found:
        raise UsageError(f"expected workloads that read {what}, found {', '.join(others)}", hint=how)
    return found


def _found(request: RunRequest, swanctl: str) -> portals.FoundUnit:
    """What is behind the portal that was named; the first link that was, leads there."""
    asked = parse_portal(request.portal or "")
    named = [real_link(spec) for spec in request.links if spec != LINK_LOCAL and is_real(spec)]
    first = next(iter(named), None)
    return portals.look(
        replace(asked, host=first.portal) if first is not None and first.portal else asked,
        name=request.iqn or "",
        lun=request.lun,
        chap_user=request.chap or "",
        iface=first.interface if first is not None else None,
        initiator=(request.initiators or (LOCAL,))[0],
        swanctl=swanctl,
    )


def _towards(found: portals.FoundUnit, request: RunRequest, *, writes: bool) -> RunRequest:
    """The request, with all that follows from what was found. UsageError for what cannot be had there."""
    is_local = LINK_LOCAL in request.links and not request.local_device
    local = "--link local without --local-device", is_local
    others = ("--target", request.target), ("--backing", request.backing), ("--disk", request.disk), local
    _require_alone("--portal", (*others, ("--transport", request.transports)))
    portal = found.portal
    specs = [spec for spec in request.links if spec != LINK_LOCAL] or [f"portal={found.iface}"]
    links = [spec if "@" in spec else f"{spec}@{portal.address}" for spec in specs]
    own = [LINK_LOCAL] if request.local_device else []
    return msgspec.structs.replace(
        request,
        links=(*own, *links),
        ip=(Version.FOUR, Version.SIX),
        transports=(portal.transport,),
        protect=request.protect if request.protect or request.ipsec else (PRE_EXISTING,),
        shared_lun=not writes,
    )


def _pre_existing(
    columns: Sequence[Column],
    links: Mapping[str, LinkProfile],
    portal: BlackBoxTarget,
    request: RunRequest,
    notes: list[str],
) -> tuple[tuple[Column, ...], dict[str, Proposal]]:
    """Columns with what protects their links' way to a portal, and its proposals; each link without any gets
    a note."""
    wanted = {column.link for column in columns if column.protection == (PRE_EXISTING,)}
    asked = {
        name: (link.portal or "", link.interface or "") for name, link in links.items() if name in wanted
    }
    initiator = (request.initiators or (LOCAL,))[0]
    paths = portals.protections(initiator, asked, portal.port, swanctl=portal.swanctl) if asked else {}
    steps = [step.found for found in paths.values() for step in found.steps]
    for name, found in paths.items():
        if not found.steps:
            notes.append("; ".join([f"{name}: no protection was found on this path", *found.notes]))
    modes = {found.agreed["mode"] for found in steps if found.proposal is not None}
    if len(modes) > 1:
        raise UsageError(
            f"expected IPsec of one mode in a run, found {' and '.join(sorted(modes))}",
            hint="measure each of these links in its own run",
        )
    mode = IpsecMode(next(iter(modes), request.ipsec_mode))
    of_each = [
        (
            column,
            paths[column.link].names if column.link in paths and column.protection else column.protection,
        )
        for column in columns
    ]
    made = (msgspec.structs.replace(column, protection=names, mode=mode) for column, names in of_each)
    return tuple(dict.fromkeys(made)), {each.name: each.proposal for each in steps if each.proposal}
