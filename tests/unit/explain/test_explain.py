"""Whom to blame: the waterfall adds up, the closed form is theory's, and a verdict is given where it
holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from harness.analysis import theory
from harness.analysis.theory import IoDirection, Wire
from harness.explain import Explained, Limit, as_json, explain, limits, path, span, text, waterfall
from harness.explain.evidence import Evidence, Ladder, busiest_of, busy_of, collect
from harness.explain.path import Demands
from harness.explain.span import Span, exact, within
from harness.explain.text import sentence
from harness.explain.verdict import Confidence, judge
from harness.explain.waterfall import PARTS
from harness.model import (
    Clock,
    Column,
    Duplex,
    HopKind,
    Hops,
    Io,
    IpsecMode,
    Job,
    Latency,
    LinkProfile,
    Record,
    Setting,
    TestbedKind,
)
from harness.model.reread import Reread, Sign, Suspicion
from harness.results.columns import ColumnKey
from harness.results.store import FIO_SOURCE
from tests import flat
from tests.unit.results_folder import GCM, WIFI, WIRED, made_plan
from tests.unit.table.test_table import record

SESSION = {
    "initial_r2t": "1",
    "immediate_data": "1",
    "first_burst_len": "65536",
    "max_burst_len": "262144",
    "max_recv_dlength": "262144",
    "max_xmit_dlength": "262144",
    "queue_depth": "32",
}
GCM_ESP = theory.esp(("rfc4106(gcm(aes))",), IpsecMode.TRANSPORT)
US = 1000.0


def asked(
    link: LinkProfile = WIRED,
    *,
    direction: IoDirection = "read",
    block_bytes: int = 262144,
    framing: theory.Framing | None = None,
    window_bytes: int | None = None,
    **session: str,
) -> Demands:
    agreed = path.dialogue_of("iscsi", SESSION | session, direction, window_bytes)
    assert agreed is not None
    return path.demands(link, framing, agreed, direction, block_bytes, window_bytes=window_bytes)


@pytest.mark.parametrize("esp", [None, GCM_ESP], ids=["plain", "gcm"])
@pytest.mark.parametrize("block_bytes", [4096, 65536, 262144])
@pytest.mark.parametrize("direction", ["read", "write"])
def test_the_parts_of_a_path_add_up_to_theorys_time(
    direction: IoDirection, block_bytes: int, esp: theory.Esp | None
) -> None:
    found = asked(direction=direction, block_bytes=block_bytes, framing=esp)
    agreed = path.dialogue_of("iscsi", SESSION, direction, None)
    assert agreed is not None
    whole = theory.predict(
        Wire(link=WIRED, framing=esp), agreed, direction=direction, block_bytes=block_bytes, device_s=1e-4
    )
    parts = found.link_ns + found.round_trip_ns + found.transport_ns + found.framing_ns
    # All but the ACK that leaves in front of a command, 0.7 us, and what of it the disk covers.
    assert parts + 1e5 == pytest.approx(whole.time_s * 1e9, rel=0.005)
    assert (found.framing_ns > 0) is (esp is not None)
    assert found.r2ts == whole.round_trips - 1
    wire = max(whole.to_initiator.wire_bytes, whole.to_target.wire_bytes)
    assert found.busy_ns == pytest.approx(wire * 8, rel=1e-6)


def test_each_r2t_costs_a_round_trip_of_iscsis() -> None:
    few = asked(direction="write")
    many = asked(direction="write", max_burst_len="16384", first_burst_len="16384")
    assert (few.r2ts, many.r2ts) == (1, 15)
    assert many.transport_ns - few.transport_ns == pytest.approx(14 * 100 * US, rel=0.05)
    assert many.round_trip_ns == few.round_trip_ns == pytest.approx(100 * US)


def test_a_shared_medium_carries_the_acks_as_well() -> None:
    shared = asked(msgspec.structs.replace(WIFI, duplex=Duplex.HALF))
    full = asked(WIFI)
    assert shared.link_ns > full.link_ns
    assert shared.busy_ns > full.busy_ns


def test_hops_store_each_burst_once_more() -> None:
    hops = Hops(kind=HopKind.SWITCH, count=3, least=0, most=16, delay_us=10.0)
    through, straight = asked(msgspec.structs.replace(WIRED, hops=hops)), asked(WIRED)
    assert through.round_trip_ns - straight.round_trip_ns == pytest.approx(2 * 3 * 10 * US)
    # The longest frame of the answer, 12.3 us, and the command's, 1.1 us, at each.
    assert through.link_ns - straight.link_ns == pytest.approx(3 * (12.304 + 1.104) * US, rel=0.001)
    assert (through.transport_ns, through.busy_ns) == pytest.approx((straight.transport_ns, straight.busy_ns))


def test_a_narrow_window_lets_its_bytes_through_once_in_a_round_trip() -> None:
    far = LinkProfile(name="far", title="x", emulated=True, rate_bit_s=10**10, delay_us=2000)
    found = asked(far, window_bytes=16384)
    assert found.window_each_ns == pytest.approx(16 * 4000 * US, rel=0.01)
    # As many windows as hold the data and its header, and the last is not waited for.
    assert found.window_ns == pytest.approx(16 * 4000 * US, rel=0.01)
    assert found.is_window_narrow(1) and not asked(far, window_bytes=1 << 22).is_window_narrow(1)


def test_commands_side_by_side_pay_for_one_round_trip() -> None:
    agreed = path.dialogue_of("iscsi", SESSION, "read", None)
    assert agreed is not None
    whole = path.demands(WIRED, None, agreed, "read", 262144)
    split = path.demands(WIRED, None, agreed, "read", 262144, command_bytes=127 * 1024)
    assert split.round_trip_ns == whole.round_trip_ns
    assert split.transport_ns > whole.transport_ns and split.link_ns == whole.link_ns


@pytest.mark.parametrize(
    ("transport", "direction", "counted", "while_others_wait", "sealed_on_a_full_core"),
    [("iscsi", "read", 134, 13, 293), ("iscsi", "write", 21, 23, 202), ("nvme-tcp", "read", 10, 11, 189)],
)
def test_packets_are_those_that_interfaces_counted(
    transport: str, direction: IoDirection, counted: int, while_others_wait: int, sealed_on_a_full_core: int
) -> None:
    """Of 256K over the unshaped link (NVMe/TCP: 10g), and four or eight at a time over wired: the own kernel,
    both ways with ACKs. LIO hands TCP a page at a time. With AES-GCM over the unshaped link, one at a time:
    only open-iscsi receives in no thread."""
    agreed = path.dialogue_of(transport, SESSION | {"in_capsule_bytes": "16384"}, direction, None)
    assert agreed is not None
    command_bytes = 124 << 10 if transport == "iscsi" else 1280 << 10
    found = path.demands(WIRED, None, agreed, direction, 262144, command_bytes=command_bytes)
    assert found.packets == pytest.approx(counted, abs=1)
    assert found.full_packets == pytest.approx(while_others_wait, abs=3)
    sealed = path.demands(WIRED, GCM_ESP, agreed, direction, 262144, command_bytes=command_bytes)
    assert sealed.packets > 270, "segments, with every second acknowledged"
    assert sealed.full_packets == pytest.approx(sealed_on_a_full_core, abs=3)


def test_an_emulated_link_is_its_profile_and_a_real_one_what_was_found() -> None:
    rtt = Span(200 * US, 300 * US, 300 * US)
    assert path.measured_link(WIRED, rtt, 1e8) == WIRED
    real = LinkProfile(name="wired", title="x", emulated=False, interface="eth0")
    found = path.measured_link(real, rtt, 117.7e6)
    assert found.delay_us == 150
    assert found.rate_bit_s == pytest.approx(1e9, rel=0.001)


def key(*protection: str, link: str = "wired", clock: Clock = Clock.REAL) -> ColumnKey:
    return ColumnKey(Setting(testbed=TestbedKind.LAB, clock=clock), Column(link, protection))


def cell(**changes: Any) -> Evidence:
    """A 256K read over gigabit with IPsec off, that takes what the closed form says, on an idle processor."""
    whole: dict[str, Any] = {
        "workload": "seq-read-256k",
        "key": key(),
        "direction": "read",
        "block_bytes": 262144,
        "depth": 1,
        "time_ns": within(2500 * US, 0.01),
        "repeats": 3,
        "device_ns": within(60 * US, 0.01),
        "path": asked(),
        "rate_bit_s": 10**9,
        "rtt_ns": exact(150 * US),
        "busy": within(0.1, 0.05),
    }
    return Evidence(**whole | changes)


def protected(**changes: Any) -> Evidence:
    """The same with GCM: 12.5 ms, where plain took 2.5 and null 5."""
    whole: dict[str, Any] = {
        "key": key("aes128gcm16"),
        "time_ns": within(12500 * US, 0.01),
        "path": asked(framing=GCM_ESP),
        "plain": Ladder(time_ns=within(2500 * US, 0.01), busy=within(0.1, 0.05)),
        "null": Ladder(time_ns=within(5000 * US, 0.01), framing_ns=40 * US, busy=within(0.5, 0.05)),
        "busy": within(0.85, 0.01),
        "driver": "rfc4106(gcm_base(ctr(aes-generic),ghash-generic))",
    }
    return cell(**whole | changes)


@pytest.mark.parametrize(
    "evidence",
    [
        cell(),
        protected(),
        protected(null=None),
        cell(depth=8, device_alone_ns=exact(50 * US)),
        cell(time_ns=exact(1234567.89), device_ns=None),
        cell(time_ns=exact(1000.4)),
        cell(key=key(link="local"), path=None),
    ],
)
def test_the_waterfall_adds_up_to_the_last_ns(evidence: Evidence) -> None:
    verdict = judge(evidence)
    assert evidence.time_ns is not None and evidence.depth is not None
    assert sum(verdict.waterfall_ns.values()) == verdict.whole_ns
    assert verdict.whole_ns == round(evidence.time_ns.mid * evidence.depth)


def test_what_is_left_is_named_and_may_be_negative() -> None:
    short = judge(cell(time_ns=exact(1000 * US)))
    assert short.waterfall_ns["rest"] < 0
    assert short.limited_by is Limit.UNKNOWN and "so some are wrong" in short.reason


def test_each_part_of_the_time_has_one_limit() -> None:
    owned = {name: limits.of_part(name, reading_of(cell())) for name in PARTS if name != "queue"}
    owned["target"] = limits.of_part("device", reading_of(cell(is_one_end=True)))
    assert {*owned.values()} == {*Limit}
    assert limits.of_part("cpu", reading_of(cell(is_emulated=True))) is Limit.LAB
    assert limits.of_part("cpu", reading_of(protected(is_emulated=True))) is Limit.CPU


def reading_of(evidence: Evidence) -> waterfall.Reading:
    found = waterfall.best_guess(evidence)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("evidence", "limit"),
    [
        (cell(), Limit.LINK),
        (cell(device_ns=within(9000 * US, 0.01), time_ns=within(11500 * US, 0.01)), Limit.DEVICE),
        (cell(path=asked(WIFI, block_bytes=4096), time_ns=within(2200 * US, 0.01)), Limit.ROUND_TRIP),
        (
            cell(
                path=asked(direction="write", max_burst_len="4096", first_burst_len="4096"),
                time_ns=within(9000 * US, 0.01),
            ),
            Limit.TRANSPORT,
        ),
        (protected(), Limit.CRYPTO),
        (cell(time_ns=within(20000 * US, 0.01), busy=within(0.95, 0.01)), Limit.CPU),
        (cell(time_ns=within(20000 * US, 0.01)), Limit.UNKNOWN),
        # With many under way the busiest counts, and if none is busy that there are too few.
        (cell(depth=8, time_ns=within(2300 * US, 0.01)), Limit.LINK),
        (cell(depth=8, time_ns=within(9100 * US, 0.01), device_ns=within(9000 * US, 0.01)), Limit.DEVICE),
        (cell(depth=8, time_ns=within(9000 * US, 0.01), busy=within(0.97, 0.01)), Limit.CPU),
        # Two resources that are full for about as long.
        (cell(depth=8, time_ns=within(2350 * US, 0.01), device_ns=within(2230 * US, 0.1)), Limit.UNKNOWN),
        (
            cell(
                depth=4,
                path=asked(
                    LinkProfile(name="far", title="x", emulated=True, rate_bit_s=10**9, delay_us=5000),
                    block_bytes=4096,
                ),
                block_bytes=4096,
                time_ns=within(2520 * US, 0.01),
                busy=within(0.02, 0.01),
            ),
            Limit.ROUND_TRIP,
        ),
        (cell(depth=8, time_ns=within(9000 * US, 0.01)), Limit.UNKNOWN),
    ],
)
def test_what_takes_most_limits(evidence: Evidence, limit: Limit) -> None:
    verdict = judge(evidence)
    assert verdict.limited_by is limit, verdict


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Suspicion.SUSPECTED, "limited by the target's memory (these reads come from the target's memory, "),
        (Suspicion.CANNOT_TELL, "limited by the target's disk or its memory (it is not clear whether "),
    ],
)
def test_what_memory_may_have_answered_is_not_called_the_disk(verdict: Suspicion, words: str) -> None:
    reread = Reread(verdict=verdict, signs=(Sign.AGAIN,) * (verdict is Suspicion.SUSPECTED))
    slow = {"device_ns": within(9000 * US, 0.01), "time_ns": within(11500 * US, 0.01)}
    assert sentence(Explained.of(cell(**slow, reread=reread))).startswith(words)
    assert sentence(Explained.of(cell(**slow))).startswith("limited by the device: ")
    # What was slower than as much of the same column is on a disk, whatever else memory has.
    shown = Explained.of(cell(**slow, reread=reread, is_target_shown=True))
    assert sentence(shown).startswith("limited by the target's disk or its memory")
    assert shown.verdict.change is None and Explained.of(cell(**slow)).verdict.change is not None
    rule = Limit.TARGET.rule
    assert rule.detail(cell(reread=reread)) == "its disk, its memory or its processor"
    assert rule.detail(cell()) == "its disk or its processor"


def test_the_evidence_of_a_disk_has_no_reread() -> None:
    for verdict in Suspicion:
        records = [msgspec.structs.replace(each, reread=Reread(verdict=verdict)) for each in columns()]
        found = {each.reread is not None for each in collect(records, {"r1": plan_of_them()})}
        assert found == {verdict is not Suspicion.NOT_SUSPECTED}


def test_a_lab_that_limits_is_not_the_link_that_it_emulates() -> None:
    busy = {"time_ns": within(20000 * US, 0.01), "busy": within(0.95, 0.01)}
    real, emulated = (Explained.of(cell(is_emulated=is_emulated, **busy)) for is_emulated in (False, True))
    assert (real.verdict.is_lab_limited, emulated.verdict.is_lab_limited) == (False, True)
    assert "limited by processor work (" in text([real])
    assert "limited by the lab itself (" in text([emulated])
    assert not judge(cell(is_emulated=True)).is_lab_limited
    # What IPsec costs is asked of the processor.
    assert not judge(protected(is_emulated=True)).is_lab_limited


def test_bounds_that_overlap_tell_nothing() -> None:
    """2.4 ms of link; a device of about as much, known to a tenth."""
    verdict = judge(cell(device_ns=within(2300 * US, 0.1), time_ns=within(4800 * US, 0.01)))
    assert verdict.limited_by is Limit.UNKNOWN and verdict.confidence is Confidence.NONE
    assert (
        "the device or the link's rate" in verdict.reason or "the link's rate or the device" in verdict.reason
    )
    assert verdict.holds is not None and verdict.holds < 0.95


def test_without_a_null_column_crypto_is_not_distinguished_from_the_kernels_path() -> None:
    sure, unsure = judge(protected()), judge(protected(null=None))
    assert (sure.limited_by, sure.confidence) == (Limit.CRYPTO, Confidence.HIGH)
    assert unsure.limited_by is Limit.UNKNOWN
    assert "crypto work or processor work" in unsure.reason and "null-sha256" in unsure.reason
    assert set(unsure.either) == {Limit.CRYPTO, Limit.CPU} and not sure.either
    assert (
        "by crypto work or processor work outside crypto, the evidence does not say which: seq-read-256k"
        in text([Explained.of(protected(null=None))])
    )


@pytest.mark.parametrize(
    ("changes", "confidence"),
    [
        ({}, Confidence.HIGH),
        ({"rtt_ns": None}, Confidence.MEDIUM),
        ({"repeats": 1}, Confidence.LOW),
        ({"repeats": 1, "key": key(clock=Clock.VIRTUAL), "busy": None}, Confidence.HIGH),
    ],
)
def test_how_sure_a_verdict_is(changes: dict[str, Any], confidence: Confidence) -> None:
    assert judge(cell(**changes)).confidence is confidence


def test_the_twin_names_what_else_is_left_over() -> None:
    slow = cell(time_ns=within(20000 * US, 0.01), busy=None)
    assert judge(slow).limited_by is Limit.UNKNOWN
    verdict = judge(msgspec.structs.replace(slow, twin_ns=within(17500 * US, 0.02)))
    assert (verdict.limited_by, verdict.confidence) == (Limit.CPU, Confidence.MEDIUM)


def test_the_same_evidence_is_judged_alike_every_time() -> None:
    assert judge(protected(null=None)) == judge(protected(null=None))


def test_a_deeper_queue_helps_until_something_else_is_full() -> None:
    far = LinkProfile(name="far", title="x", emulated=True, rate_bit_s=10**9, delay_us=1000)
    verdict = judge(cell(path=asked(far, block_bytes=65536), block_bytes=65536, time_ns=exact(2650 * US)))
    assert verdict.limited_by is Limit.ROUND_TRIP and verdict.change is not None
    assert verdict.change.what == "queue depth 8"
    # 560 us of the link, or 2650 us for eight at once; and a few of them wait for each other.
    assert verdict.change.least_ns == pytest.approx(asked(far, block_bytes=65536).busy_ns, rel=0.03)
    assert verdict.change.time_ns == pytest.approx(asked(far, block_bytes=65536).busy_ns, rel=0.06)


def test_a_narrow_window_is_named_and_nothing_foretold_of_a_wider_one() -> None:
    far = LinkProfile(name="far", title="x", emulated=True, rate_bit_s=10**9, delay_us=2000)
    narrow = asked(far, window_bytes=16384)
    time_ns = narrow.round_trip_ns + narrow.window_ns + narrow.link_ns + narrow.transport_ns + 60 * US
    verdict = judge(cell(path=narrow, time_ns=exact(time_ns), busy=within(0.01, 0.05)))
    assert verdict.limited_by is Limit.ROUND_TRIP and "TCP window 16 KiB" in verdict.detail
    assert verdict.change is None


def test_one_measurement_in_real_time_is_uncertain_and_in_virtual_time_exact() -> None:
    assert span.of_samples([100.0]) == Span(75, 100, 125)
    assert span.of_samples([100.0], repeats_exactly=True) == exact(100)
    assert span.of_samples([3.0, 1.0, 2.0]) == Span(1, 2, 3)


def transfer(time_us: float, ios: int = 100) -> Io:
    return Io(bytes=ios * 262144, ios=ios, runtime_ns=round(ios * time_us * 1000), latency=Latency())


def measured(link: str, ipsec: str, time_us: float, **changes: Any) -> list[Record]:
    whole: dict[str, Any] = {
        "workload": "seq-read-256k",
        "block_bytes": 262144,
        "session": SESSION if link != "local" else {},
        "protection": () if ipsec == "off" else (ipsec,),
        "transport": None if link == "local" else "iscsi",
    }
    return [
        record(
            link=link,
            repeat=number,
            read=transfer(time_us * (1 + number / 1000)),
            **whole | changes,
        )
        for number in (1, 2, 3)
    ]


def columns() -> list[Record]:
    return [
        *measured("local", "off", 60),
        *measured("wired", "off", 2500),
        *measured("wired", "null-sha256", 5000),
        *measured("wired", "aes128gcm16", 30000, agreed={"aes128gcm16": {"drivers": "aes-generic"}}),
    ]


def plan_of_them(**changes: Any) -> Any:
    null = msgspec.structs.replace(
        GCM, name="null-sha256", kernel_algorithms=("ecb(cipher_null)", "hmac(sha256)"), encrypts=False
    )
    gcm = msgspec.structs.replace(GCM, kernel_algorithms=("rfc4106(gcm(aes))",))
    columns = (
        Column("local"),
        Column("wired"),
        Column("wired", ("null-sha256",)),
        Column("wired", ("aes128gcm16",)),
    )
    return made_plan(columns=columns, proposals={"null-sha256": null, "aes128gcm16": gcm}, **changes)


@pytest.mark.parametrize("value", ["", "0", "511", "-1", "1" * 5000, "\N{ARABIC-INDIC DIGIT FIVE}" * 4])
@pytest.mark.parametrize("name", ["first_burst_len", "max_burst_len", "max_recv_dlength", "max_sectors_kb"])
def test_a_session_that_no_ends_agree_on_is_none(name: str, value: str) -> None:
    changed = [msgspec.structs.replace(each, session=SESSION | {name: value}) for each in columns()]
    found = {e.name: e for e in collect(changed, {"r1": plan_of_them()})}
    is_limit = name == "max_sectors_kb"  # of the initiator's own, with which nobody agrees
    assert (found["wired"].path is None) is not is_limit


def test_of_blocks_that_no_disk_has_no_packet_is_computed() -> None:
    changed = [flat.changed(each, block_bytes=2**63 - 1) for each in columns()]
    (wired,) = (e for e in collect(changed, {"r1": plan_of_them()}) if e.name == "wired")
    assert wired.path is None and "blocks above 16 MiB are not computed" in wired.missing


def test_neighbours_are_evidence() -> None:
    found = {e.name: e for e in collect(columns(), {"r1": plan_of_them()})}
    gcm = found["wired+aes128gcm16"]
    assert gcm.device_ns is not None and gcm.device_ns.mid == pytest.approx(60 * US, rel=0.01)
    assert gcm.plain is not None and gcm.plain.time_ns.mid == pytest.approx(2500 * US, rel=0.01)
    assert gcm.null is not None and gcm.null.framing_ns > 0
    assert gcm.path is not None and gcm.path.framing_ns > gcm.null.framing_ns
    assert (gcm.depth, gcm.direction, gcm.repeats, gcm.driver) == (1, "read", 3, "aes-generic")
    assert found["wired"].plain is None and found["wired"].null is None
    assert found["wired+null-sha256"].null is None
    assert judge(gcm).limited_by is Limit.CRYPTO


@pytest.mark.parametrize("other", [("wireguard",), ("macsec",), ("macsec", "aes128gcm16")])
def test_esp_without_a_cipher_is_no_step_below_another_protection(other: tuple[str, ...]) -> None:
    found = [*columns(), *measured("wired", "off", 9000, protection=other)]
    (cell,) = [e for e in collect(found, {"r1": plan_of_them()}) if e.column.protection == other]
    assert cell.plain is not None and cell.null is None


def test_within_a_stack_the_same_stack_without_a_cipher_is() -> None:
    stacks = [("macsec", "aes128gcm16"), ("macsec", "null-sha256")]
    found = [one for stack in stacks for one in measured("wired", "off", 9000, protection=stack)]
    (cell,) = [e for e in collect(found, {"r1": plan_of_them()}) if e.column.protection == stacks[0]]
    assert cell.null is not None


def test_cells_of_another_setting_are_no_neighbours() -> None:
    virtual = measured("wired", "off", 100, clock=Clock.VIRTUAL)
    found = collect([*measured("wired", "aes128gcm16", 30000), *virtual], {"r1": plan_of_them()})
    (gcm,) = [e for e in found if e.column.ipsec != "off"]
    assert gcm.plain is None and gcm.device_ns is None
    (bare,) = [e for e in found if e.column.ipsec == "off"]
    assert bare.is_virtual and bare.device_ns is None


@pytest.mark.parametrize(
    ("records", "plans", "word"),
    [
        (measured("wired", "off", 2500), {}, "plan"),
        (
            [record(workload="seq-read-256k", read=transfer(1), write=transfer(1))],
            None,
            "share the cell's time",
        ),
        (measured("wired", "off", 2500, initiators=2), None, "several initiators"),
        (measured("wired", "off", 2500, block_bytes=None), None, "several sizes"),
        ([record(workload="seq-read-256k", status="invalid", read=None)], None, "gave a figure"),
    ],
)
def test_what_is_not_known_is_said(records: list[Record], plans: Any, word: str) -> None:
    found = explain(records, {"r1": plan_of_them()} if plans is None else plans)
    (verdict,) = [one.verdict for one in found]
    assert verdict.limited_by is Limit.UNKNOWN and word in verdict.reason


def test_the_core_is_busy_when_fio_starts_and_idles_only_within_the_io() -> None:
    from harness.model.telemetry import ProcessorUse, Telemetry

    used = Telemetry(
        processors=(ProcessorUse(hosts=("target",), wall_ns=2 * 10**9, cores=1, busiest_core=0.75),)
    )
    records = [record(read=transfer(1), telemetry=used, fio_ns=10**9)] * 3
    assert busy_of(records, 0.0) == exact(0.5)
    # 0.2 s of the 0.5 that it idled are fio's start, which it is to be known to take in any case.
    assert busy_of(records, 0.2e9) == Span(0.5, 0.7, 0.7)
    assert busy_of([record(read=transfer(1), fio_ns=10**9)], 0.0) is None


def test_the_busiest_core_is_named_where_there_are_several_kernels() -> None:
    from harness.model.telemetry import ProcessorUse, Telemetry

    def used(**busiest_core: float) -> Telemetry:
        uses = [ProcessorUse(hosts=(n,), wall_ns=1, cores=1, busiest_core=h) for n, h in busiest_core.items()]
        return Telemetry(processors=tuple(uses))

    router = record(telemetry=used(initiator=0.4, target=0.6, hop=0.99))
    assert busiest_of([router, router, record(telemetry=used(target=0.9, hop=0.5))]) == "hop"
    assert busiest_of([record(telemetry=used(target=0.99)), record()]) == ""
    limited = cell(time_ns=within(20000 * US, 0.01), busy=within(0.95, 0.01), busiest="hop")
    (verdict,) = [judge(limited)]
    assert (verdict.limited_by, verdict.detail) == (Limit.CPU, "core of the hop 95% busy")


def test_the_device_alone_is_the_same_workload_at_depth_1() -> None:
    deep = Job(
        name="deep", options=(("rw", "read"), ("bs", "256k"), ("ioengine", "libaio"), ("iodepth", "8"))
    )
    one = Job(name="one", options=(("rw", "read"), ("bs", "256k"), ("ioengine", "psync")))
    records = []
    for name, link, time_us in (("deep", "local", 10), ("one", "local", 50), ("deep", "wired", 2300)):
        records += measured(link, "off", time_us, workload=name)
    (found,) = [
        e
        for e in collect(records, {"r1": plan_of_them(jobs=(deep, one))})
        if e.column.link == "wired" and e.workload == "deep"
    ]
    assert found.depth == 8
    assert found.device_alone_ns is not None and found.device_alone_ns.mid == pytest.approx(50 * US, rel=0.01)
    guess = waterfall.best_guess(found)
    assert guess is not None and guess.device_ns == pytest.approx(10 * US, rel=0.01)


def test_json_has_what_was_promised() -> None:
    cells = json.loads(as_json(explain(columns(), {"r1": plan_of_them()})))["cells"]
    (gcm,) = [one for one in cells if one["column"]["protection"] == ["aes128gcm16"]]
    assert gcm["limited_by"] == "crypto" and gcm["confidence"] == "medium"
    assert sum(gcm["waterfall_ns"].values()) == gcm["whole_ns"]
    assert {
        "workload",
        "setting",
        "column",
        "holds",
        "share",
        "change",
        "missing",
        "sentence",
        "mb_s",
    } <= gcm.keys()
    assert gcm["change"] is None
    (wired,) = [one for one in cells if one["column"]["link"] == "wired" and not one["column"]["protection"]]
    change = wired["change"]
    assert wired["mb_s"] < change["least_mb_s"] <= change["mb_s"] <= change["most_mb_s"]
    assert (change["step"], change["then"]) == ({"kind": "rate", "value": 2}, "alone")


def test_the_two_bounds_of_a_link_have_one_name_each() -> None:
    """Of Gigabit Ethernet, 100 us there and back: 117.7 MB/s, and 112.6 for one read of 256K at a time."""
    cells = json.loads(as_json(explain(columns(), {"r1": plan_of_them()})))["cells"]
    found = {
        "+".join((cell["column"]["link"], *cell["column"]["protection"])): (
            cell["goodput_mb_s"],
            cell["one_at_a_time_mb_s"],
        )
        for cell in cells
    }
    assert found["local"] == (None, None)
    assert found["wired"] == pytest.approx((117.69, 112.61), abs=0.01)
    assert found["wired+aes128gcm16"][0] == found["wired"][0], "the link's, whatever protects the column"
    assert found["wired+aes128gcm16"][1] < found["wired"][1], "in the column's own frames"
    deep = Job(name="seq-read-256k", options=(("rw", "read"), ("ioengine", "libaio"), ("iodepth", "8")))
    (wired, *_) = [
        e for e in collect(columns(), {"r1": plan_of_them(jobs=(deep,))}) if e.column.link == "wired"
    ]
    assert wired.goodput_mb_s is not None and wired.one_at_a_time_mb_s is None


def test_words_for_people() -> None:
    cells = explain(columns(), {"r1": plan_of_them()})
    whole = text(cells)
    sentences = [line for line in whole.splitlines() if line.startswith("wired")]
    names = ["wired", "wired+null-sha256", "wired+aes128gcm16"]
    assert [line.partition(":")[0] for line in sentences] == names
    assert sentences[0].startswith("wired: limited by the link's rate")
    assert "limited by crypto work (aes-generic): seq-read-256k" in sentences[2]
    assert (
        "us for one I/O" in whole and "\n  seq-read-256k: limited by the link's rate (1000 Mbit/s)" in whole
    )


def test_what_is_reported_fits_the_terminal() -> None:
    cells = explain(columns(), {"r1": plan_of_them()})
    wide, narrow = text(cells), text(cells, 80)
    words = " ".join(narrow.split())
    assert all(" ".join(line.split()) in words for line in wide.splitlines() if ": " in line)
    assert "-0.0" not in wide
    assert max(map(len, narrow.splitlines())) <= 80


def lines_of(whole: Explained, names: Sequence[str], width: int = 80) -> list[str]:
    """The table of parts that take 1495.52 us each, and framing 56.94."""
    parts = dict.fromkeys(names, 1_495_520) | {"framing": 56_940}
    verdict = msgspec.structs.replace(whole.verdict, waterfall_ns=parts, whole_ns=sum(parts.values()))
    lines = text([msgspec.structs.replace(whole, verdict=verdict)], width).splitlines()
    lines = lines[lines.index("") + 1 :]
    assert max(map(len, lines[: lines.index("")])) <= width
    return lines


def test_the_parts_of_the_time_fit_a_terminal() -> None:
    """Then a heading of two words takes two lines, and large figures have no decimal."""
    (whole,) = (
        one
        for one in explain(columns(), {"r1": plan_of_them()})
        if one.evidence.column.protection == ("aes128gcm16",)
    )
    names = [name for name in PARTS if name not in ("window", "lost_packets", "emulation", "queue")]
    above, heading, _, row = lines_of(whole, names)[:4]
    assert above.split() == ["round", "ESP"]
    assert heading.split()[6:] == ["device", "link", "trip", "iSCSI", "framing", "crypto", "cpu", "rest"]
    assert row.split()[1:] == ["1", "10526", *["1496"] * 4, "56.9", *["1496"] * 3]
    # One more, and words are cut.
    higher, above, heading = lines_of(whole, [*names, "emulation"])[:3]
    assert (higher.split(), above.split()) == (["ESP"], ["de-", "round", "fram-", "emu-"])
    assert heading.split()[6:] == ["vice", "link", "trip", "iSCSI", "ing", "lation", "crypto", "cpu", "rest"]
    assert "  1495.5  1495.5" in "\n".join(lines_of(whole, names, 200))


def test_of_a_plain_fio_output_is_reported_what_it_lacks() -> None:
    """It was told to have blocks of several sizes, and a plan that got lost."""
    (of_fio,) = explain([record(10.0, source=FIO_SOURCE, link="fio", transport=None, block_bytes=None)], {})
    missing = of_fio.evidence.missing
    assert "this fio did not report its job's options, so the number of I/Os in flight is unknown" in missing
    assert "the size of its blocks is unknown" in missing


def test_names_of_others_are_harmless() -> None:
    hostile = Explained.of(cell(workload="x\x1b[31m", missing=("y\n",)))
    assert "\x1b" not in text([hostile])
