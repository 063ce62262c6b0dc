"""Closed networks against closed forms that others have for them."""

from __future__ import annotations

import pytest

from harness.analysis.queueing import mean_value_ns, overlapped_ns


@pytest.mark.parametrize("depth", [1, 2, 5, 32])
def test_a_balanced_network_is_that_of_the_textbook(depth: int) -> None:
    # Lazowska and others, section 5.4: N / (D + (N - 1) D / K) in K alike servers without a delay.
    assert mean_value_ns(30.0, [10.0] * 3, depth) == pytest.approx((30 + (depth - 1) * 10) / depth)


@pytest.mark.parametrize("depth", [1, 2, 8])
def test_one_server_is_the_machine_repairmans(depth: int) -> None:
    # M/M/1 with N customers that think: its busy part is 1 - 1 / sum(N! / (N - k)! * (D / Z)^k).
    think, demand = 40.0, 10.0
    terms, product = 1.0, 1.0
    for k in range(depth):
        product *= (depth - k) * demand / think
        terms += product
    assert demand / mean_value_ns(think + demand, [demand], depth) == pytest.approx(1 - 1 / terms)


def test_it_lies_between_the_asymptotes() -> None:
    servers, alone = [12.0, 30.0, 5.0], 100.0
    for depth in (1, 2, 4, 16, 64):
        least = max(alone / depth, *servers)
        assert least <= mean_value_ns(alone, servers, depth) <= alone
    assert mean_value_ns(alone, servers, 1000) == pytest.approx(30.0, rel=0.01)


def test_pieces_of_one_io_overlap() -> None:
    assert overlapped_ns(100.0, [20.0, 50.0], 1) == 170.0
    assert overlapped_ns(100.0, [20.0, 50.0], 10) == pytest.approx(100 + 7 + 0.9 * 50)
    assert overlapped_ns(100.0, [20.0, 50.0], 1e9) == pytest.approx(150.0)
    assert overlapped_ns(100.0, [], 4) == 100.0
