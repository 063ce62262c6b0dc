"""The command as a user types it: run to its end, or followed while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from harness.model import Proof, Record, Status
from harness.results.store import RunFolder

HARNESS = str(Path(sys.executable).with_name("harness"))
PROJECT = Path(__file__).resolve().parents[2]
ON_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
BUSY = "the testbed is in use by"
MTU_BYTES = 1500
TEXT: dict[str, Any] = {"stdin": subprocess.DEVNULL, "encoding": "utf-8", "errors": "replace"}
PATIENCE_S = 600.0
"""How long the testbed is waited for while somebody else's run holds it."""

OWN_HOME = """
if ! ls /root >/dev/null 2>&1; then
    mount -t tmpfs own /root
    rm -f /etc/shadow
    echo 'root:*:::::::' > /etc/shadow
fi
exec "$@"
"""
"""Root's home and /etc/shadow are the machine's, and closed to the lab of a user without root: programs would
have no place there, and sshd would let nobody in."""

COMMAND_DEADLINE_S = 1200.0
"""The longest takes under two minutes on a machine that does nothing else."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """A command that has ended, and all it printed."""

    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"status {self.status}\n{self.out}\n{self.err}"


def ended(argv: Sequence[str], *, cwd: Path | None = None, deadline_s: float = COMMAND_DEADLINE_S) -> Done:
    """A program run to its end, with nothing to read."""
    done = subprocess.run(argv, cwd=cwd, capture_output=True, timeout=deadline_s, check=False, **TEXT)
    return Done(status=done.returncode, out=done.stdout, err=done.stderr)


def well(done: Done, *said: str) -> Done:
    """A command that has to have gone well, and to have said all this."""
    assert done.status == 0, done
    assert all(words in done.out for words in said), f"expected {said}, found {done}"
    return done


def lacks(what: str) -> NoReturn:
    """Skip tests where something is missing; on CI that is a failure."""
    if ON_CI:
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def harness_once(*words: str, deadline_s: float = COMMAND_DEADLINE_S) -> Done:
    """The command, refused if somebody else holds the testbed."""
    found = ended([HARNESS, *words], deadline_s=deadline_s)
    sys.stdout.write(f"{found}\n")  # whole, for pytest shortens what an assertion says
    return found


def harness(*words: str, deadline_s: float = COMMAND_DEADLINE_S) -> Done:
    """The command, tried again while somebody else's run holds the testbed."""
    end = time.monotonic() + PATIENCE_S
    while BUSY in (done := harness_once(*words, deadline_s=deadline_s)).err and time.monotonic() < end:
        time.sleep(1)
    return done


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run that has ended: its folder, what was printed, and the records."""

    done: Done
    folder: Path

    @property
    def records(self) -> dict[str, Record]:
        """By the cell's key."""
        run = RunFolder(self.folder)
        files = (file.stem for file in run.record_files())
        return dict(zip(files, run.load_records(), strict=True))

    def ok(self, *keys: str) -> dict[str, Record]:
        """The records of a run that has to have gone well: each cell is ok; and these are all, if named."""
        records = self.records
        bad = {key: record.reason for key, record in records.items() if record.status is not Status.OK}
        assert bad == {} and self.done.status == 0, f"{bad}\n{self.done}"
        assert not keys or records.keys() == {*keys}, f"{[*records]}\n{self.done}"
        return records

    @property
    def environment(self) -> dict[str, Any]:
        return RunFolder(self.folder).load_environment()

    def forget_others(self) -> None:
        """As if nobody had watched what others took: for tests of something else on a busy machine."""
        for record in self.records.values():
            telemetry = record.telemetry and msgspec.structs.replace(record.telemetry, background_load=())
            RunFolder(self.folder).save_record(msgspec.structs.replace(record, telemetry=telemetry))

    def table(self, *words: str) -> dict[str, Any]:
        done = well(harness_once("table", str(self.folder), "--format", "json", *words))
        decoded: dict[str, Any] = json.loads(done.out)
        return decoded

    def explain(self, *words: str) -> list[dict[str, Any]]:
        done = well(harness("explain", str(self.folder), "--format", "json", *words))
        cells: list[dict[str, Any]] = json.loads(done.out)["cells"]
        return cells


def measure(results: Path, *words: str, deadline_s: float = COMMAND_DEADLINE_S) -> Measured:
    """`harness run` with short defaults, its results in a folder of their own; in the lab that is up, if one
    is and the run can use it."""
    short = ("--repeats", "1", "--runtime", "0.3s", "--retries", "0")
    return in_lab_that_is_up(results, "run", *short, *words, deadline_s=deadline_s)


def in_lab_that_is_up(results: Path, *words: str, deadline_s: float = COMMAND_DEADLINE_S) -> Measured:
    """A command that makes a run. It is moved to ``results``: a lab that is up writes to its folder alone."""
    place = StaysUp.results or results
    done = harness(*words, "--results", str(place), deadline_s=deadline_s)
    if place != results:
        results.mkdir(parents=True, exist_ok=True)
        for folder in place.iterdir():
            shutil.move(folder, results)
    return Measured(done=done, folder=only_run(results))


class StaysUp:
    """The lab that stays up for tests that need no boot of their own: its kernel, its folder of results."""

    kernel: str | None = None
    results: Path | None = None

    @classmethod
    def have(cls, kernel: str | None, folder: Path) -> None:
        """Have a lab of that kernel up, or none."""
        if kernel == cls.kernel:
            return
        if cls.kernel is not None:
            harness("lab", "stop")
        cls.kernel = cls.results = None
        if kernel is None:
            return
        results = Path(tempfile.mkdtemp(dir=folder))
        well(harness("lab", "start", "--kernel", kernel, "--results", str(results), "--memory", "512"))
        cls.kernel, cls.results = kernel, results


def only_run(results: Path) -> Path:
    """The folder of the one run in a results folder."""
    (folder,) = results.iterdir()
    return folder


def events(folder: Path) -> list[dict[str, Any]]:
    """The events of a run so far, whole lines only."""
    file = folder / "events.jsonl"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@contextlib.contextmanager
def running(results: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`harness run`, going on; killed when the context ends, if it has not ended by then."""
    end = time.monotonic() + PATIENCE_S
    while True:
        with _started(["run", "--retries", "0", "--results", str(results), *words]) as process:
            assert wait_for(lambda: has_begun(results) or process.poll() is not None, deadline_s=60)
            if process.poll() is None:
                yield process
                return
            said = process.stderr.read() if process.stderr else ""
        assert BUSY in said and time.monotonic() < end, said
        time.sleep(1)


@contextlib.contextmanager
def _started(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [HARNESS, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **TEXT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def has_begun(results: Path) -> bool:
    """Whether a run in this results folder has reported its first event."""
    return results.is_dir() and any(events(folder) for folder in results.iterdir())


def wait_for(condition: Callable[[], bool], *, deadline_s: float) -> bool:
    """Poll until the condition holds; whether it did. ``deadline_s`` is for a quiet machine; a busy one has
    three times as long."""
    end = time.monotonic() + 3 * deadline_s
    while not (held := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return held


def descendants(pid: int) -> dict[int, str]:
    """The processes below one, by process id: start time and name (proc(5), stat)."""
    parents: dict[int, list[int]] = {}
    stamps: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := process_stat(int(entry.name))):
            parents.setdefault(int(stat[2]), []).append(int(entry.name))
            stamps[int(entry.name)] = f"{stat[20]} {stat[0]}"
    found: dict[int, str] = {}
    below = list(parents.get(pid, []))
    while below:
        child = below.pop()
        found[child] = stamps[child]
        below += parents.get(child, [])
    return found


def process_stat(pid: int) -> list[str]:
    """Name, state, parent and so on of a process; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    name, _, rest = text.partition("(")[2].rpartition(")")
    return [name, *rest.split()]


def alive(processes: dict[int, str]) -> dict[int, str]:
    """Those of `descendants()` that still run; zombies do not, and neither does who took the number over."""
    return {
        pid: stamp
        for pid, stamp in processes.items()
        if (stat := process_stat(pid)) and stat[1] not in "ZX" and f"{stat[20]} {stat[0]}" == stamp
    }


def moved(record: Record) -> int:
    """What a cell has read and written, in bytes."""
    return sum(io.bytes for io in (record.read, record.write) if io is not None)


def is_sampled(proof: Proof) -> bool:
    """Whether the captures have each packet that is due, and some are.

    One packet in so many is due, and on a busy machine a short cell may have fewer than that each way.
    """
    has_all = proof.packets_sampled >= proof.packets_expected
    return has_all and (proof.packets_expected > 0 or proof.protected_bytes < 2 * proof.sampling * MTU_BYTES)


def python_inside(module: str, *words: str) -> tuple[str, ...]:
    """A command that runs a module of `tests.lab` as root in the lab, as if it were a machine of its own."""
    return (
        *("sh", "-c", OWN_HOME, "sh"),
        *("env", f"PYTHONPATH={PROJECT}", f"PATH={os.environ['PATH']}:/usr/sbin:/sbin"),
        *(sys.executable, "-m", f"tests.lab.{module}", *words),
    )


def on_custom_kernel(*words: str, virtual_time: bool = False) -> Done:
    """A command in a lab on the custom kernel."""
    clock = ["--virtual-time"] if virtual_time else []
    return harness("lab", "exec", "--kernel", "custom", *clock, "--", *words)


def run_inside(
    module: str,
    *words: str,
    said: Sequence[str] = (),
    storage_mib: int = 512,
    deadline_s: float = COMMAND_DEADLINE_S,
    kernel: str = "debian",
) -> Done:
    """Run a module of `tests.lab` on a kernel of the lab's; it has to go well, and to say all this."""
    options = ("--memory", str(storage_mib), "--kernel", kernel)
    command = ("lab", "exec", *options, "--", *python_inside(module, *words))
    return well(harness(*command, deadline_s=deadline_s), *said)
