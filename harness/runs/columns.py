"""Columns as paths: link and protection, brought up and taken down. This module does not know what uses
them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis.wire import framing_of
from harness.hosts import Host
from harness.hosts.black_box import BlackBoxHost
from harness.hosts.journal import Journal
from harness.model import DEFAULT_TRANSPORT, ENDS, PROTECTION_OFF, Column, LinkProfile, Plan
from harness.model.errors import CommandFailed
from harness.network import air, links, paths
from harness.observe import counters
from harness.probes import emulation
from harness.protection import (
    canary,
    capture,
    fail_closed,
    kinds,
    proof,
    xfrm,
    xfrm_listener,
)
from harness.protection.kind import ProtectionContext, ProtectionDriver, Underlay
from harness.protection.layer import HEADER_BYTES, Layer
from harness.results.events import Emit, Phase
from harness.storage import transports

if TYPE_CHECKING:
    from harness.network.air.kind import AirPath
    from harness.observe.hops import AskedHop, Hop


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The hosts of a run. Several may share a kernel. ``hops`` are between them; the run only reads their
    counters."""

    target: Host
    initiators: tuple[Host, ...]
    hops: tuple[Hop | AskedHop, ...] = ()

    @property
    def all(self) -> tuple[Host, ...]:
        """Those that are seen."""
        return self.initiators if isinstance(self.target, BlackBoxHost) else (*self.initiators, self.target)

    def observer(self, emit: Emit, *, energy: bool = True) -> counters.Observer:
        """What watches all of them, including hops. It reports a lost hop through ``emit``."""
        return counters.Observer(self.all, self.hops, energy=energy, tell=lambda text: emit(Phase(text)))


@dataclass(frozen=True, kw_only=True)
class ColumnPath:
    """The path of one initiator in a column: up, protected as the column says, and watched.

    ``link`` is the link, ``path`` is the path of the portal's connection, within all protections. ``watched``
    has each protection's layer, the outermost first, or the bare link. ``agreed`` is what the ends
    negotiated, and ``control`` the result of the positive control, for each protection by its name.
    """

    link: links.LinkPath
    path: links.LinkPath
    watched: tuple[proof.CapturedLayer, ...]
    agreed: dict[str, dict[str, str]] = field(default_factory=dict)
    control: dict[str, canary.Control] = field(default_factory=dict)
    air_path: AirPath | None = None

    @property
    def has_tls(self) -> bool:
        """Whether the portal's connections are to be protected themselves."""
        return any(each.is_transports for each in kinds.each_of(self.agreed))

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(each.layer for each in self.watched if each.layer is not None)


class Columns:
    """The paths of a run. ``private`` is a folder for sockets and secrets, which vanishes with the
    testbed."""

    def __init__(self, plan: Plan, folder: Path, *, hosts: Hosts, journal: Journal, private: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.hosts = hosts
        self.journal = journal
        self.private = private
        self._kinds: dict[str, ProtectionDriver] = {}
        self._shared = contextlib.ExitStack()
        self.made: list[links.LinkPath] = []
        """All paths that were brought up, including those that are down again."""
        self.emulation_ns: dict[str, float] = {}
        """What the emulation of each link adds to a round trip (``probes.emulation``), by the link's name."""

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """What all paths share while the context lasts: radios, and charons when they are needed."""
        with contextlib.ExitStack() as self._shared:
            self._kinds = kinds.of_run(
                ProtectionContext(
                    plan=self.plan,
                    initiator=self.hosts.initiators[0],
                    journal=self.journal,
                    private=self.private,
                    folder=self.folder,
                    shared=self._shared,
                    paths=len(self._paths),
                )
            )
            if self._air_paths:
                radios = air.simulated().radios(len(self._air_paths))
                self._shared.enter_context(self.journal.hold(self.hosts.initiators[0], radios))
            yield

    def bring_up(self, column: Column, number: int, stack: contextlib.ExitStack) -> ColumnPath:
        """The path of the column's ``number``-th initiator. It is taken down with ``stack``."""
        raw = self.folder / "columns" / column.label
        if number:
            raw /= self.hosts.initiators[number].name
        raw.mkdir(parents=True, exist_ok=True)
        air_path = None
        if self.plan.has_radio(self.plan.links[column.link]):
            air_path = stack.enter_context(self._through_air(column, number, raw))
        link = air_path.path if air_path else stack.enter_context(self._link(column, number, raw))
        if not link.is_shared:
            link = dataclasses.replace(link, port=self._port(column))
        self.made.append(link)
        # Before any protection, and before a capture looks for what does not belong there. In virtual time
        # it would be nothing, and to measure it would change the run.
        if self.plan.probes and not self.plan.setting.is_virtual and not number:
            found, known_ns = emulation.round_trip_ns(link), self.emulation_ns.get(column.link)
            if found is not None:
                # The least counts: other programs only add to it.
                self.emulation_ns[column.link] = found if known_ns is None else min(known_ns, found)
        if column.protection and not link.sees_target:
            return self._pre_existing(column, link, stack, raw)
        if not column.protection:
            if link.is_shared and link.sees_target:
                self._clear(link, stack)
            frames = kinds.foreign_frames(link)
            watching = stack.enter_context(capture.capture(link, raw, frames, protected=False))
            watched = proof.CapturedLayer(path=link, capture=watching)
            return ColumnPath(link=link, path=link, watched=(watched,), air_path=air_path)
        return self._protected(column, link, air_path, stack, raw)

    def _pre_existing(
        self, column: Column, path: links.LinkPath, stack: contextlib.ExitStack, raw: Path
    ) -> ColumnPath:
        """Watch the protections that somebody else has set up on the way to a portal; nothing is changed, but
        that a connection of the user's comes up for the column.

        CommandFailed if they are not those of the plan any more.
        """
        from harness.protection import pre_existing  # here, because a run has most protections made

        if (black_box := self.plan.storage.black_box) is not None and black_box.swanctl:
            host, journal, place = path.initiator, self.journal, self.private / f"ike-{path.index}"
            stack.enter_context(
                kinds.connected(
                    host,
                    black_box.swanctl,
                    index=path.index,
                    journal=journal,
                    folder=place,
                    log=self.folder / f"ike-{host.name}.log",
                )
            )
        protection = pre_existing.protection_to(
            path.initiator, path.target_address, path.port, path.initiator_iface
        )
        if protection.names != column.protection or None in (step.below for step in protection.steps):
            found = "; ".join(["+".join(protection.names) or PROTECTION_OFF, *protection.notes])
            raise CommandFailed(
                f"expected {'+'.join(column.protection)} on the path to {path.target_address}, as when "
                f"the run was planned, found {found}",
                hint="restore it and resume the run, or begin a new one",
            )
        watched: list[proof.CapturedLayer] = []
        within = path
        for step in reversed(protection.steps):
            folder = raw / step.found.name if watched else raw
            folder.mkdir(exist_ok=True)
            below = step.path_below(within)
            watching = stack.enter_context(
                capture.capture(
                    below,
                    folder,
                    step.found.frames,
                    protected=True,
                    within=path,
                    has_tags=step.is_ethernet,
                )
            )
            stack.callback(watching.finish)
            layer = stack.enter_context(step.watch(below, within, folder))
            layer.agreed.update(step.found.agreed)
            watched.insert(
                0,
                proof.CapturedLayer(
                    path=below, capture=watching, layer=layer, portal=path, is_hidden=step.is_hidden
                ),
            )
            within = below
        return ColumnPath(
            link=within,
            path=path,
            watched=tuple(watched),
            agreed={step.found.name: step.found.agreed for step in protection.steps},
        )

    def _protected(
        self,
        column: Column,
        link: links.LinkPath,
        air_path: AirPath | None,
        stack: contextlib.ExitStack,
        raw: Path,
    ) -> ColumnPath:
        """Put a column's protections over a link, the outermost first, each over the one before."""
        path, mtu_bytes = link, link.profile.mtu_bytes
        up: list[tuple[Layer, capture.Capture]] = []
        control: dict[str, canary.Control] = {}
        for level, name in enumerate(column.protection):
            kind, folder = self._kinds[name], raw / name if level else raw
            folder.mkdir(exist_ok=True)
            listeners = stack.enter_context(xfrm_listener.listeners(path, folder))
            underlay = Underlay(below=path, level=level, mtu_bytes=mtu_bytes, listeners=listeners, raw=folder)
            watching = stack.enter_context(
                capture.capture(path, folder, kind.frames(underlay), protected=True)
            )
            # Before the fail-closed policies, so that it would see what leaves while there are none.
            watch_again = functools.partial(watching.again, "target")
            stack.enter_context(self.journal.each_boot(path.target, watch_again))
            # Within the transport's connections a segment that is none of them shows nothing.
            shown = xfrm_listener.CONVERSE if kinds.named(name).is_transports else xfrm_listener.TRY_CONNECT
            control[name] = self._close(path, watching, listeners, stack, shown=shown, is_overlay=level > 0)
            layer = stack.enter_context(kind.protect(underlay))
            up.append((layer, watching))
            if layer.within is not path:
                self.made.append(layer.within)
            framing = framing_of([name], self.plan.proposals, self.plan.ipsec_mode, mtu_bytes, path.ip)
            path, mtu_bytes = layer.within, framing.inner_mtu_bytes(mtu_bytes) if framing else mtu_bytes
        if path is not up[-1][0].below:
            from harness.protection import overlay  # here and below, because most protections keep the path

            stack.enter_context(overlay.passing(self.journal, path))
        headers = [air_path.header_bytes if air_path else HEADER_BYTES]
        headers += [layer.header_bytes for layer, _ in up]
        return ColumnPath(
            link=link,
            path=path,
            watched=tuple(
                proof.CapturedLayer(
                    path=layer.below, capture=watching, layer=layer, portal=path, header_bytes=header_bytes
                )
                for (layer, watching), header_bytes in zip(up, headers, strict=False)
            ),
            agreed={name: layer.agreed for name, (layer, _) in zip(column.protection, up, strict=True)},
            control=control,
            air_path=air_path,
        )

    @property
    def _paths(self) -> list[tuple[Column, int]]:
        """Every (column, initiator) that has a link; the position in the list is the index of its path."""
        return [
            (column, number)
            for column in self.plan.columns
            if column.has_path
            for number in range(column.initiators)
        ]

    @staticmethod
    def _port(column: Column) -> int:
        """The port of the column's transport."""
        return transports.named(column.transport or DEFAULT_TRANSPORT).port

    def _through_air(
        self, column: Column, number: int, logs: Path
    ) -> contextlib.AbstractContextManager[AirPath]:
        plan, index = self.plan, self._paths.index((column, number))
        place = self._place(self.hosts.initiators[number], plan.links[column.link], index)
        folders = links.Folders(private=self.private / f"wifi-{index}", logs=logs)
        of_these = self._air_paths.index((column, number))
        return air.simulated().bring_up(place, plan.wifi_security, of_these, folders)

    @property
    def _air_paths(self) -> list[tuple[Column, int]]:
        links = self.plan.links
        return [path for path in self._paths if self.plan.has_radio(links[path[0].link])]

    def _place(self, host: Host, profile: LinkProfile, index: int) -> links.LinkPlace:
        is_virtual = self.plan.setting.is_virtual
        return links.LinkPlace(self.journal, host, profile, self.plan.tag, index, frame_by_frame=is_virtual)

    def _link(
        self, column: Column, number: int, logs: Path
    ) -> contextlib.AbstractContextManager[links.LinkPath]:
        """The link of one initiator: real, or made as its profile says."""
        plan, host, target = self.plan, self.hosts.initiators[number], self.hosts.target
        profile = plan.links[column.link]
        index = self._paths.index((column, number))
        if plan.storage.black_box is not None or profile.interface is not None:
            from harness.network import interfaces  # here and below, because most links are emulated

        if plan.storage.black_box is not None:
            port = plan.storage.black_box.port
            return contextlib.nullcontext(interfaces.to_portal(host, profile, index=index, port=port))
        if profile.interface is not None:
            # All columns of an interface share its address, so each has a port, and policies separate them by
            # it. Not the first port: the machine may have a target of its own, which listens on every
            # address.
            port = self._port(column) + xfrm.PORTS_COVERED * (1 + plan.columns.index(column))
            return interfaces.bring_up(
                self.journal, host, target, profile, index=index, port=port, tag=plan.tag
            )
        place = self._place(host, profile, index)
        if not plan.capabilities.shares_kernel:
            from harness.network import trunk

            return trunk.bring_up(place, target, initiator_trunk="vec0", target_trunk=f"vec{number}")
        if profile.hops is not None:
            folders = links.Folders(private=self.private / f"path-{index}", logs=logs)
            return paths.bring_up(place, folders)
        return links.bring_up(place, first=index - number if number else None)

    def _close(
        self,
        path: links.LinkPath,
        watching: capture.Capture,
        listeners: xfrm_listener.XfrmListeners,
        stack: contextlib.ExitStack,
        *,
        shown: int,
        is_overlay: bool,
    ) -> canary.Control:
        """Close the fail-closed policy, and test it with a canary: before and behind it."""
        near, far, port = path.initiator_address, path.target_address, path.port
        with contextlib.ExitStack() as meanwhile:
            if path.is_shared:
                self._clear(path, meanwhile)
            if is_overlay:
                from harness.protection import overlay

                meanwhile.enter_context(overlay.passing(self.journal, path))
            seen = canary.show(watching, listeners, shown)
        stack.enter_context(
            self.journal.hold(path.initiator, xfrm.IpsecFailClosed("initiator", near, far, port))
        )
        stack.enter_context(self.journal.hold(path.target, xfrm.IpsecFailClosed("target", near, far, port)))
        for host, connections in fail_closed.Connections.at_the_ends_of(path):
            stack.enter_context(self.journal.hold(host, connections))
        # Checked a last time while the fail-closed policy stands.
        stack.callback(watching.finish)
        return canary.Control(seen_in_clear=seen, blocked=canary.stop(watching, listeners))

    def _clear(self, path: links.LinkPath, stack: contextlib.ExitStack) -> None:
        """Keep the user's own IPsec off a path without protection."""
        ends = (path.initiator_address, path.target_address)
        for end, host in zip(ENDS, (path.initiator, path.target), strict=True):
            # Only if there is any: otherwise the kernel would begin to look up policies for every packet.
            if xfrm.is_joined(host, path):
                stack.enter_context(self.journal.hold(host, xfrm.Bypass(end, *ends, path.port)))
