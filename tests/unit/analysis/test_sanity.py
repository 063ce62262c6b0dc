"""Figures that cannot be are found, and those that are only good are not."""

from __future__ import annotations

import itertools
from typing import Any

from msgspec.structs import replace

from harness.analysis.sanity import check, contradictions, pre_existing
from harness.model import ClientPart, Duplex, Io, Latency, LinkProfile, Proof, Record, Status
from harness.parse.disks import load_disk
from harness.parse.profiles import load_link
from tests import flat
from tests.unit.explain.test_explain import known
from tests.unit.results_folder import WIFI, WIRED
from tests.unit.table.test_table import record, transfer

GIGABIT = replace(WIRED, frame_overhead_bytes=24)
AIR = replace(WIFI, duplex=Duplex.HALF)
UNSHAPED = LinkProfile(name="x", title="x", emulated=False)


def side(mb_s: float | None, **latency: Any) -> Io | None:
    return None if mb_s is None else transfer(mb_s, **latency)


def remote(**changes: Any) -> Record:
    return record(**{"workload": "w", "write": None, "read": None} | changes)


def reasons(measured: Record, **known: Any) -> list[str]:
    """Why a record became invalid, in sentences."""
    found = check(measured, **known)
    assert found.warnings == measured.warnings and (found.status is Status.OK) is (found.reason is None)
    return found.reason.split("; ") if found.reason else []


def is_sane(measured: Record, **known: Any) -> bool:
    return check(measured, **known) == measured


def test_no_link_carries_more_than_its_rate_or_is_faster_than_its_round_trip() -> None:
    for link, read, write, fits in (
        (GIGABIT, 123.0, None, True),  # all that a frame carries besides its overhead
        (GIGABIT, 126.0, None, False),
        (GIGABIT, None, 126.0, False),
        (GIGABIT, 120.0, 120.0, True),  # full duplex
        (AIR, 6.2, None, True),
        (AIR, 4.0, 4.0, False),  # the air is shared
        (AIR, 3.0, 3.0, True),
        (UNSHAPED, 9000.0, 9000.0, True),
    ):
        found = reasons(remote(read=side(read), write=side(write)), link=link)
        assert (found == []) is fits, (link.name, read, write)
        assert fits or "but the link carries at most" in found[0]
    assert is_sane(remote(read=side(1.0, min_ns=101_000)), link=GIGABIT)
    (reason,) = reasons(remote(read=side(1.0, min_ns=90_000)), link=GIGABIT)
    assert reason == "an I/O took 90.0 us, but the link's round trip alone takes 100 us"


def test_a_real_link_is_as_fast_as_the_slower_card() -> None:
    link = LinkProfile(name="eth0", title="eth0", emulated=False, interface="eth0")
    cards: list[tuple[list[dict[str, object]], int | None]] = [
        ([{"kind": "ethernet", "speed_mbit_s": 1000}, {"kind": "ethernet", "speed_mbit_s": 100}], 10**8),
        ([{"kind": "ethernet", "speed_mbit_s": 2500}, {"kind": "virtual", "speed_mbit_s": 10}], 25 * 10**8),
        ([{"kind": "ethernet"}, {}], None),
    ]
    for ends, rate_bit_s in cards:
        assert pre_existing(link, ends).rate_bit_s == rate_bit_s, ends


def test_no_modelled_disk_moves_more_than_its_rate() -> None:
    rates = (("hdd-7200", 78.0), ("sata-ssd", 532.48), ("nvme", 2491.8), ("ram", None))
    for (name, most_mb_s), link in itertools.product(rates, ("local", "wired")):
        disk = load_disk(name)
        ahead = disk.moving.read_ahead_bytes / 1e6 if disk.moving else 0.0
        most = (most_mb_s or 90_000.0) + ahead
        assert is_sane(remote(link=link, write=side(1.01 * most)), disk=disk), (name, link)
        found = reasons(remote(link=link, write=side(1.1 * most)), disk=disk)
        assert len(found) == (0 if most_mb_s is None else 1), (name, link)
        assert most_mb_s is None or "but the disk moves at most" in found[0]


def test_no_disk_is_faster_behind_a_network() -> None:
    disk = [remote(link="local", write=side(mb_s)) for mb_s in (100.0, 60.0)]
    disk.append(remote(link="local", write=side(900.0), status=Status.INVALID))
    assert is_sane(remote(write=side(109.0)), link=None, local=disk)
    found = check(remote(write=side(120.0)), link=None, local=disk)
    assert (found.status, found.reason, len(found.warnings)) == (Status.OK, None, 1)
    assert found.warnings[0].startswith("writes are faster than to the disk without a network: ")
    assert is_sane(remote(write=side(900.0)), link=None)
    # Nor is a latency below the local one anything but odd.
    disk = [remote(link="local", read=side(1.0, mean_ns=mean_ns)) for mean_ns in (100_000, 300_000)]
    assert is_sane(remote(read=side(1.0, mean_ns=95_000)), link=None, local=disk)
    found = check(remote(read=side(1.0, mean_ns=50_000)), link=None, local=disk)
    odd = ("a read takes less time than without the network: something may cache it",)
    assert (found.status, found.reason, found.warnings) == (Status.OK, None, odd)
    # Of the local disk nothing is impossible.
    quick, slow = (remote(link="local", read=side(mb_s, min_ns=1)) for mb_s in (9000.0, 1.0))
    assert is_sane(quick, link=None, local=[slow])
    # Several initiators have a link each, and need not be slower than one disk.
    disk = [remote(link="local", read=side(130.0, mean_ns=100_000))]
    for second_mb_s, impossible in ((120.0, []), (130.0, ["measured 130.00 MB/s"])):
        parts = tuple(
            ClientPart(initiator=name, status=Status.OK, read=side(mb_s, min_ns=101_000))
            for name, mb_s in (("initiator1", 120.0), ("initiator2", second_mb_s))
        )
        both = remote(initiators=2, clients=parts, read=side(240.0, mean_ns=50_000))
        said = reasons(both, link=GIGABIT, local=disk)
        assert [reason.partition(", but the link carries at most")[0] for reason in said] == impossible
        assert impossible or is_sane(both, link=GIGABIT, local=disk)


def test_each_link_that_comes_with_the_harness_may_be_used_to_nine_tenths() -> None:
    for name in ("wired", "wifi", "fast-ethernet", "10g", "wan"):
        link = load_link(name)
        assert is_sane(remote(read=side(0.9 * known(link.rate_bit_s) / 8e6)), link=link), name


LATENCY: dict[str, Any] = {"min_ns": 2e5, "max_ns": 15e6, "mean_ns": 5e5}
LATENCY |= {"p50_ns": 4e5, "p99_ns": 18e5, "p99_9_ns": 33e5}
IO = Io(bytes=8_212_480, ios=2005, runtime_ns=1_001_000_000, latency=Latency(**LATENCY))
PROOF = Proof(link_bytes_initiator=9_828_714, link_bytes_target=9_828_714)
MEASURED = remote(read=IO, fio_ns=1_001_000_000, block_bytes=4096, proof=PROOF)


def test_what_was_measured_does_not_contradict_itself() -> None:
    nothing = Proof(link_bytes_initiator=0, link_bytes_target=0)
    client = ClientPart(initiator="initiator", status=Status.OK, read=IO)
    for fine in (
        MEASURED,
        flat.changed(MEASURED, fio_ns=0, block_bytes=None, proof=None),
        replace(MEASURED, proof=None, clients=(client,)),
        remote(link="local", read=IO, proof=nothing),
    ):
        assert contradictions(fine) == []
    edits: list[tuple[dict[str, Any], str]] = [
        ({"bytes": 9_000_000_000}, "fio moved 9000000000 bytes, but only 9828714 crossed the link"),
        ({"runtime_ns": 1}, "fio measured for 1001000000 ns, but its I/Os took 1 ns"),
        ({"ios": 1}, "1 I/Os of 4096 bytes moved 8212480 bytes"),
    ]
    for edited, words in edits:
        assert words in contradictions(replace(MEASURED, read=replace(IO, **edited)))
    for edited, words in (
        ({"mean_ns": 9e7}, "its mean latency (9e+07 ns) is above its max (1.5e+07 ns)"),
        ({"p50_ns": 9e7}, "its p50 latency (9e+07 ns) is above its p99 (1.8e+06 ns)"),
    ):
        latency = replace(IO.latency, **edited)
        assert words in contradictions(replace(MEASURED, read=replace(IO, latency=latency)))
