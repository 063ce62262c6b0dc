"""Probes on the real stack: every kind on one path, without and with IPsec, and what is measured during a
cell."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from statistics import mean

import pytest

from harness.analysis import sanity
from harness.analysis.theory import Wire
from harness.analysis.wire import framing_of
from harness.model import Status
from harness.model.probing import (
    CipherFigures,
    ForwardingFigures,
    PacketRateFigures,
    PingFigures,
    TcpFigures,
    UdpFigures,
    UdpLatencyFigures,
)
from harness.model.telemetry import Telemetry
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder
from tests.lab.cli import Measured, harness, harness_once, in_lab_that_is_up, measure, only_run, well

pytestmark = pytest.mark.lab

STAYS_UP = "debian"
PROTECTED = "wired+aes128gcm16"
SIZES = (64, 1024, 4096, 32768)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """All kinds of probes on the wired link, without and with IPsec, in one boot."""
    results = tmp_path_factory.mktemp("probes")
    kinds = ("ping-io", "tcp", "udp", "pps", "udp-latency")
    words = [word for kind in kinds for word in ("--probe", kind)]
    words += ["--link", "wired", "--ipsec", "both", "--count", "50", "--duration", "1s", "--udp-rate", "5M"]
    return in_lab_that_is_up(results, "probe", *words)


@pytest.fixture(scope="module")
def records(probed: Measured) -> dict[str, ProbeRecord]:
    return {record.key: record for record in RunFolder(probed.folder).load_probes()}


def test_every_probe_ends_with_a_figure_or_a_reason(
    probed: Measured, records: dict[str, ProbeRecord]
) -> None:
    assert len(records) == 28, probed.done
    hping = f"{PROTECTED}.pps-hping3.r1"
    for key, record in records.items():
        if key == hping:
            assert record.status is Status.SKIPPED and record.reason is not None
            assert "hears no replies through IPsec" in record.reason
        else:
            assert (record.status, record.reason) == (Status.OK, None), key
            assert record.figures is not None and record.raw and record.interfaces, key
            assert all((probed.folder / name).is_file() for name in record.raw)
    assert "left behind" not in probed.done.err


def test_what_went_through_ipsec_was_carried_by_esp(records: dict[str, ProbeRecord]) -> None:
    tcp = records[f"{PROTECTED}.tcp.r1"]
    assert isinstance(tcp.figures, TcpFigures)
    assert tcp.figures.received_bytes is not None and tcp.protected_bytes is not None
    assert tcp.protected_bytes >= tcp.figures.received_bytes > 0
    # ESP takes some of each packet.
    plain = records["wired.tcp.r1"]
    assert plain.protected_bytes is None and isinstance(plain.figures, TcpFigures)
    assert (plain.figures.pmtu_bytes, tcp.figures.pmtu_bytes) == (1500, 1466)


@pytest.mark.parametrize(
    ("key", "most_bit_s"), [("wired.tcp.r1", 942e6), (f"{PROTECTED}.tcp.r1", 920e6)], ids=["plain", "ESP"]
)
def test_tcp_is_no_faster_than_its_frames(
    probed: Measured, records: dict[str, ProbeRecord], key: str, most_bit_s: float
) -> None:
    """Of a gigabit, full frames leave it so much; how much less it is, is as busy as the machine is."""
    plan, record = RunFolder(probed.folder).load_plan(), records[key]
    link = plan.links[record.column.link]
    framing = framing_of(record.column.protection, plan.proposals, plan.ipsec_mode, link.mtu_bytes)
    ceiling = Wire(link=link, framing=framing).goodput_bytes_s
    assert ceiling is not None and 8 * ceiling == pytest.approx(most_bit_s, rel=0.005)
    assert isinstance(record.figures, TcpFigures) and record.figures.received_bit_s is not None
    assert 0 < record.figures.received_bit_s < (1 + sanity.TOLERANCE) * 8 * ceiling


def test_round_trips_are_as_long_as_the_link(records: dict[str, ProbeRecord]) -> None:
    figures = records["wired.ping-2ms.r1"].figures
    assert isinstance(figures, PingFigures)
    trips = figures.round_trips
    assert (trips.sent, trips.received) == (50, 50)
    # 50 us each way, and never less.
    assert trips.min_ns is not None and trips.p50_ns is not None and trips.max_ns is not None
    assert 100_000 <= trips.min_ns <= trips.p50_ns <= trips.max_ns
    assert len(records["wired.ping-2ms.r1"].processors) == 1
    assert records["wired.ping-2ms.r1"].processors[0].hosts == ("initiator", "target")
    assert records["wired.ping-2ms.r1"].processors[0].system is None


def test_udp_arrives_as_sent(records: dict[str, ProbeRecord]) -> None:
    figures = records["wired.udp-5m.r1"].figures
    assert isinstance(figures, UdpFigures) and figures.datagrams
    assert figures.received_bit_s is not None and figures.received_bit_s < 5.5e6


def test_floods_saturate_and_are_counted(records: dict[str, ProbeRecord]) -> None:
    figures = records["wired.pps-ping.r1"].figures
    assert isinstance(figures, PacketRateFigures)
    assert figures.steps and figures.replies_per_s == max(
        step.replies_per_s for step in figures.steps if step.at_once == figures.at_once
    )
    # What the target's interface counted holds the requests and their answers. Of several floods at once, one
    # may have been kept waiting, and then their rates do not add up to what was counted in the longest time.
    alone = figures.steps[0]
    assert alone.at_once == 1 and alone.counted_per_s > 1.5 * alone.replies_per_s > 0
    forwarded = records["wired.pps-forwarding.r1"].figures
    assert isinstance(forwarded, ForwardingFigures) and forwarded.arrived_per_s > 0


@pytest.mark.parametrize("payload", SIZES)
def test_a_datagram_takes_at_least_the_link_twice(records: dict[str, ProbeRecord], payload: int) -> None:
    for socket in ("kept", "reopened"):
        figures = records[f"wired.udp-latency-{payload}-{socket}.r1"].figures
        assert isinstance(figures, UdpLatencyFigures)
        assert figures.round_trips + figures.lost == 50 and figures.min_ns is not None
        assert figures.min_ns > 100_000 + 2 * 8 * payload  # at 1 Gbit/s


@pytest.mark.parametrize("view", ["link", "pps", "udp-latency", "openflow", "pppoe"])
def test_every_view_shows_it(probed: Measured, view: str) -> None:
    done = well(harness_once("table", str(probed.folder), "--view", view, "--format", "json"))
    rows = json.loads(done.out)["rows"]
    assert {row["link"] for row in rows} == {"wired (emulated)"}
    assert {row["ipsec"] for row in rows} == {"off", "aes128gcm16"}


def test_a_matrix_of_probes_alone_is_refused(probed: Measured) -> None:
    done = harness_once("table", str(probed.folder))
    assert done.status == 2 and "holds no results" in done.err and "--view" in done.err, done


def is_drowned(ciphers: ProbeRecord) -> bool:
    """Whether a busy machine hid the ciphers, which is reported."""
    return ciphers.status is Status.INVALID and "no longer than the null cipher" in (ciphers.reason or "")


def test_with_each_cell_stand_round_trips_processors_and_interfaces(tmp_path: Path) -> None:
    words = ("--link", "local", "--link", "wired", "--ipsec", "both", "--workload", "rand-read-4k")
    measured = measure(tmp_path, *words)
    assert measured.done.status == 0, measured.done
    added_ns = []
    for key, record in measured.records.items():
        telemetry = record.telemetry
        assert telemetry is not None and telemetry.processors[0].busy is not None, key
        if key.startswith("local"):
            assert telemetry.round_trips is None and telemetry.interfaces == ()
            assert telemetry.emulation_round_trip_ns is None
            continue
        added_ns.append(telemetry.emulation_round_trip_ns)
        assert telemetry.no_round_trips is None and telemetry.round_trips is not None
        assert telemetry.round_trips.received == telemetry.round_trips.sent == 20
        assert telemetry.round_trips.p50_ns is not None and telemetry.round_trips.p50_ns > 100_000
        near, far = telemetry.interfaces
        assert record.read is not None and min(far.tx_bytes, near.rx_bytes) >= record.read.bytes
        # The ends are looked at one after the other: a packet or two may pass between.
        assert abs(near.rx_bytes - far.tx_bytes) < 5000 and near.drops == 0
    # Nothing at all where a timer of the lab costs little, measured before any protection was up. Where the
    # machine stood still, it is not known.
    known_ns = [each for each in added_ns if each is not None]
    assert known_ns and 0 <= min(known_ns) <= max(known_ns) < 50_000_000, added_ns
    made = {record.key: record for record in RunFolder(measured.folder).load_probes()}
    assert set(made) == {"wired.tcp.r1", f"{PROTECTED}.tcp.r1", f"{PROTECTED}.cipher.r1"}
    ciphers = made[f"{PROTECTED}.cipher.r1"]
    assert all(
        record.is_from_run and (record.status is Status.OK or is_drowned(record)) for record in made.values()
    )
    if is_drowned(ciphers):
        return
    assert isinstance(ciphers.figures, CipherFigures)
    (kernel,) = ciphers.figures.kernels
    assert (
        kernel.ends == ("initiator", "target") and kernel.driver == ciphers.agreed["aes128gcm16"]["drivers"]
    )
    for operation in (kernel.encrypt, kernel.decrypt):
        # Portable AES-GCM takes 7 to 13 ns for each byte here, the widest vectors 0.2 or less: a packet takes
        # some 300 ns, and a busy machine may hide the part of it that grows with its bytes.
        assert operation.long_ns > 0 and operation.each_byte_ns < 500


def test_no_probes_means_none(tmp_path: Path) -> None:
    words = ("--link", "wired", "--ipsec", "off", "--workload", "rand-read-4k", "--repeats", "3")
    found = []
    measured = measure(tmp_path, *words, "--no-probes")
    for record in measured.records.values():
        assert record.status is Status.OK and record.telemetry is not None
        assert record.telemetry == Telemetry(background_load=record.telemetry.background_load)
        found.append(record.telemetry.background_load)
    # What others took is asked of nobody: it is seen, unless who looks gets no processor for seconds.
    assert len(found) == 3 and any(found)
    assert RunFolder(measured.folder).load_probes() == []


@pytest.mark.custom_kernel
@pytest.mark.long
def test_in_virtual_time_each_switch_adds_the_same_to_a_datagram(tmp_path: Path) -> None:
    links = [f"--link=switched:{count}" for count in range(5)]
    words = ["--virtual-time", *links, "--probe=udp-latency", "--count=500", f"--results={tmp_path}"]
    well(harness("probe", *words))
    records = {record.key: record for record in RunFolder(only_run(tmp_path)).load_probes()}
    growth = {}
    for size in SIZES:
        figures = [records[f"switched-{n}.udp-latency-{size}-kept.r1"].figures for n in range(5)]
        times = [f.mean_ns / 1000 for f in figures if isinstance(f, UdpLatencyFigures) and f.mean_ns]
        steps = [after - before for before, after in itertools.pairwise(times)]
        growth[size] = mean(steps)
        assert steps == pytest.approx([growth[size]] * 4, rel=0.01), (size, times)
    # Both ways 7 us of the switch's own and the frame once more; of fragments, the last waits for nothing.
    assert growth[64] == pytest.approx(2 * (7 + (64 + 28 + 38) * 8e-3), rel=0.01)
    assert growth[4096] == pytest.approx(growth[32768], rel=0.01)
