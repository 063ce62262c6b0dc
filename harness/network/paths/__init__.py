"""Links with hops: switches and routers between the ends, each a network namespace of its own.

Between two hops there is a veth pair, shaped like that of any link. Its rate makes each hop store a frame
before it forwards it, and the profile says what else a hop takes. The forwarding is real, and each kind of
hops is a folder that offers a ``PathKind``.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from harness.model import IPV6, LinkProfile, kinds
from harness.model.errors import RequirementError
from harness.model.kinds import OfKinds
from harness.model.units import unknown_name
from harness.network.links import Folders, LinkPath, LinkPlace

if TYPE_CHECKING:
    from harness.network.paths.kind import PathKind

_BY_NAME: OfKinds[PathKind] = OfKinds(__name__, kinds.folders(kinds.HOPS), within="kind")


def _named(name: str) -> PathKind:
    """UsageError for one that is not here: results may be of another version."""
    if name not in _BY_NAME:
        raise unknown_name("kind of hops", name, kinds.HOPS)
    return _BY_NAME[name]


def modules(link: LinkProfile) -> tuple[str, ...]:
    """The kernel modules of a link's hops, besides those of the links that a path is made of."""
    return _named(link.hops.kind).modules if link.hops is not None else ()


def private_folders(links: Iterable[LinkProfile]) -> tuple[str, ...]:
    """What a run over these links hides on a machine: what it writes there is its own."""
    folders = (folder for link in links if link.hops for folder in _named(link.hops.kind).private_folders)
    return tuple(dict.fromkeys(folders))


@contextlib.contextmanager
def bring_up(place: LinkPlace, folders: Folders) -> Iterator[LinkPath]:
    """Build a link that has hops, and yield it, ready for traffic.

    RequirementError if a program that this kind of hop needs is missing; CommandFailed with the reason of the
    program concerned if something between the ends does not come up in time.
    """
    profile = place.profile
    if profile.hops is None:
        raise AssertionError(f"{profile.name} has no hops")
    from harness.hosts import packages  # here, because most links have no hops
    from harness.network.paths import chain

    kind, declared = _named(profile.hops.kind), kinds.HOPS[profile.hops.kind]
    if profile.ip == IPV6 and not declared.speaks_ipv6:
        raise RequirementError(
            f"expected IPv4 over {profile.name}, whose {kind.carries} carries only IPv4 here, found --ip 6",
            hint="leave this link out with --ip 6, or take another one",
        )
    packages.require(kind.name)
    with contextlib.ExitStack() as stack:
        names = declared.names(profile.hops.count)
        path = stack.enter_context(chain.build(place, names, is_routed=declared.is_routed))
        agreed = stack.enter_context(kind.passing_on(place, path, folders))
        yield dataclasses.replace(path, agreed=agreed)
