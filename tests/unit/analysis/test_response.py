"""Response surfaces through a few points of known networks, and closed networks against closed forms."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from harness.analysis import response
from harness.analysis.queueing import mean_value_ns
from harness.analysis.response import Point, Response
from tests.unit.explain.test_explain import known

DEPTHS = [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64]
BLOCKS = [4096 << power for power in range(9)]
GRID = list(response.grid({"depth": DEPTHS, "block": BLOCKS}))
FEW = [p for p in GRID if p["depth"] in (1, 3, 8, 16, 64) and p["block"] in (4096, 16384, 65536, 1 << 20)]


def network(
    *, latency_s: float, core_s: float, byte_s: float, queue: int, sharpness: float
) -> Callable[[Point], float]:
    """Throughput of a closed network with a knee; a queue of the initiator's bounds the I/Os in flight."""

    def rate(at: Point) -> float:
        waiting = (latency_s + 2 * byte_s * at["block"]) / min(at["depth"], queue)
        busy = core_s + byte_s * at["block"]
        return float(at["block"] / (waiting**sharpness + busy**sharpness) ** (1 / sharpness))

    return rate


Rate = Callable[[Point], float]
NETWORKS = {
    "gigabit": network(latency_s=160e-6, core_s=9e-6, byte_s=8.5e-9, queue=32, sharpness=4),
    "far": network(latency_s=5.1e-3, core_s=12e-6, byte_s=8.5e-9, queue=32, sharpness=3),
    "slow core": network(latency_s=200e-6, core_s=55e-6, byte_s=4e-9, queue=128, sharpness=2),
    "smooth": network(latency_s=1e-3, core_s=3e-6, byte_s=40e-9, queue=32, sharpness=1.2),
}


def fit(points: Sequence[Point], rate: Rate, *axes: str, scatter: float = 0.0, seed: int = 3) -> Response:
    noise = random.Random(seed)  # noqa: S311
    rates = [rate(at) * math.exp(noise.gauss(0, scatter)) for at in points]
    return response.fit(points, rates, axes or ("depth", "block"))


def errors(fitted: Response, rate: Rate, points: Sequence[Point]) -> list[float]:
    return [abs(fitted.at(at).value / rate(at) - 1) for at in points]


@pytest.mark.parametrize("rate", NETWORKS.values(), ids=NETWORKS)
def test_points_that_were_not_measured_are_where_they_are_forecast(rate: Rate) -> None:
    fitted = fit(FEW, rate, scatter=0.01)
    others = [at for at in GRID if at not in FEW]
    assert sum(error <= 0.05 for error in errors(fitted, rate, others)) >= 0.9 * len(others)
    inside = [fitted.at(at).low <= rate(at) <= fitted.at(at).high for at in others]
    assert sum(inside) >= 0.8 * len(others)
    # Scatter is in the interval and no error of its middle.
    found = fit(GRID[::2], NETWORKS["gigabit"], scatter=0.06, seed=5).at(GRID[51])
    assert found.error < 0.05 < found.high / found.value - 1


def test_the_asymptotes_say_which_of_them_bounds_a_point() -> None:
    fitted = known(fit(FEW, NETWORKS["far"]).asymptotes)
    assert fitted.is_latency({"depth": 1, "block": 4096})
    assert not fitted.is_latency({"depth": 64, "block": 1 << 20})
    assert fitted.in_flight({"depth": 64, "block": 4096}) == pytest.approx(32, rel=0.15)
    assert fitted.latency_s({"depth": 1, "block": 4096}) == pytest.approx(5.1e-3, rel=0.1)
    # A queue that lets out fewer than are asked for is found.
    points: list[Point] = [{"depth": float(1 << power)} for power in range(9)]
    queue = known(fit(points, lambda at: min(at["depth"], 32) * 1e5, "depth").asymptotes)
    assert queue.in_flight({"depth": 256.0}) == pytest.approx(32, rel=0.1)


def test_a_round_trip_and_a_rate_are_axes_too() -> None:
    def rate(at: Point) -> float:
        latency_s = 150e-6 + 1.0 * at["rtt"] + 65536 * 8 / at["rate"]
        return float(65536 / ((latency_s / 4) ** 4 + (65536 * 8.4 / at["rate"]) ** 4) ** 0.25)

    axes = {"rtt": [1e-4 * 2**power for power in range(10)], "rate": [1e8, 1e9, 2.5e9, 1e10]}
    points = list(response.grid(axes))
    fitted = fit(points[::3], rate, "rtt", "rate")
    assert sum(error <= 0.05 for error in errors(fitted, rate, points)) >= 0.9 * len(points)
    lone = {"rtt": 5.0, "rate": 1e9}
    assert fitted.at(lone).error > fitted.at(points[0]).error, "far from all points nothing is sure"


def test_a_step_that_no_asymptote_knows_is_followed() -> None:
    def stepped(at: Point) -> float:
        return NETWORKS["gigabit"](at) * (0.7 if at["block"] > 65536 and at["depth"] < 16 else 1.0)

    fitted = fit(GRID[::2], stepped)
    assert max(errors(fitted, stepped, GRID[::2])) < 0.2
    near = {"depth": 8, "block": 131072}
    assert fitted.at(near).value == pytest.approx(stepped(near), rel=0.1)


def test_round_trips_beyond_the_first_take_their_time() -> None:
    """As those of a write of more than FirstBurstLength, which waits for an R2T."""

    def rate(at: Point) -> float:
        waiting = ((1 + at["waits"]) * 5e-3 + 17e-9 * at["block"]) / min(at["depth"], 32)
        return float(at["block"] / (waiting**6 + (12e-6 + 8.5e-9 * at["block"]) ** 6) ** (1 / 6))

    few = [{**at, "waits": float(at["block"] > 65536)} for at in FEW]
    with_waits, plain = fit(few, rate), response.fit(FEW, list(map(rate, few)), ("depth", "block"))
    unseen = {"depth": 1, "block": 131072, "waits": 1.0}
    assert with_waits.at(unseen).value == pytest.approx(rate(unseen), rel=0.05)
    assert abs(plain.at(unseen).value / rate(unseen) - 1) > 0.1


def test_uphill_from_the_middle_few_points_and_least_squares() -> None:
    seen = []

    def height(at: tuple[int, ...]) -> float:
        seen.append(at)
        return -abs(at[0] - 4) - abs(at[1] - 0)

    assert response.uphill(height, (5, 3)) == (4, 0) and (0, 2) not in seen
    one = response.fit([{"depth": 1.0}], [1e6], ("depth",))
    assert one.asymptotes is None and one.at({"depth": 1.0}).value == pytest.approx(1e6)
    assert one.at({"depth": 64.0}).error > 1
    with pytest.raises(ValueError, match="a point"):
        response.fit([], [], ("depth",))
    points = ((0, 1), (1, 3), (2, 5), (3, 7.4))
    least, (slope, start) = response.least_squares(
        lambda v: [v[0] * x + v[1] - y for x, y in points], [0.0, 0.0]
    )
    assert [slope, start, least] == pytest.approx([2.12, 0.92, 0.048])  # By the normal equations.
    # Rosenbrock's (The Computer Journal 3, 1960).
    least, valley = response.least_squares(lambda v: [10 * (v[1] - v[0] ** 2), 1 - v[0]], [-1.2, 1.0])
    assert valley == pytest.approx([1, 1], abs=1e-3) and least < 1e-9
    beyond = [math.inf]  # Weights stay within bounds.
    least, (found,) = response.least_squares(lambda v: beyond if v[0] > 2 else [v[0] - 3], [0.0])
    assert found <= 2 and least < 9


def test_closed_networks_are_those_of_the_textbooks() -> None:
    for depth in (1, 2, 5, 32):
        # Lazowska and others, section 5.4: N / (D + (N - 1) D / K) in K alike servers without a delay.
        assert mean_value_ns(30.0, [10.0] * 3, depth) == pytest.approx((30 + (depth - 1) * 10) / depth)
    servers, alone = [12.0, 30.0, 5.0], 100.0
    for depth in (1, 2, 4, 16, 64):
        assert max(alone / depth, *servers) <= mean_value_ns(alone, servers, depth) <= alone
    assert mean_value_ns(alone, servers, 1000) == pytest.approx(30.0, rel=0.01)
