"""Targets that are only reached, on a kernel where somebody else's can be made up."""

from __future__ import annotations

import pytest

from tests.lab.cli import run_inside

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]


def test_doctor_says_what_a_run_finds_and_its_file_tells_nothing_of_the_portal() -> None:
    said = ("doctor: found, not answered, refused", "shared: 1 rows as the run's own")
    run_inside("inside.strangers", "doctor", "share", said=said)
