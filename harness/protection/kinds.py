"""All kinds of protection, by the names of columns: ``model.PROTECTIONS``, and each ESP proposal's."""

from __future__ import annotations

from collections.abc import Sequence

from harness.hosts import Host
from harness.model import MACSEC, MACSEC_MKA, TLS, WIREGUARD
from harness.network.links import LinkPath
from harness.protection import barrier, ipsec, macsec, tls, wireguard
from harness.protection.ipsec.kind import Daemons, Ipsec
from harness.protection.ipsec.layer import EspFrames
from harness.protection.kind import Kind, Run

MODULES = ipsec.MODULES
"""What all need: the barrier is made of xfrm policies."""

IPV6_MODULES = ipsec.IPV6_MODULES
"""The further ones where a link speaks IPv6."""

OTHERS = {
    MACSEC: macsec.MODULES,
    MACSEC_MKA: macsec.MODULES,
    WIREGUARD: wireguard.MODULES,
    TLS: tls.MODULES,
}
"""Those that are no proposals, with the kernel modules that they need beside these."""


def of_run(run: Run) -> dict[str, Kind]:
    """The kinds that a run's columns can have."""
    daemons = Daemons(run=run)
    proposals = {
        name: Ipsec(proposal=proposal, daemons=daemons) for name, proposal in run.plan.proposals.items()
    }
    return {
        MACSEC: macsec.Macsec(run=run),
        MACSEC_MKA: macsec.Macsec(run=run, negotiates=True),
        WIREGUARD: wireguard.WireGuard(run=run),
        TLS: tls.Tls(daemons=tls.Daemons(run=run)),
        **proposals,
    }


def left_over(host: Host, paths: Sequence[LinkPath]) -> list[str]:
    """What a host still has of the protections of these paths, and of their barriers."""
    return [*ipsec.left_over(host, paths), *barrier.left_over(host, paths)]


def foreign_frames(link: LinkPath) -> EspFrames:
    """What a path without protection must not carry: ESP, for instance of the user's own IPsec."""
    return EspFrames.between(link)
