"""What a column costs and why: what is compared, what is left out, what is said of doubt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis.limit import Limit
from harness.analysis.stats import Difference
from harness.explain import explain
from harness.model import Backing, BackingKind, Job, Plan, Record, Status
from harness.model.reread import Reread, Sign, Suspicion
from harness.report import load
from harness.report.conclusion import Conclusion, ThroughputRatio, answers, limits
from harness.results.store import RunFolder
from harness.table import build
from harness.terminal.running import _answer
from tests import flat
from tests.unit.explain.test_explain import columns, measured, plan_of_them
from tests.unit.results_folder import write
from tests.unit.test_disturbed_results import spoilt

OLD = Path(__file__).parents[2] / "data" / "schema-1" / "results"
ON_DISK: Plan = plan_of_them(backing=Backing(kind=BackingKind.BLOCK, size_bytes=1 << 30, path="/dev/sdz"))


def concluded(
    records: list[Record], plan: Plan | None = None, of: str = "", **verdict: Any
) -> list[Conclusion]:
    """What is said of these, if ``verdict`` is judged of the column ``of``, or of all."""
    plans = {"r1": plan or plan_of_them()}
    cells = explain(records, plans)
    for number, cell in enumerate(cells):
        if verdict and of in ("", cell.evidence.name):
            judged = msgspec.structs.replace(cell.verdict, **verdict)
            cells[number] = msgspec.structs.replace(cell, verdict=judged)
    return answers(build(records, plans=plans), cells)


def in_repeats(*rates: tuple[float, float], workload: str = "seq-read-256k") -> list[Record]:
    """A cell over ``wired`` and the same with aes128gcm16, in MB/s, a pair for each repeat."""
    found = []
    for column, place in (("off", 0), ("aes128gcm16", 1)):
        (one, *_) = measured("wired", column, 2500)
        for repeat, pair in enumerate(rates, 1):
            assert one.read is not None and one.workload.block_bytes
            ns = round(one.read.ios * one.workload.block_bytes / pair[place] * 1e3)
            read = msgspec.structs.replace(one.read, runtime_ns=ns)
            found.append(flat.changed(one, workload=workload, repeat=repeat, read=read))
    return found


def of_ipsec(records: list[Record]) -> Conclusion:
    (answer,) = (answer for answer in concluded(records) if answer.column.column.protection)
    return answer


def brief(answer: Conclusion) -> str:
    """What a column of blocks of one size loses, in words."""
    (loss,) = answer.losses
    assert loss.compared is not None
    return loss.compared.brief


def test_each_column_over_a_network_is_compared_with_the_one_below_it() -> None:
    found = concluded(columns(), ON_DISK)
    assert [(answer.column.label, answer.baseline) for answer in found] == [
        ("wired", ""),
        ("wired+null-sha256", "wired"),
        ("wired+aes128gcm16", "wired"),
    ]
    kept = [loss.kept for answer in found for loss in answer.losses]
    assert kept == [pytest.approx((part,)) for part in (60 / 2500, 2500 / 5000, 2500 / 30000)]
    assert brief(found[0]) == "97.6 % (within 0.1)"
    # Transport and tunnel mode are two columns.
    found = load([OLD]).answers
    assert {"wired+aes128gcm16", "wired+aes128gcm16 tunnel"} <= {answer.column.name for answer in found}
    for answer in found:
        assert {cell.evidence.name for loss in answer.losses for cell in loss.cells} <= {answer.column.label}


def test_next_to_memory_a_column_is_held_to_what_its_link_carries() -> None:
    plain, null, _ = concluded(columns())
    (loss,) = plain.losses
    assert loss.kept == pytest.approx((262144 / 2500e-6 / 117.69e6,), rel=0.01)
    assert (loss.most_mb_s, *loss.latency_bound_mb_s) == pytest.approx((117.69, 112.2), rel=1e-3)
    assert loss.compared is None and limits(loss.cells) == "limited by the link's rate (confidence medium)"
    assert null.losses[0].compared is not None
    # So is it without the local disk.
    plain, *rest = concluded([record for record in columns() if record.column.link == "wired"], ON_DISK)
    assert [answer.column.column.protection for answer in rest] == [("null-sha256",), ("aes128gcm16",)]
    assert plain.losses[0].compared is None


def test_the_first_answer_says_that_memory_may_have_answered() -> None:
    def reread(verdict: Suspicion, **found: Any) -> list[Record]:
        return [flat.changed(each, reread=Reread(verdict=verdict, **found)) for each in columns()]

    suspected = reread(Suspicion.SUSPECTED, signs=(Sign.COMPRESSIBLE,), compressed_to=0.25)
    wired, *others = concluded(suspected, ON_DISK)
    assert "the data shrink to 25% where they are compressed" in wired.memory
    plain = (*concluded(columns()), *concluded(reread(Suspicion.NOT_SUSPECTED)))
    assert not any(answer.memory for answer in (*others, *plain))


def test_a_column_has_its_cost_and_its_limit_and_what_helps() -> None:
    *_, gcm = concluded(columns())
    (loss,) = gcm.losses
    assert brief(gcm) == "91.7 % (within 0.1)" and loss.mb_s == pytest.approx([8.72], rel=1e-3)
    assert loss.most_mb_s == pytest.approx(114.5, rel=1e-3)
    assert limits(loss.cells) == "limited by crypto work (confidence medium)"
    # Segmentation offload is named where packets may be what limits.
    for limit, either, name, is_reported in (
        (Limit.CPU, {}, "aes128gcm16", True),
        (Limit.UNKNOWN, {Limit.CPU: (0.2, 0.4), Limit.CRYPTO: (0.4, 0.6)}, "aes128gcm16", True),
        (Limit.CRYPTO, {}, "aes128gcm16", False),
        (Limit.CPU, {}, "null-sha256", False),
    ):
        found = concluded(columns(), limited_by=limit, either=either)
        (answer,) = (each for each in found if each.column.column.protection == (name,))
        assert answer.takes_packets_one_by_one is is_reported, limit


def test_a_loss_compared_with_a_figure_of_the_lab_is_no_answer() -> None:
    plain, _, gcm = concluded(columns(), of="wired", limited_by=Limit.LAB)
    assert plain.losses and not plain.lab_limited
    assert gcm.lab_limited == ("seq-read-256k",) and not gcm.losses
    assert gcm.why_none.startswith("the lab limited")
    assert limits(plain.losses[0].cells).startswith("limited by the lab itself (confidence ")
    # A column that the lab limits concerns no other.
    _, null, gcm = concluded(columns(), of="wired+null-sha256", limited_by=Limit.LAB)
    assert null.lab_limited and not null.losses
    assert gcm.losses and not gcm.lab_limited


def test_an_answer_says_what_it_leaves_out() -> None:
    calm = in_repeats((100, 97), (101, 98), (100, 97))
    other = [spoilt(r) for r in in_repeats((100, 97), (100, 97), workload="rand-read-256k")]
    found = concluded([*calm, *other])
    assert [answer.disturbed for answer in found] == [("rand-read-256k",)] * 2
    assert all(len(loss.cells) == 1 for answer in found for loss in answer.losses)


def test_missing_figures_are_no_answer_and_disturbed_ones_give_bounds_and_no_cause() -> None:
    def failed(record: Record) -> Record:
        return flat.changed(record, status=Status.FAILED, reason="x")

    whole = columns()
    disturbed = [spoilt(r) if r.column.ipsec == "off" and r.column.link == "wired" else r for r in whole]
    without = [r for r in whole if r.column.protection or r.column.is_local]
    for records, why in (
        (disturbed, "it or its baseline was disturbed"),
        ([failed(r) if r.column.protection else r for r in whole], "it has no figure: 1 cell failed"),
        (without, "wired was not measured"),
        ([r if r.column.protection else failed(r) for r in whole], "wired has no figure: 1 cell failed"),
    ):
        *_, gcm = concluded(records)
        assert gcm.why_none == why and not gcm.losses
    # 5000 ns next to 30 000 ns: a fifth taken of each may have cost 30 % of its throughput.
    disturbed = [spoilt(r, 0.2) for r in columns()]
    *_, gcm = concluded(disturbed)
    (loss,) = gcm.losses
    assert loss.kept == pytest.approx((2500 / 30000 * 0.7, 2500 / 30000 / 0.7)) and loss.is_disturbed
    # One disturbed side widens one bound.
    bare = [spoilt(r, 0.2) if not r.column.protection else spoilt(r, 0.0) for r in columns()]
    (loss,) = concluded(bare)[-1].losses
    assert loss.kept == pytest.approx((2500 / 30000 * 0.7, 2500 / 30000))


SHOWN = [(100.0, 97.0), (101.0, 97.9), (102.0, 99.0), (99.0, 96.1)]
UNSURE = [(100.0, 97.0), (101.0, 103.0), (102.0, 92.0), (99.0, 96.0)]
SAME = [(100.0, 99.9), (101.0, 101.1), (102.0, 102.0), (99.0, 98.9)]


def test_a_cost_says_how_sure_it_is_and_has_no_false_precision() -> None:
    for pairs, words in (
        (SHOWN, "3.0 % (2.9-3.1)"),
        ([(b, a) for a, b in SHOWN], "3.1 % faster (3.0-3.2)"),
        (UNSURE, "unclear (-5 to 11 %)"),
        (SAME, "under 5 % (-0.1 to 0.2)"),
        ([(100.0, 93.0)], "7 % (measured once)"),
        ([(100.0, 90.0), (100.0, 40.0)], "unclear"),
    ):
        assert brief(of_ipsec(in_repeats(*pairs))) == words
    parts = {0.78: "22 %", 1.1: "10 % faster", 0.998: "0.2 %"}
    for ratio, said in {**parts, 0.0032: "99.7 %", 0.00001: "99.9 %"}.items():
        assert ThroughputRatio.of([ratio], is_exact=False).brief == f"{said} (measured once)"
    assert ThroughputRatio.of([0.98], is_exact=True).brief == "2 %"


def dearer(kept: float, workload: str) -> list[Record]:
    """The same, of whose protected throughput so much is kept."""
    return in_repeats(*((a, kept * b) for a, b in SHOWN), workload=workload)


def test_cells_of_one_size_are_reported_together_by_block() -> None:
    """Each alone shows nothing: their noise goes opposite ways. In each block together they lose 3 %."""
    first = in_repeats((100, 94), (100, 100), (100, 97), (100, 97))
    second = in_repeats((100, 100.1), (100, 94.2), (100, 97), (100, 97), workload="rand-read-256k")
    cells = (cell for line in build([*first, *second]).cells for cell in line if cell is not None)
    assert {cell.difference_from_unprotected for cell in cells} == {None, Difference.INCONCLUSIVE}
    answer = of_ipsec([*first, *second])
    (loss,) = answer.losses
    assert loss.compared is not None and loss.compared.difference is Difference.DIFFERENT
    assert brief(answer).startswith("3.0 % (")


def test_a_cell_that_differs_from_the_others_is_reported_by_itself() -> None:
    names = ("seq-read-256k", "rand-read-256k", "seq-write-256k")
    most = [record for name in names for record in in_repeats(*SHOWN, workload=name)]
    answer = of_ipsec([*most, *dearer(0.7, "rand-write-256k")])
    (loss,) = answer.losses
    ((name, alone),) = loss.apart
    assert name == "rand-write-256k" and alone.brief.startswith("32.1 % (") and not loss.depends
    assert brief(answer).startswith("3.0 % (")
    # Where half differ there is no common figure.
    (loss,) = of_ipsec([*in_repeats(*SHOWN), *dearer(0.7, "rand-write-256k")]).losses
    of_each = {name: one.brief.partition(" (")[0] for name, one in loss.apart}
    assert loss.depends and of_each == {"seq-read-256k": "3.0 %", "rand-write-256k": "32.1 %"}
    # Without a common block the widest of the intervals is reported.
    second = [flat.changed(each, repeat=each.repeat + 10) for each in dearer(0.9, "rand-read-256k")]
    (loss,) = of_ipsec([*in_repeats(*SHOWN), *second]).losses
    assert loss.compared is not None and loss.compared.interval == pytest.approx((0.873, 0.971), abs=0.002)
    assert loss.compared.ratio == pytest.approx(0.97 * 0.9**0.5, rel=0.01)


def reads(name: str, block: str, depth: str) -> Job:
    return Job(name=name, options=(("rw", "read"), ("bs", block), ("ioengine", "libaio"), ("iodepth", depth)))


def test_cells_of_different_depths_are_not_reported_together() -> None:
    jobs = (Job(name="seq-read-256k", options=(("rw", "read"), ("bs", "256k"))), reads("deep", "256k", "8"))
    found = [*in_repeats(*SHOWN), *in_repeats(*SHOWN, workload="deep")]
    plain, gcm = concluded(found, plan_of_them(jobs=jobs))
    assert [loss.size for loss in gcm.losses] == ["256K", "256K, 8 at a time"]
    assert [bool(loss.latency_bound_mb_s) for loss in plain.losses] == [True, False]
    # Of many sizes and depths the ends are reported.
    names = {f"{size}k-{depth}": (f"{size}k", str(depth)) for size in (4, 64, 256) for depth in (1, 8, 32)}
    many = tuple(reads(name, bs, depth) for name, (bs, depth) in names.items())
    blocks = {name: 1024 * int(name.partition("k")[0]) for name in names}
    made = (each for name in names for each in in_repeats(*SHOWN, workload=name))
    found = [flat.changed(record, block_bytes=blocks[record.workload.name]) for record in made]
    _, gcm = concluded(found, plan_of_them(jobs=many))
    assert len(gcm.losses) == 9
    assert [loss.size for loss in gcm.shown] == ["256K", "256K, 32 at a time", "4K", "4K, 32 at a time"]


def test_a_run_counts_though_a_probe_of_it_cannot_be_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    write(tmp_path, columns(), plan_of_them())
    assert _answer(folder).endswith("report.html") and (folder.path / "report.html").exists()
    (folder.path / "probes").mkdir()
    (folder.path / "probes" / "wired.tcp.r1.json").write_text("{}", encoding="utf-8")
    assert _answer(folder).startswith("none (") and "wired.tcp.r1.json" in _answer(folder)
