"""What CI runs: the lanes of tox.ini, several at a time, and afterwards what failed once more, alone.

`python -m tests.lanes [--every] [LANE...]`. Without names, all that tox.ini lists, except those that boot or
install whole systems and that no change since their last green run can reach; with --every, these too.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import configparser
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from tests.lanes import changes, recorder
from tests.lanes.changes import ROOT
from tests.lanes.recorder import FAILED, PASSED, Session

AT_ONCE = 4
"""Labs wait for a third of their time; with five lanes, two processors were no faster."""

MEASURING = frozenset({"own-kernel", "lab", "multi-host", "broken", "stock", "bare", "browser"})
"""Lanes that measure or boot something, which other programs may disturb: they have a second attempt."""

WITHOUT_PYTEST = frozenset({"lint", "docs"})
SLOWEST = 20
KEPT_S = 0.1
"""Tests that are faster are not kept with their times."""

Say = Callable[[str], None]


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt at a lane. ``processor_s`` is what it and its children took, where they were waited for."""

    lane: str
    status: int
    wall_s: float
    processor_s: float
    output: str = ""
    session: Session | None = None

    @property
    def tests(self) -> str:
        """How many tests passed, failed and were skipped, in words."""
        counted = Counter(test.outcome for test in self.session.tests.values()) if self.session else {}
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counted.items()))


Attempt = Callable[[str, Session | None], Ran]
"""Runs a lane; or of it only the tests that failed in a session."""


def to_repeat(ran: Ran) -> list[str]:
    """The tests for a second attempt: where tests alone failed, which other programs may have disturbed."""
    if ran.lane not in MEASURING or ran.status == 0 or ran.session is None or ran.session.status != 1:
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


def run_all(lanes: Sequence[str], attempt: Attempt, say: Say) -> Outcome:
    """Run lanes, several at a time, and afterwards what is to be repeated, one lane after another."""
    attempts: list[Ran] = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            futures = [pool.submit(attempt, lane, None) for lane in lanes]
            for future in concurrent.futures.as_completed(futures):
                attempts.append(future.result())
                tell(attempts[-1], say)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    mended: list[str] = []
    failed: list[str] = []
    for ran in [each for each in attempts if each.status != 0]:
        tests = to_repeat(ran)
        if not tests:
            failed.append(ran.lane)
            continue
        say(f"second attempt, alone: {', '.join(tests)}")
        again = attempt(ran.lane, ran.session)
        attempts.append(again)
        tell(again, say)
        if is_mended(tests, again):
            mended += tests
        else:
            failed.append(ran.lane)
    return Outcome(attempts=attempts, mended=mended, failed=failed)


def tell(ran: Ran, say: Say) -> None:
    """Tell of a lane that has ended, with all that it printed if it failed."""
    if ran.status:
        say(f"{'=' * 20} {ran.lane} {'=' * 20}\n{ran.output.rstrip()}")
    how = "ok" if ran.status == 0 else f"failed with status {ran.status}"
    took = f"{ran.wall_s:.0f} s, {ran.processor_s:.0f} s of processor"
    say(f"{ran.lane}: {how} in {took}; {ran.tests}".rstrip("; "))


def summary(outcome: Outcome, left_out: dict[str, str], wall_s: float) -> Iterator[str]:
    """What is said at the end: durations, a closing line like pytest's, what failed, what passed at the
    second attempt."""
    took = [
        (test.seconds, name)
        for ran in outcome.attempts
        if ran.session
        for name, test in ran.session.tests.items()
    ]
    yield "slowest tests:"
    yield from (f"{seconds:8.1f} s  {name}" for seconds, name in sorted(took, reverse=True)[:SLOWEST])
    yield "lanes:      wall  processor"
    for ran in outcome.attempts:
        yield f"  {ran.lane:10}{ran.wall_s:5.0f} s{ran.processor_s:7.0f} s  {ran.tests}".rstrip()
    yield from (f"  {lane:10}not run: {why}" for lane, why in left_out.items())
    last: dict[str, str] = {}
    for ran in outcome.attempts:
        if ran.session:
            last |= {f"{ran.lane} {name}": test.outcome for name, test in ran.session.tests.items()}
    counted = Counter(last.values())
    with_tests = {name.partition(" ")[0] for name, result in last.items() if result == FAILED}
    otherwise = len(set(outcome.failed) - with_tests)
    words = [f"{counted[what]} {what}" for what in (FAILED, PASSED, recorder.SKIPPED) if counted[what]]
    words += [f"{otherwise} error{'s' * (otherwise > 1)}"] if otherwise else []
    yield f"==== {', '.join(words) or 'no tests ran'} in {wall_s:.2f}s ===="
    yield from (f"failed: {lane}" for lane in outcome.failed)
    yield from (f"passed at the second attempt: {name}" for name in outcome.mended)


class Tox:
    """Attempts by tox, each with its output in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: set[int] = set()

    def __call__(self, lane: str, again: Session | None) -> Ran:
        output, record = self.folder / f"{lane}.log", self.folder / f"{lane}.json"
        words: list[str] = []
        if lane not in WITHOUT_PYTEST:
            words = ["--", "--record", str(record)]
            if again is not None:
                output, before = self.folder / f"{lane}-again.log", self.folder / f"{lane}-before.json"
                before.write_bytes(msgspec.json.encode(again))
                words += ["--again", str(before)]
        record.unlink(missing_ok=True)
        began = time.monotonic()
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "tox", "run", "-e", lane, *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            self.running.add(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            self.running.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        return Ran(
            lane=lane,
            status=process.returncode,
            wall_s=time.monotonic() - began,
            processor_s=usage.ru_utime + usage.ru_stime,
            output=output.read_text(encoding="utf-8", errors="replace"),
            session=recorder.read(record),
        )

    def interrupt(self) -> None:
        """Have tox end what it runs."""
        for pid in list(self.running):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)


def keep(outcome: Outcome, commit: str) -> Path:
    """Append how long lanes and tests took to the file of durations, a line for each attempt."""
    file = changes.folder() / "durations.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as lines:
        for ran in outcome.attempts:
            tests = ran.session.tests if ran.session else {}
            slow = {name: round(test.seconds, 2) for name, test in tests.items() if test.seconds >= KEPT_S}
            line = {
                "unix_s": round(time.time()),
                "commit": commit,
                "lane": ran.lane,
                "status": ran.status,
                "wall_s": round(ran.wall_s, 1),
                "processor_s": round(ran.processor_s, 1),
                "tests": slow,
            }
            lines.write(msgspec.json.encode(line) + b"\n")
    return file


def lanes_of_tox() -> list[str]:
    """The lanes that CI runs, in the order in which they begin."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini", encoding="utf-8")
    return [name.strip() for name in config["tox"]["env_list"].split(",")]


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description=__doc__)
    parser.add_argument("--every", action="store_true", help="leave no lane out")
    parser.add_argument("lane", nargs="*", help="run only these")
    asked = parser.parse_args(words)

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    began, commit = time.monotonic(), changes.commit_of_clone()
    lanes: list[str] = asked.lane or lanes_of_tox()
    is_free = not asked.lane and not asked.every
    left_out = {lane: why for lane in lanes if is_free and (why := changes.why_not(lane))}
    for lane, why in left_out.items():
        say(f"{lane}: not run: {why}")
    folder = ROOT / ".tox" / "lanes"
    folder.mkdir(parents=True, exist_ok=True)
    tox = Tox(folder)

    def interrupted(number: int, _frame: object) -> None:
        tox.interrupt()
        raise KeyboardInterrupt(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    try:
        outcome = run_all([lane for lane in lanes if lane not in left_out], tox, say)
    except KeyboardInterrupt:
        say("interrupted")
        return 128 + signal.SIGINT
    if commit:
        for lane in {ran.lane for ran in outcome.attempts} - set(outcome.failed):
            changes.note_green(lane, commit)
    say(f"durations are kept in {keep(outcome, commit)}")
    for line in summary(outcome, left_out, time.monotonic() - began):
        say(line)
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
