"""Records and plans from flat facts: tests name a link or a clock, and the model says where that belongs."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from harness.model import (
    Ciphers,
    Clock,
    Column,
    DiskProfile,
    IpsecMode,
    LabKernel,
    OtherKernel,
    Plan,
    Record,
    Setting,
    Storage,
    TestbedKind,
    Workload,
)
from harness.results.probe_records import ProbeRecord

T = TypeVar("T", Record, ProbeRecord, Plan)
Facts = dict[str, Any]
GROUPS = {"setting": Setting, "column": Column, "workload": Workload, "storage": Storage}
WORDS = {
    "testbed": TestbedKind,
    "clock": Clock,
    "lab_kernel": LabKernel,
    "ciphers": Ciphers,
    "mode": IpsecMode,
}


def record(**facts: Any) -> Record:
    """A record of these facts."""
    return Record(**_grouped(facts, Record))


def probe_record(**facts: Any) -> ProbeRecord:
    """A probe's record of these facts."""
    return ProbeRecord(**_grouped(facts, ProbeRecord))


def plan(**facts: Any) -> Plan:
    """A plan of these facts."""
    return Plan(**_grouped(facts, Plan))


def changed(was: T, **facts: Any) -> T:
    """The same with other facts."""
    return msgspec.structs.replace(was, **_grouped(facts, type(was), was))


def _grouped(facts: Facts, of: type[msgspec.Struct], was: Any = None) -> Facts:
    """The facts of each group in a struct of it: a new one, or ``was``'s changed."""
    facts = _named(facts)
    disk = facts.get("disk")
    for group, kind in GROUPS.items():
        if group not in of.__struct_fields__:
            continue
        found = {name: facts.pop(name) for name in kind.__struct_fields__ if name in facts}
        if group == "setting" and isinstance(disk, DiskProfile):
            found["disk"], facts["disk"] = disk.name, disk
        if was is None and group not in facts:
            facts[group] = kind(**found)
        elif found:
            facts[group] = msgspec.structs.replace(getattr(was, group), **found)
    return facts


def _named(facts: Facts) -> Facts:
    """The facts by the model's names, with its words."""
    facts = dict(facts)
    for name, known in (("ipsec_mode", "mode"), ("workload", "name")):
        if name in facts and not isinstance(facts[name], Workload):
            facts[known] = facts.pop(name)
    if "virtual_time" in facts:
        facts["clock"] = Clock.VIRTUAL if facts.pop("virtual_time") else Clock.REAL
    for name, words in WORDS.items():
        if isinstance(facts.get(name), str):
            facts[name] = words(facts[name])
    if isinstance(other := facts.get("other_kernel"), str):
        release, _, key = other.partition(" ")
        facts["other_kernel"] = OtherKernel(release=release, key=key) if other else None
    return facts
