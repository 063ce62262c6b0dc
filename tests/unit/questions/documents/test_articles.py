"""What the articles asked: answers follow from the figures, and what is missing is named with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import typer

from harness.hosts import state
from harness.model import Record, Status
from harness.model.errors import BusyError, RequirementError, TestbedError
from harness.model.probing import Forwarding, ForwardingFigures, SocketUse
from harness.parse import references
from harness.parse.profiles import load_link
from harness.planning import plan, probe_plan
from harness.planning.probe_plan import ProbeRequest
from harness.planning.request import RunRequest
from harness.questions.documents import answers as answering
from harness.questions.documents import command, page
from harness.questions.documents.answers import Answer
from harness.questions.documents.experiments import experiments
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder
from harness.runs.prober import questions
from harness.table import Options, build, views
from tests import flat
from tests.unit.command import harness
from tests.unit.planning.test_custom_kernel import built  # noqa: F401  (a fixture)
from tests.unit.probes.test_probes import blank
from tests.unit.questions.documents.probed import DISTURBED, OWN, answers, on
from tests.unit.report.test_report import Page
from tests.unit.table.test_table import repeats
from tests.unit.table.test_views import latency, tcp

pytestmark = pytest.mark.thorough

Typed = list[list[str]]


def switches(*mean_ns: float, **changes: object) -> list[ProbeRecord]:
    return [on(latency(each, SocketUse.KEPT), f"switched:{n}", **changes) for n, each in enumerate(mean_ns)]


@pytest.mark.parametrize("name", references.names())
def test_every_question_is_of_figures_that_are_shown(name: str) -> None:
    view = references.view_of(name)
    if view is None:
        matrix = references.load_reference(name)
        places = {f"{c.link}+on" if c.protection else c.link for c in matrix.columns}
        assert matrix.ask and {link for ask in matrix.ask for link in ask.links} <= places
        return
    reference = references.load_path_reference(name)
    keys = {field.key for field in views.build(views.View(view), [tcp(1e6)]).fields}
    probed = {load_link(link).name for link in probe_plan.load_profile(name).links}
    assert reference.ask
    for link, slower in reference.slower.links.items():
        here, there = load_link(link), load_link(slower)
        assert here.name in probed and here.rate_bit_s == reference.slower.by * (there.rate_bit_s or 0)
    for ask in reference.ask:
        assert ask.figure in keys and {load_link(link).name for link in ask.links} <= probed
    assert {load_link(row.link).name for row in reference.row if row.link} <= probed


@pytest.mark.usefixtures("built")
def test_every_article_has_experiments_that_can_be_planned() -> None:
    assert {one.article for one in experiments()} == set(references.names())
    for one in experiments():
        assert (one.virtual is None) is bool(one.no_virtual)
        for virtual in (False, True) if one.virtual is not None else (False,):
            for quick in (False, True):
                done = harness(*one.words(virtual=virtual, quick=quick), "--plan", cwd=Path("/"))
                assert done.returncode == 0, done.stderr


def test_what_a_switch_adds_is_the_slope() -> None:
    ours, virtual = switches(1e5, 2e5, 3e5, 4e5, 5e5), switches(1e4, 4e4, 7e4, 10e4, 13e4, **OWN)
    found, reopened = answers("switches", *ours, *virtual)
    more = {"measured": "100", "in virtual time": "30", "in the switches article": "29.1"}
    assert dict(found.figures) == {of: f"{us} µs more" for of, us in more.items()}
    assert "as in the switches article; links and protocols account for all of what" in found.conclusion
    assert list(found.bars.bars) == ["no switch", "1 switch", "2 switches", "3 switches", "4 switches"]
    ours_and_theirs = {answering.MEASURED: 200, answering.VIRTUAL: 40, "in the switches article": 271}
    assert found.bars.bars["1 switch"] == ours_and_theirs
    assert reopened.conclusion.startswith("No answer of our own: there is no figure of switched:0")
    uneven, _ = answers("switches", *switches(1e5, 2e5, 1.5e5, 4e5, 5e5))
    assert "do not rise with each step" in uneven.conclusion


def test_packets_are_compared_with_what_the_links_rate_allows() -> None:
    (found,) = answers("packet-rate")
    assert (
        dict(found.figures)["in the packet-rate article"] == "8000 per second"
    )  # not the 8210 of which 85 % were lost
    assert found.whom == ""
    software = "the cause is the processors and the software, not the link"
    for per_s, whom in ((30_000, software), (1_400_000, "the cause is the link")):
        figures = ForwardingFigures(offered_per_s=per_s, arrived_per_s=per_s, lost_percent=0.0)
        (found,) = answers("packet-rate", on(blank(Forwarding()), "wired", status=Status.OK, figures=figures))
        # IEEE 802.3: 64 bytes and 20 of preamble and gap.
        said = f"Packets over the link without loss: {per_s} per second, of 1488095 that its rate allows"
        assert found.whom == f"{whom}. {said}"


def test_a_figure_of_the_lab_s_processor_is_signed_with_virtual_times() -> None:
    def values(real: float, **changes: object) -> list[str]:
        made = [on(tcp(real * 1e6), "routed", **changes), on(tcp(400e6), "routed", **OWN)]
        grid = views.build(views.View.OPENFLOW, made)
        field = next(field for field in grid.fields if field.key == "tcp_received_mbit_s")
        has_note = any(note.startswith("lab: limited by the lab") for note in grid.notes)
        texts = [row.entries[field.key].text(field) for row in grid.rows]
        assert has_note is any(text.endswith(" lab") for text in texts)
        return texts

    assert values(200) == ["200.0 lab", "400.0"]
    assert values(390) == ["390.0", "400.0"]
    # Real machines have processors of their own, and what others disturbed has its sign already.
    assert values(200, testbed="host") == ["200.0", "400.0"]
    assert values(200, **DISTURBED) == ["200.0 ! [1]", "400.0"]


def matrix(plain: Sequence[float], ipsec: Sequence[float], **changes: Any) -> list[Record]:
    """Repeats of one row: of wired, and of wired with IPsec."""
    row = {"link": "wired", "workload": "seq-read-256k"}
    made = [*repeats(*plain, **row), *repeats(*ipsec, **row, protection=("aes128gcm16",))]
    return [flat.changed(record, **changes) for record in made]


VIRTUAL = matrix([40], [36], **OWN, run_id="r2", disk="hdd-7200")


def of_matrix(records: Sequence[Record]) -> list[Answer]:
    reference = references.load_reference("iscsi-ipsec")
    return answering.of_matrix(reference, build(records, Options(reference=reference)) if records else None)


def test_of_a_matrix_all_rows_are_compared() -> None:
    six = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95]
    ours = matrix([40 * f for f in six], [10 * f for f in six])
    wired, wifi, local, _ = of_matrix([*ours, *VIRTUAL])
    assert "expected one column of local, found none" in local.conclusion
    assert wifi.conclusion.startswith("No answer of our own")
    assert dict(wired.figures) == {
        "measured": "-75 % in 1 workload (median -75 %)",
        "in virtual time": "-10 % in 1 workload (median -10 %)",
        "in the iSCSI article": "-1 % to -78 % in 8 workloads (median -46 %)",
    }
    assert "here in 1 of our 1 workloads; the iSCSI article shows a loss in 6 of 8" in wired.conclusion
    # 1/36 - 1/40 of 1/15.86 - 1/28.86
    explained = "links, disk and protocols account for 10 % of what the iSCSI article lost"
    assert explained in wired.conclusion
    # Without figures of ours it shows the article's, and virtual time explains it.
    assert all(answer.conclusion.startswith("No answer of our own") for answer in of_matrix([]))
    assert f"No answer of our own: there are no figures; {explained}" in of_matrix(VIRTUAL)[0].conclusion


def run_of_probes(
    folder: Path, profile: str, figures: Callable[[str], ProbeRecord], *, virtual: bool = False
) -> Path:
    """A run of `harness probe --profile`, each of its probes with figures, or failed."""
    asked, request = probe_plan.load_profile(profile), ProbeRequest(profile=profile)
    clock = OWN if virtual else {}
    made = probe_plan.make_plan(request.on(asked), request.asked(asked), profile)
    made = flat.changed(made, **clock)
    run = RunFolder(folder / made.run_id)
    run.save_plan(made)
    for question in questions(made):
        known, probe = figures(question.column.link), question.probe
        facts: dict[str, Any] = {"status": Status.OK}
        if type(known.probe) is not type(probe):
            known, facts = blank(probe), {"status": Status.SKIPPED, "reason": "iperf3 <b>is missing</b>"}
        facts |= {"probe": probe, "column": question.column, "run_id": made.run_id, **clock}
        run.save_probe(flat.changed(known, **facts))
    return run.path


def articles(cwd: Path, *words: str, ends: int = 0) -> CompletedProcess[str]:
    done = harness("reproduce", *words, cwd=cwd)
    assert done.returncode == ends, done.stderr
    return done


def test_the_page_has_each_article_with_its_reasons(tmp_path: Path) -> None:
    run_of_probes(tmp_path, "packet-rate", lambda _: tcp(1e8))
    done = articles(tmp_path, str(tmp_path), "-o", str(tmp_path / "d.html"))
    text = (tmp_path / "d.html").read_text()
    said = "".join(Page(text).text)
    for name in references.names():
        load = references.load_path_reference if references.view_of(name) else references.load_reference
        question = load(name).question
        assert question in said and question in done.stdout
    missing = ("no run of `harness run --profile basic`", "iperf3 <b>is missing</b>")
    for words in ("8000 per second", *missing):
        assert words in done.stdout and words.replace("`", "") in said
    assert "<script" not in text and "default-src 'none'" in text
    assert "<figure" in text and text.count("<figure") == text.count("bars of what the article has")
    assert "4 <" not in text and f"{len(references.names())} articles; 1 run of ours" in said


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Commands measure at once, all but the matrix; their words. The custom kernel is not built."""
    typed: Typed = []

    def measure(words: list[str], _context: typer.Context) -> int:
        typed.append(words)
        if "--resume" in words:
            return 1
        if words[0] == "run":
            raise TestbedError("the lab did not boot", hint="try again")
        run_of_probes(Path(words[-1]), words[words.index("--profile") + 1], lambda _: tcp(1e8))
        return 1  # the pings are skipped

    def not_built(_key: str = "") -> None:
        raise RequirementError("it has not been built", hint="make lab-kernel")

    monkeypatch.setattr(command, "harness", measure)
    monkeypatch.setattr("harness.testbeds.lab.kernels.kernel.custom_kernel", not_built)
    return typed


def test_what_is_lacking_is_measured_and_failures_do_not_end_it(tmp_path: Path, lab: Typed) -> None:
    done = articles(tmp_path, "runs", "--run", ends=1)
    profiles = [words[words.index("--profile") + 1] for words in lab]
    first = ["pppoe", "openflow", "openflow-tenth", "packet-rate"]
    assert profiles == [*first, "basic", "iscsi-ipsec", "switches"]
    assert not any("--virtual-time" in words for words in lab)
    for words in ("the lab did not boot", "Not measured in virtual time", "make lab-kernel"):
        assert words in done.stdout
    assert (tmp_path / "runs" / "articles.html").is_file()


def test_a_testbed_in_use_is_waited_for(tmp_path: Path, lab: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder is looked for again and again, and the command tried once it is gone."""
    measure = command.harness
    busy = iter([True, True, False])
    holders = iter([state.Owner(1, "r1", "now")] * 2 + [None] + [state.Owner(2, "r2", "now"), None])

    def in_use(words: list[str], context: typer.Context) -> int:
        if next(busy):
            raise BusyError("the testbed is in use by run r1", hint="wait for it")
        return measure(words, context)

    monkeypatch.setattr(command, "harness", in_use)
    monkeypatch.setattr(command, "LOOK_S", 0.0)
    monkeypatch.setattr(state, "owner", lambda: next(holders))
    done = articles(tmp_path, str(tmp_path), "--run", "--article", "switches")
    assert len(lab) == 1 and next(holders, "all asked") == "all asked"
    assert done.stderr.count("waiting: the testbed is in use by run r1") == 2


def test_what_was_only_skipped_is_no_failure(tmp_path: Path, lab: Typed) -> None:
    words, results = ("--run", "--quick", "--article", "switches"), tmp_path / "results/articles-quick"
    done = articles(tmp_path, *words)
    assert (results / "articles.html").is_file()
    assert "--count" in lab[0] and "The packet-rate article" not in done.stdout
    # What was skipped may be possible now.
    articles(tmp_path, *words)
    (run,) = results.glob("*/")
    assert lab[1:] == [["probe", "--resume", str(run)]]


def test_a_run_that_broke_off_is_shown(tmp_path: Path, lab: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    run_of_probes(tmp_path, "packet-rate", lambda _: tcp(1e8))

    def broken(words: list[str], _context: typer.Context) -> int:
        assert words[:2] == ["probe", "--resume"]
        raise TestbedError("the guest has stalled")

    monkeypatch.setattr(command, "harness", broken)
    done = articles(tmp_path, str(tmp_path), "--run", "--article", "packet-rate", ends=1)
    assert "Not all of it was measured: `harness probe --profile packet-rate`: the guest has" in done.stdout
    assert not lab


def test_what_is_there_is_not_measured_again(tmp_path: Path, lab: Typed) -> None:
    made = plan.make_plan(RunRequest(repeats=1))
    run = RunFolder(tmp_path / made.run_id)
    run.save_plan(made)
    for column in made.columns:
        for job in made.jobs:
            place = {"link": column.link, "protection": column.protection, "workload": job.name}
            run.save_record(*repeats(10.0, **place, run_id=made.run_id))
    done = articles(tmp_path, str(tmp_path), "--run", "--article", "iscsi-ipsec")
    assert [words[2] for words in lab] == ["iscsi-ipsec"] and f"there is {run.path} already" in done.stderr


def test_without_runs_there_are_the_articles_and_a_hint(tmp_path: Path) -> None:
    assert "switches" in articles(tmp_path, "--article", "switch", ends=2).stderr
    assert "harness reproduce --run" in articles(tmp_path, ends=2).stderr
    assert not any(tmp_path.iterdir())
    lines = page.text(page.load([tmp_path], ["iscsi-ipsec"]), width=80).splitlines()
    assert max(len(line) for line in lines if not line.startswith("Published")) <= 80
