"""Clock and governor before and after a measurement: a change is reported, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from harness.hosts import NamespaceHost
from harness.model.telemetry import ProcessorUse
from harness.observe.conditions import (
    CLOCK_SOURCE,
    GOVERNOR,
    STEP_NS,
    Conditions,
    ConditionsWatch,
    changed,
    saturated,
)
from tests.unit.fakes import FakeHost, World

QUIET = Conditions(clock_offset_ns=10**18, clock_source="tsc", governors={"cpu0": "performance"})


@dataclass(frozen=True, eq=False)
class Machine(FakeHost):
    """A host whose files are given."""

    files: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def read_files(self, paths: Sequence[str]) -> list[str]:
        self.asked.extend(paths)
        return [self.files.get(path, "") for path in paths]

    def clock_offset_ns(self) -> int:
        return 7


def machine(**files: str) -> Machine:
    known = {"possible": "/sys/devices/system/cpu/possible", "source": CLOCK_SOURCE}
    known |= {f"cpu{n}": GOVERNOR.format(n) for n in range(8)}
    return Machine(
        world=World(), name="target", files={known[name]: f"{text}\n" for name, text in files.items()}
    )


def test_only_governors_that_are_there_are_looked_at() -> None:
    host = machine(possible="0-3", source="tsc", cpu0="powersave", cpu2="performance")
    watch = ConditionsWatch([host, host])
    host.asked.clear()
    (found,) = watch.look().values()
    assert found == Conditions(
        clock_offset_ns=7,
        clock_source="tsc",
        governors={GOVERNOR.format(0): "powersave", GOVERNOR.format(2): "performance"},
    )
    assert host.asked == [CLOCK_SOURCE, GOVERNOR.format(0), GOVERNOR.format(2)]


@pytest.mark.parametrize("possible", ["", "0", "nonsense", "0-999999999"])
def test_a_host_without_frequency_scaling_has_no_governors(possible: str) -> None:
    (found,) = ConditionsWatch([machine(possible=possible, source="jiffies")]).look().values()
    assert found.governors == {}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (QUIET, []),
        (
            Conditions(
                clock_offset_ns=QUIET.clock_offset_ns + STEP_NS // 2,
                clock_source="tsc",
                governors=QUIET.governors,
            ),
            [],
        ),
        (
            Conditions(
                clock_offset_ns=QUIET.clock_offset_ns - 2 * STEP_NS,
                clock_source="hpet",
                governors={"cpu0": "powersave"},
            ),
            [
                "clock changed: that of the target was set, or it slept, during the measurement",
                "clock changed: its source on the target from tsc to hpet during the measurement",
                "governor changed: on the target from performance to powersave during the measurement",
            ],
        ),
    ],
)
def test_what_changed_is_reported(after: Conditions, expected: list[str]) -> None:
    assert changed({"target": QUIET}, {"target": after}) == expected
    assert changed({}, {"target": after}) == []


class Clock:
    """Both clocks of a machine on which somebody else runs for 5 ms before most readings."""

    def __init__(self) -> None:
        self.readings = 0
        self.now_ns = 10**15

    def monotonic_ns(self) -> int:
        self.readings += 1
        # One reading in four groups of three is not interrupted.
        self.now_ns += 200 if self.readings % 13 > 8 else 5_000_000
        return self.now_ns

    def time_ns(self) -> int:
        return self.monotonic_ns() + 10**18


def test_a_busy_machine_has_not_set_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("harness.hosts.programs.here.time", clock)
    host, looks = NamespaceHost(name="target"), []
    for _ in range(5):
        looks.append(Conditions(clock_offset_ns=host.clock_offset_ns(), clock_source="tsc", governors={}))
        clock.readings += 1
    assert not any(changed({"target": looks[0]}, {"target": look}) for look in looks)
    assert looks[0].clock_offset_ns == pytest.approx(10**18, abs=1000)


def test_a_core_without_rest_is_reported() -> None:
    def use(host: str, busiest_core: float | None) -> ProcessorUse:
        return ProcessorUse(
            hosts=(host, f"{host}2"), wall_ns=10**9, cores=4, busy=0.4, busiest_core=busiest_core
        )

    found = saturated([use("target", 0.97), use("initiator", 0.94), use("other", None)])
    (two,) = found
    assert two == "CPU saturated: a core that target and target2 share was busy for 95 % of the time or more"
    (one,) = saturated([msgspec.structs.replace(use("target", 0.97), hosts=("target",))])
    assert one == "CPU saturated: a core of the target was busy for 95 % of the time or more"
