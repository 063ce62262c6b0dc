"""Figures that cannot be are found, and those that are only good are not."""

from __future__ import annotations

from typing import Any

import pytest

from harness.model import Duplex, Io, Latency, LinkProfile, Record, Status
from harness.profiles import load_link
from harness.sanity import Findings, check
from tests.unit.test_table import record

GIGABIT = LinkProfile(
    name="wired",
    title="Gigabit Ethernet",
    emulated=True,
    rate_bit_s=10**9,
    delay_us=50,
    frame_overhead_bytes=24,
)
AIR = LinkProfile(
    name="wifi",
    title="WiFi",
    emulated=True,
    rate_bit_s=50 * 10**6,
    duplex=Duplex.HALF,
    frame_overhead_bytes=0,
)


def side(mb_s: float, **latency: float) -> Io:
    moved = round(mb_s * 1e6)
    return Io(bytes=moved, ios=moved // 4096, runtime_ns=10**9, latency=Latency(**latency))


def remote(**changes: Any) -> Record:
    return record(**{"workload": "w", "write": None, "read": None} | changes)


def local(**changes: Any) -> Record:
    return remote(link="local", **changes)


@pytest.mark.parametrize(
    ("link", "read", "write", "fits"),
    [
        (GIGABIT, 123.0, None, True),  # all that a frame carries besides its overhead
        (GIGABIT, 126.0, None, False),
        (GIGABIT, None, 126.0, False),
        (GIGABIT, 120.0, 120.0, True),  # full duplex
        (AIR, 6.2, None, True),
        (AIR, 4.0, 4.0, False),  # the air is shared
        (AIR, 3.0, 3.0, True),
        (LinkProfile(name="x", title="x", emulated=False), 9000.0, 9000.0, True),  # not shaped
    ],
)
def test_no_link_carries_more_than_its_rate(
    link: LinkProfile, read: float | None, write: float | None, fits: bool
) -> None:
    found = check(
        remote(read=None if read is None else side(read), write=None if write is None else side(write)),
        link=link,
    )
    assert (found.reasons == ()) is fits
    assert fits or "but the link carries at most" in found.reasons[0]


def test_no_io_is_faster_than_the_round_trip() -> None:
    assert check(remote(read=side(1.0, min_ns=101_000)), link=GIGABIT) == Findings()
    (reason,) = check(remote(read=side(1.0, min_ns=90_000)), link=GIGABIT).reasons
    assert reason == "an I/O took 90.0 us, but the link's round trip alone takes 100 us"


def test_no_disk_is_faster_behind_a_network() -> None:
    disk = [
        local(write=side(100.0)),
        local(write=side(60.0)),
        local(write=side(900.0), status=Status.INVALID),
    ]
    assert check(remote(write=side(109.0)), link=None, local=disk) == Findings()
    (reason,) = check(remote(write=side(120.0)), link=None, local=disk).reasons
    assert reason.startswith(
        "120.00 MB/s were written, but the disk took at most 100.00 MB/s without a network"
    )
    assert check(remote(write=side(900.0)), link=None) == Findings()


def test_a_latency_below_the_local_one_is_odd() -> None:
    disk = [local(read=side(1.0, mean_ns=100_000)), local(read=side(1.0, mean_ns=300_000))]
    assert check(remote(read=side(1.0, mean_ns=95_000)), link=None, local=disk) == Findings()
    found = check(remote(read=side(1.0, mean_ns=50_000)), link=None, local=disk)
    assert found.reasons == ()
    assert found.warnings == (
        "a read takes 50.0 us over the network, but 100.0 us without it: something on the way may cache",
    )


def test_of_the_local_disk_nothing_is_impossible() -> None:
    assert check(local(read=side(9000.0, min_ns=1)), link=None, local=[local(read=side(1.0))]) == Findings()


@pytest.mark.parametrize("name", ["wired", "wifi", "fast-ethernet", "10g", "wan"])
def test_each_link_that_comes_with_the_harness_may_be_used_to_nine_tenths(name: str) -> None:
    link = load_link(name)
    assert link is not None and link.rate_bit_s is not None
    assert check(remote(read=side(0.9 * link.rate_bit_s / 8e6)), link=link) == Findings()
