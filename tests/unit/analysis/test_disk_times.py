"""What a disk of a profile takes for a read, held to what the modelled disks do."""

from __future__ import annotations

import random

import msgspec
import pytest

from harness.analysis.disk_times import read_ns
from harness.model import DiskProfile, Flash
from harness.parse.disks import load_disk
from harness.storage.programs.harddisk import Mechanics

MIB = 1 << 20
HARD_DISK = load_disk("hdd-7200")


def mean_ns(block_bytes: int, volume_bytes: int, elsewhere_ns: int, *, is_random: bool, reads: int) -> float:
    """The mean of so many reads of the program that the lab runs."""
    disk = Mechanics(**msgspec.to_builtins(HARD_DISK.moving))
    blocks, places = volume_bytes // block_bytes, random.Random(1)  # noqa: S311
    # The first one moves the arm there, as it does not begin where the arm is.
    begin_ns = now_ns = disk.done_ns(10**9, block_bytes, block_bytes)
    for number in range(2, reads + 2):
        place = places.randrange(blocks) if is_random else number
        now_ns = disk.done_ns(now_ns + elsewhere_ns, place * block_bytes, block_bytes)
    return (now_ns - begin_ns) / reads


@pytest.mark.parametrize("elsewhere_ns", [0, 138_000, 2_338_000, 46_000_000])
@pytest.mark.parametrize("block_bytes", [4096, 256 << 10])
def test_a_hard_disk_takes_what_its_program_makes_of_it(block_bytes: int, elsewhere_ns: int) -> None:
    for volume_bytes in (16 * MIB, 128 * MIB, 64 << 30):
        for is_random, reads, within in ((False, 200, 0.01), (True, 20_000, 0.015)):
            computed_ns = read_ns(
                HARD_DISK,
                block_bytes,
                is_random=is_random,
                volume_bytes=volume_bytes,
                elsewhere_ns=elsewhere_ns,
            )
            found_ns = mean_ns(block_bytes, volume_bytes, elsewhere_ns, is_random=is_random, reads=reads)
            assert computed_ns == pytest.approx(found_ns, rel=within), (volume_bytes, is_random)


def test_what_fits_into_no_read_ahead_waits_for_the_platter() -> None:
    moving = HARD_DISK.moving
    assert moving is not None
    small = msgspec.structs.replace(HARD_DISK, moving=msgspec.structs.replace(moving, read_ahead_bytes=4096))
    for disk, waits_ns in ((HARD_DISK, 50_000), (small, ((256 << 10) - 4096) / 78e6 * 1e9)):
        found_ns = read_ns(disk, 256 << 10, is_random=False, volume_bytes=MIB, elsewhere_ns=10**7)
        assert found_ns == pytest.approx(10**7 + waits_ns)


def test_chips_take_pages_in_turns_and_memory_takes_no_time() -> None:
    def flash_us(block_bytes: int, pages_at_once: int) -> float:
        flash = Flash(page_bytes=4096, page_us=100, pages_at_once=pages_at_once)
        disk = DiskProfile(name="x", title="x", flash=flash)
        return read_ns(disk, block_bytes, is_random=True, volume_bytes=MIB, elsewhere_ns=7_000) / 1000

    assert [flash_us(size, 13) for size in (512, 4096, 13 * 4096, 14 * 4096)] == [107, 107, 107, 207]
    # 64 pages, 13 at once: five turns.
    assert flash_us(256 << 10, 13) == 507 and flash_us(256 << 10, 1) == 6407
    assert read_ns(load_disk("ram"), 4096, is_random=True, volume_bytes=MIB, elsewhere_ns=5.0) == 5.0
