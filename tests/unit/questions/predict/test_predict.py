"""The command marks all of it as predicted, and says how right predictions were."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from harness.model.errors import UsageError
from harness.parse.cpu_costs import written
from harness.planning.request import RunRequest
from harness.questions.predict import command, printed, score
from tests.unit.command import harness
from tests.unit.explain.test_predicted import BOTH_ENDS, ENDS, costs_of, job, network_path, one
from tests.unit.test_schemas import printed as as_published


def test_what_has_no_cost_says_why_in_its_line() -> None:
    (line,) = printed.rows([one(ENDS, network_path(), job("4k", bsrange="4k-64k"))])
    assert "n/a" in line and "several sizes" in line[-1]


def test_the_command_marks_all_of_it_as_predicted(tmp_path: Path) -> None:
    for name, scale in (("nas", 1.0), ("laptop", 2.0)):
        (tmp_path / f"{name}.toml").write_text(written(costs_of(BOTH_ENDS, scale)), encoding="utf-8")
    machines = ("--cpu-costs", "nas.toml", "--initiator-cpu-costs", "laptop.toml")
    column = ("--link", "wired:rtt=0.3ms", "--protect", "aes128gcm16", "--profile", "modern")
    done = harness("predict", *machines, *column, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("predicted, not measured") and "wired-rtt300us+aes128gcm16" in done.stdout
    assert "outside the validated range" in done.stdout and "flushes have no CPU cost" in done.stdout
    done = harness("predict", *machines, *column, "--format", "json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["predicted"] is True and found["outside"]
    assert {cell["mark"] for cell in found["cells"]} == {"predicted"}
    assert msgspec.json.decode(done.stdout, type=printed.PrintedPrediction).target_cpu_costs == "nas"
    nowhere = ("--cpu-costs", "nas.toml", "--link", "nowhere")
    for words, said in (((), "expected CPU costs to predict from"), (nowhere, "nowhere")):
        done = harness("predict", *words, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr


def test_the_score_is_printed_and_says_what_it_does_not_cover(tmp_path: Path) -> None:
    done = harness("predict", "--score", cwd=tmp_path)
    assert done.returncode == 0 and "median error" in done.stdout, done.stderr
    of = {"cpu_costs": ("x",), "links": ("wired",), "protections": (), "transports": ("iscsi",)}
    found = msgspec.convert({**of, "deepest": 8, "largest_block_bytes": 1 << 20}, score.Score)
    assert score.outside(found, ENDS, [network_path()], [job("4k", 8)]) == []
    (said,) = score.outside(found, ENDS, [network_path("wan", "aes128gcm16")], [job("2m", 32)])
    assert all(word in said for word in ("wan", "aes128gcm16", "32 I/Os", "2 MiB"))


def test_as_json_it_is_as_published() -> None:
    found = as_published("predict", "predict", "--machine", "lab-debian")
    assert found["predicted"] is True and len(found["cells"]) == 40
    found = as_published("predict-score", "predict", "--score")
    assert {each["limits"]: each["cells"] for each in found["kinds"]}["all"] > 200 and found["worst"]


def test_of_a_faster_part_it_predicts_the_gain(tmp_path: Path) -> None:
    words = ("--cpu-costs", "lab-custom", "--link", "5g", "--what-if", "cipher=2x", "--format", "json")
    found = json.loads(harness("predict", *words, cwd=tmp_path).stdout)
    assert found["target_cpu_costs"] == "lab-custom" and "5g" in found["outside"][0]
    assert {cell["measured_mb_s"] for cell in found["cells"]} == {None}


def test_a_matrix_is_that_of_a_run() -> None:
    found, jobs, notes = command.network_paths(RunRequest())
    assert len(found) * len(jobs) == 40 and not notes
    assert [network_path.column.label for network_path in found][:3] == ["local", "wired", "wifi"]
    assert found[0].link is None and all(network_path.link for network_path in found[1:])
    deep = RunRequest(links=("wired",), depths=("1,8",), workloads=("rand-read-4k",))
    _, jobs, notes = command.network_paths(deep)
    assert len(jobs) == 2 and notes  # what replaced an engine
    with pytest.raises(UsageError, match="expected an interface with real machines"):
        command.network_paths(RunRequest(links=("wired=eth0",)))
