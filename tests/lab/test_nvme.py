"""NVMe/TCP: a disk comes, tells and goes, also after a kill; and many at once in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.cli import measure, run_inside
from tests.lab.test_virtual_time import SMALL

pytestmark = pytest.mark.lab


@pytest.mark.custom_kernel
def test_a_disk_comes_tells_and_goes() -> None:
    run_inside("inside.nvme_tcp", kernel="custom")


@pytest.mark.custom_kernel
def test_after_a_kill_clean_restores_everything() -> None:
    run_inside("inside.killed_nvme_run", kernel="custom")


@pytest.mark.custom_kernel
@pytest.mark.long
def test_many_columns_are_up_at_once(tmp_path: Path) -> None:
    """Each is a controller with a keep-alive timer of its own, and time jumps from one timer to the next."""
    stacks = ("wireguard", "macsec", "macsec+wireguard", "macsec+aes128gcm16", "wireguard+aes128gcm16")
    words = ("--virtual-time", "--link=wired", "--transport=nvme-tcp", "--protect=off", "--protect=on")
    measured = measure(tmp_path, *words, *(f"--protect={stack}" for stack in stacks), *SMALL)
    assert len(measured.ok()) == 2 * (2 + len(stacks)), measured.done
