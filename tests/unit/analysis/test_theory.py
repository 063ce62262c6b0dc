"""Framing and dialogues, against examples counted by hand."""

from __future__ import annotations

import msgspec
import pytest

from harness.analysis import theory
from harness.analysis.theory import Wire, segmented
from harness.analysis.wire.iscsi import IscsiDialogue, IscsiWire
from harness.model import IpsecMode, LinkProfile
from harness.parse.profiles import load_link, load_proposal

TRANSPORT, TUNNEL = IpsecMode.TRANSPORT, IpsecMode.TUNNEL
LINK = LinkProfile(name="x", title="", emulated=True, rate_bit_s=10**9, delay_us=50)
JUMBO = msgspec.structs.replace(LINK, mtu_bytes=9000)
KIB = 1024


def session(**settings: int) -> IscsiDialogue:
    """What LIO and open-iscsi agree on by themselves, but for ``settings``."""
    defaults: dict[str, int] = {
        "initial_r2t": True,
        "immediate_data": True,
        "first_burst_bytes": 64 * KIB,
        "max_burst_bytes": 256 * KIB,
        "max_recv_bytes": 256 * KIB,
        "window_bytes": 4096 * KIB,
    }
    return msgspec.convert({**defaults, **settings}, IscsiDialogue, strict=False)


def protected(proposal: str, mode: IpsecMode, link: LinkProfile = LINK) -> Wire:
    return Wire(link=link, framing=theory.esp(load_proposal(proposal).kernel_algorithms, mode))


@pytest.mark.parametrize(
    ("proposal", "mode", "mss", "mss_jumbo"),
    [
        ("null-sha256", TRANSPORT, 1422, 8922),
        ("null-sha256", TUNNEL, 1402, 8902),
        ("aes128gcm16", TRANSPORT, 1414, 8914),
        ("aes128gcm16", TUNNEL, 1394, 8894),
        ("aes256gcm16", TUNNEL, 1394, 8894),
        ("chacha20poly1305", TUNNEL, 1394, 8894),
        ("aes128-sha256", TRANSPORT, 1406, 8894),
        ("aes128-sha256", TUNNEL, 1386, 8874),
    ],
)
def test_esp_takes_its_part_of_the_mss(proposal: str, mode: IpsecMode, mss: int, mss_jumbo: int) -> None:
    assert protected(proposal, mode).mss_bytes == mss
    assert protected(proposal, mode, JUMBO).mss_bytes == mss_jumbo


def test_without_esp_the_mss_is_the_mtu_less_ip_and_tcp() -> None:
    assert (Wire(link=LINK).mss_bytes, Wire(link=JUMBO).mss_bytes) == (1448, 8948)


@pytest.mark.parametrize(
    ("path", "data", "frame"),
    [
        (Wire(link=LINK), 1448, 14 + 1500),
        (Wire(link=LINK), 0, 14 + 20 + 32),
        # SPI 4, sequence 4, IV 8; TCP 32, data, pad, 2; ICV 16. 1446 + 2 is a multiple of 4 as it is.
        (protected("aes128gcm16", TRANSPORT), 1414, 14 + 20 + 16 + 1448 + 16),
        # 32 + 2 is padded to 36.
        (protected("aes128gcm16", TRANSPORT), 0, 14 + 20 + 16 + 36 + 16),
        # The inner IP header is in it: 52 + 2 becomes 56, and another IP header goes before.
        (protected("aes128gcm16", TUNNEL), 0, 14 + 20 + 16 + 56 + 16),
        # Blocks of 16 and an IV of 16: 52 + 1386 + 2 are 90 blocks.
        (protected("aes128-sha256", TUNNEL), 1386, 14 + 20 + 24 + 1440 + 16),
        # 32 + 48 + 2 are padded to 96: a BHS.
        (protected("aes128-sha256", TRANSPORT), 48, 14 + 20 + 24 + 96 + 16),
        # No IV: 32 + 48 + 2 become 84.
        (protected("null-sha256", TRANSPORT), 48, 14 + 20 + 8 + 84 + 16),
    ],
)
def test_a_frame_is_as_long_as_its_parts(path: Wire, data: int, frame: int) -> None:
    assert path.frame_bytes(data) == frame


@pytest.mark.parametrize("mode", list(IpsecMode))
@pytest.mark.parametrize("proposal", ["null-sha256", "aes128gcm16", "aes128-sha256", "chacha20poly1305"])
@pytest.mark.parametrize("mtu", [1280, 1400, 1500, 1501, 1502, 1503, 9000])
def test_a_full_segment_fits_and_a_longer_one_does_not(proposal: str, mode: IpsecMode, mtu: int) -> None:
    path = protected(proposal, mode, msgspec.structs.replace(LINK, mtu_bytes=mtu))
    assert path.frame_bytes(path.mss_bytes) <= 14 + mtu < path.frame_bytes(path.mss_bytes + 1)


def test_every_write_leaves_at_once() -> None:
    assert segmented([(48, False), (4096, False)], 1448) == [48, 1448, 1448, 1200]
    assert segmented([(48, True), (4096, False)], 1448) == [1448, 1448, 1248]


def test_what_the_window_keeps_back_is_filled_up() -> None:
    pages = [(4096, False)] * 4
    assert segmented(pages, 1448, 6000) == [1448, 1448, 1200, 1448, *[1448] * 7, 704]
    assert sum(segmented(pages, 1448, 6000)) == 4 * 4096


def test_data_behind_packets_that_wait_for_a_worker_fills_segments() -> None:
    writes = [(48, False), (4096, False), (4096, False)]
    assert segmented(writes, 1448) == [48, 1448, 1448, 1200, 1448, 1448, 1200]
    assert segmented(writes, 1448, corks=True) == [48, *[1448] * 5, 952]


def test_a_small_read() -> None:
    predicted = theory.predict(
        Wire(link=LINK), session(), direction="read", block_bytes=4 * KIB, device_s=100e-6
    )
    # A command there, and two ACKs: 48 + 1448 and 1448 + 1200 are each more than a segment.
    assert (predicted.to_target.frames, predicted.to_target.acks) == (3, 2)
    assert predicted.to_target.frame_bytes == (66 + 48) + 2 * 66
    # The header alone, then a page; the status is in it.
    assert predicted.to_initiator.frame_bytes == 4 * 66 + 48 + 4096
    assert predicted.to_initiator.wire_bytes == 4 * 90 + 48 + 4096
    # 138 and 4504 bytes of 8 ns, two ways, the disk; and the second ACK leaves just before the next command.
    assert predicted.time_s == pytest.approx(1.104e-6 + 36.032e-6 + 100e-6 + 100e-6 + 90 * 8e-9)
    assert predicted.round_trips == 1


def test_a_large_write() -> None:
    predicted = theory.predict(
        Wire(link=LINK), session(), direction="write", block_bytes=256 * KIB, device_s=0.0
    )
    # 48 + 65536 at once: 1 + 46 frames; after the R2T 48 + 196608: 1 + 136.
    assert predicted.to_target.frames == 184
    assert predicted.to_target.frame_bytes == 184 * 66 + 2 * 48 + 256 * KIB
    # R2T, status, and an ACK for every two frames: 23 and 68, the odd one out shows in what follows.
    assert (predicted.to_initiator.frames, predicted.to_initiator.acks) == (93, 91)
    assert predicted.to_initiator.frame_bytes == 93 * 66 + 2 * 48
    wire_bytes = 184 * 90 + 2 * 48 + 256 * KIB + 2 * (90 + 48)
    assert predicted.time_s == pytest.approx(wire_bytes * 8e-9 + 4 * 50e-6)
    assert predicted.round_trips == 2


@pytest.mark.parametrize(
    ("settings", "block", "round_trips"),
    [
        ({}, 4 * KIB, 1),
        ({}, 64 * KIB, 1),
        ({}, 68 * KIB, 2),
        ({}, 1024 * KIB, 5),  # 64 at once, 960 in four bursts
        ({"max_burst_bytes": 64 * KIB}, 256 * KIB, 4),
        ({"immediate_data": False}, 4 * KIB, 2),
        ({"initial_r2t": False, "immediate_data": False}, 64 * KIB, 1),
        ({"max_recv_bytes": 8 * KIB}, 64 * KIB, 2),  # immediate data is one PDU
        ({"max_recv_bytes": 8 * KIB, "initial_r2t": False}, 64 * KIB, 1),
    ],
)
def test_round_trips_of_a_write(settings: dict[str, int], block: int, round_trips: int) -> None:
    path = Wire(link=LINK)
    predicted = theory.predict(path, session(**settings), direction="write", block_bytes=block, device_s=0.0)
    assert predicted.round_trips == round_trips


def test_every_pdu_has_its_header() -> None:
    small = session(max_recv_bytes=8 * KIB)
    for direction in ("read", "write"):
        dialogue = small.bursts(Wire(link=JUMBO), direction, 64 * KIB)
        moved = sum(sum(burst.segments) for burst in dialogue if len(burst.segments) > 1)
        assert moved == 64 * KIB + 8 * 48


def test_a_window_that_does_not_fill_the_link_is_refused() -> None:
    with pytest.raises(ValueError, match="window of 10000 bytes"):
        theory.predict(
            Wire(link=LINK),
            session(window_bytes=10_000),
            direction="read",
            block_bytes=256 * KIB,
            device_s=0.0,
        )


def test_the_session_is_read_as_the_kernel_tells_it() -> None:
    negotiated = {
        "initial_r2t": "1",
        "immediate_data": "1",
        "first_burst_len": "65536",
        "max_burst_len": "262144",
        "max_recv_dlength": "262144",
        "max_xmit_dlength": "131072",
    }
    assert IscsiWire().dialogue(negotiated, "read", 4096 * KIB) == session()
    written = IscsiWire().dialogue(negotiated, "write", 4096 * KIB)
    assert written is not None and written.max_recv_bytes == 128 * KIB


def test_hops_store_the_longest_frame_of_a_burst_and_delay_each() -> None:
    """Four switches: four times 7 us, and a full frame of 1538 bytes four times more at 8 ns a byte."""
    wire, switched = (Wire(link=load_link(f"switched:{count}")) for count in (0, 4))
    for segments in ([1448], [1448, 1448, 200], [200, 1448]):
        added_s = switched.one_way_s(segments) - wire.one_way_s(segments)
        assert added_s == pytest.approx(4 * (7e-6 + 1538 * 8e-9))
    assert switched.one_way_s([0]) - wire.one_way_s([0]) == pytest.approx(4 * (7e-6 + 90 * 8e-9))
