"""Two sets of results: which cells meet, what is said of them, and of what cannot be compared."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from bench.halves import PROMISED, differ, found_alone, halves, stored_runs
from harness.analysis.ratios import Judgement
from harness.model import Backing, BackingKind, Clock, LabKernel, OtherKernel, Record, Status, TestbedKind
from harness.model.errors import UsageError
from harness.results.measured import Measured
from harness.table import Metric
from harness.table.comparison import CompareFormat, Comparison, compare, render
from tests import flat
from tests.unit.cli.test_cli import assert_refused
from tests.unit.command import harness
from tests.unit.results.test_results import fio_job, write_fio
from tests.unit.results_folder import write
from tests.unit.table.test_table import HOSTILE, plan, record, transfer

CELL = "wired seq-write-4k"


def run(
    run_id: str, *, repeats: int = 12, factor: float = 1.0, seed: int = 1, noise: float = 0.02, **changes: Any
) -> list[Record]:
    """Repeats of one cell, about 100 MB/s, each at the place in the order that ``seed`` gives it."""
    source = random.Random(f"{run_id}/{seed}")  # noqa: S311 -- no secret
    places = random.Random(seed).sample(range(100), repeats)  # noqa: S311 -- no secret
    found = []
    for repeat, order in enumerate(places, 1):
        facts = {"run_id": run_id, "repeat": repeat, "order": order, "started_unix_s": 1e9 + repeat}
        found.append(record(factor * 100 * source.lognormvariate(0, noise), **facts | changes))
    return found


def side(*cells: list[Record], **known: Any) -> Measured:
    return Measured(records=[found for cell in cells for found in cell], **known)


def verdicts(found: Comparison) -> dict[str, Judgement]:
    return {cell.name: cell.verdict for cell in found.cells}


def test_a_cell_that_became_slower_is_distinguished_from_one_that_did_not() -> None:
    a = side(run("a"), run("a", link="wifi"), run("a", link="local", noise=0.2))
    b = side(run("b", factor=0.9), run("b", link="wifi"), run("b", link="local", noise=0.2))
    found = compare(a, b)
    words = {"local": Judgement.INCONCLUSIVE, "wired": Judgement.SLOWER, "wifi": Judgement.EQUIVALENT}
    assert verdicts(found) == {f"{link} seq-write-4k": verdict for link, verdict in words.items()}
    (slower,) = found.slower_by(0.05)
    assert slower.ratio is not None and slower.ratio.ratio == pytest.approx(0.9, rel=0.03)
    assert found.slower_by(0.2) == compare(b, a).slower_by(0.05) == []
    assert verdicts(compare(b, a))["wired seq-write-4k"] is Judgement.FASTER
    # A longer latency is slower.
    timed = [
        side([record(run_id=name, repeat=n, write=transfer(1, p99_ns=ns + n % 3 * 1e4)) for n in range(10)])
        for name, ns in (("a", 1e6), ("b", 1.2e6))
    ]
    found = compare(timed[0], timed[1], Metric.P99)
    assert [cell.verdict for cell in found.cells] == [Judgement.SLOWER] and found.missing == ()
    assert (found.slower_by(0.1), found.slower_by(0.5)) == ([*found.cells], [])


def test_two_kernels_are_compared_and_named() -> None:
    def of(run_id: str, other: OtherKernel | None, factor: float = 1.0) -> Measured:
        known = plan(run_id=run_id, lab_kernel=LabKernel.CUSTOM, other_kernel=other)
        name = "" if other is None else other.name
        records = run(run_id, factor=factor, lab_kernel=LabKernel.CUSTOM, other_kernel=name)
        return side(records, plans={run_id: known})

    good = OtherKernel(key="0123456789ab", release="6.1.1-harness", commit="fedcba987654")
    bad = OtherKernel(key="ba9876543210", release="6.1.2-harness")
    found = compare(of("a", good), of("b", bad, 0.9))
    assert list(verdicts(found).values()) == [Judgement.SLOWER]
    kernels = "6.1.1-harness 0123456789ab (commit fedcba987654), B on 6.1.2-harness ba9876543210."
    assert f"A ran on {kernels}" in found.notes
    assert "A ran on the custom kernel, B on 6.1.2-" in " ".join(compare(of("a", None), of("b", bad)).notes)
    assert not any(note.startswith("A ran on") for note in compare(of("a", good), of("b", good)).notes)
    both = side(of("a", good).records, of("c", bad, 0.8).records)  # type: ignore[arg-type]
    by_name = compare(both, of("b", bad))
    assert [cell.n_a for cell in by_name.cells] == [12], "against the kernel of the same name alone"
    assert verdicts(by_name) == {"wired seq-write-4k": Judgement.FASTER}


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        (run("a"), run("b", link="wifi"), f"A is of lab ({CELL}), B is of lab (wifi"),
        (run("a"), run("b", testbed=TestbedKind.HOST), f"A is of lab ({CELL}), B is of host ({CELL})"),
        (run("a"), run("b", clock="virtual"), "B is of lab, virtual time"),
        (run("a"), run("b", workload="x"), "B is of lab (wired x)"),
        (run("a"), run("a"), "found run a in both"),
        (run("a"), run("a") + run("b"), "found run a in both"),
    ],
    ids=["link", "testbed", "clock", "workload", "the-same-run", "a-run-and-a-folder-with-it"],
)
def test_what_does_not_compare_is_refused(a: list[Record], b: list[Record], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        compare(side(a), side(b))
    assert sentence in refusal.value.message
    assert refusal.value.hint


NFS: dict[str, Any] = {"link": "nfs", "transport": None}


def test_a_file_over_nfs_is_compared_with_the_one_column_of_a_lun() -> None:
    lun = run("a", link="portal", factor=0.37)
    for others in ([], [run("a", link="portal", protection=("x",))], [run("a", link="local", factor=9)]):
        found = compare(side(lun, *others), side(run("b", **NFS)))
        assert verdicts(found) == {"nfs against portal seq-write-4k": Judgement.FASTER}
        assert compare(side(run("b", **NFS)), side(lun, *others)).cells[0].verdict is Judgement.SLOWER
        (note,) = (note for note in found.notes if note.startswith("nfs: a file of another machine, opened"))
        assert "The server's memory may answer" in note
    smb = compare(side(run("a", **NFS)), side(run("b", link="smb", transport=None)))
    assert list(verdicts(smb)) == ["smb against nfs seq-write-4k"]
    assert list(verdicts(compare(side(run("a", **NFS)), side(run("b", **NFS))))) == ["nfs seq-write-4k"]
    # With two to choose from, and with a local disk alone, nothing says which is meant.
    for other in ([lun, run("a", link="tunnel")], [run("a", link="local")]):
        with pytest.raises(UsageError, match="no cell in common"):
            compare(side(*other), side(run("b", **NFS)))


def test_what_is_on_one_side_alone_is_named_and_modes_are_different_cells() -> None:
    found = compare(side(run("a"), run("a", link="wifi")), side(run("b"), run("b", protection=("x",))))
    assert "Only in A, and not compared: lab wifi seq-write-4k." in found.notes
    assert "Only in B, and not compared: lab wired+x seq-write-4k." in found.notes
    assert [cell.name for cell in found.cells] == ["wired seq-write-4k"]
    modes = [run("a", protection=("x",), ipsec_mode=mode) for mode in ("transport", "tunnel")]
    found = compare(side(*modes), side(run("b", protection=("x",), ipsec_mode="tunnel")))
    assert [cell.name for cell in found.cells] == ["wired+x tunnel seq-write-4k"]


def test_cells_that_are_not_judged_are_counted_first_with_what_would_help() -> None:
    found = compare(side(run("a", repeats=1)), side(run("b", repeats=12, factor=0.5)))
    assert [cell.verdict for cell in found.cells] == [Judgement.INCONCLUSIVE] and not found.is_judged
    assert found.missing == (
        "None of 1 cells could be judged.",
        "Fewer than 2 usable repeats on a side cannot show a difference, in 1 cell: wired seq-write-4k "
        "(A 1, B 12): measure both sides with --repeats 8.",
    )
    for format in (CompareFormat.TEXT, CompareFormat.MARKDOWN):
        said = "B against A: 0 slower, 0 faster, 0 equivalent, 1 inconclusive. None of 1 cells could be "
        assert " ".join(render(found, format).lstrip("*").split()).startswith(said)
    assert "inconclusive" in render(found)
    assert (found.cells[0].reason, found.notes[1:]) == ("too few repeats for an interval", ())
    a = side(run("a"), run("a", link="local", noise=0.1))
    b = side(run("b", factor=0.8), run("b", link="local", noise=0.1))
    found = compare(a, b)
    assert found.is_judged and found.missing[0] == "Not all of 2 cells could be judged: 1 inconclusive."
    assert render(found).splitlines()[1] == "Slower: wired seq-write-4k." and "Faster:" not in render(found)
    assert render(compare(b, a)).splitlines()[1] == "Faster: wired seq-write-4k."
    reasons = {cell.key.column.link: cell.reason for cell in found.cells}
    wide = "neither faster nor slower, and the interval reaches beyond 5 % of 1"
    assert reasons == {"wired": None, "local": wide} and "has no ratio" not in render(found)
    advice = re.fullmatch(
        "The interval is too wide to tell a difference of 5 % from none, in 1 cell: local seq-write-4k "
        r"\(A 12, B 12\): measure both sides with --repeats (\d+)\.",
        found.missing[1],
    )
    assert advice and 12 < int(advice[1]) < 1000
    several = compare(side(run("a", repeats=60)), side(run("b", repeats=60, factor=0.975)))
    assert several.missing[1].endswith(": compare several runs a side (a folder of them).")


@pytest.mark.parametrize(
    "metric",
    [
        pytest.param(metric, marks=() if metric is Metric.P99 else pytest.mark.thorough)
        for metric in Metric
        if metric not in (Metric.MIB_S, Metric.STALL)  # the stored runs have no fault
    ],
)
def test_halves_of_one_run_do_not_differ(metric: Metric) -> None:
    cells = {name: halves(records, metric) for name, records in stored_runs().items()}
    assert {len(each) for each in cells.values()} == {2, 4, 8, 40}
    parts = {name: differ(each, rounds=3000, seed=1) for name, each in cells.items()}
    assert max(parts.values()) <= PROMISED, parts


@pytest.mark.thorough
def test_halves_of_one_run_differ_where_one_took_longer() -> None:
    records = stored_runs()["make-run"]
    least = {(Metric.MB_S, 0.1): 0.9, (Metric.P50, 0.1): 0.9, (Metric.P99, 0.3): 0.7, (Metric.P99, 1.0): 0.9}
    for (metric, longer), part in least.items():
        assert found_alone(halves(records, metric, longer)) >= part, (metric, longer)


def test_runs_vary_more_than_their_repeats_unless_they_repeat_exactly() -> None:
    a, b = run("a", noise=1e-6), run("b", noise=1e-6, factor=0.99)
    virtual = ([flat.changed(r, clock=Clock.VIRTUAL) for r in found] for found in (a, b))
    of_memory = (side(run(name, factor=20.0)) for name in ("a", "b"))
    of_several = (side(run("a"), run("c")), side(run("b"), run("d")))
    sides = (map(side, (a, b)), map(side, virtual), of_memory, of_several)
    real, exact, memory, several = (compare(*both).cells[0] for both in sides)
    assert (real.verdict, exact.verdict) == (Judgement.EQUIVALENT, Judgement.SLOWER)
    assert real.ratio is not None and memory.ratio is not None and several.ratio is not None
    assert memory.ratio.more == pytest.approx(3 * real.ratio.more)
    assert several.ratio.more == pytest.approx(real.ratio.more / math.sqrt(2))


def test_a_cell_without_a_number_has_a_reason_and_runs_that_differ_in_more_have_a_note() -> None:
    broken = run("b", link="wifi", status=Status.INVALID, reason="3 cleartext segments")
    found = compare(side(run("a"), run("a", link="wifi")), side(run("b"), broken))
    cell = next(cell for cell in found.cells if cell.name == "wifi seq-write-4k")
    reason = "B: invalid: 3 cleartext segments"
    assert (cell.ratio, cell.verdict, cell.n_b, cell.reason) == (None, Judgement.INCONCLUSIVE, 0, reason)
    assert "wifi seq-write-4k has no ratio: B: invalid: 3 cleartext segments." in found.notes
    assert any(note.startswith("12 of 24 measurements of B do not count") for note in found.notes)
    other = plan("b", backing=Backing(kind=BackingKind.FILE, size_bytes=1 << 27), runtime_s=9.0)
    powersave = {"hosts": {"target": {"cpu": "x", "governor": "powersave"}}}
    performance = {"hosts": {"target": {"cpu": "y", "governor": "performance"}}}
    a = side(run("a"), plans={"a": plan("a")}, environments={"a": powersave})
    b = side(run("b"), plans={"b": other}, environments={"b": performance})
    found = compare(a, b)
    assert "The runs differ in: backing storage, runtime, processor, frequency governor." in found.notes


def test_two_plain_fio_outputs_meet_although_their_names_differ(tmp_path: Path) -> None:
    for name in ("before", "after"):
        write_fio(tmp_path / f"{name}.json", fio_job())
    done = harness("compare", "before.json", "after.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (3, "")
    assert "fio job1" in done.stdout and "inconclusive" in done.stdout


@pytest.mark.parametrize("format", CompareFormat)
def test_names_can_harm_no_format(format: CompareFormat) -> None:
    text = render(compare(side(run("a", workload=HOSTILE)), side(run("b", workload=HOSTILE))), format)
    assert "\x1b" not in text and "\u202e" not in text
    assert format is not CompareFormat.MARKDOWN or "<script>" not in text


def test_json_has_every_figure_and_plain_text_is_aligned() -> None:
    one = compare(side(run("a")), side(run("b", factor=0.9)), margin=0.02)
    data = json.loads(render(one, CompareFormat.JSON))
    whole = {"a": {"runs": ["a"]}, "b": {"runs": ["b"]}, "margin": 0.02, "unit": "MB/s"}
    assert {name: data[name] for name in whole} == whole
    assert data["tally"] == {"slower": 1, "faster": 0, "equivalent": 0, "inconclusive": 0}
    (cell,) = data["cells"]
    assert cell["low"] < cell["ratio"] < cell["high"] < 1
    known = {"verdict": "slower", "workload": "seq-write-4k", "n_a": 12, "n_b": 12}
    assert known.items() <= cell.items() and cell["setting"]["testbed"] == "lab"
    assert (cell["column"]["link"], cell["column"]["protection"]) == ("wired", [])
    moved: dict[str, Any] = {"workload": "oltp", "read": transfer(7.0), "write": transfer(3.0)}
    a, b = ([record(run_id=name, repeat=repeat, **moved) for repeat in range(1, 7)] for name in ("a", "b"))
    found = compare(side(a), side(b))
    assert render(found).splitlines()[:7] == [
        "B against A: 0 slower, 0 faster, 1 equivalent, 0 inconclusive.",
        "",
        "MB/s (10^6 bytes per second): B (b) against A (a)",
        "",
        "                             A      B    B/A    95 % interval    repeats  verdict",
        "-----------------------  -----  -----  -----  ---------------  ---------  ----------",
        "wired oltp (read+write)  10.00  10.00  1.000   0.973 to 1.028      6 + 6  equivalent",
    ]
    assert all(len(line) <= 100 for line in render(found, width=100).splitlines())
    titled = compare(side(run("20261122-204315-44fe")), side(run("20261122-132054-bc0a")))
    title = render(titled, width=80).split("\n\n")[1].splitlines()
    assert len(title) == 2 and max(map(len, title)) <= 80


def test_the_exit_status_is_that_of_the_gate_and_bad_usage_is_refused(tmp_path: Path) -> None:
    for run_id, factor in (("a", 1.0), ("same", 1.0), ("slow", 0.9)):
        write(tmp_path, run(run_id, factor=factor))
    good, bad, lenient, faster = (
        harness("compare", *sides.split(), "--fail-if-slower", margin, cwd=tmp_path)
        for sides, margin in (("a same", "5%"), ("a slow", "5%"), ("a slow", "20%"), ("slow a", "5%"))
    )
    assert [done.returncode for done in (good, bad, lenient, faster)] == [0, 1, 0, 0]
    assert bad.stderr == "slower by 5% or more: wired seq-write-4k\n"
    assert good.stderr == lenient.stderr == ""
    assert harness("compare", "a", "slow", cwd=tmp_path).returncode == 0
    same = "a same --fail-if-slower"
    words = ("a missing", f"{same} -5%", f"{same} nan%", f"{same} 100%", "a same --format xml")
    named = {typed: typed.split()[-1] for typed in (*words, "a same --metric p98")}
    for typed, said in {**named, f"{same} 5": "5%", "a a": "found run a in both"}.items():
        assert_refused(harness("compare", *typed.split(), cwd=tmp_path), said)


def test_a_status_says_that_there_is_no_verdict(tmp_path: Path) -> None:
    for run_id, factor in (("a", 1.0), ("b", 0.5)):
        write(tmp_path, run(run_id, factor=factor, repeats=1))
    for words in ((), ("--fail-if-slower", "5%"), ("--format", "json")):
        done = harness("compare", "a", "b", *words, cwd=tmp_path)
        assert done.returncode == 3, words
        said = done.stderr if "json" in words else done.stdout
        assert (
            "None of 1 cells could be judged." in "".join(said.splitlines(keepends=True)[:2])
            and "--repeats 8" in said
        )


def test_a_name_that_reads_in_one_and_writes_in_the_other_is_not_compared(tmp_path: Path) -> None:
    """Each of its rows had one side alone, without a figure."""
    write, read = fio_job("swapped"), fio_job("swapped")
    write["write"], write["read"] = write["read"], write["write"]
    files = [
        write_fio(tmp_path / f"{name}.json", fio_job("same"), job)
        for name, job in (("a", read), ("b", write))
    ]
    a, b = (Measured.read([file]) for file in files)
    found = compare(a, b)
    assert [cell.row.workload for cell in found.cells] == ["same"]
    assert sum("swapped" in note for note in found.notes) == 2
