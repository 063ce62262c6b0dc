"""What others disturbed is never just a number: in tables, comparisons, verdicts, pages and exports."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import report
from harness.analysis import disturbance, ratios, sanity, stats
from harness.analysis.limit import Limit
from harness.explain import explain
from harness.explain.text import Explained, as_json, text
from harness.hosts.journal import Journal
from harness.model import Record, Status
from harness.model.probing import Ping, Tcp
from harness.model.telemetry import BackgroundLoad
from harness.observe.interference import Watching
from harness.planning import probe_plan
from harness.planning.request import RunRequest
from harness.probes import judged
from harness.results import bandwidth_series, distributions, machine
from harness.results.events import CellEnded, CellWithdrawn, Event, Phase
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder
from harness.runs import columns, patience, prober
from harness.table import Options, RatioTo, TableFormat, build, comparison, export, render, views
from harness.table.options import Table, TableCell
from harness.terminal.progress import RunOutcome
from tests.unit.command import harness
from tests.unit.explain import test_explain
from tests.unit.fakes import World
from tests.unit.observe.test_disturbance import HOSTS, disturbed, others
from tests.unit.results_folder import ENVIRONMENT, made_plan, write
from tests.unit.runs import test_teardown as teardown
from tests.unit.table.test_comparison import run, side
from tests.unit.table.test_table import record, repeats, transfer
from tests.unit.table.test_views import tcp

FAST = {"cpu": "Fast CPU <5>", "cpus": 8, "frequency_mhz": 2596.1, "governor": "powersave", "load": "0.25"}
FAST |= {"hypervisor": "KVM", "memory": "16777216 kB", "kernel": "Linux version 6.1.0-30-amd64 (x@y) #1 SMP"}
FAST["distribution"] = "Debian GNU/Linux 12 (bookworm)"
LAB_ENVIRONMENT: dict[str, Any] = {**ENVIRONMENT, machine.MACHINE: FAST}
GCM = {"protection": ("aes128gcm16",)}
TOOK = "disturbed: other programs took up to 63 % of the time (other programs used 71 % of the processors)"


def spoilt(record: Record, taken: float = 0.63, used: float = 0.71) -> Record:
    """The same, but that others had so much of it."""
    return msgspec.structs.replace(record, telemetry=disturbed(taken, used=used).telemetry)


def cells(table: Table) -> dict[str, TableCell]:
    """Those of a table of one row, by the label of the column."""
    (line,) = table.cells
    return {column.label: cell for column, cell in zip(table.columns, line, strict=True) if cell}


def test_a_disturbed_repeat_counts_only_where_there_is_no_other() -> None:
    records = [
        spoilt(found, taken) for found, taken in zip(repeats(10.0, 4.0, 10.5), (0, 0.63, 0), strict=True)
    ]
    (cell,) = cells(build(records)).values()
    assert (cell.value, cell.n, cell.repeats, cell.disturbed, cell.is_disturbed) == (10.25, 2, 3, 0.0, False)
    assert cell.reasons == ("1 of 3 repeats left out: disturbed",)
    (all_of_them,) = cells(build([spoilt(found, 0.2 + n / 10) for n, found in enumerate(records)])).values()
    assert (all_of_them.value, all_of_them.n) == (10.0, 3)
    assert all_of_them.is_disturbed and all_of_them.disturbed == pytest.approx(0.4)
    assert all_of_them.cause == "other programs used 71 % of the processors"


def test_no_format_has_the_number_without_the_mark_and_programs_get_the_share_with_every_cell() -> None:
    table = build([record(10.0, link="local"), spoilt(record(4.0))])
    for format in set(TableFormat) - {TableFormat.CSV, TableFormat.JSON}:
        text = " ".join(render(table, format).split())
        assert "4.00 !" in text and "10.00 !" not in text, format
        said = "disturbed, do not use (wired seq-write-4k): other programs took up to 63"
        assert said in text and "in wired seq-write-4k: other programs used 71" in text, format
    table = build([spoilt(record(4.0)), spoilt(record(10.0, link="local"), 0.01), record(3.0, link="wifi")])
    found = json.loads(render(table, TableFormat.JSON))["cells"]
    shares = {cell["column"]["link"]: (cell["disturbed"], cell["is_disturbed"]) for cell in found}
    assert shares == {"wired": (0.63, True), "local": (0.01, False), "wifi": (None, False)}
    (line,) = csv.DictReader(io.StringIO(render(table, TableFormat.CSV)))
    assert line["wired disturbed"] == "0.63"


def test_a_disturbed_cell_has_no_ratio_and_is_nobodys_baseline() -> None:
    local, plain, secured = record(20.0, link="local"), record(10.0), record(5.0, **GCM)
    for records, to_local, to_no_ipsec in (
        ([local, plain, secured], 0.25, 0.5),
        ([local, plain, spoilt(secured)], None, None),
        ([local, spoilt(plain), secured], 0.25, None),
    ):
        cell = cells(build(records, Options(ratio=RatioTo.LOCAL)))["wired+aes128gcm16"]
        assert (cell.ratio_to_local, cell.ratio_to_unprotected) == (to_local, to_no_ipsec)
    without, many = repeats(*[10.0] * 6), repeats(*[5.0] * 6, **GCM)
    for below, difference in ((without, stats.Difference.DIFFERENT), (list(map(spoilt, without)), None)):
        cell = cells(build([*below, *many]))["wired+aes128gcm16"]
        assert cell.difference_from_unprotected is difference


def test_below_the_table_stands_on_what_it_was_measured_each_machine_once() -> None:
    text = render(build([record()], environments={"r1": LAB_ENVIRONMENT}))
    assert (
        "Machine: Fast CPU <5>, 8 processors, 2596 MHz, governor powersave, virtual (KVM), 16.0 GiB, "
        "Linux 6.1.0-30-amd64, Debian GNU/Linux 12 (bookworm), load 0.25 before the run."
    ) in text
    assert "Kernel: 6.1.176." in text and "the frequency governor is powersave" in text
    hosts = {"initiator": {"cpu": "A", "cpus": 4}, "target": {"cpu": "B", "cpus": 2}}
    real = {"hosts": {**hosts, "hop": {"address": "ssh://r", "cpu": "C"}}}
    text = render(build([record()], environments={"r1": real}))
    assert "Machine (initiator): A, 4 processors." in text and "Machine (target): B, 2 processors." in text
    assert "C" not in text.partition("Machine")[2]
    same = {"hosts": {name: {"cpu": "A"} for name in HOSTS}}
    assert machine.machines_of(same).keys() == {"initiator and target"}
    # Facts of any shape are no facts.
    odd = {"cpu": 5, "cpus": "many", "load": "1e999", "memory": {}, "kernel": None}
    facts: object
    for facts in ("text", 7, None, [], {}, odd):
        found = machine.machine_of({machine.MACHINE: facts}, "target")
        assert (found.processor, found.cores, found.load, found.memory_bytes) == (None,) * 4, facts


def test_what_was_disturbed_is_not_compared_and_the_gate_names_it(tmp_path: Path) -> None:
    quiet, slow = run("a"), run("b", factor=0.5)
    found = comparison.compare(side(quiet), side(list(map(spoilt, slow))))
    (cell,) = found.cells
    assert (cell.verdict, cell.ratio, cell.b, cell.n_b) == (ratios.Judgement.INCONCLUSIVE, None, None, 0)
    assert cell.reason == f"B: {TOOK}"
    assert found.slower_by(0.05) == [] and found.disturbed == [cell]
    text = comparison.render(found)
    assert "12 of 12 measurements of B do not count" in text and cell.reason in text
    (reported,) = json.loads(comparison.render(found, comparison.CompareFormat.JSON))["cells"]
    assert reported["is_disturbed"] is True
    calm = [spoilt(r, 0.0) for r in run("b", seed=2)[4:]]
    some = comparison.compare(side(quiet), side([*map(spoilt, slow[:4]), *calm]))
    assert (some.cells[0].n_b, some.cells[0].verdict) == (8, ratios.Judgement.EQUIVALENT)
    for run_id, made in (("a", quiet), ("b", list(map(spoilt, slow)))):
        write(tmp_path, made, made_plan(run_id))
    done = harness("compare", "a", "b", "--fail-if-slower", "5%", cwd=tmp_path)
    assert done.returncode == 3, "the only cell could not be judged"
    assert done.stderr == "not judged, because disturbed: wired seq-write-4k\n"


def explained(is_spoilt: Callable[[Record], bool]) -> list[Explained]:
    records = [spoilt(found) if is_spoilt(found) else found for found in test_explain.columns()]
    return explain(records, {"r1": test_explain.plan_of_them()})


def test_nothing_is_explained_of_what_was_disturbed_nor_is_it_a_neighbour_or_makes_anything_odd() -> None:
    all_of_them = explained(lambda found: found.column.ipsec == "aes128gcm16")
    verdicts = {cell.evidence.name: cell.verdict for cell in all_of_them}
    verdict = verdicts["wired+aes128gcm16"]
    assert verdict.limited_by is Limit.UNKNOWN and not verdict.waterfall_ns
    assert verdict.reason.startswith(TOOK.partition(" of the processors")[0])
    assert verdicts["wired"].limited_by is Limit.LINK
    assert "wired+aes128gcm16: no verdict: seq-read-256k." in text(all_of_them)
    reported = json.loads(as_json(all_of_them))["cells"]
    assert [cell["is_disturbed"] for cell in reported] == [False, False, False, True]
    found = explained(lambda found: found.column.link == "local" or found.column.ipsec == "off")
    (gcm,) = (cell.evidence for cell in found if cell.evidence.name == "wired+aes128gcm16")
    assert gcm.device_ns is None and gcm.plain is None and gcm.null is not None
    assert "the column local was disturbed: other programs took up to 63 %" in " ".join(gcm.missing)
    local = record(10.0, link="local", workload="seq-write-4k")
    assert sanity.check(record(20.0), local=[local]).warnings
    assert not sanity.check(record(20.0), local=[spoilt(local)]).warnings


def test_the_page_marks_what_was_disturbed_and_says_what_it_was_measured_on(tmp_path: Path) -> None:
    made = [record(10.0, link="local"), spoilt(record(4.0))]
    write(tmp_path, made, made_plan(), LAB_ENVIRONMENT, bins={1000: 10}, log_kib_s=[100] * 3)
    page = report.render(report.load([tmp_path]))
    assert page.count("4.00 !") >= 3, "in the matrix, the bar and its figures"
    for words in (TOOK.partition(": ")[2], "Machine that the lab runs on", "Fast CPU &lt;5&gt;", "bookworm"):
        assert words in page
    # No other picture shows it.
    made = [spoilt(record(repeat=1, read=transfer(10.0)), 0.0), spoilt(record(repeat=2, read=transfer(4.0)))]
    folder = RunFolder(write(tmp_path / "of-pictures", made, bins={1000: 10}, log_kib_s=[100] * 3))
    stored = folder.load_records()
    folders = {"r1": folder.path}
    found = (distributions.of_cell(stored, folders, writes=False), bandwidth_series.of_cell(stored, folders))
    assert [each and each.repeats for each in found] == [1, 1]
    assert distributions.of_cell(stored[1:], folders, writes=False) is None
    assert bandwidth_series.of_cell(stored[1:], folders) is None


def test_every_row_of_an_export_has_the_share_and_the_machines_and_probes_are_marked_as_well() -> None:
    found = [spoilt(record()), record(run_id="r2")]
    text = export.encode(found, export.ExportFormat.JSONL, {"r1": LAB_ENVIRONMENT})
    exported, unknown = map(json.loads, text.splitlines())
    assert (exported["disturbed"], exported["background_used"]) == (0.63, 0.71)
    for end in HOSTS:
        facts = [exported[f"{end}_{name}"] for name in ("processor", "cores", "load", "memory_bytes")]
        assert facts == ["Fast CPU <5>", 8, 0.25, 16 << 30]
    assert (exported["target_kernel"], exported["target_hypervisor"]) == ("6.1.0-30-amd64", "KVM")
    assert unknown["disturbed"] is unknown["target_processor"] is None
    slow, fast = (
        tcp(rate, background_load=(others(taken, used=taken),)) for rate, taken in ((1e8, 0.5), (9e8, 0.0))
    )
    grid = views.build(views.View.LINK, [slow])
    plain = views.render(grid, TableFormat.TEXT)
    assert "100.0 ! [1]" in plain and "[1] !: disturbed: other programs took up to 50 % of the time" in plain
    (line,) = csv.DictReader(io.StringIO(views.render(grid, TableFormat.CSV)))
    assert line["disturbed"] == "0.5"
    both = views.build(views.View.LINK, [slow, fast])
    alone, row = (json.loads(views.render(each, TableFormat.JSON))["rows"][0] for each in (grid, both))
    assert alone["disturbed"] == 0.5
    assert row["values"]["tcp_received_mbit_s"] == 900.0 and row["disturbed"] == 0.0


def ended(key: str, share: float | None = None, cause: str = "", status: Status = Status.OK) -> CellEnded:
    others = None if share is None else disturbance.Disturbed(share, cause)
    return CellEnded(key, status, None, 10**9, 5.0, others)


def test_the_end_of_a_run_names_what_disturbed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    outcome, second = (RunOutcome(started_s=0.0, ended_s=10.0) for _ in range(2))
    hog = "other programs used 63 % of the processors"
    for event in (ended("a.r1", 0.2, "x"), ended("b.r1", 0.5, hog), ended("c.r1"), ended("a.r1")):
        outcome.take(event)
    assert "fio" not in " ".join(outcome.summary())
    assert outcome.summary(is_verbose=True) == [
        "3 measurements (3 ok) in 10 s",
        "fio began 5.0 s after the start and measured for 40% of the whole time",
        f"1 of 3 measurements disturbed; worst: b, repeat 1 ({hog})",
    ]
    for each in (ended("a.r1"), ended("b.r1"), CellWithdrawn("a.r1", "4 cleartext segments")):
        second.take(each)
    assert second.summary()[0] == "2 measurements (1 invalid, 1 ok) in 10 s"
    assert (outcome.exit_code, second.exit_code) == (0, 1)


def others_taking(parts: Iterator[float], name: str = "taken", **more: Any) -> type[Watching]:
    """Others that take, at each look, the next of these parts."""

    class Taking(Watching):
        def taken(self, measured_ns: int = 0, *, busy: float = 1.0) -> tuple[BackgroundLoad, ...]:
            del measured_ns, busy
            return (BackgroundLoad(hosts=HOSTS, wall_ns=1, **{"cores": 4, name: next(parts), **more}),)

    return Taking


def test_a_run_waits_for_others_to_calm_down_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    # A look at machines over SSH takes seconds.
    seconds, looks = itertools.count(step=3), itertools.count(4)
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(time, "sleep", lambda _s: None)
    reported: list[Event] = []
    parts = itertools.chain([0.9, 0.9, 0.1], looks)
    waiting = patience.Patience(others_taking(parts, "used", cores=2), reported.append)
    assert waiting.wait_for_idle(), "the third look"
    assert reported == [Phase("waiting until the machine is idle, at most 57 s")]
    assert not waiting.wait_for_idle() and not waiting.wait_for_idle(), "all of it is used up"
    assert next(looks) == 21, "60 s are 20 looks of 3 s"


def test_what_helps_is_what_this_plan_can_do() -> None:
    for retries, helps in ((2, "'harness run --resume' measures these"), (0, "With --retries 1 a new run")):
        plan = made_plan(retries=retries)
        (mark,) = build([spoilt(record(4.0))], None, {plan.run_id: plan}).marks
        assert helps in mark


def test_what_was_disturbed_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cell is disturbed twice, and its third attempt is not."""
    taken = iter([0.5, *[0.0] * 5, 0.6, *[0.0] * 100])
    spoilers = others_taking(taken, used=0.2)
    monkeypatch.setattr("harness.observe.interference.watch", lambda *_: spoilers)
    monkeypatch.setattr(patience.Patience, "wait_for_idle", lambda _: True)
    outcome = teardown.measure(World(), tmp_path / "run")
    cells = [event for event in outcome.events if isinstance(event, CellEnded)]
    first = cells[0].key
    assert [event.key for event in cells].count(first) == 3 and len(cells) == 8
    assert [event.disturbed is not None for event in cells] == [True, *[False] * 5, True, False]
    assert cells[0].disturbed == disturbance.Disturbed(0.5, "other programs used 20 % of the processors")
    kept = {folder.name: folder for folder in (outcome.folder.path / "raw").glob(f"{first}*")}
    assert kept.keys() == {first, f"{first}.attempt-1", f"{first}.attempt-2"}
    jobs = [(folder / "job.fio").read_text() for folder in kept.values()]
    logs = {log for job in jobs for log in re.findall(r"write_bw_log=(.*)", job)}
    assert len(logs) == 3, "to a log that is there fio appends"
    record = next(record for record in outcome.records if f"raw/{first}/fio.json" in record.raw)
    assert all(name.startswith(f"raw/{first}/") for name in record.raw), record.raw
    assert all(disturbance.share(record) == 0.0 for record in outcome.records)


def test_a_probe_that_was_disturbed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is disturbed twice, and its third attempt is not."""
    taken, made = iter([0.5, 0.0, 0.6, 0.0]), list[str]()

    def make(asking: prober.Prober, question: prober.Question, order: int, _columns: object) -> ProbeRecord:
        made.append(question.probe.name)
        blank = judged.blank(asking.plan, question.column, question.probe, order=order)
        use = BackgroundLoad(hosts=HOSTS, wall_ns=1, cores=4, taken=next(taken), used=0.2)
        return msgspec.structs.replace(blank, status=Status.OK, background_load=(use,))

    monkeypatch.setattr(prober.Prober, "_make", make)
    monkeypatch.setattr(patience.Patience, "wait_for_idle", lambda _: True)
    plan = probe_plan.make_plan(RunRequest(links=("wired",), repeats=1), [Ping(count=1), Tcp()], "probes")
    folder, world, reported = RunFolder(tmp_path), World(), list[Event]()
    folder.save_plan(plan)
    hosts = columns.Hosts(target=world.host("target"), initiators=(world.host("initiator"),))
    journal = Journal(tmp_path / "journal.jsonl")
    asking = prober.Prober(plan, folder, reported.append, hosts=hosts, journal=journal, private=tmp_path)
    asking.execute(list(enumerate(prober.questions(plan))))
    first, second = (question.probe.name for question in prober.questions(plan))
    assert made == [first, second, first, first]
    ends = [event.disturbed is not None for event in reported if isinstance(event, CellEnded)]
    assert ends == [True, False, True, False]
    assert not any(disturbance.is_disturbed(record) for record in folder.load_probes())
