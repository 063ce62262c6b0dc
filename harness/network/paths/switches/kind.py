"""Switches: a bridge of the kernel in each hop (ip-link(8), type bridge)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from harness.network.links import Folders, LinkPath, LinkPlace
from harness.network.paths.chain import FAR, NEAR
from harness.network.paths.kind import PathKind

MODULES = ("bridge",)
BRIDGE = "switch"


@contextlib.contextmanager
def switched(_place: LinkPlace, path: LinkPath, _folders: Folders) -> Iterator[Mapping[str, str]]:
    """Make each hop forward frames. Without STP, which would keep its ports silent for half a minute."""
    for hop in path.hops:
        hop.run(
            ["ip", "-batch", "-"],
            input=f"link add {BRIDGE} mtu {path.profile.mtu_bytes} type bridge stp_state 0 mcast_snooping 0\n"
            f"link set dev {NEAR} master {BRIDGE}\nlink set dev {FAR} master {BRIDGE}\n"
            f"link set dev {BRIDGE} up\n",
        )
    yield {}


OFFERED = (PathKind(name="switch", passing_on=switched, modules=MODULES),)
