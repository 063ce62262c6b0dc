"""Protections by an interface (WireGuard, MACsec, ESP over MACsec) and NVMe/TCP, piece by piece in the lab.

`python -m tests.lab.test_kinds` prints theory against virtual time for all of them.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator

import msgspec
import pytest

from harness import nvme, theory
from harness.theory import Prediction
from tests.lab.cli import Done, harness, python_inside, run_inside
from tests.lab.inside.against_theory import WORKLOADS
from tests.lab.inside.kinds_against_theory import FRAMINGS, Column, Framing, Measured

pytestmark = pytest.mark.lab

DEADLINE_S = 900.0

BYTES_TOLERANCE = 0.005
TIME_TOLERANCE = 0.02

CELLS = [(framing, workload) for framing in FRAMINGS for workload in WORKLOADS]


def inside(module: str, *words: str, virtual_time: bool = False) -> Done:
    """A module of `tests.lab` on the lab's own kernel."""
    clock = ["--virtual-time"] if virtual_time else []
    command = ("lab", "exec", "--kernel", "own", *clock, "--memory", "512", "--")
    done = harness(*command, *python_inside(module, *words), deadline_s=DEADLINE_S)
    assert done.status == 0, done
    return done


@pytest.mark.own_kernel
@pytest.mark.parametrize("protection", ["wireguard", "macsec", "macsec+esp"])
def test_a_disk_through_it_is_proved_and_counted(protection: str) -> None:
    inside("inside.overlays", protection)


def test_debians_kernel_has_macsec() -> None:
    done = run_inside("inside.overlays", "macsec")
    assert done.status == 0, done


@pytest.mark.own_kernel
def test_an_nvme_tcp_disk_comes_tells_and_goes() -> None:
    inside("inside.nvme_tcp")


def measure() -> Measured:
    done = inside("inside.kinds_against_theory", secrets.token_hex(2), virtual_time=True)
    return msgspec.json.decode(done.out.strip().splitlines()[-1], type=Measured)


@pytest.fixture(scope="module")
def measured() -> Measured:
    return measure()


def predict(framing: Framing, workload: str, column: Column, device_ns: float) -> Prediction:
    direction: theory.Direction = "write" if workload.startswith("write") else "read"
    dialogue: theory.Dialogue
    if framing.transport == "nvme-tcp":
        in_capsule_bytes = int(column.agreed["in_capsule_bytes"])
        dialogue = nvme.Dialogue(in_capsule_bytes=in_capsule_bytes, window_bytes=column.window_bytes)
    else:
        dialogue = theory.Session.from_negotiated(column.agreed, direction, column.window_bytes)
    return theory.predict(
        theory.Path(link=framing.link, esp=framing.framing),
        dialogue,
        direction=direction,
        block_bytes=int(workload.rpartition("-")[2].removesuffix("k")) * 1024,
        device_s=device_ns * 1e-9,
    )


def compared(told: Measured, framing: Framing, workload: str) -> tuple[float, float, float, float]:
    """Bytes of frames and microseconds for one I/O: predicted and virtual."""
    column = told.columns[framing.name]
    cell = column.cells[workload]
    predicted = predict(framing, workload, column, told.device_ns[workload])
    counted = (cell.to_initiator_bytes + cell.to_target_bytes) / cell.ios
    expected = predicted.to_initiator.frame_bytes + predicted.to_target.frame_bytes
    return expected, counted, predicted.time_s * 1e6, cell.total_ns / cell.ios / 1e3


@pytest.mark.own_kernel
@pytest.mark.parametrize(("framing", "workload"), CELLS, ids=[f"{f.name}-{w}" for f, w in CELLS])
def test_virtual_time_is_what_theory_predicts(measured: Measured, framing: Framing, workload: str) -> None:
    expected_bytes, counted_bytes, expected_us, time_us = compared(measured, framing, workload)
    assert counted_bytes == pytest.approx(expected_bytes, rel=BYTES_TOLERANCE)
    assert time_us == pytest.approx(expected_us, rel=TIME_TOLERANCE)


def table(told: Measured) -> Iterator[str]:
    yield "| column | MSS | | us: predicted | virtual | | frames' bytes: predicted | virtual | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for framing, workload in CELLS:
        expected, counted, expected_us, time_us = compared(told, framing, workload)
        yield (
            f"| {framing.name} | {told.columns[framing.name].mss_bytes} | {workload.replace('-', ' ')} "
            f"| {expected_us:.1f} | {time_us:.1f} | {expected_us / time_us - 1:+.2%} "
            f"| {expected:.0f} | {counted:.1f} | {expected / counted - 1:+.3%} |"
        )


def main() -> None:
    sys.stdout.write("\n".join([*table(measure()), ""]))


if __name__ == "__main__":
    main()
