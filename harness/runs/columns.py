"""Columns as paths: link and protection, brought up and taken down. What runs over them is not known here."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.analysis import theory
from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.model import ENDS, LINK_LOCAL, Column, Plan, Proposal
from harness.network import interfaces, links, paths, trunk, wifi
from harness.observe import counters
from harness.observe.hops import Hop
from harness.protection import bait, capture, ipsec, proof
from harness.protection.ipsec import charon, witness
from harness.results.events import Emit, Phase
from harness.storage import transports

RADIOS_PER_PATH = 3
"""The station's, the access point's, and one that listens."""


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """Who takes part in a run. Several may be one kernel. ``hops``, between them, are only looked at."""

    target: Host
    initiators: tuple[Host, ...]
    hops: tuple[Hop, ...] = ()

    @property
    def all(self) -> tuple[Host, ...]:
        return (*self.initiators, self.target)

    def observer(self, emit: Emit, *, energy: bool = True) -> counters.Observer:
        """What looks at all of them, hops too; one that is lost is told of."""
        return counters.Observer(self.all, self.hops, energy=energy, tell=lambda text: emit(Phase(text)))


@dataclass(frozen=True, kw_only=True)
class ColumnPath:
    """The path of one initiator in a column, up: protected as the column says, and watched.

    ``agreed`` is what the ends agreed on, for each protection. ``control`` is what came of the
    bait before the tunnel was up.
    """

    path: links.LinkPath
    capture: capture.Capture
    agreed: dict[str, dict[str, str]] = field(default_factory=dict)
    protection: proof.Protection | None = None
    control: bait.Control | None = None
    wifi_path: wifi.WifiPath | None = None


class Columns:
    """The paths of a run. ``private`` is a folder for sockets and secrets, gone with the testbed."""

    def __init__(self, plan: Plan, folder: Path, *, hosts: Hosts, journal: Journal, private: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.hosts = hosts
        self.journal = journal
        self.private = private
        self._charons: dict[str, charon.Charon] = {}
        self._credentials: ipsec.Credentials | None = None
        self._shared = contextlib.ExitStack()
        self.made: list[links.LinkPath] = []
        """All paths that were brought up, those that are down again as well."""

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """What all paths share, for the length of the context: radios, and charons as they are needed."""
        with contextlib.ExitStack() as self._shared:
            if self._wifi_paths:
                radios = wifi.Radios(RADIOS_PER_PATH * len(self._wifi_paths))
                self._shared.enter_context(self.journal.hold(self.hosts.initiators[0], radios))
            yield

    def bring_up(self, column: Column, number: int, stack: contextlib.ExitStack) -> ColumnPath:
        """The path of the column's ``number``-th initiator, which goes with ``stack``."""
        raw = self.folder / "columns" / column.label
        if number:
            raw /= self.hosts.initiators[number].name
        raw.mkdir(parents=True, exist_ok=True)
        has_radio = self.plan.has_radio(self.plan.links[column.link])
        wifi_path = self._wifi_path(column, number, stack, raw) if has_radio else None
        path = (
            wifi_path.path if wifi_path is not None else stack.enter_context(self._link(column, number, raw))
        )
        if not path.is_shared:
            path = dataclasses.replace(path, port=self._port(column))
        if wifi_path is not None:
            wifi_path = dataclasses.replace(wifi_path, path=path)
        self.made.append(path)
        protected = bool(column.protection)
        if path.is_shared and not protected:
            self._clear(path, stack)
        watching = stack.enter_context(capture.capture(path, raw, protected=protected))
        if not protected:
            return ColumnPath(path=path, capture=watching, wifi_path=wifi_path)
        witnesses = stack.enter_context(witness.witnesses(path, raw))
        control = self._close(path, watching, witnesses, stack)
        proposal = self.plan.proposals[column.ipsec]
        esp = self._open(proposal, path, witnesses, stack, raw)
        protection = proof.Protection(
            algorithms=proposal.kernel_algorithms,
            mode=self.plan.ipsec_mode,
            witnesses=witnesses,
            header_bytes=proof.RADIO_HEADER_BYTES if wifi_path is not None else theory.ETHERNET_HEADER_BYTES,
        )
        return ColumnPath(
            path=path,
            capture=watching,
            agreed={proposal.name: esp},
            protection=protection,
            control=control,
            wifi_path=wifi_path,
        )

    @property
    def _paths(self) -> list[tuple[Column, int]]:
        """Every (column, initiator) that has a link; its place is the index of its path."""
        return [
            (column, number)
            for column in self.plan.columns
            if column.link != LINK_LOCAL
            for number in range(column.initiators)
        ]

    @staticmethod
    def _port(column: Column) -> int:
        """The port of the column's transport."""
        return (
            transports.DEFAULT.port if column.transport is None else transports.named(column.transport).port
        )

    def _wifi_path(
        self, column: Column, number: int, stack: contextlib.ExitStack, logs: Path
    ) -> wifi.WifiPath:
        """A link through the air: a radio for each end, and one that listens."""
        plan, host = self.plan, self.hosts.initiators[number]
        profile = plan.links[column.link]
        if profile.radio is None:
            raise AssertionError(f"{profile.name} has no radio")
        index = self._paths.index((column, number))
        radio = RADIOS_PER_PATH * self._wifi_paths.index((column, number))
        network = wifi.Network(
            ssid=f"harness-{self.plan.tag}-{index}", standard=profile.radio, security=plan.wifi_security
        )
        path, association = stack.enter_context(
            wifi.bring_up(
                self.journal,
                host,
                profile,
                network,
                tag=self.plan.tag,
                index=index,
                folder=self.private / f"wifi-{index}",
                logs=logs,
                first_radio=radio,
                frame_by_frame=plan.virtual_time,
            )
        )
        listening = f"h{self.plan.tag}s{index}"
        wifi.place_radio(host, radio + 2, listening, None)
        file = next(f for n in itertools.count(1) if not (f := logs / f"air-{n}.pcap").exists())
        listener = stack.enter_context(
            wifi.sniffer(host, listening, network.frequency_mhz, association.bssid, file=file)
        )
        return wifi.WifiPath(path=path, association=association, listener=listener)

    @property
    def _wifi_paths(self) -> list[tuple[Column, int]]:
        links = self.plan.links
        return [path for path in self._paths if self.plan.has_radio(links[path[0].link])]

    def _link(
        self, column: Column, number: int, logs: Path
    ) -> contextlib.AbstractContextManager[links.LinkPath]:
        """The link of one initiator, real or made as its profile says."""
        plan, host, target = self.plan, self.hosts.initiators[number], self.hosts.target
        profile = plan.links[column.link]
        index = self._paths.index((column, number))
        if profile.interface is not None:
            # All columns of an interface have its address, so each has a port: policies tell them apart.
            # Not the first: the machine may have a target of its own, listening on every address.
            port = self._port(column) + ipsec.PORTS_COVERED * (1 + plan.columns.index(column))
            return interfaces.bring_up(self.journal, host, target, profile, index=index, port=port)
        if plan.kernels_apart:
            return trunk.bring_up(
                self.journal,
                host,
                target,
                profile,
                tag=self.plan.tag,
                index=index,
                initiator_trunk="vec0",
                target_trunk=f"vec{number}",
            )
        if profile.hops is not None:
            folders = paths.Folders(private=self.private / f"path-{index}", logs=logs)
            return paths.bring_up(
                self.journal,
                host,
                profile,
                tag=self.plan.tag,
                index=index,
                folders=folders,
                frame_by_frame=plan.virtual_time,
            )
        return links.bring_up(
            self.journal, host, profile, tag=self.plan.tag, index=index, frame_by_frame=plan.virtual_time
        )

    def _close(
        self,
        path: links.LinkPath,
        watching: capture.Capture,
        witnesses: witness.Witnesses,
        stack: contextlib.ExitStack,
    ) -> bait.Control:
        """Close the barrier, and show by bait, before and behind it, that it does what it is for."""
        near, far, port = path.initiator_address, path.target_address, path.port
        with contextlib.ExitStack() as meanwhile:
            if path.is_shared:
                self._clear(path, meanwhile)
            seen = bait.show(watching, witnesses)
        stack.enter_context(self.journal.hold(path.initiator, ipsec.Barrier("initiator", near, far, port)))
        stack.enter_context(self.journal.hold(path.target, ipsec.Barrier("target", near, far, port)))
        # Looked at a last time while the barrier stands: what ends with the link may then be in clear.
        stack.callback(watching.finish)
        return bait.Control(seen_in_clear=seen, blocked=bait.stop(watching, witnesses))

    def _open(
        self,
        proposal: Proposal,
        path: links.LinkPath,
        witnesses: witness.Witnesses,
        stack: contextlib.ExitStack,
        raw: Path,
    ) -> dict[str, str]:
        """Open the tunnel through the barrier."""
        plan = self.plan
        near, far = path.initiator_address, path.target_address
        for host, local, remote in ((path.initiator, near, far), (path.target, far, near)):
            made = ipsec.SecurityAssociations(local, remote, path.index, path.is_shared)
            stack.enter_context(self.journal.hold(host, made))
        if self._credentials is None:
            self._credentials = ipsec.make_credentials(
                self.hosts.initiators[0],
                plan.ike_auth,
                self.private / "certificates",
                paths=len(self._paths),
            )
        # A host's charon serves all its columns; that of a network namespace goes with its column.
        stays = path.target.netns is None
        stack.enter_context(
            ipsec.tunnel(
                path,
                (
                    self._charon(path.initiator, charon.ANY_PORT, self._shared, self.folder),
                    self._charon(path.target, ipsec.IKE_PORT, self._shared if stays else stack, raw),
                ),
                name=f"harness-{self.plan.tag}-{path.index}",
                proposal=proposal,
                mode=plan.ipsec_mode,
                credentials=self._credentials,
            )
        )
        return ipsec.negotiated(path.initiator, witnesses.look(), proposal, plan.ipsec_mode)

    def _clear(self, path: links.LinkPath, stack: contextlib.ExitStack) -> None:
        """Keep IPsec of the user's own off a path that is to have none."""
        ends = (path.initiator_address, path.target_address)
        for end, host in zip(ENDS, (path.initiator, path.target), strict=True):
            # Not where there is none: the kernel would begin to look up policies for every packet.
            if ipsec.is_joined(host, path):
                stack.enter_context(self.journal.hold(host, ipsec.Clearance(end, *ends, path.port)))

    def _charon(self, host: Host, port: int, stack: contextlib.ExitStack, logs: Path) -> charon.Charon:
        """The charon of a host or network namespace, started if it does not run (any more)."""
        name = f"charon-{host.netns or host.name}"
        running = self._charons.get(name)
        if running is None or not running.answers():
            plugins = sorted({name for p in self.plan.proposals.values() for name in p.charon_plugins})
            running = self._charons[name] = stack.enter_context(
                charon.running(
                    host,
                    self.private / name,
                    log=logs / f"charon-{host.name}.log",
                    plugins=" ".join((charon.BASE_PLUGINS, *plugins)),
                    port=port,
                )
            )
        return running
