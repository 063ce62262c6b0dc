"""A kind of protection, before it is brought up: what it is on the wire, where it may stand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.model import Plan, Proposal
from harness.network.links import LinkPath
from harness.protection.layer import Frames, Layer
from harness.protection.xfrm_listener import XfrmListeners

if TYPE_CHECKING:
    from harness.network.interfaces import Interface


@dataclass(frozen=True, kw_only=True)
class ProtectionContext:
    """What protections of a run need of it. ``private`` is a folder for sockets and secrets, gone with the
    testbed; ``shared`` ends with the run, and ``paths`` is how many there can be."""

    plan: Plan
    initiator: Host
    journal: Journal
    private: Path
    folder: Path
    shared: contextlib.ExitStack
    paths: int

    def near(self, path: LinkPath) -> Host:
        """The host on which a path's initiator has its daemons. Without machines all initiators are in one
        network namespace, whose addresses, ports and policies only one daemon can have."""
        return self.initiator if self.plan.capabilities.shares_kernel else path.initiator


@dataclass(frozen=True, kw_only=True)
class Underlay:
    """What a layer stands on: a path, where ``level`` protections are below and ``mtu_bytes`` pass.

    ``listeners`` are at its ends, ``raw`` is the folder for outputs to be kept.
    """

    below: LinkPath
    level: int
    mtu_bytes: int
    listeners: XfrmListeners
    raw: Path


class ProtectionDriver(Protocol):
    """One kind of protection in a run."""

    def frames(self, underlay: Underlay, /) -> Frames:
        """Its frames on a path."""
        ...

    def protect(self, underlay: Underlay, /) -> contextlib.AbstractContextManager[Layer]:
        """Protect a path whose fail-closed policies are in force. CommandFailed if what was asked for does
        not hold."""
        ...


@dataclass(frozen=True, kw_only=True)
class Leg:
    """How a host sends to an address now: by ``device``, from ``source``, with the firewall ``mark``.

    ``port`` is the portal's for its own packets over TCP, and 0 for those of a protection. The kernel looks
    for policies of IPsec unless ``is_past_policies``: ESP meets none a second time.
    """

    host: Host
    address: str
    source: str
    device: Interface
    port: int = 0
    mark: int = 0
    is_past_policies: bool = False


@dataclass(frozen=True, kw_only=True)
class Found:
    """A pre-existing protection, as the kernel of one end shows it; ``name`` is its name in columns.

    Its packets go to the address ``peer`` with the firewall ``mark``, or by the interface ``below``, where
    routing does not decide. Both are "" where that is unknown. ``watch`` makes a layer of it, given the path
    below and the one within, and a folder for outputs. ``agreed`` goes into the record, and ``proposal`` into
    the plan.
    """

    name: str
    frames: Frames
    watch: Callable[[LinkPath, LinkPath, Path], contextlib.AbstractContextManager[Layer]]
    peer: str = ""
    mark: int = 0
    below: str = ""
    agreed: dict[str, str] = field(default_factory=dict)
    proposal: Proposal | None = None
    is_past_policies: bool = False


Attempt = tuple[str, Callable[[], str | None]]
"""What is tried on a machine, as the end of a sentence, and how; that may return a better description."""


@dataclass(frozen=True, kw_only=True)
class Protection:
    """All that others have to know of a protection before there is a run. ESP proposals have the ``name`` "".

    ``kinds`` are its kinds in a run, by the names of columns. ``modules`` are the kernel's that it takes, in
    modprobe(8)'s words; ``loaded_first`` are those without which no column of a plan is measured. Of the
    others a kernel that lacks one has columns skipped. ``trials`` try it on a host in a role, with a folder
    for logs. With ``is_transports`` it is within the transport's own connections.

    ``recognise`` finds it on a leg where somebody else has set it up: a string says why it protects nothing
    there. CommandFailed if that cannot be read.

    ``need`` is its word in packages.txt, where it has one. ``ports`` are those of UDP that have to be free in
    a role, for ``listener``.
    """

    name: str
    kinds: Callable[[ProtectionContext], Mapping[str, ProtectionDriver]]
    modules: tuple[str, ...]
    trials: Callable[[Host, str, Path], tuple[Attempt, ...]]
    loaded_first: Callable[[Plan], Sequence[str]] = lambda _: ()
    recognise: Callable[[Leg], Found | str | None] = lambda _: None
    is_transports: bool = False
    need: str = ""
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    listener: str = ""
