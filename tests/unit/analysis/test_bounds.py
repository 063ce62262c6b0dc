"""What links let through: the framing of ESP to the byte, the round trips of iSCSI, and which bound holds."""

from __future__ import annotations

import msgspec
import pytest

from harness.analysis import bounds, theory
from harness.analysis.wire import framings
from harness.analysis.wire.iscsi import IscsiWire
from harness.model import IpsecMode, Job, LinkProfile, Proposal
from harness.parse.jobfile import described
from harness.parse.profiles import load_proposal
from tests.unit.results_folder import WIFI, WIRED

SESSION = {
    "initial_r2t": "1",
    "immediate_data": "1",
    "first_burst_len": "65536",
    "max_burst_len": "262144",
    "max_outstanding_r2t": "1",
    "max_recv_dlength": "262144",
    "max_xmit_dlength": "262144",
    "queue_depth": "32",
}
GCM = ("rfc4106(gcm(aes))",)
SHA1 = ("cbc(aes)", "hmac(sha1)")


def of_cell(
    link: LinkProfile, session: dict[str, str], *, depth: int, block_bytes: int, writes: bool
) -> bounds.Bound:
    return bounds.of_cell(
        link, None, session, IscsiWire(), depth=depth, block_bytes=block_bytes, writes=writes
    )


@pytest.mark.parametrize(
    ("algorithms", "mode", "mtu", "payload", "percent"),
    [
        (None, "transport", 1500, 1448, 94.15),
        (None, "transport", 9000, 8948, 99.00),
        (GCM, "transport", 1500, 1414, 91.94),
        (GCM, "transport", 9000, 8914, 98.63),
        (GCM, "tunnel", 1500, 1394, 90.64),
        (GCM, "tunnel", 9000, 8894, 98.41),
        (SHA1, "transport", 1500, 1406, 91.66),
        (SHA1, "transport", 9000, 8910, 98.58),
        (SHA1, "tunnel", 1500, 1386, 90.35),
        (SHA1, "tunnel", 9000, 8890, 98.36),
    ],
)
def test_framing_is_the_kernels(
    algorithms: tuple[str, ...] | None, mode: str, mtu: int, payload: int, percent: float
) -> None:
    """xfrm_state_mtu() of net/xfrm/xfrm_state.c."""
    link = msgspec.structs.replace(WIRED, mtu_bytes=mtu)
    framing = theory.esp(algorithms, IpsecMode(mode)) if algorithms is not None else None
    goodput = bounds.goodput_bytes_per_s(link, framing)
    assert goodput is not None
    assert 100 * goodput * 8 / 1e9 == pytest.approx(percent, abs=0.006)
    if framing is not None:
        inner = framing.inner_mtu_bytes(mtu)
        assert inner - theory.Wire(link=WIRED).headers_bytes == payload
        assert mtu - framing.block_bytes < framing.packet_bytes(inner) <= mtu


@pytest.mark.parametrize(("protection", "payload"), [(("wireguard",), 1368), (("macsec",), 1416)])
def test_other_protections_have_framings_too(protection: tuple[str, ...], payload: int) -> None:
    framing = framings.of(protection, {}, IpsecMode.TRANSPORT, WIRED.mtu_bytes)
    assert framing is not None
    assert framing.inner_mtu_bytes(WIRED.mtu_bytes) - theory.Wire(link=WIRED).headers_bytes == payload


def test_a_stack_is_framed_from_within() -> None:
    gcm = load_proposal("aes128gcm16")
    stack = framings.of(("macsec", gcm.name), {gcm.name: gcm}, IpsecMode.TRANSPORT, 1500)
    esp = theory.esp(GCM, IpsecMode.TRANSPORT)
    assert stack is not None and esp is not None
    assert stack.inner_mtu_bytes(1500) == esp.inner_mtu_bytes(1468)
    assert stack.packet_bytes(100) == 32 + esp.packet_bytes(100)
    assert stack.sealed_bytes(100) == esp.sealed_bytes(100) + esp.packet_bytes(100) + 2


def test_an_unknown_proposal_never_lowers_a_bound() -> None:
    unknown = Proposal(name="x", title="x", esp="x", ike="x", kernel_algorithms=("cbc(camellia)", "x"))
    framing = framings.of(("x",), {"x": unknown}, IpsecMode.TUNNEL, 1500)
    assert framing is None
    assert bounds.goodput_bytes_per_s(WIRED, framing) == bounds.goodput_bytes_per_s(WIRED)


@pytest.mark.parametrize(
    ("size", "changes", "trips"),
    [
        (4096, {}, 1),
        (65536, {}, 1),
        (65537, {}, 2),
        (262144, {}, 2),
        (65536 + 262144 + 1, {}, 3),
        (65536 + 2 * 262144, {"max_outstanding_r2t": "2"}, 2),
        (4096, {"immediate_data": "0"}, 2),
        (65536, {"initial_r2t": "0", "immediate_data": "0"}, 1),
        (16384, {"max_xmit_dlength": "8192"}, 2),
        (1 << 20, {"first_burst_len": "much"}, 1),
    ],
)
def test_round_trips_of_a_write(size: int, changes: dict[str, str], trips: int) -> None:
    assert IscsiWire().write_round_trips({**SESSION, **changes}, size) == trips


def test_one_request_at_a_time_pays_for_round_trip_and_transfer() -> None:
    found = of_cell(WIFI, SESSION, depth=1, block_bytes=4096, writes=False)
    assert found.in_flight_bytes == 4096
    trip, rate = 4096 / 0.0014, 50e6 / 8 * 1448 / 1514 * 4096 / 4144
    assert found.by_round_trip == pytest.approx(trip)
    assert found.by_rate == pytest.approx(rate)
    assert found.bytes_per_s == pytest.approx(1 / (1 / trip + 1 / rate))


def test_many_requests_are_bound_by_the_narrower_of_both() -> None:
    found = of_cell(WIFI, SESSION, depth=64, block_bytes=4096, writes=False)
    assert found.in_flight_bytes == 32 * 4096  # no more commands than the session's queue
    assert found.bytes_per_s == found.by_rate


def test_pieces_of_a_block_travel_side_by_side() -> None:
    session = {**SESSION, "max_sectors_kb": "124"}
    found = of_cell(WIRED, session, depth=1, block_bytes=262144, writes=True)
    assert (found.round_trips, found.in_flight_bytes) == (2, 262144)
    rate = found.by_rate
    assert rate is not None
    assert found.by_round_trip == pytest.approx(262144 / 200e-6)
    assert found.bytes_per_s == pytest.approx(1 / (100e-6 / 262144 + 1 / rate))


def test_what_a_profile_does_not_say_bounds_nothing() -> None:
    link = LinkProfile(name="x", title="x", emulated=False)
    found = of_cell(link, {}, depth=1, block_bytes=4096, writes=True)
    assert found.bytes_per_s is None
    tiny = LinkProfile(name="x", title="x", emulated=True, rate_bit_s=10**6, mtu_bytes=52)
    assert bounds.goodput_bytes_per_s(tiny) is None


def test_depth_is_of_all_jobs_and_synchronous_engines_know_one() -> None:
    def in_flight(**options: str) -> int | None:
        return described(Job(name="w", options=tuple(options.items()))).in_flight

    assert in_flight(ioengine="libaio", iodepth="8", numjobs="2") == 16
    assert in_flight(ioengine="psync", iodepth="8", numjobs="2") == 2
    assert in_flight(iodepth="8") == 1
    assert in_flight(ioengine="libaio", iodepth="many") == 1
