"""Which transports, protections and kinds of hops there are, by the ``kind.toml`` of each folder.

Who reads results needs to know that much, and imports nothing of what brings one up.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

FILE = "kind.toml"


class Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``name`` is typed, and in results; ``title`` is for people, who find kinds in their ``order``."""

    name: str
    title: str
    order: int


class TransportKind(Declared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``kernel_target``: its target is in the kernel, and no program. ``logical_units``: a target has
    several; otherwise a portal names it."""

    kernel_target: bool = True
    logical_units: bool = True


class HopKind(Declared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What passes packets on between the ends of a link: ``least`` to ``most`` hops, each a ``title``, two
    of them ``several``.

    ``hops`` are their names; without, they are numbered. If it ``is_routed``, each segment is a network of
    its own. ``is_timed``: the profile says how long each hop takes.
    """

    least: int = 0
    most: int
    several: str = ""
    hops: tuple[str, ...] = ()
    is_routed: bool = False
    speaks_ipv6: bool = True
    is_timed: bool = True

    def names(self, count: int) -> tuple[str, ...]:
        """The names of so many hops, starting at the initiator's side."""
        return self.hops or tuple(f"{self.name}{number}" for number in range(1, count + 1))


K = TypeVar("K", bound=Declared)


def declared(package: str, declared_type: type[K]) -> dict[str, K]:
    """The kinds of a package of the harness, by name."""
    files = Path(__file__).parents[1].joinpath(package).glob(f"*/{FILE}")
    found = [
        msgspec.convert(kind, declared_type)
        for file in files
        for kind in msgspec.toml.decode(file.read_bytes())["kind"]
    ]
    return {each.name: each for each in sorted(found, key=lambda each: each.order)}


TRANSPORTS = declared("storage", TransportKind)
HOPS = declared("network/paths", HopKind)
