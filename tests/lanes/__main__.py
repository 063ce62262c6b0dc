"""The lanes of tox.ini, several at a time, and afterwards what failed once more, alone.

`python -m tests.lanes` is what `make test` runs, `--all` what `make test-all` does. `--reached` is what CI
runs after `make test`: of the other lanes the modules that a change reaches. Lanes that are named run alone.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import configparser
import contextlib
import datetime
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.model.errors import RequirementError
from harness.testbeds.lab.kernels import kernel
from tests.lab.cli import ON_CI
from tests.lanes import changes, recorder
from tests.lanes.changes import ROOT
from tests.lanes.progress import Expected, Progress, Say
from tests.lanes.recorder import FAILED, PASSED, Session
from tools import without

AT_ONCE = 4
"""Labs wait for a third of their time; with five lanes, two processors were no faster."""

TEST = ("core", "unit", "core-custom", "fuzz", "lint", "docs")
"""What `make test` runs, the longest first."""

FOLDER_OF = {
    **dict.fromkeys(("lab", "custom-kernel", "multi-host", "broken"), "tests/lab/"),
    "stock": "tests/machines/",
    "bare": "tests/systems/",
    "browser": "tests/browser/",
}
"""Lanes of which CI runs what a change reaches, and where their tests are."""

MEASURING = frozenset({"core", "core-custom", *FOLDER_OF})
"""Lanes that measure or boot something, which other programs may disturb: they have a second attempt."""

WITHOUT_PYTEST = frozenset({"lint", "docs", "without"})
MOST_TAKEN_OUT = 2
"""So many parts CI takes out, of those that a change touches."""
NO_TESTS = 5
"""pytest's status where all were left out."""

SLOWEST = 20
KEPT_S = 0.1
"""Tests that are faster are not kept with their times."""

UNEXPLAINED = Path(__file__).with_name("unexplained.toml")


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane takes: how many tests it has, and its seconds."""

    tests: int
    wall_s: float
    processor_s: float
    when: str


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """``lanes.toml``."""

    test_s: float
    all_s: float
    lane: dict[str, Known]


def durations() -> Durations:
    return msgspec.toml.decode(Path(__file__).with_name("lanes.toml").read_bytes(), type=Durations)


def to_expect(known: Durations, parts: Mapping[str, float], of: Sequence[str]) -> tuple[Expected, float]:
    """What lanes are expected to have and to take, and the seconds of all together, by the part of each that
    runs. ``of`` are the lanes of ``all_s``: their processor is what there is too little of, but no lane ends
    before its own time."""
    lanes = {name: (known.lane[name], part) for name, part in parts.items() if name in known.lane}
    found = {
        name: (max(1, round(part * each.tests)), part * each.processor_s)
        for name, (each, part) in lanes.items()
    }
    of_all = sum(processor_s for _, processor_s in found.values()) / sum(
        known.lane[name].processor_s for name in of if name in known.lane
    )
    return found, max([known.all_s * of_all, *(part * each.wall_s for each, part in lanes.values())])


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt at a lane. ``processor_s`` is what it and its children took, where they were waited for."""

    lane: str
    status: int
    wall_s: float
    processor_s: float
    output: str = ""
    session: Session | None = None

    @property
    def is_green(self) -> bool:
        return self.status == 0 or (self.status == NO_TESTS and self.session is not None)

    @property
    def tests(self) -> str:
        """How many tests passed, failed and were skipped, in words."""
        counted = Counter(test.outcome for test in self.session.tests.values()) if self.session else {}
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counted.items()))


Attempt = Callable[[str, Session | None], Ran]
"""Runs a lane; or of it only the tests that failed in a session."""


def to_repeat(ran: Ran) -> list[str]:
    """The tests for a second attempt: where tests alone failed, which other programs may have disturbed."""
    if ran.lane not in MEASURING or ran.is_green or ran.session is None or ran.session.status != 1:
        return []
    return ran.session.failed


def is_mended(failed: Sequence[str], again: Ran) -> bool:
    """Whether each of the tests that failed passed at the second attempt."""
    tests = again.session.tests if again.session else {}
    return again.status == 0 and all(name in tests and tests[name].outcome == PASSED for name in failed)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all lanes: each attempt in its order, and the tests that passed at the second."""

    attempts: list[Ran]
    mended: list[str]
    failed: list[str]
    """Lanes."""


def run_all(lanes: Sequence[str], attempt: Attempt, tell: Callable[[Ran], None], say: Say) -> Outcome:
    """Run lanes, several at a time, and afterwards what is to be repeated, one lane after another."""
    attempts: list[Ran] = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            futures = [pool.submit(attempt, lane, None) for lane in lanes]
            for future in concurrent.futures.as_completed(futures):
                attempts.append(future.result())
                tell(attempts[-1])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    mended: list[str] = []
    failed: list[str] = []
    for ran in [each for each in attempts if not each.is_green]:
        tests = to_repeat(ran)
        if not tests:
            failed.append(ran.lane)
            continue
        say(f"second attempt, alone: {', '.join(tests)}\n")
        again = attempt(ran.lane, ran.session)
        attempts.append(again)
        tell(again)
        if is_mended(tests, again):
            mended += tests
        else:
            failed.append(ran.lane)
    return Outcome(attempts=attempts, mended=mended, failed=failed)


def ended(ran: Ran) -> str:
    """What is said of a lane that has ended, with all that it printed if it failed."""
    how = "ok" if ran.is_green else f"failed with status {ran.status}"
    took = f"{ran.wall_s:.0f} s, {ran.processor_s:.0f} s of processor"
    text = f"{ran.lane}: {how} in {took}; {ran.tests}".rstrip("; ")
    return text if ran.is_green else f"{'=' * 20} {ran.lane} {'=' * 20}\n{ran.output.rstrip()}\n{text}"


def details(outcome: Outcome, left_out: Mapping[str, str]) -> Iterator[str]:
    """The slowest tests, and what each lane took."""
    sessions = [ran.session for ran in outcome.attempts if ran.session]
    took = [(test.seconds, name) for session in sessions for name, test in session.tests.items()]
    yield "slowest tests:"
    yield from (f"{seconds:8.1f} s  {name}" for seconds, name in sorted(took, reverse=True)[:SLOWEST])
    yield "lanes:      wall  processor"
    for ran in outcome.attempts:
        yield f"  {ran.lane:10}{ran.wall_s:5.0f} s{ran.processor_s:7.0f} s  {ran.tests}".rstrip()
    yield from (f"  {lane:10}not run: {why}" for lane, why in left_out.items())


def closing(outcome: Outcome, left_out: Mapping[str, str], wall_s: float) -> Iterator[str]:
    """What failed, what passed at the second attempt, and last a line like pytest's."""
    last: dict[str, str] = {}
    for ran in outcome.attempts:
        if ran.session:
            last |= {f"{ran.lane} {name}": test.outcome for name, test in ran.session.tests.items()}
    counted = Counter(last.values())
    with_tests = {name.partition(" ")[0] for name, result in last.items() if result == FAILED}
    otherwise = len(set(outcome.failed) - with_tests)
    words = [f"{counted[what]} {what}" for what in (FAILED, PASSED, recorder.SKIPPED) if counted[what]]
    words += [f"{otherwise} error{'s' * (otherwise > 1)}"] if otherwise else []
    yield from (f"failed: {lane}" for lane in outcome.failed)
    yield from (f"passed at the second attempt: {name}" for name in outcome.mended)
    yield f"==== {', '.join(words) or 'no tests ran'} in {wall_s:.2f}s ===="
    # Where nothing is left out, that is the last line.
    yield from left_out.values()


def write_unexplained(tests: Sequence[str], commit: str) -> list[str]:
    """Add tests that failed, and passed alone, to the file of those that have no cause yet. The new ones."""
    known = tomllib.loads(UNEXPLAINED.read_text(encoding="utf-8"))
    new = [test for test in tests if test not in known]
    with UNEXPLAINED.open("a", encoding="utf-8") as file:
        for test in new:
            when = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {commit[:12]}".rstrip(", ")
            file.write(f"{msgspec.json.encode(test).decode()} = {msgspec.json.encode(when).decode()}\n")
    return new


class Tox:
    """Attempts by tox, each with its output in a file; of ``FOLDER_OF``'s lanes only modules that are
    ``reached``, and of all parts only those that are to be ``taken_out``."""

    def __init__(
        self, folder: Path, reached: Sequence[str] | None = None, taken_out: Sequence[str] = ()
    ) -> None:
        self.folder, self.reached = folder, folder / "reached.json" if reached is not None else None
        self.taken_out = taken_out
        if self.reached is not None:
            self.reached.write_bytes(msgspec.json.encode(reached))
        self.running: set[int] = set()

    def __call__(self, lane: str, again: Session | None) -> Ran:
        output, record = self.folder / f"{lane}.log", self.folder / f"{lane}.json"
        words = ["--", *self.taken_out] if lane == "without" and self.taken_out else []
        if lane not in WITHOUT_PYTEST:
            words = ["--", "--record", str(record)]
            words += ["--reached", str(self.reached)] if self.reached and lane in FOLDER_OF else []
            if again is not None:
                output, before = self.folder / f"{lane}-again.log", self.folder / f"{lane}-before.json"
                before.write_bytes(msgspec.json.encode(again))
                words += ["--again", str(before)]
        record.unlink(missing_ok=True)
        began = time.monotonic()
        with output.open("wb") as file:
            # What measures goes first where both want a processor.
            argv = [*([] if lane in MEASURING else ["nice"]), sys.executable, "-m", "tox", "run", "-e", lane]
            process = subprocess.Popen(
                [*argv, *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file, process_group=0
            )
            self.running.add(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            self.running.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        session = recorder.read(record)
        return Ran(
            lane=lane,
            # tox says 1 whatever its command's status was.
            status=NO_TESTS if session is not None and session.status == NO_TESTS else process.returncode,
            wall_s=time.monotonic() - began,
            processor_s=usage.ru_utime + usage.ru_stime,
            output=output.read_text(encoding="utf-8", errors="replace"),
            session=session,
        )

    def interrupt(self) -> None:
        """Have tox end what it runs."""
        for pid in list(self.running):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)


def keep(outcome: Outcome, commit: str) -> Path:
    """Append how long lanes and tests took to the file of durations, a line for each attempt."""
    file = changes.durations_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as lines:
        for ran in outcome.attempts:
            tests = ran.session.tests if ran.session else {}
            slow = {name: round(test.seconds, 2) for name, test in tests.items() if test.seconds >= KEPT_S}
            line = {"unix_s": round(time.time()), "commit": commit, "lane": ran.lane, "status": ran.status}
            line |= {"wall_s": round(ran.wall_s, 1), "processor_s": round(ran.processor_s, 1), "tests": slow}
            lines.write(msgspec.json.encode(line) + b"\n")
    return file


def note_green(outcome: Outcome, reached: Sequence[str], commit: str) -> None:
    """Note which of the modules that ran were green, for the next run of CI."""
    failed: set[str] = set()
    for ran in outcome.attempts:
        if ran.lane in outcome.failed and ran.lane in FOLDER_OF:
            tests = ran.session.failed if ran.session else []
            failed |= {name.partition("::")[0] for name in tests if name not in outcome.mended}
            if not tests:
                failed |= {module for module in reached if module.startswith(FOLDER_OF[ran.lane])}
    green = changes.Green.load()
    green.note(reached, failed, commit, time.time())
    green.save()


def config() -> configparser.ConfigParser:
    """tox.ini."""
    found = configparser.ConfigParser(interpolation=None)
    found.read(ROOT / "tox.ini", encoding="utf-8")
    return found


def lanes_of_tox() -> list[str]:
    """What `make test-all` runs, in the order in which they begin."""
    return [name.strip() for name in config()["tox"]["env_list"].split(",")]


def table() -> Iterator[str]:
    """The lanes as in CONTRIBUTING.md: what each shows, what it takes, and when it runs."""
    described = config()
    yield "| lane | what it shows | wall, s | processor, s | when |"
    yield "|---|---|---|---|---|"
    for name, known in durations().lane.items():
        shows = described[f"testenv:{name}"]["description"]
        yield f"| {name} | {shows} | {known.wall_s:.0f} | {known.processor_s:.0f} | {known.when} |"


def has_custom_kernel() -> bool:
    try:
        kernel.custom_kernel()
    except RequirementError:
        return False
    return True


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="every lane of tox's env_list")
    which.add_argument("--reached", action="store_true", help="what CI runs after make test")
    which.add_argument("--table", action="store_true", help="print the lanes for CONTRIBUTING.md")
    parser.add_argument("lane", nargs="*", help="run only these")
    asked = parser.parse_args(words)

    def say(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    if asked.table:
        say("\n".join([*table(), ""]))
        return 0
    began, commit, known = time.monotonic(), changes.commit_of_clone(), durations()
    lanes: Sequence[str] = asked.lane or TEST
    left_out: dict[str, str] = {}
    reached: list[str] | None = None
    taken_out: list[str] = []
    is_brief = not (ON_CI or asked.lane or asked.all or asked.reached)
    if asked.all:
        lanes = lanes_of_tox()
    elif asked.reached:
        green = changes.Green.load()
        found, why = changes.to_run(green)
        say(f"{why}\n")
        say("".join(f"  {module}: {path}\n" for module, path in found.items()))
        reached = sorted(found)
        folders = tuple({f"{module.rpartition('/')[0]}/" for module in reached})
        lanes = [lane for lane in lanes_of_tox() if FOLDER_OF.get(lane, "-").startswith(folders)]
        taken_out = without.touched(changes.changed_since(green.commit) or ())[:MOST_TAKEN_OUT]
        lanes += ["without"] if taken_out else []
    elif not asked.lane and not ON_CI and not has_custom_kernel():
        lanes = [lane for lane in lanes if lane != "core-custom"]
        what = f"{known.lane['core-custom'].tests} tests of the custom kernel (WiFi, NVMe/TCP, virtual time)"
        left_out["core-custom"] = f"Left out: {what}. To have them: make lab-kernel, then make test"
    if not lanes:
        return 0
    folder = ROOT / ".tox" / "lanes"
    folder.mkdir(parents=True, exist_ok=True)
    tox = Tox(folder, reached, taken_out)

    def interrupted(number: int, _frame: object) -> None:
        tox.interrupt()
        raise KeyboardInterrupt(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    parts = dict.fromkeys(lanes, 1.0)
    if reached is not None:
        parts = {lane: changes.part_of(lane, FOLDER_OF[lane], reached) for lane in lanes if lane in FOLDER_OF}
        parts |= {"without": len(taken_out) / len(without.parts())} if taken_out else {}
    expected, usual_s = to_expect(known, parts, lanes_of_tox())
    if not (asked.all or asked.lane or asked.reached):
        usual_s = known.test_s
    for lane in lanes:
        (folder / f"{lane}.progress").unlink(missing_ok=True)
    progress = Progress(folder, expected, usual_s, say)
    if is_brief:
        tests = sum(tests for tests, _ in expected.values())
        say(f"About {tests} tests in {usual_s / 60:.0f} minutes, on two cores that do nothing else.\n")

    def tell(ran: Ran) -> None:
        progress.ended.add(ran.lane)
        if not (is_brief and ran.is_green):
            say(f"{ended(ran)}\n")

    progress.start()
    try:
        outcome = run_all(lanes, tox, tell, say)
    except KeyboardInterrupt:
        say("interrupted\n")
        return 128 + signal.SIGINT
    finally:
        progress.stop()
    kept = keep(outcome, commit)
    if commit and (asked.reached or asked.all):
        note_green(outcome, changes.test_modules() if reached is None else reached, commit)
    if not is_brief:
        say("\n".join([f"durations are kept in {kept}", *details(outcome, left_out), ""]))
    for test in write_unexplained(outcome.mended, commit):
        say(f"new in {UNEXPLAINED.relative_to(ROOT)}: {test}\n")
    say("\n".join([*closing(outcome, left_out, time.monotonic() - began), ""]))
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
