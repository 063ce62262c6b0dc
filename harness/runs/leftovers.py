"""After everything was taken down: is anything of the run still there?

This checks that everything that claims to be undone really is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.model.errors import HarnessError
from harness.network.links import LinkPath
from harness.protection import ipsec

SCRIPT = """
tell() { while read -r line; do echo "$1 $line"; done; }
cat /sys/class/iscsi_session/*/targetname 2>/dev/null | grep -F ":$1." | tell 'the iSCSI session to'
ls /sys/kernel/config/target/iscsi 2>/dev/null | grep -F ":$1." | tell 'the iSCSI target'
ls -d /sys/kernel/config/target/core/*/harness-"$1"* 2>/dev/null | tell 'the backstore'
ls /run/netns 2>/dev/null | grep -e "^harness-$1-" | tell 'the network namespace'
ls /sys/class/net | grep -e "^h$1[it][0-9]" | tell 'the interface'
ls -d /sys/fs/cgroup/harness-"$1"-* 2>/dev/null | tell 'the control group'
ip rule list 2>/dev/null | grep -e "lookup 48[0-5][0-9][0-9]$" | tell 'the routing rule'
exit 0
"""
"""Its argument is the run's tag."""


def find(host: Host, tag: str, paths: Sequence[LinkPath] = ()) -> list[str]:
    """One phrase for each thing of the run ``tag`` that a host still has; empty if all is gone.

    ``paths`` are those that the run has brought up: they identify its states and policies.
    """
    found = host.run(["sh", "-c", SCRIPT, "sh", tag], check=False).stdout.splitlines()
    return [f"{line} is still there" for line in (*found, *ipsec.left_over(host, paths))]


def tell(journal: Journal, hosts: Iterable[Host], tag: str, paths: Sequence[LinkPath]) -> None:
    """Add to the journal's leaks what hosts still have of the run ``tag``, or that it could not be seen."""
    found: list[str] = []
    for host in hosts:
        try:
            found += find(host, tag, paths)
        except HarnessError:
            found.append(f"what is left on the {host.name} could not be seen")
    # Two hosts with one kernel see the same.
    journal.leaks += dict.fromkeys(found)
