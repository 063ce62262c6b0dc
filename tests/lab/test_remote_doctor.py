"""`harness doctor` and `harness clean` of other machines, which the lab's kernel has as namespaces."""

from __future__ import annotations

import shutil

import pytest

from tests.lab.cli import run_inside

pytestmark = pytest.mark.lab


@pytest.mark.skipif(shutil.which("sshd", path="/usr/sbin:/sbin") is None, reason="needs openssh-server")
def test_machines_are_looked_at_and_cleaned_over_ssh() -> None:
    done = run_inside("inside.remote_doctor")
    assert done.status == 0, done
    for part in ("missing: named", "port 500: named", "clean: as before"):
        assert part in done.out
