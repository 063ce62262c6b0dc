"""The kernel's policies for a portal's traffic (ip-xfrm(8)): what must not pass in clear, and what may.

Every protection has them, IPsec or not: a fail-closed policy blocks, and needs no IPsec.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from harness.hosts import Host
from harness.hosts.undo import UndoStep
from harness.model import End, addresses
from harness.network.links import LinkPath

POLICY_PRIORITY = 10_000
"""With the path's index added. It comes before all policies of the machine's own IKE daemon, of which
strongSwan's begin at 100 000 (a lower number comes first)."""

BYPASS_PRIORITY = POLICY_PRIORITY - 1

FAIL_CLOSED_PRIORITY = 20_000
"""After the path's own policies, and before others': what those protected would count as the path's."""

MODULES = ("xfrm_user",)
"""Every protection needs it, because fail-closed policies are xfrm policies."""

PORTS_COVERED = 4
"""On a path that others share, policies cover the portal's port and the three that follow, which nobody uses.
The kernel keeps one policy per selector, and the port itself is the fail-closed policy's selector."""

TCP = "6"
"""The protocol, for ip(8) and charon. Its name would need /etc/protocols: netbase, which may be missing."""


class OfThePortal(msgspec.Struct, frozen=True):
    """Policies on one end for all of a portal's traffic, in both directions (ip-xfrm(8)).

    They name the portal's port. The kernel keeps one policy for a selector, whatever its priority, so with
    charon's selector they would replace each other. They never cover an SSH connection.
    """

    end: End
    initiator: str
    target: str
    port: int

    ACTION: ClassVar[str]
    PRIORITY: ClassVar[int]

    def _policies(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        inbound, outbound = ("in", "out") if self.end == "initiator" else ("out", "in")
        near, far = addresses.alone(self.initiator), addresses.alone(self.target)
        there = ("src", near, "dst", far, "proto", TCP)
        back = ("src", far, "dst", near, "proto", TCP)
        return (
            (*there, "dport", str(self.port), "dir", outbound),
            (*back, "sport", str(self.port), "dir", inbound),
        )

    def acquire(self, host: Host) -> None:
        how = ("action", self.ACTION, "priority", str(self.PRIORITY))
        add = [("xfrm", "policy", "add", *policy, *how) for policy in self._policies()]
        host.run(["ip", "-batch", "-"], input=_lines(add))

    def undo(self) -> tuple[UndoStep, ...]:
        delete = [("xfrm", "policy", "delete", *policy) for policy in reversed(self._policies())]
        # The second is deleted though the first may not be there.
        both = ("ip", "-force", "-batch", "-")
        return (UndoStep(both, input=_lines(delete), absent=("No such file or directory",)),)


def _lines(commands: Iterable[Sequence[str]]) -> str:
    return "".join(f"{' '.join(words)}\n" for words in commands)


class IpsecFailClosed(OfThePortal, frozen=True):
    """Drops what would leave or arrive in clear."""

    ACTION = "block"
    PRIORITY = FAIL_CLOSED_PRIORITY


class Bypass(OfThePortal, frozen=True):
    """Lets it pass in clear, before policies that would protect it: for a path without IPsec between two
    machines that the user's own IPsec joins."""

    ACTION = "allow"
    PRIORITY = BYPASS_PRIORITY


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One xfrm policy. ``text`` is its first line, with all of its selector, ``rest`` what follows its
    direction."""

    text: str
    source: str
    destination: str
    direction: str
    priority: int
    rest: str = field(default="", compare=False)

    def is_of(self, path: LinkPath) -> bool:
        """Whether the run made it for this path."""
        if {self.source, self.destination} != {addresses.alone(address) for address in addresses_of(path)}:
            return False
        of_the_portal = (
            (FAIL_CLOSED_PRIORITY, BYPASS_PRIORITY) if self.text.endswith(f"port {path.port}") else ()
        )
        return not path.is_shared or self.priority in (POLICY_PRIORITY + path.index, *of_the_portal)

    def covers(self, path: LinkPath) -> bool:
        """Whether it applies to traffic between the ends of a path, or to some of it."""
        source, destination = map(ipaddress.ip_network, (self.source, self.destination))
        ends = [ipaddress.ip_address(address) for address in addresses_of(path)]
        return any(here in source and there in destination for here, there in (ends, ends[::-1]))


_POLICY = re.compile(
    r"^(?P<text>src (?P<source>\S+) dst (?P<destination>\S+).*?) *\n"
    r"\s+dir (?P<direction>\w+)\b(?P<rest>.*\bpriority (?P<priority>\d+).*\n?(?:[ \t]+.*\n?)*)",
    re.MULTILINE,
)
"""Policies of sockets have no such direction: they let an IKE daemon's own packets pass."""


def parse_policies(text: str) -> list[Policy]:
    """Read the output of ``ip xfrm policy list``."""
    return [msgspec.convert(match.groupdict(), Policy, strict=False) for match in _POLICY.finditer(text)]


def policies_of(host: Host) -> list[Policy]:
    # A kernel without IPsec reports that it has none, and is right.
    return parse_policies(host.run(["ip", "xfrm", "policy", "list"], check=False).stdout)


def addresses_of(path: LinkPath) -> tuple[str, str]:
    return path.initiator_address, path.target_address


def is_joined(host: Host, path: LinkPath) -> bool:
    """Whether a host has IPsec policies of somebody else for traffic between the ends of a path."""
    ours = range(BYPASS_PRIORITY, FAIL_CLOSED_PRIORITY + 1)
    return any(policy.covers(path) and policy.priority not in ours for policy in policies_of(host))
