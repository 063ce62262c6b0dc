"""CPU costs of the lab's core by a short run, and a matrix that is predicted from them."""

from __future__ import annotations

import json
from pathlib import Path

from harness.analysis.cpu_costs import Operation, Per, WhichEnd
from harness.parse.cpu_costs import load_cpu_costs
from tests.lab.cli import harness, well

LINKS = ("--link", "local", "--link", "wired:unshaped")
SHORT = ("--repeats", "1", "--runtime", "1s", "--seed", "1")
"""Long enough that a cell counts though other programs keep fio from starting for a second."""


def test_a_short_cpu_costs_predicts_a_matrix(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    words = ("--lab-kernel", "debian", *LINKS, "--protect", "off,on", *SHORT)
    done = well(harness("cpu-cost", *words, "-o", str(file)))
    assert "off by" in done.err and not [path for path in tmp_path.iterdir() if path != file], done
    found = load_cpu_costs(str(file))
    known = found.at(WhichEnd.BOTH)
    parts = {cost.part for cost in found.costs}
    assert {"block layer", "iscsi", "ESP", "aes128gcm16"} <= parts
    assert found.fit is not None and 12 <= found.fit.cells <= 24 and found.kernel
    # Of a cipher whose own measurement was disturbed the cells have the CPU cost, and no driver is named.
    assert set(found.drivers) <= {"aes128gcm16"}
    assert found.sessions["iscsi"]["queue_depth"] > 0
    # Ceilings, however busy the machine is.
    of_io = [cost for cost in found.costs if cost.per in (Per.IO, Per.CALL, Per.PACKET, Per.WAKE_UP)]
    assert all(cost.ns < 1e7 for cost in of_io)
    assert known[Operation("aes128gcm16", Per.BYTE, "encrypt")].ns < 1000
    text = file.read_text(encoding="utf-8")
    assert str(tmp_path) not in text and "10." not in found.title

    done = well(harness("predict", "--cpu-costs", str(file), "--protect", "both", *LINKS, "--format", "json"))
    said = json.loads(done.out)
    assert said["predicted"] is True and len(said["cells"]) == 3 * 8
    for cell in said["cells"]:
        rate = cell["rate_mb_s"]
        assert cell["mark"] == "predicted" and 0 < rate["low"] < rate["mid"] < rate["high"], cell
    # Protection costs, whatever else the machine does; by how much, a busy one does not tell.
    of = {(cell["name"], cell["workload"]): cell["rate_mb_s"]["mid"] for cell in said["cells"]}
    bare, protected = "wired-unshaped", "wired-unshaped+aes128gcm16"
    assert of[protected, "rand-read-256k"] <= of[bare, "rand-read-256k"] < of["local", "rand-read-256k"]


def test_single_operations_take_no_lab(tmp_path: Path) -> None:
    file = tmp_path / "here.toml"
    well(harness("cpu-cost", "local", "-o", str(file)))
    found = load_cpu_costs(str(file))
    assert {cost.at for cost in found.costs} == {WhichEnd.NONE}
    assert {"kernel", "copy", "checksum", "TCP/IP"} <= {cost.part for cost in found.costs}
    done = harness("predict", "--cpu-costs", str(file))
    assert done.status == 2 and "single operations alone" in done.err, done
