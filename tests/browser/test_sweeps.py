"""The report of a sweep in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from harness.report import render
from tests.browser.test_page import OPEN_ALL, _find, window, written
from tests.unit.questions.sweep.test_pictures import surfaces


def test_the_page_of_a_sweep_needs_no_matrix(driver: Any, tmp_path: Path) -> None:
    """Its script goes without one, no picture is cut off at 390 px, and arrow keys tell each point."""
    driver.get_log("browser")
    with window(driver, 390):
        driver.get(written(tmp_path, render(surfaces())).as_uri())
        driver.execute_script(OPEN_ALL)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
        picture = _find(driver, "#curves figure svg")
        reported = []
        for _ in range(3):
            picture.send_keys("\ue014")  # right
            reported.append(_find(driver, "#tip").text)
        assert reported[:2] == ["wired, bound by latency", "wired, bound by the busiest part"]
        assert re.fullmatch(r"wired, depth 1: [0-9.]+ MB/s", reported[2])
        assert len(driver.find_elements("css selector", "#heat figure")) == 1
    assert driver.get_log("browser") == []
