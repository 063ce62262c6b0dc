"""The matrix: its numbers, its order, what it says where there is no number, and its six formats."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from harness import model
from harness.analysis.shape import BIMODAL, DRIFTING
from harness.model import Column, Io, LabKernel, Latency, Plan, Proof, Record, Status, TestbedKind
from harness.model.errors import UsageError
from harness.model.reread import Reread, Sign, Suspicion
from harness.parse.references import load_reference
from harness.results.columns import BASIC_WORKLOADS
from harness.table import Metric, Options, RatioTo, TableFormat, build, notes, render
from harness.table.options import Table, TableCell
from tests import flat
from tests.unit.results_folder import made_plan

COLUMNS = [("local", "off"), ("wired", "off"), ("wifi", "off")]
COLUMNS += [("wired", "aes128gcm16"), ("wifi", "aes128gcm16")]
TITLES = {"local": "", "wired": "Gigabit Ethernet", "wifi": "802.11n"}
HOSTILE = '=cmd|"/c calc"!A1<script>alert(1)</script>\x1b[2J\n& $x_1% | `rm` \u202e[a](http://b)\\'


def transfer(mb_s: float, **latency: Any) -> Io:
    """One second of 4 KiB I/Os at the given rate."""
    moved = round(mb_s * 1e6)
    return Io(bytes=moved, ios=moved // 4096, runtime_ns=10**9, latency=Latency(**latency))


def record(mb_s: float = 10.0, **changes: Any) -> Record:
    whole: dict[str, Any] = {"run_id": "r1", "testbed": TestbedKind.LAB, "workload": "seq-write-4k"}
    whole |= {"link": "wired", "protection": (), "transport": "iscsi"}
    whole |= {"repeat": 1, "order": 0, "status": Status.OK, **changes}
    if whole["link"] == "local":
        whole["transport"] = None
    if not {"read", "write"} & set(changes):
        whole["read" if "read" in whole["workload"] else "write"] = transfer(mb_s)
    return flat.record(**whole)


def repeats(*values: float, **changes: Any) -> list[Record]:
    return [record(value, **changes, repeat=number) for number, value in enumerate(values, 1)]


def matrix() -> list[Record]:
    """All forty cells, three repeats each; the value tells row and column: 10 x row + column."""
    found = []
    for row, workload in enumerate(reversed(BASIC_WORKLOADS)):
        for column, (link, ipsec) in reversed(list(enumerate(COLUMNS))):
            values = ((8 - row) * 10 + column + off for off in (0.0, -0.5, 0.25))
            place = {"workload": workload, "link": link, "protection": () if ipsec == "off" else (ipsec,)}
            found += repeats(*values, **place, link_title=TITLES[link], emulated=link == "wifi")
    return found


def only(table: Table) -> TableCell:
    """The one cell of a table."""
    ((cell,),) = table.cells
    assert cell is not None
    return cell


def cells_of(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(render(table, TableFormat.JSON))["cells"]
    return found


def headings(table: Table, line: int = 0) -> list[str]:
    """One line of all columns' headings."""
    return [column.heading[line] for column in table.columns]


def note_of(found: Iterable[str], begins: str) -> str:
    """The one note that begins so; nothing if there is none."""
    (note,) = [note for note in found if note.startswith(begins)] or [""]
    return note


def each(table: Table, name: str) -> list[Any]:
    return [cell[name] for cell in cells_of(table)]


GOLDEN = """\
MB/s (10^6 bytes per second), median of 3 samples

                       local        wired  wired+aes128gcm16         wifi  wifi+aes128gcm16
                                  Gigabit            Gigabit      802.11n           802.11n
                                 Ethernet           Ethernet
                                                                 emulated          emulated
                                IPsec off              IPsec    IPsec off             IPsec
                                                 aes128gcm16                    aes128gcm16
---------------  -----------  -----------  -----------------  -----------  ----------------
seq-write-4k     10.00 ±5.0%  11.00 ±4.5%        13.00 ±3.8%  12.00 ±4.2%       14.00 ±3.6%
seq-write-256k   20.00 ±2.5%  21.00 ±2.4%        23.00 ±2.2%  22.00 ±2.3%       24.00 ±2.1%
seq-read-4k      30.00 ±1.7%  31.00 ±1.6%        33.00 ±1.5%  32.00 ±1.6%       34.00 ±1.5%
seq-read-256k    40.00 ±1.2%  41.00 ±1.2%        43.00 ±1.2%  42.00 ±1.2%       44.00 ±1.1%
rand-write-4k    50.00 ±1.0%  51.00 ±1.0%        53.00 ±0.9%  52.00 ±1.0%       54.00 ±0.9%
rand-write-256k  60.00 ±0.8%  61.00 ±0.8%        63.00 ±0.8%  62.00 ±0.8%       64.00 ±0.8%
rand-read-4k     70.00 ±0.7%  71.00 ±0.7%        73.00 ±0.7%  72.00 ±0.7%       74.00 ±0.7%
rand-read-256k   80.00 ±0.6%  81.00 ±0.6%        83.00 ±0.6%  82.00 ±0.6%       84.00 ±0.6%

±: distance from the median to the farthest sample.
Testbed lab: run r1.
Warning: 40 cells have fewer than 6 usable repeats, too few for a 95 % interval: try --confidence 5%."""


def test_the_matrix_is_the_articles_fits_into_a_terminal_and_has_one_name_of_each_in_every_format() -> None:
    text = render(build(matrix()))
    assert text == GOLDEN
    assert render(build(matrix()), width=110) == text
    for format in TableFormat:
        text = render(build(matrix()), format)
        assert "seq-write-4k" in text and ("aes128gcm16" in text if format is TableFormat.JSON else True)
        assert format in (TableFormat.JSON, TableFormat.LATEX) or "wired+aes128gcm16" in text
        assert "Uncached" not in text or format is TableFormat.CSV, "CSV keeps the old names for a release"


def test_what_was_proved_at_one_end_is_said_with_what_that_shows_and_nothing_of_the_other() -> None:
    proof = Proof(link_bytes_initiator=1, link_bytes_target=0, at_one_end=True)
    bare = record(proof=proof)
    agreed = {"tunnel": {"tunnel": "Tailscale (WireGuard in user space)"}}
    within = record(protection=("tunnel",), proof=proof, agreed=agreed)
    found = list(notes.one_end([bare, bare, within]))
    proved = "Proved at one end (wired)"
    assert [line.partition(":")[0] for line in found] == [proved, f"{proved[:-1]}+tunnel)", "wired+tunnel"]
    assert "shows the portal's segments" in found[0] and "none in clear" in found[1]
    assert "Tailscale (WireGuard in user space)" in found[2] and "capture shows only" in found[2]
    table = build([bare, record(repeat=2, proof=proof)])
    (cell,) = cells_of(table)
    assert (cell["proof"]["at_one_end"], cell["proof"]["link_bytes_target"]) == (2, None)
    assert proved in render(table)


def test_a_ramdisk_and_reads_that_may_come_from_memory_are_no_disk_and_what_links_carry_is_said() -> None:
    """Of the same records, by what the plan says is behind them."""
    found = [record(100.0, link="local", link_title="local disk"), record(50.0)]
    of_memory, of_disk = (
        build(found, plans={"r1": plan(backing=model.Backing(kind=kind, size_bytes=1 << 27, path=path))})
        for kind, path in ((model.BackingKind.RAMDISK, None), (model.BackingKind.BLOCK, "/dev/sdz"))
    )
    assert [table.columns[0].headed[2] for table in (of_memory, of_disk)] == ["local memory", "local disk"]
    assert "memory: the storage is a ramdisk, so no figure is a disk's." in of_memory.notes
    assert not note_of(of_disk.notes, "memory")
    assert all(column.is_memory for column in of_memory.columns)
    rereads = (Reread(verdict=verdict, zeros=0.5, signs=(Sign.ZEROS,)) for verdict in Suspicion)
    suspected, fine, unclear = rereads
    for reread, words in ((suspected, "50% of the blocks are zeros"), (unclear, "it is not clear whether")):
        table = build([record(workload="seq-read-4k", repeat=n, reread=reread) for n in (1, 2)])
        assert words in note_of(table.notes, "Reads may not have come from the disk: ")
    assert not any("a disk's" in note for note in build([record(reread=fine)]).notes)
    wired = model.LinkProfile(name="wired", title="x", emulated=True, rate_bit_s=10**9, delay_us=50)
    plans = {"r1": plan(links={"wired": msgspec.structs.replace(wired, frame_overhead_bytes=24)})}
    carried = "Goodput of each link (calculated maximum): wired 117.7 MB/s."
    assert carried in build([record(50.0)], plans=plans).notes
    assert not note_of(build([record(50.0)], Options(metric=Metric.P99), plans=plans).notes, "Most payload")


CELLS_THAT_DO_NOT_COUNT = """\
MB/s (10^6 bytes per second), median of 1 to 2 samples

               local        wired      wired+x           wifi
                        IPsec off      IPsec x      IPsec off
------------  ------  -----------  -----------  -------------
seq-write-4k  100.00  INVALID [1]  SKIPPED [2]  4.50 ±11% [3]
seq-read-4k     7.00            —            —              —

[1] invalid: 3 cleartext segments were seen
[2] skipped: no reason given
[3] 1 of 3 repeats failed: the target vanished
±: distance from the median to the farthest sample.
Testbed lab: run r1.
Warning: local seq-write-4k, wifi seq-write-4k, local seq-read-4k have fewer than 6 usable repeats, \
too few for a 95 % interval: try --confidence 5%."""


def test_cells_that_do_not_count_show_why_and_their_gravest_status() -> None:
    found = [
        record(100.0, link="local"),
        record(9.0, status=Status.INVALID, reason="3 cleartext segments were seen", link="wired"),
        record(status=Status.FAILED, reason="the target vanished", link="wifi", repeat=1),
        *(record(value, link="wifi", repeat=number) for number, value in ((2, 4.0), (3, 5.0))),
        record(status=Status.SKIPPED, link="wired", protection=("x",)),
        record(7.0, link="local", workload="seq-read-4k"),
    ]
    assert render(build(found)) == CELLS_THAT_DO_NOT_COUNT
    names = ("status", "value", "n", "repeats")
    states = [tuple(cell[name] for name in names) for cell in cells_of(build(found))]
    invalid, skipped = ("invalid", None, 0, 1), ("skipped", None, 0, 1)
    assert states == [("ok", 100, 1, 1), invalid, skipped, ("ok", 4.5, 2, 3), ("ok", 7, 1, 1)]
    same: dict[str, Any] = {"status": Status.INVALID, "reason": "kernel warning"}
    table = build([record(**same), record(**same, link="wifi"), *repeats(1, 2, **same, protection=("x",))])
    assert table.footnotes == ("invalid: kernel warning",), "equal reasons share a footnote"
    worst = build([record(status=Status.SKIPPED), record(status=Status.FAILED, repeat=2, reason="gone")])
    assert only(worst).status is Status.FAILED
    assert worst.footnotes == ("1 of 2 repeats skipped: no reason given; 1 of 2 repeats failed: gone",)


def test_a_table_too_wide_has_names_in_two_lines_or_goes_on_below() -> None:
    wide, narrow, narrower = (render(build(matrix()), width=width) for width in (110, 80, 60))
    assert "wired+aes128gcm16" in wide and "wired+aes128gcm16" not in narrow and "  +aes128gcm16" in narrow
    values = ["10.00", "11.00", "13.00", "12.00", "14.00"]
    for text, width, parts in ((narrow, 80, [values]), (narrower, 60, [values[:3], values[3:]])):
        lines = text.split("\n")
        assert max(map(len, lines)) <= width
        assert [re.findall(r"\d+\.\d\d", line) for line in lines if "seq-write-4k" in line] == parts
    assert render(build(matrix()), width=1).count("rand-read-256k") == 5


def test_rows_and_columns_have_an_order_and_two_of_one_title_can_be_distinguished() -> None:
    found = [record(workload=name) for name in ("b", "rand-read-4k", "a")]
    assert [row.workload for row in build(found).rows] == ["rand-read-4k", "b", "a"]
    assert [row.group for row in build(found).rows] == ["Random", "Other", "Other"]
    planned = build(found, plans={"r1": plan(workloads=("a", "b", "unmeasured"))})
    assert [row.workload for row in planned.rows] == ["rand-read-4k", "a", "b"]
    assert {row.group for row in build([record(workload="a")]).rows} == {""}
    asked = "wifi+b lan wired+b wifi+a wifi:fast local wired wired+a wifi"
    named = [name.partition("+") for name in asked.split()]
    table = build([record(link=link, protection=(of,) if of else ()) for link, _, of in named])
    shown = "local wired wired+b wired+a wifi wifi+b wifi+a wifi:fast lan"
    assert [column.label for column in table.columns] == shown.split()
    links = ("wired", "wired:unshaped")
    table = build([record(link=link, link_title="Gigabit Ethernet") for link in links])
    assert headings(table, 1) == [f"Gigabit Ethernet ({link})" for link in links]
    table = build([record(protection=("a",), ipsec_mode=mode) for mode in ("tunnel", "transport")])
    assert headings(table, 3) == ["IPsec a", "IPsec a tunnel"]
    assert [column["mode"] for column in each(table, "column")] == ["transport", "tunnel"]


def test_each_metric_has_its_unit_and_what_fio_did_not_report_is_never_zero() -> None:
    moved = transfer(1.048576, mean_ns=3900500, p50_ns=3.8e6, p99_ns=5000250, p99_9_ns=9e6)
    for metric, unit, value, shown in (
        ("MB/s", "MB/s", 1.048576, "1.05"),
        ("MiB/s", "MiB/s", 1.0, "1.00"),
        ("IOPS", "IOPS", 256.0, "256"),
        ("mean", "µs", 3900.5, "3900.5"),
        ("p50", "µs", 3800.0, "3800.0"),
        ("p99", "µs", 5000.25, "5000.2"),
        ("p99.9", "µs", 9000.0, "9000.0"),
    ):
        table = build([record(write=moved)], Options(metric=Metric(metric)))
        assert only(table).value == pytest.approx(value), metric
        assert f" {shown}\n" in render(table) and each(table, "unit") == [unit], metric
    table = build(repeats(1.0, 2.0), Options(metric=Metric.P99))
    assert (only(table).status, only(table).value) == (Status.OK, None) and "n/a [1]" in render(table)
    assert table.footnotes == ("fio reported no p99 in 2 of 2 repeats",)
    stopped = Io(bytes=4096, ios=1, runtime_ns=0, latency=Latency())
    assert only(build([record(write=stopped)])).value is None


def test_choices_are_found_in_any_case_and_others_refused_with_the_nearest() -> None:
    assert (Metric("mib/s"), Metric("iops")) == (Metric.MIB_S, Metric.IOPS)
    assert TableFormat("Markdown") is TableFormat.MARKDOWN
    for choice, word, hint in (
        (Metric, "KB/s", f"did you mean MB/s? there are {', '.join(sorted(Metric))}"),
        (TableFormat, "jsno", "did you mean json? there are csv, "),
        (TableFormat, "xyz", "there are csv, "),
    ):
        with pytest.raises(UsageError, match=f"there is no .*'{word}'") as refused:
            choice(word)
        assert (refused.value.hint or "").startswith(hint)


def test_the_median_and_its_bounds_are_of_all_samples_of_all_runs_and_keep_two_digits() -> None:
    five = only(build(repeats(5.0, 1.0, 4.0, 2.0, 3.0)))
    assert (five.n, five.value, five.low, five.high) == (5, 3.0, 1.0, 5.0)
    one = build([record(5.0)])
    assert (only(one).n, only(one).value, only(one).low, only(one).high) == (1, 5.0, None, None)
    (cell,) = json.loads(render(one, TableFormat.JSON))["cells"]
    assert (cell["value"], cell["low"], cell["high"]) == (5.0, None, None)
    nine = build(repeats(*map(float, range(1, 10))))
    assert (only(nine).low, only(nine).high) == (2.0, 8.0)
    assert nine.marks[0] == "±: distance from the median to the far end of its 95 % interval."
    assert "0.0041" in render(build([record(0.0041)]))
    table = build([*repeats(1.0, 2.0), *repeats(3.0, 4.0, run_id="r2")])
    assert (only(table).n, only(table).value, only(table).runs) == (4, 2.5, ("r1", "r2"))
    assert table.title == "MB/s (10^6 bytes per second), median of 4 samples, 2 runs pooled"
    assert "Testbed lab: 2 runs (r1, r2)." in table.notes


def test_mixed_workloads_show_their_sum_or_the_latency_of_each_direction() -> None:
    mixed = record(workload="oltp", read=transfer(7.0, p99_ns=1e6), write=transfer(3.0, p99_ns=2e6))
    table = build([mixed])
    assert only(table).value == 10.0 and "oltp (read+write)" in render(table)
    assert "(read+write): the sum of both directions of a mixed workload." in table.marks
    latencies = build([mixed], Options(metric=Metric.P99))
    assert (each(latencies, "direction"), each(latencies, "value")) == (["read", "write"], [1000, 2000])
    # An fsync has a latency of its own.
    log = record(workload="log", write=transfer(1.0, mean_ns=1000), sync_latency=Latency(mean_ns=9000))
    table = build([log], Options(metric=Metric.MEAN))
    assert (each(table, "direction"), each(table, "value")) == (["write", "fsync"], [1, 9])
    assert [row.operation for row in build([log]).rows] == ["log"]


def test_ratios_are_to_local_and_to_the_same_link_without_ipsec() -> None:
    found = [record(100.0, link="local"), record(50.0), record(10.0, protection=("aes128gcm16",))]
    found.append(record(3.0, link="wifi", protection=("aes128gcm16",)))
    table = build(found, Options(ratio=RatioTo.LOCAL))
    assert each(table, "ratio_to_local") == [None, 0.5, 0.1, 0.03]
    assert each(table, "ratio_to_unprotected") == [None, None, 0.2, None]
    row = "seq-write-4k   100.00  50.00 ×0.500  10.00 ×0.100  3.00 ×0.030"  # noqa: RUF001
    assert " ".join(row.split()) in " ".join(render(table).split())
    assert "10.00 ×0.200" in render(build(found, Options(ratio=RatioTo.UNPROTECTED)))  # noqa: RUF001
    # They are taken within rounds.
    found = [*repeats(10.0, 20.0, 40.0, protection=("x",)), *repeats(20.0, 40.0, 80.0)]
    table = build([*found, record(30.0, repeat=4)])
    assert cells_of(table)[1]["ratio_to_unprotected"] == 0.5
    elsewhere = cells_of(build([*repeats(10.0, protection=("x",)), *repeats(40.0, run_id="r2")]))[1]
    assert (elsewhere["ratio_to_unprotected"], elsewhere["difference_from_unprotected"]) == (0.25, None)
    # Each is related to the column of the same transport.
    found = []
    for transport, plain, protected in (("iscsi", 100.0, 50.0), ("nvme-tcp", 40.0, 10.0)):
        found += repeats(*[plain] * 3, transport=transport)
        found += repeats(*[protected] * 3, transport=transport, protection=("macsec",))
    pairs = [(cell["column"]["transport"], cell["ratio_to_unprotected"]) for cell in cells_of(build(found))]
    ratios = {transport: ratio for transport, ratio in pairs if ratio is not None}
    assert ratios == pytest.approx({"iscsi": 0.5, "nvme-tcp": 0.25})
    # A baseline is of the same testbed, and counts.
    other: tuple[dict[str, Any], ...] = ({"testbed": "host"}, {"status": Status.INVALID, "reason": "x"})
    for change in other:
        table = build([record(100.0, link="local", **change), record(50.0)])
        assert each(table, "ratio_to_local") == [None, None]


def test_what_does_not_differ_is_marked() -> None:
    values: dict[str, tuple[float, ...]] = {"same": (10.1, 10.9, 10.5), "slower": (5.0, 5.6, 5.1)}
    values |= {"unclear": (8.0, 14.0, 10.0), "once": (9.0,)}
    protected = [r for name, of in values.items() for r in repeats(*of, protection=(name,))]
    table = build([*repeats(10.0, 11.0, 10.5), *protected])
    differs = {"": None, "same": "equivalent", "slower": "different", "unclear": "inconclusive"}
    names = ("+".join(column["protection"]) for column in each(table, "column"))
    found = dict(zip(names, each(table, "difference_from_unprotected"), strict=True))
    assert found == {**differs, "once": None}
    held_to = "the same link unprotected (95 % interval of the ratios within rounds)"
    assert f"≈: equivalent (within 5%) to {held_to}." in table.marks
    assert f"?: difference neither shown nor ruled out, compared with {held_to}." in table.marks
    assert render(table).count("≈") == render(table).count("?") == 2
    for format in (TableFormat.MARKDOWN, TableFormat.HTML, TableFormat.LATEX):
        assert render(table, format).count({"html": "&#8776;", "latex": r"$\approx$"}.get(format, "≈")) == 2
    assert not any("≈" in mark for mark in build(repeats(1.0, 2.0)).marks)


def test_few_repeats_those_for_which_no_median_stands_and_a_governor_that_saves_power_are_warned_about() -> (
    None
):
    few: dict[str, dict[str, Any]] = {"real": {}, "virtual": {"clock": "virtual"}, "fio": {"source": "fio"}}
    said = {name: " ".join(build(repeats(1.0, 2.0, 3.0, **more)).notes) for name, more in few.items()}
    assert [name for name, words in said.items() if "usable repeats, too few" in words] == ["real"]
    assert not any("too few" in note for note in build(repeats(*[1.0] * 6)).notes)
    rising = [100.0 + 3 * step + step % 2 for step in range(12)]
    notes = build([*repeats(*rising), *repeats(*([10.0, 20.0] * 6), link="wifi")]).notes
    assert f"Warning (wired seq-write-4k): {DRIFTING}" in notes
    assert f"Warning (wifi seq-write-4k): {BIMODAL}" in notes
    machine = {"hosts": {"target": {"governor": "powersave"}, "initiator": {"governor": "performance"}}}
    notes = build([record()], environments={"r1": machine}).notes
    assert "Warning: the frequency governor is powersave; 'performance' varies less." in notes


def test_testbeds_clocks_sources_kernels_and_disks_never_share_a_column() -> None:
    found = [record(1.0), record(2.0, testbed=TestbedKind.HOST), record(3.0, clock="virtual")]
    table = build([*found, record(4.0, testbed=TestbedKind.HOST, source="fio")])
    assert headings(table) == ["fio output", "host", "lab", "lab, virtual time"]
    assert each(table, "value") == [4, 2, 1, 3]
    assert "Different testbeds have separate columns: do not compare their figures." in table.notes
    assert [column.label for column in table.columns][2:] == ["lab wired", "lab, virtual time wired"]
    others = ("6.12.117-harness 0123456789ab", "6.12.117-harness ba9876543210")
    found = [
        record(1.0, lab_kernel=LabKernel.DEBIAN),
        record(2.0, **OWN),
        record(3.0, **OWN, disk="hdd-7200"),
        record(4.0, **IN_VIRTUAL_TIME, disk="hdd-7200"),
        *(record(5.0 + n, **OWN, other_kernel=name) for n, name in enumerate(others)),
    ]
    table = build(found)
    own = [
        "lab, custom kernel",
        "lab, custom kernel, hdd-7200",
        *(f"lab, custom kernel {name}" for name in others),
    ]
    assert headings(table) == ["lab", *own, "lab, virtual time, hdd-7200"]
    assert each(table, "value") == [1, 2, 3, 5, 6, 4]
    disks = [setting["disk"] for setting in each(table, "setting")]
    assert disks == ["", "", "hdd-7200", "", "", "hdd-7200"]


OWN: dict[str, Any] = {"lab_kernel": LabKernel.CUSTOM}
IN_VIRTUAL_TIME: dict[str, Any] = {**OWN, "clock": "virtual"}


def test_portable_ciphers_have_columns_and_ratios_of_their_own() -> None:
    found = []
    for ciphers, plain, protected in (("accelerated", 100.0, 80.0), ("generic", 90.0, 9.0)):
        kind: dict[str, Any] = {**OWN, "ciphers": model.Ciphers(ciphers)}
        found += [record(plain, **kind), record(protected, **kind, protection=("a",))]
    table = build(found)
    assert headings(table) == [*2 * ["lab, custom kernel"], *2 * ["lab, custom kernel, generic ciphers"]]
    kinds = [setting["ciphers"] for setting in each(table, "setting")]
    assert kinds == [None, None, "generic", "generic"]
    assert each(table, "ratio_to_unprotected")[1::2] == [0.8, 0.1]
    assert note_of(table.notes, "Generic ciphers: ")
    assert not note_of(table.notes, "Different testbeds"), "they are to be compared"
    assert build([record(1.0, **OWN)]).columns[0].setting == table.columns[0].setting, "of older versions"
    # They are offered where they can be built.
    found = [record(1.0, lab_kernel=LabKernel.DEBIAN, ciphers=model.Ciphers.GENERIC)]
    for release, can_be_built in (("6.1.55", True), ("6.12.43", True), ("7.2.7", False)):
        notes = build(found, environments={"r1": kernel(f"{release} (a@b) #1")}).notes
        assert any("harness kernel ciphers" in note for note in notes) is can_be_built, release
        assert note_of(notes, "Generic ciphers: ")


def test_virtual_time_is_named_where_it_is_alone_and_what_is_predicted_says_from_what() -> None:
    table = build([record(1.0, **IN_VIRTUAL_TIME, disk="nvme")])
    assert headings(table) == ["lab, virtual time, nvme"]
    assert note_of(table.notes, "Virtual time: processor work takes no time")
    lists = ["lab-custom 012345", "lab-custom 6789ab"]
    predicted = [record(2.0, **IN_VIRTUAL_TIME, predicted_from=name) for name in lists]
    table = build([record(1.0, **IN_VIRTUAL_TIME), *predicted])
    assert headings(table) == ["lab, virtual time", *(f"lab, predicted from {name}" for name in lists)]
    assert [setting["predicted_from"] for setting in each(table, "setting")] == ["", *lists]
    assert ", ".join(lists) in note_of(table.notes, "Predicted, not measured: ")
    assert not note_of(build(predicted).notes, "Virtual time: ")


def plan(run_id: str = "r1", workloads: tuple[str, ...] = ("seq-write-4k",), **changes: Any) -> Plan:
    jobs = tuple(model.Job(name=name, options=(("bs", "4k"),)) for name in workloads)
    wired = model.LinkProfile(name="wired", title="Gigabit Ethernet", emulated=False)
    whole = {"columns": (Column("wired"),), "jobs": jobs, "links": {"wired": wired}, "proposals": {}}
    return made_plan(run_id, **{**whole, "repeats": 2, **changes})


def kernel(version: str) -> dict[str, Any]:
    return {"hosts": {"target": {"kernel": f"Linux version {version}"}}}


def test_the_notes_say_which_runs_profile_and_kernel_and_what_is_unfinished() -> None:
    plans = {"r1": plan(), "unrelated": plan("unrelated")}
    table = build(repeats(1.0, 2.0), plans=plans, environments={"r1": kernel("6.1.55 (a@b) #1 SMP")})
    assert table.notes[1:3] == ("Testbed lab: run r1; profile basic.", "Kernel: 6.1.55.")
    table = build([record()], plans={"r1": plan()})
    assert note_of(table.notes, "Run r1 is unfinished: 1 of 2 measurements")
    with pytest.raises(UsageError, match="no records"):
        build([])


def test_what_pooled_runs_do_not_share_is_named_and_two_hosts_of_one_run_may_be_unlike() -> None:
    near = {"cpu": "UML", "clocksource": "timer", "kernel": "Linux version 6.1.55"}
    hosts = {"initiator": near, "target": {"cpu": "x", "kernel": "Linux version 6.12.1"}}
    environment = {"machine": {"cpu": "AMD EPYC", "clocksource": "tsc"}, "hosts": hosts}
    moved = {**environment, "machine": {"cpu": "other"}}
    found, plans = [record(), record(run_id="r2")], {"r1": plan(), "r2": plan("r2")}
    for second, said in ((environment, ""), (moved, "The runs differ in: processor.")):
        table = build(found, plans=plans, environments={"r1": environment, "r2": second})
        assert note_of(table.notes, "The runs differ") == said
    file = model.Backing(kind=model.BackingKind.FILE, size_bytes=1 << 27)
    wired = model.LinkProfile(name="wired", title="x", emulated=False, rate_bit_s=10**8)
    jobs = (model.Job(name="seq-write-4k", options=(("bs", "8k"),)),)
    other = plan("r2", backing=file, jobs=jobs, links={"wired": wired})
    environments = {run: kernel(f"6.{run}") for run in ("r1", "r2")}
    table = build(found, plans={**plans, "r2": other}, environments=environments)
    assert "The runs differ in: workload seq-write-4k, link wired, backing storage, kernel." in table.notes


def test_warnings_are_listed_with_what_they_concern() -> None:
    found = [record(link=f"l{i}", warnings=("hot",)) for i in range(4)] + [record(warnings=("odd",))]
    assert {"Warning (4 cells): hot", "Warning (wired seq-write-4k): odd"} <= {*build(found).notes}
    of_one = build([record(workload=f"w{i}", warnings=("hot",)) for i in range(4)]).notes
    assert "Warning (4 cells of wired): hot" in of_one
    many = build([record(warnings=tuple(f"w{i}" for i in range(30)))])
    assert sum(note.startswith("Warning (wired seq-write-4k): w") for note in many.notes) == 10
    assert "20 more warnings: see --format json." in many.notes


def test_the_proof_of_a_cell_adds_up_the_repeats_that_count() -> None:
    def proof(**changes: int) -> Proof:
        return msgspec.structs.replace(Proof(link_bytes_initiator=10, link_bytes_target=20), **changes)

    found = [
        record(repeat=1, proof=proof(protected_bytes=5, tcp_retransmits=1)),
        record(repeat=2, proof=proof(protected_bytes=6, tcp_retransmits=2)),
        record(repeat=3, proof=proof(cleartext_segments=9), status=Status.INVALID, reason="cleartext"),
    ]
    (cell,) = cells_of(build(found))
    added_up = {"protected_bytes": 11, "link_bytes_target": 40, "cleartext_segments": 0, "tcp_retransmits": 3}
    assert added_up.items() <= cell["proof"].items()
    counters = {field.name for field in msgspec.structs.fields(Proof)} - {"air", "at_one_end"}
    assert set(cell["proof"]) == counters, "what went through the air is in the records"
    (condemned,) = cells_of(build(found[2:]))
    assert {"cleartext_segments": 9, "tcp_retransmits": None}.items() <= condemned["proof"].items()
    assert cells_of(build([record()]))[0]["proof"] is None


REFERENCE = load_reference("iscsi-ipsec")


def test_the_published_matrix_is_the_articles() -> None:
    assert list(REFERENCE.rows) == list(BASIC_WORKLOADS)
    columns = [(column.link, column.ipsec) for column in REFERENCE.columns]
    assert columns == [(link, "off" if ipsec == "off" else "on") for link, ipsec in COLUMNS]
    assert REFERENCE.rows["seq-write-4k"] == (58.19, 60.51, 5.34, 13.15, 5.48)
    assert REFERENCE.rows["rand-read-256k"] == (26.68, 23.66, 3.21, 11.17, 4.63)
    # The sums of the columns, added up from the article, catch a slip in any of the forty values.
    sums = [round(sum(row[column] for row in REFERENCE.rows.values()), 2) for column in range(5)]
    assert sums == [252.24, 196.21, 28.69, 72.61, 29.73]


def test_the_reference_stands_in_columns_of_its_own_converts_to_mib_and_has_nothing_else() -> None:
    found = [record(100.0, workload="seq-read-256k"), record(workload="mine")]
    table = build(found, Options(reference=REFERENCE))
    names = [f"iscsi-ipsec {name}" for name in ("local", "wired", "wifi", "wired+on", "wifi+on")]
    assert [column.label for column in table.columns] == ["wired", *names]
    assert table.columns[4].heading == ("the iSCSI article:", "GigE", "", "IPsec")
    text = render(table)
    assert re.search(r"seq-read-256k +100\.00 +75\.55 +28\.86 +3\.39 +15\.86 +4\.90\n", text)
    assert re.search(r"mine +10\.00( +—){5}\n", text)
    article = json.loads(render(table, TableFormat.JSON))
    assert (len(article["cells"]), article["reference"]["name"]) == (2, "iscsi-ipsec")
    fourth = {"workload": "seq-read-256k", "name": "wired+on", "value": 15.86, "unit": "MB/s"}
    assert article["reference"]["cells"][3] == fourth
    table = build([record()], Options(reference=REFERENCE, metric=Metric.MIB_S))
    published = table.cells[0][1]
    assert published is not None and published.value == pytest.approx(58.19e6 / 2**20)
    with pytest.raises(UsageError, match="the iSCSI article publishes MB/s and has no p99 latency"):
        build([record()], Options(reference=REFERENCE, metric=Metric.P99))
    with pytest.raises(UsageError, match="there is no reference") as refused:
        load_reference("../iscsi-ipsec")
    assert "iscsi-ipsec" in (refused.value.hint or "")


def hostile_table() -> Table:
    everywhere: dict[str, Any] = dict.fromkeys(("workload", "run_id", "link_title", "source"), HOSTILE)
    everywhere["warnings"] = (HOSTILE,)
    invalid = record(**everywhere, link=HOSTILE, status=Status.INVALID, reason=HOSTILE)
    return build([*repeats(5.0, 6.0, **everywhere, link="local"), invalid])


def test_no_name_can_drive_a_terminal() -> None:
    for format in TableFormat:
        text = render(hostile_table(), format)
        assert all(character.isprintable() or character == "\n" for character in text), format
        assert "x1b[2J" in text or "x1b{[}2J" in text or "u001b[2J" in text, format


def test_html_has_only_the_tags_of_a_table_and_says_what_plain_says() -> None:
    begins = re.compile(r"</?(\w*)")  # what each < begins
    text = render(hostile_table(), TableFormat.HTML)
    assert text.isascii() and set(begins.findall(text)) <= {
        "p",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "br",
    }
    assert "<script>alert(1)</script>" in html.unescape(text)
    page = render(build(matrix()), TableFormat.HTML)
    assert [begins.findall(page).count(tag) for tag in ("tr", "td")] == [2 * (1 + 8), 2 * 8 * (1 + 5)]
    assert "11.00 ±4.5%" in html.unescape(page)


def test_csv_has_plain_numbers_and_no_formulas() -> None:
    tables = build(matrix(), Options(ratio=RatioTo.LOCAL)), hostile_table()
    rows, hostile = (list(csv.reader(io.StringIO(render(table, TableFormat.CSV)))) for table in tables)
    names = ("[MB/s]", "low", "high", "n", "ratio to local", "disturbed")
    assert rows[0][:9] == ["group", "operation", "workload", *(f"local {name}" for name in names)]
    assert rows[1][:6] == ["Sequential", "Uncached Write [4K blocks]", "seq-write-4k", "10", "9.5", "10.25"]
    assert rows[1][6:7] + rows[1][9:15] == ["3", "11", "10.5", "11.25", "3", "1.1", ""]
    assert {len(row) for row in rows} == {3 + 5 * 6}
    assert len(hostile) == 2 and not any(
        field.startswith(("=", "+", "-", "@")) for row in hostile for field in row
    )


def test_github_keeps_its_columns_and_no_markup_of_others_and_latex_is_escaped() -> None:
    text = render(hostile_table(), TableFormat.MARKDOWN)
    lines = [line for line in text.split("\n") if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {4}
    assert "<script" not in text
    assert not re.search(r"(?<!\\)(`|\]\()", text)
    assert "| seq-write-4k    | 10.00 ±5.0% |" in render(build(matrix()), TableFormat.MARKDOWN)
    text = render(hostile_table(), TableFormat.LATEX)
    known = r"\\text[a-z]+\{\}|\\[&%$#_{}]|\\shortstack\[r\]|\\\\|\\hline|\\(begin|end)\{tabular\}|\$\\pm\$"
    assert not {*"\\$%#"} & {*re.sub(known, "", text)}
    heading = r"\shortstack[r]{wired+aes128gcm16\\Gigabit Ethernet\\IPsec aes128gcm16}"
    assert heading in render(build(matrix()), TableFormat.LATEX)


def test_json_has_every_character_of_a_name_what_protects_a_cell_and_what_carries_it() -> None:
    columns = [Column("local"), Column("wired"), Column("wired", ("aes128gcm16",))]
    table = build([record(), record(link="local"), record(protection=("aes128gcm16",), order=1)])
    assert [msgspec.convert(column, Column) for column in each(table, "column")] == columns
    text = render(hostile_table(), TableFormat.JSON)
    assert text.isascii() and list(found := json.loads(text)) == ["cells"]
    assert {cell["workload"] for cell in found["cells"]} == {HOSTILE}
