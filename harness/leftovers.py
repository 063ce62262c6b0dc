"""After everything was taken down: is anything of the run still there?

The releases are not taken at their word.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.errors import HarnessError
from harness.hosts import Host
from harness.journal import Journal
from harness.links import NETWORK

SCRIPT = """
tell() { while read -r line; do echo "$1 $line"; done; }
cat /sys/class/iscsi_session/*/targetname 2>/dev/null | grep -F ":$1." | tell 'the iSCSI session to'
ls /sys/kernel/config/target/iscsi 2>/dev/null | grep -F ":$1." | tell 'the iSCSI target'
ls -d /sys/kernel/config/target/core/*/harness-"$1"* 2>/dev/null | tell 'the backstore'
ls /run/netns 2>/dev/null | grep -e "^harness-$1-" | tell 'the network namespace'
ls /sys/class/net | grep -e "^h$1[it][0-9]" | tell 'the interface'
ls -d /sys/fs/cgroup/harness-"$1"-* 2>/dev/null | tell 'the control group'
ip xfrm state list nokeys 2>/dev/null | grep -e "^src $2" | tell 'the ESP state'
ip xfrm policy list 2>/dev/null | grep -e "^src $2" | tell 'the IPsec policy'
ip rule list 2>/dev/null | grep -e "lookup 48[0-5][0-9][0-9]$" | tell 'the routing rule'
exit 0
"""
"""Arguments: the run's tag, and how the addresses of its links begin."""


def find(host: Host, tag: str) -> list[str]:
    """One phrase for each thing of the run ``tag`` that a host still has; empty if all is gone."""
    found = host.run(["sh", "-c", SCRIPT, "sh", tag, f"{NETWORK}."], check=False).stdout
    return [f"{line} is still there" for line in found.splitlines()]


def tell(journal: Journal, hosts: Iterable[Host], tag: str) -> None:
    """Add to the journal's leaks what hosts still have of the run ``tag``, or that it could not be seen."""
    found: list[str] = []
    for host in hosts:
        try:
            found += find(host, tag)
        except HarnessError:
            found.append(f"what is left on the {host.name} could not be seen")
    # Two hosts of one kernel see the same.
    journal.leaks += dict.fromkeys(found)
