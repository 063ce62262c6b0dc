"""What was written by earlier versions, as this one writes it: one function for each version.

Each takes the decoded JSON of its version and returns that of the next. A field that was renamed is moved, so
it never reads as its default. ``docs/results.md`` lists what changed with each version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from harness.model.renamed import PROFILES

FileKind = Literal["record", "plan", "probe"]
Json = dict[str, Any]

PROOF_OF_1 = {
    "esp_bytes": "protected_bytes",
    "esp_bytes_initiator": "protected_bytes_initiator",
    "esp_bytes_target": "protected_bytes_target",
    "esp_packets_sampled": "packets_sampled",
    "esp_packets_due": "packets_due",
    "esp_sampling": "sampling",
}
"""Fields of a proof in version 1, with their names in version 2."""


MISSHAPEN = (TypeError, KeyError, AttributeError, ValueError)
"""What ``upgraded`` raises for what is not of the shape that its version has."""


def upgraded(kind: FileKind, data: Json, version: int, wanted: int) -> Json:
    """``data``, of that version (from 1), as JSON of the version ``wanted``.

    One of ``MISSHAPEN`` if it is not of the shape that its version has.
    """
    for number in range(max(version, 1), wanted):
        data = _STEPS[number](kind, data)
        data["schema"] = number + 1
    return data


def _from_1(kind: FileKind, data: Json) -> Json:
    """``ipsec``, one name, became ``protection``, a list; ``esp`` became ``agreed``, by protection."""
    if kind == "plan":
        columns = [_column(column) for column in data["columns"]]
        return {**data, "columns": columns}
    agreed = data.get("esp") or {}
    found = _column(data)
    found = {name: value for name, value in found.items() if name != "esp"}
    found["agreed"] = {data["ipsec"]: agreed} if agreed else {}
    if kind == "probe":
        return _renamed(found, {"esp_bytes": "protected_bytes"})
    parts = [data, *data.get("clients", ())]
    proofs = [_renamed(part["proof"], PROOF_OF_1) if part.get("proof") else None for part in parts]
    found["proof"] = proofs[0]
    if "clients" in data:
        found["clients"] = [
            {**part, "proof": proof} for part, proof in zip(parts[1:], proofs[1:], strict=True)
        ]
    return found


def _column(data: Json) -> Json:
    """What names a column; the transport was iSCSI, or none for the local disk and fio's own outputs."""
    ipsec = data["ipsec"]
    is_local = data["link"] == "local" or data.get("source") == "fio"
    rest = {name: value for name, value in data.items() if name != "ipsec"}
    return {
        **rest,
        "protection": [] if ipsec == "off" else [ipsec],
        "transport": None if is_local else "iscsi",
    }


def _renamed(data: Json, names: Mapping[str, str]) -> Json:
    return {names.get(name, name): value for name, value in data.items()}


_SETTING = ("testbed", "source", "clock", "lab_kernel", "ciphers", "disk")
_COLUMN = ("link", "protection", "transport", "initiators")
_STORAGE = ("backing", "disk", "local_device", "shared_lun")
_GONE = {*_SETTING, *_COLUMN, *_STORAGE, "ip", "ipsec_mode", "virtual_time", "other_kernel"}
_GONE |= {"kernels_apart", "workloads", "block_bytes"}


def _from_2(kind: FileKind, data: Json) -> Json:
    """What says where, and over what, something was measured came to stand together: ``setting``,
    ``column`` and ``workload``; in a plan ``setting``, ``storage`` and ``jobs``."""
    setting = {**_of(data, _SETTING), **_setting_of(kind, data)}
    if data["testbed"] == "lab" and not data.get("lab_kernel"):
        setting["lab_kernel"] = "debian"  # before there was another
    rest = {name: value for name, value in data.items() if name not in _GONE}
    return {"setting": setting, **rest, **(_grouped_plan(data) if kind == "plan" else _grouped(kind, data))}


def _setting_of(kind: FileKind, data: Json) -> Json:
    """What a setting was called by other names."""
    other, found = data.get("other_kernel"), {}
    if kind == "plan":
        disk = data.get("disk")
        found = {
            "clock": "virtual" if data.get("virtual_time") else "real",
            "disk": disk["name"] if disk else "",
        }
    elif other:
        release, _, key = other.partition(" ")  # at first it was the release alone
        other = {"release": release, "key": key}
    return {**found, "other_kernel": other or None}


def _grouped_plan(data: Json) -> Json:
    if bool(data.get("kernels_apart")) is not (bool(data.get("machines")) and data["testbed"] == "lab"):
        raise ValueError("each of the lab's hosts is a machine if its kernel is its own")
    links, mode = data["links"], data.get("ipsec_mode")
    columns = [_column_of(each, links.get(each["link"], {}).get("ip"), mode) for each in data["columns"]]
    return {"columns": columns, "jobs": data["workloads"], "storage": _of(data, _STORAGE)}


def _grouped(kind: FileKind, data: Json) -> Json:
    found: Json = {"column": _column_of(data, data.get("ip"), data.get("ipsec_mode"))}
    if kind == "record":
        found["workload"] = {"name": data["workload"], "block_bytes": data.get("block_bytes")}
    return found


def _of(data: Json, names: Iterable[str]) -> Json:
    return {name: data[name] for name in names if name in data}


def _column_of(data: Json, ip: object, mode: object) -> Json:
    return {**_of(data, _COLUMN), "ip": 4 if ip is None else ip, "mode": mode}


_USES = {
    "processors": {"hottest": "busiest_core", "processors": "cores"},
    "others": {"beside": "sibling_busy", "processors": "used"},
}
"""Lists of what was measured during a cell or a probe, with the fields that were renamed in version 4."""


def _from_3(kind: FileKind, data: Json) -> Json:
    """What was measured during a cell was ``beside`` it, and so was a probe that ``harness run`` made."""
    if kind == "plan":
        return data
    if kind == "probe":
        return _with_ciphers(_with_uses(_renamed(data, {"is_beside": "is_from_run"})))
    telemetry = data.get("beside")
    rest = {name: value for name, value in data.items() if name != "beside"}
    found = {**rest, "telemetry": telemetry and _with_uses(telemetry)}
    return {**found, "workload": _renamed(data["workload"], {"jobs": "numjobs"})}


def _with_uses(data: Json) -> Json:
    uses = {name: [_renamed(use, _USES[name]) for use in data[name]] for name in _USES.keys() & data.keys()}
    return _renamed({**data, **uses}, {"unseen": "lost_hops"})


def _with_ciphers(data: Json) -> Json:
    """A stand-alone cipher's kernel has ``cores``, as telemetry says it."""
    figures = data.get("figures")
    if not figures or figures.get("type") != "cipher":
        return data
    kernels = [_renamed(each, {"processors": "cores"}) for each in figures["kernels"]]
    return {**data, "figures": {**figures, "kernels": kernels}}


def _from_4(kind: FileKind, data: Json) -> Json:
    """Our own words gave way to the field's."""
    data = _within(data, "setting", {}, _VALUES)
    if kind != "plan":
        found = _renamed(data, _LOAD) if kind == "probe" else _within(data, "telemetry", _LOAD)
        found = _renamed(_within(found, "proof", _PROOF), _OVERRIDES)
        if clients := found.get("clients"):
            found["clients"] = [_within(each, "proof", _PROOF) for each in clients]
        return {**found, "column": _pre_existing(found["column"])}
    found = _renamed(
        _within(data, "storage", {"reached": "black_box"}), _OVERRIDES | {"charges": "simulated_cpu_costs"}
    )
    if (asked := found.get("sweep")) and asked.get("goals"):
        goals = [_renamed(goal, {"of": "metric"}) for goal in asked["goals"]]
        found = {**found, "sweep": {**asked, "goals": goals}}
    columns = [_pre_existing(column) for column in found["columns"]]
    return {**found, "columns": columns, "profile": PROFILES.get(found["profile"], found["profile"])}


_LOAD = {"others": "background_load"}
_OVERRIDES = {"stand_ins": "overrides"}
_PROOF = {"control_frames": "control_plane_frames", "packets_due": "packets_expected"}

_VALUES = {"lab_kernel": {"own": "custom"}, "ciphers": {"machine": "accelerated", "portable": "generic"}}
"""New values, by key and old value."""


def _within(
    data: Json, name: str, names: Mapping[str, str], values: Mapping[str, Mapping[str, str]] | None = None
) -> Json:
    """With the keys, and the values of keys, of what is in ``name`` renamed, if it is there."""
    if not data.get(name):
        return data
    inner = _renamed(data[name], names)
    new = {key: of.get(inner[key], inner[key]) for key, of in (values or {}).items() if key in inner}
    return {**data, name: {**inner, **new}}


def _pre_existing(column: Json) -> Json:
    protection = ["pre-existing" if each == "as-found" else each for each in column.get("protection", ())]
    return {**column, "protection": protection} if protection else column


_PARAMETERS_OF_5 = {"iscsi": "iscsi", "nvme": "nvme-tcp"}
"""Fields of a plan in version 5, each with its transport."""


def _from_5(kind: FileKind, data: Json) -> Json:
    """What a question adds to a plan became a section of its own: a sweep, and a search, which were one; and
    forecasts that are tried, by which a plan had only the cells that these need. The parameters of sessions
    came to stand by transport."""
    if kind != "plan":
        return data
    old = ("sweep", "forecasts", *_PARAMETERS_OF_5)
    rest = {key: value for key, value in data.items() if key not in old}
    if found := {transport: data[key] for key, transport in _PARAMETERS_OF_5.items() if data.get(key)}:
        rest["parameters"] = found
    if asked := data.get("sweep"):
        name, others = ("knee", ("over", "error")) if asked.get("goals") else ("sweep", ("goals",))
        section = {key: value for key, value in asked.items() if key not in others}
        return {**rest, "sections": {name: section}}
    if forecasts := data.get("forecasts"):
        cells = [
            [each[f"{of}column"], each[f"{of}workload"]]
            for each in forecasts
            for of in ("", "changed_")
            if of or each["step"]["kind"] != "device"
        ]
        return {**rest, "cells": cells, "sections": {"trial": {"forecasts": forecasts}}}
    return rest


_STEPS: dict[int, Callable[[FileKind, Json], Json]] = {
    1: _from_1,
    2: _from_2,
    3: _from_3,
    4: _from_4,
    5: _from_5,
}
