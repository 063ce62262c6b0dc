"""`harness doctor` and `harness clean` of other machines, which the lab's kernel has as namespaces."""

from __future__ import annotations

import pytest

from tests.lab.cli import run_inside

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]


@pytest.mark.long
def test_doctor_names_what_a_machine_lacks() -> None:
    said = ("missing: named", "the port: named", "tried: after ", "forbidden: found")
    run_inside("inside.remote_doctor", "doctor", said=said)


@pytest.mark.long
def test_what_a_power_loss_left_on_a_disk_is_removed() -> None:
    done = run_inside("inside.remote_doctor", "power")
    assert "power loss: resumed, cleaned, and another's file left" in done.out


def test_clean_removes_what_killed_agents_left() -> None:
    run_inside("inside.remote_doctor", "clean", said=["clean: as before"])
