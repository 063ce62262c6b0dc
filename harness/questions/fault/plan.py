"""The plan for ``harness fault --fault link-down:5s``: a job for each load and fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import msgspec

from harness.model import Job, Plan, Proposal, kinds
from harness.model.errors import UsageError
from harness.model.units import check_name, parse_duration_s, shown, unknown_name
from harness.parse import open_loop, parameters
from harness.parse.profiles import check_proposal
from harness.planning import plan
from harness.planning.request import RunRequest, goal, require_not_given
from harness.questions.fault.section import KINDS, REBOOT, SECTION, Fault, Faults
from harness.questions.fault.theory import retransmissions_s
from harness.results import rules

IN_FLIGHT = 64
"""So many requests may be out: less than a disk's queue takes, where the generator itself would wait."""

WORKLOAD, READ_WORKLOAD = "rand-write-4k", "rand-read-4k"

HELP = f"What breaks, and for how long: link-down:5s, connection-reset. --fault help lists all {len(KINDS)}."

LONGEST_NAME = 64
"""Of a job (``texts.Name``)."""

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
    over: Annotated[
        tuple[str, ...],
        goal(metavar="NAME=VALUES", help="Vary a session parameter: replacement_timeout=5,15,60."),
    ] = ()
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
    columns = tuple(column for column in made.columns if column.has_path)
    settings = _settings(request.over, made)
    set_to = {
        name: [msgspec.structs.replace(fault, parameters=each) for fault in faults for each in settings[name]]
        for name in made.transports
    }
    of_cells = {
        (column, _name(job, request.rate, fault)): fault
        for column in columns
        for fault in set_to[column.transport or ""]
    }
    found = Faults(of_jobs={name: fault for (_, name), fault in of_cells.items()})
    proposals = {name: _set(proposal, request.ike) for name, proposal in made.proposals.items()}
    if has_boots := any(fault.kind == REBOOT for fault in faults):
        # Who has booted knows no keys, and its peer has some until charon gives it up.
        gives_up_s = found.after_s + max(map(_gives_up_s, proposals.values()), default=0.0)
        found = msgspec.structs.replace(found, after_s=gives_up_s)
    made = msgspec.structs.replace(
        made,
        columns=columns,
        cells=tuple(of_cells) if len(of_cells) < len(columns) * len(found.of_jobs) else (),
        proposals=proposals,
        jobs=tuple(_at(job, request.rate, name, found) for name in found.of_jobs),
        parameters={
            name: {
                **{key: each.usual for key, each in kinds.transport(name).parameters.items() if each.usual},
                **made.parameters.get(name, {}),
            }
            for name in made.transports
        },
        # No machine boots more often than was asked for.
        retries=0 if has_boots else made.retries,
        sections=SECTION.within(found),
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


def _gives_up_s(proposal: Proposal) -> float:
    """How long after it last heard of its peer charon gives it up: 0 if never."""
    delay = proposal.settings.get("dpd_delay", "0")
    if not delay.strip("0smhd"):
        return 0.0
    return parse_duration_s(delay, what="--ike dpd_delay") + retransmissions_s(proposal.settings)


def _settings(typed: Sequence[str], made: Plan) -> dict[str, list[dict[str, str]]]:
    """What is set for a cell of each transport, in turn: nothing once, if it has none of the parameters."""
    found: dict[str, list[dict[str, str]]] = {name: [{}] for name in made.transports}
    for text in typed:
        name, _, listed = text.partition("=")
        words = [f"{name}={value}" for value in dict.fromkeys(listed.split(",")) if value.strip()]
        if len(words) < 2:
            raise UsageError(
                f"--over {shown(text)}: expected several values", hint=f"try --over {name}=VALUE,VALUE"
            )
        known = [(key, transport) for transport in found for key in kinds.transport(transport).parameters]
        having = [(key, each) for key, each in known if key.casefold() == name.strip().casefold()]
        if not having:
            titles = " or ".join(kinds.transport(transport).title for transport in found)
            raise unknown_name(f"{titles} parameter", name.strip(), dict(known))
        for key, transport in having:
            kind = kinds.transport(transport)
            if key in made.parameters_of(transport):
                raise UsageError(
                    f"{key} was given twice, with --over and --{kind.option}", hint="leave one out"
                )
            if found[transport] != [{}]:
                raise UsageError(
                    f"expected one --over for {kind.title}, found {key}, too",
                    hint="measure it in another run",
                )
            found[transport] = [parameters.parse(transport, [word]) for word in words]
    return found


def _fault(text: str) -> Fault:
    kind, _, lasts = text.partition(":")
    if kind not in KINDS:
        raise unknown_name("fault", kind, KINDS)
    return Fault(kind, parse_duration_s(lasts, what="--fault") if lasts else 0.0)


def _name(job: Job, rate: int, fault: Fault) -> str:
    """A parameter's name ends where there is no room for more of it."""
    words = [job.name, f"{rate}iops", fault.name.replace(":", "-")]
    for name, value in fault.parameters.items():
        room = LONGEST_NAME - len("-".join([*words, "", value]))
        words += [name[: max(1, room)], value]
    return check_name("workload", "-".join(words).lower())


def _at(job: Job, rate: int, name: str, of: Faults) -> Job:
    made = open_loop.at_rate(job, rate, of.before_s + of.of_jobs[name].most_s + of.after_s)
    options = {**dict(made.options), "iodepth": str(IN_FLIGHT)}
    return Job(name=name, options=tuple(options.items()))
