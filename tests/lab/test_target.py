"""The target that the harness makes: who hears of it, what it can, and what keeps others out."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.lab.cli import ON_CI, run_inside

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        shutil.which("iscsi-test-cu") is None and not ON_CI, reason="libiscsi-bin is not installed"
    ),
]

EXPECTED = tomllib.loads((Path(__file__).parents[1] / "data" / "libiscsi.toml").read_text(encoding="utf-8"))


def test_discovery_and_reservations() -> None:
    run_inside("inside.libiscsi")


@pytest.mark.long
def test_as_many_of_libiscsis_tests_pass_as_on_a_target_made_by_hand() -> None:
    done = run_inside("inside.libiscsi", "whole")
    found = json.loads(done.out.splitlines()[-1])
    ours, by_hand = found["ours"], found["by hand"]
    assert len(ours["passed"]) > 200
    assert set(ours["passed"]) >= set(by_hand["passed"])
    assert ours["failed"] == sorted(EXPECTED["failures"]), "each failure has its reason in libiscsi.toml"
    assert all(EXPECTED["failures"].values())


@pytest.mark.long
def test_how_long_others_keep_the_right_initiator_out() -> None:
    run_inside("inside.half_open")
