"""Virtual time by a CPU cost file: a processor takes its time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.model import Io, Status
from harness.model.errors import RequirementError
from harness.parse import cpu_costs
from harness.testbeds.lab.kernels import kernel
from tests.lab.cli import ON_CI, Measured, harness_once, measure

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel, pytest.mark.long]
"""Long, because it takes a kernel of its own."""

LIST = "lab-custom"
DEEP = ("1", "8", "32")
WORDS = (
    *("--virtual-time", "--runtime", "0.1s", "--size", "16M", "--link", "wired", "--ipsec", "both"),
    *("--workload", "rand-read-4k", "--depth", ",".join(DEEP)),
)
CELLS = 2 * len(DEEP)


@pytest.fixture(scope="module", autouse=True)
def kernel_with_cpu_costs() -> None:
    try:
        kernel.with_costs()
    except RequirementError as error:
        if not ON_CI:
            pytest.skip(str(error))
        kernel.build(lambda *_: None, simulated=True)


SPREAD_TOLERANCE = 1e-4
"""By the same CPU costs one of two cells over NVMe/TCP had a standard deviation that differed by 6e-5,
and all else was the same: of two I/Os another one had come first."""


def assert_same(one: Measured, other: Measured) -> None:
    """To the last digit, but for standard deviations."""
    found, expected = figures(one), figures(other)
    assert found.keys() == expected.keys()
    for key, ios in found.items():
        for io, like in zip(ios, expected[key], strict=True):
            assert (io is None) is (like is None)
            if io is None or like is None:
                continue
            spreads = (io.latency.stddev_ns, like.latency.stddev_ns)
            assert spreads[0] == pytest.approx(spreads[1], rel=SPREAD_TOLERANCE), key
            latency = msgspec.structs.replace(io.latency, stddev_ns=spreads[1])
            assert msgspec.structs.replace(io, latency=latency) == like, key


def figures(measured: Measured) -> dict[str, tuple[Io | None, Io | None]]:
    found = measured.records
    assert len(found) == CELLS, measured.done
    assert {(record.status, record.reason) for record in found.values()} == {(Status.OK, None)}, found
    return {key: (record.read, record.write) for key, record in found.items()}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure(tmp_path_factory.mktemp("simulated"), *WORDS, "--cpu-costs", LIST)


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure(tmp_path_factory.mktemp("free"), *WORDS)


def test_the_same_costs_give_the_same_figures(simulated: Measured, tmp_path: Path) -> None:
    assert_same(measure(tmp_path, *WORDS, "--cpu-costs", LIST), simulated)


def test_with_costs_of_nothing_the_figures_are_those_of_virtual_time(free: Measured, tmp_path: Path) -> None:
    known = cpu_costs.load_cpu_costs(LIST)
    nothing = [msgspec.structs.replace(cost, ns=0.0, low=0.0, high=0.0) for cost in known.costs]
    file = tmp_path / "nothing.toml"
    file.write_text(cpu_costs.written(msgspec.structs.replace(known, costs=tuple(nothing))))
    assert_same(measure(tmp_path / "runs", *WORDS, "--cpu-costs", str(file)), free)


def test_a_core_fills_up(simulated: Measured, free: Measured) -> None:
    def rates(of: Measured, column: str) -> list[float]:
        records = [record for record in of.records.values() if record.column.label == column]
        records.sort(key=lambda record: record.workload.depth or 0)
        return [record.read.bytes_per_s for record in records if record.read]

    column = "wired+aes128gcm16"
    alone, eight, most = rates(simulated, column)
    assert 4 * alone < eight < most < 1.15 * eight, "more at once get little more"
    assert most < 0.95 * rates(free, column)[-1], "where nothing but the link would limit it"
    plain, gcm = (rates(simulated, column) for column in ("wired", "wired+aes128gcm16"))
    assert gcm[0] < 0.99 * plain[0], "alone most of the time is the round trip's"
    assert all(of < 0.9 * other for of, other in zip(gcm[1:], plain[1:], strict=True)), "and on a full core"


def test_nothing_lets_it_be_taken_for_measured(simulated: Measured) -> None:
    table = harness_once("table", str(simulated.folder))
    assert "predicted from lab-custom" in " ".join(table.out.split()), table
    assert "Predicted, not measured: " in table.out
    settings = [cell["setting"] for cell in simulated.table()["cells"]]
    assert {each["predicted_from"].partition(" ")[0] for each in settings} == {LIST}
    explained = harness_once("explain", str(simulated.folder))
    assert "limits" not in explained.out, explained
