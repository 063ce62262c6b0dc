"""Routers: the kernel's forwarding of IP in each hop, with static routes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from harness.network.links import Folders, LinkPath, LinkPlace
from harness.network.paths import routing
from harness.network.paths.chain import FAR, NEAR, address
from harness.network.paths.kind import PathKind


@contextlib.contextmanager
def routed(_place: LinkPlace, path: LinkPath, _folders: Folders) -> Iterator[Mapping[str, str]]:
    """Give all hops their addresses, make them forward, and give every host the routes to both ends."""
    for number, hop in enumerate(path.hops):
        routing.add_address(hop, NEAR, address(path.index, number, 2, path.ip))
        routing.add_address(hop, FAR, address(path.index, number + 1, 1, path.ip))
        routing.forward(hop, path.ip)
    routing.connect(path)
    yield {}


OFFERED = (PathKind(name="router", passing_on=routed),)
