"""The process that keeps the virtual time of several kernels, and serves the network between them.

One kernel runs until it waits. A frame that it sends is put into the memory of the kernel at the other end of
the trunk before it goes on, and that one is interrupted at the same moment of virtual time.
When the first kernel ends, the others stay where they are, until whoever booted them ends them. When another
one ends before, so does this process, and with it every kernel ("external link is broken").
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from harness.testbeds.lab.per_host import vhost
from harness.testbeds.lab.per_host.event_queue import MESSAGE, EventQueue, TimeTravelOperation

MOST_MESSAGES = 16
REPLY_BYTES = vhost.HEADER.size + vhost.NUMBER.size


class Trunk(msgspec.Struct, frozen=True):
    """A wire between two kernels: the number of each, and the socket whose other end its driver has."""

    kernels: tuple[int, int]
    fds: tuple[int, int]


class Wiring(msgspec.Struct, frozen=True):
    """What to serve: the names of kernels, a socket to the clock of each, and the trunks.

    The number of a kernel is its place. The end of the first one is everybody's.
    """

    names: tuple[str, ...]
    clock_fds: tuple[int, ...]
    trunks: tuple[Trunk, ...]


class KernelGoneError(Exception):
    """A kernel has hung up."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the clock of kernel {number} was closed")
        self.number = number


class StandstillError(Exception):
    """No kernel will ever run again."""


@dataclass(kw_only=True)
class KernelClock:
    """The clock of a kernel, and its interfaces."""

    clock: socket.socket
    ports: list[vhost.Port] = field(default_factory=list)
    start: int | None = None
    """The number of the message with which it started, which is answered at its first turn."""

    free_until_ns: int = 0
    unheard: int = 0
    """How many orders it has not acknowledged yet."""

    def order(self, operation: TimeTravelOperation, time_ns: int) -> bytes:
        """A message of the event queue's to it."""
        self.unheard += 1
        return MESSAGE.pack(operation, self.unheard, time_ns)

    @property
    def has_news(self) -> bool:
        return any(port.has_news for port in self.ports)


class Timekeeper:
    """Grants time to the kernels of a wiring."""

    def __init__(self, wiring: Wiring) -> None:
        self._event_queue = EventQueue()
        self._running = -1
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._kernels = [KernelClock(clock=socket.socket(fileno=fd)) for fd in wiring.clock_fds]
        for number, kernel in enumerate(self._kernels):
            self._event_queue.wish(number, 0)
            self._on_message(kernel.clock, partial(self._hear, number))
        for trunk in wiring.trunks:
            self._lay(trunk)

    def _on_message(self, connection: socket.socket, handle: Callable[[], None]) -> None:
        self._poll.register(connection, select.EPOLLIN)
        self._handlers[connection.fileno()] = handle

    def _lay(self, trunk: Trunk) -> None:
        ports: list[vhost.Port] = []
        for end, (number, fd) in enumerate(zip(trunk.kernels, trunk.fds, strict=True)):
            far = 1 - end
            peer = trunk.kernels[far]
            mac = bytes((0x52, 0x54, 0, 0, number, peer))

            def deliver(frame: bytes, far: int = far) -> None:
                ports[far].receive(frame)

            port = vhost.Port(socket.socket(fileno=fd), mac, deliver)
            ports.append(port)
            self._kernels[number].ports.append(port)
            self._on_message(port.connection, partial(self._serve_port, number, port, peer))

    def serve(self) -> None:
        """Until a kernel ends: KernelGoneError."""
        for number, kernel in enumerate(self._kernels):
            # It begins to boot, and does not go on before its first turn.
            ((_, kernel.start, _),) = self._receive(number)
        self._let_next_run()
        while True:
            for fd, _ in self._poll.poll():
                self._handlers[fd]()

    def _hear(self, number: int) -> None:
        """The next messages of a kernel to the event queue."""
        kernel, event_queue = self._kernels[number], self._event_queue
        for operation, message, time_ns in self._receive(number):
            if operation == TimeTravelOperation.ACK:
                kernel.unheard -= 1
                continue
            if operation == TimeTravelOperation.REQUEST:
                event_queue.wish(number, time_ns)
            elif operation == TimeTravelOperation.UPDATE:
                event_queue.update(time_ns)
            self._send(number, MESSAGE.pack(TimeTravelOperation.ACK, message, event_queue.now_ns))
            if operation == TimeTravelOperation.WAIT:
                kernel.free_until_ns = 0
                self._tell(number)
                self._let_next_run()

    def _receive(self, number: int) -> list[tuple[int, int, int]]:
        try:
            data = self._kernels[number].clock.recv(MOST_MESSAGES * MESSAGE.size)
        except ConnectionError:
            data = b""
        if not data or len(data) % MESSAGE.size:
            raise KernelGoneError(number)
        return list(MESSAGE.iter_unpack(data))

    def _send(self, number: int, data: bytes, files: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._kernels[number].clock, [data], files)
        except ConnectionError:
            raise KernelGoneError(number) from None

    def _let_next_run(self) -> None:
        number = self._event_queue.next()
        if number is None:
            raise StandstillError("all kernels wait, none of them for a timer")
        kernel, now_ns = self._kernels[number], self._event_queue.now_ns
        goes_on = number == self._running
        self._running = number
        if kernel.start is not None:
            with Path(os.devnull).open("rb") as nothing:
                # Since Linux 6.12 a kernel expects two files with it, and does without what they may hold.
                files = [nothing.fileno()] * 2
                self._send(number, MESSAGE.pack(TimeTravelOperation.ACK, kernel.start, now_ns), files)
            kernel.start = None
            return
        orders = b""
        # Where kernels take turns, what is allowed to one is soon taken back from it.
        if goes_on and (until_ns := self._limit_ns(number)) > now_ns:
            kernel.free_until_ns = until_ns
            orders = kernel.order(TimeTravelOperation.FREE_UNTIL, until_ns)
        self._send(number, orders + kernel.order(TimeTravelOperation.RUN, now_ns))

    def _limit_ns(self, number: int) -> int:
        """Until when a kernel may set its clock by itself."""
        now_ns = self._event_queue.now_ns
        return now_ns if self._kernels[number].has_news else self._event_queue.free_until_ns(number)

    def _serve_port(self, number: int, port: vhost.Port, peer: int) -> None:
        """The next message of the driver of one interface, whose trunk leads to the kernel ``peer``."""
        try:
            answer = port.handle()
        except (EOFError, ConnectionError):
            raise KernelGoneError(number) from None
        self._tell(peer)
        kernel = self._kernels[number]
        if (until_ns := self._limit_ns(number)) < kernel.free_until_ns:
            kernel.free_until_ns = until_ns
            self._send(number, kernel.order(TimeTravelOperation.FREE_UNTIL, until_ns))
            while kernel.unheard:  # before it goes on
                self._hear(number)
        if answer is not None:
            port.connection.sendall(answer)

    def _tell(self, number: int) -> None:
        """Interrupt a kernel that waits, if there is news for it: now, in virtual time."""
        for port in self._kernels[number].ports:
            port.fill()
            for call in port.calls():
                self._interrupt(number, port, call)

    def _interrupt(self, number: int, port: vhost.Port, call: bytes) -> None:
        if port.back is None:
            raise vhost.ProtocolError("expected a channel for interrupts, found none")
        clock = self._kernels[number].clock
        port.back.sendall(call)
        poll = select.poll()
        poll.register(clock, select.POLLIN)
        poll.register(port.back, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if clock.fileno() in ready:
                self._hear(number)
            elif len(port.back.recv(REPLY_BYTES, socket.MSG_WAITALL)) == REPLY_BYTES:
                return
            else:
                raise KernelGoneError(number)


def main() -> None:
    """The process; its argument is a ``Wiring`` as JSON."""
    wiring = msgspec.json.decode(sys.argv[1], type=Wiring)
    try:
        Timekeeper(wiring).serve()
    except KernelGoneError as gone:
        if gone.number:
            sys.exit(f"the kernel of {wiring.names[gone.number]} ended, so virtual time stops for all")
        signal.pause()
    except (vhost.ProtocolError, StandstillError, ConnectionError) as error:
        sys.exit(f"the kernels' virtual time cannot go on: {error}")
