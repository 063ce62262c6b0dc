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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import NamespaceHost
from harness.hosts.runner import Completed
from harness.model.errors import CommandFailed
from harness.storage import reread
from harness.storage.programs import reread as program
from harness.storage.programs.reread import CONTENT, LEAD, LONGER, PAGE_BYTES, TURNS, Turns, Volume, places

MIB, GIB = 1 << 20, 1 << 30
Answer = Callable[[bytes], bytes | None]
Made = Callable[[Answer], tuple[Volume, list[bytes]]]


@pytest.fixture(autouse=True)
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every file system of a developer's can read past the page cache."""
    monkeypatch.setattr(os, "O_DIRECT", 0)


def rng(seed: int = 1) -> random.Random:
    return random.Random(seed)  # noqa: S311 -- it chooses places


class Logged(Volume):
    """Remembers what is read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.log: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> memoryview:
        self.log.append((offset, length))
        return super().read(offset, length)


def volume(tmp_path: Path, data: bytes) -> Logged:
    file = tmp_path / "volume"
    file.write_bytes(data)
    return Logged(str(file))


def taken(of: Volume, seconds: float = 60) -> dict[str, Any]:
    return Turns(of, rng()).take(time.monotonic() + seconds)


def looked_at(of: Volume, region_bytes: int = 64 * MIB, start: int = 0) -> dict[str, Any]:
    return program.content(of, start, region_bytes, rng(), time.monotonic() + 60)


def test_places_are_spread_over_all_of_it_in_no_order() -> None:
    found = places(GIB, 4096, 512, rng())
    assert sorted(offset * 512 // GIB for offset in found) == list(range(512))
    assert found != sorted(found) and all(offset % 4096 == 0 for offset in found)
    assert found == places(GIB, 4096, 512, rng())
    assert found != places(GIB, 4096, 512, rng(2))
    for size_bytes in (0, 4095, 4096, 3 * 4096 + 1):
        as_many_as_fit = [n * 4096 for n in range(size_bytes // 4096)]
        assert sorted(places(size_bytes, 4096, 512, rng())) == as_many_as_fit, size_bytes


def test_a_block_is_read_first_then_again_and_then_with_its_neighbours(tmp_path: Path) -> None:
    of = volume(tmp_path, os.urandom(32 * MIB))
    found = taken(of)
    assert len(found["first_ns"]) == TURNS and not found["none_ns"]
    assert TURNS - 1 <= len(found["longer_ns"]) <= len(found["again_ns"]) == TURNS
    short = [offset for offset, length in of.log if length == PAGE_BYTES]
    once = dict.fromkeys(short)
    assert len(once) == TURNS + LEAD and all(short.count(offset) <= 2 for offset in once)
    # In turns: neither kind is later than the other one.
    again = [n for n, offset in enumerate(short[LEAD:]) if offset in short[: LEAD + n]]
    assert sum(again) / len(again) == pytest.approx((2 * TURNS - 1) / 2, abs=2)
    for n, (offset, length) in enumerate(of.log):
        if length == LONGER * PAGE_BYTES:
            assert of.log[:n].count((offset, PAGE_BYTES)) == 2


def test_a_disk_s_own_buffer_has_forgotten_a_block_when_it_is_read_again(tmp_path: Path) -> None:
    of = volume(tmp_path, os.urandom(32 * MIB))
    taken(of)
    for segments, is_kept in ((LEAD, False), (1 << 20, True)):
        buffer: dict[int, None] = {}
        found = {False: 0, True: 0}
        for n, (offset, length) in enumerate(of.log):
            if (offset, length) in of.log[:n] and length == PAGE_BYTES:
                found[offset in buffer] += 1
            buffer.pop(offset, None)
            buffer[offset] = None
            if len(buffer) > segments:
                del buffer[next(iter(buffer))]
        assert found == {is_kept: TURNS, (not is_kept): 0}, segments


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


HEADER = struct.Struct("@iiBBHIPPPIIiPBBBBHHiII0P")


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A volume that answers SCSI commands, None with a check condition; and the commands."""

    def made(answer: Answer) -> tuple[Volume, list[bytes]]:
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


@dataclass(frozen=True, eq=False)
class Asked(NamespaceHost):
    """Has the program do what it is asked, or says what it is given."""

    says: str | None = None

    def _run(
        self, argv: Sequence[str], input: str | None, timeout_s: float, env: Mapping[str, str]
    ) -> Completed:
        del timeout_s, env
        request = json.loads(input or "")
        do = getattr(program, request.pop("do"))
        if self.says is None and not Path(request["path"]).exists():
            return Completed(argv=tuple(argv), status=1, stdout="", stderr="FileNotFoundError: no such file")
        said = self.says if self.says is not None else json.dumps(do(request))
        return Completed(argv=tuple(argv), status=0, stdout=said, stderr="")


def test_the_host_is_asked(tmp_path: Path) -> None:
    volume(tmp_path, os.urandom(8 * MIB) + bytes(8 * MIB))
    found = reread.sample(Asked("initiator"), f"{tmp_path}/volume", region_bytes=16 * MIB, seed=1)
    assert found.blocks == CONTENT and found.zeros == CONTENT // 2 and found.block_bytes == PAGE_BYTES
    assert found.first_ns and found.provisioning is None


@pytest.mark.parametrize(
    ("says", "words"),
    [(None, "could not be sampled: FileNotFoundError"), ("{}", "cannot be understood"), ("?", "cannot be")],
)
def test_a_volume_that_cannot_be_read(says: str | None, words: str) -> None:
    with pytest.raises(CommandFailed, match=words):
        reread.sample(Asked("initiator", says=says), "/nowhere/at all", region_bytes=MIB, seed=1)
    with pytest.raises(CommandFailed, match="could not be sampled"):
        reread.commands(Asked("initiator"), "/nowhere/at all")


def test_commands_without_a_disk_are_timed_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume(tmp_path, bytes(MIB))
    file = f"{tmp_path}/volume"
    assert reread.commands(Asked("initiator"), file) is None  # a file has none
    monkeypatch.setattr(Volume, "without_medium", lambda _self: (lambda: time.sleep(1e-4), 4096))
    found = reread.commands(Asked("initiator"), file)
    assert found is not None and found.p50_ns is not None and found.min_ns is not None
    assert found.payload_bytes == 4096 and found.interval_ns == 0
    assert program.FEWEST <= found.sent == found.received <= program.COMMANDS
    assert 1e5 <= found.min_ns <= found.p50_ns
    monkeypatch.setattr(reread, "COMMANDS_S", 0.0)
    few = reread.commands(Asked("initiator"), file)
    assert few is not None and few.sent == program.FEWEST
