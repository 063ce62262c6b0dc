"""A record that cannot be read costs itself alone: it is named, with status 1, and the others are shown."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from harness.analysis.schedule import Schedule
from harness.cli import MOST_NAMED
from harness.model import unread
from harness.model.errors import Unreadable
from harness.results.store import RunFolder, open_results
from tests import flat
from tests.unit.command import harness
from tests.unit.results.test_results import fio_job, write_fio
from tests.unit.results_folder import made_plan, write
from tests.unit.table.test_table import record

RUNS = Path(__file__).parents[2] / "data" / "results"
RUN, OTHER = "20261121-223206-9146", "other"
BAD = "wired+aes128gcm16.rand-read-4k.r1.json"
COMMANDS = [
    f"{words} {RUN}" for words in ("table", "explain", "explain --summary", "report", "plot matrix", "export")
]
COMMANDS += ["table .", f"compare {RUN} {OTHER}", f"run --resume ./{RUN} --plan"]


def damaged(folder: Path) -> Path:
    """The run, with records as they are written now, and ``protected_bytes`` below zero in one of them."""
    run = RunFolder(folder / RUN)
    shutil.copytree(RUNS / RUN, run.path)
    for found in run.load_records():
        run.save_record(found)
    file = run.path / "cells" / BAD
    text, count = re.subn(r'"protected_bytes": \d+', '"protected_bytes": -1484', file.read_text(), count=1)
    assert count
    file.write_text(text)
    return file


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_shows_the_rest_and_names_the_record(tmp_path: Path, words: str) -> None:
    damaged(tmp_path)
    if OTHER in words:
        write(tmp_path, [flat.changed(r, run_id=OTHER) for r in RunFolder(RUNS / RUN).load_records()])
    done = harness(*words.split(), cwd=tmp_path)
    # The runs to compare have one repeat of each cell, which cannot be judged.
    assert done.returncode == (3 if OTHER in words else 1), done
    assert done.stdout or words.startswith(("report", "plot"))
    (named,) = (line for line in done.stderr.splitlines() if BAD in line and "not a readable" in line)
    said = f"{RUN}/cells/{BAD} is not a readable record: Expected `int` >= 0 - at `$.proof.protected_bytes`"
    assert named.endswith(said)
    assert f"measure it again with 'harness run --resume ./{RUN}'" in done.stderr


def test_what_is_kept_says_that_it_is_incomplete(tmp_path: Path) -> None:
    file = damaged(tmp_path)
    sentence = f"Incomplete: {RUN}/cells/{BAD} is not a readable record"
    table = harness("table", RUN, "--format", "markdown", cwd=tmp_path).stdout
    assert sentence in table.replace("\\", "")
    harness("report", RUN, cwd=tmp_path)
    assert sentence in (tmp_path / "report.html").read_text()
    # One that is named itself is an error, and so is the first one outside of commands.
    assert harness("table", str(file), RUN, cwd=tmp_path).returncode == 2
    with pytest.raises(Unreadable, match=re.escape(file.name)):
        open_results([tmp_path])


def test_a_record_of_a_probe_costs_itself_alone(tmp_path: Path) -> None:
    shutil.copytree(RUNS / RUN, tmp_path / RUN)
    first, *others = sorted((tmp_path / RUN / "probes").iterdir())
    first.write_text("{\n")
    done = harness("table", RUN, "--view", "link", cwd=tmp_path)
    assert done.returncode == 1 and "wired" in done.stdout and first.name in done.stderr
    assert f"harness probe --resume ./{RUN}" in done.stderr
    with unread.noted() as lost:
        assert len(RunFolder(tmp_path / RUN).load_probes()) == len(others)
    assert len(lost) == 1


def test_a_resumed_run_measures_that_cell_again(tmp_path: Path) -> None:
    plan = made_plan(repeats=1)
    folder = RunFolder(write(tmp_path, [record(order=0, repeat=1)], plan))
    (file,) = folder.record_files()
    before = Schedule(plan, folder.load_records()).expected
    file.write_bytes(file.read_bytes()[:-20])
    with unread.noted() as lost:
        assert Schedule(plan, folder.load_records()).expected == before + 1
    assert [error.message for error in lost] == [f"{file} is not a readable record: Input data was truncated"]


def test_many_are_not_named_one_by_one_and_of_none_nothing_is_shown(tmp_path: Path) -> None:
    first, *others = RunFolder(write(tmp_path, [record(repeat=n) for n in range(1, 10)])).record_files()
    for file in others:
        file.write_bytes(b"")
    done = harness("table", "r1", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("the file is empty") == MOST_NAMED
    assert f"and {8 - MOST_NAMED} more files that are not readable" in done.stderr
    first.write_bytes(b"{")
    done = harness("table", "r1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "r1.json is not a readable record" in done.stderr


def test_a_forbidden_file_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [record(), record(repeat=2)])
    for name in ("a", "r2"):
        write_fio(tmp_path / "plain" / f"{name}.json", fio_job())
    usual = os.open

    def refusing(path: str | Path, *more: int, **names: int) -> int:
        if str(path).endswith("r2.json"):
            raise PermissionError(13, "Permission denied")
        return usual(path, *more, **names)

    monkeypatch.setattr(os, "open", refusing)
    for folder, link in (("r1", "wired"), ("plain", "a")):
        with unread.noted() as lost:
            (found,) = open_results([tmp_path / folder])
        assert (found.repeat, found.column.link) == (1, link)
        assert "r2.json cannot be read: Permission denied" in lost[0].message


def test_each_is_noted_once_and_passed_on(tmp_path: Path) -> None:
    file = damaged(tmp_path)
    with unread.noted() as outer:
        with unread.passed_on() as inner:
            RunFolder(tmp_path / RUN).load_records()
        assert len(inner) == len(outer) == 1
        RunFolder(tmp_path / RUN).load_records()
        with unread.noted() as own:
            RunFolder(tmp_path / RUN).load_records()
        assert len(own) == 1
    assert unread.sentences([]) == ()
    (both,) = unread.sentences([*outer, *outer])
    assert file.name in both and both.endswith(" (and 1 more).")
