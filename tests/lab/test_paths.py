"""Links that are paths: the disk over switches and routers, and what each of them costs."""

from __future__ import annotations

import itertools
from pathlib import Path
from statistics import mean

import pytest

from tests.lab.cli import Measured
from tests.lab.over_paths import assert_measured, latency_us, measure_in_virtual_time, measure_over

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]


def test_the_disk_is_measured_over_routers_and_switches_without_and_with_ipsec(tmp_path: Path) -> None:
    assert_measured(measure_over(tmp_path, "routed:1", "switched:1"), "routed-1", "switched-1")


@pytest.fixture(scope="module")
def virtual(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    switches = (f"switched:{count}" for count in range(5))
    return measure_in_virtual_time(tmp_path_factory.mktemp("virtual"), "rand-read-4k", *switches)


@pytest.mark.custom_kernel
def test_each_switch_adds_the_same(virtual: Measured) -> None:
    times = [latency_us(virtual, f"switched-{count}") for count in range(5)]
    growth = [after - before for before, after in itertools.pairwise(times)]
    assert growth == pytest.approx([mean(growth)] * 4, rel=0.01)
    # Twice 7 us of the switch's own; a command of 48 bytes and a full frame are sent once more.
    assert mean(growth) == pytest.approx(2 * 7 + (138 + 1538) * 8e-3, rel=0.01)
