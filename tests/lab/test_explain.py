"""What limits, in the lab: bottlenecks that are put in are found, and a run has its digital twin."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bench.whom_to_blame import EXPERIMENTS, judged, measure
from harness.explain import Explained, sentence
from tests.lab import cli
from tests.lab.cli import well

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

PART = {"rate": ("read-256k",), "r2t8": ("write-128k",), "disk": ("read-4k",)}
"""Of some experiments, some workloads."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "r2t8" else pytest.mark.long) for name in PART]
)
def test_the_verdict_is_what_was_put_in(name: str, tmp_path: Path) -> None:
    (whole,) = [experiment for experiment in EXPERIMENTS if experiment.name == name]
    first = dict(list(whole.links.items())[:1])
    part = dataclasses.replace(whole, links=first, workloads=PART[name])
    measure(part, tmp_path)
    found = judged(part, tmp_path / "results")
    assert len(found) == len(PART[name])
    for cell in found:
        said = Explained.of(cell.evidence)
        assert said.verdict.limited_by is cell.injected, sentence(said)
        assert said.verdict.share is not None and said.verdict.share > 0.8


def test_a_run_has_a_digital_twin_and_keeps_it(tmp_path: Path) -> None:
    words = ("--link", "local", "--link", "wired", "--ipsec", "both", "--workload", "rand-read-4k")
    measured = cli.measure(tmp_path, *words, "--size", "32M")
    well(measured.done)
    measured.forget_others()
    assert all(cell["implementation_ns"] is None for cell in measured.explain())
    cells = measured.explain("--twin")
    with_twin = {(c["column"]["link"], *c["column"]["protection"]): c for c in cells}
    plain, gcm = with_twin["wired",], with_twin["wired", "aes128gcm16"]
    for cell in (plain, gcm):
        assert sum(cell["waterfall_ns"].values()) == cell["whole_ns"]
        # Not which of the two is longer: each was measured once, whatever else the machine did meanwhile.
        assert 0 < cell["implementation_ns"]["mid"] < cell["time_ns"]["median"]
    # ESP's own bytes cost 1.4 us of 240 (docs/theory.md).
    assert 500 < gcm["ipsec_itself_ns"] < 5000
    kept = {file: file.stat().st_mtime_ns for file in (measured.folder / "twin" / "cells").iterdir()}
    assert measured.explain("--twin") == list(with_twin.values())
    assert kept == {file: file.stat().st_mtime_ns for file in (measured.folder / "twin" / "cells").iterdir()}
    assert len(measured.table()["cells"]) == 3


def test_packets_that_are_lost_are_named(tmp_path: Path) -> None:
    words = ("--link", "wired:loss=1%", "--ipsec", "off", "--workload", "rand-read-4k", "--size", "32M")
    measured = cli.measure(tmp_path, *words, "--runtime", "3s")
    well(measured.done)
    measured.forget_others()
    (cell,) = measured.explain()
    # Each waits for 200 ms, and of a hundred packets one is lost; how many there are is the machine's matter.
    assert 0 < cell["waterfall_ns"]["lost_packets"] < cell["whole_ns"] == sum(cell["waterfall_ns"].values())


def test_the_two_ends_agree_on_what_was_asked_for(tmp_path: Path) -> None:
    words = ("--link", "wired", "--ipsec", "off", "--workload", "rand-read-4k", "--size", "32M")
    asked = ("--iscsi", "MaxBurstLength=64K", "--iscsi", "immediatedata=no")
    (record,) = cli.measure(tmp_path / "asked", *words, *asked).records.values()
    assert (record.session["max_burst_len"], record.session["immediate_data"]) == ("65536", "0")
