"""Take a part of the harness out, and check that the rest is whole.

    python tools/without.py            # what can be taken out
    python tools/without.py figures    # copies the tree, removes it, and runs what is left of `make check`
    python tools/without.py --all      # each, one after the other

A part is a folder with a ``belongs.toml``. Besides it and its tests these ``files`` go, and of other files
``lines`` with a word (of Markdown: paragraphs and items), ``sections``, ``columns`` of tables; ``words`` are
put for others. Parts that only work with it go ``with`` it. Links to what is gone become plain text, and
lines of the site's index that name a removed page go. Then pictures and schemas are made anew, and what its
``made`` modules make with --write.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BELONGS = "belongs.toml"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")

CHECKS = (
    ("ruff", "check", "--quiet", "."),
    ("lint-imports",),
    ("mypy",),
    ("pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "-m", "not thorough", "tests/unit")
    + ("--ignore", "tests/unit/test_without.py"),  # which is about the whole tree
)
MADE = ("tools.schemas", "tools.packages", "tools.figures")
"""Modules that make a part of docs anew."""


def parts() -> dict[str, Path]:
    """What can be taken out, by name."""
    return {file.parent.name: file.parent for file in sorted(ROOT.glob(f"harness/**/{BELONGS}"))}


def touched(paths: Iterable[str]) -> list[str]:
    """The parts that have one of these files."""
    files = [ROOT / path for path in paths]
    return [
        name
        for name, folder in parts().items()
        if any(file.is_relative_to(each) for file in files for each in removed(folder))
    ]


def copied(to: Path) -> None:
    """The tree as it is, with what is not yet committed."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def _belongs(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / BELONGS).read_text(encoding="utf-8"))


def _each(said: str | list[Any]) -> list[Any]:
    """One mention in a file, or several."""
    return [said] if isinstance(said, str) else [*said]


def together(folder: Path) -> list[Path]:
    """The parts that go when this one goes: those that need it, and then itself."""
    return [parts()[name] for name in _belongs(folder).get("with", ())] + [folder]


def removed(folder: Path) -> list[Path]:
    """The folders, the tests, and the files that belong to a part and to those that go with it."""
    found = []
    for each in together(folder):
        tests = ROOT.joinpath("tests", "unit", *each.relative_to(ROOT).parts[1:])
        found += [each, tests, *(ROOT / name for name in _belongs(each).get("files", ()))]
    return found


def remove(tree: Path, folder: Path) -> list[str]:
    """Take a folder, what belongs to it and its mentions out of a copy of the tree. Returns the modules that
    then make something anew, besides ``MADE``."""
    for path in (tree / each.relative_to(ROOT) for each in removed(folder)):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return [module for each in together(folder) for module in _without_mentions(tree, _belongs(each))]


def _without_mentions(tree: Path, belongs: dict[str, Any]) -> list[str]:
    """Take what a part says of other files out of those that are there. Returns its ``made``."""
    for key in ("files", "with"):
        belongs.pop(key, None)
    made = belongs.pop("made", [])
    gone = {(tree / name, anchor_of(heading)) for name, heading in belongs.get("sections", {}).items()}
    files = {tree / name for mentions in belongs.values() for name in mentions}
    for file in sorted({*filter(Path.exists, files), tree / "docs/index.rst", *tree.rglob("*.md")}):
        before = text = file.read_text(encoding="utf-8")
        for kind, mentions in belongs.items():
            without: Callable[[str, Any], str]
            without = without_paragraphs if (kind, file.suffix) == ("lines", ".md") else _MENTIONS[kind]
            for word in _each(mentions.get(str(file.relative_to(tree)), ())):
                text = without(text, word)
        if file.suffix in (".md", ".rst"):
            text = _unlinked(text, file, tree, gone)
        if text != before:
            file.write_text(text, encoding="utf-8")
    return [str(module) for module in made]


def without_lines(text: str, word: str) -> str:
    """Without lines that have a word."""
    return "".join(line for line in text.splitlines(keepends=True) if word not in line)


def without_paragraphs(text: str, word: str) -> str:
    """Without paragraphs, items of lists and rows of tables that have a word; of Markdown."""
    found = [""]
    for line in text.splitlines(keepends=True):
        goes_on = found[-1].strip() and line.strip() and not line.startswith(("- ", *_ALONE))
        if goes_on and not found[-1].startswith(_ALONE):
            found[-1] += line
        else:
            found.append(line)
    return "".join(each for each in found if word not in each)


_ALONE = ("|", "    ", "#", "```")
"""With these a line of Markdown begins that stands by itself."""


def without_section(text: str, heading: str) -> str:
    """Without a section, to the next heading that is not below it."""
    level = heading.partition(" ")[0]
    below = rf"{re.escape(heading)}\n.*?(?=^#{{1,{len(level)}}} |\Z)"
    return re.sub(below, "", text, count=1, flags=re.MULTILINE | re.DOTALL)


def without_column(text: str, heading: str) -> str:
    """Without the column of a table with this heading."""
    lines, place = text.splitlines(), None
    for number, line in enumerate(lines):
        cells = line.split("|")
        if not line.startswith("|"):
            place = None
        elif heading in map(str.strip, cells):
            place = [cell.strip() for cell in cells].index(heading)
        if place is not None:
            lines[number] = "|".join(cells[:place] + cells[place + 1 :])
    return "\n".join([*lines, ""])


def with_others(text: str, pair: list[str]) -> str:
    """With other words for some."""
    old, new = pair
    return text.replace(old, new)


_MENTIONS: dict[str, Callable[[str, Any], str]] = {
    "lines": without_lines,
    "sections": without_section,
    "columns": without_column,
    "words": with_others,
}


def anchor_of(heading: str) -> str:
    """Of a heading of Markdown, as pages link to it."""
    return re.sub(r"[^\w -]", "", heading.lstrip("# ").lower()).replace(" ", "-")


def _unlinked(text: str, file: Path, tree: Path, gone: Collection[tuple[Path, str]] = ()) -> str:
    """Without links to what is not there, or to sections that are gone; and of the site's index without such
    pages."""

    def shown(link: re.Match[str]) -> str:
        if link[2].startswith(("https://", "http://")):
            return link[0]
        to = (file.parent / link[2]).resolve() if link[2] else file
        is_there = to.exists() and (to, (link[3] or "#")[1:]) not in gone
        return link[0] if is_there else link[1]

    lines = (_LINK.sub(shown, line) for line in text.splitlines(keepends=True))
    is_page = re.compile(r"   /(docs/\S+)$")
    return "".join(
        line
        for line in lines
        if not (page := is_page.match(line.rstrip())) or (tree / f"{page[1]}.md").exists()
    )


def checked(tree: Path, made: Iterable[str] = ()) -> list[str]:
    """Make docs anew, and run the checks; which of them failed."""
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tree, check=True)
    for module in (*MADE, *made):
        words = [sys.executable, "-m", module, "--write"]
        subprocess.run(words, cwd=tree, env=env, check=False, stdout=subprocess.DEVNULL)
    failed = []
    for program, *words in CHECKS:
        began = time.monotonic()
        done = subprocess.run([str(bin_folder / program), *words], cwd=tree, env=env, check=False)
        print(
            f"{program}: {'ok' if done.returncode == 0 else 'FAILED'} in {time.monotonic() - began:.0f} s",
            flush=True,
        )
        if done.returncode:
            failed.append(program)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="without", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part")
    parser.add_argument("--all", action="store_true", help="every part")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the tree there")
    asked = parser.parse_args()
    known = parts()
    if unknown := {*asked.names} - {*known}:
        parser.error(f"expected parts of {', '.join(known)}, found {', '.join(sorted(unknown))}")
    if not (asked.names or asked.all):
        print("\n".join(f"{name}: {folder.relative_to(ROOT)}" for name, folder in known.items()))
        return 0
    failed = []
    for name in known if asked.all else asked.names:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="without-") as scratch:
            tree = Path(scratch) / "tree" if asked.keep is None else asked.keep
            tree.mkdir(parents=True)
            copied(tree)
            wrong = checked(tree, remove(tree, known[name]))
        failed += [name] if wrong else []
        how = f"FAILED ({', '.join(wrong)})" if wrong else "green"
        print(f"without {name}: {how} in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
