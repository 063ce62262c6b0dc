"""Other programs on the machines of a run: watched from outside the lab, or on each machine itself.

A lab cannot see the machine that it runs on. So the process that booted it watches its processes there,
several times a second, and leaves the samples in a file of the run's folder, which the lab reads
(``hostfs``). Real machines take a sample (``programs/interference.py``) whenever they are asked to.

Both also see whether all this was suspended in between: a process that was stopped, or a machine that slept,
does nothing for a while and does not wait for a processor either (``Standstill``).
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.analysis import disturbance
from harness.analysis.disturbance import Core, MachineSample
from harness.hosts import Host, of_each
from harness.model import Plan
from harness.model.errors import CommandFailed, RequirementError
from harness.model.telemetry import BackgroundLoad
from harness.observe.counters import kernel_of
from harness.observe.programs import interference as looks

LIVE = "machine.live"
"""The file in a run's folder that has the latest samples, while a lab is up."""

SLOTS = 64
SLOT_BYTES = 4096
"""The file has a fixed number of slots of this many bytes; each new sample overwrites the oldest."""

INTERVAL_S = 0.1
"""Time between two samples of a lab, each of which takes less than a thousandth of a second of work."""

IDLE_PART = 0.25
"""The pace of a core that was idle for a larger part of the time is not measured: such a core is slow at
first, by up to a quarter, because its caches are cold and its clock, or the hypervisor's, rests."""

PATIENCE_S = 2.0
"""How long to wait for a sample. The process that takes it also has to get a processor."""

STANDSTILL_S = 0.5
"""What comes later than this without having waited for a processor was suspended. Timers, and other threads
that hold the interpreter's lock, delay it by hundredths of a second."""

MACHINES_PROC = Path("/run/harness/proc")
"""Where the testbed ``host``, which has a process namespace of its own, finds the machine's processes."""


class Watching(contextlib.AbstractContextManager["Watching"]):
    """Watches other programs on the machines of a run while a context lasts. This one knows nothing."""

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.end()

    def end(self) -> None:
        """The watched interval has ended."""

    def taken(self, measured_ns: int = 0, *, busy: float = 1.0) -> tuple[BackgroundLoad, ...]:
        """What other programs took of each machine. ``measured_ns`` is how long the last part was that
        counts, and ``busy`` in which part of the time the run's kernels were, 0 to 1."""
        del measured_ns, busy
        return ()


Watch = Callable[[], Watching]


def watch(plan: Plan, folder: Path, hosts: Sequence[Host]) -> Watch:
    """The watcher for the machines of a run; ``folder`` is the run's."""
    if plan.setting.is_virtual:  # it stands still in the meantime
        return Watching
    if plan.capabilities.boots_kernels:
        names = tuple(dict.fromkeys(host.name for host in hosts))
        return lambda: FromOutside(folder / LIVE, names)
    proc = MACHINES_PROC if plan.capabilities.is_users_kernel else Path("/proc")
    # Not before the first watch, because hosts are asked which machines they are.
    machines = functools.cache(lambda _boots: tuple(_machines(hosts, proc)))
    return lambda: OnMachines(machines(tuple(host.boots for host in hosts)))


@dataclass(frozen=True, kw_only=True)
class _Machine:
    """One machine of a run: the host that is asked, all hosts on it, and which programs there are the
    run's."""

    host: Host
    names: tuple[str, ...]
    words: tuple[str, ...]

    def look(self) -> MachineSample | None:
        try:
            return _decode(self.host.call(__package__, "interference", "look", *self.words))
        except (CommandFailed, RequirementError):
            return None  # not to know about other programs is no reason to lose a figure


def _machines(hosts: Sequence[Host], proc: Path) -> Iterator[_Machine]:
    """The machines of the hosts: two hosts may share one, with a process namespace of the run's for each."""
    kernels: dict[object, list[Host]] = {}
    for host in hosts:
        kernels.setdefault(kernel_of(host), []).append(host)
    for same in kernels.values():
        asked = (host.run(["readlink", "/proc/self/ns/pid"], check=False).stdout.strip() for host in same)
        yield _Machine(
            host=same[0],
            names=tuple(host.name for host in same),
            words=(str(proc), *dict.fromkeys(filter(None, asked))),
        )


class OnMachines(Watching):
    """Asks all machines themselves, at the same time; whether this process is suspended in between concerns
    all of them, because it waits for their answers."""

    def __init__(self, machines: Sequence[_Machine]) -> None:
        self._machines = machines
        self._boots = [machine.host.boots for machine in machines]
        self._looks: list[list[MachineSample | None]] = []
        self._still = Standstill()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> OnMachines:
        self._looks = [self._look()]
        self._thread.start()
        return self

    def __exit__(self, kind: object, *more: object) -> None:
        self._end.set()
        self._thread.join()
        super().__exit__(kind, *more)

    def _tick(self) -> None:
        while True:
            stolen = [looks.TICK_NS * sum(times[7:8]) for times in looks.processors("/proc")[0]]
            self._still.tick(INTERVAL_S, stolen, looks.throttled_ns() or 0)
            if self._end.wait(INTERVAL_S):
                return

    def end(self) -> None:
        self._looks.append(self._look())

    def _look(self) -> list[MachineSample | None]:
        looks = {machine.host: machine.look for machine in self._machines}
        return of_each([*looks], lambda host: looks[host]())

    def taken(self, measured_ns: int = 0, *, busy: float = 1.0) -> tuple[BackgroundLoad, ...]:
        del measured_ns, busy  # there are only two samples, and no pace
        if len(self._looks) < 2:
            return ()
        found = (
            disturbance.between(first, last, machine.names)
            for machine, boots, first, last in zip(self._machines, self._boots, *self._looks, strict=True)
            if first is not None and last is not None and machine.host.boots == boots
        )
        return tuple(
            msgspec.structs.replace(use, suspended_ns=max(use.suspended_ns or 0, self._still.total_ns))
            for use in found
            if use is not None
        )


class FromOutside(Watching):
    """Reads the samples of the process that booted the lab. Without samples nothing is known."""

    def __init__(self, file: Path, hosts: tuple[str, ...]) -> None:
        self._file, self._hosts = file, hosts
        self._looks: list[MachineSample] = []
        self._began = 0.0
        self._unwatched_s = 0.0

    def __enter__(self) -> FromOutside:
        self._looks = self._read()[-1:]
        self._began = time.monotonic()
        return self

    def end(self) -> None:
        if not self._looks:
            return
        (first,) = self._looks
        # The two clocks differ, but run equally fast. The last sample may be as old as the first was.
        passed_s = time.monotonic() - self._began - INTERVAL_S
        deadline = time.monotonic() + PATIENCE_S
        while True:
            later = [look for look in self._read() if look.at_ns > first.at_ns]
            if later and (later[-1].at_ns - first.at_ns) / 1e9 >= passed_s:
                self._looks = [first, *later]
                return
            if time.monotonic() > deadline:
                seen_s = ((later[-1] if later else first).at_ns - first.at_ns) / 1e9
                self._unwatched_s = time.monotonic() - self._began - seen_s
                return
            time.sleep(INTERVAL_S / 5)

    def taken(self, measured_ns: int = 0, *, busy: float = 1.0) -> tuple[BackgroundLoad, ...]:
        if not self._looks:
            return ()
        last = self._looks[-1]
        if self._unwatched_s:
            unwatched_ns = round(1e9 * self._unwatched_s)
            return (
                BackgroundLoad(
                    hosts=self._hosts, wall_ns=unwatched_ns, cores=last.processors, suspended_ns=unwatched_ns
                ),
            )
        # The part that counts ended somewhat before the last sample.
        begins_ns = last.at_ns - measured_ns - INTERVAL_S * 1e9 if measured_ns else self._looks[0].at_ns
        before = [look for look in self._looks if look.at_ns <= begins_ns]
        use = disturbance.between(before[-1] if before else self._looks[0], last, self._hosts, busy)
        return (use,) if use is not None else ()

    def _read(self) -> list[MachineSample]:
        """The samples in the file, the oldest first."""
        try:
            data = self._file.read_bytes()
        except OSError:
            return []
        slots = (data[at : at + SLOT_BYTES] for at in range(0, len(data), SLOT_BYTES))
        return sorted(
            (look for slot in slots if (look := _decode(slot)) is not None), key=lambda look: look.at_ns
        )


def _decode(data: bytes) -> MachineSample | None:
    """A sample; None if it is not one, or was read while it was written."""
    try:
        look = msgspec.json.decode(data, type=MachineSample)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return look if look.at_ns == look.until_ns else None


@contextlib.contextmanager
def looking(folder: Path, lab_daemon: int | None = None) -> Iterator[None]:
    """Sample the lab that this process boots, or the process ``lab_daemon``, while the context lasts. It has
    a thread of its own, because the run's output may have to wait for its reader. ``folder`` is the run's."""
    file = folder / LIVE
    end = threading.Event()
    sampler = Sampler(lab_daemon)

    def look_on() -> None:
        # A full disk, or a machine without these files, ends a run elsewhere with a better message, or not at
        # all.
        with contextlib.suppress(OSError, ValueError):
            # Never through a symbolic link that lies there, nor into a file that somebody else has open.
            file.unlink(missing_ok=True)
            live = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            with os.fdopen(live, "wb"):
                for slot in itertools.cycle(range(SLOTS)):
                    # Blanks up to the slot's end, because the previous sample may have been longer.
                    data = msgspec.json.encode(sampler.look()).ljust(SLOT_BYTES)
                    with sampler.writing():
                        os.pwrite(live, data[:SLOT_BYTES], slot * SLOT_BYTES)
                    if end.wait(INTERVAL_S):
                        return

    thread = threading.Thread(target=look_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


class Pace:
    """How fast a processor works, measured again and again: the processor time of a fixed piece of work. A
    busy second hyperthread of the core makes it longer.

    The best pace is that of the fastest quarter: on some machines the clock of a core that nobody shares
    goes up and down by a seventh, and then half of all paces are that much below the fastest.
    """

    def __init__(self) -> None:
        self.sum = 0.0
        self._all: list[float] = []

    def __len__(self) -> int:
        return len(self._all)

    @property
    def best(self) -> float:
        """In pieces per nanosecond, like ``sum``; 0 if none was measured yet."""
        return self._all[-1 - len(self._all) // 4] if self._all else 0.0

    def take(self, processor: int) -> None:
        """Measure the pace of a processor, some 0.1 ms of work for it. OSError if it may not be used."""
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {processor})
        try:
            # The fastest of three: the first one fills caches, and an interrupt may hit one.
            pace = 1 / min(_piece_of_work_ns() for _ in range(3))
        finally:
            os.sched_setaffinity(0, allowed)
        self.sum += pace
        bisect.insort(self._all, pace)


def _piece_of_work_ns() -> int:
    """Its processor time: some 25 000, without waits for the processor."""
    began_ns = time.thread_time_ns()
    total = 0
    for number in range(1000):
        total += number & 7
    return max(1, time.thread_time_ns() - began_ns)


@dataclass(kw_only=True)
class _Bound:
    """What the programs that are bound to one processor have done by now, how fast it works, and how long it
    was idle by the last look."""

    ran_ns: int = 0
    waited_ns: int = 0
    looked_at_ns: int = 0
    idle_ns: int = 0
    pace: Pace = field(default_factory=Pace)

    def was_busy(self, at_ns: int, idle_ns: int) -> bool:
        """Whether the core was hardly ever idle since the last look; the first one follows none."""
        busy = self.looked_at_ns > 0 and idle_ns - self.idle_ns <= IDLE_PART * (at_ns - self.looked_at_ns)
        self.looked_at_ns, self.idle_ns = at_ns, idle_ns
        return busy


class Standstill:
    """For how long this process was suspended, in all: stopped, or asleep with its machine.

    A busy machine delays it as well, but then it is ready to run, and its kernel counts for how long.
    """

    def __init__(self) -> None:
        self.total_ns = 0
        self._was: tuple[int, Sequence[int], int, dict[str, int]] | None = None

    def tick(self, due_s: float, stolen_ns: Sequence[int], kept_ns: int) -> None:
        """Call it ``due_s`` after the last time. ``stolen_ns`` is what a hypervisor took of each processor so
        far; ``kept_ns`` only grows while something else keeps this process. Where the kernel does not count
        who waits for a processor, nothing is known."""
        now_ns, threads = time.clock_gettime_ns(time.CLOCK_BOOTTIME), own_threads()
        if self._was is not None and threads:
            before_ns, stolen_before_ns, kept_before_ns, were = self._was
            # One that began or ended in between must not look like a time that is missing.
            explained_ns = sum(max(0, time_ns - were.get(name, 0)) for name, time_ns in threads.items())
            explained_ns += kept_ns - kept_before_ns
            explained_ns += max([0, *(b - a for a, b in zip(stolen_before_ns, stolen_ns, strict=False))])
            late_ns = now_ns - before_ns - round(1e9 * due_s) - explained_ns
            if late_ns > STANDSTILL_S * 1e9:
                self.total_ns += late_ns
        self._was = now_ns, stolen_ns, kept_ns, threads


def own_threads() -> dict[str, int]:
    """For how long each thread of this process ran or waited for a processor so far; none if the kernel does
    not count that."""
    read = {thread: looks.read(f"{thread}/schedstat").split()[:2] for thread in _threads("self")}
    return {thread: sum(map(int, words)) for thread, words in read.items() if words}


class Sampler:
    """Adds up what this process, the lab daemon if there is one, and all their descendants do: each of them
    ends sooner or later, with its counters.

    Those that are bound to one processor are the lab's kernels, and what runs in them.
    """

    def __init__(self, lab_daemon: int | None = None) -> None:
        self._roots = [str(os.getpid()), *([] if lab_daemon is None else [str(lab_daemon)])]
        self._seen: dict[str, tuple[int, int]] = {}
        self._cores: dict[int, _Bound] = {}
        # A hypervisor hides which hyperthreads share a core. On bare metal that is known, and there the pace
        # mostly follows the core's clock frequency, which follows the load.
        self._takes_paces = _is_virtual()
        self._ours_ns = 0
        self._still = Standstill()
        self._written_ns = 0
        self._stopped_ns = 0
        self._looked_at_ns = 0

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """While it lasts, a slow disk may keep this process."""
        began_ns = time.monotonic_ns()
        yield
        self._written_ns += time.monotonic_ns() - began_ns

    def look(self) -> MachineSample:
        """The machine now."""
        at_ns = time.monotonic_ns()
        stood_ns = self._still.total_ns
        is_stopped = self._add_up()
        ticks, count = looks.processors("/proc")
        idle = [looks.TICK_NS * (times[3] + times[4]) for times in ticks]
        stolen = [looks.TICK_NS * sum(times[7:8]) for times in ticks]
        throttled_ns = looks.throttled_ns()
        self._still.tick(INTERVAL_S, stolen, (throttled_ns or 0) + self._written_ns)
        if is_stopped and self._looked_at_ns and self._still.total_ns == stood_ns:
            self._stopped_ns += at_ns - self._looked_at_ns
        self._looked_at_ns = at_ns
        cores = [
            self._core(at_ns, number, bound, idle, stolen)
            for number, bound in self._cores.items()
            if number < len(ticks)
        ]
        return MachineSample(
            at_ns=at_ns,
            processors=count,
            idle_ns=sum(idle),
            stolen_ns=(sum(stolen),),
            ours_ns=self._ours_ns,
            cores=tuple(cores),
            pressure_ns=looks.pressure_ns(),
            throttled_ns=throttled_ns,
            still_ns=self._still.total_ns + self._stopped_ns,
            until_ns=at_ns,
        )

    def _add_up(self) -> bool:
        """Add what has come since the last time, over all threads that exist now. Returns whether one of the
        lab's kernels is stopped (SIGSTOP; state T of proc(5), stat)."""
        seen = {}
        is_stopped = False
        processes = [*self._roots]
        in_kernels: set[str] = set()
        for pid in processes:
            bound = self._bound(pid) if pid not in self._roots else None
            # The first bound process of a branch is a kernel, and what is below it are its processes.
            if bound is not None and pid not in in_kernels:
                is_stopped |= looks.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["T"]
            for thread in _threads(pid):
                children = looks.read(f"{thread}/children").split()
                processes += children
                in_kernels.update(children if bound is not None else ())
                # Ran, waited, and how often it ran; a kernel without these counters has no such file.
                values = [int(word) for word in looks.read(f"{thread}/schedstat").split()]
                if len(values) != 3:
                    continue
                was = self._seen.get(thread, (0, 0))
                now = seen[thread] = (values[0], values[1])
                # Another thread with the same number began anew.
                ran, waited = (b - a if now >= was else b for a, b in zip(was, now, strict=True))
                self._ours_ns += ran
                if bound is not None:
                    core = self._cores.setdefault(bound, _Bound())
                    core.ran_ns += ran
                    core.waited_ns += waited
        self._seen = seen
        return is_stopped

    def _bound(self, pid: str) -> int | None:
        """The only processor that a process may run on; None if there are several."""
        try:
            allowed = os.sched_getaffinity(int(pid))
        except OSError:
            return None
        return next(iter(allowed)) if len(allowed) == 1 else None

    def _core(
        self, at_ns: int, number: int, bound: _Bound, idle: Sequence[int], stolen: Sequence[int]
    ) -> Core:
        siblings = [n for n in _hyperthreads(number) if n < len(idle) and n not in self._cores]
        pace = bound.pace
        if bound.was_busy(at_ns, idle[number]) and self._takes_paces:
            with contextlib.suppress(OSError):
                pace.take(number)
        return Core(
            number=number,
            idle_ns=idle[number],
            stolen_ns=stolen[number],
            ran_ns=bound.ran_ns,
            waited_ns=bound.waited_ns,
            siblings=len(siblings),
            siblings_idle_ns=sum(idle[n] for n in siblings),
            paces=len(pace),
            pace_sum=pace.sum,
            best_pace=pace.best,
        )


def _threads(pid: str) -> list[str]:
    folder = f"/proc/{pid}/task"
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]  # noqa: PTH208 -- ten times a second
    except OSError:  # it has ended
        return []


def _is_virtual() -> bool:
    """Whether a hypervisor reports itself (cpuid(4); arch/x86/include/asm/cpufeatures.h)."""
    flags = re.search(r"^flags\s*:(.*)", looks.read("/proc/cpuinfo"), re.MULTILINE)
    return flags is not None and "hypervisor" in flags[1].split()


@functools.cache
def _hyperthreads(number: int) -> tuple[int, ...]:
    """The other hyperthreads of a processor's core, as far as a hypervisor shows them: ``0,4`` or ``0-1``
    (sysfs)."""
    text = looks.read(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list").strip()
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return tuple(sorted(found - {number}))
