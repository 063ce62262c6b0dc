"""What others take of a machine: from counters to a share, who is left out for it, and who looks."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis import disturbance
from harness.analysis.disturbance import THRESHOLD, Core, MachineSample
from harness.hosts import NamespaceHost, programs
from harness.hosts.runner import await_condition
from harness.model import Clock, Record, Status
from harness.model.telemetry import BackgroundLoad, Telemetry
from harness.observe import interference
from harness.observe.interference import LIVE, SLOT_BYTES, SLOTS, FromOutside, OnMachines, Sampler, Standstill
from harness.observe.programs import interference as program
from tests.unit.fakes import World
from tests.unit.parsing import has, known
from tests.unit.results_folder import made_plan
from tests.unit.table.test_table import record

pytestmark = pytest.mark.thorough

S = 10**9
PATIENCE_S = 60.0
ZERO = MachineSample(at_ns=0, processors=2, idle_ns=0, stolen_ns=(0, 0), ours_ns=0, until_ns=0)
CORE = Core(number=1, idle_ns=0, stolen_ns=0, ran_ns=0, waited_ns=0)
HOSTS = ("initiator", "target")
LAST_CORE = max(os.sched_getaffinity(0))
changed = msgspec.structs.replace


def after(seconds: float, core: dict[str, Any] | None = None, **changes: Any) -> MachineSample:
    """A look so many seconds after ``ZERO``; times in ``changes`` and ``core`` are in seconds."""

    def in_ns(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: round(v * S) if name.endswith("_ns") else v for name, v in fields.items()}

    at_ns = round(seconds * S)
    cores = () if core is None else (changed(CORE, **in_ns(core)),)
    stolen = tuple(round(part * S) for part in changes.pop("stolen_ns", (0, 0)))
    return changed(ZERO, at_ns=at_ns, until_ns=at_ns, cores=cores, stolen_ns=stolen, **in_ns(changes))


def used(
    last: MachineSample, hosts: tuple[str, ...] = HOSTS, busy: float = 1.0, **first: Any
) -> BackgroundLoad:
    cores = tuple(changed(CORE, siblings=core.siblings) for core in last.cores)
    begin = changed(ZERO, cores=cores, pressure_ns=0, throttled_ns=0, **first)
    return known(disturbance.between(begin, last, hosts, busy))


def assert_shares(name: str, use: BackgroundLoad, expected: dict[str, float | None]) -> None:
    assert {part: getattr(use, part) for part in expected} == pytest.approx(expected), name


def until(is_so: Callable[[], bool]) -> None:
    await_condition(is_so, deadline_s=PATIENCE_S, what="what is tested", interval_s=0)


def await_look(sampler: Sampler, is_due: Callable[[MachineSample], bool]) -> MachineSample:
    looks: list[MachineSample] = []

    def is_there() -> bool:
        looks.append(sampler.look())
        return is_due(looks[-1])

    await_condition(is_there, deadline_s=PATIENCE_S, what="such a look")
    return looks[-1]


# In seconds, of two: for how long the lab's processor was idle, the lab ran and waited, and both were idle
# together; and what that comes to.
IN_LAB: dict[str, tuple[tuple[float, float, float], float, dict[str, Any], dict[str, float | None]]] = {
    # `taken` is the core's time that is neither idle nor the lab's.
    "waits-for-itself": ((0.2, 1.75, 0.38), 2.2, {}, {"waited": 0.19, "taken": 0.025, "used": 0.0125}),
    "a-loop-has-half-of-its-core": ((0, 1.0, 1.07), 1.0, {}, {"taken": 0.5, "used": 0.5}),
    # A lab that was 27 % slower next to two loops: it was given its core 190 000 times a second.
    "handed-over-fast": ((0, 1.34, 0.65), 0.6, {}, {"taken": 0.325}),
    "no-more-than-others-had": ((0.5, 1.3, 1.9), 2.5, {}, {"taken": 0.1}),
    "used-while-the-lab-sleeps": ((0, 0.5, 0.02), 2, {}, {"taken": 0.01, "used": 1.5 / 4}),
    "hypervisor": ((0, 1.4, 0), 2, {"stolen_ns": (0.0, 0.6)}, {"taken": 0.3, "stolen": 0.3, "used": 0.0}),
    "limit": ((1.0, 1.0, 0.9), 3, {"throttled_ns": 0.9}, {"taken": 0.45, "throttled": 0.45}),
    "hyperthread": ((0, 2, 0), 0.5, {}, {"sibling_busy": 0.75, "taken": 0.375}),
}
MORE_OF_CORE = {"hypervisor": {"stolen_ns": 0.6}, "hyperthread": {"siblings": 1, "siblings_idle_ns": 0.5}}


def test_what_others_take_of_a_lab_is_what_it_waits_for_them() -> None:
    for name, ((idle, ran, waited), both_idle, more, expected) in IN_LAB.items():
        core = {"idle_ns": idle, "ran_ns": ran, "waited_ns": waited, **MORE_OF_CORE.get(name, {})}
        use = used(after(2, core, idle_ns=both_idle, ours_ns=ran, **more))
        assert_shares(name, use, expected)
        assert (use.hosts, use.cores, use.wall_ns) == (HOSTS, 2, 2 * S)
    # Of several kernels the one that lost most counts.
    first = changed(ZERO, processors=4, cores=(CORE, changed(CORE, number=0)), stolen_ns=(0,) * 4)
    busy = changed(CORE, ran_ns=S // 2, waited_ns=S // 2)
    calm = changed(CORE, number=0, ran_ns=S // 2, idle_ns=S // 2)
    cores = (calm, busy, changed(busy, number=2))
    last = changed(first, at_ns=S, until_ns=S, cores=cores, idle_ns=S // 2, ours_ns=S)
    assert known(disturbance.between(first, last, HOSTS)).taken == pytest.approx(0.5)


def test_a_core_whose_pace_fell_short_of_its_best_lost_that_part_of_what_it_ran() -> None:
    """Two looks in the window, at half and at seven tenths of the best pace; the lab ran half of the time."""
    core = {"idle_ns": 1.0, "ran_ns": 1.0, "waited_ns": 0, "siblings": 1, "siblings_idle_ns": 0}
    last = after(2, core | {"paces": 2, "pace_sum": 1.2, "best_pace": 1.0}, idle_ns=1.0, ours_ns=1.0)
    # Of a busy hyperthread a half would be the most that it may be.
    assert_shares("pace", used(last), {"slowed": 0.4, "taken": 0.2, "sibling_busy": 1.0})
    assert used(last, busy=0.25).taken == pytest.approx(0.1), "the rest of the time it waited awake"
    assert used(changed(last, cores=(changed(last.cores[0], pace_sum=2.1),))).taken == 0.0


def test_the_pace_of_a_processor_is_that_of_work_that_is_always_the_same() -> None:
    pace = interference.Pace()
    assert (len(pace), pace.sum, pace.best) == (0, 0.0, 0.0)
    before = os.sched_getaffinity(0)
    for _ in range(40):
        pace.take(max(before))
    assert os.sched_getaffinity(0) == before
    paces = sorted(pace._all)
    assert len(pace) == 40 and 0 < pace.sum / 40 <= paces[-1] and paces[20] <= pace.best <= paces[-1]
    assert 1_000 < 1 / pace.best < 10_000_000, "nanoseconds"
    with pytest.raises(OSError, match="Invalid argument"):
        pace.take(1 << 12)
    assert os.sched_getaffinity(0) == before


def test_a_machine_is_virtual_where_its_processor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for cpuinfo, is_it in (
        ("processor\t: 0\nflags\t\t: fpu sse hypervisor lahf_lm\n", True),
        ("processor\t: 0\nflags\t\t: fpu sse lahf_lm\nbugs\t\t: hypervisor\n", False),
        ("processor\t: 0\nFeatures\t: fp asimd\n", False),
        ("", False),
    ):
        monkeypatch.setattr("harness.observe.interference.looks.read", lambda _path, text=cpuinfo: text)
        assert interference._is_virtual() is is_it, cpuinfo


@pytest.mark.usefixtures("bound")
@pytest.mark.parametrize("is_virtual", [True, False])
def test_only_virtual_machines_have_paces(monkeypatch: pytest.MonkeyPatch, is_virtual: bool) -> None:
    monkeypatch.setattr(interference, "_is_virtual", lambda: is_virtual)
    sampler = Sampler()
    # It may have waited for a file when it was first looked at.
    (first,) = await_look(sampler, lambda look: bool(look.cores)).cores
    (last,) = await_look(sampler, lambda look: any(core.paces or not is_virtual for core in look.cores)).cores
    assert first.paces == 0 and last.paces == (1 if is_virtual else 0), last
    assert (last.best_pace > 0) is is_virtual


def test_a_core_that_rested_or_was_not_looked_at_before_has_no_pace() -> None:
    first, bound = interference._Bound(), interference._Bound()
    assert (first.was_busy(10 * S, 0), first.was_busy(11 * S, 0)) == (False, True)
    # In the second before 12 it was idle for a half.
    for at, idle_s, was_busy in ((10, 9.0, False), (11, 9.1, True), (12, 9.6, False), (13, 9.8, True)):
        assert bound.was_busy(at * S, round(idle_s * S)) is was_busy, at


# The same, for how long both processors were idle, of a machine whose own programs ran for one second.
ON_MACHINE: dict[str, tuple[float, dict[str, Any], dict[str, float | None]]] = {
    "the-stack-waits-for-itself": (2.9, {"pressure_ns": 0.6}, {"taken": 0.05}),
    "processors-for-all": (1.0, {"pressure_ns": 0.04}, {"taken": 0.02}),
    "busy": (0, {"pressure_ns": 1.9}, {"taken": 0.95, "used": 0.75, "pressure": 0.95}),
    "nobody-counts-who-waits": (1.0, {}, {"taken": 0.5, "waited": 0.5, "pressure": None}),
    "hypervisor": (2.4, {"stolen_ns": (0.6, 0.0), "pressure_ns": 0}, {"taken": 0.3, "stolen": 0.3}),
    "hyperthread": (2, {"pressure_ns": 0, "is_hyperthreaded": True}, {"taken": 0.125, "sibling_busy": 0.25}),
    "limit": (3.0, {"pressure_ns": 0.5, "throttled_ns": 0.5}, {"taken": 0.25}),
}


def test_who_waits_on_a_machine_counts_as_far_as_others_had_processors() -> None:
    for name, (idle_ns, more, expected) in ON_MACHINE.items():
        assert_shares(name, used(after(2, idle_ns=idle_ns, ours_ns=1.0, **more), ("nas",)), expected)


def others(taken: float | None, **more: Any) -> BackgroundLoad:
    return BackgroundLoad(hosts=HOSTS, wall_ns=2 * S, cores=2, taken=taken, **more)


def disturbed(taken: float | None, **changes: Any) -> Record:
    names = {"used", "stolen", "throttled", "slowed", "waited", "suspended_ns"} & changes.keys()
    use = others(taken, **{name: changes.pop(name) for name in names})
    return record(**changes, telemetry=Telemetry(background_load=(use,)))


def test_it_is_calm_where_a_processor_is_left() -> None:
    calm = [(0.05, 0.0, 2), (0.5, 0.0, 2), (0.9, 0.0, 16), (None, None, 1)]
    for used, stolen, cores in (*calm, (0.6, 0.0, 2), (0.05, 0.2, 2), (0.2, 0.0, 1)):
        use = BackgroundLoad(hosts=(), wall_ns=1, cores=cores, used=used, stolen=stolen)
        assert disturbance.is_idle([use]) is ((used, stolen, cores) in calm), use
        assert not disturbance.is_idle([changed(use, slowed=0.3)])


def test_what_is_known_of_a_record() -> None:
    assert disturbance.share(record()) is None and not disturbance.is_disturbed(record())
    assert disturbance.share(disturbed(None)) is None
    assert disturbance.share(disturbed(0.4, clock=Clock.VIRTUAL)) == 0.0
    assert not disturbance.is_disturbed(disturbed(THRESHOLD))
    loud, words = disturbed(0.63, used=0.7), "other programs used 70 % of the processors"
    assert disturbance.described(loud) == disturbance.Disturbed(0.63, words)
    assert disturbance.described(disturbed(0.63, status=Status.FAILED)) is None
    summary = disturbance.summary([loud, disturbed(0.2)])
    assert summary == f"disturbed: other programs took up to 63 % of the time ({words})"
    assert disturbance.summary([record()]) == ""


def test_who_disturbed_is_named() -> None:
    for words, more in {
        "the hypervisor gave 20 % of a processor to other machines": {"used": 0.05, "stolen": 0.2},
        "the limit of a control group held the run for 25 % of the time": {"used": 0.05, "throttled": 0.25},
        "the processor was 37 % slower than at its best": {"used": 0.05, "slowed": 0.37},
        "other programs used 71 % of the processors": {"used": 0.71, "slowed": 0.37, "waited": 0.4},
    }.items():
        assert disturbance.cause(disturbed(0.3, **more)) == words
    assert disturbance.cause(record()) == "the cause is unknown"
    # Of several machines the one that lost most or was suspended is named.
    still = "the run stood still for 1.0 s: it was stopped, or the machine slept"
    for share, near, far, cause in (
        (0.5, {"taken": 0.1}, {"taken": 0.5, "used": 0.5}, "other programs used 50 % of the processors"),
        (0.9, {"taken": 0.9}, {"taken": 0.0, "suspended_ns": S}, still),
    ):
        both = zip(HOSTS, (near, far), strict=True)
        uses = tuple(changed(others(None), hosts=(host,), **facts) for host, facts in both)
        found = record(telemetry=Telemetry(background_load=uses))
        assert (disturbance.share(found), disturbance.cause(found)) == (share, f"on the target {cause}")


def test_a_disturbed_repeat_counts_where_there_is_no_other_and_is_final_where_none_follows() -> None:
    good, loud, failed = disturbed(0.0), disturbed(0.5, repeat=2), record(status=Status.FAILED, repeat=3)
    assert disturbance.counting([loud, good, failed]) == [good] == disturbance.quiet([loud, good, failed])
    assert disturbance.counting([loud, failed]) == [loud] and disturbance.quiet([loud, failed]) == []
    plan = made_plan()
    assert disturbance.is_final(record(), plan) and not disturbance.is_final(disturbed(0.5), plan)
    assert disturbance.is_final(disturbed(0.5), changed(plan, retries=0))
    assert not disturbance.is_final(record(status=Status.INVALID), plan)


def suspended(seconds: float, taken: float | None = 0.0, **changes: Any) -> Record:
    return disturbed(taken, suspended_ns=round(seconds * S), **changes)


def test_what_is_unknown_takes_the_place_of_nothing_known() -> None:
    """A run whose harness was stopped: nobody watched its second repeat, and others disturbed the first."""
    honest, unknown, good = disturbed(0.2), record(repeat=2), disturbed(0.0, repeat=3)
    assert disturbance.counting([honest, unknown]) == [honest, unknown], "with a mark"
    assert disturbance.quiet([honest, unknown]) == []
    assert disturbance.most_disturbed([unknown, honest]) is honest
    assert disturbance.counting([honest, unknown, good]) == [good] == disturbance.quiet([unknown, good])
    assert disturbance.counting([disturbed(None, repeat=2), good]) == [good]
    elsewhere = record(run_id="r2", repeat=2)
    assert disturbance.counting([honest, elsewhere]) == [elsewhere], "of a run that nobody watched"
    # What nobody ever watched counts as it is.
    old = [record(repeat=n) for n in range(3)]
    assert disturbance.counting(old) == old == disturbance.quiet(old)
    assert disturbance.is_final(old[0], made_plan()) and disturbance.described(old[0]) is None
    assert disturbance.most_disturbed(old) is old[0] and disturbance.most_disturbed([]) is None
    assert disturbance.undisturbed(5.0, old[0]) == (5.0, math.inf)


def test_a_suspension_disturbs_though_it_was_short() -> None:
    found = suspended(0.6)
    assert disturbance.is_disturbed(found) and not disturbance.is_final(found, made_plan())
    shares = [disturbance.share(each) for each in (found, suspended(0.6, taken=0.5), suspended(9.0))]
    assert shares == pytest.approx([0.3, 0.5, 1.0])
    words = "the run stood still for 0.6 s: it was stopped, or the machine slept"
    assert disturbance.cause(found) == words
    assert disturbance.summary([found, disturbed(0.2)]) == f"disturbed: {words}"
    assert disturbance.quiet([found]) == [] and disturbance.counting([found]) == [found]
    assert disturbance.most_disturbed([disturbed(0.05), suspended(0.02)]) == suspended(0.02)
    assert not disturbance.is_disturbed(suspended(0.0))
    assert not disturbance.is_disturbed(suspended(9.0, clock=Clock.VIRTUAL))
    assert not disturbance.is_idle(found.background_load) and disturbance.is_idle(
        suspended(0.0).background_load
    )
    # Clocks are read one after the other: on two stock machines 64 of 80 cells had 20 to 150 us of it.
    found = suspended(150e-6)
    assert not disturbance.is_disturbed(found) and disturbance.is_idle(found.background_load)
    assert disturbance.share(found) == 0.0 and disturbance.quiet([found]) == [found]
    busy = suspended(0.004, taken=0.5)
    assert disturbance.share(busy) == 0.5 and disturbance.STOOD_STILL not in disturbance.cause(busy)


def test_between_two_looks_a_suspension_is_the_difference() -> None:
    assert disturbance.between(ZERO, ZERO, HOSTS) is None, "no time has passed"
    first, last = changed(ZERO, still_ns=3 * S), after(9, still_ns=8)
    has(disturbance.between(first, last, HOSTS), suspended_ns=5 * S)
    # Another process began to look.
    has(disturbance.between(last, changed(last, at_ns=10 * S, still_ns=0), HOSTS), suspended_ns=0)


def test_what_comes_late_without_having_waited_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    main = f"/proc/self/task/{os.getpid()}"
    before = interference.own_threads()[main]
    until(lambda: interference.own_threads()[main] > before)
    now, own = [100 * S], dict[str, int]()
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _clock: now[0])
    monkeypatch.setattr(interference, "own_threads", lambda: dict(own))
    for late_s, waited_s, stolen_s, kept_s, still_s in (
        (0.0, 0, 0, 0, 0.0),
        (0.4, 0, 0, 0, 0.0),
        (5.0, 0.01, 0, 0, 4.99),
        (5.0, 4.9, 0, 0, 0.0),  # a busy machine: it waited for a processor all the time
        (5.0, 0, 4.9, 0, 0.0),
        (0.0, 0, -0.9, 0, 0.0),  # a hypervisor may take back what it said
        (5.0, 0, 0, 4.9, 0.0),  # by a slow disk, or a control group
        (30.0, 4.0, 1.0, 1.0, 24.0),
    ):
        late, waited, stolen, kept = (round(s * S) for s in (late_s, waited_s, stolen_s, kept_s))
        own |= {"main": 7 * S, "ends": 90 * S}
        still, blind = Standstill(), Standstill()
        still.tick(0.1, [S], 3 * S)
        now[0] += S // 10 + late
        own["main"] += waited
        del own["ends"]
        still.tick(0.1, [S + stolen], 3 * S + kept)
        assert still.total_ns == pytest.approx(still_s * S), (late_s, still_s)
        own.clear()
        for _ in range(2):
            now[0] += S // 10 + late
            blind.tick(0.1, [], 0)
        assert blind.total_ns == 0, "a kernel that does not count who waits"


TICKING = """
import threading
from harness.observe.interference import Standstill
still = Standstill()
while True:
    still.tick(0.05, [], 0)
    print(still.total_ns, flush=True)
    threading.Event().wait(0.05)
"""


def test_a_process_sees_that_it_was_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", TICKING], stdout=subprocess.PIPE, text=True) as process:
        out = known(process.stdout)
        assert out.readline() == "0\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        process.send_signal(signal.SIGCONT)
        until(lambda: int(out.readline()) >= 1.2 * S)
        process.kill()


def bound_to_a_core(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["taskset", "-c", str(LAST_CORE), *words])


def test_a_lab_that_is_stopped_alone_is_seen_from_outside() -> None:
    with bound_to_a_core("sh", "-c", "while :; do sleep 0.01; done") as process:
        sampler = Sampler()
        assert await_look(sampler, lambda look: bool(look.cores)).still_ns == 0
        process.send_signal(signal.SIGSTOP)
        await_look(sampler, lambda look: look.still_ns > 0.3 * S)
        process.send_signal(signal.SIGCONT)
        await_look(sampler, lambda look: sampler.look().still_ns == look.still_ns)
        process.kill()


def test_an_asking_process_that_was_stopped_concerns_all_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([ZERO, after(2, idle_ns=4)])
    machine = interference._Machine(host=World().host("nas"), names=("nas",), words=())
    monkeypatch.setattr(interference._Machine, "look", lambda _machine: next(looks))
    monkeypatch.setattr(Standstill, "tick", lambda still, *_: setattr(still, "total_ns", 3 * S))
    with OnMachines([machine]) as watching:
        pass
    (use,) = watching.taken()
    has(use, suspended_ns=3 * S, taken=0.0)


class Outside:
    """Writes looks to the file that a lab reads."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / LIVE
        self.file.write_bytes(b"")
        self.slot = 0

    def look(self, seconds: float, waited: float = 0.5, **changes: Any) -> None:
        """At so many seconds: the lab ran for half of them, and waited for others so long in all."""
        look = after(seconds, {"ran_ns": seconds / 2, "waited_ns": waited}, idle_ns=seconds)
        with self.file.open("r+b") as file:
            file.seek(self.slot * SLOT_BYTES)
            file.write(msgspec.json.encode(changed(look, **changes)).ljust(SLOT_BYTES))
        self.slot = (self.slot + 1) % SLOTS


def from_outside(folder: Path) -> FromOutside:
    return FromOutside(folder / LIVE, HOSTS)


def test_a_lab_reads_what_is_seen_of_it_outside_but_for_while_a_tool_started(tmp_path: Path) -> None:
    outside = Outside(tmp_path)
    outside.look(1, waited=0.2)
    with from_outside(tmp_path) as watching:
        outside.look(2, waited=0.2)
        outside.look(3, waited=1.2)
    (use,) = watching.taken()
    assert use.taken == pytest.approx(0.5) and use.wall_ns == 2 * S
    for tenth in range(SLOTS + 10):  # the oldest are written over
        outside.look(tenth / 10, waited=0.2)
    with from_outside(tmp_path) as watching:
        for seconds, waited in ((7.8, 0.6), (8.4, 0.6), (8.9, 0.9)):
            outside.look(seconds, waited)
    (use,) = watching.taken(S)
    assert (use.wall_ns, use.waited) == pytest.approx((1.1 * S, 0.3 / 1.1))
    (whole,) = watching.taken()
    assert (whole.wall_ns, whole.waited) == pytest.approx((1.6 * S, 0.7 / 1.6))
    assert watching.taken(5 * S) == (whole,)


def test_a_look_that_is_too_old_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = Outside(tmp_path)
    monkeypatch.setattr(interference, "PATIENCE_S", PATIENCE_S)
    outside.look(1)
    with from_outside(tmp_path) as watching:
        time.sleep(0.2)
        outside.look(1.05)
        # However long a busy machine keeps us from it.
        threading.Timer(0.1, outside.look, [1 + PATIENCE_S]).start()
    (use,) = watching.taken()
    assert use.wall_ns == PATIENCE_S * S
    Outside(tmp_path).look(1)
    began = time.monotonic()
    with pytest.raises(KeyError), from_outside(tmp_path) as watching:
        time.sleep(0.2)
        raise KeyError
    assert time.monotonic() - began < PATIENCE_S / 2 and watching.taken() == (), "not after an error"


def test_nothing_is_known_where_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "PATIENCE_S", 0.1)

    def watched(look: Callable[[], None]) -> tuple[BackgroundLoad, ...]:
        with from_outside(tmp_path) as watching:
            time.sleep(0.2)
            look()
        return watching.taken()

    assert watched(lambda: None) == (), "there is no file"
    outside = Outside(tmp_path)
    assert watched(lambda: outside.look(1)) == (), "it began too late"
    for look in (lambda: None, lambda: outside.look(5, until_ns=1)):  # read while it was written
        (use,) = watched(look)
        assert use.taken is None and (use.suspended_ns or 0) >= 0.25 * S, "who looked does so no more"
        found = record(telemetry=Telemetry(background_load=(use,)))
        assert disturbance.is_disturbed(found) and "not monitored" in disturbance.cause(found)
    outside.file.write_bytes(b'{"at_ns": ')
    assert watched(lambda: None) == ()


@pytest.fixture
def bound() -> Iterator[None]:
    """A process of ours that is always busy, bound to one processor as a lab is."""
    with bound_to_a_core(sys.executable, "-c", "while True: pass") as process:
        yield
        process.send_signal(signal.SIGKILL)


@pytest.mark.usefixtures("bound")
def test_who_boots_a_lab_looks_at_it_and_leaves_nothing(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / LIVE).symlink_to(elsewhere)
    with interference.looking(tmp_path):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with from_outside(tmp_path) as watching:
                time.sleep(0.5)
            # It is there from the first look on, and bound a moment later.
            if (found := watching.taken()) and found[0].taken is not None and found[0].sibling_busy is None:
                break
        (use,) = found
        assert (tmp_path / LIVE).stat().st_size <= SLOTS * SLOT_BYTES
    assert 0 <= known(use.taken) <= 1 and use.wall_ns > 0.3 * S and use.cores == os.cpu_count()
    assert list(tmp_path.iterdir()) == [elsewhere] and elsewhere.read_text() == "mine"


def test_what_has_ended_is_counted_on() -> None:
    sampler = Sampler()
    sampler.look()
    with bound_to_a_core("sh", "-c", "while :; do :; done") as process:
        seen = await_look(sampler, lambda look: any(core.ran_ns > 10_000_000 for core in look.cores))
        process.kill()
    (before,) = seen.cores
    (now,) = sampler.look().cores
    assert now.ran_ns >= before.ran_ns
    assert now.number == LAST_CORE and seen.processors == os.cpu_count()


def test_a_machine_explains_what_is_the_kernels_and_our_own(tmp_path: Path) -> None:
    hosts = [NamespaceHost(name="target"), NamespaceHost(name="initiator")]
    with OnMachines(list(interference._machines(hosts, Path("/proc")))) as watching:
        ends = time.monotonic() + 0.6
        while time.monotonic() < ends:
            pass
    (use,) = watching.taken()
    assert use.hosts == ("target", "initiator") and use.wall_ns > 0.5 * S
    assert 0 <= known(use.used) <= 1 and use.taken is not None
    with OnMachines(list(interference._machines(hosts[:1], tmp_path / "none"))) as watching:
        time.sleep(0.01)
    assert watching.taken() == (), "one without such files is not known"


def write_process(proc: Path, pid: int, *, flags: int = 0, ticks: tuple[int, ...] = (0, 0, 0, 0)) -> Path:
    folder = proc / str(pid)
    (folder / "ns").mkdir(parents=True)
    fields = ["S", "1", "1", "1", "0", "-1", str(flags), "0", "0", "0", "0", *map(str, ticks), "20", "0"]
    (folder / "stat").write_text(f"{pid} (a) name) {' '.join(fields)}\n")
    return folder / "ns" / "pid"


def test_explained_are_kernel_threads_and_our_namespace(tmp_path: Path) -> None:
    ours = ["pid:[7]", "pid:[8]"]
    (tmp_path / "stat").write_text("cpu 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu1 1 1 1 1 1 1 1 1\n")
    write_process(tmp_path, 2, flags=program.KERNEL_THREAD, ticks=(0, 5, 0, 0)).symlink_to("pid:[1]")
    write_process(tmp_path, 10, ticks=(1, 2, 3, 4)).symlink_to(ours[0])
    write_process(tmp_path, 13, ticks=(0, 0, 0, 5)).symlink_to(ours[1])
    write_process(tmp_path, 11, ticks=(100, 100, 100, 100)).symlink_to("pid:[1]")
    (tmp_path / "12").mkdir()
    assert program.explained_ticks(str(tmp_path), ours) == 5 + 1 + 2 + 3 + 4 + 5
    reported = program.look(str(tmp_path), *ours)
    assert reported["ours_ns"] == (20 + 6 + 7 + 1 + 1) * program.TICK_NS
    assert reported["idle_ns"] == (4 + 5 + 1 + 1) * program.TICK_NS
    assert reported["stolen_ns"] == [8 * program.TICK_NS, program.TICK_NS] and reported["processors"] == 2
    assert msgspec.convert(reported, MachineSample).pressure_ns == reported["pressure_ns"]


def test_limits_of_all_control_groups_above_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/cpu.stat").write_text("usage_usec 9\nthrottled_usec 5\n")
    (tmp_path / "a/b/cpu.stat").write_text("throttled_usec 7\n")
    monkeypatch.setattr(program, "CGROUPS", tmp_path)
    files = {"/proc/self/cgroup": "0::/a/b\n"}
    read = program.read
    monkeypatch.setattr(program, "read", lambda path: files.get(str(path)) or read(path))
    assert program.throttled_ns() == 12_000
    files["/proc/self/cgroup"] = "4:cpu:/a\n"
    assert program.throttled_ns() is None


def test_the_program_stands_by_itself() -> None:
    argv = [programs.PYTHON, "-I", "-S", "-", "/proc"]
    source = programs.source("harness.observe", "interference")
    done = subprocess.run(argv, input=source, capture_output=True, text=True, check=True)
    look = msgspec.json.decode(done.stdout, type=MachineSample)
    assert look.at_ns == look.until_ns > 0 and look.processors == len(look.stolen_ns) == os.cpu_count()
    assert 0 < look.idle_ns < look.at_ns * look.processors * 2
