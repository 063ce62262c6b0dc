"""A kind of protection, before it is brought up: what it is on the wire, where it may stand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.model import Plan
from harness.model.probing import Cipher
from harness.network.links import LinkPath
from harness.protection.layer import Frames, Layer
from harness.protection.witness import Witnesses


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
        return self.initiator if self.plan.traits.shares_kernel else path.initiator


@dataclass(frozen=True, kw_only=True)
class Underlay:
    """What a layer stands on: a path, where ``level`` protections are below and ``mtu_bytes`` pass.

    ``witnesses`` are at its ends, ``raw`` is the folder for outputs to be kept.
    """

    below: LinkPath
    level: int
    mtu_bytes: int
    witnesses: Witnesses
    raw: Path


class ProtectionDriver(Protocol):
    """One kind of protection in a run."""

    def frames(self, underlay: Underlay, /) -> Frames:
        """Its frames on a path."""
        ...

    def protect(self, underlay: Underlay, /) -> contextlib.AbstractContextManager[Layer]:
        """Protect a path between barriers, which stand. CommandFailed if what was asked for does not hold."""
        ...


Attempt = tuple[str, Callable[[], str | None]]
"""What is tried on a machine, as the end of a sentence, and how; that may return a better description."""


def _none(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Protection:
    """All that others have to know of a protection before there is a run. ESP proposals have the ``name`` "".

    ``kinds`` are its kinds in a run, by the names of columns. ``modules`` are the kernel's that it takes, in
    modprobe(8)'s words; ``loaded_first`` are those without which no column of a plan is measured. Of the
    others a kernel that lacks one has columns skipped. With ``needs_own_kernel`` Debian's user-mode kernel
    lacks one. ``trials`` try it on a host in a role, with a folder for logs. ``cipher`` is the probe of what
    it encrypts with, None if each proposal has its own. With ``is_transports`` it is within the transport's
    own connections. ``column_s`` is how much longer it takes to bring up a column: keys, barrier, bait.

    ``need`` is its word in packages.txt, where it has one. ``ports`` are those of UDP that have to be free in
    a role, for ``listener``.
    """

    name: str
    kinds: Callable[[ProtectionContext], Mapping[str, ProtectionDriver]]
    modules: tuple[str, ...]
    trials: Callable[[Host, str, Path], tuple[Attempt, ...]]
    cipher: Cipher | None = None
    loaded_first: Callable[[Plan], Sequence[str]] = _none
    left_over: Callable[[Host, Sequence[LinkPath]], Sequence[str]] = _none
    needs_own_kernel: bool = False
    is_transports: bool = False
    column_s: float = 0.8
    need: str = ""
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    listener: str = ""
