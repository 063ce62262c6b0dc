"""Paths between the hosts of a ``World``."""

from __future__ import annotations

from typing import Any

from harness.model import LinkProfile
from harness.network.links import LinkPath
from tests.unit.fakes import World

WIRED = LinkProfile(name="wired", title="wired", emulated=True)


def link_path(world: World, index: int = 3, **changes: Any) -> LinkPath:
    """That of the link ``index`` of the run beef; ``changes`` are fields of it."""
    hosts = {"initiator": world.host("initiator"), "target": world.host("target", f"harness-beef-{index}")}
    ifaces = {"initiator_iface": f"hbeefi{index}", "target_iface": f"hbeeft{index}"}
    addresses = {"initiator_address": f"198.18.{index}.1", "target_address": f"198.18.{index}.2"}
    whole: dict[str, Any] = {"profile": WIRED, "index": index, **hosts, **ifaces, **addresses}
    return LinkPath(**whole | changes)
