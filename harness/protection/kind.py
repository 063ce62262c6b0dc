"""A kind of protection, before it is brought up: what it is on the wire, where it may stand."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.analysis import theory
from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.model import Family, Plan
from harness.network.links import LinkPath
from harness.protection.bait import Knockers
from harness.protection.layer import Frames, Layer
from harness.protection.witness import Witnesses


@dataclass(frozen=True, kw_only=True)
class Run:
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
        return self.initiator if self.plan.machines is None else path.initiator


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What a layer stands on: a path, where ``level`` protections are below and ``mtu_bytes`` pass.

    ``witnesses`` are at its ends, ``raw`` is the folder for outputs to be kept.
    """

    below: LinkPath
    level: int
    mtu_bytes: int
    witnesses: Witnesses
    raw: Path


class Kind(Protocol):
    """One kind of protection in a run."""

    @property
    def title(self) -> str:
        """What its packets are called."""
        ...

    def frames(self, ground: Ground, /) -> Frames:
        """Its frames on a path."""
        ...

    def framing(self, mtu_bytes: int, family: Family, /) -> theory.Framing | None:
        """What it makes of packets of a family where ``mtu_bytes`` pass; None if that is not known."""
        ...

    def bait(self, ground: Ground, /) -> Knockers:
        """What sends at both ends, on purpose, what must be recognised as not protected."""
        ...

    def protect(self, ground: Ground, /) -> contextlib.AbstractContextManager[Layer]:
        """Protect a path between barriers, which stand. CommandFailed if what was asked for does not hold."""
        ...
