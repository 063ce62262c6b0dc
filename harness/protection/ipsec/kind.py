"""IPsec as a kind of protection: a charon for each host, and a tunnel for each path."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.hosts import PRIVATE, Host, programs
from harness.hosts.faults import Killed
from harness.hosts.journal import Resource
from harness.model import ENDS, Plan, Proposal
from harness.model.errors import CommandFailed
from harness.model.protections import IKE_SETTINGS
from harness.network import links
from harness.protection import ipsec
from harness.protection.ipsec import charon, offload
from harness.protection.ipsec.layer import EspFrames, EspLayer
from harness.protection.kind import (
    Attempt,
    Found,
    Leg,
    Protection,
    ProtectionContext,
    ProtectionDriver,
    Underlay,
)


@dataclass(kw_only=True)
class CharonDaemons:
    """What all tunnels of a run share: charons, and the credentials by which the ends authenticate."""

    run: ProtectionContext
    _charons: dict[str, charon.Charon] = field(default_factory=dict)

    @functools.cached_property
    def credentials(self) -> ipsec.Credentials:
        folder = self.run.private / "certificates"
        return ipsec.make_credentials(
            self.run.initiator, self.run.plan.ike_auth, folder, paths=self.run.paths
        )

    def charon(self, host: Host, port: int, stack: contextlib.ExitStack, logs: Path) -> charon.Charon:
        """The charon of a host or network namespace, started if it does not run (any more)."""
        name = f"charon-{host.netns or host.name}"
        running = self._charons.get(name)
        if running is None or not running.answers():
            proposals = self.run.plan.proposals.values()
            plugins = sorted({name for proposal in proposals for name in proposal.charon_plugins})
            set_to = {key: value for proposal in proposals for key, value in proposal.settings.items()}
            running = self._charons[name] = stack.enter_context(
                charon.running(
                    host,
                    self.run.private / name,
                    log=logs / f"charon-{host.name}.log",
                    plugins=" ".join((charon.BASE_PLUGINS, *plugins)),
                    port=port,
                    timers={name: set_to[name] for name in IKE_SETTINGS["daemon"] if name in set_to},
                )
            )
        return running


@dataclass(frozen=True, kw_only=True)
class IpsecDriver:
    """An ESP proposal of a run."""

    proposal: Proposal
    daemons: CharonDaemons

    def frames(self, underlay: Underlay) -> EspFrames:
        return EspFrames.between(underlay.below)

    @contextlib.contextmanager
    def protect(self, underlay: Underlay) -> Iterator[EspLayer]:
        """Negotiate a tunnel between the ends of a path."""
        below, listeners = underlay.below, underlay.listeners
        run, mode = self.daemons.run, self.daemons.run.plan.ipsec_mode
        if offload.is_wanted(run.plan.proposals.values()):
            offload.settle(below, wanted=self.proposal.segmentation_offload)
        with contextlib.ExitStack() as stack:
            for _, host, _, local, remote in links.ends(below):
                made = ipsec.SecurityAssociations(local, remote, below.index, below.is_shared)
                stack.enter_context(run.journal.hold(host, made))
            # A host's charon serves all its columns; that of a network namespace ends with its column.
            stays = below.target.netns is None
            lasting = run.shared if stays else stack

            def of_target() -> charon.Charon:
                return self.daemons.charon(below.target, ipsec.IKE_PORT, lasting, underlay.raw)

            charons = (
                self.daemons.charon(run.near(below), charon.ANY_PORT, run.shared, run.folder),
                of_target(),
            )
            tunnel = ipsec.Tunnel(
                path=below,
                name=f"harness-{run.plan.tag}-{below.index}",
                proposal=self.proposal,
                mode=mode,
                credentials=self.daemons.credentials,
            )

            def again() -> None:
                tunnel.load("target", of_target())

            # Killed before its host boots: whether one that ends in order could still tell its peer depends
            # on what systemd ends first. Afterwards it has the connection, no keys, and waits to be called.
            daemon = charons[1].daemon
            gone = [Killed(tunnel.name, daemon, again)] if daemon is not None else []
            stack.enter_context(run.journal.each_boot(below.target, again, *gone))
            stack.enter_context(tunnel.up(charons))

            def breaks() -> Mapping[str, tuple[Host, Resource]]:
                from harness.protection.ipsec import faults  # here, because most runs break nothing

                return faults.of_tunnel(tunnel, charons, of_target)

            yield EspLayer(
                below=below,
                algorithms=self.proposal.kernel_algorithms,
                mode=mode,
                listeners=listeners,
                agreed=ipsec.negotiated(below.initiator, listeners.look(), self.proposal, mode)
                | tunnel.settings(charons[0]),
                logs={end: each.log for end, each in zip(ENDS, charons, strict=True)},
                breaks=breaks,
            )


def _of_run(run: ProtectionContext) -> dict[str, ProtectionDriver]:
    daemons = CharonDaemons(run=run)
    return {
        name: IpsecDriver(proposal=proposal, daemons=daemons) for name, proposal in run.plan.proposals.items()
    }


def _loaded_first(plan: Plan) -> tuple[str, ...]:
    is_offloaded = offload.is_wanted(plan.proposals.values())
    found = (*ipsec.MODULES, *(offload.MODULES if is_offloaded else ()))
    if plan.speaks_ipv6:
        found += (*ipsec.IPV6_MODULES, *(offload.IPV6_MODULES if is_offloaded else ()))
    return found


def _trials(host: Host, role: str, folder: Path) -> tuple[Attempt, ...]:
    port = ipsec.IKE_PORT if role == "target" else charon.ANY_PORT

    def start() -> None:
        place, log = PRIVATE / "charon-trial", folder / "charon.log"
        with charon.running(host, place, log=log, plugins=charon.BASE_PLUGINS, port=port):
            pass  # by now it has answered

    def capture() -> None:
        program = programs.source(ipsec.__name__, "esp")
        done = host.run(["unshare", "--net", programs.PYTHON, "-I", "-c", program], check=False)
        if done.status != 0:
            words = done.stderr.strip().splitlines() or ["it said nothing"]
            raise CommandFailed(words[-1])

    return ("an IKE daemon", start), ("an ESP packet and its capture", capture)


def _recognise(leg: Leg) -> Found | str | None:
    from harness.protection.ipsec import pre_existing  # here, because a run makes most protections

    return pre_existing.recognise(leg)


ESP = Protection(
    name="",
    kinds=_of_run,
    modules=ipsec.MODULES,
    trials=_trials,
    loaded_first=_loaded_first,
    recognise=_recognise,
    need="ipsec",
    ports={"target": (ipsec.IKE_PORT,)},
    listener="the run's own IKE daemon",
)
"""What is named like no other protection is a proposal for it."""
