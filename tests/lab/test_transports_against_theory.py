"""NVMe/TCP and NBD in virtual time against theory.

`python -m tests.lab.test_transports_against_theory nvme-tcp` measures, and prints what docs/theory.md
shows of it.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator

import msgspec
import pytest

from harness.analysis import theory, wire
from harness.analysis.theory import Prediction
from harness.model import ISCSI, TRANSPORTS
from tests.lab.cli import harness, python_inside
from tests.lab.inside.against_theory import WORKLOADS, Framing, Measured
from tests.lab.inside.transports_against_theory import FRAMINGS
from tests.lab.test_against_theory import DEADLINE_S, path_of, wire_bytes

# A minute and a half of a processor, and test_against_theory has the same frames.
pytestmark = [pytest.mark.lab, pytest.mark.own_kernel, pytest.mark.long]

BYTES_TOLERANCE = 0.005
TIME_TOLERANCE = 0.02

CELLS = [(framing, workload) for framing in FRAMINGS for workload in WORKLOADS]


def measure(transport: str) -> Measured:
    inside = (
        *("env", "PYTHONHASHSEED=0"),
        *python_inside("inside.transports_against_theory", secrets.token_hex(2), transport),
    )
    done = harness(
        *("lab", "exec", "--kernel", "own", "--virtual-time", "--memory", "512", "--", *inside),
        deadline_s=DEADLINE_S,
    )
    assert done.status == 0, done
    return msgspec.json.decode(done.out.strip().splitlines()[-1], type=Measured)


@pytest.fixture(scope="module", params=[name for name in TRANSPORTS if name != ISCSI])
def measured(request: pytest.FixtureRequest) -> tuple[str, Measured]:
    return request.param, measure(request.param)


def predict(transport: str, reported: Measured, framing: Framing, workload: str) -> Prediction:
    column = reported.columns[framing.name]
    kind, _, block = workload.partition("-")
    direction: theory.IoDirection = "write" if kind == "write" else "read"
    dialogue = wire.transport(transport).dialogue(column.session, direction, column.window_bytes)
    assert dialogue is not None, column.session
    return theory.predict(
        path_of(framing),
        dialogue,
        direction=direction,
        block_bytes=int(block.removesuffix("k")) * 1024,
        device_s=reported.device_ns[workload] * 1e-9,
    )


@pytest.mark.parametrize(("framing", "workload"), CELLS, ids=[f"{f.name}-{w}" for f, w in CELLS])
def test_virtual_time_is_what_theory_predicts(
    measured: tuple[str, Measured], framing: Framing, workload: str
) -> None:
    transport, reported = measured
    column, predicted = reported.columns[framing.name], predict(transport, reported, framing, workload)
    cell = column.cells[workload]
    both_ways = predicted.to_initiator.wire_bytes + predicted.to_target.wire_bytes
    assert sum(wire_bytes(cell, framing).values()) == pytest.approx(both_ways, rel=BYTES_TOLERANCE)
    assert cell.total_ns / cell.ios == pytest.approx(predicted.time_s * 1e9, rel=TIME_TOLERANCE)
    assert column.mss_bytes == path_of(framing).mss_bytes


def table(transport: str, reported: Measured) -> Iterator[str]:
    """Predicted and virtual side by side, in Markdown."""
    yield "| column | MSS | | us: predicted | virtual | | bytes on the wire: predicted | virtual | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for framing, workload in CELLS:
        column = reported.columns[framing.name]
        cell, predicted = column.cells[workload], predict(transport, reported, framing, workload)
        time_us, expected_us = cell.total_ns / cell.ios / 1e3, predicted.time_s * 1e6
        wire = sum(wire_bytes(cell, framing).values())
        expected = predicted.to_initiator.wire_bytes + predicted.to_target.wire_bytes
        yield (
            f"| {framing.name} | {column.mss_bytes} | {workload.replace('-', ' ')} "
            f"| {expected_us:.1f} | {time_us:.1f} | {expected_us / time_us - 1:+.2%} "
            f"| {expected} | {wire:.1f} | {expected / wire - 1:+.3%} |"
        )


if __name__ == "__main__":
    sys.stdout.write("\n".join([*table(sys.argv[1], measure(sys.argv[1])), ""]))
