"""What README, docs and pictures show is what docs/figures/ holds, and no rate stands there by hand."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import figures, notebook, scores

HINT = "python tools/figures.py --write prints it anew"
ASKED = "It was <!-- figures: {} -->1<!-- end --> there.\n"
MOST_BYTES = 3_500_000

TEXTS = {str(page.relative_to(figures.ROOT)): page.read_text(encoding="utf-8") for page in figures.pages()}
PRINTED = [name for name, text in TEXTS.items() if figures.BLOCK.search(text)]

BY_HAND = {
    "docs/nas.md": ["gp3 has 125 MiB/s unless more is paid for"],  # what its maker publishes
    # What somebody else saw and published, and arithmetic.
    "docs/questions.md": ["1.5 Gbit/s with fio", "reads of 30 to 40 MB/s", "4K at 200 µs are 20 MB/s"],
    "docs/paths.md": ["iperf3 sending 10 Gbit/s", "UDP is sent at 1 Gbit/s"],  # what a probe sends
    # What bench/sweeps.py found in virtual time.
    "docs/scores.md": ["writes reach 33 to 36 MB/s"],
    "docs/third-party.md": ['throughput = "1.8 Gbit/s"', '"940 Mbit/s"'],  # how keys are written
    "docs/curves.md": ["up to 26 500 IOPS, 108 MB/s"],  # an example of a sentence
    "docs/results.md": ["moves more than 1 GB/s"],  # a threshold
    # What was tried in November 2026, and led to a decision.
    "docs/decisions.md": ["| local disk, 4K | 142 / 139 |"],
    # Printed by bench/published.py, exact in virtual time; and what somebody else saw and published.
    "docs/articles.md": ["| **iSCSI over 802.11b** "],
    "docs/lab-kernel.md": ["90.64 MB/s"],  # of the history that was bisected there, in virtual time
}
"""Rates that are not printed from docs/figures/, by page, and why they need not be."""

UNIT = r"(?:[kKMG]i?(?:B|bit)|MB)/s"
RATE = re.compile(rf"\d[\d.,]*\s*{UNIT}")
FIGURES = re.compile(r"(?:[|/]|\s{2})\s*\d+\.\d", re.MULTILINE)  # in a cell of its own


def unheld(text: str) -> Iterator[str]:
    """Paragraphs with a rate, and tables below such a heading, that no marker holds."""
    last = ""
    for part in re.split(r"\n\s*\n", figures.BLOCK.sub("", text)):
        is_table = part.startswith(("|", "    "))
        if RATE.search(part) or (is_table and re.search(UNIT, last + part) and FIGURES.search(part)):
            yield part
        last = part


@pytest.mark.parametrize("page", PRINTED)
def test_a_page_shows_what_was_measured(page: str) -> None:
    shown, differing = with_figures(TEXTS[page])
    assert (shown, differing) == (TEXTS[page], []), f"{HINT}: {differing}"


@pytest.mark.parametrize("kind", figures.DRAWN)
def test_a_picture_shows_what_was_measured(kind: str) -> None:
    drawn = (figures.ROOT / figures.PICTURES / f"{kind}.svg").read_text(encoding="utf-8")
    assert drawn == figures.picture(kind), HINT


def test_the_picture_of_the_report_is_of_the_same_run() -> None:
    png = (figures.ROOT / figures.PICTURES / "report.png").read_bytes()
    plan = json.loads((figures.folder("make-run") / "plan.json").read_bytes())
    assert figures.shows(png, plan["run_id"]), HINT


@pytest.mark.thorough
def test_the_notebook_s_cells_print_what_is_stored() -> None:
    stored = notebook.load()
    assert notebook.printed(notebook.executed(stored)) == notebook.printed(stored), HINT


@pytest.mark.parametrize("page", TEXTS)
def test_no_rate_is_written_by_hand(page: str) -> None:
    allowed = BY_HAND.get(page, [])
    found = [part for part in unheld(TEXTS[page]) if not any(words in part for words in allowed)]
    assert not found, "print it from docs/figures/, delete it, or say in BY_HAND why it stays"
    assert all(words in TEXTS[page] for words in allowed), "BY_HAND names what is no longer there"


def test_a_rate_that_is_written_by_hand_is_found_and_one_that_is_printed_is_not() -> None:
    printed = "<!-- figures: value make-run wired seq-read-4k -->1.5<!-- end --> MB/s"
    tables = (
        "MB/s:\n\n| | gcm |\n|---|---|\n| 4K | 44.7 / 51.4 |",
        "Where:\n\n    link    MB/s\n    wired   105.3",
    )
    for text in ("Reads took 52 MB/s.", "It was 1.5\nGB/s there.", *tables, f"{printed}, once 2.5 MB/s"):
        assert list(unheld(text)), text
    assert not list(unheld(f"{printed} of 4K"))


def test_what_is_stored_is_shown_with_its_command_is_small_and_names_no_folder_of_the_machine() -> None:
    blocks = (block for text in TEXTS.values() for block in figures.BLOCK.finditer(text))
    asked = {word for block in blocks for word in block["asked"].split()}
    folders = {file.name for file in (figures.ROOT / figures.FIGURES).iterdir() if file.is_dir()}
    assert folders == {*figures.RUNS, scores.FOLDER.name} and {*figures.RUNS} <= asked

    # More options behind a command are those of a trial, which docs/figures/README.md shows.
    for name, words in figures.RUNS.items():
        assert figures.measured(name)["command"].startswith(f"harness {shlex.join(words)}")
    files = [file for file in (figures.ROOT / figures.FIGURES).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    ours = [str(figures.ROOT), str(Path.home()), "/tmp/"]
    assert not [file for file in files if any(folder in file.read_text() for folder in ours)]


def with_figures(page: str) -> tuple[str, list[str]]:
    """The page with its figures printed anew, and what differed."""
    differing: list[str] = []
    return figures.page_with(page, differing.append), differing


def test_a_figure_that_differs_is_mended_lines_are_a_block_of_code_and_rows_a_table() -> None:
    page, differing = with_figures(ASKED.format("value make-run wired seq-read-256k"))
    assert [one.split(":")[0] for one in differing] == ["value make-run wired seq-read-256k"]
    assert with_figures(page) == (page, [])
    asked = "<!-- figures: {} -->\n<!-- end -->\n"
    code, table = (with_figures(asked.format(of))[0] for of in ("command protections", "hops hops-virtual"))
    assert code.splitlines()[1] == "" and "harness run" in code.splitlines()[2]
    assert table.splitlines()[2].startswith("| link |")


def test_what_cannot_be_printed_stays_and_says_why() -> None:
    for asked, why in (
        ("table nothing", "nothing"),
        ("value make-run wired nothing", "expected a cell"),
        ("value make-run", "missing"),
        ("command protections | lines 3-9", "expected lines 1 to"),
        ("nothing make-run", "No such command"),
        ("command protections", "more than a line"),
    ):
        page, (differing,) = with_figures(ASKED.format(asked))
        assert page == ASKED.format(asked) and why in differing, asked
    # A marker in a sentence does not begin a line.
    _, (differing,) = with_figures(ASKED.format("command protections").replace(" <", "\n<", 1))
    assert differing == "command protections: a marker within a sentence may not begin a line"
