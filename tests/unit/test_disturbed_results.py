"""What others disturbed is never just a number: in tables, comparisons, verdicts, pages and exports."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import report
from harness.analysis import disturbance
from harness.analysis.disturbance import Disturbed
from harness.analysis.ratios import Judgement
from harness.analysis.sanity import check
from harness.analysis.stats import Difference
from harness.cli.progress import RunOutcome
from harness.explain import Limit, as_json, explain, text
from harness.hosts.journal import Journal
from harness.model import Record, Status
from harness.model.probing import Ping, Tcp
from harness.model.telemetry import Others
from harness.observe.interference import Watching
from harness.planning import probe_plan
from harness.planning.request import RunRequest
from harness.probes import judged
from harness.results.bandwidth_series import of_cell as course
from harness.results.distributions import of_cell as distribution
from harness.results.events import CellEnded, CellWithdrawn, Event, Phase
from harness.results.machine import MACHINE, machine_of, machines_of
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder
from harness.runs import patience
from harness.runs.columns import Hosts
from harness.runs.prober import Prober, Question, questions
from harness.table import Options, RatioTo, TableFormat, build, render
from harness.table.comparison import CompareFormat, compare
from harness.table.comparison import render as render_comparison
from harness.table.export import ExportFormat, encode
from harness.table.options import Table, TableCell
from harness.table.views import View
from harness.table.views import build as build_view
from harness.table.views import render as render_view
from tests.unit.command import harness
from tests.unit.explain.test_explain import columns as explained_columns
from tests.unit.explain.test_explain import plan_of_them
from tests.unit.fakes import World
from tests.unit.observe.test_disturbance import HOSTS, disturbed, others
from tests.unit.results_folder import ENVIRONMENT, made_plan, write
from tests.unit.runs import test_teardown as teardown
from tests.unit.table.test_comparison import run as run_of
from tests.unit.table.test_comparison import side
from tests.unit.table.test_table import record, repeats, transfer
from tests.unit.table.test_views import tcp

LAB_ENVIRONMENT: dict[str, Any] = {
    **ENVIRONMENT,
    MACHINE: {
        "kernel": "Linux version 6.1.0-30-amd64 (x@y) #1 SMP",
        "cpu": "Fast CPU <5>",
        "cpus": 8,
        "frequency_mhz": 2596.1,
        "governor": "powersave",
        "hypervisor": "KVM",
        "load": "0.25",
        "memory": "16777216 kB",
        "distribution": "Debian GNU/Linux 12 (bookworm)",
    },
}


def spoilt(record: Record, taken: float = 0.63, used: float = 0.71) -> Record:
    """The same, but that others had so much of it."""
    return msgspec.structs.replace(record, telemetry=disturbed(taken, used=used).telemetry)


def cells(table: Table) -> dict[str, TableCell]:
    return {
        column.label: cell
        for line in table.cells
        for column, cell in zip(table.columns, line, strict=True)
        if cell is not None
    }


# Tables


def test_a_disturbed_repeat_counts_only_where_there_is_no_other() -> None:
    records = [spoilt(found, 0.0) for found in repeats(10.0, 4.0, 10.5)]
    records[1] = spoilt(records[1])
    (cell,) = cells(build(records)).values()
    assert (cell.value, cell.n, cell.repeats) == (10.25, 2, 3)
    assert (cell.disturbed, cell.is_disturbed) == (0.0, False)
    assert cell.reasons == ("1 of 3 repeats left out: disturbed",)
    (all_of_them,) = cells(build([spoilt(found, 0.2 + n / 10) for n, found in enumerate(records)])).values()
    assert (all_of_them.value, all_of_them.n) == (10.0, 3)
    assert all_of_them.is_disturbed and all_of_them.disturbed == pytest.approx(0.4)
    assert all_of_them.cause == "other programs used 71 % of the processors"


@pytest.mark.parametrize(
    ("format", "shown"),
    [
        (TableFormat.PLAIN, "4.00 !"),
        (TableFormat.GITHUB, "4.00 !"),
        (TableFormat.HTML, "4.00 !"),
        (TableFormat.LATEX, "4.00 !"),
    ],
)
def test_no_format_has_the_number_without_the_mark(format: TableFormat, shown: str) -> None:
    text = render(build([record(10.0, link="local"), spoilt(record(4.0))]), format)
    assert shown in text and "10.00 !" not in text
    assert "disturbed, do not use (wired seq-write-4k): other programs took up to 63" in " ".join(
        text.split()
    )
    assert "in wired seq-write-4k: other programs used 71" in " ".join(text.split())


def test_programs_get_the_share_with_every_cell() -> None:
    table = build([spoilt(record(4.0)), spoilt(record(10.0, link="local"), 0.01), record(3.0, link="wifi")])
    found = {cell["column"]["link"]: cell for cell in json.loads(render(table, TableFormat.JSON))["cells"]}
    assert [found[link]["disturbed"] for link in ("wired", "local", "wifi")] == [0.63, 0.01, None]
    assert [found[link]["is_disturbed"] for link in ("wired", "local", "wifi")] == [True, False, False]
    heading, line = csv.reader(io.StringIO(render(table, TableFormat.CSV)))
    assert dict(zip(heading, line, strict=True))["wired disturbed"] == "0.63"


def test_a_disturbed_cell_has_no_ratio_and_is_nobodys_baseline() -> None:
    def table(*records: Record) -> dict[str, TableCell]:
        return cells(build(list(records), Options(ratio=RatioTo.LOCAL)))

    local, plain = record(20.0, link="local"), record(10.0)
    secured = record(5.0, protection=("aes128gcm16",))
    quiet = table(local, plain, secured)["wired+aes128gcm16"]
    assert (quiet.ratio_to_local, quiet.ratio_to_no_ipsec) == (0.25, 0.5)
    itself = table(local, plain, spoilt(secured))["wired+aes128gcm16"]
    assert (itself.ratio_to_local, itself.ratio_to_no_ipsec) == (None, None)
    below = table(local, spoilt(plain), secured)["wired+aes128gcm16"]
    assert (below.ratio_to_local, below.ratio_to_no_ipsec) == (0.25, None)


def test_no_difference_is_distinguished_from_what_was_disturbed() -> None:
    plain, secured = repeats(*[10.0] * 6), repeats(*[5.0] * 6, protection=("aes128gcm16",))
    found = cells(build([*plain, *secured]))["wired+aes128gcm16"]
    assert found.difference_from_no_ipsec is Difference.SHOWN
    found = cells(build([*map(spoilt, plain), *secured]))["wired+aes128gcm16"]
    assert found.difference_from_no_ipsec is None


def test_below_the_table_stands_on_what_it_was_measured() -> None:
    text = render(build([record()], environments={"r1": LAB_ENVIRONMENT}))
    assert (
        "Machine: Fast CPU <5>, 8 processors, 2596 MHz, governor powersave, virtual (KVM), 16.0 GiB, "
        "Linux 6.1.0-30-amd64, Debian GNU/Linux 12 (bookworm), load 0.25 before the run."
    ) in text
    assert "Kernel: 6.1.176." in text and "the frequency governor is powersave" in text


def test_real_machines_stand_there_each_once() -> None:
    hosts = {
        "initiator": {"cpu": "A", "cpus": 4},
        "target": {"cpu": "B", "cpus": 2},
        "hop": {"address": "ssh://r", "cpu": "C"},
    }
    text = render(build([record()], environments={"r1": {"hosts": hosts}}))
    assert "Machine (initiator): A, 4 processors." in text and "Machine (target): B, 2 processors." in text
    assert "C" not in text.partition("Machine")[2]
    same = {"hosts": {name: {"cpu": "A"} for name in HOSTS}}
    assert machines_of(same).keys() == {"initiator and target"}


@pytest.mark.parametrize(
    "facts",
    ["text", 7, None, [], {}, {"cpu": 5, "cpus": "many", "load": "1e999", "memory": {}, "kernel": None}],
)
def test_facts_of_any_shape_are_no_facts(facts: object) -> None:
    found = machine_of({MACHINE: facts}, "target")
    assert (found.processor, found.cores, found.load, found.memory_bytes) == (None, None, None, None)


# Comparisons


def test_what_was_disturbed_is_not_compared() -> None:
    quiet, slow = run_of("a"), run_of("b", factor=0.5)
    found = compare(side(quiet), side(list(map(spoilt, slow))))
    (cell,) = found.cells
    assert (cell.verdict, cell.ratio, cell.b, cell.n_b) == (Judgement.INCONCLUSIVE, None, None, 0)
    assert cell.reason == (
        "B: disturbed: other programs took up to 63 % of the time "
        "(other programs used 71 % of the processors)"
    )
    assert found.slower_by(0.05) == [] and found.disturbed == [cell]
    text = render_comparison(found)
    assert "12 of 12 measurements of B do not count" in text and cell.reason in text
    (reported,) = json.loads(render_comparison(found, CompareFormat.JSON))["cells"]
    assert reported["is_disturbed"] is True
    some = compare(
        side(quiet), side([*map(spoilt, slow[:4]), *(spoilt(r, 0.0) for r in run_of("b", seed=2)[4:])])
    )
    assert (some.cells[0].n_b, some.cells[0].verdict) == (8, Judgement.NO_DIFFERENCE)


def test_the_gate_names_what_it_could_not_judge(tmp_path: Path) -> None:
    for run_id, made in (("a", run_of("a")), ("b", list(map(spoilt, run_of("b", factor=0.5))))):
        write(tmp_path, made, made_plan(run_id))
    done = harness("compare", "a", "b", "--fail-if-slower", "5%", cwd=tmp_path)
    assert done.returncode == 3, "the only cell could not be judged"
    assert done.stderr == "not judged, because disturbed: wired seq-write-4k\n"


# Verdicts


def test_nothing_is_explained_of_what_was_disturbed() -> None:
    records = [spoilt(r) if r.column.ipsec == "aes128gcm16" else r for r in explained_columns()]
    found = {cell.evidence.name: cell for cell in explain(records, {"r1": plan_of_them()})}
    verdict = found["wired+aes128gcm16"].verdict
    assert verdict.limited_by is Limit.UNKNOWN and not verdict.waterfall_ns
    assert verdict.reason.startswith(
        "disturbed: other programs took up to 63 % of the time (other programs used 71 %"
    )
    assert found["wired"].verdict.limited_by is Limit.LINK
    assert "wired+aes128gcm16: no verdict: seq-read-256k." in text(list(found.values()))
    reported = json.loads(as_json(list(found.values())))["cells"]
    assert [cell["is_disturbed"] for cell in reported] == [False, False, False, True]


def test_what_was_disturbed_is_no_neighbour() -> None:
    records = [
        spoilt(r) if r.column.link == "local" or r.column.ipsec == "off" else r for r in explained_columns()
    ]
    found = {cell.evidence.name: cell.evidence for cell in explain(records, {"r1": plan_of_them()})}
    gcm = found["wired+aes128gcm16"]
    assert gcm.device_ns is None and gcm.plain is None and gcm.null is not None
    assert any(
        "the column local was disturbed: other programs took up to 63 %" in text for text in gcm.missing
    )


def test_nothing_is_odd_with_what_was_disturbed() -> None:
    local = record(10.0, link="local", workload="seq-write-4k")
    assert check(record(20.0), local=[local]).warnings
    assert not check(record(20.0), local=[spoilt(local)]).warnings


# Pages, pictures, exports


def test_the_page_marks_what_was_disturbed_and_says_what_it_was_measured_on(tmp_path: Path) -> None:
    made = [record(10.0, link="local"), spoilt(record(4.0))]
    write(tmp_path, made, made_plan(), LAB_ENVIRONMENT, bins={1000: 10}, log_kib_s=[100] * 3)
    page = report.render(report.load([tmp_path]))
    assert page.count("4.00 !") >= 3, "in the matrix, the bar and its figures"
    assert "other programs took up to 63 % of the time (other programs used 71 % of the processors)" in page
    assert "Machine that the lab runs on" in page and "Fast CPU &lt;5&gt;" in page and "bookworm" in page
    assert "other programs took" in page


def test_no_other_picture_shows_what_was_disturbed(tmp_path: Path) -> None:
    made = [
        spoilt(record(10.0, repeat=1, read=transfer(10.0)), 0.0),
        spoilt(record(4.0, repeat=2, read=transfer(4.0))),
    ]
    write(tmp_path, made, made_plan(), bins={1000: 10}, log_kib_s=[100] * 3)
    folder = RunFolder(tmp_path / "r1")
    stored = folder.load_records()
    found = distribution(stored, {"r1": folder.path}, writes=False)
    assert found is not None and found.repeats == 1
    over_time = course(stored, {"r1": folder.path})
    assert over_time is not None and over_time.repeats == 1
    assert distribution(stored[1:], {"r1": folder.path}, writes=False) is None
    assert course(stored[1:], {"r1": folder.path}) is None


def test_every_row_of_an_export_has_the_share_and_the_machines() -> None:
    text = encode([spoilt(record()), record(run_id="r2")], ExportFormat.JSONL, {"r1": LAB_ENVIRONMENT})
    row, unknown = map(json.loads, text.splitlines())
    assert (row["disturbed"], row["others_used"]) == (0.63, 0.71)
    for end in ("initiator", "target"):
        assert [row[f"{end}_{name}"] for name in ("processor", "cores", "load", "memory_bytes")] == [
            "Fast CPU <5>",
            8,
            0.25,
            16 << 30,
        ]
    assert (row["target_kernel"], row["target_hypervisor"]) == ("6.1.0-30-amd64", "KVM")
    assert unknown["disturbed"] is unknown["target_processor"] is None


# Probes


def probe(bit_s: float, taken: float) -> ProbeRecord:
    return msgspec.structs.replace(tcp(bit_s), others=(others(taken, used=taken),))


def test_probes_are_marked_as_well() -> None:
    grid = build_view(View.LINK, [probe(1e8, 0.5)])
    text = render_view(grid, TableFormat.PLAIN)
    assert "100.0 ! [1]" in text and "[1] !: disturbed: other programs took up to 50 % of the time" in text
    (row,) = json.loads(render_view(grid, TableFormat.JSON))["rows"]
    assert row["disturbed"] == 0.5
    heading, line = csv.reader(io.StringIO(render_view(grid, TableFormat.CSV)))
    assert (heading[-1], line[-1]) == ("disturbed", "0.5")
    (row,) = json.loads(
        render_view(build_view(View.LINK, [probe(1e8, 0.5), probe(9e8, 0.0)]), TableFormat.JSON)
    )["rows"]
    assert row["values"]["tcp_received_mbit_s"] == 900.0 and row["disturbed"] == 0.0


# A run


def ended(key: str, share: float | None = None, cause: str = "", status: Status = Status.OK) -> CellEnded:
    return CellEnded(key, status, None, 10**9, 5.0, None if share is None else Disturbed(share, cause))


def test_the_end_of_a_run_names_what_disturbed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    outcome = RunOutcome(started_s=0.0, ended_s=10.0)
    hog = "other programs used 63 % of the processors"
    for event in (ended("a.r1", 0.2, "x"), ended("b.r1", 0.5, hog), ended("c.r1"), ended("a.r1")):
        outcome.take(event)
    assert outcome.summary() == [
        "3 measurements (3 ok) in 10 s",
        "fio began 5.0 s after the start and measured for 40% of the whole time",
        f"1 of 3 measurements disturbed; worst: b, repeat 1 ({hog})",
    ]
    assert outcome.exit_code == 0


def test_a_cell_that_is_withdrawn_is_not_ok_in_the_end() -> None:
    outcome = RunOutcome(started_s=0.0, ended_s=10.0)
    for event in (ended("a.r1"), ended("b.r1"), CellWithdrawn("a.r1", "4 cleartext segments")):
        outcome.take(event)
    assert outcome.summary()[0] == "2 measurements (1 invalid, 1 ok) in 10 s"
    assert outcome.exit_code == 1


def test_a_run_waits_for_others_to_calm_down_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LOOK_S", 0.01)
    monkeypatch.setattr(patience, "PATIENCE_S", 0.1)
    parts = iter([0.9, 0.9, 0.1, *[0.9] * 10_000])

    class Busy(Watching):
        def taken(self, measured_ns: int = 0, *, busy: float = 1.0) -> tuple[Others, ...]:
            del measured_ns, busy
            return (Others(hosts=HOSTS, wall_ns=1, cores=2, used=next(parts)),)

    reported: list[Event] = []
    waiting = patience.Patience(Busy, reported.append)
    assert waiting.await_calm(), "the third look"
    assert reported == [Phase("waiting until other programs calm down")]
    assert not waiting.await_calm()
    assert not waiting.await_calm(), "all of it is used up"


def test_what_was_disturbed_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cell is disturbed twice, and its third attempt is not."""
    taken = iter([0.5, *[0.0] * 5, 0.6, *[0.0] * 100])

    class Spoilers(Watching):
        def taken(self, measured_ns: int = 0, *, busy: float = 1.0) -> tuple[Others, ...]:
            del measured_ns, busy
            return (Others(hosts=HOSTS, wall_ns=1, cores=4, taken=next(taken), used=0.2),)

    monkeypatch.setattr("harness.observe.interference.watch", lambda *_: Spoilers)
    monkeypatch.setattr(patience.Patience, "await_calm", lambda _: True)
    outcome = teardown.measure(World(), tmp_path / "run")
    cells = [event for event in outcome.events if isinstance(event, CellEnded)]
    first = cells[0].key
    assert [event.key for event in cells].count(first) == 3 and len(cells) == 8
    assert [event.disturbed is not None for event in cells] == [True, *[False] * 5, True, False]
    assert cells[0].disturbed == Disturbed(0.5, "other programs used 20 % of the processors")
    raw = outcome.folder.path / "raw"
    assert {folder.name for folder in raw.iterdir() if folder.name.startswith(first)} == {
        first,
        f"{first}.attempt-1",
        f"{first}.attempt-2",
    }, "what each attempt left is kept"
    logs = [
        re.search(r"write_bw_log=(.*)", (folder / "job.fio").read_text()) for folder in raw.glob(f"{first}*")
    ]
    assert len({log[1] for log in logs if log is not None}) == 3, "to a log that is there fio appends"
    record = next(record for record in outcome.records if f"raw/{first}/fio.json" in record.raw)
    assert all(name.startswith(f"raw/{first}/") for name in record.raw), record.raw
    assert not any(disturbance.is_disturbed(record) for record in outcome.records)
    assert all(disturbance.share(record) == 0.0 for record in outcome.records)


def test_a_probe_that_was_disturbed_is_made_again_after_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is disturbed twice, and its third attempt is not."""
    taken, made = iter([0.5, 0.0, 0.6, 0.0]), list[str]()

    def make(prober: Prober, question: Question, order: int, _columns: object) -> ProbeRecord:
        made.append(question.probe.name)
        blank = judged.blank(prober.plan, question.column, question.probe, order=order)
        use = Others(hosts=HOSTS, wall_ns=1, cores=4, taken=next(taken), used=0.2)
        return msgspec.structs.replace(blank, status=Status.OK, others=(use,))

    monkeypatch.setattr(Prober, "_make", make)
    monkeypatch.setattr(patience.Patience, "await_calm", lambda _: True)
    plan = probe_plan.make_plan(RunRequest(links=("wired",), repeats=1), [Ping(count=1), Tcp()], "probes")
    folder, world, reported = RunFolder(tmp_path), World(), list[Event]()
    folder.save_plan(plan)
    hosts = Hosts(target=world.host("target"), initiators=(world.host("initiator"),))
    journal = Journal(tmp_path / "journal.jsonl")
    prober = Prober(plan, folder, reported.append, hosts=hosts, journal=journal, private=tmp_path)
    prober.execute(list(enumerate(questions(plan))))
    first, second = (question.probe.name for question in questions(plan))
    assert made == [first, second, first, first]
    assert [e.disturbed is not None for e in reported if isinstance(e, CellEnded)] == [
        True,
        False,
        True,
        False,
    ]
    assert not any(disturbance.is_disturbed(record) for record in folder.load_probes())
