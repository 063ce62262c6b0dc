"""Help is whole, in groups, within a terminal's width, and manual pages have the same."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from harness.cli import COMMANDS, EXAMPLES, HEADINGS
from tests.unit.command import harness
from tools import manual


def test_every_command_has_a_page_that_has_its_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    monkeypatch.setenv("COLUMNS", "300")
    manual.main(tmp_path)
    pages = {page.name: page.read_text(encoding="utf-8") for page in tmp_path.iterdir()}
    named = {"harness-lab-exec", "harness-parse-fio", *(f"harness-{name}" for name in COMMANDS)}
    assert {f"{name}.1" for name in named} <= pages.keys()
    run = pages["harness-run.1"].replace("\\-", "-")
    assert " 1970-01-02 " in run and all(f"\\&{line}\n" in run for line in helped("run").splitlines())
    if shutil.which("mandoc"):
        argv = ["mandoc", "-Tlint", "-Wwarning", *(str(tmp_path / name) for name in pages)]
        found = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout) == (0, "")


def helped(name: str) -> str:
    """The help of a command in a narrow terminal, of which no line is cut or too long."""
    with mock.patch("tests.unit.command.COLUMNS", 80):
        text = harness(*name.split(), "--help", cwd=Path.cwd()).stdout
    assert max(map(len, text.splitlines())) <= 80 and not re.search(r"[│╭]|\[/|\[dim\]", text)
    return text


HELPED = sorted({*EXAMPLES, "clean", "lab exec", "lab start", "kernel build", "parse fio"})


@pytest.mark.parametrize("name", HELPED)
def test_the_help_of_a_command_has_its_examples(name: str) -> None:
    reported = helped(name)
    assert reported.startswith(f"Usage: harness {name}")
    assert all(line in reported for line in EXAMPLES.get(name, "").splitlines())


def test_a_run_has_all_options_on_a_screen_or_two() -> None:
    reported = helped("run")
    assert len(reported.splitlines()) <= 80
    groups = re.findall(r"^([A-Z][^:\n]*):$", reported, re.M)
    assert groups[0] == "What to measure" and "Options" not in groups and len(groups) == len(set(groups))
    for flag in ("--link LINK…", "--plan", "--probes / --no-probes", "--auth <psk|cert>", "--runtime TIME"):
        assert f"\n  {flag}" in reported


@pytest.mark.parametrize("name", ["lab", "kernel", "parse"])
def test_a_group_lists_its_commands(name: str) -> None:
    listed = set(re.findall(r"^  ([\w-]+) ", helped(name).partition("Commands:")[2], re.M))
    assert listed >= {words[1] for words in map(str.split, HELPED) if words[0] == name and len(words) > 1}


def test_all_commands_are_on_one_screen_in_four_groups() -> None:
    reported = helped("")
    assert len(reported.splitlines()) <= 45 and "..." not in reported.replace("[ARGS]...", "").replace(
        "round trip, ...", ""
    )
    for heading, commands in HEADINGS.items():
        listed = re.search(rf"^{heading}:\n((?:  \S.*\n)+)", reported, re.M)
        assert listed and [line.split()[0] for line in listed[1].splitlines()] == [*commands]
    assert len(HEADINGS) == 4 and "Exit status" in reported
