"""The capture: how ESP is sampled, what is looked for, and how frames are counted as they come."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from harness.capture import MOST_SPARSE, Capture, Seen, capture, count_frames, expression, sampling
from harness.links import LinkPath
from harness.model import LinkProfile
from tests.unit.fakes import PCAP_HEADER, World, frame, pcap_record

ESP, TCP, UDP = (pcap_record(frame(protocol, bytes(30))) for protocol in (50, 6, 17))
ARP = pcap_record(bytes(12) + b"\x08\x06" + bytes(28))


def profile(rate_bit_s: int | None = 10**9, delay_us: float = 0.0) -> LinkProfile:
    return LinkProfile(name="wired", title="wired", emulated=True, rate_bit_s=rate_bit_s, delay_us=delay_us)


def path(world: World, *, is_shared: bool = False) -> LinkPath:
    return LinkPath(
        profile=profile(),
        index=3,
        port=3264 if is_shared else 3260,
        is_shared=is_shared,
        initiator=world.host("initiator"),
        target=world.host("target", "harness-beef-3"),
        initiator_iface="hbeefi3",
        target_iface="hbeeft3",
        initiator_address="198.18.3.1",
        target_address="198.18.3.2",
    )


@pytest.mark.parametrize(
    ("rate_bit_s", "one_in"),
    [(1_000, 1), (10**6, 1), (50 * 10**6, 32), (10**8, 64), (10**9, 256), (10**10, 256), (None, 256)],
)
def test_one_esp_packet_in_a_power_of_two_is_kept(rate_bit_s: int | None, one_in: int) -> None:
    assert sampling(profile(rate_bit_s)) == one_in


@pytest.mark.parametrize(
    ("rate_bit_s", "delay_us", "one_in"),
    [
        (10**9, 50, 256),
        (10**9, 1_000, 16),
        (50 * 10**6, 700, 32),
        (10**8, 10_000, 2),
        (10**10, 10_000, 2),
        (None, 10_000, 2),
        (10**9, 10**6, 1),
        (10**6, 0.5, 1),
    ],
)
def test_a_link_with_delay_carries_fewer_packets(
    rate_bit_s: int | None, delay_us: float, one_in: int
) -> None:
    assert sampling(profile(rate_bit_s, delay_us)) == one_in


@pytest.mark.parametrize("rate_bit_s", [2 * 10**6, 54 * 10**6, 10**8, 10**9, 25 * 10**9])
def test_some_64_full_frames_are_kept_in_a_second(rate_bit_s: int) -> None:
    one_in = sampling(profile(rate_bit_s))
    kept_per_s = rate_bit_s / (1538 * 8) / one_in
    assert kept_per_s >= 64
    assert kept_per_s < 128 or one_in == MOST_SPARSE


@pytest.mark.parametrize("delay_us", [50, 700, 3_000, 10_000])
def test_four_packets_a_round_trip_are_enough_for_64_in_a_second(delay_us: int) -> None:
    packets_per_s = 4 / (2 * delay_us / 1e6)
    one_in = sampling(profile(10**9, delay_us))
    assert packets_per_s / one_in >= 64
    assert packets_per_s / one_in < 128 or one_in == MOST_SPARSE


def test_a_protected_column_samples_esp_and_keeps_every_cleartext_segment() -> None:
    text = expression(path(World()), protected=True, one_in=1024)
    assert text == (
        "host 198.18.3.1 and host 198.18.3.2 and ((esp and (ip[24:4] & 0x3ff = 0)) or (tcp port 3260))"
    )


def test_with_one_in_one_every_esp_packet_is_kept() -> None:
    assert "(ip[24:4] & 0x0 = 0)" in expression(path(World()), protected=True, one_in=1)


def test_a_plain_column_looks_for_esp_alone() -> None:
    assert expression(path(World()), protected=False, one_in=1) == "esp"


def test_on_a_link_that_others_use_a_plain_column_looks_for_its_own_segments() -> None:
    """ESP there may be another column's, or somebody else's."""
    text = expression(path(World(), is_shared=True), protected=False, one_in=256)
    assert text == "host 198.18.3.1 and host 198.18.3.2 and tcp port 3264 and (ip[4:2] & 0xff = 0)"


def test_on_a_link_that_others_use_a_protected_column_looks_for_its_own_port() -> None:
    text = expression(path(World(), is_shared=True), protected=True, one_in=16)
    assert (
        text == "host 198.18.3.1 and host 198.18.3.2 and ((esp and (ip[24:4] & 0xf = 0)) or (tcp port 3264))"
    )


def test_frames_are_counted_by_their_protocol() -> None:
    data = ESP + TCP + ESP + UDP + ARP + ESP
    seen = Seen()
    assert count_frames(data, seen) == len(data)
    assert seen == Seen(esp=3, cleartext=1)


def test_a_record_that_is_not_whole_is_left_for_later_wherever_it_was_cut() -> None:
    for length in range(len(TCP)):
        seen = Seen()
        assert count_frames(ESP + TCP[:length], seen) == len(ESP)
        assert seen == Seen(esp=1, cleartext=0)


@pytest.mark.parametrize("length", [0, 1, 14, 23])
def test_a_frame_too_short_for_a_protocol_counts_as_nothing(length: int) -> None:
    record = pcap_record(frame(6)[:length])
    seen = Seen()
    assert count_frames(record + ESP, seen) == len(record) + len(ESP)
    assert seen == Seen(esp=1)


def test_the_length_as_captured_counts_not_that_on_the_wire() -> None:
    cut = struct.pack("<IIII", 0, 0, 64, 9014) + frame(50, bytes(30))
    seen = Seen()
    assert count_frames(cut + TCP, seen) == len(cut) + len(TCP)
    assert seen == Seen(esp=1, cleartext=1)


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as stream:
        stream.write(data)


def test_each_look_counts_what_has_come_since_the_last(tmp_path: Path) -> None:
    files = (tmp_path / "initiator.pcap", tmp_path / "target.pcap")
    for file in files:
        file.write_bytes(PCAP_HEADER)
    watched = Capture(files=files, one_in=64)
    assert watched.look() == [Seen(), Seen()]
    append(files[0], ESP + TCP[:20])
    append(files[1], ESP)
    assert watched.look() == [Seen(esp=1), Seen(esp=1)]
    assert watched.look() == [Seen(), Seen()]
    append(files[0], TCP[20:] + ESP)
    assert watched.look() == [Seen(esp=1, cleartext=1), Seen()]
    append(files[1], TCP + ESP + ESP)
    assert watched.look() == [Seen(), Seen(esp=2, cleartext=1)]


def test_outgoing_frames_of_both_ends_are_captured_until_the_end(tmp_path: Path) -> None:
    world = World()
    with capture(path(world), tmp_path, protected=True) as watched:
        assert watched.one_in == 256
        assert [file.name for file in watched.files] == ["initiator-1.pcap", "target-1.pcap"]
        assert watched.look() == [Seen(), Seen()]
        assert len(world.left) == 2
    assert world.left == set()
    words = [(c.host, c.argv[c.argv.index("-i") + 1], c.argv[c.argv.index("-Q") + 1]) for c in world.commands]
    assert words == [("initiator", "hbeefi3", "out"), ("target", "hbeeft3", "out")]


@pytest.mark.parametrize("looked", [True, False])
def test_a_column_that_comes_up_again_counts_none_of_the_frames_of_before(
    tmp_path: Path, looked: bool
) -> None:
    world = World()
    with capture(path(world), tmp_path, protected=True) as first:
        for file in first.files:
            append(file, ESP + TCP + ESP)
        if looked:
            assert first.look() == [Seen(esp=2, cleartext=1)] * 2
    before = {file: file.read_bytes() for file in first.files}
    for number in (2, 3):
        with capture(path(world), tmp_path, protected=True) as again:
            assert [file.name for file in again.files] == [
                f"initiator-{number}.pcap",
                f"target-{number}.pcap",
            ]
            assert again.look() == [Seen(), Seen()]
            logs = {Path(thing.split()[-1]).name for thing in world.left}
            assert logs == {f"initiator-{number}.log", f"target-{number}.log"}
            append(again.files[1], ESP)
            assert again.look() == [Seen(), Seen(esp=1)]
    assert {file: file.read_bytes() for file in first.files} == before, "they stay as they were"


def test_a_plain_column_is_not_sampled(tmp_path: Path) -> None:
    with capture(path(World()), tmp_path, protected=False) as watched:
        assert watched.one_in == 1


@pytest.mark.parametrize(
    ("is_shared", "protected", "of_cleartext"),
    [(False, False, False), (False, True, False), (True, False, True), (True, True, False)],
)
def test_it_is_known_what_a_capture_samples(
    tmp_path: Path, is_shared: bool, protected: bool, of_cleartext: bool
) -> None:
    with capture(path(World(), is_shared=is_shared), tmp_path, protected=protected) as watched:
        assert watched.of_cleartext is of_cleartext
        assert watched.one_in == (256 if is_shared or protected else 1)
