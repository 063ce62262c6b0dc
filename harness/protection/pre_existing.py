"""Pre-existing protection: what protects the path from a host to an address, as seen from this end. Nothing
is changed.

The way is followed from the portal's own packets outwards, as the kernel sends them: the route to an address,
the policies of IPsec for it, the kind of the interface; then the same for what that protection sends.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import Host
from harness.model.errors import RequirementError
from harness.network import interfaces
from harness.network.interfaces import Interface
from harness.network.links import LinkPath
from harness.protection import kinds
from harness.protection.kind import Found, Leg
from harness.protection.layer import Layer

MOST_LEGS = 8

OVER = ("vlan", "macvlan", "macvtap", "ipvlan")
"""Kinds of interfaces whose frames leave by another one as they are."""


@dataclass(frozen=True, kw_only=True)
class FoundStep:
    """A protection on the path to an address: ``leg`` is what it protects, ``below`` what it sends, None if
    nothing is known of that."""

    found: Found
    leg: Leg
    below: Leg | None
    is_hidden: bool = False
    """Whether a protection further out takes its packets before they leave by the interface of ``below``."""

    def watch(self, below: LinkPath, within: LinkPath, raw: Path) -> contextlib.AbstractContextManager[Layer]:
        """The layer between two paths. A VLAN or a bare tunnel may be between it and the path within."""
        own = dataclasses.replace(within, initiator_iface=self.leg.device.name)
        return self.found.watch(below, own, raw)

    @property
    def is_ethernet(self) -> bool:
        """Whether the interface of ``below`` is one of Ethernet."""
        return self.below is not None and self.below.device.link_type == "ether"

    def path_below(self, within: LinkPath) -> LinkPath:
        """The path that its packets take; ``within`` is the one that it protects."""
        if self.below is None:
            raise AssertionError(f"the format of what {self.found.name} sends is unknown")
        is_known = bool(self.found.peer)
        return dataclasses.replace(
            within,
            initiator_iface=self.below.device.name,
            initiator_address=self.below.source if is_known else within.initiator_address,
            target_address=self.found.peer if is_known else within.target_address,
        )


@dataclass(frozen=True, kw_only=True)
class FoundProtection:
    """The path to an address: its protections, the outermost first, and what was seen that protects
    nothing."""

    leg: Leg
    steps: tuple[FoundStep, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """As columns have them."""
        return tuple(step.found.name for step in self.steps)


def protection_to(host: Host, address: str, port: int, interface: str = "") -> FoundProtection:
    """What protects TCP to a portal, by an interface if one is named. RequirementError if no route leads
    there; CommandFailed if what protects it cannot be read."""
    devices = {device.name: device for device in interfaces.read_interfaces(host)}
    first = _routed(host, devices, address, port=port, words=("oif", interface) if interface else ())
    if first is None:
        through = f" through {interface}" if interface else ""
        raise RequirementError(
            f"the {host.name} has no route to {address}{through}",
            hint=f"try `ip route get {address}` there, and name the interface it prints",
        )
    steps: list[FoundStep] = []
    notes: list[str] = []
    leg: Leg | None = first
    for _ in range(MOST_LEGS):
        if leg is None:
            break
        found = _recognised(leg, notes)
        if found is not None:
            below = _below(leg, found, devices)
            if steps and steps[0].below == leg and found.is_past_policies:
                steps[0] = dataclasses.replace(steps[0], is_hidden=True)
            steps.insert(0, FoundStep(found=found, leg=leg, below=below))
            leg = below
        else:
            leg = _carrier(leg, devices)
    return FoundProtection(leg=first, steps=tuple(steps), notes=tuple(dict.fromkeys(notes)))


def _routed(
    host: Host,
    devices: dict[str, Interface],
    address: str,
    *,
    port: int = 0,
    mark: int = 0,
    words: Sequence[str] = (),
    is_past_policies: bool = False,
) -> Leg | None:
    """The leg to an address that routing decides on."""
    found = interfaces.way(host, address, *words, *(("mark", f"{mark:#x}") if mark else ()))
    if found is None or found[0] not in devices:
        return None
    return Leg(
        host=host,
        address=address,
        source=found[1],
        device=devices[found[0]],
        port=port,
        mark=mark,
        is_past_policies=is_past_policies,
    )


def _recognised(leg: Leg, notes: list[str]) -> Found | None:
    # The innermost first: a policy is met before the interface.
    for each in reversed(kinds.every()):
        found = each.recognise(leg)
        if isinstance(found, Found):
            return found
        if found is not None:
            notes.append(found)
    return None


def _below(leg: Leg, found: Found, devices: dict[str, Interface]) -> Leg | None:
    """What a protection sends."""
    if found.peer == leg.address:
        return dataclasses.replace(leg, port=0, is_past_policies=found.is_past_policies)
    if found.peer:
        is_past = found.is_past_policies
        return _routed(leg.host, devices, found.peer, mark=found.mark, is_past_policies=is_past)
    device = devices.get(found.below)
    # Its frames are for whom it is not known, so no route and no policy decides.
    return dataclasses.replace(leg, device=device, port=0, is_past_policies=True) if device else None


def _carrier(leg: Leg, devices: dict[str, Interface]) -> Leg | None:
    """Where an interface that protects nothing sends; None if it is no tunnel and over no other one."""
    device = leg.device
    if device.linkinfo.info_kind in OVER and device.link in devices:
        return dataclasses.replace(leg, device=devices[device.link], is_past_policies=True)
    remote = device.linkinfo.info_data.get("remote")
    # Of a tunnel with many ends it is "any".
    is_known = isinstance(remote, str) and remote[:1].isalnum() and remote not in ("any", leg.address)
    return _routed(leg.host, devices, str(remote)) if is_known else None
