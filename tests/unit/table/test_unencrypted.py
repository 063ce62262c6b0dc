"""ESP that does not encrypt is called so in every table, and nowhere is it headed "IPsec"."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import msgspec
import pytest

from harness.explain import explain
from harness.explain.text import as_json
from harness.explain.text import text as in_words
from harness.model import Column, Proposal, Record, Status
from harness.model.probing import Tcp
from harness.report import render as render_page
from harness.report.content import LoadedResults
from harness.results.measured import Measured
from harness.table import TableFormat, build, comparison, export, render, views
from tests import flat
from tests.unit.probes.test_probes import blank
from tests.unit.results_folder import made_plan
from tests.unit.table.test_table import record, repeats

NULL, GCM = Column("wired", ("null-sha256",)), Column("wired", ("aes128gcm16",))
OF_NULL, OF_GCM = "ecb(cipher_null) + hmac(sha256)", "rfc4106(gcm(aes))"


def samples(*, declared: bool, **changes: Any) -> list[Record]:
    """Of a column of each kind; without ``declared`` as an older harness wrote them."""
    known: list[dict[str, Any]] = [{}]
    for column, algorithm in ((GCM, OF_GCM), (NULL, OF_NULL)):
        agreed = {column.ipsec: {"algorithm": algorithm}}
        known.append({"protection": column.protection, "ipsec_mode": "transport", "agreed": agreed})
        known[-1]["encrypts"] = column == GCM if declared else None
    return [each for facts in known for each in repeats(*[10.0] * 6, **facts, **changes)]


def compared(found: list[Record]) -> comparison.Comparison:
    again = [msgspec.structs.replace(each, run_id="r2") for each in found]
    return comparison.compare(Measured(records=found), Measured(records=again))


def one_line(text: str) -> str:
    """Without mark-up and line breaks of headings, which are in columns."""
    return re.sub(r"<br>|<[^>]*>|\\\\|\s+", " ", html.unescape(text))


@pytest.mark.parametrize("declared", [True, False])
def test_each_format_of_the_matrix_says_so_and_the_printed_one_heads_it_so(declared: bool) -> None:
    table = build(samples(declared=declared))
    for format in set(TableFormat) - {TableFormat.TEXT, TableFormat.JSON}:
        text = one_line(render(table, format))
        assert "not encrypted" in text, format
        assert "IPsec null" not in text, format
        assert text.count("not encrypted") == text.count("null-sha256") > 0, f"{format}: and of no other"
    lines = render(table).splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("---"))
    columns = [match.span() for match in re.finditer(r"-+", lines[rule])]
    headings = [" ".join(" ".join(line[slice(*span)] for line in lines[2:rule]).split()) for span in columns]
    names = ["wired", "wired+aes128gcm16", "wired+null-sha256 (not encrypted)"]
    kinds = ["IPsec off", "IPsec aes128gcm16", "not encrypted null-sha256"]
    assert headings[-3:] == [" ".join(both) for both in zip(names, kinds, strict=True)]


@pytest.mark.parametrize("declared", [True, False])
def test_other_programs_are_reported(declared: bool) -> None:
    found = samples(declared=declared)
    wanted = {"off": None, GCM.ipsec: True, NULL.ipsec: False}
    rows = [json.loads(line) for line in export.encode(found, export.ExportFormat.JSONL).splitlines()]
    assert {row["ipsec"]: row["encrypted"] for row in rows} == wanted
    for text in (
        render(build(found), TableFormat.JSON),
        comparison.render(compared(found), comparison.CompareFormat.JSON),
        as_json(explain(found, {})),
    ):
        cells = json.loads(text)["cells"]
        names = ("+".join(cell["column"]["protection"]) or "off" for cell in cells)
        assert dict(zip(names, (cell["encrypted"] for cell in cells), strict=True)) == wanted


def test_a_column_is_one_though_its_first_cell_failed_before_anything_was_agreed_on() -> None:
    failed = record(status=Status.FAILED, protection=NULL.protection, ipsec_mode="transport", reason="x")
    columns = build([failed, *samples(declared=False)]).columns
    reported = [(each.column.ipsec, each.key.is_unencrypted) for each in columns if each.key]
    assert sorted(reported) == [(GCM.ipsec, False), (NULL.ipsec, True), ("off", False)]


def test_comparisons_explanations_tables_of_probes_and_the_page_say_so() -> None:
    found = samples(declared=True)
    both, formats = compared(found), (comparison.CompareFormat.TEXT, comparison.CompareFormat.MARKDOWN)
    texts = [comparison.render(both, format) for format in formats]
    for said in (*texts, in_words(explain(found, {}))):
        assert "wired+null-sha256 (not encrypted)" in said.replace("\\", "")
        assert "wired+aes128gcm16 (not" not in said.replace("\\", "")
    made = [(blank(Tcp(), column.ipsec), column == GCM) for column in (GCM, NULL)]
    probed = [flat.changed(probe, encrypts=of, mode="transport", reason="x") for probe, of in made]
    for format in set(TableFormat) - {TableFormat.JSON}:
        text = one_line(views.render(views.build(views.View.LINK, probed), format))
        assert "null-sha256, not encrypted" in text.replace("\\", ""), format
        assert text.count("not encrypted") == 1, format
    found = samples(declared=True, block_bytes=4096)
    text = one_line(render_page(LoadedResults(records=found, probes=probed)))
    assert "not encrypted null-sha256" in text and "wired+null-sha256 (not encrypted)" in text
    assert "IPsec null" not in text


def test_a_plan_is_printed_with_it_and_of_a_program_s_tunnel_nobody_knows() -> None:
    """OpenVPN may have ``cipher none``."""
    tunnel, both = Column("vpn", ("tunnel",)), Column("vpn", ("tunnel", "null-sha256"))
    gcm = Column("vpn", ("tunnel", GCM.ipsec))
    proposal = Proposal(name=GCM.ipsec, title="x", esp="x", ike="x", kernel_algorithms=("x",))
    null = msgspec.structs.replace(proposal, name=NULL.ipsec, encrypts=False)
    proposals = {each.name: each for each in (proposal, null)}
    plan = made_plan(columns=(Column("vpn"),), proposals=proposals)
    found = [plan.encrypts(column) for column in (tunnel, both, gcm, GCM, NULL, Column("vpn"))]
    assert found == [None, None, True, True, False, None]
    assert [plan.shown(column) for column in (GCM, NULL)] == [GCM.label, "wired+null-sha256 (not encrypted)"]
    agreed = {"tunnel": {"tunnel": "OpenVPN", "interface": "tun0"}}
    of_old = [record(10.0, link="vpn", protection=("tunnel",), encrypts=True, agreed=agreed)]
    (cell,) = json.loads(render(build(of_old), TableFormat.JSON))["cells"]
    (row,) = (json.loads(line) for line in export.encode(of_old, export.ExportFormat.JSONL).splitlines())
    assert cell["encrypted"] is row["encrypted"] is None
    assert "and whether it encrypts is unknown." in one_line(render(build(of_old)))
