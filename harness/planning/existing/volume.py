"""A volume that is already attached to the initiator."""

from __future__ import annotations

import msgspec

from harness.model import LINK_LOCAL, Backing, BackingKind, Job
from harness.model.units import parse_size
from harness.parse.hosts import LOCAL
from harness.planning import existing
from harness.planning.existing import Existing, ExistingKind
from harness.planning.request import DEFAULT_SIZE, RunRequest
from harness.testbeds import portals


def find(request: RunRequest, _swanctl: str, jobs: tuple[Job, ...], notes: list[str]) -> Existing:
    path, initiator = request.volume or "", (request.initiators or (LOCAL,))[0]
    refused = ("--target", request.target), ("--portal", request.portal), ("--backing", request.backing)
    existing.require_alone("--volume", (*refused, ("--link", request.links), ("--disk", request.disk)))
    volume, kind, size_bytes = portals.look_at(path, initiator=initiator)
    request = msgspec.structs.replace(request, links=(LINK_LOCAL,))
    if volume.is_new:
        backing = Backing(kind=kind, size_bytes=parse_size(request.size or DEFAULT_SIZE))
        return Existing(request=request, jobs=jobs, volume=volume, backing=backing)
    if path in request.destroy and kind is BackingKind.BLOCK:
        existing.require_within(jobs)
        backing = existing.part(kind, size_bytes, request, path)
        portals.require_unit(path, initiator=initiator, needed_bytes=backing.end_bytes)
        notes.append(f"{volume.title}; {existing.overwritten(backing)}")
        return Existing(request=request, jobs=jobs, volume=volume, backing=backing)
    how = "a new file with --volume"
    if kind is BackingKind.BLOCK:
        how += f", or, if everything on it may be lost, --destroy {path}"
    jobs = existing.reading(jobs, notes, "a volume", how)
    backing = existing.part(kind, size_bytes, request)
    return Existing(request=request, jobs=jobs, volume=volume, backing=backing)


OFFERED = (ExistingKind(name="volume", find=find),)
