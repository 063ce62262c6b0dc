"""The texts for readers: every link between them leads somewhere, to a heading too."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cli import app
from harness.model import SCHEMA_VERSION

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "profiles", "ipsec", "releases", "bench")
TEXTS = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")]
TEXTS += sorted({*ROOT.glob("harness/*/README.md"), *ROOT.glob("harness/questions/*/README.md")})
TEXTS += [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """Those that GitHub makes of headings."""
    headings = re.findall(r"^#+ +(.*)$", text.lower(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("text", TEXTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(text: Path) -> None:
    for link in _LINK.findall(text.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        file = (text.parent / name) if name else text
        is_ours = not link.startswith(("https://", "http://"))
        assert not is_ours or file.exists(), link
        assert not (is_ours and anchor) or anchor in anchors(file.read_text(encoding="utf-8")), link


def test_every_page_is_reached_from_the_readme() -> None:
    found, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        if (page := ahead.pop()) not in found:
            found.add(page)
            links = (link.partition("#")[0] for link in _LINK.findall(page.read_text(encoding="utf-8")))
            files = ((page.parent / link).resolve() for link in links)
            ahead += [file for file in files if file.suffix == ".md" and file.is_file()]
    assert set(TEXTS[2:]) | {ROOT / "CONTRIBUTING.md"} <= found | {ROOT / "CHANGELOG.md"}


DOCS = ROOT / "docs"
FOR_PEOPLE, *OTHERS = (
    re.findall(r"^ +/docs/(\S+)$", part, re.MULTILINE)
    for part in (DOCS / "index.rst").read_text(encoding="utf-8").split(".. toctree::")[1:]
)
SIDEBAR = [*FOR_PEOPLE, *(name for part in OTHERS for name in part)]


def word_count(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


def test_the_docs_are_short() -> None:
    assert sum(map(word_count, DOCS.rglob("*.md"))) <= 40_000
    found = {name: word_count(DOCS / f"{name}.md") for name in FOR_PEOPLE}
    assert {name: count for name, count in found.items() if count > 1_500} == {}


def test_the_sidebar_has_each_page_and_is_short() -> None:
    assert len(SIDEBAR) <= 25 and len(set(SIDEBAR)) == len(SIDEBAR)
    assert {f"{name}.md" for name in SIDEBAR} == {page.name for page in DOCS.glob("*.md")}
    assert {*DOCS.rglob("*.md")} - {*DOCS.glob("*.md")} == {DOCS / "figures" / "README.md"}


def test_who_has_a_share_finds_their_page_by_its_protocol() -> None:
    headings = " ".join(re.findall(r"^#+ (.*)$", (DOCS / "nas.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert re.search(r"\bNFS\b", headings) and re.search(r"\bSMB\b", headings)


def test_the_page_on_results_is_of_this_schema() -> None:
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    assert f"carry `schema`, now {SCHEMA_VERSION} " in page
    versions = [
        int(number) for number in re.findall(r"^\| (\d+) \|", page.split("## Versions")[1], re.MULTILINE)
    ]
    assert versions == [*range(SCHEMA_VERSION, 0, -1)]


_TYPED = re.compile(r"^ {4,}(harness [a-z].*)$|`(harness [a-z][^`]*)`", re.MULTILINE)
_OPTION = re.compile(r"(?:^|[\s,])(--?[a-z](?:[a-z0-9.-]*[a-z0-9])?)")


@cache
def help_of(*words: str) -> set[str]:
    """The options that a command has."""
    done = CliRunner().invoke(app, [*words, "--help"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return {*_OPTION.findall(done.output.replace("/--no-", " --no-")), "--help"}


@pytest.mark.parametrize("text", TEXTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_commands_have_the_options_that_are_reported(text: Path) -> None:
    for block, inline in _TYPED.findall(text.read_text(encoding="utf-8")):
        line = " ".join((block or inline).replace("|", " ").split())
        _, *words = shlex.split(line, comments=True)
        command = words[:2] if words[0] in ("lab", "kernel", "parse") and len(words) > 1 else words[:1]
        options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        if "--" in words:  # what follows is another program's
            options &= set(words[: words.index("--")])
        assert options <= help_of(*command), f"{line}: {options - help_of(*command)}"
