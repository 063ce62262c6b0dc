"""Reads places of a volume to learn whether a disk answers, or memory: one request on standard input (JSON).

This program runs by itself under the distribution's Python, perhaps on another machine. It only reads, past
the page cache of its own machine (open(2), O_DIRECT), and only gathers facts: ``analysis/reread.py`` decides
what they mean.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import mmap
import os
import random
import stat
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

from harness.hosts.programs.answering import answer

BLKSSZGET = 0x1268  # linux/fs.h
SG_IO = 0x2285  # scsi/sg.h
NVME_IOCTL_ADMIN_CMD = 0xC0484E41  # linux/nvme_ioctl.h
SG_HEADER = struct.Struct("@iiBBHIPPPIIiPBBBBHHiII0P")
SG_NONE, SG_FROM_DEVICE = -1, -3
COMMAND_MS = 5000

PAGE_BYTES = 4096
PLACES, TURNS, LEAD = 512, 128, 64
"""Places that may be read, each in its own part of the volume; turns of the re-read test; and how many other
blocks are read before one is read again: more than the segments of a hard disk's own buffer."""

LONGER = 8
"""The longer reads have so many blocks: their time beyond that of one block is what bytes take on the way."""

COMMANDS, FEWEST = 200, 20
"""How many commands without a medium are timed, and how many even if that takes longer than asked."""

CONTENT = 256
"""Blocks whose content is looked at."""


class Volume:
    """A block device or a file, open for direct reads."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        self._is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self.size_bytes = os.lseek(self._descriptor, 0, os.SEEK_END)
        self.block_bytes = PAGE_BYTES
        if not self._is_file:
            (self.block_bytes,) = struct.unpack("=i", fcntl.ioctl(self._descriptor, BLKSSZGET, bytes(4)))
        self._room = memoryview(mmap.mmap(-1, max(PAGE_BYTES, LONGER * self.block_bytes)))
        self._command = ctypes.create_string_buffer(32)
        self._sense = ctypes.create_string_buffer(64)
        self._page = ctypes.create_string_buffer(PAGE_BYTES)

    def read(self, offset: int, length: int) -> memoryview:
        """OSError, also if there is less."""
        got = os.preadv(self._descriptor, [self._room[:length]], offset)
        if got != length:
            raise OSError(f"expected {length} bytes at {offset}, found {got}")
        return self._room[:length]

    def is_zero(self, length: int) -> bool:
        """Whether what was read last is zeros."""
        return not any(self._room[:length])

    def scsi(self, command: bytes, length: int = 0) -> bytes | None:
        """What a SCSI command answers, b"" without data; None where it is refused."""
        status, data = self.command(command, length)
        return data if status == 0 else None

    def command(self, command: bytes, length: int = 0) -> tuple[int, bytes]:
        """A SCSI command's status and its data; -1 where it does not get there."""
        self._command.raw = command.ljust(32, b"\0")
        addresses = map(ctypes.addressof, (self._page, self._command, self._sense))
        direction = SG_FROM_DEVICE if length else SG_NONE
        header = bytearray(
            SG_HEADER.pack(
                *(ord("S"), direction, len(command), len(self._sense), 0, length),
                *(*addresses, COMMAND_MS, 0, 0, 0, *[0] * 9),
            )
        )
        try:
            fcntl.ioctl(self._descriptor, SG_IO, header)
        except OSError:
            return -1, b""
        status, _, _, _, at_host, of_driver, left, _, _ = SG_HEADER.unpack(header)[-9:]
        if (status, at_host, of_driver) == (0, 0, 0):
            return 0, self._page.raw[: length - left]
        return status or -1, b""

    def is_deallocated(self, offset: int, length: int) -> bool | None:
        """Whether nothing is stored at a place; None where nobody says so."""
        if self._is_file:
            try:
                return os.lseek(self._descriptor, offset, os.SEEK_DATA) >= offset + length
            except OSError:
                return True  # ENXIO, lseek(2): a hole up to the end
        # GET LBA STATUS, SBC-4 section 5.7: the first descriptor is that of the block asked for.
        command = struct.pack(">BBQIBB", 0x9E, 0x12, offset // self.block_bytes, 24, 0, 0)
        found = self.scsi(command, 24)
        return found[20] & 0x0F == 1 if found is not None and len(found) > 20 else None

    def provisioning(self) -> int | None:
        """The provisioning type of VPD page B2h (SBC-4, section 6.6.6), of which 2 is thin."""
        found = self.scsi(b"\x12\x01\xb2\x00\xff\x00", 255)
        return found[6] & 0x07 if found is not None and len(found) > 6 and found[1] == 0xB2 else None

    def identify(self) -> None:
        """Identify Controller (NVM Express Base Specification, 5.17): 4096 bytes from the controller."""
        request = bytearray(72)
        struct.pack_into("=B", request, 0, 0x06)
        struct.pack_into("=QIII", request, 24, ctypes.addressof(self._page), 0, PAGE_BYTES, 1)
        struct.pack_into("=I", request, 64, COMMAND_MS)
        fcntl.ioctl(self._descriptor, NVME_IOCTL_ADMIN_CMD, request)

    def without_medium(self) -> tuple[Callable[[], object], int] | None:
        """A command that the target answers without its medium, and how many bytes come with that."""
        unit_is_ready = functools.partial(self.scsi, bytes(6))
        unit_is_ready()  # the first one may be told what has changed (unit attention)
        if unit_is_ready() is not None:
            return unit_is_ready, 0
        with contextlib.suppress(OSError):
            self.identify()
            return self.identify, PAGE_BYTES
        return None


def places(size_bytes: int, step_bytes: int, count: int, rng: random.Random) -> list[int]:
    """Offsets in random order, each somewhere in its own part of the volume."""
    steps = size_bytes // step_bytes
    count = min(count, steps)
    found = [step_bytes * rng.randrange(n * steps // count, (n + 1) * steps // count) for n in range(count)]
    rng.shuffle(found)
    return found


class Turns:
    """How long single commands take, in turns, so that noise hits all kinds alike.

    ``once`` and ``twice`` are the blocks that were read so often. Blocks of zeros are left out: nothing may
    be stored there.
    """

    def __init__(self, volume: Volume, rng: random.Random) -> None:
        self.volume, self.rng = volume, rng
        self.unread = places(volume.size_bytes, LONGER * volume.block_bytes, PLACES, rng)
        self.once: list[int] = []
        self.twice: list[int] = []
        self.found: dict[str, list[int]] = {"first": [], "again": [], "longer": [], "none": []}

    def timed(self, kind: str, action: Callable[[], object]) -> None:
        began = time.monotonic_ns()
        action()
        self.found[kind].append(time.monotonic_ns() - began)

    def first(self) -> None:
        offset = self.unread.pop()
        self.timed("first", lambda: self.volume.read(offset, self.volume.block_bytes))
        if self.volume.is_zero(self.volume.block_bytes):
            self.found["first"].pop()
        else:
            self.once.append(offset)

    def again(self) -> None:
        if self.once:
            offset = self.once.pop(0)
            self.timed("again", lambda: self.volume.read(offset, self.volume.block_bytes))
            self.twice.append(offset)

    def longer(self) -> None:
        if self.twice:
            offset = self.rng.choice(self.twice)
            self.timed("longer", lambda: self.volume.read(offset, LONGER * self.volume.block_bytes))

    def take(self, until: float) -> dict[str, Any]:
        """All of it, as long as there are places, until that moment of the monotonic clock."""
        other = self.volume.without_medium()
        kinds = [self.first, self.again, self.longer]
        if other is not None:
            kinds.append(lambda: self.timed("none", other[0]))
        while self.unread and len(self.once) < LEAD and time.monotonic() < until:
            self.first()
        self.found["first"].clear()
        while self.unread and len(self.found["first"]) < TURNS and time.monotonic() < until:
            self.rng.shuffle(kinds)
            for take in kinds:
                take()
        return {
            **{f"{kind}_ns": kept for kind, kept in self.found.items()},
            "longer_bytes": LONGER * self.volume.block_bytes,
            "none_bytes": other[1] if other is not None else 0,
        }


def content(
    volume: Volume, start: int, region_bytes: int, rng: random.Random, until: float
) -> dict[str, Any]:
    """What is in a sample of the blocks that will be measured: how many are zeros, copies of others, or
    deallocated (of those about which the volume says so), and how far the rest can be compressed."""
    length = max(PAGE_BYTES, volume.block_bytes)
    counts = {"blocks": 0, "zeros": 0, "copies": 0, "reported": 0, "deallocated": 0}
    seen: set[bytes] = set()
    whole = packed = 0
    for place in places(min(region_bytes, volume.size_bytes - start), length, CONTENT, rng):
        if time.monotonic() > until:
            break
        offset = start + place
        data = volume.read(offset, length)
        counts["blocks"] += 1
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if volume.is_zero(length):
            counts["zeros"] += 1
        elif digest in seen:
            counts["copies"] += 1
        else:
            whole += length
            packed += min(length, len(zlib.compress(data, 1)))
        seen.add(digest)
        if counts["reported"] == counts["blocks"] - 1:
            is_deallocated = volume.is_deallocated(offset, length)
            counts["reported"] += is_deallocated is not None
            counts["deallocated"] += bool(is_deallocated)
    return {**counts, "compressed_to": packed / whole if whole else None}


def sample(request: dict[str, Any]) -> dict[str, Any]:
    """Samples, as plain data. The re-read test comes first, while nobody has read any of it."""
    volume = Volume(request["path"])
    rng = random.Random(request["seed"])  # noqa: S311 -- it chooses places
    began, half_s = time.monotonic(), request["seconds"] / 2
    return {
        "block_bytes": volume.block_bytes,
        **Turns(volume, rng).take(began + half_s),
        **content(volume, request["start"], request["region_bytes"], rng, began + 2 * half_s),
        "provisioning": volume.provisioning(),
    }


def commands(request: dict[str, Any]) -> dict[str, Any]:
    """How long commands take that need no medium, one after another, in the form of samples; none if there is
    no such command."""
    volume = Volume(request["path"])
    command, answer_bytes = volume.without_medium() or (None, 0)
    taken: list[int] = []
    until = time.monotonic() + request["seconds"]
    while command is not None and len(taken) < COMMANDS:
        if len(taken) >= FEWEST and time.monotonic() > until:
            break
        began = time.monotonic_ns()
        command()
        taken.append(time.monotonic_ns() - began)
    return {"block_bytes": volume.block_bytes, "none_ns": taken, "none_bytes": answer_bytes}


if __name__ == "__main__":
    answer({"sample": sample, "commands": commands})
