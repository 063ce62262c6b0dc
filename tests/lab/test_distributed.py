"""Several initiators at once, on a kernel of their own: see the script in `tests.lab.inside`."""

from __future__ import annotations

import pytest

from tests.lab.cli import run_inside

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]


@pytest.mark.parametrize(
    "faults", [pytest.param(("host-goes-down",), marks=pytest.mark.core), ()], ids=["gravest", "all"]
)
def test_initiators_measure_together_and_the_faults_of_one_are_its_own(faults: tuple[str, ...]) -> None:
    run_inside("inside.distributed", *faults, said=["two initiators measured together"])
