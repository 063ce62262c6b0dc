"""The page of published articles in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.planning import probe_plan
from harness.questions.documents import page as articles
from tests.browser.test_page import OLD, require_usable, window, written
from tests.unit.questions.documents.test_articles import run_of_probes
from tests.unit.table.test_views import tcp


def test_at_1400_px_nothing_of_the_articles_is_cut_off(driver: Any, tmp_path: Path) -> None:
    """With the widest tables that there are: all articles, in real and in virtual time."""
    for profile in probe_plan.names():
        for virtual in (False, True):
            run_of_probes(tmp_path, profile, lambda _: tcp(1e8), virtual=virtual)
    file = written(tmp_path, articles.render_page(articles.load([tmp_path])))
    with window(driver, 1400):
        driver.get(file.as_uri())
        cut = driver.execute_script(
            "return [document.documentElement, ...document.querySelectorAll('.data')]"
            ".filter((each) => each.scrollWidth > each.clientWidth && each.clientWidth)"
            ".map((each) => [each.ariaLabel, each.scrollWidth, each.clientWidth])"
        )
        drawn = driver.execute_script("return document.querySelectorAll('figure svg').length")
    assert cut == []
    assert drawn >= 5


@pytest.mark.parametrize(("theme", "width"), [("light", 1400), ("dark", 1400), ("light", 390)])
def test_everybody_can_use_it(driver: Any, tmp_path: Path, theme: str, width: int) -> None:
    with window(driver, width):
        driver.get(written(tmp_path, articles.render_page(articles.load([OLD]))).as_uri())
        require_usable(driver, theme)
