"""What a column costs and why, in sentences: what is compared, what is left out, what is said of doubt."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.cli.run import _answer
from harness.explain import Explained, Limit, explain
from harness.explain.answer import Answer, Loss, answers, in_words
from harness.model import Record, Status
from harness.report import load
from harness.results.store import RunFolder
from harness.table import build
from tests.unit.results_folder import write
from tests.unit.test_disturbed_results import spoilt
from tests.unit.test_explain import columns, plan_of_them

WIDTH = 80
OLD = Path(__file__).parents[1] / "data" / "schema-1" / "results"


def told(records: list[Record]) -> list[Answer]:
    plans = {"r1": plan_of_them()}
    return answers(build(records, plans=plans), explain(records, plans))


def test_each_column_over_a_network_is_compared_with_the_one_below_it() -> None:
    found = told(columns())
    assert [(answer.subject, answer.baseline) for answer in found] == [
        ("iSCSI over wired", "the local disk"),
        ("IPsec null-sha256 over wired", "the same link without it"),
        ("IPsec aes128gcm16 over wired", "the same link without it"),
    ]
    kept = [loss.kept for answer in found for loss in answer.losses]
    assert kept == [pytest.approx((part,)) for part in (60 / 2500, 2500 / 5000, 2500 / 30000)]


def test_transport_and_tunnel_mode_are_two_columns() -> None:
    found = load([OLD]).answers
    subjects = [answer.subject for answer in found]
    assert {"IPsec aes128gcm16 over Gigabit Ethernet", "IPsec aes128gcm16 tunnel over Gigabit Ethernet"} <= {
        *subjects
    }
    for answer in found:
        assert {cell.evidence.column for loss in answer.losses for cell in loss.cells} <= {
            answer.column.label
        }


def test_cost_cause_and_remedy_are_a_sentence_each() -> None:
    gcm = told(columns())[-1]
    assert gcm.cost == "IPsec aes128gcm16 over wired: -92 % at 256K, beside the same link without it."
    assert gcm.cause == "Limited by crypto work (confidence medium)."
    assert gcm.help.startswith(
        "A cipher that takes half the time would lift seq-read-256k from 8.72 to between "
    )
    lines = in_words([gcm], WIDTH).splitlines()
    assert max(map(len, lines)) <= WIDTH and all(line.startswith("  ") for line in lines[1:])


@pytest.mark.parametrize(
    ("limit", "either", "name", "is_told"),
    [
        (Limit.CPU, {}, "aes128gcm16", True),
        (Limit.UNKNOWN, {Limit.CPU: (0.2, 0.4), Limit.CRYPTO: (0.4, 0.6)}, "aes128gcm16", True),
        (Limit.CRYPTO, {}, "aes128gcm16", False),
        (Limit.CPU, {}, "null-sha256", False),
    ],
)
def test_segmentation_offload_is_named_where_packets_may_be_what_limits(
    limit: Limit, either: dict[Limit, tuple[float, float]], name: str, is_told: bool
) -> None:
    cells = [
        msgspec.structs.replace(
            cell, verdict=msgspec.structs.replace(cell.verdict, limited_by=limit, either=either)
        )
        for cell in explain(columns(), {"r1": plan_of_them()})
    ]
    found = answers(build(columns(), plans={"r1": plan_of_them()}), cells)
    (answer,) = (each for each in found if each.column.protection == (name,))
    assert answer.losses[0].block_bytes == 256 << 10
    assert ("esp4_offload" in answer.help) is is_told
    assert ("esp4_offload" in " ".join(answer.sentences)) is is_told


def judged_labs(records: list[Record], *labs: str) -> list[Explained]:
    """The cells, of which those of some columns are the lab's own."""
    return [
        msgspec.structs.replace(cell, verdict=msgspec.structs.replace(cell.verdict, limited_by=Limit.LAB))
        if cell.evidence.column in labs
        else cell
        for cell in explain(records, {"r1": plan_of_them()})
    ]


def test_a_loss_beside_a_figure_of_the_lab_is_no_answer() -> None:
    table = build(columns(), plans={"r1": plan_of_them()})
    plain, _, gcm = answers(table, judged_labs(columns(), "wired"))
    assert plain.losses and not plain.labs_own
    assert gcm.labs_own == ("seq-read-256k",) and not gcm.losses
    assert gcm.cost.endswith("no answer, because its figures, or those beside it, are the lab's own.")
    assert not (gcm.left_out or gcm.cause or gcm.help)


def test_a_column_that_the_lab_limits_is_no_answer_and_concerns_no_other() -> None:
    table = build(columns(), plans={"r1": plan_of_them()})
    _, null, gcm = answers(table, judged_labs(columns(), "wired+null-sha256"))
    assert null.labs_own and not null.losses
    assert gcm.losses and not gcm.labs_own


def test_an_answer_says_what_it_leaves_out() -> None:
    (whole,) = [found for found in told(columns()) if found.column.protection == ("aes128gcm16",)]
    left = msgspec.structs.replace(whole, labs_own=("seq-read-4k", "rand-read-4k"))
    words = (
        "seq-read-4k, rand-read-4k are left out, because the lab limits there, not the link that it imitates."
    )
    assert left.left_out == words
    assert words in " ".join(in_words([left], WIDTH).split())


def test_disturbed_or_missing_figures_are_no_answer() -> None:
    disturbed = [spoilt(r) if r.column.ipsec == "off" and r.link == "wired" else r for r in columns()]
    *_, gcm = told(disturbed)
    assert gcm.cost.endswith("no answer, because its figures, or those beside it, are disturbed.")
    assert not gcm.cause and not gcm.help
    failed = [
        msgspec.structs.replace(r, status=Status.FAILED, reason="x") if r.column.ipsec == "aes128gcm16" else r
        for r in columns()
    ]
    assert told(failed)[-1].cost.endswith("no answer, because a figure is missing.")


def test_disturbed_figures_give_bounds_and_no_cause() -> None:
    """5000 ns beside 30 000 ns: a fifth taken of each may have cost 30 % of its throughput."""
    disturbed = [spoilt(r, 0.2) for r in columns()]
    _, null, gcm = told(disturbed)
    (loss,) = gcm.losses
    assert loss.kept == pytest.approx((2500 / 30000 * 0.7, 2500 / 30000 / 0.7)) and loss.is_disturbed
    loss_in_words = "between -94 and -88 % at 256K (disturbed)"
    assert gcm.cost == f"IPsec aes128gcm16 over wired: {loss_in_words}, beside the same link without it."
    assert "between -65 and -29 %" in null.cost
    assert gcm.cause.endswith("because the figures are disturbed.") and not gcm.help


def test_one_disturbed_side_widens_one_bound() -> None:
    bare = [spoilt(r, 0.2) if not r.column.protection else spoilt(r, 0.0) for r in columns()]
    (loss,) = told(bare)[-1].losses
    assert loss.kept == pytest.approx((2500 / 30000 * 0.7, 2500 / 30000))


def test_without_the_local_disk_an_unprotected_column_has_nothing_beside_it() -> None:
    found = told([record for record in columns() if record.link == "wired"])
    assert [answer.column.protection for answer in found] == [("null-sha256",), ("aes128gcm16",)]


@pytest.mark.parametrize(
    ("kept", "is_shown", "words"),
    [
        ((0.22, 0.2), True, "-78 to -80 % at 256K"),
        ((0.75, 0.7504), True, "-25 % at 256K"),
        ((1.1, 1.01), True, "+1 to +10 % at 256K"),
        ((0.999,), False, "0 % at 256K (no difference shown)"),
        ((0.0032, 0.001), True, "-99.7 to -99.9 % at 256K"),
        ((0.00001,), True, "-99.9 % at 256K"),
        ((0.0,), True, "-100 % at 256K"),
    ],
)
def test_losses_have_a_sign_and_no_false_precision(
    kept: tuple[float, ...], is_shown: bool, words: str
) -> None:
    assert Loss(block_bytes=1 << 18, kept=kept, is_shown=is_shown, cells=()).words == words


def test_a_run_counts_though_a_probe_of_it_cannot_be_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    write(tmp_path, columns(), plan_of_them())
    assert _answer(folder).endswith("report.html") and (folder.path / "report.html").exists()
    (folder.path / "probes").mkdir()
    (folder.path / "probes" / "wired.tcp.r1.json").write_text("{}", encoding="utf-8")
    assert _answer(folder).startswith("none (") and "wired.tcp.r1.json" in _answer(folder)
