"""Take a part of the harness out, and check that the rest is whole.

    python tools/without.py            # what can be taken out
    python tools/without.py figures    # copies the tree, removes it, and runs what is left of `make check`

A part is a folder with a ``belongs.toml``: besides it and its tests, these files go, and lines with these
words. Links to them become plain text, and lines of the site's index that name a removed page go. Then
pictures and schemas are made anew.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BELONGS = "belongs.toml"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")

CHECKS = (
    ("ruff", "check", "--quiet", "."),
    ("lint-imports",),
    ("mypy",),
    ("pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "-m", "not thorough", "tests/unit"),
)
MADE = ("tools.schemas", "tools.packages", "tools.figures")
"""Modules that make a part of docs anew."""


def parts() -> dict[str, Path]:
    """What can be taken out, by name."""
    return {file.parent.name: file.parent for file in sorted(ROOT.glob(f"harness/**/{BELONGS}"))}


def copied(to: Path) -> None:
    """The tree as it is, with what is not yet committed."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def remove(tree: Path, folder: Path) -> None:
    """Take a folder, what belongs to it and its mentions out of a copy of the tree."""
    own, belongs = folder.relative_to(ROOT), tomllib.loads((folder / BELONGS).read_text(encoding="utf-8"))
    for name in (own, Path("tests/unit", *own.parts[1:]), *belongs.get("files", ())):
        path = tree / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    mentions = belongs.get("lines", {})
    for page in (tree / "docs/index.rst", *tree.rglob("*.md")):
        words = mentions.get(str(page.relative_to(tree)))
        lines = page.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [_unlinked(line, page.parent) for line in lines if not (words and words in line)]
        if page.suffix == ".rst":
            kept = [
                line
                for line in kept
                if not line.startswith("   /") or (tree / f"{line.strip()[1:]}.md").exists()
            ]
        if kept != lines:
            page.write_text("".join(kept), encoding="utf-8")


def _unlinked(line: str, folder: Path) -> str:
    """A line without its links to what is not there."""

    def shown(link: re.Match[str]) -> str:
        is_elsewhere = link[2].startswith(("https://", "http://")) or (folder / link[2]).exists()
        return link[0] if is_elsewhere else link[1]

    return _LINK.sub(shown, line)


def checked(tree: Path) -> list[str]:
    """Make docs anew, and run the checks; which of them failed."""
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tree, check=True)
    for module in MADE:
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
    parser.add_argument("name", nargs="?", choices=sorted(parts()), help="the part")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the tree there")
    asked = parser.parse_args()
    if asked.name is None:
        print("\n".join(f"{name}: {folder.relative_to(ROOT)}" for name, folder in parts().items()))
        return 0
    with tempfile.TemporaryDirectory(prefix="without-") as scratch:
        tree = Path(scratch) / "tree" if asked.keep is None else asked.keep
        tree.mkdir(parents=True)
        copied(tree)
        remove(tree, parts()[asked.name])
        return 1 if checked(tree) else 0


if __name__ == "__main__":
    sys.exit(main())
