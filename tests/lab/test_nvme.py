"""NVMe/TCP: a disk comes, tells and goes, also after a kill."""

from __future__ import annotations

import pytest

from tests.lab.cli import run_inside

pytestmark = pytest.mark.lab


@pytest.mark.custom_kernel
def test_a_disk_comes_tells_and_goes() -> None:
    run_inside("inside.nvme_tcp", kernel="custom")


@pytest.mark.custom_kernel
def test_after_a_kill_clean_restores_everything() -> None:
    run_inside("inside.killed_nvme_run", kernel="custom")
