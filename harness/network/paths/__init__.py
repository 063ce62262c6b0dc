"""Links with hops: switches and routers between the ends, each a network namespace of its own.

Between two hops there is a veth pair, shaped like that of any link. Its rate makes each hop store a frame
before it forwards it, and the profile says what else a hop takes. The forwarding is real: the kernel's bridge
and router, pppd with pppoe-server, Open vSwitch with a controller.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import packages
from harness.model import IPV6, HopKind, PppAuth
from harness.model.errors import RequirementError
from harness.network.links import LinkPath, LinkPlace
from harness.network.paths import chain, openflow, pppoe, routers, switches

MODULES: dict[HopKind, tuple[str, ...]] = {
    HopKind.SWITCH: switches.MODULES,
    HopKind.ROUTER: (),
    HopKind.PPPOE: pppoe.MODULES,
    HopKind.OPENFLOW: openflow.MODULES,
}
"""Besides those of the links that a path is made of."""


@dataclass(frozen=True, kw_only=True)
class Folders:
    """``private``: for sockets and secrets, vanishes with the testbed; ``logs``: for the programs' output."""

    private: Path
    logs: Path


@contextlib.contextmanager
def bring_up(place: LinkPlace, folders: Folders) -> Iterator[LinkPath]:
    """Build a link that has hops, and yield it, ready for traffic.

    RequirementError if a program that this kind of hop needs is missing; CommandFailed with the reason of the
    program concerned if something between the ends does not come up in time.
    """
    profile = place.profile
    if profile.hops is None:
        raise AssertionError(f"{profile.name} has no hops")
    kind, count = profile.hops.kind, profile.hops.count
    if kind is HopKind.PPPOE and profile.ip == IPV6:
        raise RequirementError(
            f"expected IPv4 over {profile.name}, whose PPP session carries only IPv4 here, found --ip 6",
            hint="leave this link out with --ip 6, or take another one",
        )
    packages.require(kind)
    with contextlib.ExitStack() as stack:
        is_routed = kind in (HopKind.ROUTER, HopKind.PPPOE)
        path = stack.enter_context(chain.build(place, _names(kind, count), is_routed=is_routed))
        if kind is HopKind.SWITCH:
            switches.start(path.hops, profile.mtu_bytes)
        elif kind is HopKind.ROUTER:
            routers.start(path)
        elif kind is HopKind.PPPOE:
            auth = profile.hops.auth or PppAuth.CHAP
            session = pppoe.session(path, auth, private=folders.private, logs=folders.logs)
            path = dataclasses.replace(path, agreed=stack.enter_context(session))
        elif profile.hops.openflow is not None:
            settings = profile.hops.openflow
            logs, private = folders.logs, folders.private
            stack.enter_context(openflow.switch(place, path, settings, private=private, logs=logs))
        yield path


def _names(kind: HopKind, count: int) -> list[str]:
    """The names of the hops for people, starting at the initiator's side."""
    if kind is HopKind.PPPOE:
        return ["pppoe-client", "access-concentrator"]
    if kind is HopKind.OPENFLOW:
        return ["switch"]
    return [f"{kind}{number}" for number in range(1, count + 1)]
