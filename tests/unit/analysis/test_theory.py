"""What links let through: framing and dialogues, against examples counted by hand, and which bound holds."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from msgspec.structs import replace

from harness.analysis import path_demands, theory
from harness.analysis.path_demands import Demands
from harness.analysis.theory import IoDirection, Wire, segmented
from harness.analysis.wire import framing_of
from harness.analysis.wire.iscsi import IscsiDialogue, IscsiWire
from harness.model import ISCSI, IpsecMode, Job, LinkProfile, Proposal
from harness.parse.jobfile import described
from harness.parse.profiles import load_link, load_proposal
from tests.unit.explain.test_explain import SESSION, known
from tests.unit.results_folder import WIRED

TRANSPORT, TUNNEL = IpsecMode.TRANSPORT, IpsecMode.TUNNEL
JUMBO = replace(WIRED, mtu_bytes=9000)
KIB = 1024
SHA1 = ("cbc(aes)", "hmac(sha1)")
NULL, GCM, CHACHA, SHA256 = (
    load_proposal(name).kernel_algorithms
    for name in ("null-sha256", "aes128gcm16", "chacha20poly1305", "aes128-sha256")
)


def session(**settings: str) -> IscsiDialogue:
    """What LIO and open-iscsi agree on by themselves, but for ``settings``."""
    return known(IscsiWire().dialogue(SESSION | settings, "write", 4096 * KIB))


def protected(algorithms: tuple[str, ...], mode: IpsecMode, link: LinkProfile = WIRED) -> Wire:
    return Wire(link=link, framing=theory.esp(algorithms, mode))


def predicted(
    direction: IoDirection, block_bytes: int, agreed: IscsiDialogue | None = None, device_s: float = 0.0
) -> theory.Prediction:
    link, dialogue = Wire(link=WIRED), agreed or session()
    return theory.predict(link, dialogue, direction=direction, block_bytes=block_bytes, device_s=device_s)


def test_framing_is_the_kernels() -> None:
    """xfrm_state_mtu() of net/xfrm/xfrm_state.c."""
    framed: list[tuple[tuple[str, ...] | None, IpsecMode, int, float, int, float]] = [
        (None, TRANSPORT, 1448, 94.15, 8948, 99.00),
        (NULL, TRANSPORT, 1422, 92.46, 8922, 98.72),
        (NULL, TUNNEL, 1402, 91.16, 8902, 98.50),
        (GCM, TRANSPORT, 1414, 91.94, 8914, 98.63),
        (GCM, TUNNEL, 1394, 90.64, 8894, 98.41),
        (CHACHA, TUNNEL, 1394, 90.64, 8894, 98.41),
        (SHA1, TRANSPORT, 1406, 91.66, 8910, 98.58),
        (SHA1, TUNNEL, 1386, 90.35, 8890, 98.36),
        (SHA256, TRANSPORT, 1406, 91.42, 8894, 98.54),
        (SHA256, TUNNEL, 1386, 90.12, 8874, 98.32),
    ]
    for algorithms, mode, payload, percent, jumbo_payload, jumbo_percent in framed:
        framing = theory.esp(algorithms, mode) if algorithms is not None else None
        for link, mss, part in ((WIRED, payload, percent), (JUMBO, jumbo_payload, jumbo_percent)):
            case = (algorithms, mode, link.mtu_bytes)
            assert Wire(link=link, framing=framing).mss_bytes == mss, case
            goodput = known(Wire(link=link, framing=framing).goodput_bytes_s)
            assert 100 * goodput * 8 / 1e9 == pytest.approx(part, abs=0.006), case
            if framing is not None:
                inner = framing.inner_mtu_bytes(link.mtu_bytes)
                assert inner - Wire(link=WIRED).headers_bytes == mss, case
                assert link.mtu_bytes - framing.block_bytes < framing.packet_bytes(inner) <= link.mtu_bytes


def test_an_unknown_proposal_lowers_no_bound() -> None:
    unknown = Proposal(name="x", title="x", esp="x", ike="x", kernel_algorithms=("cbc(camellia)", "x"))
    framing = framing_of(("x",), {"x": unknown}, TUNNEL, 1500)
    assert framing is None
    assert Wire(link=WIRED, framing=framing).goodput_bytes_s == Wire(link=WIRED).goodput_bytes_s


def test_a_frame_is_as_long_as_its_parts() -> None:
    for path, data, frame in (
        (Wire(link=WIRED), 1448, 14 + 1500),
        (Wire(link=WIRED), 0, 14 + 20 + 32),
        # SPI 4, sequence 4, IV 8; TCP 32, data, pad, 2; ICV 16. 1446 + 2 is a multiple of 4 as it is.
        (protected(GCM, TRANSPORT), 1414, 14 + 20 + 16 + 1448 + 16),
        (protected(GCM, TRANSPORT), 0, 14 + 20 + 16 + 36 + 16),  # 32 + 2 is padded to 36.
        # The inner IP header is in it: 52 + 2 becomes 56, and another IP header goes before.
        (protected(GCM, TUNNEL), 0, 14 + 20 + 16 + 56 + 16),
        # Blocks of 16 and an IV of 16: 52 + 1386 + 2 are 90 blocks.
        (protected(SHA256, TUNNEL), 1386, 14 + 20 + 24 + 1440 + 16),
        (protected(SHA256, TRANSPORT), 48, 14 + 20 + 24 + 96 + 16),  # 32 + 48 + 2 are padded to 96: a BHS.
        (protected(NULL, TRANSPORT), 48, 14 + 20 + 8 + 84 + 16),  # No IV: 32 + 48 + 2 become 84.
    ):
        assert path.frame_bytes(data) == frame, (path, data)
    # A full segment fits and a longer one does not.
    mtus = (1280, 1400, 1500, 1501, 1502, 1503, 9000)
    for algorithms, mode, mtu in itertools.product((NULL, GCM, SHA256, CHACHA), IpsecMode, mtus):
        path = protected(algorithms, mode, replace(WIRED, mtu_bytes=mtu))
        assert path.frame_bytes(path.mss_bytes) <= 14 + mtu < path.frame_bytes(path.mss_bytes + 1), path


def test_every_write_leaves_at_once_and_hops_store_its_longest_frame() -> None:
    assert segmented([(48, False), (4096, False)], 1448) == [48, 1448, 1448, 1200]
    assert segmented([(48, True), (4096, False)], 1448) == [1448, 1448, 1248]
    pages = [(4096, False)] * 4
    assert segmented(pages, 1448, 6000) == [1448, 1448, 1200, 1448, *[1448] * 7, 704]
    assert sum(segmented(pages, 1448, 6000)) == 4 * 4096
    # Data behind packets that wait for a worker fills segments.
    writes = [(48, False), (4096, False), (4096, False)]
    assert segmented(writes, 1448) == [48, 1448, 1448, 1200, 1448, 1448, 1200]
    assert segmented(writes, 1448, corks=True) == [48, *[1448] * 5, 952]
    # Four switches delay each burst by 7 us, and store its longest frame once more at 8 ns a byte.
    wire, switched = (Wire(link=load_link(f"switched:{count}")) for count in (0, 4))
    for segments, longest in (([1448], 1538), ([1448, 1448, 200], 1538), ([200, 1448], 1538), ([0], 90)):
        added_s = switched.one_way_s(segments) - wire.one_way_s(segments)
        assert added_s == pytest.approx(4 * (7e-6 + longest * 8e-9))


def test_a_small_read_and_a_large_write() -> None:
    found = predicted("read", 4 * KIB, device_s=100e-6)
    # A command there, and two ACKs: 48 + 1448 and 1448 + 1200 are each more than a segment.
    assert (found.to_target.frames, found.to_target.acks) == (3, 2)
    assert found.to_target.frame_bytes == (66 + 48) + 2 * 66
    # The header alone, then a page; the status is in it.
    assert found.to_initiator.frame_bytes == 4 * 66 + 48 + 4096
    assert found.to_initiator.wire_bytes == 4 * 90 + 48 + 4096
    # 138 and 4504 bytes of 8 ns, two ways, the disk; and the second ACK leaves just before the next command.
    assert found.time_s == pytest.approx(1.104e-6 + 36.032e-6 + 100e-6 + 100e-6 + 90 * 8e-9)
    assert found.round_trips == 1
    found = predicted("write", 256 * KIB)
    # 48 + 65536 at once: 1 + 46 frames; after the R2T 48 + 196608: 1 + 136.
    assert found.to_target.frames == 184 and found.to_target.frame_bytes == 184 * 66 + 2 * 48 + 256 * KIB
    # R2T, status, and an ACK for every two frames: 23 and 68, the odd one out shows in what follows.
    assert (found.to_initiator.frames, found.to_initiator.acks) == (93, 91)
    assert found.to_initiator.frame_bytes == 93 * 66 + 2 * 48
    wire_bytes = 184 * 90 + 2 * 48 + 256 * KIB + 2 * (90 + 48)
    assert found.time_s == pytest.approx(wire_bytes * 8e-9 + 4 * 50e-6) and found.round_trips == 2


def test_round_trips_of_a_write() -> None:
    changed: list[tuple[int, dict[str, str], int]] = [
        (4 * KIB, {}, 1),
        (64 * KIB, {}, 1),
        (64 * KIB + 1, {}, 2),
        (68 * KIB, {}, 2),
        (256 * KIB, {}, 2),
        ((64 + 256) * KIB + 1, {}, 3),
        (1024 * KIB, {}, 5),  # 64 at once, 960 in four bursts
        (256 * KIB, {"max_burst_len": "65536"}, 4),
        (4 * KIB, {"immediate_data": "0"}, 2),
        (64 * KIB, {"initial_r2t": "0", "immediate_data": "0"}, 1),
        (16 * KIB, {"max_xmit_dlength": "8192"}, 2),
        (64 * KIB, {"max_xmit_dlength": "8192"}, 2),  # immediate data is one PDU
        (64 * KIB, {"max_xmit_dlength": "8192", "initial_r2t": "0"}, 1),
        ((64 + 2 * 256) * KIB, {"max_outstanding_r2t": "2"}, 2),
    ]
    for size, changes, trips in changed:
        assert predicted("write", size, session(**changes)).round_trips == trips, (size, changes)


def test_every_pdu_has_its_header_and_the_session_is_read_as_the_kernel_tells_it() -> None:
    for direction in ("read", "write"):
        dialogue = session(max_xmit_dlength="8192").bursts(Wire(link=JUMBO), direction, 64 * KIB)
        moved = sum(sum(burst.segments) for burst in dialogue if len(burst.segments) > 1)
        assert moved == 64 * KIB + 8 * 48
    found = known(IscsiWire().dialogue(SESSION | {"max_xmit_dlength": "131072"}, "read", 4096 * KIB))
    assert (found.initial_r2t, found.immediate_data, found.window_bytes) == (True, True, 4096 * KIB)
    assert (found.first_burst_bytes, found.max_burst_bytes) == (64 * KIB, 256 * KIB)
    assert found.max_recv_bytes == 256 * KIB
    assert session(max_xmit_dlength="131072").max_recv_bytes == 128 * KIB
    with pytest.raises(ValueError, match="window of 10000 bytes"):
        predicted("read", 256 * KIB, dataclasses.replace(found, window_bytes=10_000))


def path_of(link: LinkProfile, block_bytes: int, direction: IoDirection = "read", **changes: str) -> Demands:
    return known(path_demands.of_session(link, None, ISCSI, SESSION | changes, direction, block_bytes))


def test_one_request_at_a_time_pays_for_round_trip_and_transfer_and_many_for_the_narrower() -> None:
    found = path_of(WIRED, 4096)
    one_by_one = predicted("read", 4096).time_s
    assert found.least_ns(1) == pytest.approx(1e9 * one_by_one, rel=0.01)
    assert found.least_ns(2) == pytest.approx(1e9 * one_by_one / 2, rel=0.01)
    carried = 4096 / known(Wire(link=WIRED).goodput_bytes_s)
    assert 1e9 * carried < found.least_ns(64) == found.busy_ns < 1.06e9 * carried
    # Pieces of a block travel side by side.
    pieces, whole = (path_of(WIRED, 262144, "write", max_sectors_kb=kb).least_ns(1) for kb in ("124", "256"))
    assert pieces < whole
    # What a profile does not say bounds nothing.
    nothing = path_of(LinkProfile(name="x", title="x", emulated=False), 4096, "write")
    assert nothing.least_ns(1) == nothing.least_ns(8) == 0
    tiny = LinkProfile(name="x", title="x", emulated=True, rate_bit_s=10**6, mtu_bytes=52)
    assert Wire(link=tiny).goodput_bytes_s is None


def test_depth_is_of_all_jobs_and_synchronous_engines_know_one() -> None:
    for options, in_flight in (
        ({"ioengine": "libaio", "iodepth": "8", "numjobs": "2"}, 16),
        ({"ioengine": "psync", "iodepth": "8", "numjobs": "2"}, 2),
        ({"iodepth": "8"}, 1),
        ({"ioengine": "libaio", "iodepth": "many"}, 1),
    ):
        assert described(Job(name="w", options=tuple(options.items()))).in_flight == in_flight, options
