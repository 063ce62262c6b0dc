"""The answer in a few lines: its table, what follows from it, and what is told only where it applies."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis.limit import Limit
from harness.explain import explain
from harness.model import Plan, Record, Status, TestbedKind, renamed
from harness.model.reread import Reread, Sign, Suspicion
from harness.model.telemetry import ProcessorUse, Telemetry
from harness.model.units import format_rate
from harness.parse.profiles import load_link
from harness.report import load, summary
from harness.report.conclusion import answers
from harness.results import again, sections
from harness.results.measured import Measured
from harness.results.store import RunFolder
from harness.table import TableFormat, build, render
from tests import flat
from tests.unit.explain.test_explain import columns, plan_of_them
from tests.unit.explain.test_one_end import reads as of_a_portal
from tests.unit.explain.test_real_links import PLAN as REAL
from tests.unit.explain.test_real_links import STREAMS
from tests.unit.explain.test_real_links import reads as of_a_real_link
from tests.unit.report.test_conclusion import ON_DISK, UNSURE, in_repeats, reads
from tests.unit.results_folder import WIRED
from tests.unit.table.test_file_systems import plan as plan_of_nfs
from tests.unit.table.test_file_systems import reads as reads_over_nfs
from tests.unit.test_disturbed_results import spoilt

FIGURES = Path(__file__).parents[3] / "docs" / "figures"
WIDTH = 80
WITH_ANSWERS = [
    *("make-run", "ladder", "emulation", "generic"),
    *("iscsi-ipsec-virtual", "ciphers", "hops-virtual"),
]
"""Of the stored runs."""


def of(records: list[Record], plan: Plan | None = None, probes: Any = (), **verdict: Any) -> list[str]:
    """The lines about these, if ``verdict`` is judged of the column ``wired``."""
    plans = {"r1": plan or plan_of_them()}
    cells = explain(records, plans, probes)
    for number, cell in enumerate(cells):
        if verdict and cell.evidence.name == "wired":
            judged = msgspec.structs.replace(cell.verdict, **verdict)
            cells[number] = msgspec.structs.replace(cell, verdict=judged)
    found = answers(build(records, plans=plans), cells)
    return summary.lines(found, Measured(records=records, plans=plans), WIDTH)


def joined(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def stored(name: str) -> list[str]:
    results = load([FIGURES / name])
    return summary.lines(results.answers, results, WIDTH)


def test_of_a_default_run_it_is_a_table_and_a_few_lines() -> None:
    lines = stored("make-run")
    # Four more are for what a volume keeps.
    assert len(lines) <= 21 and max(map(len, lines)) <= WIDTH
    circumstances, links, sizes, heads, *rows = lines[:8]
    assert circumstances == "Lab: iSCSI over emulated links, disk in memory, 1 request at a time."
    assert links == "Links: wired carries 117.7 MB/s, round trip 0.1 ms; wifi 5.98 MB/s, 1.4 ms."
    assert re.findall(r"- (\S+) -", sizes) == ["256K", "4K"]
    assert heads.split() == ["MB/s", "max", "MB/s", "max", "IOPS", "ms"]
    names = [re.split(r" {2,}(?!\+)", row)[0] for row in rows]
    assert names == ["wired 1 Gbit/s", "  + IPsec", "wifi 50 Mbit/s", "  + IPsec"]
    assert rows[0].split()[3:] == ["104-106", "112.2", "24.0-24.3", "29.9", "5880", "0.17"]
    assert re.fullmatch(r"  \+ IPsec +102-103 +-2\.. % ±0\.. +23.0-23.1 +-4\.. % ±0\.. +5630 +0.18", rows[1])
    words = joined(lines)
    assert "median of 8 samples of 0.4 s, range of 4 workloads. max: link limit, 1" in words
    assert "; below: cost of IPsec aes128gcm16, 95 % interval." in words
    assert (
        "Where the link's rate does not limit, protection costs more: a core is full at 121-203 MB" in words
    )
    command = sections.over("rate", "1G", "4G")
    assert not command or f"({command} --protect aes128gcm16)" in words, "it measures that protection"
    assert "Time of a request over wired: 256K link " in words
    assert "Limited by the link's rate at 256K; the round trip at 4K." in words
    assert "Less sure" not in words, "25 us of 48 ms are within what the closed form errs"
    # Each column has the same forecast.
    (forecast,) = re.findall(r"Would help .*", words)
    assert forecast.count("rand-read-4k") == 1 and "seq" not in forecast
    assert all(f" {name} " in forecast for name in ("wired", "wired+IPsec", "wifi", "wifi+IPsec"))
    between = summary.lines(load([FIGURES / "make-run"]).answers, load([FIGURES / "make-run"]), WIDTH, ("A",))
    assert between.index("A") == 10 and len(between) == len(lines) + 1


@pytest.mark.parametrize("name", WITH_ANSWERS)
def test_it_has_a_row_for_each_column_with_a_figure_and_a_few_lines_whatever_their_number(name: str) -> None:
    require_rows(name)


def require_rows(name: str) -> None:
    """Of a stored run: a row for each column that has a figure, and a few lines besides."""
    results = load([FIGURES / name])
    lines = summary.lines(results.answers, results, WIDTH, command=partial(sections.command, results))
    assert max(len(line) for line in lines if not line.startswith("  harness ")) <= WIDTH
    heads = {"MB/s", "max", "max,", "cost", "IOPS", "ms"}
    (first,) = (number for number, line in enumerate(lines) if line and {*line.split()} <= heads)
    rows = sum(bool(each.losses) for each in results.answers)
    reported = lines[first + 1 : first + 1 + rows]
    assert all(
        re.match(r"(\S+ [0-9.]+ .bit/s|  \+ |wired-unshaped ).* [0-9.-]+( |$)", line) for line in reported
    )
    assert len(lines) <= rows + 19


def test_nothing_of_hops_is_unknown_and_what_does_not_encrypt_says_so() -> None:
    hops = joined(stored("hops-virtual"))
    assert "Limited by the link's rate at 4K." in hops and "unknown" not in hops
    assert "  + not encrypted null-sha256" in "\n".join(stored("ladder"))


def test_disturbed_sides_are_compared_within_each_round() -> None:
    def busy(*rates: tuple[float, float], **seen: float) -> str:
        made = [spoilt(each, 0.3) for each in in_repeats(*rates)]
        known = [flat.changed(each, telemetry=with_core(each, **seen), wall_ns=10**9) for each in made]
        return joined(of(known))

    close = busy(*[(100.0 + n % 3, 95.0 + n % 2) for n in range(10)])
    assert re.search(r"\+ IPsec >95.5 +~-5 % ±1 ", close) and "more rounds" not in close
    assert "~: other programs were running; compared within each round" in close
    assert "median of 10 samples" in close and "Limited by the link's rate at 256K." in close
    same = busy(*[(100.0 + n % 3, 100.0 + n % 2) for n in range(10)])
    assert re.search(r"\+ IPsec >100 +~< 1 % ", same)
    wild = busy(*[(100.0 + 20 * (n % 3), 95.0 + 30 * (n % 2)) for n in range(10)])
    assert (
        re.search(r"\+ IPsec >\d+ \? ", wild)
        and "170 more rounds would narrow it to within 5 % (6 min)." in wild
    )
    mad = busy(*[(100.0 + 90 * (n % 3), 95.0 + 200 * (n % 2)) for n in range(10)])
    assert "More rounds would not help: use a quieter machine." in mad
    full = busy(*[(100.0 + n % 3, 95.0 + n % 2) for n in range(10)], busy=0.9)
    assert re.search(r"\+ IPsec >95.5 +\? ", full) and "~" not in full
    assert "No cost known for wired+IPsec 256K: the core is full" in full


def with_core(record: Record, busy: float = 0.5) -> Telemetry:
    core = ProcessorUse(hosts=("initiator", "target"), wall_ns=10**9, cores=1, busiest_core=busy)
    assert record.telemetry is not None
    return msgspec.structs.replace(record.telemetry, processors=(core,))


def test_what_applies_has_a_line_each() -> None:
    whole = columns()
    for records, plan, said in (
        (whole, ON_DISK, "iSCSI, compared with the local disk, costs (95 % interval): wired 97.6 %"),
        (
            [spoilt(each, 0.2) for each in whole],
            None,
            "aes128gcm16 costs: wired 88 to 94 % (disturbed)",
        ),
        ([spoilt(each) for each in whole], None, "an unknown part (disturbed) at 256K"),
        (
            [each for each in whole if each.column.protection],
            None,
            "wired+aes128gcm16: wired was not measured",
        ),
        (
            [*in_repeats(*UNSURE), *map(spoilt, in_repeats(*UNSURE, workload="rand-read-256k"))],
            None,
            "Left out: wired rand-read-256k, wired+IPsec rand-read-256k: disturbed by other programs.",
        ),
        (in_repeats(*UNSURE), None, "cost of IPsec aes128gcm16, 95 % interval; unclear: few repeats."),
        (in_repeats((100.0, 93.0)), None, "+ IPsec 93.0 -7 % MB/s: one sample. max: link limit, 1"),
        (in_repeats((100.0, 93.0)), None, "cost of IPsec aes128gcm16, measured once."),
        (in_repeats((100.0, 103.0), (100.0, 103.1), (100.0, 102.9)), None, "103 +3.0 % ±0.2"),
        (in_repeats((130.0, 126.0), (130.0, 126.0)), None, "More than the link should carry: wired 256K"),
        (reads_over_nfs(), plan_of_nfs(), "Host: NFS, /mnt/nas/bench.img (nfs4 of nas.lan:/export, vers=4.2"),
    ):
        assert said in joined(of(records, plan)), said
    disturbed = joined(of([spoilt(each, 0.2) for each in whole]))
    assert ">105 112.2" in re.sub(" +", " ", disturbed), "without others it is no slower"
    assert "MB/s: median of 3 samples. >: lower bound, other programs interfered." in disturbed
    assert (
        "Limited by the link's rate (wired), something unknown (wired+null-sha256, wired+aes128gcm16)"
        in disturbed
    )
    nobody = [flat.changed(r, status=Status.FAILED, reason="x") if r.column.protection else r for r in whole]
    assert "No answer on wired+null-sha256, wired+aes128gcm16: it has no figure: 1" in joined(of(nobody))
    memory = Reread(verdict=Suspicion.SUSPECTED, signs=(Sign.COMPRESSIBLE,), compressed_to=0.25)
    reread = joined(of([flat.changed(each, reread=memory) for each in whole], ON_DISK))
    assert reread.count("the data shrink to 25% where they are compressed") == 1
    assert "esp4_offload may help" not in reread


def test_a_link_of_an_unknown_rate_has_no_bound_and_says_why() -> None:
    lines = of(of_a_real_link(9.0), REAL, STREAMS)
    assert lines[1] == "Link: wired round trip 0.22 ms." and lines[3].split() == ["MB/s"]
    assert "No interface reports the link's rate; one TCP stream reached 12.1 MB/s" in joined(lines)
    known = of(of_a_real_link(105.0, link_rate_bit_s=10**9), REAL, STREAMS)
    assert known[1] == "Link: wired carries 117.7 MB/s, round trip 0.22 ms."
    assert known[4].split() == ["wired", "1", "Gbit/s", "105", "106.7"]


def test_the_time_of_a_request_accounts_for_what_is_missing() -> None:
    """But not where most of it has no cause, and not where its parts overlap."""
    assert "Time of a request over wired: 256K link 89 %, unexplained 4 %, round trip 4 %." in joined(
        of(columns())
    )
    (slow,) = in_repeats((10.0, 9.0))[:1]
    assert "Time of" not in joined(of([slow]))
    assert "Time of" not in joined(of(columns(), waterfall_ns={"device": 2e6, "link": 2e6, "rest": -1.5e6}))


def test_of_a_target_that_nobody_watched_no_part_is_called_its_memory() -> None:
    records = [
        flat.changed(each, testbed=TestbedKind.HOST)
        for each in (
            *of_a_portal("random", 4, 420.0, command_us=200.0),
            *of_a_portal("sequential", 256, 2600.0),
        )
    ]
    link = msgspec.structs.replace(WIRED, emulated=False, interface="eth0", delay_us=0.0)
    jobs = tuple(
        reads(name, block, "1") for name, block in (("random-4k-1", "4k"), ("sequential-256k-1", "256k"))
    )
    words = joined(of(records, plan_of_them(links={"wired": link}, jobs=jobs)))
    assert (
        "Host: iSCSI over real links, disk in memory, 1 request at a time, the target was not monitored"
        in words
    )
    assert "Link: wired carries 117.7 MB/s, round trip 0.1 ms." in words
    (time,) = re.findall(r"Time of a request over wired: (.*?)\. ", words)
    assert "target" in time and "memory" not in time and "disk" not in time


def test_columns_of_the_table_stay_below_their_headings_where_figures_are_disturbed() -> None:
    reads_4k = [
        flat.changed(each, block_bytes=4096)
        for each in in_repeats((20.0, 19.0), (20.0, 19.1), workload="rand-read-4k")
    ]
    records = [*in_repeats((100.0, 97.0), (101.0, 98.0)), *(spoilt(each, 0.2) for each in reads_4k)]
    lines = of(records)
    sizes, heads, plain, protected = lines[2:6]
    assert plain.split()[3:5] == ["100", "112.2"] and plain.split()[5].startswith(">")
    assert len({len(line) for line in (heads, plain, protected)}) == 1 and len(sizes) >= len(heads)
    assert plain.index("112.2") + 5 == heads.index("max") + 3


def test_the_lab_s_own_figures_are_named() -> None:
    words = joined(of(columns(), limited_by=Limit.LAB))
    assert (
        "Limited by the lab itself at 256K. Figures limited by the lab (wired) do not describe such a link."
        in words
    )
    assert "No answer on wired+null-sha256, wired+aes128gcm16: the lab limited" in words


def test_of_many_sizes_and_depths_the_ends_are_shown() -> None:
    names = {f"{size}k-{depth}": (f"{size}k", str(depth)) for size in (4, 64, 1024) for depth in (1, 8, 32)}
    jobs = tuple(reads(name, block, depth) for name, (block, depth) in names.items())
    blocks = {name: 1024 * int(name.partition("k")[0]) for name in names}
    made = (each for name in names for each in in_repeats((100, 97), (101, 98), workload=name))
    records = [flat.changed(record, block_bytes=blocks[record.workload.name]) for record in made]
    lines = of(records, plan_of_them(jobs=jobs))
    found = re.findall(r"- (\S+ x\d+) -", "\n".join(lines))
    assert found == ["1M x1", "1M x32", "4K x1", "4K x32"] and max(map(len, lines)) <= WIDTH
    assert "x1, x32: requests in flight" in joined(lines)
    assert lines[-1].endswith("5 other sizes or depths: harness table.")


def test_settings_are_told_apart_and_a_foreign_output_says_nothing_of_its_way() -> None:
    both = [*columns(), *(flat.changed(each, testbed=TestbedKind.HOST) for each in columns())]
    lines = of(both)
    assert sum(line.startswith(("Lab: ", "Host: ")) for line in lines) == 2 and "" in lines
    foreign = [flat.changed(each, source="fio", transport=None, link="x") for each in columns()[:3]]
    lines = of(foreign)
    assert lines[0] == "fio output (path not recorded):" and "max" not in lines[2]
    assert "The limit is unknown" in joined(lines)


def test_a_rate_stands_in_the_title_once() -> None:
    plan = plan_of_them()
    (link,) = {each.name: each for each in plan.links.values() if each.name == "wired"}.values()
    for title, shown in (
        ("Gigabit Ethernet", "Gigabit Ethernet 1 Gbit/s"),
        ("Gigabit Ethernet, MTU 9000", "Gigabit Ethernet, MTU 9000, 1 Gbit/s"),
        ("WAN 1 Gbit/s", "WAN 1 Gbit/s"),
        ("", "wired 1 Gbit/s"),
    ):
        records = [
            flat.changed(each, link_title=title) if each.column.link == "wired" else each
            for each in columns()
        ]
        table = build(records, plans={"r1": plan})
        (column,) = (each for each in table.columns if each.label == "wired")
        assert column.heading[1] == shown and column.rate == format_rate(link.rate_bit_s or 0)
        assert column.headed[2] == (shown if title else "1 Gbit/s")
        assert table.columns[0].rate == "" and "<br>" not in render(table, TableFormat.MARKDOWN)


@pytest.mark.parametrize("name", ["make-run", "generic", "protections", "ladder", "emulation"])
def test_the_command_of_a_plan_is_what_was_typed(name: str) -> None:
    """Word for word, but that ``--protect`` stands for ``--ipsec``."""
    run = RunFolder(FIGURES / name)
    typed = msgspec.json.decode((run.path / "measured.json").read_bytes())["command"]
    found = again.command(run.load_plan())
    options = [
        {(a, b) for a, b in re.findall(r"(--\S+)(?: (?!--)(\S+))?", each) if a not in LEFT_OUT}
        for each in (typed, found)
    ]
    assert options[1] <= options[0] | {("--protect", "off"), ("--repeats", "1")}, found
    assert {"--link", "--virtual-time"} & {a for a, _ in options[0]} <= {a for a, _ in options[1]}


def test_a_command_has_todays_names_only() -> None:
    for name in ("ladder", "generic", "protections"):
        words = again.command(RunFolder(FIGURES / name).load_plan()).split()[1:]
        assert renamed.current(words) == (words, []), name
    assert "--lab-kernel custom" in again.command(RunFolder(FIGURES / "ladder").load_plan())


def test_links_are_typed_as_they_were() -> None:
    for typed in ("wired:rtt=5ms,loss=0.1%", "switched:0", "fast-ethernet:rate=2.5g", "wifi:unshaped"):
        assert again.as_typed(load_link(typed)) == typed
    assert again.as_typed(msgspec.structs.replace(load_link("wired"), name="mine")) is None


LEFT_OUT = ("--ipsec", "--protect", "--size", "--lab-kernel", "--disk")
"""Of which a plan does not say how they were typed, or that they were."""
