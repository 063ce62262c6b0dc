"""Who runs next of kernels that share one time, and until when."""

from __future__ import annotations

from harness.testbeds.lab.apart.calendar import NEVER_NS, Calendar


def calendar(*wishes_ns: int) -> Calendar:
    made = Calendar()
    for number, wish_ns in enumerate(wishes_ns):
        made.wish(number, wish_ns)
    return made


def test_the_earliest_wish_comes_first() -> None:
    made = calendar(300, 100, 200)
    assert (made.next(), made.now_ns) == (1, 100)
    assert (made.next(), made.now_ns) == (2, 200)


def test_of_two_wishes_for_one_time_the_first_that_was_made() -> None:
    made = calendar(50, 50)
    made.wish(0, 50)
    assert (made.next(), made.next()) == (1, 0)


def test_all_begin_at_time_0_in_their_order() -> None:
    made = Calendar()
    for number in (0, 1, 2):
        made.wish(number, 0)
    assert [made.next() for _ in range(3)] == [0, 1, 2]
    assert made.now_ns == 0


def test_a_kernel_may_set_its_clock_up_to_the_next_wish_of_another() -> None:
    made = calendar(100, 250, NEVER_NS)
    assert made.next() == 0
    assert made.free_until_ns(0) == 250
    made.wish(2, 180)
    assert made.free_until_ns(0) == 180


def test_alone_it_is_free_for_ever() -> None:
    made = calendar(100)
    made.next()
    assert made.free_until_ns(0) == NEVER_NS


def test_kernels_that_wait_for_nothing_never_run() -> None:
    assert calendar(NEVER_NS, NEVER_NS).next() is None


def test_what_runs_says_how_far_it_is_and_time_never_goes_back() -> None:
    made = calendar(100, 500)
    made.next()
    made.update(130)
    assert made.now_ns == 130
    made.update(120)
    assert made.now_ns == 130


def test_a_wish_that_was_fulfilled_is_gone() -> None:
    made = calendar(100, 200)
    made.next()
    assert made.free_until_ns(1) == NEVER_NS
