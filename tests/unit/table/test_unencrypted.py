"""ESP that does not encrypt is called so in every table, and nowhere is it headed "IPsec"."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from harness import explain
from harness.model import Column, Proposal, Record, Status
from harness.model.probing import Tcp
from harness.report import render as render_page
from harness.report.content import LoadedResults
from harness.results.measured import Measured
from harness.results.probe_records import ProbeRecord
from harness.table import TableFormat, build, render, views
from harness.table.comparison import CompareFormat, Comparison, compare
from harness.table.comparison import render as render_comparison
from harness.table.export import ExportFormat, encode
from tests import flat
from tests.unit.probes.test_probes import blank
from tests.unit.results_folder import made_plan
from tests.unit.table.test_table import record

NULL, GCM = Column("wired", ("null-sha256",)), Column("wired", ("aes128gcm16",))
AGREED = {
    NULL.ipsec: {"algorithm": "ecb(cipher_null) + hmac(sha256)"},
    GCM.ipsec: {"algorithm": "rfc4106(gcm(aes))"},
}


def samples(*, declared: bool, **changes: Any) -> list[Record]:
    """Of a column of each kind; without ``declared`` as an older harness wrote them."""
    return [
        record(
            10.0,
            protection=() if ipsec == "off" else (ipsec,),
            ipsec_mode=None if ipsec == "off" else "transport",
            encrypts=ipsec == GCM.ipsec if declared and ipsec != "off" else None,
            agreed={ipsec: AGREED[ipsec]} if ipsec in AGREED else {},
            repeat=repeat,
            **changes,
        )
        for ipsec in ("off", GCM.ipsec, NULL.ipsec)
        for repeat in range(1, 7)
    ]


def probes() -> list[ProbeRecord]:
    return [
        flat.changed(blank(Tcp(), ipsec), mode="transport", encrypts=ipsec == GCM.ipsec, reason="x")
        for ipsec in (GCM.ipsec, NULL.ipsec)
    ]


def compared(found: list[Record]) -> Comparison:
    """These against a run of the same."""
    again = [msgspec.structs.replace(each, run_id="r2") for each in found]
    return compare(Measured(records=found), Measured(records=again))


def one_line(text: str) -> str:
    """Without mark-up and line breaks of headings, which are in columns."""
    return re.sub(r"<br>|<[^>]*>|\\\\|\s+", " ", html.unescape(text))


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("format", [f for f in TableFormat if f not in (TableFormat.PLAIN, TableFormat.JSON)])
def test_each_format_of_the_matrix_says_so(format: TableFormat, declared: bool) -> None:
    text = one_line(render(build(samples(declared=declared)), format))
    assert "not encrypted" in text
    assert "IPsec null" not in text
    assert text.count("not encrypted") == text.count("null-sha256") > 0, "and of no other"


@pytest.mark.parametrize("declared", [True, False])
def test_the_printed_matrix_heads_it_so(declared: bool) -> None:
    lines = render(build(samples(declared=declared))).splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("---"))
    columns = [match.span() for match in re.finditer(r"-+", lines[rule])]
    headings = [" ".join(" ".join(line[slice(*span)] for line in lines[2:rule]).split()) for span in columns]
    assert headings[-3:] == [
        "wired IPsec off",
        "wired+aes128gcm16 IPsec aes128gcm16",
        "wired+null-sha256 (not encrypted) not encrypted null-sha256",
    ]


def encrypted(cells: Iterable[dict[str, Any]]) -> dict[str, bool | None]:
    return {"+".join(cell["column"]["protection"]) or "off": cell["encrypted"] for cell in cells}


@pytest.mark.parametrize("declared", [True, False])
def test_other_programs_are_reported(declared: bool) -> None:
    found = samples(declared=declared)
    cells = json.loads(render(build(found), TableFormat.JSON))["cells"]
    wanted = {"off": None, GCM.ipsec: True, NULL.ipsec: False}
    assert encrypted(cells) == wanted
    rows = [json.loads(line) for line in encode(found, ExportFormat.JSONL).splitlines()]
    assert {row["ipsec"]: row["encrypted"] for row in rows} == wanted
    both = json.loads(render_comparison(compared(found), CompareFormat.JSON))
    assert encrypted(both["cells"]) == wanted
    explained = json.loads(explain.as_json(explain.explain(found, {})))
    assert encrypted(explained["cells"]) == wanted


def test_a_column_is_one_though_its_first_cell_failed_before_anything_was_agreed_on() -> None:
    found = [record(status=Status.FAILED, protection=NULL.protection, ipsec_mode="transport", reason="x")]
    found += samples(declared=False)
    reported = [
        (column.column.ipsec, column.key.is_unencrypted) for column in build(found).columns if column.key
    ]
    assert sorted(reported) == [(GCM.ipsec, False), (NULL.ipsec, True), ("off", False)]


@pytest.mark.parametrize("format", [CompareFormat.PLAIN, CompareFormat.GITHUB])
def test_comparisons_and_explanations_say_so(format: CompareFormat) -> None:
    found = samples(declared=True)
    text = render_comparison(compared(found), format)
    cells = explain.explain(found, {})
    for said in (text, explain.text(cells)):
        assert "wired+null-sha256 (not encrypted)" in said.replace("\\", "")
        assert "wired+aes128gcm16 (not" not in said.replace("\\", "")


@pytest.mark.parametrize("format", [f for f in TableFormat if f is not TableFormat.JSON])
def test_tables_of_probes_say_so(format: TableFormat) -> None:
    text = one_line(views.render(views.build(views.View.LINK, probes()), format))
    assert "null-sha256, not encrypted" in text.replace("\\", "")
    assert text.count("not encrypted") == 1


def test_the_page_says_so() -> None:
    found = samples(declared=True, block_bytes=4096)
    text = one_line(render_page(LoadedResults(records=found, probes=probes())))
    assert "not encrypted null-sha256" in text and "wired+null-sha256 (not encrypted)" in text
    assert "IPsec null" not in text


def test_a_plan_is_printed_with_it() -> None:
    proposal = Proposal(
        name=NULL.ipsec, title="x", esp="null-sha256", ike="x", kernel_algorithms=("x",), encrypts=False
    )
    plan = made_plan(columns=(Column("wired"), NULL), proposals={NULL.ipsec: proposal})
    assert [plan.shown(column) for column in plan.columns] == ["wired", "wired+null-sha256 (not encrypted)"]
    assert [plan.encrypts(column) for column in plan.columns] == [None, False]
