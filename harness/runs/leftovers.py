"""After everything was taken down: is anything of the run still there?

This checks that everything that claims to be undone really is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.hosts import Host
from harness.hosts.footprint import search
from harness.hosts.journal import Journal
from harness.model.errors import HarnessError
from harness.network import interfaces, links
from harness.network.links import LinkPath
from harness.protection import kinds
from harness.storage import transports

SCRIPT = search((*transports.LEAVES, *links.LEAVES, *interfaces.LEAVES))
"""Its argument is the run's tag."""


def find(host: Host, tag: str, paths: Sequence[LinkPath] = ()) -> list[str]:
    """One phrase for each thing of the run ``tag`` that a host still has; empty if all is gone.

    ``paths`` are those that the run has brought up: they identify its states and policies.
    """
    found = host.run(["sh", "-c", SCRIPT, "sh", tag], check=False).stdout.splitlines()
    return [f"{line} is still there" for line in (*found, *kinds.left_over(host, paths))]


def tell(journal: Journal, hosts: Iterable[Host], tag: str, paths: Sequence[LinkPath]) -> None:
    """Add to the journal's leaks what hosts still have of the run ``tag``, or that it could not be seen."""
    found: list[str] = []
    # Two hosts with one kernel see the same, so one of them is asked.
    for host in {(host.kernel, host.netns): host for host in hosts}.values():
        try:
            found += find(host, tag, paths)
        except HarnessError:
            found.append(f"what is left on the {host.name} could not be seen")
    journal.leaks += dict.fromkeys(found)
