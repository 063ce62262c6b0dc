"""Manual pages: every command and option is in them, and their language is right."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.cli import COMMANDS, app, manual


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
            assert all(flag in text for each in command.params for flag in each.opts if flag[0] == "-")


def test_a_build_can_fix_their_day(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    manual.main(pages)
    assert " 1970-01-02 " in (pages / "harness.1").read_text(encoding="utf-8").splitlines()[0]


def test_no_line_is_taken_for_a_request() -> None:
    text = ".so /etc/passwd with a \\n and a-hyphen"
    assert manual._escaped(text) == "\\&.so /etc/passwd with a \\en and a\\-hyphen"


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_finds_nothing_wrong(pages: Path) -> None:
    found = subprocess.run(
        ["mandoc", "-Tlint", "-Wwarning", *sorted(map(str, pages.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, "")
