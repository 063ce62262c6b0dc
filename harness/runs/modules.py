"""The kernel modules that a plan needs on its hosts, as each resource declares them."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model import ENDS, BackingKind, Duplex, Plan
from harness.network import links, paths
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
    shaped = list(plan.links.values()) if any(column.has_path for column in plan.columns) else []
    has_radio = any(plan.has_radio(link) for link in shaped)
    is_emulated = any(link.interface is None and not plan.has_radio(link) for link in shaped)
    has_own_ramdisk = plan.storage.disk is None and (
        plan.storage.backing.kind is BackingKind.RAMDISK or plan.storage.backing.path is None
    )
    of_emulated: tuple[str, ...] = links.MODULES
    if not plan.capabilities.shares_kernel:
        from harness.network import trunk  # here, because most runs have one kernel

        of_emulated = trunk.MODULES
    of_links: tuple[tuple[bool, Iterable[str]], ...] = (
        (is_emulated, of_emulated),
        (any(link.duplex is Duplex.HALF for link in shaped), links.HALF_DUPLEX_MODULES),
        (bool(shaped), kinds.loaded_first(plan)),
        (bool(shaped) and plan.speaks_ipv6, links.IPV6_MODULES),
        (has_radio, links.SHAPING_MODULES),
        *((True, paths.modules(link)) for link in shaped),
    )
    names = list(dict.fromkeys(name for is_needed, these in of_links if is_needed for name in these))
    # Each kernel of the lab's several has the ramdisk.
    needs_ramdisk = has_own_ramdisk and not plan.probing and not plan.capabilities.boots_kernels
    return {"initiator": names, "target": [*names, *(backing.MODULES if needs_ramdisk else ())]}
