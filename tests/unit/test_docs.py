"""The texts for readers: every link between them leads somewhere, to a heading too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "profiles", "ipsec", "bench")
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
TEXTS += [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Those that GitHub makes of headings."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {words.strip().replace(" ", "-") for words in plain}


@pytest.mark.parametrize("text", TEXTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(text: Path) -> None:
    said = text.read_text(encoding="utf-8")
    for link in _LINK.findall(said):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        file = (text.parent / name) if name else text
        assert file.exists(), link
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), link


def test_every_page_is_reached_from_the_readme() -> None:
    found, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in found:
            continue
        found.add(page)
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            file = (page.parent / link.partition("#")[0]).resolve()
            if file.suffix == ".md" and file.is_file():
                ahead.append(file)
    assert set(TEXTS[2:]) | {ROOT / "CONTRIBUTING.md"} <= found | {ROOT / "CHANGELOG.md"}
