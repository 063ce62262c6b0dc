"""Manual pages have every command and option; the help is whole, in groups, within a terminal's width."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer

from harness.cli import COMMANDS, EXAMPLES, app, manual
from tests.unit.command import harness


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    manual.main(tmp_path / "man1")
    return tmp_path / "man1"


def test_every_command_has_a_page_with_all_its_options(pages: Path) -> None:
    names = {f"harness-{name}.1" for name in COMMANDS}
    assert {page.name for page in pages.iterdir()} == {"harness.1", *names}
    overview = (pages / "harness.1").read_text(encoding="utf-8").replace("\\-", "-")
    main: Any = typer.main.get_command(app)
    for name, later in main.commands.items():
        text = (pages / f"harness-{name}.1").read_text(encoding="utf-8").replace("\\-", "-")
        assert f".BR harness-{name} (1)" in overview
        subs = getattr(later.real, "commands", {})
        for called, command in [(name, later.real), *((f"{name} {sub}", each) for sub, each in subs.items())]:
            assert f".B harness {called}\n" in text
            shown = [each for each in command.params if not getattr(each, "hidden", False)]
            assert all(flag in text for each in shown for flag in each.opts if flag[0] == "-")


def test_their_day_can_be_set_and_no_line_is_a_request(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    manual.main(pages)
    assert " 1970-01-02 " in (pages / "harness.1").read_text(encoding="utf-8").splitlines()[0]
    text = ".so /etc/passwd with a \\n and a-hyphen"
    assert manual._escaped(text) == "\\&.so /etc/passwd with a \\en and a\\-hyphen", "it is no request"


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_finds_nothing_wrong(pages: Path) -> None:
    argv = ["mandoc", "-Tlint", "-Wwarning", *map(str, pages.iterdir())]
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
    assert groups[0] == "What is measured" and "Options" not in groups and len(groups) == len(set(groups))
    for flag in ("--link LINK…", "--plan", "--probes / --no-probes", "--auth <psk|cert>", "--runtime TIME"):
        assert f"\n  {flag}" in reported


@pytest.mark.parametrize("name", ["", "lab", "kernel", "parse"])
def test_a_group_lists_its_commands(name: str) -> None:
    reported = helped(name)
    listed = set(re.findall(r"^  ([\w-]+) ", reported.partition("Commands:")[2], re.M))
    assert listed >= {words[1] for words in map(str.split, HELPED) if words[0] == name and len(words) > 1}
    if not name:
        assert listed >= {words.split()[0] for words in HELPED} and "Exit status" in reported
