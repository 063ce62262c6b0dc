"""Records of probes: the types in ``results/<run id>/probes/<key>.json``.

What a tool did not report is None.
"""

from __future__ import annotations

import msgspec

from harness.model import SCHEMA_VERSION, Column, Setting, Status, is_unencrypted
from harness.model.probing import Figures, Probe
from harness.model.ranges import Amount, Count
from harness.model.telemetry import BackgroundLoad, InterfaceUse, ProcessorUse
from harness.model.texts import HostName, Name, Prose, RunFile, RunId, Title


class ProbeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One probe of one path, once: ``results/<run id>/probes/<key>.json``.

    Use only figures of records with status ok. ``raw`` are the tools' outputs in the run's folder,
    unmodified. ``processors``, ``interfaces`` and ``background_load`` cover the time in which the tools ran.
    ``lost_hops`` are the hops for which they are unknown, each with the reason. ``protected_bytes`` is what
    the protection carried, by the counters of the end that counted less; None without any. ``is_from_run``
    marks a probe that ``harness run`` made between its cells, for a shorter time than ``harness probe``
    would. ``overrides`` are copied from its plan.
    """

    run_id: RunId
    setting: Setting
    column: Column
    probe: Probe
    repeat: Count
    order: Count
    status: Status
    reason: Prose | None = None
    warnings: tuple[Prose, ...] = ()
    figures: Figures | None = None
    processors: tuple[ProcessorUse, ...] = ()
    interfaces: tuple[InterfaceUse, ...] = ()
    background_load: tuple[BackgroundLoad, ...] = ()
    lost_hops: dict[HostName, Prose] = {}
    protected_bytes: Count | None = None
    started_unix_s: Amount = 0.0
    wall_ns: Count = 0
    emulated: bool = False
    link_title: Title = ""
    encrypts: bool | None = None
    agreed: dict[Name, dict[Prose, Prose]] = {}
    raw: tuple[RunFile, ...] = ()
    is_from_run: bool = False
    overrides: tuple[Prose, ...] = ()
    schema: int = SCHEMA_VERSION

    @property
    def is_protected(self) -> bool:
        return bool(self.column.protection)

    @property
    def shown(self) -> str:
        """The name of its column for people."""
        return self.column.shown(is_unencrypted=is_unencrypted(self.encrypts, self.agreed))

    @property
    def key(self) -> str:
        """File name stem, unique in its run."""
        return probe_key(self.column, self.probe, self.repeat)


def probe_key(column: Column, probe: Probe, repeat: int) -> str:
    """File name stem of a probe's record."""
    return f"{column.label}.{probe.name}.r{repeat}"
