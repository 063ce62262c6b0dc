"""Existing storage that a run measures. What is named by an option of its own is found by a module of that
name, imported for it: it has to reach a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from harness.model import (
    PRE_EXISTING,
    SWANCTL,
    AttachedVolume,
    Backing,
    BackingKind,
    BlackBoxTarget,
    Column,
    Job,
    LinkProfile,
    Proposal,
)
from harness.model.errors import UsageError
from harness.model.kinds import OfKinds
from harness.model.units import format_size, parse_size, shown
from harness.parse.jobfile import moves_write
from harness.planning.request import DEFAULT_SIZE, RunRequest
from harness.results import rules

ZONES = frozenset(("zonemode", "zonerange", "zonesize", "zoneskip"))

PlannedPaths = tuple[tuple[Column, ...], dict[str, LinkProfile], dict[str, Proposal]]
"""Columns with their links and proposals."""


@dataclass(frozen=True, kw_only=True)
class Existing:
    """What is there, if anything is: a ``black_box`` or a ``volume``, and the part of it that is measured,
    ``backing``. ``request`` has all that follows from it, ``jobs`` are those that it may have."""

    request: RunRequest
    jobs: tuple[Job, ...]
    backing: Backing | None = None
    black_box: BlackBoxTarget | None = None
    volume: AttachedVolume | None = None

    def paths(self, asked: PlannedPaths, notes: list[str]) -> PlannedPaths:  # noqa: ARG002
        """The paths to it, of those that were asked for."""
        return asked if self.volume is None else ((self.volume.column,), {}, {})


@dataclass(frozen=True, kw_only=True)
class ExistingKind:
    """A way to name one, by the option ``name``. ``find`` takes the request, a connection of the user's or
    "", the jobs, and where notes go to."""

    name: str
    find: Callable[[RunRequest, str, tuple[Job, ...], list[str]], Existing]


_BY_OPTION: OfKinds[ExistingKind] = OfKinds(__name__, {"volume": "volume", "portal": "portal"})


def find(request: RunRequest, jobs: tuple[Job, ...], notes: list[str]) -> Existing:
    """The existing storage that a request names. UsageError for what is not possible there, DeviceRefused if
    the guard forbids writing to it."""
    request, swanctl = _with_connection(request)
    for option in _BY_OPTION:
        if getattr(request, option) is not None:
            return _BY_OPTION[option].find(request, swanctl, jobs, notes)
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


def require_within(jobs: Sequence[Job]) -> None:
    """UsageError for jobs that leave the part that may be overwritten: fio's zones go on to a disk's end."""
    if leaving := [job.name for job in jobs if moves_write(job) and ZONES & dict(job.options).keys()]:
        raise UsageError(
            f"{', '.join(leaving)}: expected writes in one region, found zones",
            hint=f"leave out {', '.join(sorted(ZONES))}",
        )


def overwritten(backing: Backing) -> str:
    first, last = format_size(backing.offset_bytes), format_size(backing.end_bytes)
    return f"the run overwrites it from {first} to {last}"


def part(kind: BackingKind, size_bytes: int, request: RunRequest, consent: str | None = None) -> Backing:
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


def require_alone(option: str, others: Sequence[tuple[str, object]]) -> None:
    """UsageError if one of the others was asked for as well."""
    for other, is_asked in others:
        if is_asked:
            raise UsageError(
                f"expected {option} or {other}, found both: {option} names existing storage",
                hint="leave one out",
            )


def reading(jobs: Sequence[Job], notes: list[str], what: str, how: str) -> tuple[Job, ...]:
    """The jobs that only read; the others get a note, ``how`` they are had. UsageError if there are none."""
    found = tuple(job for job in jobs if not moves_write(job))
    others = [job.name for job in jobs if job not in found]
    how = f"for writing, name {how}"
    if others:
        notes.append(f"not measured, because the run only reads {what}: {', '.join(others)}; {how}")
    if not found:
        raise UsageError(f"expected workloads that read {what}, found {', '.join(others)}", hint=how)
    return found
