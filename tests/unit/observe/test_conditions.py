"""Clock and governor before and after a measurement: a change is reported, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from harness.hosts import NamespaceHost
from harness.model.telemetry import ProcessorUse
from harness.observe import conditions
from harness.observe.conditions import CLOCK_SOURCE, GOVERNOR, STEP_NS, Conditions, ConditionsWatch, changed
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
    written = {known[name]: f"{text}\n" for name, text in files.items()}
    return Machine(world=World(), name="target", files=written)


def test_only_governors_that_are_there_are_looked_at() -> None:
    host = machine(possible="0-3", source="tsc", cpu0="powersave", cpu2="performance")
    watch = ConditionsWatch([host, host])
    host.asked.clear()
    (found,) = watch.look().values()
    governors = {GOVERNOR.format(0): "powersave", GOVERNOR.format(2): "performance"}
    assert found == Conditions(clock_offset_ns=7, clock_source="tsc", governors=governors)
    assert host.asked == [CLOCK_SOURCE, *governors]
    # A host without frequency scaling has none.
    for possible in ("", "0", "nonsense", "0-999999999"):
        (found,) = ConditionsWatch([machine(possible=possible, source="jiffies")]).look().values()
        assert found.governors == {}, possible


def test_what_changed_is_reported() -> None:
    later = msgspec.structs.replace(QUIET, clock_offset_ns=QUIET.clock_offset_ns + STEP_NS // 2)
    was_set, slow = QUIET.clock_offset_ns - 2 * STEP_NS, {"cpu0": "powersave"}
    other = Conditions(clock_offset_ns=was_set, clock_source="hpet", governors=slow)
    said = [
        "clock changed: the target's clock was set, or the machine slept, during the measurement",
        "clock changed: the clock source of the target, from tsc to hpet during the measurement",
        "governor changed: on the target, from performance to powersave during the measurement",
    ]
    for after, expected in ((QUIET, []), (later, []), (other, said)):
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
    monkeypatch.setattr("harness.hosts.programs.local_operations.time", clock)
    host, looks = NamespaceHost(name="target"), []
    for _ in range(5):
        looks.append(Conditions(clock_offset_ns=host.clock_offset_ns(), clock_source="tsc", governors={}))
        clock.readings += 1
    assert not any(changed({"target": looks[0]}, {"target": look}) for look in looks)
    assert looks[0].clock_offset_ns == pytest.approx(10**18, abs=1000)


def test_a_core_without_rest_is_reported() -> None:
    names = ("target", "target2")
    use = ProcessorUse(hosts=names, wall_ns=10**9, cores=4, busy=0.4, busiest_core=0.97)
    others = [msgspec.structs.replace(use, hosts=("x",), busiest_core=busiest) for busiest in (0.94, None)]
    for hosts, said in ((names, "that target and target2 share"), (("target",), "of the target")):
        found = conditions.saturated([msgspec.structs.replace(use, hosts=hosts), *others])
        assert found == [f"CPU saturated: a core {said} was busy for 95 % of the time or more"]
