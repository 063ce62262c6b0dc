"""The rule by which a target's memory is suspected, on samples as targets of known kinds would give them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from harness.analysis.reread import FEWEST, MEDIUM_NS, SAVED_NS, judge
from harness.model.reread import Reread, Samples, Sign, Suspicion

pytestmark = pytest.mark.thorough

US, MS = 1_000, 1_000_000
GIB = 1 << 30
N = 128


def times(
    first_ns: float,
    again_ns: float,
    *,
    way_ns: float = 100 * US,
    noise_ns: float = 5 * US,
    each_byte_ns: float = 8,
    **more: Any,
) -> Samples:
    """Those of a target that takes so long for a first and a second read, over a way of so long: with a tail,
    as those of a network, and never sooner than they may be."""
    random_ = random.Random(4)  # noqa: S311 -- noise
    kinds = {"first_ns": (first_ns, 512), "again_ns": (again_ns, 512), "longer_ns": (again_ns, 4096)}
    samples = {}
    for kind, (device_ns, size) in (kinds | {"none_ns": (0, 0)}).items():
        centre_ns = way_ns + device_ns + size * each_byte_ns
        samples[kind] = tuple(round(centre_ns + random_.expovariate(1 / noise_ns)) for _ in range(N))
    return Samples(**{"block_bytes": 512, "longer_bytes": 4096, "blocks": 256, **samples, **more})


WIRED = times(110 * US, 110 * US)


def all_of(times_ns: tuple[int, ...]) -> Samples:
    kinds: dict[str, Any] = dict.fromkeys(("first_ns", "again_ns", "longer_ns", "none_ns"), times_ns)
    return Samples(block_bytes=512, longer_bytes=4096, **kinds)


@pytest.mark.parametrize("way_ns", [100 * US, 1400 * US, 5 * MS])
def test_what_is_sooner_the_second_time_was_kept_in_memory(way_ns: float) -> None:
    found = judge(times(100 * US, 5 * US, way_ns=way_ns), GIB)
    assert (found.verdict, found.signs) == (Suspicion.SUSPECTED, (Sign.AGAIN,))
    assert found.saved_ns == pytest.approx(95 * US, abs=10 * US)
    assert "these reads come from the target's memory" in found.words
    assert "the same 1 GiB again and again" in found.words, found.words
    # What takes as long again is on a disk.
    for each_byte_ns in (8, 160):
        found = judge(times(110 * US, 110 * US, way_ns=way_ns, each_byte_ns=each_byte_ns), GIB)
        assert found.verdict is Suspicion.NOT_SUSPECTED and not found.is_from_memory, found
        assert "disk answers reads:" in found.words


def test_an_arm_is_no_cache_however_the_platter_stands() -> None:
    for seed in range(200):
        random_ = random.Random(seed)  # noqa: S311 -- where the platter stands
        # Seek and rotation at 7200 rpm.
        made = [tuple(round(MS + random_.uniform(0, 8.33 * MS)) for _ in range(N)) for _ in range(3)]
        samples = replace(WIRED, **dict(zip(("first_ns", "again_ns", "longer_ns"), made, strict=True)))
        assert judge(samples, GIB).verdict is Suspicion.NOT_SUSPECTED, seed


def test_a_disk_as_fast_as_memory_cannot_be_told_from_it() -> None:
    """And neither can a cache that had everything before."""
    found = judge(times(10 * US, 10 * US), GIB)
    assert found.verdict is Suspicion.CANNOT_TELL and found.is_from_memory
    assert "it is not clear" in found.words and "a command without a disk" in found.words
    # 512 bytes at 25 Mbit/s take longer than many a disk does, and are none.
    found = judge(times(5 * US, 5 * US, way_ns=MS, each_byte_ns=320), GIB)
    assert found.verdict is Suspicion.CANNOT_TELL
    assert found.medium_ns is not None and found.medium_ns < MEDIUM_NS < 512 * 320
    # Without a command that needs no disk only a saving tells.
    for again_ns, verdict in ((5 * US, Suspicion.SUSPECTED), (100 * US, Suspicion.CANNOT_TELL)):
        found = judge(times(100 * US, again_ns, none_ns=()), GIB)
        assert found.verdict is verdict and found.medium_ns is None
    # A disk that looks up where a block is has no cache, and noise alone suspects nobody.
    for samples in (times(90 * US + SAVED_NS, 100 * US), times(90 * US, 90 * US, noise_ns=MS)):
        assert judge(samples, GIB).verdict is not Suspicion.SUSPECTED


def test_content_that_no_disk_need_be_read_for_and_ordinary_content() -> None:
    suspected: list[tuple[dict[str, Any], Sign, str]] = [
        ({"zeros": 13}, Sign.ZEROS, "5% of the blocks are zeros"),
        ({"reported": 256, "deallocated": 128}, Sign.ZEROS, "50% of the blocks"),
        ({"copies": 32}, Sign.COPIES, "copies of others"),
        ({"compressed_to": 0.26}, Sign.COMPRESSIBLE, "shrink to 26%"),
    ]
    for content, sign, words in suspected:
        found = judge(replace(WIRED, **content), GIB)
        assert (found.verdict, found.signs) == (Suspicion.SUSPECTED, (sign,)), content
        assert words in found.words
    ordinary = {"zeros": 12, "copies": 25, "compressed_to": 0.51, "reported": 256, "deallocated": 12}
    assert judge(replace(WIRED, **ordinary), GIB).verdict is Suspicion.NOT_SUSPECTED


def test_too_few_samples_tell_nothing() -> None:
    nothing = Reread(verdict=Suspicion.CANNOT_TELL, region_bytes=GIB)
    assert judge(all_of((1000,) * (FEWEST - 1)), GIB) == nothing
    assert judge(Samples(block_bytes=512), GIB) == nothing
    assert nothing.words == "it is not clear whether the target's disk answers reads or its memory"
    # In virtual time memory may take no time.
    assert judge(all_of((0,) * N), GIB).verdict is Suspicion.CANNOT_TELL
    for provisioning, is_thin in ((None, None), (0, None), (1, False), (2, True)):
        assert judge(Samples(block_bytes=512, provisioning=provisioning), GIB).is_thin is is_thin
