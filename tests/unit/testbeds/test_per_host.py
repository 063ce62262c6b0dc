"""Kernels per host that share one time: their event queue, their clocks, and the far side of their
interfaces."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from harness.testbeds.lab.per_host import vhost
from harness.testbeds.lab.per_host.event_queue import MESSAGE, NEVER_NS, EventQueue, TimeTravelOperation
from harness.testbeds.lab.per_host.timekeeper import KernelGoneError, Timekeeper, Wiring
from harness.testbeds.lab.per_host.vhost import RECEIVE, TRANSMIT, Port, ProtocolError, VhostUserRequest

DEADLINE_S = 60


def event_queue(*wishes_ns: int) -> EventQueue:
    made = EventQueue()
    for number, wish_ns in enumerate(wishes_ns):
        made.wish(number, wish_ns)
    return made


def test_the_earliest_wish_comes_first_and_of_two_for_one_time_the_first_that_was_made() -> None:
    made = event_queue(300, 100, 200)
    assert (made.next(), made.now_ns) == (1, 100)
    assert (made.next(), made.now_ns) == (2, 200)
    for time_ns in (230, 220):
        made.update(time_ns)
        assert made.now_ns == 230, "time never goes back"
    made = event_queue(50, 50)
    made.wish(0, 50)
    assert (made.next(), made.next()) == (1, 0)
    made = event_queue(0, 0, 0)
    assert [made.next() for _ in range(3)] == [0, 1, 2] and made.now_ns == 0
    assert event_queue(NEVER_NS, NEVER_NS).next() is None, "they wait for nothing"


def test_a_kernel_may_set_its_clock_up_to_the_next_wish_of_another() -> None:
    made = event_queue(100, 250, NEVER_NS)
    assert made.next() == 0
    assert (made.free_until_ns(0), made.free_until_ns(1)) == (250, NEVER_NS), "its own wish was fulfilled"
    made.wish(2, 180)
    assert made.free_until_ns(0) == 180
    made = event_queue(100)
    made.next()
    assert made.free_until_ns(0) == NEVER_NS, "it is alone"
    assert made.free_until_ns(0) == NEVER_NS, "it is alone"


@dataclass
class Kernel:
    """The other end of a clock."""

    clock: socket.socket
    sent: int = 0

    def send(self, operation: TimeTravelOperation, time_ns: int = 0) -> None:
        self.sent += 1
        self.clock.sendall(MESSAGE.pack(operation, self.sent, time_ns))

    def ask(self, operation: TimeTravelOperation, time_ns: int = 0) -> int:
        """What the event queue answers: a time."""
        self.send(operation, time_ns)
        answer, number, now_ns = self.hear()
        assert (answer, number) == (TimeTravelOperation.ACK, self.sent)
        return now_ns

    def hear(self) -> tuple[int, ...]:
        return MESSAGE.unpack(self.clock.recv(MESSAGE.size, socket.MSG_WAITALL))

    def obey(self) -> tuple[int, int]:
        """The next order, which is acknowledged."""
        operation, number, time_ns = self.hear()
        self.clock.sendall(MESSAGE.pack(TimeTravelOperation.ACK, number, 0))
        return operation, time_ns

    def wait_until(self, time_ns: int) -> None:
        self.ask(TimeTravelOperation.REQUEST, time_ns)
        self.ask(TimeTravelOperation.WAIT)

    def hears_nothing(self) -> bool:
        return not select.select([self.clock], [], [], 0.1)[0]


@contextlib.contextmanager
def kept(count: int) -> Iterator[tuple[list[Kernel], Future[None]]]:
    """So many kernels, of which the first has its turn, and their timekeeper, which ends with them."""
    pairs = [socket.socketpair() for _ in range(count)]
    clock_fds = tuple(far.detach() for _, far in pairs)
    keeper = Timekeeper(Wiring(names=tuple(map(str, range(count))), clock_fds=clock_fds, trunks=()))
    with ThreadPoolExecutor() as pool, contextlib.ExitStack() as clocks:
        keeping = pool.submit(keeper.serve)
        kernels = [Kernel(clocks.enter_context(near)) for near, _ in pairs]
        for kernel in kernels:
            kernel.clock.settimeout(DEADLINE_S)
            kernel.send(TimeTravelOperation.START)
        assert kernels[0].hear()[0] == TimeTravelOperation.ACK
        yield kernels, keeping


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


@pytest.mark.parametrize("half_a_message", [b"", b"x"])
def test_the_end_of_a_kernel_is_reported_by_its_number(half_a_message: bytes) -> None:
    with kept(2) as ((first, second), keeping):
        first.wait_until(500)
        second.clock.sendall(half_a_message)
        second.clock.close()
        gone = keeping.exception(DEADLINE_S)  # before the other's end, which would be as good a reason
    assert isinstance(gone, KernelGoneError) and gone.number == 1


def test_kernels_that_all_wait_for_ever_are_an_error() -> None:
    with kept(1) as ((only,), keeping):
        only.wait_until(NEVER_NS)
        gone = keeping.exception(DEADLINE_S)
    assert "none of them for a time" in str(gone)


BEGIN, SIZE, OFFSET = 0x40000, 1 << 20, 0x1000
DESCRIPTORS = {RECEIVE: BEGIN, TRANSMIT: BEGIN + 0x4000}
AVAILABLE, USED = 0x1000, 0x2000
"""How far they are behind the queue's descriptors."""
BUFFERS = BEGIN + 0x20000
SLOTS = 8
MAC = bytes.fromhex("525400000102")
HEADER = bytes(vhost.NET_HEADER_BYTES)
NEXT, INDIRECT = 1, 4


@dataclass
class Driver:
    """Memory that it shares, and its ends of the two channels. Addresses are from ``BEGIN`` on."""

    socket: socket.socket
    port: Port
    fd: int
    sent: list[bytes]
    made: dict[int, int] = field(default_factory=lambda: {RECEIVE: 0, TRANSMIT: 0})

    def ask(self, request: VhostUserRequest, payload: bytes = b"", *fds: int, reply: bool = True) -> bytes:
        flags = vhost.VERSION | (vhost.NEED_REPLY if reply else 0)
        data = vhost.HEADER.pack(request, flags, len(payload)) + payload
        socket.send_fds(self.socket, [data], fds)
        answer = self.port.handle()
        if answer is None:
            return b""
        size = len(answer) - vhost.HEADER.size
        assert vhost.HEADER.unpack_from(answer) == (request, vhost.VERSION | vhost.REPLY, size)
        return answer[-size:]

    def write(self, address: int, data: bytes) -> None:
        os.pwrite(self.fd, data, address - BEGIN + OFFSET)

    def read(self, address: int, size: int) -> bytes:
        return os.pread(self.fd, size, address - BEGIN + OFFSET)

    def describe(self, queue: int, number: int, address: int, size: int, flags: int = 0, to: int = 0) -> None:
        place = DESCRIPTORS[queue] + number * vhost.DESCRIPTOR.size
        self.write(place, vhost.DESCRIPTOR.pack(address, size, flags, to))

    def offer(self, queue: int, head: int) -> None:
        made, available = self.made[queue], DESCRIPTORS[queue] + AVAILABLE
        self.write(available + 4 + 2 * (made % SLOTS), struct.pack("<H", head))
        self.made[queue] = made + 1
        self.write(available + 2, struct.pack("<H", (made + 1) & 0xFFFF))

    def kick(self) -> None:
        assert self.ask(VhostUserRequest.VRING_KICK, vhost.STATE.pack(TRANSMIT, 0)) == vhost.NUMBER.pack(0)

    def returned(self, queue: int) -> list[tuple[int, int]]:
        """Buffers that came back, and how much was written into each."""
        used = DESCRIPTORS[queue] + USED
        (count,) = struct.unpack("<H", self.read(used + 2, 2))
        entries = list(struct.iter_unpack("<II", self.read(used + 4, 8 * SLOTS)))
        return [entries[number % SLOTS] for number in range(max(0, count - SLOTS), count)]

    def offer_room(self, count: int, size: int) -> list[int]:
        """Receive buffers; returns their addresses."""
        addresses = [BUFFERS + number * 0x1000 for number in range(count)]
        for number, address in enumerate(addresses):
            self.describe(RECEIVE, number, address, size, flags=2)
            self.offer(RECEIVE, number)
        return addresses


@pytest.fixture
def driver() -> Iterator[Driver]:
    here, there = socket.socketpair()
    sent: list[bytes] = []
    with here, tempfile.TemporaryFile() as memory, contextlib.closing(Port(there, MAC, sent.append)) as port:
        memory.truncate(OFFSET + SIZE)
        made = Driver(here, port, memory.fileno(), sent)
        region = struct.pack("=II", 1, 0) + vhost.REGION.pack(BEGIN, SIZE, BEGIN, OFFSET)
        made.ask(VhostUserRequest.SET_MEM_TABLE, region, os.dup(made.fd))
        for queue, place in DESCRIPTORS.items():
            made.ask(VhostUserRequest.SET_VRING_NUM, vhost.STATE.pack(queue, SLOTS))
            made.ask(VhostUserRequest.SET_VRING_BASE, vhost.STATE.pack(queue, 0))
            places = vhost.ADDRESSES.pack(queue, 0, place, place + USED, place + AVAILABLE, 0)
            made.ask(VhostUserRequest.SET_VRING_ADDR, places)
            made.ask(VhostUserRequest.SET_VRING_ENABLE, vhost.STATE.pack(queue, 1))
        yield made


def test_what_is_offered_is_what_the_kernel_needs_for_one_time(driver: Driver) -> None:
    (protocol,) = vhost.NUMBER.unpack(driver.ask(VhostUserRequest.GET_PROTOCOL_FEATURES, reply=False))
    assert protocol == 1 << 3 | 1 << 5 | 1 << 9 | 1 << 14
    (features,) = vhost.NUMBER.unpack(driver.ask(VhostUserRequest.GET_FEATURES, reply=False))
    assert features & (1 << 32 | 1 << 30) and not features & 1 << 29  # VIRTIO_RING_F_EVENT_IDX
    # The configuration begins with the MAC address.
    answer = driver.ask(VhostUserRequest.GET_CONFIG, vhost.CONFIG.pack(0, 6, 0) + bytes(6), reply=False)
    assert answer == vhost.CONFIG.pack(0, 6, 0) + MAC
    # A message without need of an answer gets none.
    assert driver.ask(VhostUserRequest.SET_OWNER, reply=False) == b""
    assert driver.ask(VhostUserRequest.SET_OWNER) == vhost.NUMBER.pack(0)


def test_a_frame_is_sent_whole_from_several_parts_or_from_a_table_of_its_own(driver: Driver) -> None:
    addresses = [BUFFERS + place for place in (0, 0x100, 0x200, 0x300)]
    for number, part in enumerate((HEADER, b"ether", b"net")):
        driver.write(addresses[number], part)
        flags = NEXT if number < 2 else 0
        driver.describe(TRANSMIT, number, addresses[number], len(part), flags, number + 1)
    entries = vhost.DESCRIPTOR.pack(addresses[0], len(HEADER), NEXT, 1)
    entries += vhost.DESCRIPTOR.pack(addresses[1], 5, 0, 0)
    driver.write(addresses[3], entries)
    driver.describe(TRANSMIT, 3, addresses[3], len(entries), INDIRECT)
    for head in (0, 3):
        driver.offer(TRANSMIT, head)
        driver.kick()
    assert driver.sent == [HEADER + b"ethernet", HEADER + b"ether"]
    assert driver.returned(TRANSMIT) == [(0, 0), (3, 0)]


def test_the_sender_hears_of_taken_frames_only_if_it_wants_to(driver: Driver) -> None:
    driver.write(BUFFERS, HEADER + b"x")
    driver.describe(TRANSMIT, 0, BUFFERS, len(HEADER) + 1)
    for flags, calls in ((0, 1), (vhost.NO_INTERRUPT, 0)):
        driver.sent.clear()
        driver.offer(TRANSMIT, 0)
        driver.write(DESCRIPTORS[TRANSMIT] + AVAILABLE, struct.pack("<H", flags))
        driver.kick()
        assert len(list(driver.port.calls())) == calls
        assert driver.sent and not driver.port.has_news


def test_a_frame_is_received_and_the_kernel_called_once(driver: Driver) -> None:
    addresses = driver.offer_room(2, 0x800)
    for word in (b"one", b"two"):
        driver.port.receive(HEADER + word)
    (call,) = driver.port.calls()
    assert vhost.HEADER.unpack_from(call) == (vhost.CALL, vhost.VERSION | vhost.NEED_REPLY, 8)
    assert vhost.STATE.unpack_from(call, vhost.HEADER.size) == (RECEIVE, 0)
    begin = HEADER[:10] + b"\x01\x00"
    assert [driver.read(address, 15) for address in addresses] == [begin + b"one", begin + b"two"]
    assert driver.returned(RECEIVE) == [(0, 15), (1, 15)]


def test_a_long_frame_fills_several_buffers_and_says_how_many(driver: Driver) -> None:
    addresses = driver.offer_room(3, 100)
    frame = HEADER + bytes(range(240))
    driver.port.receive(frame)
    got = b"".join(driver.read(address, 100) for address in addresses)[: len(frame)]
    assert got == HEADER[:10] + b"\x03\x00" + frame[12:]
    assert driver.returned(RECEIVE) == [(0, 100), (1, 100), (2, 52)]
    driver.ask(VhostUserRequest.SET_VRING_ENABLE, vhost.STATE.pack(RECEIVE, 0))
    driver.offer(RECEIVE, 0)
    driver.port.receive(HEADER + b"x")
    assert list(driver.port.calls()) and not driver.port.has_news, "it is down"
    assert len(driver.returned(RECEIVE)) == 3


def test_frames_wait_for_buffers_in_their_order(driver: Driver) -> None:
    driver.offer_room(1, 100)
    driver.port.receive(HEADER + bytes(150))
    driver.port.receive(HEADER + b"short")
    assert driver.returned(RECEIVE) == [] and driver.port.has_news
    driver.describe(RECEIVE, 1, BUFFERS + 0x1000, 100, flags=2)
    driver.offer(RECEIVE, 1)
    driver.port.fill()
    assert driver.returned(RECEIVE) == [(0, 100), (1, 62)]
    assert list(driver.port.calls()) and driver.port.has_news, "the short one waits"


def test_what_no_kernel_sends_is_refused_until_it_is_gone(driver: Driver) -> None:
    driver.describe(TRANSMIT, 0, BEGIN + SIZE - 4, 8)
    driver.offer(TRANSMIT, 0)
    for number, payload, words in (
        (VhostUserRequest.VRING_KICK, vhost.STATE.pack(TRANSMIT, 0), "shared memory, found 0x13fffc"),
        (99, b"", "found number 99"),
    ):
        driver.socket.sendall(vhost.HEADER.pack(number, vhost.VERSION, len(payload)) + payload)
        with pytest.raises(ProtocolError, match=words):
            driver.port.handle()
    driver.socket.close()
    with pytest.raises(EOFError):
        driver.port.handle()
