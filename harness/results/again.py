"""The command that makes a run like a stored one, from its plan: what was typed is not kept."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from harness.analysis.stats import REPEATS
from harness.model import (
    DEFAULT_TRANSPORT,
    IPV6,
    LINK_LOCAL,
    PROTECTION_OFF,
    IkeAuth,
    IpsecMode,
    LinkProfile,
    Plan,
    Security,
    kinds,
)
from harness.model.errors import UsageError
from harness.model.protections import PROTECTIONS
from harness.model.units import format_duration
from harness.parse.jobfile import load_jobs
from harness.parse.modifiers import QUANTITIES
from harness.parse.profiles import DEFAULT_PROPOSAL, IPV6_NAME, load_link
from harness.results import planned

_LINKS = [LINK_LOCAL, "wired", "wifi"]
_PROTECTIONS = [PROTECTION_OFF, DEFAULT_PROPOSAL]
_PROFILES = ("basic", "modern")
_AMOUNT = re.compile(rf"({'|'.join(QUANTITIES)}|cpu)([0-9].*)")


def command(plan: Plan) -> str:
    """``harness run`` with the options that are not at their defaults.

    Empty where no short command makes such a run: of plans with a section, of links or workloads of the
    user's own, of a kernel or a CPU cost file that others lack, and of a way that was protected already.
    """
    setting, columns = plan.setting, plan.columns
    links, workloads = _links(plan), _workloads(plan)
    names = {name for column in columns for name in column.protection}
    is_found = any(PROTECTIONS[name].pre_existing for name in names & {*PROTECTIONS})
    special = plan.sections or plan.probing or plan.cells or setting.other_kernel or setting.predicted_from
    if special or links is None or workloads is None or is_found:
        return ""
    protections = [
        *dict.fromkeys("+".join(each.protection) or PROTECTION_OFF for each in columns if each.has_path)
    ]
    initiators = max(each.initiators for each in columns)
    options: list[tuple[str, Iterable[str], bool]] = [
        ("--link", links, links != _LINKS),
        ("--transport", plan.transports, plan.transports not in ((), (DEFAULT_TRANSPORT,))),
        ("--protect", protections, plan.sees_target and protections != _PROTECTIONS),
        ("--workload", workloads, True),
        ("--profile", [plan.profile], plan.profile != _PROFILES[0]),
        ("--repeats", [str(plan.repeats)], plan.repeats != REPEATS and plan.stop is None),
        ("--confidence", [f"{100 * plan.stop.width:g}%"] if plan.stop else [], True),
        ("--runtime", [format_duration(plan.runtime_s or 0).replace(" ", "")], plan.runtime_s is not None),
        ("--virtual-time", [""], setting.is_virtual),
        ("--disk", [setting.disk], bool(setting.disk)),
        ("--lab-kernel", ["custom"], setting.is_custom and not setting.is_virtual),
        ("--cipher-driver", ["generic"], setting.has_generic),
        ("--kernels", ["per-host"], plan.capabilities.boots_kernels and not plan.capabilities.shares_kernel),
        ("--lab-initiators", [str(initiators)], initiators > 1 and plan.capabilities.boots_kernels),
        ("--ip", ["6"], plan.speaks_ipv6 and plan.capabilities.boots_kernels),
        ("--ipsec-mode", [plan.ipsec_mode], plan.ipsec_mode is not IpsecMode.TRANSPORT),
        ("--auth", [plan.ike_auth], plan.ike_auth is not IkeAuth.PSK),
    ]
    for transport in plan.transports:
        agreed = [f"{name}={value}" for name, value in plan.parameters_of(transport).items()]
        if agreed and transport in kinds.TRANSPORTS:
            options.append((f"--{kinds.TRANSPORTS[transport].option}", agreed, True))
    words = [word for option in planned.outside(plan) for word in option]
    words += [
        word
        for option, values, is_typed in options
        if is_typed
        for value in values
        for word in (option, value)
        if word
    ]
    return shlex.join(["harness", "run", *words])


def _links(plan: Plan) -> list[str] | None:
    """As typed, but for real ones, which lead out of the lab (``planned``); None if one is not known."""
    if plan.wifi_security is not Security.WPA2:
        return None
    found = []
    for name in dict.fromkeys(column.link for column in plan.columns):
        link = plan.links.get(name)
        if name == LINK_LOCAL and plan.storage.volume is None:
            found.append(LINK_LOCAL)
        elif link is not None and link.interface is None:
            typed = as_typed(link)
            if typed is None:
                return None
            found.append(typed)
    return found


def as_typed(link: LinkProfile) -> str | None:
    """``wired:rtt=5ms`` for ``wired-rtt5ms``."""
    name = link.name.removesuffix(IPV6_NAME) if link.ip == IPV6 else link.name
    parts = name.split("-")
    for count in range(len(parts), 0, -1):
        modifiers = ",".join(map(_modifier, parts[count:]))
        spec = ":".join(filter(None, ("-".join(parts[:count]), modifiers)))
        try:
            made = load_link(spec)
        except UsageError:
            continue
        if made.name == name:
            return spec
    return None


def _modifier(part: str) -> str:
    found = _AMOUNT.fullmatch(part)
    return part if found is None else f"{found[1]}={found[2]}{'%' * (found[1] == 'loss')}"


def _workloads(plan: Plan) -> Sequence[str] | None:
    """Those that were chosen of a shipped profile: none if all are measured; None if there are others."""
    if plan.profile not in _PROFILES:
        return None
    names = [job.name for job in plan.jobs]
    known = {job.name for job in load_jobs(plan.profile)[1]}
    if not known.issuperset(names):
        return None
    return () if known == {*names} else names
