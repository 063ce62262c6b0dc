"""A LUN behind a portal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from harness.model import (
    LINK_LOCAL,
    PRE_EXISTING,
    BackingKind,
    BlackBoxTarget,
    Column,
    IpsecMode,
    Job,
    LinkProfile,
    Proposal,
)
from harness.model.errors import UsageError
from harness.model.units import shown
from harness.parse.hosts import LOCAL, parse_portal
from harness.parse.profiles import is_real, real_link
from harness.planning import existing
from harness.planning.existing import Existing, ExistingKind, PlannedPaths
from harness.planning.request import RunRequest, Version
from harness.storage import guard
from harness.testbeds import portals


@dataclass(frozen=True, kw_only=True)
class BehindPortal(Existing):
    unit: portals.FoundUnit

    def paths(self, asked: PlannedPaths, notes: list[str]) -> PlannedPaths:
        """With the protections that are there already."""
        columns, links, _ = asked
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


def find(request: RunRequest, swanctl: str, jobs: tuple[Job, ...], notes: list[str]) -> Existing:
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
        jobs = existing.reading(jobs, notes, "a LUN", how)
        notes.append(f"{title}; the run only reads it{on_it}")
        return BehindPortal(
            request=request,
            jobs=jobs,
            unit=unit,
            black_box=portal,
            backing=existing.part(BackingKind.BLOCK, unit.size_bytes, request),
        )
    existing.require_within(jobs)
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
    backing = existing.part(BackingKind.BLOCK, unit.size_bytes, request, consent)
    if unit.device is not None and (refusal := guard.judge_unit(unit.device, needed_bytes=backing.end_bytes)):
        raise refusal
    notes.append(f"{title}; {existing.overwritten(backing)}")
    return BehindPortal(request=request, jobs=jobs, unit=unit, black_box=portal, backing=backing)


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
    existing.require_alone("--portal", (*others, ("--transport", request.transports)))
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


OFFERED = (ExistingKind(name="portal", find=find),)
