"""Every protection and stack in virtual time against theory, over iSCSI, and some over another transport.

`python -m tests.lab.test_protections_against_theory` measures, and prints what docs/theory.md shows of it.
"""

from __future__ import annotations

import operator
import sys

import pytest

from harness.analysis import theory, wire
from harness.analysis.theory import Prediction
from harness.analysis.wire import framing_of
from harness.model import IpsecMode
from harness.model.protections import PROTECTIONS
from harness.parse.profiles import load_proposal
from tests.lab.inside.against_theory import WORKLOADS, Framing, Measured
from tests.lab.inside.protections_against_theory import FRAMINGS, split
from tests.lab.test_against_theory import assert_as_predicted, measured_by, predicted_for, table

# Three minutes of a processor: nothing that CI has time for.
pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel, pytest.mark.long]

BYTES_TOLERANCE = 0.005
TIME_TOLERANCE = 0.02

SHORT_SEGMENTS = {"macsec+wireguard.iscsi-transport-1500": 0.006}
"""Of bytes, for reads of 256K: when WireGuard's worker gets its turn, pages of LIO's leave alone of which the
model knows nothing. docs/theory.md has the figures."""

CELLS = [(framing, workload) for framing in FRAMINGS for workload in WORKLOADS]


@pytest.fixture(scope="module")
def measured() -> Measured:
    return measured_by("inside.protections_against_theory")


def wire_of(framing: Framing) -> theory.Wire:
    protection, _ = split(framing)
    proposals = {name: load_proposal(name) for name in protection if name not in PROTECTIONS}
    found = framing_of(protection, proposals, IpsecMode.TRANSPORT, framing.mtu_bytes)
    assert found is not None
    return theory.Wire(link=framing.link, framing=found)


def predict(reported: Measured, framing: Framing, workload: str) -> Prediction:
    carrier = wire.transport(split(framing)[1])
    return predicted_for(wire_of(framing), carrier, reported, framing, workload)


@pytest.mark.parametrize(("framing", "workload"), CELLS, ids=[f"{f.name}-{w}" for f, w in CELLS])
def test_virtual_time_is_what_theory_predicts(measured: Measured, framing: Framing, workload: str) -> None:
    cell, predicted = measured.columns[framing.name].cells[workload], predict(measured, framing, workload)
    of_bytes = BYTES_TOLERANCE
    if workload == "read-256k":
        of_bytes = SHORT_SEGMENTS.get(framing.name, of_bytes)
    assert_as_predicted(cell, framing, predicted, of_bytes=of_bytes, of_time=TIME_TOLERANCE)
    assert measured.columns[framing.name].mss_bytes == wire_of(framing).mss_bytes


def column_of(framing: Framing) -> str:
    protection, carrier = split(framing)
    return f"{'+'.join(protection)}, {carrier}"


if __name__ == "__main__":
    found = measured_by("inside.protections_against_theory")
    lines = table(found, CELLS, predict, column=column_of, MTU=operator.attrgetter("mtu_bytes"))
    sys.stdout.write("\n".join([*lines, ""]))
