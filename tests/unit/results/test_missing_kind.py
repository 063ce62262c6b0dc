"""Results of a transport, a protection, hops or a question that this harness does not have: shown, and not
judged by what only that could tell. A plan that needs one is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.analysis.wire import framing_of
from harness.model import Column, IpsecMode
from harness.model.errors import UsageError
from harness.model.protections import PROTECTIONS, missing
from harness.protection import kinds
from harness.report import load, summary
from harness.results import rules
from tests.unit.command import harness
from tests.unit.results_folder import made_plan, write
from tests.unit.table.test_table import record

STORED = Path(__file__).parents[3] / "docs" / "figures" / "protections"
HERE, GONE = "nvme-tcp", "gone-tcp"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gone") / "run"
    shutil.copytree(STORED, folder)
    for file in [*folder.rglob("*.json")]:
        file.write_bytes(file.read_bytes().replace(HERE.encode(), GONE.encode()))
        file.rename(file.with_name(file.name.replace(HERE, GONE)))
    return folder


def test_figures_of_a_transport_are_the_same(run: Path) -> None:
    words = ("--format", "jsonl")
    found, known = (harness("export", str(folder), *words, cwd=run) for folder in (run, STORED))
    assert found.returncode == known.returncode == 0, found.stderr
    assert found.stdout.replace(GONE, HERE) == known.stdout
    table = harness("table", str(run), cwd=run)
    assert table.returncode == 0 and GONE in table.stdout, table.stderr


def test_a_report_has_its_columns_and_its_plan_is_refused(run: Path, tmp_path: Path) -> None:
    done = harness("explain", str(run), cwd=tmp_path)
    assert done.returncode == 0 and f"wired.{GONE}" in done.stdout, done.stderr
    found = load([run])
    rows = summary.lines(found.answers, found, 80)
    assert f"iSCSI and {GONE} over emulated links" in " ".join(rows[:2])
    assert any(f"wired 1 Gbit/s {GONE}" in row for row in rows), rows
    done = harness("report", str(run), "-o", "page.html", cwd=tmp_path)
    assert done.returncode == 0 and GONE in (tmp_path / "page.html").read_text(encoding="utf-8")
    done = harness("run", "--resume", str(run), cwd=tmp_path)
    # Where a protection of the run was taken out, too, that one may be the first to be named.
    refused = (f"there is no transport '{GONE}'", "expected a protection that this harness has")
    assert done.returncode == 2 and any(words in done.stderr for words in refused), done.stderr


def test_nothing_is_said_of_packets_of_a_protection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = harness("export", str(STORED), "--format", "jsonl", cwd=tmp_path)
    monkeypatch.setitem(PROTECTIONS, "macsec", missing("macsec"))
    assert harness("export", str(STORED), "--format", "jsonl", cwd=tmp_path).stdout == before.stdout
    assert framing_of(("macsec",), {}, IpsecMode.TRANSPORT, 1500) is None
    assert (Column("wired", ("macsec",)).title, Column("wired", ("macsec",)).has_ipsec) == ("macsec", False)
    done = harness("explain", str(STORED), cwd=tmp_path)
    assert done.returncode == 0 and "wired+macsec" in done.stdout, done.stderr
    with pytest.raises(UsageError, match="a protection that this harness has, found macsec"):
        kinds.named("macsec")


def test_a_plan_of_two_questions_is_refused() -> None:
    with pytest.raises(UsageError, match="expected one section, found 'gone, other'"):
        rules.check(made_plan(sections={"gone": {}, "other": {}}))


def test_cells_of_a_question_are_shown_as_any_other(tmp_path: Path) -> None:
    folder = write(tmp_path, [record(5.0)], made_plan(sections={"gone": {"over": ["depth"]}}))
    for words in (("table",), ("explain",), ("report", "-o", "page.html")):
        done = harness(words[0], str(folder), *words[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "5.0" in harness("table", str(folder), cwd=tmp_path).stdout
    done = harness("run", "--resume", str(folder), cwd=tmp_path)
    assert done.returncode == 2 and "a question that this harness has, found 'gone'" in done.stderr


def test_links_with_hops_of_a_kind_are_shown_and_their_plan_is_refused(tmp_path: Path) -> None:
    run = shutil.copytree(STORED.with_name("hops-virtual"), tmp_path / "run")
    plan = run / "plan.json"
    text = plan.read_text(encoding="utf-8")
    assert '"kind":"switch"' in text
    plan.write_text(text.replace('"kind":"switch"', '"kind":"gone"'), encoding="utf-8")
    for words in (("table",), ("explain",), ("export", "--format", "jsonl")):
        done = harness(*words, str(run), cwd=tmp_path)
        assert done.returncode == 0 and "switched-4" in done.stdout, done.stderr
    done = harness("report", str(run), "-o", "page.html", cwd=tmp_path)
    assert done.returncode == 0 and "switched-4" in (tmp_path / "page.html").read_text(encoding="utf-8")
    done = harness("run", "--resume", str(run), cwd=tmp_path)
    assert done.returncode == 2 and "there is no kind of hops 'gone'" in done.stderr
