"""A lab that is kept up: who may use it, what spoils it, and what is left of it. Its kernel is a stand-in."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from harness.hosts import runner
from harness.hosts.journal import Journal
from harness.hosts.undo import UndoEntry, UndoStep
from harness.model import LabKernel, signals
from harness.model.errors import CommandFailed, TestbedError
from harness.runs import executor, fio_startup, worker
from harness.testbeds import entry_points
from harness.testbeds.lab import boot, persistent
from harness.testbeds.lab.exchange import Exchange, Renewal, WorkerOrder, WorkerReport
from harness.testbeds.lab.persistent import LabState, LabTerms, daemon
from tests.unit.testbeds.refusals import refusal

pytestmark = pytest.mark.thorough

PATIENCE_S = 60.0
PLACES = {"program": "/usr/bin/linux.uml", "words": "/modules", "results": "/results", "python": "/venv"}
TERMS = LabTerms(kernel=LabKernel.DEBIAN, storage_bytes=256 << 20, core=1, code="abc", **PLACES)


def test_a_run_that_needs_another_lab_is_reported_why() -> None:
    for name, needed, reason in (
        ("storage_bytes", 256 << 20, None),
        ("storage_bytes", 1 << 20, None),
        ("storage_bytes", 1 << 30, "it has memory for 256 MiB of storage, not for 1 GiB"),
        ("program", "/own/linux", "the kernel is /usr/bin/linux.uml, not /own/linux"),
        ("core", 0, "the processor is 1, not 0"),
        ("results", "/else", "the results folder is /results, not /else"),
        ("python", "/usr", "the Python is /venv, not /usr"),
        ("code", "def", "the harness's boot code or the machine's packages have changed"),
    ):
        assert persistent.why_not(TERMS, msgspec.structs.replace(TERMS, **{name: needed})) == reason


def test_a_changed_file_is_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "harness" / "testbeds" / "lab" / "persistent" / "__init__.py"
    module.parent.mkdir(parents=True)
    (other := tmp_path / "harness" / "runs.py").touch()
    module.write_text("1")
    monkeypatch.setattr(persistent, "__file__", str(module))

    code, worker_code = persistent.code(), persistent.worker()
    assert (persistent.code(), persistent.worker()) == (code, worker_code)
    os.utime(module, ns=(1, 1))
    assert (changed := persistent.code()) != code and persistent.worker() == worker_code
    os.utime(other, ns=(1, 1))
    assert persistent.code() == changed and persistent.worker() != worker_code


def test_the_last_message_of_a_kind_is_read(tmp_path: Path) -> None:
    exchange = Exchange(tmp_path)
    assert exchange.read(WorkerOrder) is None
    exchange.put(WorkerOrder(3, "a-run"))
    exchange.put(WorkerOrder(4, "another"))
    assert exchange.read(WorkerReport) is None
    assert exchange.read(WorkerOrder) == exchange.read(WorkerOrder) == WorkerOrder(4, "another")
    exchange.remove(WorkerOrder)
    exchange.remove(WorkerOrder)
    assert exchange.read(WorkerOrder) is None


@dataclass
class Keeping:
    """A daemon that is at work in a thread of this process once it has started, and what it boots: stand-ins
    for kernels. `work` says what each makes of an order; None: nothing."""

    state: Path
    work: Callable[[WorkerOrder], WorkerReport | None] = lambda order: WorkerReport(order.number)
    loads: bool = True
    boots: int = 0
    renewals: int = 0
    ended: list[subprocess.Popen[bytes]] = field(default_factory=list)
    running: subprocess.Popen[bytes] | None = None
    idle_s: float = 60.0
    thread: threading.Thread = field(default_factory=threading.Thread)

    @contextlib.contextmanager
    def booted(self, command: list[str], *, console: Path, **_: object) -> Iterator[boot.Lab]:
        assert command == entry_points.command(entry_points.WORKER, entry_points.EXCHANGE, "0")
        self.boots += 1
        (folder := self.state.with_name(f"exchange{self.boots}")).mkdir()
        console.write_bytes(b"Kernel panic - not syncing: a stand-in\n")
        exchange, end = Exchange(folder), threading.Event()

        def obey() -> None:
            runs, seen = 0, 0
            if self.loads:
                exchange.put(WorkerReport(runs))
            while not end.wait(0.005):
                if exchange.read(Renewal):
                    self.renewals += 1
                    exchange.remove(Renewal)
                    if not self.loads:
                        self.kill()
                        return
                    exchange.put(WorkerReport(runs))
                if (order := exchange.read(WorkerOrder)) and order.number > seen:
                    seen = order.number
                    if report := self.work(order):
                        runs = report.number
                        exchange.put(report)

        inside = threading.Thread(target=obey)
        with subprocess.Popen(["sleep", "60"]) as self.running:
            if not self.loads:
                self.kill()
            inside.start()
            try:
                yield boot.Lab(process=self.running, console=console, exchange=folder)
            finally:
                end.set()
                inside.join()
                self.kill()
                self.ended.append(self.running)
                shutil.rmtree(folder)

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()

    def start(self) -> None:
        terms = msgspec.structs.replace(TERMS, results=str(self.made("")))
        self.thread = threading.Thread(target=daemon.LabDaemon(self.state, terms, self.idle_s).keep)
        self.thread.start()
        _await((self.state / persistent.KEPT).exists)

    def run(self, name: str = "a-run") -> int:
        with persistent.run(self.state, self.made(name), self.asked()) as run:
            return run.wait(PATIENCE_S)

    def made(self, name: str) -> Path:
        (folder := self.state.with_name("results") / name).mkdir(parents=True, exist_ok=True)
        return folder

    def asked(self) -> LabState:
        found = persistent.ask(self.state)
        assert found is not None
        return found


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (folder := tmp_path / "state").mkdir(mode=0o700)
    return folder


@pytest.fixture
def idle(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeping]:
    """A daemon that has not started."""
    made = Keeping(state)
    monkeypatch.setattr(boot, "booted", made.booted)
    monkeypatch.setattr(persistent, "kernel_of", lambda _name: None)
    monkeypatch.setattr(persistent, "worker", lambda: "1")
    monkeypatch.setattr(signals, "ignore", lambda: None)
    monkeypatch.setattr(daemon, "lasting_folder", lambda: tmp_path / "lasting")
    monkeypatch.setattr(daemon, "LOOK_S", 0.02)
    monkeypatch.setattr(daemon, "POLL_S", 0.01)
    yield made
    persistent.stop(state)
    made.thread.join(PATIENCE_S)
    assert not made.thread.is_alive()


@pytest.fixture
def lab_state(idle: Keeping) -> Keeping:
    idle.start()
    return idle


def _await(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_runs_share_a_kernel_and_stopping_leaves_nothing(lab_state: Keeping) -> None:
    assert [lab_state.run("one"), lab_state.run("two")] == [0, 0]
    found = lab_state.asked()
    assert (found.runs, found.before, found.pid, lab_state.boots) == (2, "", os.getpid(), 1)
    assert found.terms.results == str(lab_state.made(""))
    assert persistent.stop(lab_state.state)
    lab_state.thread.join(PATIENCE_S)
    assert not lab_state.state.exists()
    assert [process.poll() for process in lab_state.ended] == [-9]
    assert not persistent.stop(lab_state.state)
    assert persistent.ask(lab_state.state) is None


def test_changed_code_is_loaded_into_the_same_kernel(
    lab_state: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lab_state.run("one") == 0
    monkeypatch.setattr(persistent, "worker", lambda: "2")
    assert [lab_state.run("two"), lab_state.run("three")] == [0, 0]
    assert (lab_state.asked().runs, lab_state.asked().before, lab_state.asked().loaded) == (3, "", "2")
    assert (lab_state.boots, lab_state.renewals) == (1, 1)
    # An edit is loaded before there is a run.
    monkeypatch.setattr(persistent, "worker", lambda: "3")
    _await(lambda: lab_state.renewals == 2)
    assert lab_state.run("four") == 0
    # Nothing is loaded while files change.
    looks = itertools.count()
    monkeypatch.setattr(persistent, "worker", lambda: str(100 + min(50, next(looks))))
    _await(lambda: lab_state.renewals > 2)
    assert next(looks) > 50 and lab_state.renewals == 3


@pytest.mark.parametrize("is_renewed", [True, False])
def test_code_that_cannot_be_loaded(
    lab_state: Keeping, monkeypatch: pytest.MonkeyPatch, is_renewed: bool
) -> None:
    lab_state.loads = False
    if is_renewed:
        monkeypatch.setattr(persistent, "worker", lambda: "2")
    else:
        lab_state.work = lambda _order: WorkerReport(1, 1)
        assert lab_state.run() == 1
    _await(lambda: lab_state.asked().fault != "")
    assert "the lab did not start: Kernel panic" in lab_state.asked().fault
    lab_state.loads, lab_state.work = True, lambda order: WorkerReport(order.number)
    monkeypatch.setattr(persistent, "worker", lambda: "3")
    _await(lambda: lab_state.asked().fault == "")
    assert lab_state.run() == 0
    assert (lab_state.asked().runs, lab_state.boots) == (1, 2 if is_renewed else 3)


@pytest.mark.parametrize(
    ("report", "status", "reason"),
    [
        (WorkerReport(1, 2), 2, "the run a-run failed"),
        (WorkerReport(1, 0, ("/sys/block/sda",)), 0, "the run a-run left /sys/block/sda"),
        (None, 1, "it ended during the run a-run"),
    ],
)
def test_a_run_spoils_its_kernel(
    lab_state: Keeping, report: WorkerReport | None, status: int, reason: str
) -> None:
    def work(_order: WorkerOrder) -> WorkerReport | None:
        if report is None:
            lab_state.kill()
        return report

    lab_state.work = work
    assert lab_state.run() == status
    # The last words of a kernel that ended are the run's.
    assert report or "Kernel panic" in (lab_state.made("a-run") / "console.log").read_text()
    lab_state.work = lambda order: WorkerReport(order.number)
    assert lab_state.run("the-next") == 0
    found = lab_state.asked()
    assert (found.runs, found.before, lab_state.boots) == (1, reason, 2)


def test_a_run_that_is_given_up_ends_its_kernel(lab_state: Keeping) -> None:
    lab_state.work = lambda _order: None
    with persistent.run(lab_state.state, lab_state.made("a-run"), lab_state.asked()) as run:
        assert run.poll() is None
    _await(lambda: lab_state.boots == 2)
    assert (lab_state.ended[0].poll(), run.poll()) == (-9, 1)
    assert lab_state.asked().before == "the run a-run was given up"


def test_it_ends_by_itself_when_nobody_uses_it(idle: Keeping) -> None:
    idle.idle_s = 2.0
    idle.start()
    assert idle.run() == 0
    idle.thread.join(PATIENCE_S)
    assert not idle.thread.is_alive() and not idle.state.exists()


def test_what_a_killed_lab_daemon_left_is_removed_by_its_journal(state: Path, tmp_path: Path) -> None:
    (left := tmp_path / "harness-lab-1").mkdir()
    journal = Journal(state / persistent.JOURNAL)
    journal.open(UndoEntry(what=f"ScratchFolder {left}", steps=(UndoStep(("rmdir", str(left))),), netns=None))
    for name in persistent.FILES:
        (state / name).touch()
    assert persistent.ask(state) is None
    assert persistent.tidy(state) == ([f"ScratchFolder {left}"], [])
    assert not left.exists() and not list(state.iterdir())
    assert persistent.tidy(state) == ([], [])


def test_a_daemon_that_cannot_boot_says_why(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit('expected user namespaces, found none')"]
    started = runner.left_running
    monkeypatch.setattr(runner, "left_running", lambda _argv, log: started(argv, log))
    refusal(TestbedError, "but expected user namespaces, found none", persistent.start, state, TERMS)
    assert not list(state.iterdir())


def test_the_program_in_the_lab_sees_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (devices := tmp_path / "block").mkdir()
    monkeypatch.setattr(worker, "LISTS", (str(devices), str(tmp_path / "absent")))
    before = worker.things()
    (devices / "sdb").touch()
    with subprocess.Popen(["sleep", "60"]) as process:
        _await(lambda: f"process {process.pid}: sleep 60 " in worker.things())
        left = worker.things() - before
        process.kill()
    assert {f"{devices}/sdb", f"process {process.pid}: sleep 60 "} <= left


def test_a_run_has_its_own_process_and_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "a-run").mkdir()

    def run(name: str, journal: str) -> int:
        sys.stdout.write(f"{name} {journal} {os.getpid()}\n")
        if status is None:
            raise ValueError("unforeseen")
        return status

    monkeypatch.setattr(worker, "RESULTS", tmp_path)
    monkeypatch.setattr(worker, "CLONE_NEWNS", 0)  # it needs no rights here
    monkeypatch.setattr(executor, "get_ready", lambda: None)
    monkeypatch.setattr(executor, "run", run)
    for number, name in ((1, "stdout"), (2, "stderr")):
        monkeypatch.setattr(sys, name, os.fdopen(number, "w", closefd=False))
    exchange = Exchange(tmp_path)
    for status, ends in ((0, 0), (3, 3), (None, 1)):
        exchange.put(WorkerOrder(1, "a-run"))
        (folder / "console.log").unlink(missing_ok=True)
        assert worker.carry_out(exchange, 1) == ends
        said = (folder / "console.log").read_text()
        assert said.startswith(f"{folder} {entry_points.JOURNAL} ") and said.split()[2] != str(os.getpid())
        assert ("unforeseen" in said) == (status is None)
    # One that got ready ends when it is renewed.
    exchange.remove(WorkerOrder)
    exchange.put(Renewal())
    assert worker.carry_out(exchange, 1) == worker.RENEWED


RENEWED = """
import sys
from pathlib import Path
from harness.runs import executor, worker
word = Path(sys.argv[1]).read_text()
worker.things = lambda: set()
worker.CLONE_NEWNS, worker.CACHES, worker.RESULTS = 0, Path(sys.argv[2], "caches"), sys.argv[2]
worker.command = lambda _module, *words: [sys.executable, "-B", "-c", sys.argv[3], *sys.argv[1:4], *words]
executor.get_ready = lambda: None
executor.run = lambda folder, _journal: print(word, folder.rpartition("/")[2]) or 0
worker.main(sys.argv[4:])
"""


def test_the_program_in_the_lab_begins_anew_when_it_is_asked_to(tmp_path: Path) -> None:
    code, exchange = tmp_path / "code", Exchange(tmp_path)
    argv = [sys.executable, "-B", "-c", RENEWED, str(code), str(tmp_path), RENEWED, str(tmp_path), "0"]

    def reported(number: int) -> None:
        _await(lambda: exchange.read(WorkerReport) is not None)
        _await(lambda: exchange.read(WorkerReport) == WorkerReport(number))

    code.write_text("old")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with subprocess.Popen(argv, start_new_session=True) as process:
        try:
            reported(0)
            exchange.put(WorkerOrder(1, "one"))
            reported(1)
            code.write_text("new")
            exchange.remove(WorkerReport)
            exchange.put(Renewal())
            reported(1)
            exchange.put(WorkerOrder(2, "two"))
            reported(2)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    said = [(tmp_path / name / "console.log").read_text() for name in ("one", "two")]
    assert said == ["old one\n", "new two\n"]
    assert (tmp_path / "caches").read_text() == "3"


def test_what_each_run_does_is_done_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(fio_startup, "fio", lambda: done.append("fio"))
    for mount in (lambda: done.append("mounts"), mock.Mock(side_effect=CommandFailed("no rights"))):
        monkeypatch.setattr(executor, "mount_private", mount)
        executor.get_ready()
        assert done == ["mounts", "fio"]
