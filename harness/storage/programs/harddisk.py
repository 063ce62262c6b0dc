"""A simulated hard disk: memory that answers with the latency of seek, rotation and transfer.

This program runs by itself under the distribution's Python, perhaps on another machine: it imports nothing of
the harness. It is an NBD server (the protocol is doc/proto.md of NetworkBlockDevice/nbd) on one end of a
socket pair; it gives the other end to the kernel's /dev/nbd0. Its one argument is JSON: ``size_bytes``, and
the fields of ``harness.model.MovingParts``. Times are those of the monotonic clock, so it keeps virtual time.
From SIGUSR1 to SIGUSR2 it answers nothing. SIGSTOP would end the disk: the kernel's nbd takes a signal to
who is in NBD_DO_IT for the end.
"""

import ctypes
import fcntl
import json
import math
import os
import signal
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass

DEVICE = "/dev/nbd0"
BLOCK_BYTES = 512
# linux/nbd.h
SET_SOCK, SET_BLKSIZE, DO_IT, SET_SIZE_BLOCKS = 0xAB00, 0xAB01, 0xAB03, 0xAB07
REQUEST, REPLY = struct.Struct(">IHHQQI"), struct.Struct(">IIQ")
REQUEST_MAGIC, REPLY_MAGIC = 0x25609513, 0x67446698
READ, WRITE, DISCONNECT = 0, 1, 2

PR_SET_TIMERSLACK = 29
SO_SNDBUFFORCE = 32
SOCKET_BYTES = 4 << 20
SECOND_NS = 10**9


@dataclass(kw_only=True)
class Mechanics:
    """The positions of arm and platter, and when they have done what is asked of them."""

    rpm: int
    rate_bytes_s: int
    command_us: float
    track_seek_us: float
    average_seek_us: float
    capacity_bytes: int
    read_ahead_bytes: int
    _position: int = 0
    _passed_ns: int = 0

    def done_ns(self, now_ns: int, offset: int, length: int) -> int:
        """When a command that comes at ``now_ns`` is done; commands are carried out one after another.

        What begins where the last command ended is already under the head or in the disk's buffer. It waits
        for the command and for the medium, whichever is later. Everything else waits for the arm to reach the
        track and for the platter to bring the first byte round.
        """
        begin_ns = now_ns + round(self.command_us * 1000)
        if offset == self._position:
            # The platter has gone on in the meantime, as far as the buffer had room.
            ahead_ns = self.read_ahead_bytes * SECOND_NS // self.rate_bytes_s
            self._passed_ns = max(self._passed_ns, now_ns - ahead_ns)
        else:
            there_ns = begin_ns + self.seek_ns(abs(offset - self._position))
            self._passed_ns = there_ns + self._until_below_ns(offset, there_ns)
        self._position = offset + length
        self._passed_ns += length * SECOND_NS // self.rate_bytes_s
        return max(begin_ns, self._passed_ns)

    def seek_ns(self, distance: int) -> int:
        """How long the arm takes over a distance in bytes: a settling time, plus the square root of the
        distance.

        15/8 makes ``average_seek_us`` the mean over all pairs of places on the disk, as in data sheets: the
        mean square root of a uniform random distance is 8/15 of that of the longest.
        """
        if distance < self._track_bytes:
            return 0
        way = 15 / 8 * math.sqrt(distance / self.capacity_bytes)
        return round(1000 * (self.track_seek_us + (self.average_seek_us - self.track_seek_us) * way))

    @property
    def _turn_ns(self) -> int:
        return 60 * SECOND_NS // self.rpm

    @property
    def _track_bytes(self) -> int:
        return self.rate_bytes_s * self._turn_ns // SECOND_NS

    def _until_below_ns(self, offset: int, now_ns: int) -> int:
        """How long until a byte passes below the head.

        Counted in turns since the clock's zero, not in turns of whole nanoseconds: at 7200 rpm those would
        make 120.0000048 turns a second, and each second would find the platter in another position.
        """
        after_index_ns = offset % self._track_bytes * SECOND_NS // self.rate_bytes_s
        return (after_index_ns - now_ns) * self.rpm % (60 * SECOND_NS) // self.rpm


def receive_into(connection: socket.socket, room: memoryview) -> bool:
    """Fill ``room``; false if the stream ended before it was full."""
    while room and (got := connection.recv_into(room)):
        room = room[got:]
    return not room


def serve(connection: socket.socket, store: memoryview, mechanics: Mechanics) -> None:
    """Answer requests in their order, each when the mechanics have done it, until told to disconnect."""
    header = memoryview(bytearray(REQUEST.size))
    while receive_into(connection, header):
        magic, _flags, kind, handle, offset, length = REQUEST.unpack(header)
        if magic != REQUEST_MAGIC or kind == DISCONNECT:
            return
        now_ns = time.monotonic_ns()
        if kind == WRITE:
            receive_into(connection, store[offset : offset + length])
        if kind in (READ, WRITE):
            done_ns = mechanics.done_ns(now_ns, offset, length)
            time.sleep(max(0, done_ns - time.monotonic_ns()) / SECOND_NS)
        connection.sendall(REPLY.pack(REPLY_MAGIC, 0, handle))
        if kind == READ:
            connection.sendall(store[offset : offset + length])


def stall(*_: object) -> None:
    signal.sigwait({signal.SIGUSR2})


def main(request: dict[str, int]) -> None:
    # No thread but this one takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
    signal.signal(signal.SIGUSR1, stall)
    # Otherwise a sleep may end 50 us late, to save the processor wake-ups (prctl(2)).
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    store = memoryview(bytearray(request.pop("size_bytes")))
    ours, kernels = socket.socketpair()
    for end in (ours, kernels):
        # Room for the largest command, so that neither side waits for the other in the middle of one.
        end.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BYTES)
    device = os.open(DEVICE, os.O_RDWR)
    fcntl.ioctl(device, SET_BLKSIZE, BLOCK_BYTES)
    fcntl.ioctl(device, SET_SIZE_BLOCKS, len(store) // BLOCK_BYTES)
    fcntl.ioctl(device, SET_SOCK, kernels.fileno())
    # It returns when the kernel is done with the device.
    threading.Thread(target=fcntl.ioctl, args=(device, DO_IT), daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    serve(ours, store, Mechanics(**request))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
