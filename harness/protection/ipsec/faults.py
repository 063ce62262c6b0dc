"""What can break a tunnel that is up: associations that one end loses, and new keys while it is at work."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from harness.hosts import Host
from harness.hosts.faults import Killed, Stopped
from harness.hosts.journal import Resource
from harness.hosts.undo import UndoStep
from harness.protection.ipsec import Tunnel
from harness.protection.ipsec.charon import Charon
from harness.protection.xfrm_listener import REQID


class LostAssociations(msgspec.Struct, frozen=True):
    """The states of a path, deleted at one end: neither charon is told."""

    source: str
    destination: str
    index: int

    def acquire(self, host: Host) -> None:
        for ends in ((self.source, self.destination), (self.destination, self.source)):
            of_path = ("src", ends[0], "dst", ends[1], "proto", "esp", "reqid", str(REQID + self.index))
            host.run(["ip", "xfrm", "state", "deleteall", *of_path])

    def undo(self) -> tuple[UndoStep, ...]:
        """Nothing to do: keys that are gone are gone."""
        return ()


class Rekeying(msgspec.Struct, frozen=True):
    """New keys for ``name``, at the initiator's wish: ``kind`` is ike or child (swanctl(8), --rekey)."""

    name: str
    kind: str
    charon: Charon

    def acquire(self, _host: Host) -> None:
        self.charon.ask("rekey", {self.kind: self.name})

    def undo(self) -> tuple[UndoStep, ...]:
        """Nothing to do: charon deletes the old ones."""
        return ()


def of_tunnel(
    tunnel: Tunnel, charons: tuple[Charon, Charon], of_target: Callable[[], Charon]
) -> Mapping[str, tuple[Host, Resource]]:
    """Each by its name; ``of_target`` starts the target's charon if it does not run."""
    path, name = tunnel.path, tunnel.name
    lost = LostAssociations(path.target_address, path.initiator_address, path.index)
    initiator, target = charons
    found: dict[str, tuple[Host, Resource]] = {
        "sa-deleted": (path.target, lost),
        "rekey-ike": (path.initiator, Rekeying(name, "ike", initiator)),
        "rekey-child": (path.initiator, Rekeying(name, "child", initiator)),
    }
    if target.daemon is not None:
        again = Killed(name, target.daemon, lambda: tunnel.load("target", of_target()))
        found |= {
            "ike-daemon-killed": (path.target, again),
            "ike-daemon-stopped": (path.target, Stopped(name, target.daemon)),
        }
    return found
