"""Virtual time against theory, and against itself: the same frames to the last byte.

In CI each framing has one workload (`square`); `-m long` has all cells.

`python -m tests.lab.test_against_theory measure` writes the reference figures anew;
`python -m tests.lab.test_against_theory table` prints what docs/theory.md shows of them.
"""

from __future__ import annotations

import functools
import operator
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator

import msgspec
import pytest

from harness.analysis import theory
from harness.analysis.theory import Prediction
from harness.analysis.wire import WireProtocol
from harness.analysis.wire.iscsi import IscsiWire
from harness.model import PROTECTION_OFF, IpsecMode
from harness.parse.profiles import load_proposal
from tests.lab import references
from tests.lab.cli import harness, python_inside, well
from tests.lab.inside.against_theory import FRAMINGS, WORKLOADS, Cell, Column, Framing, Measured
from tests.lab.square import square

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

GOLDEN = {"all": "against-theory.json", "square": "against-theory-square.json"}
"""By how many cells are measured: what a connection has carried before shows in its counters."""

DEADLINE_S = 1800.0
"""Two to four minutes of real time, as busy as the machine is: virtual time itself does not tell."""

WIRE_TOLERANCE = 0.002
"""In a few cells the short run has some bare ACKs more or fewer than the long one."""

TIME_TOLERANCE = 0.001

REPEAT_TOLERANCE = 0.0001
"""A few of the 56 times differ between users by up to 4.4e-6, some ns an I/O; why has not been found."""

REGENERATE = "if that was meant: python -m tests.lab.test_against_theory measure, and say why in CHANGELOG.md"


def name_of(framing: Framing, workload: str) -> str:
    return f"{framing.name}-{workload}"


CELLS = [(framing, workload) for framing in FRAMINGS for workload in WORKLOADS]
PLACES = [
    *(pytest.param("square", *place, id=name_of(*place)) for place in square(FRAMINGS, list(WORKLOADS))),
    *(pytest.param("all", *place, id=f"all-{name_of(*place)}", marks=pytest.mark.long) for place in CELLS),
]
HOW_MANY = ["square", pytest.param("all", marks=pytest.mark.long)]


def measured_by(module: str, *words: str) -> Measured:
    """What a script measures on the custom kernel, under names that no other run has."""
    # In what order Python goes through a set is otherwise random.
    inside = ("env", "PYTHONHASHSEED=0", *python_inside(module, secrets.token_hex(2), *words))
    options = ("--kernel", "custom", "--virtual-time", "--memory", "512")
    done = well(harness("lab", "exec", *options, "--", *inside, deadline_s=DEADLINE_S))
    return msgspec.json.decode(done.out.strip().splitlines()[-1], type=Measured)


def measure(how_many: str) -> Measured:
    """All cells or those of a square."""
    return measured_by("inside.against_theory", how_many)


def golden(how_many: str) -> Measured:
    """The reference figures of this system."""
    return msgspec.json.decode((references.folder() / GOLDEN[how_many]).read_bytes(), type=Measured)


def reference(how_many: str) -> Measured:
    try:
        return golden(how_many)
    except FileNotFoundError as error:
        pytest.skip(f"no reference figures for this system: {error.filename}")


@pytest.fixture(scope="module")
def measured() -> Callable[[str], Measured]:
    return functools.cache(measure)


def path_of(framing: Framing) -> theory.Wire:
    if framing.proposal == PROTECTION_OFF:
        return theory.Wire(link=framing.link)
    algorithms = load_proposal(framing.proposal).kernel_algorithms
    return theory.Wire(link=framing.link, framing=theory.esp(algorithms, IpsecMode(framing.mode)))


def predicted_for(
    wire: theory.Wire, carrier: WireProtocol, reported: Measured, framing: Framing, workload: str
) -> Prediction:
    column, (kind, _, block) = reported.columns[framing.name], workload.partition("-")
    direction: theory.IoDirection = "write" if kind == "write" else "read"
    dialogue = carrier.dialogue(column.session, direction, column.window_bytes)
    assert dialogue is not None, column.session
    block_bytes, device_s = int(block.removesuffix("k")) * 1024, reported.device_ns[workload] * 1e-9
    return theory.predict(wire, dialogue, direction=direction, block_bytes=block_bytes, device_s=device_s)


def predict(reported: Measured, framing: Framing, workload: str) -> Prediction:
    return predicted_for(path_of(framing), IscsiWire(), reported, framing, workload)


def wire_bytes(cell: Cell, framing: Framing) -> dict[str, float]:
    """What one I/O of the cell took of the medium, each way."""
    overhead_bytes = framing.link.frame_overhead_bytes
    return {
        "to_initiator": (cell.to_initiator_bytes + overhead_bytes * cell.to_initiator_frames) / cell.ios,
        "to_target": (cell.to_target_bytes + overhead_bytes * cell.to_target_frames) / cell.ios,
    }


def assert_as_predicted(
    cell: Cell, framing: Framing, predicted: Prediction, *, of_bytes: float, of_time: float
) -> None:
    both_ways = predicted.to_initiator.wire_bytes + predicted.to_target.wire_bytes
    assert sum(wire_bytes(cell, framing).values()) == pytest.approx(both_ways, rel=of_bytes)
    assert cell.total_ns / cell.ios == pytest.approx(predicted.time_s * 1e9, rel=of_time)


@pytest.mark.parametrize(("how_many", "framing", "workload"), PLACES)
def test_virtual_time_is_what_theory_predicts(
    measured: Callable[[str], Measured], how_many: str, framing: Framing, workload: str
) -> None:
    reported = measured(how_many)
    column, predicted = reported.columns[framing.name], predict(reported, framing, workload)
    cell = column.cells[workload]
    data_goes = "to_target" if workload.startswith("write") else "to_initiator"
    expected_bytes = getattr(predicted, data_goes).wire_bytes
    assert wire_bytes(cell, framing)[data_goes] == pytest.approx(expected_bytes, rel=WIRE_TOLERANCE)
    assert_as_predicted(cell, framing, predicted, of_bytes=WIRE_TOLERANCE, of_time=TIME_TOLERANCE)
    assert column.mss_bytes == path_of(framing).mss_bytes


def without_times(column: Column) -> Column:
    """All that was counted and negotiated."""
    cells = {what: msgspec.structs.replace(cell, total_ns=0) for what, cell in column.cells.items()}
    return msgspec.structs.replace(column, cells=cells)


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_frames_and_bytes_are_the_reference_to_the_last_digit(
    measured: Callable[[str], Measured], how_many: str
) -> None:
    both = measured(how_many), reference(how_many)
    for framing in FRAMINGS:
        found, expected = (without_times(of.columns[framing.name]) for of in both)
        assert found == expected, REGENERATE


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_times_are_the_reference(measured: Callable[[str], Measured], how_many: str) -> None:
    both = found, asked = measured(how_many), reference(how_many)
    times, expected = (
        {
            (name, what): cell.total_ns
            for name, column in of.columns.items()
            for what, cell in column.cells.items()
        }
        for of in both
    )
    assert times == pytest.approx(expected, rel=REPEAT_TOLERANCE), REGENERATE
    assert found.device_ns == pytest.approx(asked.device_ns, rel=REPEAT_TOLERANCE), REGENERATE


def table(
    reported: Measured,
    cells: Iterable[tuple[Framing, str]],
    predict: Callable[[Measured, Framing, str], Prediction],
    **first: Callable[[Framing], object],
) -> Iterator[str]:
    """Predicted and virtual side by side, in Markdown; ``first`` has the first columns."""
    heads = [*first, "MSS", "", "us: predicted", "virtual", "", "bytes on the wire: predicted", "virtual", ""]
    yield f"| {' | '.join(heads)} |".replace("  ", " ")
    yield f"|{'---|' * len(heads)}"
    for framing, workload in cells:
        column = reported.columns[framing.name]
        cell, predicted = column.cells[workload], predict(reported, framing, workload)
        time_us, expected_us = cell.total_ns / cell.ios / 1e3, predicted.time_s * 1e6
        wire = sum(wire_bytes(cell, framing).values())
        expected = predicted.to_initiator.wire_bytes + predicted.to_target.wire_bytes
        words = [f"{word(framing)}" for word in first.values()]
        words += [f"{column.mss_bytes}", workload.replace("-", " "), f"{expected_us:.1f}", f"{time_us:.1f}"]
        words += [
            f"{expected_us / time_us - 1:+.2%}",
            f"{expected}",
            f"{wire:.1f}",
            f"{expected / wire - 1:+.3%}",
        ]
        yield f"| {' | '.join(words)} |"


def esp_of(framing: Framing) -> str:
    return "plain" if framing.proposal == PROTECTION_OFF else f"{framing.proposal} {framing.mode.value}"


def documented() -> Iterator[str]:
    """A table of Markdown: theory next to the reference figures."""
    yield from table(golden("all"), CELLS, predict, MTU=operator.attrgetter("mtu_bytes"), ESP=esp_of)


def main(what: str) -> None:
    if what == "measure":
        for how_many, name in GOLDEN.items():
            file = references.folder() / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(msgspec.json.format(msgspec.json.encode(measure(how_many))) + b"\n")
    sys.stdout.write("\n".join([*documented(), ""]))


if __name__ == "__main__":
    main(*sys.argv[1:])
