"""Transports other than iSCSI in virtual time against theory.

`python -m tests.lab.test_transports_against_theory NAME` measures, and prints what docs/theory.md
shows of it.
"""

from __future__ import annotations

import functools
import operator
import sys

import pytest

from harness.analysis import wire
from harness.analysis.theory import Prediction
from harness.model import ISCSI, TRANSPORTS
from tests.lab.inside.against_theory import WORKLOADS, Framing, Measured
from tests.lab.inside.transports_against_theory import FRAMINGS
from tests.lab.test_against_theory import assert_as_predicted, measured_by, path_of, predicted_for, table

# A minute and a half of a processor, and test_against_theory has the same frames.
pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel, pytest.mark.long]

BYTES_TOLERANCE = 0.005
TIME_TOLERANCE = 0.02

CELLS = [(framing, workload) for framing in FRAMINGS for workload in WORKLOADS]


def measure(transport: str) -> Measured:
    return measured_by("inside.transports_against_theory", transport)


@pytest.fixture(scope="module", params=[name for name in TRANSPORTS if name != ISCSI])
def measured(request: pytest.FixtureRequest) -> tuple[str, Measured]:
    return request.param, measure(request.param)


def predict(transport: str, reported: Measured, framing: Framing, workload: str) -> Prediction:
    return predicted_for(path_of(framing), wire.transport(transport), reported, framing, workload)


@pytest.mark.parametrize(("framing", "workload"), CELLS, ids=[f"{f.name}-{w}" for f, w in CELLS])
def test_virtual_time_is_what_theory_predicts(
    measured: tuple[str, Measured], framing: Framing, workload: str
) -> None:
    transport, reported = measured
    column, predicted = reported.columns[framing.name], predict(transport, reported, framing, workload)
    cell = column.cells[workload]
    assert_as_predicted(cell, framing, predicted, of_bytes=BYTES_TOLERANCE, of_time=TIME_TOLERANCE)
    assert column.mss_bytes == path_of(framing).mss_bytes


if __name__ == "__main__":
    of_it, name = functools.partial(predict, sys.argv[1]), operator.attrgetter("name")
    sys.stdout.write("\n".join([*table(measure(sys.argv[1]), CELLS, of_it, column=name), ""]))
