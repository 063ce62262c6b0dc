"""The kernel modules that a plan needs on its hosts, as each resource declares them."""

from __future__ import annotations

from harness.model import ENDS, LINK_LOCAL, BackingKind, Duplex, Plan
from harness.network import links, paths, trunk
from harness.protection import kinds
from harness.storage import backing, transports

ONLY_LOOKED_FOR = backing.MODULES
"""Not loaded here: the ramdisk itself loads it."""


def of_transports(plan: Plan) -> dict[str, dict[str, tuple[str, ...]]]:
    """The kernel modules that each transport of a plan needs, by role."""
    if plan.probing:
        return {}
    stores = {plan.storage.backing.kind}
    return {
        name: {role: transports.named(name).modules(role, stores) for role in ENDS}
        for name in plan.transports
    }


def of(plan: Plan) -> dict[str, list[str]]:
    """The kernel modules that each role needs for everything else, by modprobe(8)'s names. Built-in modules
    succeed as well."""
    names: dict[str, list[str]] = {"initiator": [], "target": []}
    if any(column.link != LINK_LOCAL for column in plan.columns):
        shaping: list[str] = []
        if any(link.interface is None and not plan.has_radio(link) for link in plan.links.values()):
            shaping += links.MODULES if plan.traits.shares_kernel else trunk.MODULES
        if any(link.duplex is Duplex.HALF for link in plan.links.values()):
            shaping += links.HALF_DUPLEX_MODULES
        shaping += kinds.loaded_first(plan)
        if plan.speaks_ipv6:
            shaping += links.IPV6_MODULES
        if any(plan.has_radio(link) for link in plan.links.values()):
            shaping += links.SHAPING_MODULES
        shaping += [
            name for link in plan.links.values() if link.hops for name in paths.MODULES[link.hops.kind]
        ]
        for role in names:
            names[role] += dict.fromkeys(shaping)
    if (
        not plan.probing
        and not plan.traits.boots_kernels  # each of those has it
        and plan.storage.disk is None
        and (plan.storage.backing.kind is BackingKind.RAMDISK or plan.storage.backing.path is None)
    ):
        names["target"] += backing.MODULES
    return names
