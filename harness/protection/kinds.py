"""All kinds of protection, by the names of columns: ``model.protections``, and each ESP proposal's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness import protection
from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.model import Plan
from harness.model.kinds import OfKinds, folders
from harness.model.protections import NESTING, PROTECTIONS, require
from harness.network.links import LinkPath
from harness.protection import fail_closed, xfrm
from harness.protection.kind import Protection, ProtectionContext, ProtectionDriver

if TYPE_CHECKING:
    from harness.protection.ipsec.layer import EspFrames

_BY_NAME: OfKinds[Protection] = OfKinds(protection.__name__, folders(PROTECTIONS), within="kind")


def _esp() -> Protection:
    """What is named like no other; it is imported as they are, when it is asked for."""
    from harness.protection.ipsec.kind import ESP

    return ESP


def connected(
    host: Host, named: str, *, index: int, journal: Journal, folder: Path, log: Path
) -> contextlib.AbstractContextManager[None]:
    """Brings up a connection from a user's file, whose other end the harness does not control
    (``ipsec.connection.up``)."""
    from harness.protection.ipsec import connection

    return connection.up(host, named, index=index, journal=journal, folder=folder, log=log)


def named(name: str) -> Protection:
    """A protection, by a column's name for it: what is none of the others is an ESP proposal. UsageError for
    one that results have and the harness does not."""
    require(name)
    return _BY_NAME.get(name) or _esp()


def every() -> tuple[Protection, ...]:
    """From the outside of a stack."""
    return (*(_BY_NAME[name] for place in NESTING for name in place), _esp())


def each_of(names: Iterable[str]) -> list[Protection]:
    """Those of several names, each once."""
    return list({each.name: each for each in map(named, names)}.values())


def of_run(run: ProtectionContext) -> dict[str, ProtectionDriver]:
    """The kinds that a run's columns have."""
    return {name: kind for each in _of_plan(run.plan) for name, kind in each.kinds(run).items()}


def _of_plan(plan: Plan) -> list[Protection]:
    return each_of(name for column in plan.columns for name in column.protection)


def loaded_first(plan: Plan) -> list[str]:
    """The kernel modules that a plan's protections need before its first column. Pre-existing ones have their
    own."""
    if not plan.sees_target:
        return []
    found = _of_plan(plan)
    return [*(xfrm.MODULES if found else ()), *(name for each in found for name in each.loaded_first(plan))]


def left_over(host: Host, paths: Sequence[LinkPath]) -> list[str]:
    """What a host still has of the protections of these paths, and of their fail-closed policies."""
    from harness.protection import ipsec

    return [*ipsec.left_over(host, paths), *fail_closed.left_over(host, paths)]


def foreign_frames(link: LinkPath) -> EspFrames:
    """What a path without protection must not carry: ESP, for instance of the user's own IPsec."""
    from harness.protection.ipsec.layer import EspFrames

    return EspFrames.between(link)
