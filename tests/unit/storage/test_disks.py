"""Modelled disks: profiles, what is told to the kernel, and the mechanics of the one with moving parts."""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.hosts.journal import Journal
from harness.model import Flash
from harness.model.errors import DeviceRefused, RequirementError, UsageError
from harness.parse.disks import load_disk
from harness.parse.profiles import data_folder
from harness.storage import disks
from harness.storage.disks import FlashDisk, NbdModule
from harness.storage.programs import harddisk
from harness.storage.programs.harddisk import Mechanics
from tests.unit.fakes import World
from tests.unit.fakes.answers import DONE

MS = 1_000_000
TURN_NS = 60 * 10**9 // 7200
GB = 10**9
FLASH = 'title = "x"\n[flash]\npage_bytes = {}\npage_us = {}\npages_at_once = 1\n'


def hard_disk(**other: Any) -> Mechanics:
    moving = load_disk("hdd-7200").moving
    assert moving is not None
    return Mechanics(**{**msgspec.to_builtins(moving), **other})


def test_what_ships_is_right_and_flash_moves_what_its_data_sheet_says() -> None:
    for file in (data_folder() / "profiles/disks").glob("*.toml"):
        profile = load_disk(file.stem, [file.parent])
        assert profile.name == file.stem and profile.title and (profile.name == "ram" or profile.source)
    with pytest.raises(UsageError) as refused:
        load_disk("hdd")
    assert "hdd-7200, nvme, ram, sata-ssd" in (refused.value.hint or "")
    for name, reads_s, bytes_s in (("sata-ssd", 10_000, 540e6), ("nvme", 19_000, 600_000 * 4096)):
        flash = load_disk(name).flash
        assert flash is not None
        assert 1e6 / flash.page_us == pytest.approx(reads_s, rel=0.01)
        moved = flash.pages_at_once * flash.page_bytes * 1e6 / flash.page_us
        assert moved == pytest.approx(bytes_s, rel=0.02)


def test_a_wrong_profile_is_refused(tmp_path: Path) -> None:
    for text, words in (
        (FLASH.format(4096, 0), "line 4, page_us"),
        (FLASH.format(512, 1), "multiple of 4096"),
        (FLASH.format(4096, "nan"), "found 'nan'"),
        ('title = "x"\n[moving]\nrpm = 7200\n', "missing required field"),
        ('title = "x"\nrpm = 7200\n', "rpm"),
    ):
        (tmp_path / "own.toml").write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=words) as refused:
            load_disk("own", [tmp_path])
        assert "own.toml" in refused.value.message and refused.value.hint


def test_flash_is_null_blk_with_a_timer_and_memory_answers_at_once() -> None:
    def reported(flash: Flash | None) -> list[tuple[str, ...]]:
        world = World()
        FlashDisk(64 << 20, flash).acquire(world.host("target"))
        return [command.argv for command in world.commands]

    loaded, made, limited = reported(Flash(page_bytes=4096, page_us=52.6, pages_at_once=32))
    assert loaded == ("modprobe", "--first-time", "null_blk", "nr_devices=0")
    timer = {"irqmode=2", "completion_nsec=52600", "hw_queue_depth=32"}
    assert {"size=64", "memory_backed=1", *timer} < {*made}
    assert limited[-2:] == ("4", "/sys/block/nullb0/queue/max_sectors_kb")
    made = reported(None)[-1]
    assert "irqmode=0" in made and not any(word.startswith("completion_nsec") for word in made)


def test_a_module_in_use_is_left_alone_and_a_missing_one_is_named() -> None:
    said = "modprobe: ERROR: could not insert 'nbd': Module already in kernel"
    for resource in (FlashDisk(1 << 20), NbdModule()):
        world = World(answers=[(("modprobe", "--first-time"), (1, "", said))])
        with pytest.raises(DeviceRefused, match="already loaded"):
            resource.acquire(world.host("target"))
        assert world.commands[-1].argv[:2] == ("modprobe", "--first-time")
    world = World(answers=[(("modprobe",), (1, "", "modprobe: FATAL: Module nbd not found"))])
    with pytest.raises(RequirementError, match="nbd") as refused:
        NbdModule().acquire(world.host("target"))
    assert "make lab-kernel" in (refused.value.hint or "")


def brought_up(tmp_path: Path, name: str, count: int) -> tuple[list[tuple[str, ...]], list[str]]:
    """What was done for a disk of so many pieces of 3 MiB, and its paths."""
    tmp_path.mkdir(exist_ok=True)
    world, journal = World(answers=[(("test", "-e"), DONE)]), Journal(tmp_path / "journal")
    of: dict[str, Any] = {"count": count, "folder": tmp_path, "log": tmp_path / "log"}
    with disks.bring_up(journal, world.host("target"), load_disk(name), 3 << 20, **of) as paths:
        pass
    return [command.argv for command in world.commands], paths


def test_a_disk_with_moving_parts_is_served_by_its_program(tmp_path: Path) -> None:
    argvs, paths = brought_up(tmp_path, "hdd-7200", 1)
    (served,) = (argv for argv in argvs if argv[0] == "daemon")
    assert paths == ["/dev/nbd0"] and served[1:3] == ("/usr/bin/python3", str(tmp_path / "harddisk.py"))
    assert msgspec.json.decode(served[3])["size_bytes"] == 3 << 20
    assert argvs[-1] == ("modprobe", "-r", "nbd")


def test_several_pieces_are_partitions_of_one_disk(tmp_path: Path) -> None:
    for name, device, word in (("hdd-7200", "/dev/nbd0", "max_part=4"), ("nvme", "/dev/nullb0", "size=12")):
        argvs, paths = brought_up(tmp_path / name, name, 4)
        assert paths == [f"{device}p{number}" for number in range(1, 5)]
        assert next(argv[-3:] for argv in argvs if disks.PARTITION in argv) == (device, str(3 << 11), "4")
        assert word in [word for argv in argvs for word in argv]


def test_in_sequence_the_medium_sets_the_pace_and_its_buffer_is_read_ahead_no_further() -> None:
    disk = hard_disk()
    now_ns = start_ns = disk.done_ns(10**9, 1 << 18, 1 << 18)
    for number in range(2, 1002):
        now_ns = disk.done_ns(now_ns, number << 18, 1 << 18)
    assert 1000 * (1 << 18) * 1e9 / (now_ns - start_ns) == pytest.approx(78e6, rel=1e-4)
    disk = hard_disk(read_ahead_bytes=1 << 20)
    now_ns = disk.done_ns(10**9, 0, 1 << 20) + 10**9
    first_ns = disk.done_ns(now_ns, 1 << 20, 1 << 20)
    second_ns = disk.done_ns(first_ns, 2 << 20, 1 << 20)
    assert first_ns - now_ns == 50_000
    assert second_ns - now_ns == pytest.approx((1 << 20) / 78e6 * 1e9, rel=0.01)


def at_random() -> list[int]:
    """How long each of many commands at random places takes, one after another."""
    disk, places, now_ns, waits = hard_disk(), random.Random(1), 10**9, []  # noqa: S311
    for _ in range(4000):
        waits.append(disk.done_ns(now_ns, places.randrange(0, 320 * GB, 4096), 4096) - now_ns)
        now_ns += waits[-1]
    return waits


def test_at_random_a_turn_and_a_seek_are_waited_for() -> None:
    waits = at_random()
    assert max(waits) < 50_000 + hard_disk().seek_ns(320 * GB) + TURN_NS + 60_000
    # Command, mean seek, half a turn, 4 KiB below the head.
    assert sum(waits) / len(waits) == pytest.approx(0.05 * MS + 8.5 * MS + TURN_NS / 2 + 0.053 * MS, rel=0.02)
    assert waits == at_random()


def test_a_seek_takes_longer_the_farther_it_is() -> None:
    disk = hard_disk()
    assert disk.seek_ns(4096) == 0, "the same track"
    ways = [disk.seek_ns(GB * distance) for distance in (1, 10, 100, 320)]
    assert ways == sorted(ways) and 0.8 * MS < ways[0] < 2 * MS
    assert ways[-1] == pytest.approx((0.8 + 7.7 * 15 / 8) * MS, rel=1e-6)


def test_the_platter_turns_by_the_clock() -> None:
    """The byte a quarter of a track on passes a quarter of a turn later, whenever it is asked for."""
    track_bytes = 78_000_000 * TURN_NS // 10**9
    for now_ns in (10**9, 10**9 + 123_456):
        disk = hard_disk(command_us=0)
        done_ns = disk.done_ns(now_ns, track_bytes // 4, 0)
        assert done_ns % TURN_NS == pytest.approx(TURN_NS / 4, abs=200)


def test_what_is_written_is_read_back() -> None:
    ours, kernels = socket.socketpair()
    quick = hard_disk(rpm=6_000_000, command_us=0.001, track_seek_us=0.001, average_seek_us=0.001)
    served = (ours, memoryview(bytearray(1 << 20)), quick)
    (server := threading.Thread(target=harddisk.serve, args=served, daemon=True)).start()

    def ask(kind: int, offset: int, length: int, data: bytes = b"") -> bytes:
        request = harddisk.REQUEST.pack(harddisk.REQUEST_MAGIC, 0, kind, 0xABCDEF0123456789, offset, length)
        kernels.sendall(request + data)
        answer = bytearray(harddisk.REPLY.size + (length if kind == harddisk.READ else 0))
        assert harddisk.receive_into(kernels, memoryview(answer))
        reply = harddisk.REPLY.unpack(answer[: harddisk.REPLY.size])
        assert reply == (harddisk.REPLY_MAGIC, 0, 0xABCDEF0123456789)
        return bytes(answer[harddisk.REPLY.size :])

    assert ask(harddisk.READ, 4096, 4096) == bytes(4096)
    ask(harddisk.WRITE, 4096, 8192, b"\x5a" * 8192)
    assert ask(harddisk.READ, 8192, 8192) == b"\x5a" * 4096 + bytes(4096)
    kernels.sendall(harddisk.REQUEST.pack(harddisk.REQUEST_MAGIC, 0, harddisk.DISCONNECT, 0, 0, 0))
    server.join(timeout=60)
    assert not server.is_alive()
