"""The far side of a virtio network interface: what vhost-user calls the back-end.

A user-mode kernel shares its memory with whoever serves its device (arch/um/drivers/virtio_uml.c), and says
in a message when there is something to send (VHOST_USER_PROTOCOL_F_INBAND_NOTIFICATIONS). So frames belong to
a time that kernels share: the one that sends waits until they are taken, and no clock goes on meanwhile.

The protocol is that of QEMU's docs/interop/vhost-user.rst. The queues are the split virtqueues of the Virtual
I/O Device (VIRTIO) Version 1.1, 2.6, and frames have the header of its 5.1.6: kernels hand on segments that
are yet to be cut and checksums that are yet to be made, as they do between interfaces of one kernel.
"""

from __future__ import annotations

import array
import collections
import enum
import mmap
import os
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

HEADER = struct.Struct("=III")
"""Request, flags and size of what follows."""

NUMBER = struct.Struct("=Q")
STATE = struct.Struct("=II")
ADDRESSES = struct.Struct("=IIQQQQ")
REGION = struct.Struct("=QQQQ")
CONFIG = struct.Struct("=III")
DESCRIPTOR = struct.Struct("<QIHH")
"""Address, length, flags, and the next one (2.6.5)."""

VERSION, REPLY, NEED_REPLY = 1, 1 << 2, 1 << 3
FLAG_NEXT, FLAG_INDIRECT = 1, 4
NO_INTERRUPT = NO_NOTIFY = 1
CHECKSUMS = 1 << 0 | 1 << 1
"""VIRTIO_NET_F_CSUM and VIRTIO_NET_F_GUEST_CSUM: whole checksums may be left to the receiver, here never."""

SEGMENTS = 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12
"""VIRTIO_NET_F_GUEST_TSO4 and TSO6, and VIRTIO_NET_F_HOST_TSO4 and TSO6."""

MAC, MERGED_BUFFERS = 1 << 5, 1 << 15
INDIRECT, PROTOCOL_FEATURES, VERSION_1 = 1 << 28, 1 << 30, 1 << 32
FEATURES = CHECKSUMS | SEGMENTS | MAC | MERGED_BUFFERS | INDIRECT | PROTOCOL_FEATURES | VERSION_1
ACKNOWLEDGED, BACK_CHANNEL, HAS_CONFIG, IN_BAND = 1 << 3, 1 << 5, 1 << 9, 1 << 14
PROTOCOL = ACKNOWLEDGED | BACK_CHANNEL | HAS_CONFIG | IN_BAND
NET_HEADER_BYTES = 12
"""struct virtio_net_hdr_v1; its last two bytes are the number of buffers that a frame fills."""

RECEIVE, TRANSMIT = 0, 1
CALL = 4
"""VHOST_USER_BACKEND_VRING_CALL."""

MOST_FDS = 2
MOST_WAITING = 4096
"""Frames that wait for the receiver's buffers; more are dropped, as a full interface drops them."""


class VhostUserRequest(enum.IntEnum):
    """The messages of the kernel's driver."""

    GET_FEATURES = 1
    SET_FEATURES = 2
    SET_OWNER = 3
    SET_MEM_TABLE = 5
    SET_VRING_NUM = 8
    SET_VRING_ADDR = 9
    SET_VRING_BASE = 10
    GET_PROTOCOL_FEATURES = 15
    SET_PROTOCOL_FEATURES = 16
    SET_VRING_ENABLE = 18
    SET_BACKEND_REQ_FD = 21
    GET_CONFIG = 24
    VRING_KICK = 35


class ProtocolError(Exception):
    """A kernel sent what no driver of virtio_uml.c sends."""


@dataclass(kw_only=True)
class Region:
    """Memory of the kernel, which it calls by addresses from ``begin`` on."""

    begin: int
    size: int
    offset: int
    memory: mmap.mmap


class Memory:
    """The memory that a kernel shares."""

    def __init__(self) -> None:
        self._regions: list[Region] = []

    def share(self, payload: bytes, fds: list[int]) -> None:
        """Map the regions of a SET_MEM_TABLE; closes ``fds``."""
        (count,) = struct.unpack_from("=I", payload)
        for number, fd in zip(range(count), fds, strict=False):
            begin, size, _, offset = REGION.unpack_from(payload, 8 + number * REGION.size)
            memory = mmap.mmap(fd, offset + size)
            self._regions.append(Region(begin=begin, size=size, offset=offset, memory=memory))
        for fd in fds:
            os.close(fd)

    def find(self, address: int, size: int) -> tuple[mmap.mmap, int]:
        """The memory at an address, and where it begins in it. ProtocolError if it is not shared."""
        for region in self._regions:
            if region.begin <= address and address + size <= region.begin + region.size:
                return region.memory, address - region.begin + region.offset
        raise ProtocolError(f"expected an address in the shared memory, found {address:#x} with {size} bytes")

    def read(self, address: int, size: int) -> bytes:
        memory, at = self.find(address, size)
        return memory[at : at + size]

    def write(self, address: int, data: bytes) -> None:
        memory, at = self.find(address, len(data))
        memory[at : at + len(data)] = data

    def close(self) -> None:
        for region in self._regions:
            region.memory.close()
        self._regions.clear()


class Queue:
    """A split virtqueue (2.6): the driver makes buffers available, the device uses them."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0
        self._taken = 0
        self._used = 0
        self._descriptors = self._available = self._returned = 0

    def place(self, descriptors: int, returned: int, available: int) -> None:
        self._descriptors, self._returned, self._available = descriptors, returned, available

    def ask_for_no_kicks(self) -> None:
        self._memory.write(self._returned, struct.pack("<H", NO_NOTIFY))

    @property
    def wants_calls(self) -> bool:
        (flags,) = struct.unpack("<H", self._memory.read(self._available, 2))
        return not flags & NO_INTERRUPT

    def waiting(self) -> int:
        """How many buffers are available."""
        (there,) = struct.unpack("<H", self._memory.read(self._available + 2, 2))
        return int(there - self._taken) & 0xFFFF

    def take(self) -> tuple[int, list[tuple[int, int]]]:
        """The next available buffer: its number, and the address and size of each of its parts."""
        slot = self._available + 4 + 2 * (self._taken % self.size)
        (head,) = struct.unpack("<H", self._memory.read(slot, 2))
        self._taken = (self._taken + 1) & 0xFFFF
        return head, list(self._parts(head))

    def put_back(self, count: int) -> None:
        """The last buffers that were taken are available again."""
        self._taken = (self._taken - count) & 0xFFFF

    def _parts(self, head: int) -> Iterator[tuple[int, int]]:
        table, at = self._descriptors, head
        for _ in range(self.size):
            address, size, flags, following = DESCRIPTOR.unpack(
                self._memory.read(table + at * DESCRIPTOR.size, DESCRIPTOR.size)
            )
            if flags & FLAG_INDIRECT:
                entries = self._memory.read(address, size)
                # In such a table they follow each other, as the driver of Linux fills it.
                yield from ((part, length) for part, length, _, _ in DESCRIPTOR.iter_unpack(entries))
                return
            yield address, size
            if not flags & FLAG_NEXT:
                return
            at = following
        raise ProtocolError("expected a buffer that ends, found a ring of descriptors")

    def give_back(self, heads: list[tuple[int, int]]) -> None:
        """Return buffers to the driver, each with how many bytes were written into it."""
        for head, written in heads:
            slot = self._returned + 4 + 8 * (self._used % self.size)
            self._memory.write(slot, struct.pack("<II", head, written))
            self._used = (self._used + 1) & 0xFFFF
        self._memory.write(self._returned + 2, struct.pack("<H", self._used))


class Port:
    """One interface of a kernel. What it sends goes to ``deliver``, frame by frame with its header."""

    def __init__(self, connection: socket.socket, mac: bytes, deliver: Callable[[bytes], None]) -> None:
        self.connection = connection
        self.back: socket.socket | None = None
        """Where the driver hears of interrupts."""
        self._mac = mac
        self._deliver = deliver
        self._memory = Memory()
        self._queues = (Queue(self._memory), Queue(self._memory))
        self._enabled = [False, False]
        self._due = [False, False]
        self._waiting: collections.deque[bytes] = collections.deque()

    def close(self) -> None:
        self.connection.close()
        if self.back is not None:
            self.back.close()
        self._memory.close()

    def handle(self) -> bytes | None:
        """Do what the next message asks, and return its answer. The kernel waits for that.

        EOFError if the kernel is gone; ProtocolError.
        """
        data, fds = self._receive()
        kind, flags, size = HEADER.unpack(data)
        payload = self._rest(size)
        try:
            request = VhostUserRequest(kind)
        except ValueError:
            raise ProtocolError(f"expected a known message of vhost-user, found number {kind}") from None
        if (
            request is not VhostUserRequest.SET_MEM_TABLE
            and request is not VhostUserRequest.SET_BACKEND_REQ_FD
        ):
            for fd in fds:
                os.close(fd)
        answer = self._do(request, payload, fds)
        if answer is None and flags & NEED_REPLY:
            answer = NUMBER.pack(0)
        if answer is None:
            return None
        return HEADER.pack(kind, VERSION | REPLY, len(answer)) + answer

    def _receive(self) -> tuple[bytes, list[int]]:
        room = socket.CMSG_SPACE(MOST_FDS * array.array("i").itemsize)
        data, ancillary, _, _ = self.connection.recvmsg(HEADER.size, room)
        fds = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        if not data:
            raise EOFError
        return data + self._rest(HEADER.size - len(data)), list(fds)

    def _rest(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.connection.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def _do(self, request: VhostUserRequest, payload: bytes, fds: list[int]) -> bytes | None:
        match request:
            case VhostUserRequest.GET_FEATURES:
                return NUMBER.pack(FEATURES)
            case VhostUserRequest.GET_PROTOCOL_FEATURES:
                return NUMBER.pack(PROTOCOL)
            case VhostUserRequest.GET_CONFIG:
                return self._configuration(payload)
            case VhostUserRequest.SET_MEM_TABLE:
                self._memory.close()
                self._memory.share(payload, fds)
            case VhostUserRequest.SET_BACKEND_REQ_FD:
                (fd,) = fds
                self.back = socket.socket(fileno=fd)
            case VhostUserRequest.SET_VRING_NUM:
                index, size = STATE.unpack(payload)
                self._queues[index].size = size
            case VhostUserRequest.SET_VRING_ADDR:
                index, _, descriptors, returned, available, _ = ADDRESSES.unpack(payload)
                self._queues[index].place(descriptors, returned, available)
            case VhostUserRequest.SET_VRING_ENABLE:
                index, is_on = STATE.unpack(payload)
                self._enabled[index] = bool(is_on)
                if is_on and index == RECEIVE:
                    self._queues[index].ask_for_no_kicks()
            case VhostUserRequest.VRING_KICK:
                index, _ = STATE.unpack(payload)
                if index == TRANSMIT:
                    self._transmit()
            case _:  # the rest changes nothing here
                pass
        return None

    def _configuration(self, payload: bytes) -> bytes:
        """What the driver reads of struct virtio_net_config: the MAC address is its beginning."""
        offset, size, flags = CONFIG.unpack_from(payload)
        return CONFIG.pack(offset, size, flags) + self._mac.ljust(size, b"\0")[:size]

    def _transmit(self) -> None:
        queue = self._queues[TRANSMIT]
        while count := queue.waiting():
            done = []
            for _ in range(count):
                head, parts = queue.take()
                self._deliver(b"".join(self._memory.read(address, size) for address, size in parts))
                done.append((head, 0))
            queue.give_back(done)
        self._due[TRANSMIT] |= queue.wants_calls

    def receive(self, frame: bytes) -> None:
        """Take a frame, with its header, for the kernel."""
        # An interface that is down drops it.
        if self._enabled[RECEIVE] and len(self._waiting) < MOST_WAITING:
            self._waiting.append(frame)
            self.fill()

    def fill(self) -> None:
        """Put as many of the frames that wait as there are buffers for into the kernel's memory."""
        queue = self._queues[RECEIVE]
        while self._waiting and self._put(queue, self._waiting[0]):
            self._waiting.popleft()
            self._due[RECEIVE] |= queue.wants_calls

    def _put(self, queue: Queue, frame: bytes) -> bool:
        """Whether the buffers that are available were enough for it."""
        there = queue.waiting()
        taken: list[tuple[int, list[tuple[int, int]], int]] = []
        left = memoryview(frame)
        while left:
            if len(taken) == there:
                queue.put_back(len(taken))
                return False
            head, parts = queue.take()
            room = sum(size for _, size in parts)
            taken.append((head, parts, min(room, len(left))))
            left = left[room:]
        data = frame[: NET_HEADER_BYTES - 2] + struct.pack("<H", len(taken)) + frame[NET_HEADER_BYTES:]
        at = 0
        for _, parts, _ in taken:
            for address, size in parts:
                part = data[at : at + size]
                self._memory.write(address, part)
                at += len(part)
        queue.give_back([(head, written) for head, _, written in taken])
        return True

    @property
    def has_news(self) -> bool:
        """Whether the kernel is to be called, or frames wait for its buffers."""
        return any(self._due) or bool(self._waiting)

    def calls(self) -> Iterator[bytes]:
        """The messages with which the kernel's driver is to be interrupted. Each wants an answer."""
        for index, is_due in enumerate(self._due):
            if is_due:
                self._due[index] = False
                yield HEADER.pack(CALL, VERSION | NEED_REPLY, STATE.size) + STATE.pack(index, 0)
