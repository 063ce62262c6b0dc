"""Kernels that share one time: who runs next and until when, and their clocks (arch/um/kernel/time.c)."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from harness.testbeds.lab.apart.calendar import MESSAGE, NEVER_NS, Calendar, TimeTravelOperation
from harness.testbeds.lab.apart.timekeeper import KernelGoneError, Timekeeper, Wiring

DEADLINE_S = 60


def calendar(*wishes_ns: int) -> Calendar:
    made = Calendar()
    for number, wish_ns in enumerate(wishes_ns):
        made.wish(number, wish_ns)
    return made


def test_the_earliest_wish_comes_first_and_of_two_for_one_time_the_first_that_was_made() -> None:
    made = calendar(300, 100, 200)
    assert (made.next(), made.now_ns) == (1, 100)
    assert (made.next(), made.now_ns) == (2, 200)
    made = calendar(50, 50)
    made.wish(0, 50)
    assert (made.next(), made.next()) == (1, 0)
    made = calendar(0, 0, 0)
    assert [made.next() for _ in range(3)] == [0, 1, 2] and made.now_ns == 0
    assert calendar(NEVER_NS, NEVER_NS).next() is None, "they wait for nothing"


def test_a_kernel_may_set_its_clock_up_to_the_next_wish_of_another() -> None:
    made = calendar(100, 250, NEVER_NS)
    assert made.next() == 0
    assert (made.free_until_ns(0), made.free_until_ns(1)) == (250, NEVER_NS), "its own wish was fulfilled"
    made.wish(2, 180)
    assert made.free_until_ns(0) == 180
    made = calendar(100)
    made.next()
    assert made.free_until_ns(0) == NEVER_NS, "it is alone"


def test_what_runs_says_how_far_it_is_and_time_never_goes_back() -> None:
    made = calendar(100, 500)
    made.next()
    for time_ns in (130, 120):
        made.update(time_ns)
        assert made.now_ns == 130


@dataclass
class Kernel:
    """The other end of a clock."""

    clock: socket.socket
    sent: int = 0

    def send(self, operation: TimeTravelOperation, time_ns: int = 0) -> None:
        self.sent += 1
        self.clock.sendall(MESSAGE.pack(operation, self.sent, time_ns))

    def ask(self, operation: TimeTravelOperation, time_ns: int = 0) -> int:
        """What the calendar answers: a time."""
        self.send(operation, time_ns)
        answer, number, now_ns = self.hear()
        assert (answer, number) == (TimeTravelOperation.ACK, self.sent)
        return now_ns

    def hear(self) -> tuple[int, int, int]:
        operation, number, time_ns = MESSAGE.unpack(self.clock.recv(MESSAGE.size, socket.MSG_WAITALL))
        return operation, number, time_ns

    def obey(self) -> tuple[int, int]:
        """The next order, which is acknowledged."""
        operation, number, time_ns = self.hear()
        self.clock.sendall(MESSAGE.pack(TimeTravelOperation.ACK, number, 0))
        return operation, time_ns

    def wait_until(self, time_ns: int) -> None:
        self.ask(TimeTravelOperation.REQUEST, time_ns)
        self.ask(TimeTravelOperation.WAIT)

    def hears_nothing(self) -> bool:
        self.clock.settimeout(0.1)
        try:
            self.clock.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.clock.settimeout(DEADLINE_S)
        return False


@contextlib.contextmanager
def kept(count: int) -> Iterator[tuple[list[Kernel], list[BaseException]]]:
    """So many kernels, of which the first has its turn, and why their timekeeper ended, once it has."""
    pairs = [socket.socketpair() for _ in range(count)]
    ends: list[BaseException] = []
    clock_fds = tuple(far.detach() for _, far in pairs)
    keeper = Timekeeper(Wiring(names=tuple(map(str, range(count))), clock_fds=clock_fds, trunks=()))

    def serve() -> None:
        try:
            keeper.serve()
        except Exception as end:
            ends.append(end)

    thread = threading.Thread(target=serve)
    thread.start()
    kernels = [Kernel(near) for near, _ in pairs]
    try:
        for kernel in kernels:
            kernel.clock.settimeout(DEADLINE_S)
            kernel.send(TimeTravelOperation.START)
        assert kernels[0].hear()[0] == TimeTravelOperation.ACK
        yield kernels, ends
    finally:
        for kernel in kernels:
            kernel.clock.close()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_kernels_boot_one_after_the_other_and_time_goes_on_to_the_earliest_wish() -> None:
    with kept(2) as ((first, second), _):
        assert second.hears_nothing()
        first.wait_until(500)
        assert second.hear()[0] == TimeTravelOperation.ACK
        second.wait_until(300)
        assert second.obey() == (TimeTravelOperation.FREE_UNTIL, 500)  # it had the turn before, too
        assert second.obey() == (TimeTravelOperation.RUN, 300)
        assert second.ask(TimeTravelOperation.GET) == 300
        assert first.hears_nothing()
        # What a kernel says of its time is everybody's.
        second.ask(TimeTravelOperation.UPDATE, 450)
        assert first.ask(TimeTravelOperation.GET) == 450
        second.wait_until(700)
        assert first.obey() == (TimeTravelOperation.RUN, 500)


def test_the_end_of_a_kernel_is_reported_by_its_number() -> None:
    with kept(2) as ((first, second), ends):
        first.wait_until(500)
        second.clock.close()
    assert isinstance(ends[0], KernelGoneError) and ends[0].number == 1


def test_kernels_that_all_wait_for_ever_are_an_error() -> None:
    with kept(1) as ((only,), ends):
        only.wait_until(NEVER_NS)
    assert "none of them for a time" in str(ends[0])


def test_half_a_message_is_the_end() -> None:
    for garbage in (b"x", b""):
        with kept(1) as ((only,), ends):
            only.clock.sendall(garbage)
            only.clock.close()
        assert isinstance(ends[0], KernelGoneError)
