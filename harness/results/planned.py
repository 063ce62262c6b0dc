"""What a plan may contain. Each plan that is read is checked, because somebody else may have written it.

A plan in a folder of results must pass the rules (``rules``) of one that is made. It may hold nothing else
that could not have been typed: no option of fio, no word of charon's configuration, no file. Whoever resumes
it must also type again all options that reach outside the lab (``outside``).
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import shlex
from collections.abc import Collection, Iterator, Sequence

from harness.model import (
    HARNESS_SOURCE,
    IPV4,
    IPV6,
    LAB_INITIATORS,
    LINK_LOCAL,
    MOST_INITIATORS,
    TRANSPORTS,
    BackingKind,
    Column,
    LinkProfile,
    Plan,
    probing,
    stack,
)
from harness.model.errors import UsageError
from harness.model.escape import printable
from harness.model.protections import PROTECTIONS
from harness.model.units import LARGEST, check_name, shown
from harness.parse import disks, iscsi, jobfile, profiles
from harness.parse.hosts import LOCAL, parse_address
from harness.results import rules

LONGEST_S = LARGEST / 1e9

_HINT = "restore the file from a copy, or measure again"


def check(plan: Plan, source: str) -> None:
    """UsageError, naming ``source`` and the field, for a plan that nobody could have typed."""
    within = functools.partial(_within, source)
    at = functools.partial(_at, source)
    with at("run_id"):
        check_name("run", plan.run_id)
    for field, rule in rules.RULES:
        with at(field):
            rule(plan)
    within("created_unix_s", plan.created_unix_s, 0, LONGEST_S)
    if plan.stop is not None:
        within("stop.width", plan.stop.width, 1e-32, 1)
        within("stop.max_repeats", plan.stop.max_repeats, 1, rules.MOST_REPEATS)
        within("stop.max_s", plan.stop.max_s or 0, 0, LONGEST_S)
    within("workloads and probing", len(plan.jobs) + len(plan.probing), 1, rules.MOST_WORKLOADS)
    for column in plan.columns:
        _check_column(plan, column, source)
    for job in plan.jobs:
        with at(f"workloads, {shown(job.name)}"):
            jobfile.check_job(job)
    for probe in plan.probing:
        with at("probing"):
            probing.check(probe)
    _check_storage(plan, source)
    for name, link in plan.links.items():
        _check_link(plan, name, link, source)
    for name, proposal in plan.proposals.items():
        with at("proposals"):
            _same(name, check_name("proposal", proposal.name))
        profiles.check_proposal(proposal, functools.partial(_refuse, source, f"proposals.{name}."))
    _check_testbed(plan, source)
    with at("iscsi"):
        _same(iscsi.parse([f"{name}={value}" for name, value in plan.iscsi.items()]), plan.iscsi)


def _refuse(source: str, above: str, key: str, message: str, hint: str = _HINT) -> UsageError:
    return UsageError(f"{source}, {printable(above + key)}: {message}", hint=hint)


@contextlib.contextmanager
def _at(source: str, field: str) -> Iterator[None]:
    """Add the field to an error from within."""
    try:
        yield
    except UsageError as error:
        raise _refuse(source, "", field, error.message) from error


def _within(source: str, field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise _refuse(source, "", field, f"expected {least:g} to {most:g}, found {shown(str(value))}")


def _same(found: object, expected: object) -> None:
    if found != expected:
        raise UsageError(f"expected {shown(str(expected))}, found {shown(str(found))}")


def _check_column(plan: Plan, column: Column, source: str) -> None:
    _within(source, "columns, initiators", column.initiators, 1, LAB_INITIATORS)
    known: dict[str, set[str | None]] = {
        "link": {LINK_LOCAL, *plan.links},
        "protection": {*PROTECTIONS, *plan.proposals},
        "transport": {None} if column.link == LINK_LOCAL else {*TRANSPORTS},
    }
    named: list[tuple[str, str | None]] = [("link", column.link), ("transport", column.transport)]
    for field, name in (*named, *(("protection", each) for each in column.protection)):
        if name not in known[field]:
            found = f"expected a name that the plan describes, found {shown(str(name))}"
            raise _refuse(source, "columns, ", field, found)
    with _at(source, "columns, protection"):
        stack.check(column.protection)
    with _at(source, "columns, ip"):
        _same(column.ip, IPV4 if column.is_local else plan.links[column.link].ip)
    with _at(source, "columns, mode"):
        _same(column.mode, plan.ipsec_mode if column.has_ipsec else None)
    if column.link == LINK_LOCAL and column.protection:
        raise _refuse(source, "columns, ", "protection", "the local disk has no path to protect, found some")
    if plan.probing and column.link == LINK_LOCAL:
        raise _refuse(source, "columns, ", "link", "expected a network for probes, found local")


def _check_storage(plan: Plan, source: str) -> None:
    if plan.storage.disk is not None:
        with _at(source, "disk"):
            check_name("disk", plan.storage.disk.name)
        disks.check(plan.storage.disk, functools.partial(_refuse, source, "disk, "))


def _check_link(plan: Plan, name: str, link: LinkProfile, source: str) -> None:
    with _at(source, f"links.{name}"):
        _same(name, check_name("link", link.name))
        if link.interface is None:
            _same(link.portal, None)
        else:
            _same(plan.traits.has_machines, True)
            _same(profiles.real_link(_typed(link)).portal, link.portal)
            _same(link.name.endswith(profiles.IPV6_NAME) or link.ip != IPV6, True)
        if link.portal is not None:
            _same(ipaddress.ip_address(link.portal).version, link.ip)  # as over_ip() checks
        if link.ip == IPV6:
            _same(link.mtu_bytes >= profiles.LEAST_IPV6_MTU, True)
    profiles.check_link(link, functools.partial(_refuse, source, f"links.{name}."))


def _typed(link: LinkProfile) -> str:
    """A link over a real interface, as it is typed."""
    name = link.name.removesuffix(profiles.IPV6_NAME) if link.ip == IPV6 else link.name
    return f"{name}={link.interface}{f'@{link.portal}' if link.portal else ''}"


def _check_testbed(plan: Plan, source: str) -> None:
    setting, machines = plan.setting, plan.machines
    with _at(source, "setting, disk"):
        _same(setting.disk, plan.storage.disk.name if plan.storage.disk is not None else "")
    with _at(source, "setting, source"):
        _same(setting.source, HARNESS_SOURCE)
    if machines is not None:
        _within(source, "machines.initiators", len(machines.initiators), 1, MOST_INITIATORS)
        if plan.traits.boots_kernels:
            others = [f"ssh://initiator{number}" for number in range(2, len(machines.initiators) + 1)]
            with _at(source, "machines"):
                _same((machines.target, *machines.initiators), ("ssh://target", LOCAL, *others))
        with _at(source, "machines"):
            parse_address(machines.target, "target")
            for text in machines.initiators:
                parse_address(text, "initiator")
    most = max((column.initiators for column in plan.columns), default=1)
    room = len(machines.initiators) if machines else plan.traits.most_initiators
    _within(source, "columns, initiators", most, 1, room)


def default_file(run_id: str) -> str:
    """The file behind the target that a run makes on a real machine, if no storage is named."""
    return f"/var/tmp/harness-{run_id}.img"  # noqa: S108 -- new, and used by that run alone


Option = tuple[str, str]


def outside(plan: Plan) -> list[Option]:
    """The parts of a plan that reach outside the lab, as options of ``harness run`` and ``harness probe``."""
    found: list[Option] = []
    traits, machines = plan.traits, plan.machines
    if traits.is_users_kernel:
        found.append(("--testbed", plan.setting.testbed))
    if traits.has_machines and machines is not None:
        found.append(("--target", machines.target))
        if machines.initiators != (LOCAL,):
            found += [("--initiator", text) for text in machines.initiators]
    found += [("--hop", text) for text in plan.hops]
    for link in plan.links.values():
        if link.interface is not None:
            found.append(("--link", _typed(link)))
            if link.ip == IPV6:
                # It gives the interface an address.
                found.append(("--ip", str(link.ip)))
    for option, backing in (
        ("--backing", plan.storage.backing),
        ("--local-device", plan.storage.local_device),
    ):
        if backing is not None and backing.path not in (None, default_file(plan.run_id)):
            found.append((option, f"{backing.kind}:{backing.path}"))
    agreed = {
        backing.destroy
        for backing in (plan.storage.backing, plan.storage.local_device)
        if backing is not None
    }
    found = list(dict.fromkeys(found))
    return found + [("--destroy", path) for path in sorted(filter(None, agreed))]


def resume_command(plan: Plan, name: str) -> str:
    """The complete command that resumes a run; ``name`` is its id or folder."""
    words = ["harness", "probe" if plan.probing else "run", "--resume", name]
    return shlex.join([*words, *(word for option in outside(plan) for word in option)])


def require_typed(plan: Plan, name: str, typed: Sequence[Option]) -> None:
    """UsageError unless all options that reach outside the lab were typed, and no others."""
    # Defaults, and what stays within the lab, may be typed but need not be.
    given = {_normal(option) for option in typed} - {("--link", LINK_LOCAL), ("--ip", "4")}
    if plan.machines is not None and plan.machines.initiators == (LOCAL,):
        given -= {("--initiator", LOCAL)}
    wanted = set(outside(plan))
    if given == wanted:
        return
    if not wanted:
        raise UsageError(
            "expected no other options with --resume, because a resumed run follows its plan",
            hint="leave them out, or begin a new run without --resume",
        )
    raise UsageError(
        f"the plan of {printable(name)} reaches outside the lab: expected exactly the options "
        f"{_listed(wanted)}, found {_listed(given) or 'none'}",
        hint=f"if you want that: {printable(resume_command(plan, name))}",
    )


def _normal(option: Option) -> Option:
    name, value = option
    is_device = name in ("--backing", "--local-device") and value.startswith("/dev/")
    return name, f"{BackingKind.BLOCK}:{value}" if is_device else value


def _listed(options: Collection[Option]) -> str:
    return printable(", ".join(" ".join(option) for option in sorted(options)))
