"""What earlier versions wrote says the same today: frozen folders, and what was printed of them then."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from harness.cli import app
from harness.model import SCHEMA_VERSION, Column, IpsecMode, LabKernel
from harness.model.errors import UsageError
from harness.results import upgrade
from harness.results.store import RunFolder, open_probes, open_results
from tests.unit.parsing import refused

DATA = Path(__file__).parents[2] / "data"
SCHEMA_1 = DATA / "schema-1"
RUN = SCHEMA_1 / "results" / "20261101-120000-0a1b"
PROTECTED = RUN / "cells" / "wired+aes128gcm16.x2.seq-read-256k.r1.json"


def test_old_results_are_printed_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Messages have paths as they were typed.
    monkeypatch.chdir(SCHEMA_1)
    page = tmp_path / "page.html"
    printed = {
        "table results": "table",
        "table results --ratio unprotected": "ratio",
        "explain results": "explain",
    }
    for words in (*printed, f"report results -o {page}"):
        done = CliRunner().invoke(app, words.split(), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        if words in printed:
            assert done.output == (SCHEMA_1 / f"{printed[words]}.txt").read_text(encoding="utf-8")
    html = gzip.decompress((SCHEMA_1 / "report.html.gz").read_bytes()).decode()
    assert page.read_text(encoding="utf-8") == html


def test_each_field_that_was_renamed_has_its_value() -> None:
    old = json.loads(PROTECTED.read_bytes())
    (new,) = open_results([PROTECTED])
    assert new.schema == SCHEMA_VERSION and old["schema"] == 1
    assert (new.column.protection, new.column.transport) == ((old["ipsec"],), "iscsi")
    assert new.agreed == {old["ipsec"]: old["esp"]}
    setting = new.setting
    assert (setting.testbed, setting.clock) == ("lab", old["clock"])
    assert old["lab_kernel"] is None and setting.lab_kernel is LabKernel.DEBIAN, "there was no other"
    assert (new.column.link, new.column.mode) == (old["link"], old["ipsec_mode"])
    assert (new.workload.name, new.workload.block_bytes) == (old["workload"], old["block_bytes"])
    assert new.proof is None and len(new.clients) == len(old["clients"]) == 2
    for part, before in zip(new.clients, old["clients"], strict=True):
        assert part.proof is not None
        found = msgspec.to_builtins(part.proof)
        names = {old: upgrade._PROOF.get(new, new) for old, new in upgrade.PROOF_OF_1.items()}
        renamed = {(names | upgrade._PROOF).get(name, name): value for name, value in before["proof"].items()}
        assert found == found | renamed and found["protected_bytes"] > 0 and found["sampling"] == 64


def test_plans_and_probes_are_read_as_well() -> None:
    plan = RunFolder(RUN).load_plan()
    assert Column("local") in plan.columns and plan.columns[0].transport is None
    assert Column("wired", ("aes128gcm16",), initiators=2, mode=IpsecMode.TUNNEL) in plan.columns
    probes = open_probes([SCHEMA_1 / "results"])
    assert {probe.column.protection for probe in probes} == {(), ("aes128gcm16",)}
    moved = [probe for probe in probes if probe.column.protection and probe.probe.name == "tcp"]
    assert moved and all(probe.protected_bytes and probe.agreed["aes128gcm16"]["drivers"] for probe in moved)


def test_an_old_record_that_is_damaged_is_named(tmp_path: Path) -> None:
    damages = ({"ipsec": None}, {"ipsec": ["aes128gcm16"]}, {"proof": 7}, {"clients": [3]})
    for damage in (*damages, {"esp": "generic"}, {"protection": ["aes128gcm16"], "ipsec": 5}):
        record = json.loads(PROTECTED.read_bytes()) | damage
        (tmp_path / "x.json").write_text(json.dumps(record), encoding="utf-8")
        assert "x.json is not a readable record" in str(refused(open_results, [tmp_path / "x.json"])), damage
    # Nor does a plan of version 2 take columns of version 1 for columns without protection.
    plan = json.loads((RUN / "plan.json").read_bytes())
    (tmp_path / "plan.json").write_text(json.dumps(plan | {"schema": SCHEMA_VERSION}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"plan\.json is not a readable plan: .*ipsec"):
        RunFolder(tmp_path).load_plan()


def test_telemetry_keeps_its_values_and_each_field_that_was_renamed_has_its_value() -> None:
    file = DATA / "results/20261121-223206-9146/cells/wired+aes128gcm16.rand-read-4k.r1.json"
    old = json.loads(file.read_bytes())["beside"]
    (record,) = open_results([file])
    assert record.telemetry is not None
    found = [(use.busiest_core, use.cores) for use in record.telemetry.processors]
    assert found == [(use["hottest"], use["processors"]) for use in old["processors"]] and found
    step = upgrade._STEPS[3]
    uses = {"processors": [{"hottest": 1.0, "processors": 4}], "unseen": {"hop": "why"}}
    renamed = {"processors": [{"busiest_core": 1.0, "cores": 4}], "lost_hops": {"hop": "why"}}
    uses["others"] = [{"taken": 0.5, "beside": 0.25, "processors": 0.1}]
    renamed["others"] = [{"taken": 0.5, "sibling_busy": 0.25, "used": 0.1}]
    stored = {"beside": uses, "workload": {"name": "w", "jobs": 2}}
    assert step("record", stored) == {"telemetry": renamed, "workload": {"name": "w", "numjobs": 2}}
    kernels, cores = ({"type": "cipher", "kernels": [{name: 2}]} for name in ("processors", "cores"))
    probe = step("probe", {**uses, "is_beside": True, "figures": kernels})
    assert probe == {**renamed, "is_from_run": True, "figures": cores}
    assert step("record", {"workload": {"name": "w"}}) == {"telemetry": None, "workload": {"name": "w"}}
    assert step("plan", {"jobs": []}) == {"jobs": []}


def test_names_of_the_field_came_with_version_5() -> None:
    step = upgrade._STEPS[4]
    old, new = (
        {"link": "wired", "protection": ["as-found"]},
        {"link": "wired", "protection": ["pre-existing"]},
    )
    load = [{"taken": 0.5}]
    telemetry = step("record", {"column": old, "telemetry": {"others": load}})
    assert telemetry == {"column": new, "telemetry": {"background_load": load}}
    assert step("record", {"column": old, "telemetry": None}) == {"column": new, "telemetry": None}
    assert step("probe", {"column": old, "others": load}) == {"column": new, "background_load": load}
    plan = {"columns": [old], "charges": {}, "storage": {"disk": "ram", "reached": {"lun": 1}}}
    plan["profile"] = "document"
    renamed = {"simulated_cpu_costs": {}, "storage": {"disk": "ram", "black_box": {"lun": 1}}}
    assert step("plan", plan) == {"columns": [new], "profile": "basic", **renamed}


def test_sections_came_with_version_6() -> None:
    step = upgrade._STEPS[5]
    rest = {"run_id": "r1"}
    assert step("record", rest) == step("plan", {**rest, "sweep": None, "forecasts": []}) == rest
    swept = {"over": ["depth"], "error": 0.1, "goals": [], "max_s": None}
    section = {"over": ["depth"], "error": 0.1, "max_s": None}
    assert step("plan", {**rest, "sweep": swept}) == {**rest, "sections": {"sweep": section}}
    goals = [{"metric": "p99", "at_most_ns": 2000000}]
    searched = {"over": [], "error": 0.05, "goals": goals}
    assert step("plan", {**rest, "sweep": searched}) == {**rest, "sections": {"knee": {"goals": goals}}}
    one, eight, link = "rand-read-4k", "rand-read-4k-qd8", {"link": "wired"}
    tried = {"column": link, "workload": one, "changed_column": link, "changed_workload": eight}
    forecasts = [{**tried, "step": {"kind": kind}} for kind in ("depth", "device")]
    assert step("plan", {**rest, "forecasts": forecasts}) == {
        **rest,
        "cells": [[link, one], [link, eight], [link, eight]],
        "sections": {"trial": {"forecasts": forecasts}},
    }


def test_parameters_stand_by_transport_since_version_6() -> None:
    step = upgrade._STEPS[5]
    asked = {"iscsi": {"MaxBurstLength": "65536"}, "nvme": {"queue_size": "64"}}
    both = {"iscsi": asked["iscsi"], "nvme-tcp": asked["nvme"]}
    assert step("plan", {"jobs": [], **asked}) == {"jobs": [], "parameters": both}
    assert step("plan", {"jobs": [], "iscsi": {}, "nvme": {}}) == {"jobs": []}
    assert step("record", {"workload": {}}) == {"workload": {}}
