"""tools/tag.sh in a small git tree: it tags what is whole, and refuses the rest with its reason."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "tag.sh"
FILES = {
    "harness/version.py": '__version__ = "2.1.0"\n',
    "CITATION.cff": "version: 2.1.0\n",
    "debian/changelog": "storage-network-harness (2.1.0-1) unstable; urgency=medium\n",
    "CHANGELOG.md": "# Changelog\n\n## 2.1.0\n\n### Fixes\n\nOne.\n\n## 2.0.0\n\nOther.\n",
}

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def run(tree: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    people = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    around = {**os.environ, **people}
    return subprocess.run(argv, cwd=tree, env=around, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {**FILES, "tools/tag.sh": SCRIPT.read_text()}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    run(tmp_path, "git", "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(tree: Path) -> None:
    run(tree, "git", "add", ".")
    run(tree, "git", "commit", "--quiet", "--message", "all")


def tag(tree: Path) -> subprocess.CompletedProcess[str]:
    return run(tree, "sh", "tools/tag.sh")


def test_a_tag_has_the_section_of_its_version_and_is_made_once(tree: Path) -> None:
    assert tag(tree).stdout == "tagged v2.1.0: git push origin v2.1.0\n"
    said = run(tree, "git", "tag", "--list", "--format=%(contents)").stdout
    assert said.rstrip() == "## 2.1.0\n\n### Fixes\n\nOne."
    again = tag(tree)
    assert (again.returncode, "v2.1.0 is tagged" in again.stderr) == (2, True), again


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("CHANGELOG.md", "## 2.1.0", "## 2.1.0 (unreleased)", "a section '## 2.1.0' in CHANGELOG.md"),
        ("CITATION.cff", "2.1.0", "2.0.0", "version 2.1.0 in CITATION.cff, found version: 2.0.0"),
        ("debian/changelog", "2.1.0", "2.0.0", "version 2.1.0 in debian/changelog"),
    ],
)
def test_what_is_not_whole_is_refused(tree: Path, file: str, old: str, new: str, said: str) -> None:
    (tree / file).write_text(FILES[file].replace(old, new), encoding="utf-8")
    changed = tag(tree)
    assert (changed.returncode, "expected a clean tree" in changed.stderr) == (2, True), changed
    commit(tree)
    refused = tag(tree)
    assert (refused.returncode, said in refused.stderr) == (2, True), refused
    assert run(tree, "git", "tag").stdout == ""
