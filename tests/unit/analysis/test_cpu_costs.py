"""CPU costs by least squares: exact demands give exact CPU costs, and noise gives intervals that hold the
truth."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.analysis import cpu_costs
from harness.analysis.cpu_costs import CpuCost, Operation, Per, WhichEnd

CALL, BYTE = Operation("block layer", Per.CALL), Operation("block layer", Per.BYTE)
IO, PACKET = Operation("carried", Per.IO), Operation("ESP", Per.PACKET)
TRUTH = {CALL: 9000.0, BYTE: 0.3, IO: 14000.0, PACKET: 5200.0}


def cells(noise: float = 0.0) -> list[tuple[dict[Operation, float], float, float]]:
    """I/Os that differ in one thing each: no network, a network, protection; short and long."""
    chance, found = random.Random(4), []  # noqa: S311 (a test's)
    for block in (4096.0, 65536.0, 262144.0):
        for more in ({}, {IO: 1.0}, {IO: 1.0, PACKET: block / 1400 + 2}):
            counts = {CALL: 1.0, BYTE: block, **more}
            ns = sum(count * TRUTH[name] for name, count in counts.items())
            found.append((counts, ns * chance.lognormvariate(0, noise) if noise else ns, ns))
    return found


def test_exact_demands_give_exact_costs() -> None:
    found, error = cpu_costs.fit(cells())
    assert {name: cost.mid for name, cost in found.items()} == pytest.approx(TRUTH, rel=1e-5)
    assert error < 1e-6 and all(cost.half_width < 1 for cost in found.values())
    # A long block was cheaper than a short one, and no CPU cost is below nothing.
    short, long = {CALL: 1.0, BYTE: 4096.0}, {CALL: 1.0, BYTE: 65536.0}
    found, error = cpu_costs.fit([(short, 10_000.0, 10_000.0), (long, 9_000.0, 9_000.0)])
    assert found[BYTE].mid == 0 and 9_000 <= found[CALL].mid <= 10_000 and error > 0
    found, error = cpu_costs.fit(cells(0.05))  # Intervals are wide where cells scatter.
    assert 0 < error < 0.3
    within = [abs(found[name].mid - ns) <= 2 * found[name].half_width for name, ns in TRUTH.items()]
    assert sum(within) >= 3 and found[PACKET].mid == pytest.approx(TRUTH[PACKET], rel=0.2)
    found, _ = cpu_costs.fit([({CALL: 1.0, IO: 0.0}, 10.0, 10.0)])
    assert found.keys() == {CALL}
    with pytest.raises(ValueError, match="expected cells"):
        cpu_costs.fit([])


def test_two_operations_that_no_cell_tells_apart_share_what_they_cost() -> None:
    one, two = {CALL: 1.0, IO: 1.0}, {CALL: 2.0, IO: 2.0}
    found, _ = cpu_costs.fit([(one, 10_000.0, 10_000.0), (two, 20_000.0, 20_000.0)])
    assert found[CALL].mid + found[IO].mid == pytest.approx(10_000, rel=1e-6)
    # Either may be all of it, or nothing.
    assert all(each.half_width >= 0.99 * (10_000 - each.mid) for each in found.values())
    # A cell counts for less where most of the work was other work.
    found, error = cpu_costs.fit([({CALL: 1.0}, 100.0, 100.0), ({CALL: 1.0}, 200.0, 10_000.0)])
    assert found[CALL].mid == pytest.approx(100, rel=0.01) and error < 1


def cost(operation: Operation, ns: float, reach: float = 0.0) -> CpuCost:
    of: dict[str, Any] = {"part": operation.part, "per": operation.per, "direction": operation.direction}
    return CpuCost(**of, at=WhichEnd.BOTH, ns=ns, low=ns - reach, high=ns + reach)


def test_the_demand_of_an_io_is_its_operations_times_their_costs() -> None:
    known = {CALL: cost(CALL, 100.0, 30.0), BYTE: cost(BYTE, 0.5, 0.04)}
    reach_ns = (60**2 + 40**2) ** 0.5
    assert cpu_costs.demand_ns({CALL: 2.0, BYTE: 1000.0}, known) == pytest.approx((700.0, reach_ns))
    with pytest.raises(KeyError):
        cpu_costs.demand_ns({PACKET: 1.0}, known)
    # What does not happen needs no CPU cost.
    assert cpu_costs.demand_ns({CALL: 1.0, PACKET: 0.0}, known)[0] == 100.0
    for low, ns, high in ((2.0, 1.0, 3.0), (0.0, 3.0, 2.0), (float("nan"), 1.0, 2.0)):
        with pytest.raises(ValueError, match="low <= ns <= high"):
            CpuCost(part="x", per=Per.IO, at=WhichEnd.BOTH, ns=ns, low=low, high=high)
