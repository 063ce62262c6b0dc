"""What is sampled of a volume, on files and devices that answer as they would."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import programs
from harness.model.errors import CommandFailed
from harness.storage import reread
from harness.storage.programs import reread as program
from harness.storage.programs.reread import CONTENT, LEAD, LONGER, PAGE_BYTES, TURNS, Turns, Volume, places
from tests.unit.fakes import Command, FakeHost, World

MIB, GIB = 1 << 20, 1 << 30
Scsi = Callable[[bytes], bytes | None]
Made = Callable[[Scsi], tuple[Volume, list[bytes]]]
Log = list[tuple[int, int]]
HEADER = struct.Struct("@iiBBHIPPPIIiPBBBBHHiII0P")


@pytest.fixture(autouse=True)
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every file system of a developer's can read past the page cache."""
    monkeypatch.setattr(os, "O_DIRECT", 0)


def rng(seed: int = 1) -> random.Random:
    return random.Random(seed)  # noqa: S311 -- it chooses places


def volume(tmp_path: Path, data: bytes) -> Volume:
    (tmp_path / "volume").write_bytes(data)
    return Volume(f"{tmp_path}/volume")


def taken(of: Volume, seconds: float = 60) -> dict[str, Any]:
    return Turns(of, rng()).take(time.monotonic() + seconds)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """What is read."""
    log: Log = []
    usual = Volume.read

    def read(of: Volume, offset: int, length: int) -> memoryview:
        log.append((offset, length))
        return usual(of, offset, length)

    monkeypatch.setattr(Volume, "read", read)
    return log


def looked_at(of: Volume, region_bytes: int = 64 * MIB, start: int = 0) -> dict[str, Any]:
    return program.content(of, start, region_bytes, rng(), time.monotonic() + 60)


def test_places_are_spread_over_all_of_it_in_no_order() -> None:
    found = places(GIB, 4096, 512, rng())
    assert sorted(offset * 512 // GIB for offset in found) == list(range(512))
    assert found != sorted(found) and all(offset % 4096 == 0 for offset in found)
    assert places(GIB, 4096, 512, rng(2)) != found == places(GIB, 4096, 512, rng())
    for size_bytes in (0, 4095, 4096, 3 * 4096 + 1):
        as_many_as_fit = [n * 4096 for n in range(size_bytes // 4096)]
        assert sorted(places(size_bytes, 4096, 512, rng())) == as_many_as_fit, size_bytes


def test_a_block_is_read_first_then_again_and_then_with_its_neighbours(tmp_path: Path, log: Log) -> None:
    found = taken(volume(tmp_path, os.urandom(32 * MIB)))
    assert len(found["first_ns"]) == TURNS and not found["none_ns"]
    assert TURNS - 1 <= len(found["longer_ns"]) <= len(found["again_ns"]) == TURNS
    short = [offset for offset, length in log if length == PAGE_BYTES]
    once = dict.fromkeys(short)
    assert len(once) == TURNS + LEAD and all(short.count(offset) <= 2 for offset in once)
    # In turns: neither kind is later than the other one.
    again = [n for n, offset in enumerate(short[LEAD:]) if offset in short[: LEAD + n]]
    assert sum(again) / len(again) == pytest.approx((2 * TURNS - 1) / 2, abs=2)
    for n, (offset, length) in enumerate(log):
        if length == LONGER * PAGE_BYTES:
            assert log[:n].count((offset, PAGE_BYTES)) == 2
    # A disk's own buffer has forgotten a block when it is read again.
    for segments, is_kept in ((LEAD, False), (1 << 20, True)):
        buffer: dict[int, None] = {}
        kept = {False: 0, True: 0}
        for n, (offset, length) in enumerate(log):
            if (offset, length) in log[:n] and length == PAGE_BYTES:
                kept[offset in buffer] += 1
            buffer.pop(offset, None)
            buffer[offset] = None
            if len(buffer) > segments:
                del buffer[next(iter(buffer))]
        assert kept == {is_kept: TURNS, (not is_kept): 0}, segments


def test_neither_zeros_are_timed_nor_what_is_read_when_the_time_is_up(tmp_path: Path) -> None:
    piece = LONGER * PAGE_BYTES
    found = taken(volume(tmp_path, b"".join(os.urandom(piece) + bytes(piece) for _ in range(TURNS))))
    assert len(found["first_ns"]) == TURNS - LEAD
    empty = taken(volume(tmp_path, bytes(8 * MIB)))
    assert not any(empty[f"{kind}_ns"] for kind in ("first", "again", "longer"))
    assert not taken(volume(tmp_path, os.urandom(MIB)), seconds=-1)["first_ns"]


def test_what_is_in_the_blocks_that_will_be_measured(tmp_path: Path) -> None:
    same = os.urandom(PAGE_BYTES)
    words = " ".join(map(str, range(100_000))).encode()
    pieces = [os.urandom(MIB), bytes(MIB), same * (MIB // PAGE_BYTES), words[:MIB].ljust(MIB, b"x")]
    found = looked_at(volume(tmp_path, b"".join(pieces)))
    quarter = CONTENT // 4
    assert found["blocks"] == CONTENT and found["zeros"] == quarter and found["copies"] >= quarter - 1
    assert found["reported"] == CONTENT
    assert 0.5 < found["compressed_to"] < 0.9
    assert looked_at(volume(tmp_path, os.urandom(MIB)))["compressed_to"] == 1
    half, zeros = os.urandom(4 * MIB), bytes(4 * MIB)
    for data, start in ((half + zeros, 0), (zeros + half, 4 * MIB)):
        found = looked_at(volume(tmp_path, data), 4 * MIB, start)
        assert found["blocks"] == CONTENT and not found["zeros"], start


def test_holes_of_a_file_are_deallocated(tmp_path: Path) -> None:
    (tmp_path / "volume").write_bytes(os.urandom(MIB))
    os.truncate(tmp_path / "volume", 4 * MIB)
    found = looked_at(Volume(f"{tmp_path}/volume"))
    assert found["reported"] == found["blocks"]
    # Unless the file system has no holes.
    assert found["deallocated"] in (0, 3 * CONTENT // 4) and found["zeros"] == 3 * CONTENT // 4


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A volume that answers SCSI commands, None with a check condition; and the commands."""

    def made(answer: Scsi) -> tuple[Volume, list[bytes]]:
        asked: list[bytes] = []

        def ioctl(_descriptor: int, request: int, argument: bytearray) -> int:
            if request != program.SG_IO:
                raise OSError(errno.ENOTTY, "no such request")
            fields = list(HEADER.unpack(argument))
            assert (fields[0], len(argument)) == (ord("S"), 88)
            asked.append(ctypes.string_at(fields[7], fields[2]))
            said = answer(asked[-1])
            ctypes.memmove(fields[6], said or b"", len(said or b""))
            fields[13], fields[19] = (2 if said is None else 0), fields[5] - len(said or b"")
            argument[:] = HEADER.pack(*fields)
            return 0

        of = volume(tmp_path, os.urandom(8 * MIB))
        monkeypatch.setattr(fcntl, "ioctl", ioctl)
        of._is_file = False
        return of, asked

    return made


def test_scsi_says_what_is_stored_and_how_it_is_provisioned(device: Made) -> None:
    def status(command: bytes) -> bytes:
        """SBC-4, GET LBA STATUS parameter data, with one descriptor: of odd blocks deallocated."""
        lba = int.from_bytes(command[2:10], "big")
        return struct.pack(">I4xQIB3x", 20, lba, 8, lba % 2)

    of, asked = device(status)
    assert of.is_deallocated(PAGE_BYTES, PAGE_BYTES) and not of.is_deallocated(2 * PAGE_BYTES, PAGE_BYTES)
    assert asked[0].hex(" ") == "9e 12 00 00 00 00 00 00 00 01 00 00 00 18 00 00"
    of, asked = device(lambda _command: bytes([0, 0xB2, 0, 4, 0, 0x80, 2, 0]))
    assert of.provisioning() == 2 and asked[0].hex(" ") == "12 01 b2 00 ff 00"


def test_a_target_that_refuses_or_says_too_little_has_said_nothing(device: Made) -> None:
    of, _ = device(lambda _command: None)
    assert of.is_deallocated(0, PAGE_BYTES) is None and of.provisioning() is None
    assert of.without_medium() is None
    found = looked_at(of)
    assert found["blocks"] == CONTENT and found["reported"] == 0
    short, _ = device(lambda _command: b"\0" * 4)
    assert short.is_deallocated(0, PAGE_BYTES) is None and short.provisioning() is None


def test_a_command_without_medium_is_timed_in_turn(device: Made) -> None:
    attention = iter([None])  # there is one at the first time
    of, asked = device(lambda _command: next(attention, b""))
    found = taken(of)
    assert {*asked} == {bytes(6)} and found["none_bytes"] == 0
    assert len(found["none_ns"]) == len(found["first_ns"]) > 0


def test_a_controller_identifies_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def ioctl(_descriptor: int, request: int, argument: bytearray) -> int:
        if request != program.NVME_IOCTL_ADMIN_CMD:
            raise OSError(errno.ENOTTY, "no such request")
        asked.append(bytes(argument))
        return 0

    of = volume(tmp_path, os.urandom(MIB))
    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    assert (of.without_medium() or (None, 0))[1] == PAGE_BYTES
    (command,) = asked
    assert len(command) == 72 and command[0] == 0x06
    assert struct.unpack_from("=QIII", command, 24)[1:] == (0, PAGE_BYTES, 1)


class Asked(World):
    """Has the program do what it is asked."""

    def run(self, host: FakeHost, command: Command, timeout_s: float) -> tuple[int, str, str]:
        del host, timeout_s
        request = json.loads(command.input or "")
        do = getattr(program, request.pop("do"))
        if not Path(request["path"]).exists():
            return 1, "", "FileNotFoundError: no such file"
        return 0, json.dumps(do(request)), ""


HOST = Asked().host("initiator")


def test_the_host_is_asked(tmp_path: Path) -> None:
    volume(tmp_path, os.urandom(8 * MIB) + bytes(8 * MIB))
    found = reread.sample(HOST, f"{tmp_path}/volume", region_bytes=16 * MIB, seed=1)
    assert found.blocks == CONTENT and found.zeros == CONTENT // 2 and found.block_bytes == PAGE_BYTES
    assert found.first_ns and found.provisioning is None


def test_a_volume_that_cannot_be_read() -> None:
    says = [World(answers=[((programs.PYTHON,), (0, text, ""))]).host("initiator") for text in ("{}", "?")]
    for host, words in ((HOST, "could not be sampled: FileNotFoundError"), *((h, "cannot be") for h in says)):
        with pytest.raises(CommandFailed, match=words):
            reread.sample(host, "/nowhere/at all", region_bytes=MIB, seed=1)
    with pytest.raises(CommandFailed, match="could not be sampled"):
        reread.commands(HOST, "/nowhere/at all")


def test_commands_without_a_disk_are_timed_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume(tmp_path, bytes(MIB))
    file = f"{tmp_path}/volume"
    assert reread.commands(HOST, file) is None  # a file has none
    monkeypatch.setattr(Volume, "without_medium", lambda _self: (lambda: time.sleep(1e-4), 4096))
    found = reread.commands(HOST, file)
    assert found is not None and found.p50_ns is not None and found.min_ns is not None
    assert found.payload_bytes == 4096 and found.interval_ns == 0
    assert program.FEWEST <= found.sent == found.received <= program.COMMANDS
    assert 1e5 <= found.min_ns <= found.p50_ns
    monkeypatch.setattr(reread, "COMMANDS_S", 0.0)
    few = reread.commands(HOST, file)
    assert few is not None and few.sent == program.FEWEST
