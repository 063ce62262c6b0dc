"""What a plan has of faults: one for each of its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.model import BackingKind, Duplex, Plan, Record, kinds
from harness.model.errors import UsageError
from harness.model.protections import MADE, PROTECTIONS
from harness.model.ranges import Amount
from harness.model.texts import Name, Parameter, ParameterValue
from harness.model.units import unknown_name
from harness.parse import parameters
from harness.results.sections import Section

OF_CABLES = (
    *("link-down", "initiator-link-down", "hop-down"),
    *("loss-1", "loss-10", "loss-100", "loss-100-to-target", "loss-100-to-initiator"),
    *("delay-10x", "delay-100x"),
)
"""An interface is down, of an end or of a hop; packets are lost, in per cent, both ways or one; a round trip
is longer."""

OF_THE_AIR = ("ap-restarted", "out-of-range")
"""An access point is killed and back, or no radio hears another."""

ROAM = "roam"
"""A station associates anew, with the access point that there is."""

OF_DISKS = {"disk-errors": ("sata-ssd", False), "disk-stalls": ("hdd-7200", True)}
"""A modelled disk answers with errors, or not at all: one like this, and whether it has moving parts."""

OF_DAEMONS = (
    *("ike-daemon-killed", "ike-daemon-stopped"),
    *("endpoint-changed", "handshakes-blocked", "key-server-gone"),
    *("handshake-daemon-killed", "handshake-daemon-stopped"),
)
"""The target's IKE daemon does not answer. The initiator looks for its peer elsewhere, agrees on no new keys
with it, or its daemon does not answer. The target's tlshd answers no new connection."""

WITH_RESET = ("login-refused", "handshake-daemon-killed", "handshake-daemon-stopped")
"""Only a new connection misses what is gone: these begin with a reset."""

LASTING = (*OF_CABLES, *OF_THE_AIR, "target-down", "login-refused", *OF_DISKS, *OF_DAEMONS)
"""Faults that last for a time. The others: the target's server has no connections and takes none, or resets
one and refuses the next."""

OF_OWN_LINKS = ("hop-down", *OF_THE_AIR, ROAM, "loss-1", "loss-10", "delay-10x", "delay-100x")
"""Of these, what a run does to links that are its own."""

OF_OWN_END = ("initiator-link-down", "loss-100-to-initiator")
"""Of these, what an initiator can do alone, with a portal of somebody else's target."""

REBOOT = "target-rebooted"
"""The target boots anew, which takes as long as it takes; then the run makes there what it had made."""

MOMENTARY = (ROAM, "connection-reset", REBOOT, "sa-deleted", "rekey-ike", "rekey-child")
"""Faults without a time of their own. The target resets TCP's connections, or loses the associations of
IPsec; new keys."""

KINDS = (*LASTING, *MOMENTARY)

SHORTEST_S, LONGEST_S = 0.1, 600.0
REBOOT_S = 600.0
"""A machine that has not booted by then is lost."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``KINDS``, and how long it lasts: 0 for one of a moment. ``parameters`` of the session are set
    for its cells alone."""

    kind: Name
    lasts_s: Amount = 0.0
    parameters: dict[Parameter, ParameterValue] = {}

    @property
    def name(self) -> str:
        """As it is typed."""
        return f"{self.kind}:{self.lasts_s:g}s" if self.lasts_s else self.kind

    @property
    def most_s(self) -> float:
        """How long it may last."""
        return REBOOT_S if self.kind == REBOOT else self.lasts_s


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``of_jobs`` has each job's fault. The load begins ``before_s`` before it, and goes on after it until it
    is on time again, for ``after_s`` at most."""

    of_jobs: dict[Name, Fault]
    before_s: Amount = 3.0
    after_s: Amount = 60.0


class FaultSection(Section[Faults]):
    name = "fault"
    holds = Faults
    has_open_loop = True

    def check(self, plan: Plan) -> None:
        faults = self.of(plan).of_jobs
        if {job.name for job in plan.jobs} != {*faults}:
            raise UsageError("expected a fault for each job")
        for fault in faults.values():
            if fault.kind not in KINDS:
                raise unknown_name("fault", fault.kind, KINDS)
            if fault.kind in MOMENTARY:
                if fault.lasts_s:
                    raise UsageError(f"expected {fault.kind} without a time, found {fault.name}")
            elif not SHORTEST_S <= fault.lasts_s <= LONGEST_S:
                raise UsageError(
                    f"expected a fault of {SHORTEST_S:g} to {LONGEST_S:g} s, found {fault.name}",
                    hint=f"try {fault.kind}:5s",
                )
        for column, job in plan.places:
            if faults[job].parameters and column.transport in kinds.TRANSPORTS:
                asked = plan.parameters_of(column.transport) | faults[job].parameters
                words = [f"{name}={value}" for name, value in asked.items()]
                if parameters.parse(column.transport, words) != asked:
                    raise UsageError(f"expected parameters as they are agreed on, found {', '.join(words)}")
        has_machines = plan.capabilities.has_machines
        for fault in faults.values():
            if has_machines and fault.kind in OF_OWN_LINKS:
                raise UsageError(
                    f"expected a lab for {fault.kind}, because it changes a link for all who use it, "
                    f"found {plan.capabilities.typed}",
                    hint="leave --target out",
                )
            if fault.kind == REBOOT:
                _require_rebootable(plan)
            disk = plan.storage.disk
            like, has_parts = OF_DISKS.get(fault.kind, ("", None))
            if like and (disk is None or (disk.moving is not None) is not has_parts):
                raise UsageError(
                    f"expected a disk like {like} for {fault.kind}, found {disk.name if disk else 'none'}",
                    hint=f"try --disk {like} --rate 30",
                )
        if any(column.initiators > 1 for column in plan.columns):
            raise UsageError("expected one initiator, found several")
        if not plan.sees_target:
            if plan.storage.black_box is None or not plan.only_reads:
                raise UsageError("expected a portal that is only read", hint="leave --destroy out")
            for fault in faults.values():
                if fault.kind not in OF_OWN_END:
                    raise UsageError(
                        f"expected a fault at the initiator's end, because the target is somebody else's, "
                        f"found {fault.kind}",
                        hint=f"try {OF_OWN_END[0]}:5s",
                    )
        of_cable = next((fault.kind for fault in faults.values() if fault.kind in OF_CABLES), None)
        for link in plan.links.values():
            if of_cable and (plan.has_radio(link) or link.duplex is Duplex.HALF):
                raise UsageError(
                    f"expected a cable, full duplex, for {of_cable}, found {link.name}",
                    hint=f"try --link wired, or for WiFi --fault {OF_THE_AIR[0]}:5s",
                )
        if not (has_machines or plan.capabilities.boots_one_kernel):
            raise UsageError(
                f"expected machines, or a lab with one kernel, found {plan.capabilities.typed}",
                hint="leave --testbed and --kernels out",
            )

    def is_apart(self, record: Record) -> bool:
        return record.stall is not None

    def tables(self, records: Sequence[Record]) -> list[str]:
        from harness.questions.fault.printed import table

        return [table(records)]

    def charts(self, records: Sequence[Record], folders: Mapping[str, Path]) -> list[Any]:
        from harness.questions.fault.drawn import charts

        return [*charts(records, folders)]

    def found(self, plan: Plan, records: Sequence[Record]) -> list[Any]:
        from harness.questions.fault.printed import answers

        return [*answers([record for record in records if record.run_id == plan.run_id])]

    def sentences(self, _plan: Plan, records: Sequence[Record]) -> list[str]:
        from harness.questions.fault.printed import sentences

        return [*sentences(records)]


def _require_rebootable(plan: Plan) -> None:
    """UsageError if a target is not a machine of its own whose file is there after it has booted."""
    target = plan.machines.target if plan.machines else None
    if target is None or target == "local":
        raise UsageError(
            f"expected another machine as the target for {REBOOT}, found {target or plan.capabilities.typed}",
            hint="try --target ssh://root@server",
        )
    backing = plan.storage.backing
    gone = ("/tmp/", "/run/", "/dev/")  # noqa: S108 -- those are refused
    if backing.kind is not BackingKind.FILE or (backing.path or "").startswith(gone):
        raise UsageError(
            f"expected a file that outlasts a reboot for {REBOOT}, found {backing.path or backing.kind}",
            hint="leave --backing out, or name a file of a disk",
        )
    made_again = [name for name in MADE if PROTECTIONS[name].is_made_again]
    names = (name for column in plan.columns for name in column.protection if name in PROTECTIONS)
    if other := next((name for name in names if name not in made_again), None):
        raise UsageError(
            f"expected protections for {REBOOT} that a run makes again on a target that has booted "
            f"({', '.join(['ESP', *made_again])}), found {PROTECTIONS[other].title}",
            hint=f"leave --protect {other} out",
        )


SECTION = FaultSection()
OFFERED = (SECTION,)
