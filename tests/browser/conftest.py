"""A real browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NEEDED = {"chromium": "chromium", "chromedriver": "chromium-driver"}
ARGUMENTS = """
    --headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1280,900
"""
PATIENCE_S = 300.0
"""Half a minute, the driver's own, is not enough for axe-core on a busy machine."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium under its driver; without them a skip that names them, and on CI a failure."""
    if missing := [package for program, package in NEEDED.items() if shutil.which(program) is None]:
        message = f"not installed: {', '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in (*ARGUMENTS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    started.set_script_timeout(PATIENCE_S)
    try:
        yield started
    finally:
        started.quit()
