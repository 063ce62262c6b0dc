"""Every protection and stack in virtual time against theory, over iSCSI and NVMe/TCP.

`python -m tests.lab.test_protections_against_theory` measures, and prints what docs/theory.md shows of it.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator

import msgspec
import pytest

from harness.analysis import theory, wire
from harness.analysis.theory import Prediction
from harness.analysis.wire import framings
from harness.model import IpsecMode
from harness.model.protections import PROTECTIONS
from harness.parse.profiles import load_proposal
from tests.lab.cli import harness, python_inside
from tests.lab.inside.against_theory import WORKLOADS, Framing, Measured
from tests.lab.inside.protections_against_theory import FRAMINGS, split
from tests.lab.test_against_theory import DEADLINE_S, wire_bytes

# Three minutes of a processor: nothing that CI has time for.
pytestmark = [pytest.mark.lab, pytest.mark.own_kernel, pytest.mark.long]

BYTES_TOLERANCE = 0.005
TIME_TOLERANCE = 0.02

SHORT_SEGMENTS = {"macsec+wireguard.iscsi-transport-1500": 0.006}
"""Of bytes, for reads of 256K: when WireGuard's worker gets its turn, pages of LIO's leave alone of which the
model knows nothing. docs/theory.md has the figures."""

CELLS = [(framing, workload) for framing in FRAMINGS for workload in WORKLOADS]


def measure() -> Measured:
    inside: tuple[str, ...] = ("env", "PYTHONHASHSEED=0")
    inside += (*python_inside("inside.protections_against_theory", secrets.token_hex(2)),)
    done = harness(
        *("lab", "exec", "--kernel", "own", "--virtual-time", "--memory", "512", "--", *inside),
        deadline_s=DEADLINE_S,
    )
    assert done.status == 0, done
    return msgspec.json.decode(done.out.strip().splitlines()[-1], type=Measured)


@pytest.fixture(scope="module")
def measured() -> Measured:
    return measure()


def wire_of(framing: Framing) -> theory.Wire:
    protection, _ = split(framing)
    proposals = {name: load_proposal(name) for name in protection if name not in PROTECTIONS}
    found = framings.of(protection, proposals, IpsecMode.TRANSPORT, framing.mtu_bytes)
    assert found is not None
    return theory.Wire(link=framing.link, framing=found)


def predict(reported: Measured, framing: Framing, workload: str) -> Prediction:
    column = reported.columns[framing.name]
    kind, _, block = workload.partition("-")
    direction: theory.IoDirection = "write" if kind == "write" else "read"
    carrier = wire.transport(split(framing)[1])
    dialogue = carrier.dialogue(column.session, direction, column.window_bytes)
    assert dialogue is not None, column.session
    return theory.predict(
        wire_of(framing),
        dialogue,
        direction=direction,
        block_bytes=int(block.removesuffix("k")) * 1024,
        device_s=reported.device_ns[workload] * 1e-9,
    )


@pytest.mark.parametrize(("framing", "workload"), CELLS, ids=[f"{f.name}-{w}" for f, w in CELLS])
def test_virtual_time_is_what_theory_predicts(measured: Measured, framing: Framing, workload: str) -> None:
    cell, predicted = measured.columns[framing.name].cells[workload], predict(measured, framing, workload)
    both_ways = predicted.to_initiator.wire_bytes + predicted.to_target.wire_bytes
    of_bytes = BYTES_TOLERANCE
    if workload == "read-256k":
        of_bytes = SHORT_SEGMENTS.get(framing.name, of_bytes)
    assert sum(wire_bytes(cell, framing).values()) == pytest.approx(both_ways, rel=of_bytes)
    assert cell.total_ns / cell.ios == pytest.approx(predicted.time_s * 1e9, rel=TIME_TOLERANCE)
    assert measured.columns[framing.name].mss_bytes == wire_of(framing).mss_bytes


def table(reported: Measured) -> Iterator[str]:
    """Predicted and virtual side by side, in Markdown."""
    yield "| column | MTU | MSS | | us: predicted | virtual | | bytes on the wire: predicted | virtual | |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for framing, workload in CELLS:
        column = reported.columns[framing.name]
        cell, predicted = column.cells[workload], predict(reported, framing, workload)
        time_us, expected_us = cell.total_ns / cell.ios / 1e3, predicted.time_s * 1e6
        wire = sum(wire_bytes(cell, framing).values())
        expected = predicted.to_initiator.wire_bytes + predicted.to_target.wire_bytes
        protection, carrier = split(framing)
        yield (
            f"| {'+'.join(protection)}, {carrier} | {framing.mtu_bytes} | {column.mss_bytes} "
            f"| {workload.replace('-', ' ')} | {expected_us:.1f} | {time_us:.1f} "
            f"| {expected_us / time_us - 1:+.2%} | {expected} | {wire:.1f} | {expected / wire - 1:+.3%} |"
        )


if __name__ == "__main__":
    sys.stdout.write("\n".join([*table(measure()), ""]))
