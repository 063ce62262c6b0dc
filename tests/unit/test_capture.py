"""The capture: how ESP is sampled, what is looked for, and how frames are counted as they come."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from harness.capture import Capture, Seen, capture, count_frames, expression, sampling
from harness.links import LinkPath
from harness.model import LinkProfile
from tests.unit.fakes import PCAP_HEADER, World, frame, pcap_record

ESP, TCP, UDP = (pcap_record(frame(protocol, bytes(30))) for protocol in (50, 6, 17))
ARP = pcap_record(bytes(12) + b"\x08\x06" + bytes(28))


def path(world: World, rate_bit_s: int | None = 10**9) -> LinkPath:
    return LinkPath(
        profile=LinkProfile(name="wired", title="wired", emulated=True, rate_bit_s=rate_bit_s),
        initiator=world.host("initiator"),
        target=world.host("target", "harness-beef-3"),
        initiator_iface="hbeefi3",
        target_iface="hbeeft3",
        initiator_address="198.18.3.1",
        target_address="198.18.3.2",
    )


@pytest.mark.parametrize(
    ("rate_bit_s", "one_in"),
    [(1_000, 1), (10**6, 1), (50 * 10**6, 32), (10**8, 64), (10**9, 1024), (10**10, 8192), (None, 8192)],
)
def test_one_esp_packet_in_a_power_of_two_is_kept(rate_bit_s: int | None, one_in: int) -> None:
    assert sampling(rate_bit_s) == one_in


@pytest.mark.parametrize("rate_bit_s", [2 * 10**6, 54 * 10**6, 10**8, 10**9, 25 * 10**9])
def test_some_64_full_frames_are_kept_in_a_second(rate_bit_s: int) -> None:
    kept_per_s = rate_bit_s / (1538 * 8) / sampling(rate_bit_s)
    assert 64 <= kept_per_s < 128


def test_a_protected_column_samples_esp_and_keeps_every_cleartext_segment() -> None:
    text = expression(path(World()), protected=True, one_in=1024)
    assert text == (
        "(esp and (ip[24:4] & 0x3ff = 0)) or (host 198.18.3.1 and host 198.18.3.2 and tcp port 3260)"
    )


def test_with_one_in_one_every_esp_packet_is_kept() -> None:
    assert "(ip[24:4] & 0x0 = 0)" in expression(path(World()), protected=True, one_in=1)


def test_a_plain_column_looks_for_esp_alone() -> None:
    assert expression(path(World()), protected=False, one_in=1) == "esp"


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


def test_each_look_counts_what_has_come_since_the_last(tmp_path: Path) -> None:
    files = (tmp_path / "initiator.pcap", tmp_path / "target.pcap")
    for file in files:
        file.write_bytes(PCAP_HEADER)
    watched = Capture(files=files, one_in=64)
    assert watched.look() == Seen()

    def append(file: Path, data: bytes) -> None:
        with file.open("ab") as stream:
            stream.write(data)

    append(files[0], ESP + TCP[:20])
    append(files[1], ESP)
    assert watched.look() == Seen(esp=2, cleartext=0)
    assert watched.look() == Seen()
    append(files[0], TCP[20:] + ESP)
    assert watched.look() == Seen(esp=1, cleartext=1)


def test_outgoing_frames_of_both_ends_are_captured_until_the_end(tmp_path: Path) -> None:
    world = World()
    with capture(path(world), tmp_path, protected=True) as watched:
        assert watched.one_in == 1024
        assert watched.look() == Seen()
        assert len(world.left) == 2
    assert world.left == set()
    words = [(c.host, c.argv[c.argv.index("-i") + 1], c.argv[c.argv.index("-Q") + 1]) for c in world.commands]
    assert words == [("initiator", "hbeefi3", "out"), ("target", "hbeeft3", "out")]


def test_a_plain_column_is_not_sampled(tmp_path: Path) -> None:
    with capture(path(World()), tmp_path, protected=False) as watched:
        assert watched.one_in == 1
