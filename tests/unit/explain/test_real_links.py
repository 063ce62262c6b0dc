"""Over real interfaces one TCP stream is a lower bound of what a link carries, and no limit of anything."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harness.analysis.limit import Limit
from harness.explain import explain
from harness.explain.evidence import Evidence, streams_of
from harness.explain.text import Explained
from harness.explain.verdict import Confidence
from harness.model import Column, Record, Status
from harness.model.probing import Tcp, TcpFigures
from harness.model.telemetry import ProcessorUse, RoundTrips, Telemetry
from harness.planning import duration
from harness.probes import in_run
from harness.report import summary
from harness.report.conclusion import answers
from harness.results.measured import Measured
from harness.results.probe_records import ProbeRecord
from harness.table import build
from tests import flat
from tests.unit.explain.test_explain import measured, plan_of_them
from tests.unit.probes.test_probes import blank
from tests.unit.results_folder import GCM, WIRED, made_plan

VIRTIO = replace(WIRED, emulated=False, interface="eth0", rate_bit_s=None, delay_us=0.0)
TRIPS = RoundTrips(interval_ns=2_000_000, payload_bytes=56, sent=20, received=20, min_ns=2e5, p50_ns=2.2e5)
PLAN = plan_of_them(links={"wired": VIRTIO})


def stream(mb_s: float, probe: Tcp | None = None, **changes: Any) -> ProbeRecord:
    """What iperf3 found between two cells over the link ``wired``."""
    figures = TcpFigures(sent_bytes=1, received_bytes=1, sent_bit_s=8e6 * mb_s, received_bit_s=8e6 * mb_s)
    made = flat.changed(blank(probe or Tcp(duration_s=1)), status=Status.OK, figures=figures)
    return flat.changed(made, **{"link": "wired", "is_from_run": True} | changes)


BACK = Tcp(duration_s=1, reverse=True)
STREAMS = [stream(11.8, repeat=1), stream(12.3, repeat=2), stream(12.1, BACK), stream(11.0, BACK, repeat=2)]


def reads(mb_s: float, **changes: Any) -> list[Record]:
    """Three repeats of 256K read over that link one at a time, next to the target's disk."""
    used, full = (
        Telemetry(
            round_trips=TRIPS,
            processors=tuple(
                ProcessorUse(hosts=(host,), wall_ns=10**9, cores=1, busiest_core=part)
                for host in ("initiator", "target")
            ),
        )
        for part in (0.6, 0.99)
    )
    cells = measured("wired", "off", 262144 / mb_s, telemetry=used, fio_ns=10**9, **changes)
    return [*measured("local", "off", 60, telemetry=full, fio_ns=10**9), *cells]


def explained(records: list[Record], probes: list[ProbeRecord]) -> Explained:
    return explain(records, {"r1": PLAN}, probes)[-1]


def answer(records: list[Record], probes: list[ProbeRecord]) -> str:
    plans = {"r1": PLAN}
    found = answers(build(records, plans=plans), explain(records, plans, probes))
    return " ".join(summary.lines(found, Measured(records=records, plans=plans), 200))


def test_what_one_stream_reached_is_no_rate_of_a_link_no_limit_and_nothing_to_double() -> None:
    for mb_s in (15.9, 12.0, 9.0):
        found = explained(reads(mb_s), STREAMS)
        evidence, verdict = found.evidence, found.verdict
        assert (evidence.rate_bit_s, evidence.goodput_mb_s, evidence.faster) == (None, None, None), mb_s
        assert evidence.stream_mb_s == pytest.approx(12.1)
        assert verdict.limited_by is not Limit.LINK and verdict.change is None, mb_s
        assert verdict.confidence is not Confidence.HIGH, "the link's part is not known"
        assert Limit.LINK not in verdict.bounds_ns
        known = (
            "no interface reports the link's rate; one TCP stream reached 12.1 MB/s to the initiator and 12.3"
        )
        assert any(known in words for words in evidence.missing)


def test_the_answer_tells_the_stream_as_a_lower_bound_and_not_where_a_cell_beat_it() -> None:
    slower, faster = answer(reads(9.0), STREAMS), answer(reads(15.9), STREAMS)
    assert "8.98" in slower and "15.9" in faster
    for words in (slower, faster):
        assert " max" not in words and "More than the link should carry" not in words
        assert "look up the speed of the host's NIC or the switch port." in words
        assert "Would help" not in words and "the link's rate at 256K" not in words
    assert "one TCP stream reached 12.1 MB/s" in slower
    without = answer(reads(9.0), [])
    assert "one TCP stream" not in without and "No interface reports the link's rate;" in without


def test_of_a_card_that_says_its_speed_that_is_the_link_s_rate_whatever_a_stream_reached() -> None:
    found = explained(reads(105.0, link_rate_bit_s=10**9), STREAMS)
    assert found.evidence.goodput_mb_s == pytest.approx(117.69, abs=0.01) and not found.evidence.rate_unknown
    assert found.verdict.limited_by is Limit.LINK
    words = answer(reads(105.0, link_rate_bit_s=10**9), STREAMS)
    assert " max" in words and " 117.7" in words and "one TCP stream" not in words


def test_the_best_stream_of_each_direction_counts_and_neither_several_nor_a_protected_one() -> None:
    others = [stream(90.0, Tcp(streams=4)), stream(80.0, protection=("aes128gcm16",)), stream(70.0, link="x")]
    assert streams_of([*STREAMS, *others], "wired") == pytest.approx({"write": 12.3, "read": 12.1})
    assert streams_of(others, "wired") == {}
    assert Evidence(key=explained(reads(9.0), []).evidence.key, workload="x").stream_mb_s is None


def test_a_real_link_is_probed_both_ways_in_the_first_rounds_and_an_emulated_one_once() -> None:
    wired, gcm = Column("wired"), Column("wired", (GCM.name,))
    rounds = [in_run.tcp(wired, VIRTIO, number) for number in (1, 2, 3, 4)]
    assert [[(probe.reverse, number) for probe, number in each] for each in rounds] == [
        [(False, 1), (True, 1)],
        [(False, 2), (True, 2)],
        [(False, 3), (True, 3)],
        [],
    ]
    for column, link in ((wired, WIRED), (gcm, VIRTIO)):
        assert {each for n in (1, 2, 3) for each in in_run.tcp(column, link, n)} == {(Tcp(duration_s=1), 1)}
    real, emulated = (
        duration.run_s(made_plan(columns=(wired,), links={"wired": link}, probes=True))
        for link in (VIRTIO, WIRED)
    )
    assert real - emulated == pytest.approx(5 * duration.TCP_S)
