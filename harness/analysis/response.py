"""A response surface: throughput over depth, block, round trip and so on, from a part of a grid's points.

Two parts are fitted, both to the logarithm. First the two asymptotes of a closed queueing network (Lazowska
and others, Quantitative System Performance, 1984, chapter 5): with ``N`` I/Os in flight no more than
``N / latency`` come through, and no more than ``1 / occupancy`` of the busiest part; between them a smooth
bend. What the path takes of both is known (``path_demands``); what else does is fitted. Then what is left of
each point, as a Gaussian process over the logarithms of the axes (Rasmussen and Williams, Gaussian Processes
for Machine Learning, 2006, chapter 2). It also says how sure a point is that was not measured, by its
distance from the others and by what they tell of the asymptotes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul

from harness.analysis import cholesky
from harness.analysis.interval import COVERED, Interval
from harness.analysis.path_demands import Demands

TYPICAL_BLOCK_BYTES = 16384.0

FEWEST = 5
"""Points below which asymptotes are not looked for: each point is as good as its neighbours."""

LARGEST_RESIDUAL = 0.5
"""Beyond it a point pulls the asymptotes no further: it is a step that they do not know."""

DRIFT, FARTHEST = 1e-2, 25.0
"""How much it counts that a weight is not where it began, against a residual; and how far it may be."""

SMALL, MOST_DAMPING = 1e-5, 1e8
"""Of least squares: the step to a slope, and what is not damped further."""

LENGTHS = (1.5, 3.0, 6.0)
"""Over how many doublings of an axis what is left stays alike."""

DEVIATIONS, FREE_DEVIATIONS = (0.03, 0.1, 0.3), (1.0, 3.0)
"""Of what is left, and of throughput itself where there are no asymptotes."""

NOISES = (0.02, 0.04, 0.08)

SHORTEST_S = 1e-7
"""At first sight nothing takes less besides the path."""

STEP = 1e-3
UNSURE = 1.0
"""Standard deviation of each weight's logarithm before anything is known of it."""


PREDICTED = "~"
"""The sign of a point that was not measured."""


class Estimate(Interval, frozen=True):
    """Throughput at a point, in bytes/s, with the interval that has 90 % of what would be measured.

    ``error`` is how far off ``mid`` may be, as a part of it: the interval without the scatter that each
    measurement has, so that more points elsewhere make it smaller. ``is_predicted``: it was not measured.
    """

    error: float = 0.0
    is_predicted: bool = False


@dataclass(frozen=True)
class Point:
    """A point of a surface, by the names of its ``axes``: ``depth``, ``block`` (bytes), ``rtt`` (seconds).

    ``in_flight`` I/Os of ``block_bytes`` are asked for. ``path`` is what one asks of the path; None if that
    is not known.
    """

    axes: Mapping[str, float]
    block_bytes: float = TYPICAL_BLOCK_BYTES
    in_flight: float = 1.0
    path: Demands | None = None

    @functools.cached_property
    def known(self) -> _Known:
        path, log_block = self.path, math.log(self.block_bytes)
        of_path = (0.0, 0.0, 0.0, 0.0, 0.0)
        if path is not None:
            lost_ns = path.lost_at_ns(max(1, round(self.in_flight)))
            times_ns = path.alone_ns, path.busy_ns, path.window_each_ns, lost_ns
            alone_s, link_s, window_s, lost_s = (1e-9 * ns for ns in times_ns)
            of_path = (alone_s, float(path.r2ts), link_s, window_s, lost_s)
        return self.block_bytes / TYPICAL_BLOCK_BYTES, self.in_flight, log_block, *of_path


_Known = tuple[float, float, float, float, float, float, float, float]
"""What the asymptotes take of a point: typical blocks, I/Os asked for, the logarithm of its block, and of its
path the time of one I/O alone, round trips beyond the first, the least time of each by the link and by TCP's
window, and waiting for lost packets."""


@dataclass(frozen=True)
class Asymptotes:
    """The two bounds of a closed network as functions of a point. ``weights`` are logarithms, by their names.

    ``latency`` and ``latency_block`` (for a typical block) are the time of one I/O alone besides the path's,
    with ``trips`` for each round trip beyond the first. ``occupancy`` and ``occupancy_block`` are what it
    takes of the busiest core, ``window`` how much longer TCP's window takes than by its default. ``bend`` is
    how sharp the knee is, ``most`` how many I/Os the initiator lets out at all.
    """

    weights: Mapping[str, float]

    def latency_s(self, at: Point) -> float:
        """The time that one I/O takes alone."""
        return _times_s(self.weights, at)[0]

    def in_flight(self, at: Point) -> float:
        """How many I/Os are on their way: as many as asked for, or as the initiator lets out."""
        return _times_s(self.weights, at)[2]

    def bounds_bytes_s(self, at: Point) -> tuple[float, float]:
        """The most throughput by latency, and by the busiest part."""
        latency_s, busy_s, flying = _times_s(self.weights, at)
        return at.block_bytes * flying / latency_s, at.block_bytes / busy_s

    def log_rate(self, at: Point) -> float:
        """The logarithm of the throughput, in bytes/s."""
        return _log_rates(self.weights, [at.known])[0]

    def is_latency(self, at: Point) -> bool:
        """Whether latency, and not what is busy, bounds a point."""
        by_latency, by_busy = self.bounds_bytes_s(at)
        return by_latency < by_busy


def _factors(weights: Mapping[str, float]) -> tuple[float, ...]:
    """What weighs the numbers of a point: three parts of latency, three of occupancy, and the most I/Os."""
    of = {name: math.exp(weight) for name, weight in weights.items()}
    parts = ("latency", "latency_block", "trips", "occupancy", "occupancy_block", "window")
    return (*(of.get(name, 0.0) for name in parts), of.get("most", math.inf))


def _times_s(weights: Mapping[str, float], at: Point) -> tuple[float, float, float]:
    """Latency, occupancy and I/Os in flight of a point."""
    blocks, asked, _, alone, more_trips, link, window, _ = at.known
    fixed, by_block, trip, busy, busy_block, wider, most = _factors(weights)
    latency_s = fixed + by_block * blocks + trip * more_trips + alone
    return latency_s, max(busy + busy_block * blocks, link, wider * window), min(asked, most)


def _log_rates(weights: Mapping[str, float], points: Iterable[_Known]) -> list[float]:
    """Of all points at once, in a loop without calls: a fit evaluates it thousands of times."""
    fixed, by_block, trip, busy, busy_block, wider, most = _factors(weights)
    sharpness, log = 1 + math.exp(weights["bend"]), math.log
    found = []
    for blocks, asked, log_block, alone, more_trips, link, window, lost in points:
        low = (fixed + by_block * blocks + trip * more_trips + alone) / (asked if asked < most else most)
        high = busy + busy_block * blocks
        if high < link:
            high = link
        if high < wider * window:
            high = wider * window
        if low > high:
            low, high = high, low
        found.append(log_block - log(high * (1 + (low / high) ** sharpness) ** (1 / sharpness) + lost))
    return found


@dataclass(frozen=True)
class Response:
    """A fitted surface; without ``asymptotes`` where too few points are known to look for them."""

    asymptotes: Asymptotes | None
    rest: GaussianProcess
    axes: tuple[str, ...]

    def at(self, point: Point) -> Estimate:
        """What would be measured at a point."""
        mean, variance = self.rest.at(_features(point, self.axes, self.asymptotes))
        middle = mean + (self.asymptotes.log_rate(point) if self.asymptotes is not None else 0.0)
        scatter = self.rest.noise**2
        reach, unsure = (COVERED * math.sqrt(each) for each in (variance + scatter, variance))
        low, mid, high = (math.exp(middle + each) for each in (-reach, 0.0, reach))
        return Estimate(low, mid, high, 0.9, error=math.expm1(unsure), is_predicted=True)


def fit(points: Sequence[Point], rates_bytes_s: Sequence[float], axes: Sequence[str]) -> Response:
    """The surface through measured points, with ``axes`` that differ between them. ValueError without any."""
    if not points:
        raise ValueError("a surface takes a point")
    logs = [math.log(max(rate, 1e-9)) for rate in rates_bytes_s]
    asymptotes = _asymptotes(points, logs, axes) if len(points) >= FEWEST else None
    rest = [y - asymptotes.log_rate(p) for p, y in zip(points, logs, strict=True)] if asymptotes else logs
    places = [_features(point, axes, asymptotes) for point in points]
    alike = functools.cache(
        lambda length: [[_alike(a, b, length) for b in places[: i + 1]] for i, a in enumerate(places)]
    )
    scales = (LENGTHS, DEVIATIONS if asymptotes else FREE_DEVIATIONS, NOISES)

    @functools.cache
    def through(where: tuple[int, ...]) -> GaussianProcess:
        length, deviation, noise = (scale[i] for scale, i in zip(scales, where, strict=True))
        return GaussianProcess.through(
            places, rest, alike(length), length=length, deviation=deviation, noise=noise
        )

    likeliest = uphill(lambda where: through(where).likelihood, [len(scale) for scale in scales])
    return Response(asymptotes, through(likeliest), tuple(axes))


def uphill(height: Callable[[tuple[int, ...]], float], sizes: Sequence[int]) -> tuple[int, ...]:
    """From the middle of a grid of so many places along each axis, by its highest neighbours, to a place that
    has none higher."""
    here = tuple(size // 2 for size in sizes)
    while True:
        near = [
            (*here[:axis], here[axis] + step, *here[axis + 1 :])
            for axis, size in enumerate(sizes)
            for step in (-1, 1)
            if 0 <= here[axis] + step < size
        ]
        there = max(near, key=height)
        if height(there) <= height(here):
            return here
        here = there


@dataclass(frozen=True)
class Features:
    """Where a point is in doublings along each axis, and how much each weight of the asymptotes moves it."""

    doublings: tuple[float, ...]
    pulls: tuple[float, ...]


def _features(point: Point, axes: Sequence[str], asymptotes: Asymptotes | None) -> Features:
    # Losses begin at none, which has no logarithm.
    doublings = tuple(math.log2(point.axes[axis] + (1e-4 if axis == "loss" else 0.0)) for axis in axes)
    if asymptotes is None:
        return Features(doublings, ())
    here = asymptotes.log_rate(point)
    return Features(
        doublings,
        tuple(
            (Asymptotes({**asymptotes.weights, name: weight + STEP}).log_rate(point) - here) / STEP
            for name, weight in asymptotes.weights.items()
        ),
    )


def _asymptotes(points: Sequence[Point], logs: Sequence[float], axes: Sequence[str]) -> Asymptotes:
    """Those with the least squares of what is left."""
    each_s = [point.block_bytes / math.exp(y) for point, y in zip(points, logs, strict=True)]
    whole_s = [t * point.in_flight - point.known[3] for point, t in zip(points, each_s, strict=True)]
    alone_s, per_block_s = _line(points, whole_s, min)
    busy_s, busy_block_s = _line(points, each_s, max)
    start = {"latency": math.log(alone_s), "occupancy": math.log(busy_s), "bend": 1.0}
    if "block" in axes:
        start |= {"latency_block": math.log(per_block_s), "occupancy_block": math.log(busy_block_s)}
    if "depth" in axes or "jobs" in axes:
        start["most"] = math.log(max(point.in_flight for point in points))
    if len({point.known[4] for point in points}) > 1:
        start["trips"] = math.log(alone_s)
    if any(point.known[6] for point in points):
        start["window"] = 0.0
    names = tuple(start)
    known = [point.known for point in points]

    def left(values: Sequence[float], most: float = LARGEST_RESIDUAL) -> list[float]:
        drifts = [v - start[name] for name, v in zip(names, values, strict=True)]
        if max(map(abs, drifts)) > FARTHEST:
            return [math.inf] * (len(known) + len(names))
        rates = _log_rates(dict(zip(names, values, strict=True)), known)
        residuals = [max(-most, min(most, rate - y)) for rate, y in zip(rates, logs, strict=True)]
        # Weights that the points say nothing of stay where they are.
        return residuals + [DRIFT * drift for drift in drifts]

    # Nothing depends on how many I/Os are let out at all while that is more than are asked for.
    lower = (0.0, 0.7, 1.4) if "most" in start else (0.0,)
    begins = ([v - by * (n == "most") for n, v in start.items()] for by in lower)
    # Where all residuals are too large, none says which way is down.
    nearer = (least_squares(lambda values: left(values, math.inf), begin)[1] for begin in begins)
    found = [least_squares(left, values) for values in nearer]
    return Asymptotes(dict(zip(names, min(found)[1], strict=True)))


def _line(
    points: Sequence[Point], times_s: Sequence[float], extreme: Callable[[Iterable[float]], float]
) -> tuple[float, float]:
    """What an I/O takes at first sight, fixed and for a typical block, by the points with the fewest or the
    most I/Os in flight."""
    there = extreme(point.in_flight for point in points)
    near = sorted(
        (p.known[0], max(t, SHORTEST_S)) for p, t in zip(points, times_s, strict=True) if p.in_flight == there
    )
    (few, short_s), (many, long_s) = near[0], near[-1]
    slope_s = (long_s - short_s) / (many - few) if many > few else 0.0
    return max(short_s - slope_s * few, short_s / 10), max(slope_s, short_s / 100)


def least_squares(
    left: Callable[[Sequence[float]], list[float]], start: Sequence[float], steps: int = 60
) -> tuple[float, list[float]]:
    """The least sum of the squares of what is ``left`` near ``start``, and where it is: Levenberg's and
    Marquardt's way (SIAM Journal on Applied Mathematics 11, 1963). Infinite residuals are out of bounds."""
    here, damping = (_squares(left(start)), list(start)), 1e-2
    for _ in range(steps):
        now = left(here[1])
        moved = [[v + SMALL * (i == j) for j, v in enumerate(here[1])] for i in range(len(start))]
        slopes = [[(b - a) / SMALL for a, b in zip(now, left(values), strict=True)] for values in moved]
        downhill = [-sum(map(mul, slope, now)) for slope in slopes]
        before = here[0]
        while here[0] == before and damping < MOST_DAMPING:
            # Only what is up to the diagonal is looked at.
            normal = [[sum(map(mul, a, b)) for b in slopes[: i + 1]] for i, a in enumerate(slopes)]
            for i, row in enumerate(normal):
                row[i] += damping * row[i] + 1e-12
            factor = cholesky.factored(normal)
            step = cholesky.backward(factor, cholesky.forward(factor, downhill))
            there = [v + by for v, by in zip(here[1], step, strict=True)]
            here = min(here, (_squares(left(there)), there))
            damping *= 4
        damping /= 32
        if before - here[0] <= 1e-7 * before:
            break
    return here


def _squares(values: Iterable[float]) -> float:
    return sum(value * value for value in values)


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process with Matérn's kernel of 3/2, whose mean is that of its points, fitted to them."""

    places: Sequence[Features]
    length: float
    deviation: float
    noise: float
    factor: list[list[float]] = field(repr=False)
    """Cholesky's, of the covariance of the points."""
    whitened: list[float] = field(repr=False)
    mean: float
    likelihood: float

    @classmethod
    def through(
        cls,
        places: Sequence[Features],
        values: Sequence[float],
        alike: Sequence[Sequence[tuple[float, float]]],
        *,
        length: float,
        deviation: float,
        noise: float,
    ) -> GaussianProcess:
        """The process through values at places, of which each is ``alike`` to those up to it, and how likely
        they are by it."""
        mean = sum(values) / len(values)
        covariances = [[deviation**2 * near + shared for near, shared in of_place] for of_place in alike]
        for row in covariances:
            row[-1] += noise**2
        factor = cholesky.factored(covariances)
        whitened = cholesky.forward(factor, [value - mean for value in values])
        likelihood = -sum(x * x for x in whitened) / 2 - sum(math.log(row[-1]) for row in factor)
        return cls(places, length, deviation, noise, factor, whitened, mean, likelihood)

    def at(self, place: Features) -> tuple[float, float]:
        """Mean of what would be measured at a place, and how sure it is: its variance without noise."""
        known = [_alike(place, each, self.length) for each in self.places]
        near = cholesky.forward(self.factor, [self.deviation**2 * close + shared for close, shared in known])
        itself, shared = _alike(place, place, self.length)
        left = self.deviation**2 * itself + shared - sum(x * x for x in near)
        return self.mean + sum(map(mul, near, self.whitened)), max(left, 0.0)


def _alike(a: Features, b: Features, length: float) -> tuple[float, float]:
    """How alike two points are: by their distance (Matérn's), and by what they share of weights that are not
    sure."""
    distance = math.sqrt(3) * math.dist(a.doublings, b.doublings) / length
    return (1 + distance) * math.exp(-distance), UNSURE**2 * sum(map(mul, a.pulls, b.pulls))
