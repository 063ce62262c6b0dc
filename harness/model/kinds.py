"""Which transports and protections there are, by the ``kind.toml`` of each folder.

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
