"""A run as text to paste into a thread."""

from __future__ import annotations

from pathlib import Path

from tests.unit.command import harness

FIGURES = Path(__file__).parents[4] / "docs" / "figures"


def test_a_shared_run_is_text_for_a_thread(tmp_path: Path) -> None:
    done = harness("share", str(FIGURES / "make-run"), "--markdown", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("```text\nLab: iSCSI over emulated links")
    assert "| seq-write-4k " in done.stdout and "<br>" not in done.stdout
    assert done.stdout.endswith("```sh\nharness run\n```\n")
    written = harness("share", str(FIGURES / "make-run"), "--markdown", "-o", "x.md", cwd=tmp_path)
    assert (tmp_path / "x.md").read_text(encoding="utf-8") == done.stdout and written.stdout == ""
    both = harness("share", str(FIGURES / "make-run"), "--markdown", "--list", cwd=tmp_path)
    assert both.returncode == 2 and "expected one of --markdown and --list" in both.stderr
