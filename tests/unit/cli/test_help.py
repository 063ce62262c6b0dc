"""The help of commands: whole, in groups, within a terminal's width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli import EXAMPLES
from tests.unit.command import harness

COMMANDS = sorted({*EXAMPLES, "clean", "lab exec", "lab start", "kernel build", "parse fio"})


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_cut_or_too_long(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.command.COLUMNS", 80)
    reported = harness(*name.split(), "--help", cwd=tmp_path).stdout
    assert reported.startswith(f"Usage: harness {name}") and not re.search(
        r"[│╭]|\[/|\[dim\]", reported, re.M
    )
    assert max(map(len, reported.splitlines())) <= 80
    assert all(line in reported for line in EXAMPLES.get(name, "").splitlines())


def test_a_run_has_all_options_on_a_screen_or_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.command.COLUMNS", 80)
    reported = harness("run", "--help", cwd=tmp_path).stdout
    assert len(reported.splitlines()) <= 80
    groups = re.findall(r"^([A-Z][^:\n]*):$", reported, re.M)
    assert groups[0] == "What is measured" and "Options" not in groups and len(groups) == len(set(groups))
    for flag in ("--link LINK…", "--plan", "--probes / --no-probes", "--auth <psk|cert>", "--runtime TIME"):
        assert f"\n  {flag}" in reported


@pytest.mark.parametrize("name", ["", "lab", "kernel", "parse"])
def test_a_group_lists_its_commands(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.command.COLUMNS", 80)
    reported = harness(*name.split(), "--help", cwd=tmp_path).stdout
    assert max(map(len, reported.splitlines())) <= 80 and not re.search(r"[│╭]|\[/|\[dim\]", reported)
    listed = set(re.findall(r"^  (\w+) ", reported.partition("Commands:")[2], re.M))
    assert listed >= {words[1] for words in map(str.split, COMMANDS) if words[0] == name and len(words) > 1}
    assert name or listed >= {words.split()[0] for words in COMMANDS}
