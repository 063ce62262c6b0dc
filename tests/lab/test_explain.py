"""What limits, in the lab: bottlenecks that are put in are found."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bench.whom_to_blame import EXPERIMENTS, judged, measure
from harness.explain.text import Explained, sentence
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
