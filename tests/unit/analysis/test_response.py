"""Response surfaces through a few points of known networks, and closed networks against closed forms."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import msgspec
import pytest

from harness.analysis import path_demands, response
from harness.analysis.response import Point, Response
from harness.analysis.stations import mean_value_ns
from harness.model import ISCSI
from tests.unit.explain.test_explain import SESSION, known
from tests.unit.results_folder import WIRED

DEPTHS = [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64]
BLOCKS = [4096 << power for power in range(9)]


def at(depth: float = 1, block: float = response.TYPICAL_BLOCK_BYTES, **more: object) -> Point:
    return Point({"depth": depth, "block": block}, block, depth, **more)  # type: ignore[arg-type]


GRID = [at(depth, block) for depth in DEPTHS for block in BLOCKS]
FEW = [p for p in GRID if p.in_flight in (1, 3, 8, 16, 64) and p.block_bytes in (4096, 16384, 65536, 1 << 20)]


def network(
    *, latency_s: float, core_s: float, byte_s: float, queue: int, sharpness: float
) -> Callable[[Point], float]:
    """Throughput of a closed network with a knee; a queue of the initiator's bounds the I/Os in flight."""

    def rate(at: Point) -> float:
        waiting = (latency_s + 2 * byte_s * at.block_bytes) / min(at.in_flight, queue)
        busy = core_s + byte_s * at.block_bytes
        return float(at.block_bytes / (waiting**sharpness + busy**sharpness) ** (1 / sharpness))

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
    return [abs(fitted.at(at).mid / rate(at) - 1) for at in points]


@pytest.mark.parametrize("rate", NETWORKS.values(), ids=NETWORKS)
def test_points_that_were_not_measured_are_where_they_are_forecast(rate: Rate) -> None:
    fitted = fit(FEW, rate, scatter=0.01)
    others = [at for at in GRID if at not in FEW]
    assert sum(error <= 0.05 for error in errors(fitted, rate, others)) >= 0.9 * len(others)
    inside = [fitted.at(at).low <= rate(at) <= fitted.at(at).high for at in others]
    assert sum(inside) >= 0.8 * len(others)
    # Scatter is in the interval and no error of its middle.
    found = fit(GRID[::2], NETWORKS["gigabit"], scatter=0.06, seed=5).at(GRID[51])
    assert found.error < 0.05 < found.high / found.mid - 1


def test_the_asymptotes_say_which_of_them_bounds_a_point() -> None:
    fitted = known(fit(FEW, NETWORKS["far"]).asymptotes)
    assert fitted.is_latency(at(1, 4096))
    assert not fitted.is_latency(at(64, 1 << 20))
    assert fitted.in_flight(at(64, 4096)) == pytest.approx(32, rel=0.15)
    assert fitted.latency_s(at(1, 4096)) == pytest.approx(5.1e-3, rel=0.1)
    # A queue that lets out fewer than are asked for is found.
    points = [at(float(1 << power)) for power in range(9)]
    queue = known(fit(points, lambda each: min(each.in_flight, 32) * 1e5, "depth").asymptotes)
    assert queue.in_flight(at(256.0)) == pytest.approx(32, rel=0.1)


def test_what_a_path_takes_is_known_and_what_else_does_is_fitted() -> None:
    """Round trip, rate and R2Ts are the model's (``stations``), so that a few points tell what is left."""

    def over(depth: int, block_bytes: int, delay_us: float, rate_bit_s: int) -> Point:
        link = msgspec.structs.replace(WIRED, delay_us=delay_us, rate_bit_s=rate_bit_s)
        axes = {"depth": depth, "block": block_bytes, "rtt": 2e-6 * delay_us, "rate": rate_bit_s}
        return Point(
            axes,
            block_bytes,
            depth,
            path_demands.of_session(link, None, ISCSI, SESSION, "write", block_bytes),
        )

    def rate(at: Point) -> float:
        path = known(at.path)
        alone_s = 150e-6 + 5e-10 * at.block_bytes + 3e-5 * path.r2ts + 1e-9 * path.alone_ns
        busy_s = max(12e-6 + 2e-10 * at.block_bytes, 1e-9 * path.busy_ns, 8e-10 * path.window_each_ns)
        return float(at.block_bytes / ((alone_s / at.in_flight) ** 5 + busy_s**5) ** (1 / 5))

    kinds = [[1, 4, 16], [4096, 65536, 131072, 1 << 20], [50, 500, 5000], [10**8, 10**9, 10**10]]
    points = [over(*each) for each in itertools.product(*kinds)]
    fitted = fit(points[::7], rate, "depth", "block", "rtt", "rate")
    assert sum(error <= 0.05 for error in errors(fitted, rate, points)) >= 0.9 * len(points)
    # Far from all points nothing is sure without a path.
    lone = at(1, 1 << 30)
    assert fit(FEW, NETWORKS["gigabit"]).at(lone).error > fit(FEW, NETWORKS["gigabit"]).at(FEW[0]).error


def test_a_step_that_no_asymptote_knows_is_followed() -> None:
    def stepped(at: Point) -> float:
        return NETWORKS["gigabit"](at) * (0.7 if at.block_bytes > 65536 and at.in_flight < 16 else 1.0)

    fitted = fit(GRID[::2], stepped)
    assert max(errors(fitted, stepped, GRID[::2])) < 0.2
    near = at(8, 131072)
    assert fitted.at(near).mid == pytest.approx(stepped(near), rel=0.1)


def test_uphill_from_the_middle_few_points_and_least_squares() -> None:
    seen = []

    def height(place: tuple[int, ...]) -> float:
        seen.append(place)
        return -abs(place[0] - 4) - abs(place[1] - 0)

    assert response.uphill(height, (5, 3)) == (4, 0) and (0, 2) not in seen
    one = response.fit([at(1)], [1e6], ("depth",))
    assert one.asymptotes is None and one.at(at(1)).mid == pytest.approx(1e6)
    assert one.at(at(64)).error > 1
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
