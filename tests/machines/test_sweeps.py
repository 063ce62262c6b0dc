"""Curves of stock machines."""

from __future__ import annotations

import pytest

from harness.results.measured import Measured
from tests.machines import runs
from tests.machines.runs import ONE, as_before, good, wired
from tests.machines.site import Site

pytestmark = pytest.mark.long


def test_a_sweep(installed: Site) -> None:
    curves = ("--over", "depth=1..16", "--over", "block=4K..256K", "--max-time", "5m")
    _, *words = wired(installed, "--ipsec", "both", *curves, *ONE)
    with as_before(installed):
        said = installed.harness("sweep", *words)
    good(installed, said)
    off, on = Measured.read([runs.newest_run(installed)]).curves
    assert all(curve.rates.keys() | curve.estimates.keys() == set(curve.grid) for curve in (off, on))
    # Where a machine is so busy that no two points agree, all of them are measured.
    has_estimates = any(curve.estimates for curve in (off, on))
    assert ("~: interpolated between measured points" in said.out) == has_estimates, said.text
