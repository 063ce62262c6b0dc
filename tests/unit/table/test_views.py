"""Views of probes: what stands where, what is n/a, and what is published next to it."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest

from harness.model import Status, probing
from harness.model.errors import UsageError
from harness.model.probing import KINDS, PacketRate, Ping, SocketUse, Tcp, UdpLatency
from harness.model.telemetry import ProcessorUse, RoundTrips
from harness.parse import references
from harness.probes import judged
from harness.results.probe_records import ProbeRecord
from harness.table import TableFormat
from harness.table.views import View, build, render
from tests import flat
from tests.unit.probes.test_probes import blank


def ok(probe: probing.Probe, figures: probing.Figures, **more: Any) -> ProbeRecord:
    return msgspec.structs.replace(blank(probe), status=Status.OK, figures=figures, **more)


def tcp(bit_s: float, *, is_from_run: bool = False, **changes: object) -> ProbeRecord:
    facts = {"sent_bytes": 1, "received_bytes": 1, "retransmits": 0}
    figures = probing.TcpFigures(sent_bit_s=bit_s, received_bit_s=bit_s, **facts)
    use = ProcessorUse(hosts=("initiator", "target"), wall_ns=1, cores=1, busy=0.5)
    return flat.changed(ok(Tcp(), figures, is_from_run=is_from_run, processors=(use,)), **changes)


def ping(mean_ns: float, probe: Ping | None = None) -> ProbeRecord:
    trips = RoundTrips(interval_ns=1, payload_bytes=56, sent=10, received=10, mean_ns=mean_ns, p50_ns=mean_ns)
    return ok(probe or Ping(), probing.PingFigures(round_trips=trips))


def latency(mean_ns: float, socket: SocketUse) -> ProbeRecord:
    rest: dict[str, Any] = {"lost": 0, **dict.fromkeys(("min_ns", "max_ns", "p99_ns", "p99_9_ns"), 1)}
    figures = probing.UdpLatencyFigures(round_trips=1, mean_ns=mean_ns, p50_ns=mean_ns, **rest)
    return ok(UdpLatency(socket=socket), figures)


def values(view: View, *records: ProbeRecord) -> list[dict[str, float | str | None]]:
    rows = json.loads(render(build(view, records), TableFormat.JSON))["rows"]
    return [row["values"] for row in rows]


def test_a_path_has_a_row_with_the_medians_of_its_repeats_unless_they_were_made_on_the_way() -> None:
    often = ping(5e5, Ping(interval_s=0.002))
    (row,) = values(View.LINK, tcp(900e6), tcp(100e6), tcp(300e6), ping(2e6), often)
    assert row["tcp_received_mbit_s"] == 300 and row["tcp_cpu_percent"] == 50
    assert (row["ping_mean_ms"], row["ping_io_p50_ms"], row["ping_lost_percent"]) == (2.0, 0.5, 0.0)
    assert "udp_received_mbit_s" not in row
    for probed, rate in (((), 1), ((tcp(9e6),), 9)):
        assert values(View.LINK, tcp(1e6, is_from_run=True), *probed)[0]["tcp_received_mbit_s"] == rate
    elsewhere = tcp(2e6, testbed="host"), tcp(2e6, protection=("aes128gcm16",))
    assert len(values(View.LINK, tcp(1e6), *elsewhere)) == 3


def test_a_probe_without_a_figure_shows_why() -> None:
    broken = msgspec.structs.replace(blank(Tcp()), status=Status.INVALID, reason="iperf3 printed garbage")
    grid = build(View.LINK, [broken])
    assert grid.rows[0].entries["tcp_received_mbit_s"].word == "INVALID"
    assert grid.footnotes == ("iperf3 printed garbage",)
    text = render(grid, TableFormat.TEXT)
    assert "INVALID [1]" in text and "[1] iperf3 printed garbage" in text and " 0.0" not in text


def test_packets_per_second_are_not_known_with_losses_and_both_kinds_of_socket_have_columns() -> None:
    counted: dict[str, Any] = {"at_once": 1, "replies_per_s": 8, "lost_percent": 11, "counted_per_s": 17}
    step = probing.FloodStep(sent=9, received=8, **counted)
    figures = probing.PacketRateFigures(steps=(step,), packets_per_s=None, is_saturated=True, **counted)
    (row,) = values(View.PPS, ok(PacketRate(), figures))
    assert (row["replies_per_s"], row["packets_per_s"], row["counted_per_s"]) == (8, None, 17)
    (row,) = values(View.UDP_LATENCY, latency(244e3, SocketUse.REOPENED), latency(216e3, SocketUse.KEPT))
    assert (row["reopened_mean_us"], row["kept_mean_us"]) == (244, 216)
    # Both kinds of socket stand next to each other.


@pytest.mark.parametrize(
    ("name", "figure", "values"),
    [
        ("pppoe", "udp_lost", [4602]),
        ("openflow", "tcp_received_mbit_s", [94.1, 80.5, 70.2]),
        ("packet-rate", "packets_per_s", [2 * 3052]),
        ("switches", "kept_mean_us", [216, 271, 291, 316, 339, 1267]),
    ],
)
def test_published_figures_stand_in_columns_of_their_view(
    name: str, figure: str, values: list[float]
) -> None:
    published = references.load_path_reference(name)
    grid = build(
        View(references.view_of(name) or "none"),
        [tcp(1e6)],
        published,
    )
    keys = {field.key for field in grid.fields}
    assert all(row.values and row.values.keys() <= keys for row in published.row)
    assert [row.values[figure] for row in published.row if figure in row.values][: len(values)] == values
    assert sum(row.is_published for row in grid.rows) == len(published.row)
    assert published.source in grid.notes[-1]


def test_every_kind_of_probe_is_measured_and_each_column_is_of_a_figure_that_it_has() -> None:
    assert set(judged.measures()) == set(KINDS)
    for probe in (probe for named in probing.NAMED.values() for probe in named):
        assert probe.figures_of(probe.VIEW) and probe.estimate_s > 0 and probe.name
    figures = {each.__struct_config__.tag: each for each in get_args(probing.Figures)}
    for kind in KINDS:
        found: type = figures[kind.__struct_config__.tag]
        for shown in kind.FIGURES:
            if shown.figure is not None and shown.figure != "replies_per_s":
                holder = RoundTrips if shown.figure.startswith("round_trips.") else found
                assert hasattr(holder, shown.figure.rpartition(".")[2]), shown


def test_people_see_no_column_of_what_was_not_probed_and_there_is_no_other_view() -> None:
    grid = build(View.LINK, [tcp(1e6)])
    assert "jitter" not in render(grid, TableFormat.TEXT)
    assert "udp_received_mbit_s" in render(grid, TableFormat.CSV)
    with pytest.raises(UsageError) as refused:
        View("bandwidth")
    assert refused.value.hint is not None and "udp-latency" in refused.value.hint


@pytest.mark.parametrize("format", list(TableFormat))
def test_names_cannot_break_a_format(format: TableFormat) -> None:
    bad = "<b>|\x1b[31m=1+1&\\"
    broken = flat.changed(blank(Tcp()), link=bad, status=Status.FAILED, reason=bad)
    text = render(build(View.LINK, [broken]), format)
    assert "\x1b" not in text
    assert format is not TableFormat.HTML or "<b>" not in text
    assert format is not TableFormat.JSON or json.loads(text)["rows"][0]["link"] == bad
