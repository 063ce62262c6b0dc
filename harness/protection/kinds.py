"""All kinds of protection, by the names of columns: ``model.PROTECTIONS``, and each ESP proposal's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.analysis import theory
from harness.hosts import Host
from harness.model import IPV4, MACSEC, MACSEC_MKA, TLS, WIREGUARD, Family, IpsecMode, Proposal
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


def framing(
    protection: Sequence[str],
    proposals: Mapping[str, Proposal],
    mode: IpsecMode,
    mtu_bytes: int,
    family: Family = IPV4,
) -> theory.Framing | None:
    """What a stack makes of packets on a link with that MTU; None if that is not known, or for none."""
    layers: list[theory.Framing] = []
    for name in protection:
        made: theory.Framing | None
        if name in (MACSEC, MACSEC_MKA):
            made = macsec.Framing()
        elif name == TLS:
            made = tls.Framing()
        elif name == WIREGUARD:
            made = wireguard.framing(mtu_bytes, family)
        else:
            proposal = proposals.get(name)
            made = (
                theory.known_esp(proposal.kernel_algorithms, mode, family) if proposal is not None else None
            )
        if made is None:
            return None
        layers.append(made)
        mtu_bytes = made.inner_mtu_bytes(mtu_bytes)
    if not layers:
        return None
    return layers[0] if len(layers) == 1 else theory.Stacked(layers=tuple(layers))
