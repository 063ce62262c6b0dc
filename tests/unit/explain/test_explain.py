"""What limits: the waterfall adds up, the closed form is theory's, a verdict is given where it holds."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from harness import model
from harness.analysis import interval, path_demands, theory
from harness.analysis.interval import Interval, exact, within
from harness.analysis.limit import Limit
from harness.explain import explain, limits, waterfall
from harness.explain.evidence import Baselines, Evidence, busiest_of, busy_of, collect, measured_link
from harness.explain.limits import RULES, Rule
from harness.explain.text import Explained, as_json, sentence, text
from harness.explain.verdict import Confidence, judge, likely
from harness.model import FIO_SOURCE
from harness.model.reread import Reread, Sign, Suspicion
from harness.model.telemetry import ProcessorUse, Telemetry
from harness.results.columns import ColumnKey
from tests import flat
from tests.unit.results_folder import GCM, WIFI, WIRED, made_plan
from tests.unit.table.test_table import record

LONGEST = dict.fromkeys(("max_burst_len", "max_recv_dlength", "max_xmit_dlength"), "262144")
SESSION = {
    "initial_r2t": "1",
    "immediate_data": "1",
    "first_burst_len": "65536",
    **LONGEST,
    "queue_depth": "32",
}
GCM_ESP = theory.esp(("rfc4106(gcm(aes))",), model.IpsecMode.TRANSPORT)
US = 1000.0
QUEUED = (("rw", "read"), ("bs", "256k"), ("ioengine", "libaio"), ("iodepth", "8"))
T = TypeVar("T")


def known(found: T | None) -> T:
    assert found is not None
    return found


def far(delay_us: int, rate_bit_s: int = 10**9) -> model.LinkProfile:
    return model.LinkProfile(name="far", title="x", emulated=True, rate_bit_s=rate_bit_s, delay_us=delay_us)


def asked(
    link: model.LinkProfile = WIRED,
    *,
    direction: theory.IoDirection = "read",
    block_bytes: int = 262144,
    framing: theory.Framing | None = None,
    window_bytes: int | None = None,
    **session: str,
) -> path_demands.Demands:
    agreed = known(path_demands.dialogue_of("iscsi", SESSION | session, direction))
    return path_demands.of_dialogue(link, framing, agreed, direction, block_bytes, window_bytes=window_bytes)


DIRECTIONS: tuple[theory.IoDirection, ...] = ("read", "write")


@pytest.mark.parametrize("esp", [None, GCM_ESP], ids=["plain", "gcm"])
def test_the_parts_of_a_path_add_up_to_theorys_time(esp: theory.Esp | None) -> None:
    for direction, block_bytes in itertools.product(DIRECTIONS, (4096, 65536, 262144)):
        found = asked(direction=direction, block_bytes=block_bytes, framing=esp)
        agreed = known(path_demands.dialogue_of("iscsi", SESSION, direction))
        link = theory.Wire(link=WIRED, framing=esp)
        whole = theory.predict(link, agreed, direction=direction, block_bytes=block_bytes, device_s=1e-4)
        parts = found.link_ns + found.round_trip_ns + found.transport_ns + found.framing_ns
        # All but the ACK that leaves in front of a command, 0.7 us, and what of it the disk covers.
        assert parts + 1e5 == pytest.approx(whole.time_s * 1e9, rel=0.005), (direction, block_bytes)
        assert (found.framing_ns > 0) is (esp is not None) and found.r2ts == whole.round_trips - 1
        wire = max(whole.to_initiator.wire_bytes, whole.to_target.wire_bytes)
        assert found.busy_ns == pytest.approx(wire * 8, rel=1e-6), (direction, block_bytes)


def test_each_r2t_costs_a_round_trip_of_iscsis_and_commands_side_by_side_one() -> None:
    few = asked(direction="write")
    many = asked(direction="write", max_burst_len="16384", first_burst_len="16384")
    assert (few.r2ts, many.r2ts) == (1, 15)
    assert many.transport_ns - few.transport_ns == pytest.approx(14 * 100 * US, rel=0.05)
    assert many.round_trip_ns == few.round_trip_ns == pytest.approx(100 * US)
    agreed = known(path_demands.dialogue_of("iscsi", SESSION, "read"))
    whole = path_demands.of_dialogue(WIRED, None, agreed, "read", 262144)
    split = path_demands.of_dialogue(WIRED, None, agreed, "read", 262144, command_bytes=127 * 1024)
    assert split.round_trip_ns == whole.round_trip_ns
    assert split.transport_ns > whole.transport_ns and split.link_ns == pytest.approx(whole.link_ns, rel=2e-3)


def test_a_shared_medium_carries_the_acks_and_hops_store_each_burst_once_more() -> None:
    shared, full = asked(replace(WIFI, duplex=model.Duplex.HALF)), asked(WIFI)
    assert shared.link_ns > full.link_ns and shared.busy_ns > full.busy_ns
    hops = model.Hops(kind="switch", count=3, least=0, most=16, delay_us=10.0)
    through, straight = asked(replace(WIRED, hops=hops)), asked(WIRED)
    assert through.round_trip_ns - straight.round_trip_ns == pytest.approx(2 * 3 * 10 * US)
    # The longest frame of the answer, 12.3 us, and the command's, 1.1 us, at each.
    assert through.link_ns - straight.link_ns == pytest.approx(3 * (12.304 + 1.104) * US, rel=0.001)
    assert (through.transport_ns, through.busy_ns) == pytest.approx((straight.transport_ns, straight.busy_ns))


def require_packets(
    transport: str,
    direction: theory.IoDirection,
    counted: int,
    while_others_wait: int,
    sealed_on_a_full_core: int,
    *,
    command_bytes: int = 124 << 10,
) -> None:
    """Of 256K: as counted on the custom kernel, both ways with ACKs. LIO hands TCP a page at a time. With
    AES-GCM over the unshaped link, one at a time: only open-iscsi receives in no thread."""
    agreed = known(path_demands.dialogue_of(transport, SESSION | {"in_capsule_bytes": "16384"}, direction))
    found, sealed = (
        path_demands.of_dialogue(WIRED, framing, agreed, direction, 262144, command_bytes=command_bytes)
        for framing in (None, GCM_ESP)
    )
    assert found.packets == pytest.approx(counted, abs=1), (transport, direction)
    assert found.full_packets == pytest.approx(while_others_wait, abs=3), (transport, direction)
    assert sealed.packets > 270, "segments, with every second acknowledged"
    assert sealed.full_packets == pytest.approx(sealed_on_a_full_core, abs=3), (transport, direction)


def test_packets_are_those_that_interfaces_counted() -> None:
    """Of 256K over the unshaped link, and four or eight at a time over wired."""
    require_packets("iscsi", "read", 134, 13, 293)
    require_packets("iscsi", "write", 21, 23, 202)
    # An emulated link is its profile, and a real one what was found.
    rtt = Interval(200 * US, 300 * US, 300 * US)
    assert measured_link(WIRED, rtt, 10**8) == WIRED
    real = model.LinkProfile(name="wired", title="x", emulated=False, interface="eth0")
    link = measured_link(real, rtt, 10**9)
    assert (link.delay_us, link.rate_bit_s) == (150, 10**9)


def key(*protection: str, link: str = "wired", clock: model.Clock = model.Clock.REAL) -> ColumnKey:
    setting = model.Setting(testbed=model.TestbedKind.LAB, clock=clock)
    return ColumnKey(setting, model.Column(link, protection))


def cell(**changes: Any) -> Evidence:
    """A 256K read over gigabit with IPsec off, that takes what the closed form says, on an idle processor."""
    whole: dict[str, Any] = {"workload": "seq-read-256k", "key": key(), "direction": "read", "depth": 1}
    whole |= {"block_bytes": 262144, "path": asked(), "rate_bit_s": 10**9, "rtt_ns": exact(150 * US)}
    whole |= {"time_ns": within(2500 * US, 0.01), "repeats": 3, "device_ns": within(60 * US, 0.01)}
    whole |= {"busy": within(0.1, 0.05)}
    return Evidence(**whole | changes)


def took(time_us: float, **changes: Any) -> Evidence:
    """The same in another time."""
    return cell(time_ns=within(time_us * US, 0.01), **changes)


def protected(**changes: Any) -> Evidence:
    """The same with GCM: 12.5 ms, where plain took 2.5 and null 5."""
    driver = "rfc4106(gcm_base(ctr(aes-generic),ghash-generic))"
    whole: dict[str, Any] = {"key": key("aes128gcm16"), "path": asked(framing=GCM_ESP), "driver": driver}
    whole |= {"time_ns": within(12500 * US, 0.01), "busy": within(0.85, 0.01)}
    whole["plain"] = Baselines(time_ns=within(2500 * US, 0.01), busy=within(0.1, 0.05))
    whole["null"] = Baselines(time_ns=within(5000 * US, 0.01), framing_ns=40 * US, busy=within(0.5, 0.05))
    return cell(**whole | changes)


def test_the_waterfall_adds_up_to_the_last_ns() -> None:
    for evidence in (
        cell(),
        protected(),
        protected(null=None),
        cell(depth=8, device_alone_ns=exact(50 * US)),
        cell(time_ns=exact(1234567.89), device_ns=None),
        cell(time_ns=exact(1000.4)),
        cell(key=key(link="local"), path=None),
    ):
        verdict = judge(evidence)
        assert sum(verdict.waterfall_ns.values()) == verdict.whole_ns, evidence
        assert verdict.whole_ns == round(known(evidence.time_ns).mid * known(evidence.depth))
    short = judge(cell(time_ns=exact(1000 * US)))  # What is left is named, and may be negative.
    assert short.waterfall_ns["rest"] < 0
    assert short.limited_by is Limit.UNKNOWN and "so some are wrong" in short.reason

    owners = limits.of_parts(cell()), limits.of_parts(cell(is_one_end=True))
    owned = {of[name] for of in owners for name in waterfall.PARTS[:-2]}
    assert owned == {*Limit} - {Limit.LATENCY, Limit.UNKNOWN}
    assert limits.of_parts(cell(is_emulated=True))["cpu"] is Limit.LAB
    assert limits.of_parts(protected(is_emulated=True))["cpu"] is Limit.CPU
    # A lab that limits is not the link that it emulates.
    real, emulated = (
        Explained.of(took(20000, busy=within(0.95, 0.01), is_emulated=is_emulated))
        for is_emulated in (False, True)
    )
    assert (real.verdict.is_lab_limited, emulated.verdict.is_lab_limited) == (False, True)
    assert "limited by processor work (" in text([real])
    assert "limited by the lab itself (" in text([emulated])
    assert not judge(cell(is_emulated=True)).is_lab_limited
    # What IPsec costs is asked of the processor.
    assert not judge(protected(is_emulated=True)).is_lab_limited


def test_a_rule_that_is_a_condition_limits_whatever_else_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Rule(
        words=lambda _: "the scheduler",
        letter="X",
        part="scheduler",
        holds=lambda e: f"{e.depth} I/Os are too few for it" if e.depth == 2 else "",
        is_sure=lambda _: False,
        unsure="nobody watched it",
        detail=lambda _: "mq-deadline",
    )
    monkeypatch.setitem(RULES, Limit.TARGET, rule)
    found = Explained.of(cell(depth=2))
    assert sentence(found) == (
        "limited by the scheduler (mq-deadline): 2 I/Os are too few for it; confidence medium"
    )
    assert found.verdict.waterfall_ns == {"scheduler": 5000 * US, "rest": 0}
    assert (likely(found.evidence), likely(cell())) == (Limit.TARGET, Limit.LINK)


def test_each_limit_and_each_part_is_explained() -> None:
    assert [each for each in Limit if f"``{each}``" not in (Limit.__doc__ or "")] == [Limit.UNKNOWN]
    docs = (Path(__file__).parents[3] / "docs" / "explain.md").read_text(encoding="utf-8")
    assert [name for name in waterfall.PARTS if f"\n| `{name}` " not in docs] == []
    letters = [rule.letter for rule in RULES.values()]
    assert {*RULES} == {*Limit} and len({*letters}) == len(letters)


def test_what_takes_most_limits() -> None:
    many_r2ts = asked(direction="write", max_burst_len="4096", first_burst_len="4096")
    far_4k = {"path": asked(far(5000), block_bytes=4096), "block_bytes": 4096, "busy": within(0.02, 0.01)}
    for evidence, limit in (
        (cell(), Limit.LINK),
        (took(11500, device_ns=within(9000 * US, 0.01)), Limit.DEVICE),
        (took(2200, path=asked(WIFI, block_bytes=4096)), Limit.ROUND_TRIP),
        (took(9000, path=many_r2ts), Limit.TRANSPORT),
        (protected(), Limit.CRYPTO),
        (took(20000, busy=within(0.95, 0.01)), Limit.CPU),
        (took(20000), Limit.UNKNOWN),
        # With many under way the busiest counts, and if none is busy that there are too few.
        (took(2300, depth=8), Limit.LINK),
        (took(9100, depth=8, device_ns=within(9000 * US, 0.01)), Limit.DEVICE),
        (took(9000, depth=8, busy=within(0.97, 0.01)), Limit.CPU),
        # Two resources that are full for about as long.
        (took(2350, depth=8, device_ns=within(2230 * US, 0.1)), Limit.UNKNOWN),
        (took(2520, depth=4, **far_4k), Limit.ROUND_TRIP),
        (took(9000, depth=8), Limit.UNKNOWN),
    ):
        verdict = judge(evidence)
        assert verdict.limited_by is limit, verdict
    # Bounds that overlap tell nothing: 2.4 ms of link; a device of about as much, known to a tenth.
    verdict = judge(took(4800, device_ns=within(2300 * US, 0.1)))
    assert verdict.limited_by is Limit.UNKNOWN and verdict.confidence is Confidence.NONE
    either = ("the device or the link's rate", "the link's rate or the device")
    assert any(words in verdict.reason for words in either) and known(verdict.holds) < 0.95
    # A deeper queue helps until something else is full.
    demands = asked(far(1000), block_bytes=65536)
    verdict = judge(cell(path=demands, block_bytes=65536, time_ns=exact(2650 * US)))
    change = known(verdict.change)
    assert (verdict.limited_by, change.what) == (Limit.ROUND_TRIP, "queue depth 8")
    # 560 us of the link, or 2650 us for eight at once; and a few of them wait for each other.
    assert change.each_ns.low == pytest.approx(demands.busy_ns, rel=0.03)
    assert change.each_ns.mid == pytest.approx(demands.busy_ns, rel=0.06)


def test_what_memory_may_have_answered_is_not_called_the_disk() -> None:
    slow, rule = took(11500, device_ns=within(9000 * US, 0.01)), RULES[Limit.TARGET]
    assert sentence(Explained.of(slow)).startswith("limited by the device: ")
    assert Explained.of(slow).verdict.change is not None
    assert rule.detail(cell()) == "its disk or its processor"
    memory = "memory (these reads come from the target's memory, "
    unclear = "disk or its memory (it is not clear whether "
    for suspicion, words in ((Suspicion.SUSPECTED, memory), (Suspicion.CANNOT_TELL, unclear)):
        reread = Reread(verdict=suspicion, signs=(Sign.AGAIN,) * (suspicion is Suspicion.SUSPECTED))
        found = Explained.of(replace(slow, reread=reread))
        assert sentence(found).startswith(f"limited by the target's {words}")
        # What was slower than as much of the same column is on a disk, whatever else memory has.
        shown = Explained.of(replace(slow, reread=reread, is_target_shown=True))
        assert sentence(shown).startswith("limited by the target's disk or its memory")
        assert shown.verdict.change is None
        assert rule.detail(cell(reread=reread)) == "its disk, its memory or its processor"
    # The evidence of a disk has none.
    for suspicion in Suspicion:
        records = [replace(each, reread=Reread(verdict=suspicion)) for each in columns()]
        rereads = {each.reread is not None for each in evidence_of(records).values()}
        assert rereads == {suspicion is not Suspicion.NOT_SUSPECTED}


def test_without_a_null_column_crypto_is_not_distinguished_from_the_kernels_path() -> None:
    sure, unsure = judge(protected()), judge(protected(null=None))
    assert (sure.limited_by, sure.confidence) == (Limit.CRYPTO, Confidence.HIGH)
    assert unsure.limited_by is Limit.UNKNOWN
    assert "crypto work or processor work" in unsure.reason and "null-sha256" in unsure.reason
    assert set(unsure.either) == {Limit.CRYPTO, Limit.CPU} and not sure.either
    words = "by crypto work or processor work outside crypto, the evidence does not say which: seq-read-256k"
    assert words in text([Explained.of(protected(null=None))])
    assert judge(protected(null=None)) == unsure, "alike every time"
    assert judge(cell()).confidence is Confidence.HIGH
    assert judge(cell(rtt_ns=None)).confidence is Confidence.MEDIUM
    assert judge(cell(repeats=1)).confidence is Confidence.LOW
    assert judge(cell(repeats=1, key=key(clock=model.Clock.VIRTUAL), busy=None)).confidence is Confidence.HIGH
    slow = took(20000, busy=None)
    assert judge(slow).limited_by is Limit.UNKNOWN
    left_ns = 20000 * US - known(slow.device_ns).mid - known(slow.path).alone_ns
    assert known(slow.implementation_ns).mid == pytest.approx(left_ns)
    # One measurement in real time is uncertain, and in virtual time exact.
    assert interval.of_samples([100.0]) == Interval(75, 100, 125)
    assert interval.of_samples([100.0], repeats_exactly=True) == exact(100)
    assert interval.of_samples([3.0, 1.0, 2.0]) == Interval(1, 2, 3)


def test_a_narrow_window_lets_its_bytes_through_once_in_a_round_trip() -> None:
    narrow, wide = (asked(far(2000, 10**10), window_bytes=window) for window in (16384, 1 << 22))
    assert narrow.window_each_ns == pytest.approx(16 * 4000 * US, rel=0.01)
    # As many windows as hold the data and its header, and the last is not waited for.
    assert narrow.window_ns == pytest.approx(16 * 4000 * US, rel=0.01)
    assert narrow.is_window_narrow(1) and not wide.is_window_narrow(1)
    # It is named, and nothing forecast of a wider one.
    narrow = asked(far(2000), window_bytes=16384)
    time_ns = narrow.round_trip_ns + narrow.window_ns + narrow.link_ns + narrow.transport_ns + 60 * US
    verdict = judge(cell(path=narrow, time_ns=exact(time_ns), busy=within(0.01, 0.05)))
    assert verdict.limited_by is Limit.WINDOW and "16 KiB in" in verdict.detail
    assert verdict.change is None


def transfer(time_us: float, ios: int = 100) -> model.Io:
    moved = {"bytes": ios * 262144, "ios": ios, "runtime_ns": round(ios * time_us * 1000)}
    return model.Io(**moved, latency=model.Latency())


def measured(link: str, ipsec: str, time_us: float, **changes: Any) -> list[model.Record]:
    is_local, protection = link == "local", () if ipsec == "off" else (ipsec,)
    whole: dict[str, Any] = {"workload": "seq-read-256k", "block_bytes": 262144, "protection": protection}
    whole |= {"session": {} if is_local else SESSION, "transport": None if is_local else "iscsi"}
    return [
        record(link=link, repeat=number, read=transfer(time_us * (1 + number / 1000)), **whole | changes)
        for number in (1, 2, 3)
    ]


def columns() -> list[model.Record]:
    return [
        *measured("local", "off", 60),
        *measured("wired", "off", 2500),
        *measured("wired", "null-sha256", 5000),
        *measured("wired", "aes128gcm16", 30000, agreed={"aes128gcm16": {"drivers": "aes-generic"}}),
    ]


def plan_of_them(**changes: Any) -> Any:
    without_cipher = ("ecb(cipher_null)", "hmac(sha256)")
    null = replace(GCM, name="null-sha256", kernel_algorithms=without_cipher, encrypts=False)
    gcm = replace(GCM, kernel_algorithms=("rfc4106(gcm(aes))",))
    wired = [model.Column("wired", protection) for protection in ((), ("null-sha256",), ("aes128gcm16",))]
    proposals = {"null-sha256": null, "aes128gcm16": gcm}
    return made_plan(columns=(model.Column("local"), *wired), proposals=proposals, **changes)


def evidence_of(records: list[model.Record], **changes: Any) -> dict[str, Evidence]:
    """The last cell of each column."""
    return {each.column.label: each for each in collect(records, {"r1": plan_of_them(**changes)})}


def test_of_a_session_that_no_ends_agree_on_nothing_is_computed() -> None:
    values = ("", "0", "511", "-1", "1" * 5000, "\N{ARABIC-INDIC DIGIT FIVE}" * 4)
    names = ("first_burst_len", "max_burst_len", "max_recv_dlength", "max_sectors_kb")
    for name, value in itertools.product(names, values):
        wired = evidence_of([replace(each, session=SESSION | {name: value}) for each in columns()])["wired"]
        is_limit = name == "max_sectors_kb"  # of the initiator's own, with which nobody agrees
        assert (wired.path is None) is not is_limit, (name, value)
    # Nor of blocks that no disk has.
    wired = evidence_of([flat.changed(each, block_bytes=2**63 - 1) for each in columns()])["wired"]
    assert wired.path is None and "blocks above 16 MiB are not computed" in wired.missing


def test_neighbours_are_evidence() -> None:
    found = evidence_of(columns())
    gcm = found["wired+aes128gcm16"]
    assert known(gcm.device_ns).mid == pytest.approx(60 * US, rel=0.01)
    assert known(gcm.plain).time_ns.mid == pytest.approx(2500 * US, rel=0.01)
    assert known(gcm.path).framing_ns > known(gcm.null).framing_ns > 0
    assert (gcm.depth, gcm.direction, gcm.repeats, gcm.driver) == (1, "read", 3, "aes-generic")
    assert found["wired"].plain is None and found["wired"].null is None
    assert found["wired+null-sha256"].null is None and judge(gcm).limited_by is Limit.CRYPTO

    # Another protection or setting is no step below.
    def of(*protection: str, **changes: Any) -> list[model.Record]:
        return measured("wired", "off", 9000, protection=protection, **changes)

    for other in (("wireguard",), ("macsec",), ("macsec", "aes128gcm16")):
        cell = evidence_of([*columns(), *of(*other)])["+".join(("wired", *other))]
        assert cell.plain is not None and cell.null is None, other
    # Within a stack the same stack without a cipher is.
    stacks = evidence_of([*of("macsec", "aes128gcm16"), *of("macsec", "null-sha256")])
    assert stacks["wired+macsec+aes128gcm16"].null is not None
    found = evidence_of([*of("aes128gcm16"), *of(clock=model.Clock.VIRTUAL)])
    gcm, bare = found["wired+aes128gcm16"], found["wired"]
    assert gcm.plain is None and gcm.device_ns is None
    assert bare.is_virtual and bare.device_ns is None
    # The device alone is the same workload at depth 1.
    alone = model.Job(name="one", options=(("rw", "read"), ("bs", "256k"), ("ioengine", "psync")))
    records = []
    for name, link, time_us in (("deep", "local", 10), ("one", "local", 50), ("deep", "wired", 2300)):
        records += measured(link, "off", time_us, workload=name)
    deep = evidence_of(records, jobs=(model.Job(name="deep", options=QUEUED), alone))["wired"]
    assert (deep.workload, deep.depth) == ("deep", 8)
    assert known(deep.device_alone_ns).mid == pytest.approx(50 * US, rel=0.01)
    assert known(waterfall.best_guess(deep)).device_ns == pytest.approx(10 * US, rel=0.01)


def test_what_is_not_known_is_said() -> None:
    plans = {"r1": plan_of_them()}
    for records, known_plans, word in (
        (measured("wired", "off", 2500), {}, "plan"),
        (measured("wired", "off", 1, write=transfer(1))[:1], plans, "share the cell's time"),
        (measured("wired", "off", 2500, initiators=2), plans, "several initiators"),
        (measured("wired", "off", 2500, block_bytes=None), plans, "several sizes"),
        ([record(workload="seq-read-256k", status="invalid", read=None)], plans, "gave a figure"),
    ):
        (verdict,) = [one.verdict for one in explain(records, known_plans)]
        assert verdict.limited_by is Limit.UNKNOWN and word in verdict.reason, word


def used(wall_ns: int = 1, **busiest_core: float) -> Telemetry:
    uses = [
        ProcessorUse(hosts=(host,), wall_ns=wall_ns, cores=1, busiest_core=busy)
        for host, busy in busiest_core.items()
    ]
    return Telemetry(processors=tuple(uses))


def test_the_core_is_busy_when_fio_starts_and_idles_only_within_the_io() -> None:
    telemetry = used(wall_ns=2 * 10**9, target=0.75)
    records = [record(read=transfer(1), telemetry=telemetry, fio_ns=10**9)] * 3
    assert busy_of(records, 0.0) == exact(0.5)
    # 0.2 s of the 0.5 that it idled are fio's start, which it is to be known to take in any case.
    assert busy_of(records, 0.2e9) == Interval(0.5, 0.7, 0.7)
    assert busy_of([record(read=transfer(1), fio_ns=10**9)], 0.0) is None
    router = record(telemetry=used(initiator=0.4, target=0.6, hop=0.99))
    assert busiest_of([router, router, record(telemetry=used(target=0.9, hop=0.5))]) == "hop"
    assert busiest_of([record(telemetry=used(target=0.99)), record()]) == ""
    verdict = judge(took(20000, busy=within(0.95, 0.01), busiest="hop"))
    assert (verdict.limited_by, verdict.detail) == (Limit.CPU, "core of the hop 95% busy")


@functools.cache
def explained() -> list[Explained]:
    return explain(columns(), {"r1": plan_of_them()})


def test_json_has_what_was_promised() -> None:
    """Of Gigabit Ethernet, 100 us there and back: 117.7 MB/s, and 112.2 for one read of 256K at a time."""
    cells = json.loads(as_json(explained()))["cells"]
    found = {"+".join((cell["column"]["link"], *cell["column"]["protection"])): cell for cell in cells}
    local, wired, gcm = (found[name] for name in ("local", "wired", "wired+aes128gcm16"))
    assert gcm["limited_by"] == "crypto" and gcm["confidence"] == "medium"
    assert sum(gcm["waterfall_ns"].values()) == gcm["whole_ns"]
    names = {"workload", "setting", "column", "holds", "share", "change", "missing", "sentence", "mb_s"}
    assert names <= gcm.keys() and gcm["change"] is None
    change = wired["change"]
    assert wired["mb_s"] < change["least_mb_s"] <= change["mb_s"] <= change["most_mb_s"]
    assert (change["step"], change["then"]) == ({"kind": "rate", "value": 2}, "link")
    # The two bounds of a link have one name each.
    assert local["goodput_mb_s"] is local["one_at_a_time_mb_s"] is None
    assert wired["goodput_mb_s"] == pytest.approx(117.69, abs=0.01)
    assert wired["one_at_a_time_mb_s"] == pytest.approx(112.21, abs=0.01)
    assert gcm["goodput_mb_s"] == wired["goodput_mb_s"], "the link's, whatever protects the column"
    assert gcm["one_at_a_time_mb_s"] < wired["one_at_a_time_mb_s"], "in the column's own frames"
    deep = evidence_of(columns(), jobs=(model.Job(name="seq-read-256k", options=QUEUED),))["wired"]
    assert deep.goodput_mb_s is not None and deep.one_at_a_time_mb_s is None


def test_words_for_people_fit_the_terminal() -> None:
    wide, narrow = text(explained()), text(explained(), 80)
    sentences = [line for line in wide.splitlines() if line.startswith("wired")]
    names = ["wired", "wired+null-sha256", "wired+aes128gcm16"]
    assert [line.partition(":")[0] for line in sentences] == names
    assert sentences[0].startswith("wired: limited by the link's rate")
    assert "limited by crypto work (aes-generic): seq-read-256k" in sentences[2]
    assert "us for one I/O" in wide and "-0.0" not in wide
    assert "\n  seq-read-256k: limited by the link's rate (1000 Mbit/s)" in wide
    words = " ".join(narrow.split())
    assert all(" ".join(line.split()) in words for line in wide.splitlines() if ": " in line)
    assert max(map(len, narrow.splitlines())) <= 80


def lines_of(whole: Explained, names: list[str], width: int = 80) -> list[str]:
    """The table of parts that take 1495.52 us each, and framing 56.94."""
    parts = dict.fromkeys(names, 1_495_520) | {"framing": 56_940}
    verdict = replace(whole.verdict, waterfall_ns=parts, whole_ns=sum(parts.values()))
    lines = text([replace(whole, verdict=verdict)], width).splitlines()
    lines = lines[lines.index("") + 1 :]
    assert max(map(len, lines[: lines.index("")])) <= width
    return lines


def test_the_parts_of_the_time_fit_a_terminal() -> None:
    """Then a heading of two words takes two lines, and large figures have no decimal."""
    (whole,) = (one for one in explained() if one.evidence.column.protection == ("aes128gcm16",))
    names = ["device", "link", "round_trip", "transport", "framing", "crypto", "cpu", "rest"]
    above, heading, _, row = lines_of(whole, names)[:4]
    assert above.split() == ["round", "ESP"]
    assert heading.split()[6:] == ["device", "link", "trip", "iSCSI", "framing", "crypto", "cpu", "rest"]
    assert row.split()[1:] == ["1", "10526", *["1496"] * 4, "56.9", *["1496"] * 3]
    higher, above, heading = lines_of(whole, [*names, "emulation"])[:3]  # One more, and words are cut.
    assert (higher.split(), above.split()) == (["ESP"], ["de-", "round", "fram-", "emu-"])
    assert heading.split()[6:] == ["vice", "link", "trip", "iSCSI", "ing", "lation", "crypto", "cpu", "rest"]
    assert "  1495.5  1495.5" in "\n".join(lines_of(whole, names, 200))
    # Of a plain fio output is reported what it lacks.
    (of_fio,) = explain([record(10.0, source=FIO_SOURCE, link="fio", transport=None, block_bytes=None)], {})
    missing = of_fio.evidence.missing
    assert "this fio did not report its job's options, so the number of I/Os in flight is unknown" in missing
    assert "its block size is unknown" in missing
    hostile = Explained.of(cell(workload="x\x1b[31m", missing=("y\n",)))  # Names of others are harmless.
    assert "\x1b" not in text([hostile])
