"""Several initiators at once, on a kernel of their own: see the script in `tests.lab.inside`."""

from __future__ import annotations

import pytest

from tests.lab.cli import run_inside

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]


@pytest.mark.core
def test_initiators_measure_together_and_the_faults_of_one_are_its_own() -> None:
    done = run_inside("inside.distributed")
    assert done.status == 0, done
    assert "two initiators measured together" in done.out
