"""Plans for ``harness cpu-cost``: a small ordinary run whose cells differ in one thing each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from harness.model import LINK_LOCAL, Column, Plan
from harness.parse.profiles import data_folder
from harness.planning import plan
from harness.planning.request import RunRequest
from harness.results import rules

PROFILE = data_folder() / "profiles" / "cpu-costs" / "cpu-cost.fio"
LINKS = (LINK_LOCAL, "wired:unshaped", "wired")
"""Of the lab: without a network, without what an emulated link costs, and with it."""

PROTECT = ("off", "on")

RUNTIME_OF_MACHINES = "2s"
"""Counters of machines are read over ssh, and fio starts there, while they count: a cell has to be long
compared with that."""


class CpuCostRequest(RunRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``harness cpu-cost`` is asked for."""

    profile: str = str(PROFILE)
    retries: int = 0
    repeats: int = 1

    shown_defaults: ClassVar[Mapping[str, str]] = {"links": ", ".join(LINKS)}


def make_plan(request: CpuCostRequest) -> Plan:
    """Check and resolve a request. UsageError as for any run.

    Each protection is measured on the first link alone, and the first of them on all.
    """
    in_lab = not (request.target or request.portal)
    made = plan.make_plan(
        msgspec.structs.replace(
            request,
            links=request.links or (LINKS if in_lab else ()),
            runtime=request.runtime or (None if in_lab else RUNTIME_OF_MACHINES),
            protect=request.protect or (() if request.ipsec else PROTECT),
        )
    )
    networks = [name for name in made.links if name != LINK_LOCAL]
    protections = list(dict.fromkeys(column.protection for column in made.columns if column.protection))

    def counts(column: Column) -> bool:
        return column.link in (LINK_LOCAL, *networks[:1]) or column.protection in ((), *protections[:1])

    # No CPU cost is of TCP alone, or of what is known of an emulated link: a sixth of the minute.
    made = msgspec.structs.replace(made, columns=tuple(filter(counts, made.columns)), probes_paths=False)
    rules.check(made)
    return made
