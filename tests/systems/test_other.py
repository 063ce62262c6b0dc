"""A system that is not Debian, as far as that can be had on one: its os-release, and no user-mode-linux."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness.model.errors import RequirementError
from harness.testbeds.lab import boot
from harness.testbeds.lab.kernels import kernel
from tests.lab.cli import HARNESS, Done, ended

pytestmark = [
    pytest.mark.long,
    pytest.mark.custom_kernel,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount over files of the system"),
]

OTHER = """\
set -e
mount --bind "$1" /usr/lib/os-release
mount --bind /dev/null "$2"
shift 2
exec "$@"
"""
"""In a mount namespace of its own, for sh(1): another os-release, and no such program."""

SYSTEMS = {
    "ubuntu": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n',
    "fedora": 'PRETTY_NAME="Fedora Linux 43"\nID=fedora\nVERSION_ID=43\n',
    "arch": 'PRETTY_NAME="Arch Linux"\nID=arch\nBUILD_ID=rolling\n',
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_without_a_package_of_a_kernel_the_lab_boots_its_own(tmp_path: Path, name: str) -> None:
    try:
        own = kernel.custom_kernel()
    except RequirementError as error:
        pytest.skip(error.message)
    if not Path("/usr/lib/os-release").is_file() or (debians := shutil.which(boot.KERNEL)) is None:
        pytest.skip("there is nothing to mount over")
    os_release = tmp_path / "os-release"
    os_release.write_text(SYSTEMS[name], encoding="utf-8")

    def harness(*words: str) -> Done:
        inside = ["sh", "-c", OTHER, "sh", str(os_release), debians, HARNESS, *words]
        return ended(["unshare", "--mount", *inside], deadline_s=300)

    reported = harness("doctor")
    assert "was not tried" in reported.out and "the lab is ready: harness run" in reported.out, reported
    booted = harness("lab", "exec", "--", "uname", "-r")
    assert booted.out.strip() == next(own.modules.iterdir()).name, booted
