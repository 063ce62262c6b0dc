"""Checks, after everything was taken down, whether anything of the run is left.

This checks that everything that claims to be undone really is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from harness.hosts import Host, of_each
from harness.hosts.footprint import Leftover, search
from harness.hosts.journal import Journal
from harness.model import Plan
from harness.model.errors import HarnessError
from harness.network import links
from harness.network.links import LinkPath
from harness.protection import kinds
from harness.storage import transports


def script(*, is_shared: bool = True) -> str:
    """It looks for what a run may have left, by its tag as argument; on its own links nothing is shared."""
    of_interfaces: tuple[Leftover, ...] = ()
    if is_shared:
        from harness.network import interfaces  # here, because most links are emulated

        of_interfaces = interfaces.LEAVES
    of_transports = (leftover for each in transports.every() for leftover in each.leaves)
    return search((*of_transports, *links.LEAVES, *of_interfaces))


def find(host: Host, tag: str, paths: Sequence[LinkPath] = (), *, is_shared: bool = True) -> list[str]:
    """One phrase for each thing of the run ``tag`` that a host still has; empty if all is gone.

    ``paths`` are those that the run has protected, or cleared of the user's protection: they identify its
    states and policies.
    """
    found = host.run(["sh", "-c", script(is_shared=is_shared), "sh", tag], check=False).stdout.splitlines()
    return [f"{line} is still there" for line in (*found, *(kinds.left_over(host, paths) if paths else ()))]


def tell(journal: Journal, hosts: Iterable[Host], plan: Plan, paths: Sequence[LinkPath]) -> None:
    """Add to the journal's leaks what hosts still have of a run, or that it could not be seen.

    ``paths`` are those that it has brought up. It does not look for what the run had no use for, because each
    program takes its time in the lab.
    """
    is_shared = any(link.interface is not None for link in plan.links.values())
    if not is_shared and not any(column.protection for column in plan.columns):
        paths = ()

    def find_on(host: Host) -> list[str]:
        try:
            return find(host, plan.tag, paths, is_shared=is_shared)
        except HarnessError:
            return [f"could not list what is left on the {host.name}"]

    # Two hosts with one kernel see the same, so one of them is asked.
    different = {(host.kernel, host.netns): host for host in hosts}
    found = itertools.chain.from_iterable(of_each([*different.values()], find_on))
    journal.leaks += dict.fromkeys(found)
