"""Intervals: products, quotients and functions keep their bounds in order."""

from __future__ import annotations

import math

from harness.analysis.interval import Interval, exact


def test_bounds_of_what_is_computed_from_intervals() -> None:
    one, other = Interval(1, 2, 4), Interval(2, 4, 8)
    assert one.by(other) == Interval(2, 8, 32)
    assert one.plus(other) == Interval(3, 6, 12)
    assert one.most(Interval(0, 3, 3)) == Interval(1, 3, 4)
    assert other.over(one) == Interval(0.5, 2, 8)
    assert math.isinf(exact(1).over(Interval(0, 1, 2)).high)
    assert one.rising(math.sqrt) == Interval(1, math.sqrt(2), 2)
    assert one.falling(lambda value: 1 - value) == Interval(-3, -1, 0)
