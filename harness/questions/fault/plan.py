"""The plan for ``harness fault --fault link-down:5s``: a job for each load and fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import msgspec

from harness.model import Job, Plan, Proposal, kinds
from harness.model.errors import UsageError
from harness.model.units import check_name, parse_duration_s, unknown_name
from harness.parse import open_loop
from harness.parse.profiles import check_proposal
from harness.planning import plan
from harness.planning.request import RunRequest, goal, require_not_given
from harness.questions.fault.section import KINDS, SECTION, Fault, Faults
from harness.results import rules

IN_FLIGHT = 64
"""So many requests may be out: less than a disk's queue takes, where the generator itself would wait."""

WORKLOAD, READ_WORKLOAD = "rand-write-4k", "rand-read-4k"

HELP = f"What breaks, and for how long: link-down:5s, connection-reset. --fault help lists all {len(KINDS)}."

WITHOUT = {
    "depths": "--depth",
    "blocks": "--block",
    "numjobs": "--jobs",
    "lab_initiators": "--lab-initiators",
    "confidence": "--confidence",
    "max_repeats": "--max-repeats",
    "runtime": "--runtime",
    "workloads": "--workload",
}


class FaultRequest(RunRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``harness fault`` is asked for."""

    shown_defaults: ClassVar[Mapping[str, str]] = {"links": "wired"}

    fault: Annotated[tuple[str, ...], goal(metavar="FAULT", help=HELP, known=KINDS)] = ()
    ike: Annotated[
        tuple[str, ...], goal(metavar="NAME=VALUE", help="Setting of IPsec's connections: start_action=none.")
    ] = ()
    rate: Annotated[int, goal(metavar="IOPS", help="Load: 4K writes per second; reads of a portal.")] = 100
    repeats: int = 1


def make_plan(request: FaultRequest) -> Plan:
    """Check and resolve a request. UsageError for the first thing that is wrong."""
    if not request.fault:
        raise UsageError("expected a fault, found none", hint="try --fault link-down:5s")
    faults = [_fault(text) for text in request.fault]
    if not 1 <= request.rate <= 10_000:
        raise UsageError(f"--rate: expected 1 to 10000 writes per second, found {request.rate}")
    require_not_given(request, WITHOUT, found="harness fault", hint="the load is 4K at --rate")
    if request.volume:
        raise UsageError("expected a link or a portal, found a volume: its path is not the run's to break")
    links = request.links or (() if request.portal else ("wired",))
    workload = READ_WORKLOAD if request.portal and not request.destroy else WORKLOAD
    made = plan.make_plan(msgspec.structs.replace(request, links=links, workloads=(workload,)))
    if request.ike and not made.proposals:
        raise UsageError(
            f"--ike {request.ike[0]} is for IPsec, found no column with it",
            hint="add --ipsec on, or leave it out",
        )
    (job,) = made.jobs
    of_jobs = {_name(job, request.rate, fault): fault for fault in faults}
    made = msgspec.structs.replace(
        made,
        columns=tuple(column for column in made.columns if column.has_path),
        proposals={name: _set(proposal, request.ike) for name, proposal in made.proposals.items()},
        jobs=tuple(_at(job, request.rate, name, fault) for name, fault in of_jobs.items()),
        parameters={
            name: {
                **{key: each.usual for key, each in kinds.transport(name).parameters.items() if each.usual},
                **made.parameters.get(name, {}),
            }
            for name in made.transports
        },
        sections=SECTION.within(Faults(of_jobs=of_jobs)),
    )
    rules.check(made)
    return made


def _set(proposal: Proposal, typed: Sequence[str]) -> Proposal:
    """With trap policies, as connections have that come up by themselves, and what was typed."""
    pairs = (word.partition("=") for word in typed)
    settings = {"start_action": "trap", **{name.strip(): value.strip() for name, _, value in pairs}}
    found = msgspec.structs.replace(proposal, settings={**proposal.settings, **settings})
    check_proposal(found, lambda _key, what, hint: UsageError(f"--ike: {what}", hint=hint))
    return found


def _fault(text: str) -> Fault:
    kind, _, lasts = text.partition(":")
    if kind not in KINDS:
        raise unknown_name("fault", kind, KINDS)
    return Fault(kind, parse_duration_s(lasts, what="--fault") if lasts else 0.0)


def _name(job: Job, rate: int, fault: Fault) -> str:
    return check_name("workload", f"{job.name}-{rate}iops-{fault.name.replace(':', '-')}")


def _at(job: Job, rate: int, name: str, fault: Fault) -> Job:
    of = Faults(of_jobs={})
    made = open_loop.at_rate(job, rate, of.before_s + fault.most_s + of.after_s)
    options = {**dict(made.options), "iodepth": str(IN_FLIGHT)}
    return Job(name=name, options=tuple(options.items()))
