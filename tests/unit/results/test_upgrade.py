"""What earlier versions wrote says the same today: frozen folders, and what was printed of them then."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from harness.cli import app
from harness.model import SCHEMA_VERSION, Column, IpsecMode, LabKernel
from harness.model.errors import UsageError
from harness.results import upgrade
from harness.results.store import RunFolder, open_probes, open_results

SCHEMA_1 = Path(__file__).parents[2] / "data" / "schema-1"
RUN = "20261101-120000-0a1b"


@pytest.fixture
def at_schema_1(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of schema 1, as the working folder: messages have paths as they were typed."""
    monkeypatch.chdir(SCHEMA_1)
    return SCHEMA_1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["table", "results"], "table.txt"),
        (["table", "results", "--ratio", "ipsec"], "ratio.txt"),
        (["explain", "results"], "explain.txt"),
    ],
)
def test_old_results_are_printed_as_they_were(at_schema_1: Path, words: list[str], expected: str) -> None:
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert (done.exit_code, done.output) == (0, (at_schema_1 / expected).read_text(encoding="utf-8"))


def test_the_page_of_old_results_is_as_it_was(at_schema_1: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", "results", "-o", str(page)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (
        page.read_text(encoding="utf-8")
        == gzip.decompress((at_schema_1 / "report.html.gz").read_bytes()).decode()
    )


def test_each_field_that_was_renamed_has_its_value() -> None:
    file = SCHEMA_1 / "results" / RUN / "cells" / "wired+aes128gcm16.x2.seq-read-256k.r1.json"
    old = json.loads(file.read_bytes())
    (new,) = open_results([file])
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
        renamed = {upgrade.PROOF_OF_1.get(name, name): value for name, value in before["proof"].items()}
        assert found == found | renamed and found["protected_bytes"] > 0 and found["sampling"] == 64


def test_plans_and_probes_are_read_as_well() -> None:
    plan = RunFolder(SCHEMA_1 / "results" / RUN).load_plan()
    assert Column("local") in plan.columns and plan.columns[0].transport is None
    assert Column("wired", ("aes128gcm16",), initiators=2, mode=IpsecMode.TUNNEL) in plan.columns
    probes = open_probes([SCHEMA_1 / "results"])
    protected = {probe.column.protection for probe in probes}
    assert protected == {(), ("aes128gcm16",)}
    moved = [probe for probe in probes if probe.column.protection and probe.probe.name == "tcp"]
    assert moved and all(probe.protected_bytes and probe.agreed["aes128gcm16"]["drivers"] for probe in moved)


@pytest.mark.parametrize(
    "damage",
    [
        {"ipsec": None},
        {"ipsec": ["aes128gcm16"]},
        {"proof": 7},
        {"clients": [3]},
        {"esp": "generic"},
        {"protection": ["aes128gcm16"], "ipsec": 5},
    ],
)
def test_an_old_record_that_is_damaged_is_named(tmp_path: Path, damage: dict[str, Any]) -> None:
    file = SCHEMA_1 / "results" / RUN / "cells" / "wired+aes128gcm16.x2.seq-read-256k.r1.json"
    record = json.loads(file.read_bytes()) | damage
    (tmp_path / "x.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(UsageError, match=r"x\.json is not a readable record"):
        open_results([tmp_path / "x.json"])


def test_the_new_names_in_an_old_record_do_not_count(tmp_path: Path) -> None:
    """Nor does a plan of version 2 take columns of version 1 for columns without protection."""
    plan = json.loads((SCHEMA_1 / "results" / RUN / "plan.json").read_bytes())
    (tmp_path / "plan.json").write_text(json.dumps(plan | {"schema": SCHEMA_VERSION}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"plan\.json is not a readable plan: .*ipsec"):
        RunFolder(tmp_path).load_plan()


def test_telemetry_of_a_cell_keeps_its_values() -> None:
    folder = Path(__file__).parents[2] / "data" / "results" / "20261121-223206-9146"
    file = folder / "cells" / "wired+aes128gcm16.rand-read-4k.r1.json"
    old = json.loads(file.read_bytes())["beside"]
    (record,) = open_results([file])
    assert record.telemetry is not None
    found = [(use.busiest_core, use.cores) for use in record.telemetry.processors]
    assert found == [(use["hottest"], use["processors"]) for use in old["processors"]] and found


def test_each_field_of_telemetry_that_was_renamed_has_its_value() -> None:
    step = upgrade._STEPS[max(upgrade._STEPS)]
    uses = {
        "processors": [{"hottest": 1.0, "processors": 4}],
        "others": [{"taken": 0.5, "beside": 0.25, "processors": 0.1}],
        "unseen": {"hop": "why"},
    }
    renamed = {
        "processors": [{"busiest_core": 1.0, "cores": 4}],
        "others": [{"taken": 0.5, "sibling_busy": 0.25, "used": 0.1}],
        "lost_hops": {"hop": "why"},
    }
    record = step("record", {"beside": uses, "workload": {"name": "w", "jobs": 2}})
    assert record == {"telemetry": renamed, "workload": {"name": "w", "numjobs": 2}}
    kernels = {"type": "cipher", "kernels": [{"processors": 2}]}
    probe = step("probe", {**uses, "is_beside": True, "figures": kernels})
    assert probe == {**renamed, "is_from_run": True, "figures": {"type": "cipher", "kernels": [{"cores": 2}]}}
    assert step("record", {"workload": {"name": "w"}}) == {"telemetry": None, "workload": {"name": "w"}}
    assert step("plan", {"jobs": []}) == {"jobs": []}
