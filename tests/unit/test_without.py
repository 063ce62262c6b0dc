"""A part can be taken out: nobody else names it, and what belongs to it is there.

`python tools/without.py NAME` does it, and runs what is left of `make check`.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from tools import without

PARTS = without.parts()
SOURCES = ("harness", "tests", "tools", "bench")


@pytest.mark.parametrize("name", PARTS)
def test_what_belongs_to_a_part_is_there(name: str) -> None:
    belongs = tomllib.loads((PARTS[name] / without.BELONGS).read_text(encoding="utf-8"))
    belongs.pop("made", None)
    assert {*belongs.pop("with", ())} <= {*PARTS}
    assert [file for file in belongs.pop("files", ()) if not (without.ROOT / file).exists()] == []
    for kind, mentions in belongs.items():
        for file, word in mentions.items():
            text = (without.ROOT / file).read_text(encoding="utf-8")
            words = [old for old, _ in word] if kind == "words" else without._each(word)
            assert [each for each in words if each not in text] == [], (kind, file)


@pytest.mark.parametrize("name", PARTS)
def test_nobody_else_imports_a_part(name: str) -> None:
    folder = PARTS[name]
    own = without.removed(folder)
    module = ".".join(folder.relative_to(without.ROOT).parts)
    files = (file for source in SOURCES for file in (without.ROOT / source).rglob("*.py"))
    others = (file for file in files if not any(file.is_relative_to(each) for each in own))
    assert [str(file) for file in others if f"{module}." in file.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Some text\non X.\n\nMore.\n", "\nMore.\n"),
        ("- one\n- two,\n  X\n- three\n", "- one\n- three\n"),
        ("| a |\n|---|\n| X |\n| b |\n", "| a |\n|---|\n| b |\n"),
        ("    run --a\n    run X\n", "    run --a\n"),
        ("# A title with X\nText.\n", "Text.\n"),
    ],
)
def test_paragraphs_items_and_rows_go_as_a_whole(before: str, after: str) -> None:
    assert without.without_paragraphs(before, "X") == after


def test_what_needs_a_part_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own tests, files and mentions; a mention in a file that goes, too, is no error."""
    files = {
        "harness/x/a/belongs.toml": 'with = ["b"]\nfiles = ["a.py"]\nmade = ["m"]\n'
        '[lines]\n"page.py" = "A"\n',
        "harness/y/b/belongs.toml": 'files = ["b.py"]\n[lines]\n"page.py" = "B"\n"a.py" = "B"\n',
        "tests/unit/x/a/test_a.py": "",
        "tests/unit/y/b/test_b.py": "",
        "docs/index.rst": "",
        "page.py": "A\nB\nC\n",
        "a.py": "B\n",
        "b.py": "",
    }
    root, tree = tmp_path / "root", tmp_path / "tree"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copytree(root, tree)
    monkeypatch.setattr(without, "ROOT", root)
    assert without.touched(["harness/y/b/kind.py"]) == ["a", "b"]
    assert without.touched(["a.py"]) == ["a"]
    assert without.remove(tree, without.parts()["a"]) == ["m"]
    left = {str(file.relative_to(tree)): file.read_text() for file in tree.rglob("*") if file.is_file()}
    assert left == {"docs/index.rst": "", "page.py": "C\n"}


def test_sections_and_columns_go() -> None:
    page = "# A\n\n## B\n\ntext\n\n### C\n\n## D\n\nmore\n"
    assert without.without_section(page, "## B") == "# A\n\n## D\n\nmore\n"
    assert without.without_section(page, "## D") == page.partition("## D")[0]
    table = "| a | `b` |\n|---|---|\n| 1 | 2 |\n\n| c | d |\n"
    assert without.without_column(table, "`b`") == "| a |\n|---|\n| 1 |\n\n| c | d |\n"


def test_a_link_to_what_is_gone_is_text(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/here.md").write_text("x")
    text = "[a](docs/here.md#x), [b](docs/gone.md), [c](https://example.org)\n   /docs/here\n   /docs/gone\n"
    kept = "[a](docs/here.md#x), b, [c](https://example.org)\n   /docs/here\n"
    page = tmp_path / "index.rst"
    assert without._unlinked(text, page, tmp_path) == kept
    gone = {(tmp_path / "docs/here.md", without.anchor_of("## X"))}
    assert without._unlinked("[a](docs/here.md#x) [b](docs/here.md)", page, tmp_path, gone) == (
        "a [b](docs/here.md)"
    )
