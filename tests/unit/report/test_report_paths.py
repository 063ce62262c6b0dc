"""What the report says of paths: medians of the cells' telemetry, and every figure of a probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from harness.model import Status
from harness.model.histogram import Histogram
from harness.model.probing import Ping, PingFigures, Tcp, TcpFigures, UdpLatency, UdpLatencyFigures
from harness.model.telemetry import OBSERVED, InterfaceUse, ProcessorUse, RoundTrips, Telemetry
from harness.report import load, paths, render
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder
from harness.table.views.counters import lost_hops
from tests import flat
from tests.unit.command import harness
from tests.unit.results_folder import write
from tests.unit.table.test_table import record

TRIPS = RoundTrips(interval_ns=10**7, payload_bytes=56, sent=20, received=19, p50_ns=100_000.0)


def telemetry_of(p50_us: float, busiest_core: float | None, drops: int) -> Telemetry:
    counts = dict.fromkeys(("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"), 1)
    eth0 = InterfaceUse(host="target", interface="eth0", **counts, drops=drops, errors=0)
    return Telemetry(
        round_trips=msgspec.structs.replace(TRIPS, p50_ns=1000 * p50_us),
        processors=(ProcessorUse(hosts=("target",), wall_ns=10**9, cores=2, busiest_core=busiest_core),),
        interfaces=(eth0,),
    )


def probe(**changes: Any) -> ProbeRecord:
    whole = {"run_id": "r1", "testbed": "lab", "link": "wired", "protection": (), "repeat": 1, "order": 0}
    return flat.probe_record(**whole | {"probe": Tcp(), "status": Status.OK} | changes)


def test_what_was_with_a_cell_is_the_median_of_its_repeats(tmp_path: Path) -> None:
    measured = enumerate([(100, 0.5, 1), (300, 0.9, 0), (200, None, 2)], 1)
    found = [record(repeat=n, telemetry=telemetry_of(*figures)) for n, figures in measured]
    write(tmp_path, [*found, record(link="local")])
    headings, (line,) = paths.telemetry(load([tmp_path]))
    assert line[0] == "wired" and len(line) == len(headings)
    assert line[2:] == ("3", "n/a", "200 µs", "n/a", "5 %", "70%", "n/a", "3", "0")
    asked = ("table", ".", "--view", "counters", "--format")
    data, text = (harness(*asked, format, cwd=tmp_path).stdout for format in ("json", "text"))
    (row,) = json.loads(data)["rows"]
    assert (row["column"], row["values"]["round_trip_p50_ns"], row["values"]["drops"]) == ("wired", 2e5, 3)
    assert all(each.title.partition("|")[0] in text for each in OBSERVED)


def test_hosts_and_hops_are_distinguished_and_a_lost_one_is_not_zero(tmp_path: Path) -> None:
    def whole(part: float, *hops: str, lost_hops: dict[str, str]) -> Telemetry:
        end = telemetry_of(100, part, 1)
        uses = [msgspec.structs.replace(end.processors[0], hosts=(hop,), busiest_core=0.99) for hop in hops]
        ports = [msgspec.structs.replace(end.interfaces[0], host=hop, drops=7) for hop in hops]
        known = {"processors": (*end.processors, *uses), "interfaces": (*end.interfaces, *ports)}
        return msgspec.structs.replace(end, **known, lost_hops=lost_hops)

    lost = {"hop2": "the hop2 (ssh://<gw>) was lost: it did not answer in time"}
    parts = enumerate((0.5, 0.7), 1)
    found = [record(repeat=n, telemetry=whole(part, "hop", lost_hops=lost)) for n, part in parts]
    write(tmp_path, found)
    results = load([tmp_path])
    _, (line,) = paths.telemetry(results)
    assert line[7:9] == ("target 60%, hop 99%, hop2 n/a", "target n/a, hop n/a, hop2 n/a")
    assert line[9:] == ("16 (target eth0 2, hop eth0 14)", "0")
    assert lost_hops(results.records) == list(lost.values())
    assert "<p>n/a: the hop2 (ssh://&lt;gw&gt;) was lost: it did not answer in time.</p>" in render(results)


def test_a_probe_is_reported_with_all_its_figures(tmp_path: Path) -> None:
    unsent = dict.fromkeys(("sent_bytes", "sent_bit_s"))
    tcp = TcpFigures(**unsent, received_bytes=10**9, received_bit_s=9.41e8, retransmits=3)
    unknown = dict.fromkeys(("mean_ns", "min_ns", "max_ns", "p99_ns", "p99_9_ns"))
    bins = Histogram({1000: 5})
    latency = UdpLatencyFigures(round_trips=1000, lost=0, p50_ns=31_000.0, histogram=bins, **unknown)
    made = [probe(figures=tcp, is_from_run=True), probe(status=Status.FAILED, reason="no answer")]
    of_kinds = ((Ping(), PingFigures(round_trips=TRIPS)), (UdpLatency(), latency))
    made[1:1] = [probe(probe=kind, figures=figures) for kind, figures in of_kinds]
    lines = paths.probes(made)
    reported = [line[4] for line in lines]
    assert lines[0][:4] == ("wired", "tcp (between cells)", "1", "ok")
    assert "received: 941 Mbit/s" in reported[0] and "retransmits: 3" in reported[0]
    assert "sent: n/a" in reported[0] or "sent bit s: n/a" in reported[0]
    assert "p50: 100 µs" in reported[1]
    assert "p50: 31 µs" in reported[2] and "1000: 5" not in reported[2]
    assert lines[3][3:] == ("failed", "n/a", "no answer")
    folder = write(tmp_path, [record()])
    assert "no probes were made" in render(load([tmp_path]))
    RunFolder(folder).save_probe(probe(status=Status.FAILED, reason="<b>no answer"))
    page = render(load([tmp_path]))
    assert "no probes were made" not in page and "&lt;b&gt;no answer" in page
