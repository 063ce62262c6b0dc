"""A lab that is kept up: who may use it, what spoils it, and what is left of it. Its kernel is a stand-in."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import hosts
from harness.hosts import runner, signals
from harness.hosts.journal import Journal
from harness.hosts.undo import Entry, Step
from harness.model import LabKernel
from harness.model.errors import CommandFailed, TestbedError
from harness.runs import inside, lean, waiting
from harness.storage import transports
from harness.testbeds import started
from harness.testbeds.lab import boot, standing
from harness.testbeds.lab.exchange import Exchange, Order, Report
from harness.testbeds.lab.standing import Terms, keeper

PATIENCE_S = 60.0

TERMS = Terms(
    kernel=LabKernel.DEBIAN,
    program="/usr/bin/linux.uml",
    words="/usr/lib/uml/modules",
    storage_bytes=256 << 20,
    results="/results",
    core=1,
    python="/venv",
    code="abc",
)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"storage_bytes": 1 << 20}, None),
        ({"storage_bytes": 1 << 30}, "the memory is for 256 MiB of storage, not for 1 GiB"),
        ({"program": "/own/linux"}, "the kernel is /usr/bin/linux.uml, not /own/linux"),
        ({"core": 0}, "the processor is 1, not 0"),
        ({"results": "/else"}, "the results folder is /results, not /else"),
        ({"python": "/usr"}, "the Python is /venv, not /usr"),
        ({"code": "def"}, "what boots it of the harness, or the machine's packages, are no longer the same"),
    ],
)
def test_a_run_that_needs_another_lab_is_told_why(changes: dict[str, Any], reason: str | None) -> None:
    assert standing.why_not(TERMS, msgspec.structs.replace(TERMS, **changes)) == reason


def test_a_changed_file_of_the_harness_changes_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "harness" / "testbeds" / "lab" / "standing" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text("1")
    monkeypatch.setattr(standing, "__file__", str(module))
    (other := tmp_path / "harness" / "runs.py").touch()
    before, worker = standing.code(), standing.of_worker()
    assert (standing.code(), standing.of_worker()) == (before, worker)
    os.utime(module, ns=(1, 1))
    assert standing.code() != before and standing.of_worker() == worker
    before = standing.code()
    os.utime(other, ns=(1, 1))
    assert standing.code() == before and standing.of_worker() != worker


def test_a_message_is_taken_once_and_whole(tmp_path: Path) -> None:
    exchange = Exchange(tmp_path)
    assert exchange.take(Order) is None
    exchange.put(Order(3, "a-run"))
    assert exchange.take(Report) is None
    assert exchange.take(Order) == Order(3, "a-run")
    assert exchange.take(Order) is None


@dataclass
class Machine:
    """Boots stand-ins for kernels: `work` says what each makes of an order."""

    folder: Path
    work: Callable[[Order], Report | None] = lambda order: Report(order.number)
    boots: int = 0
    ended: list[subprocess.Popen[bytes]] = field(default_factory=list)
    running: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def booted(self, command: list[str], **settings: Any) -> Iterator[boot.Lab]:
        assert command[1:] == ["-m", started.WAITING, started.EXCHANGE]
        self.boots += 1
        folder = self.folder / f"exchange{self.boots}"
        folder.mkdir()
        settings["console"].write_bytes(b"Kernel panic - not syncing: a stand-in\n")
        exchange, end = Exchange(folder), threading.Event()

        def wait() -> None:
            exchange.put(Report(0))
            while not end.wait(0.005):
                if (order := exchange.take(Order)) and (report := self.work(order)):
                    exchange.put(report)

        inside = threading.Thread(target=wait)
        with subprocess.Popen(["sleep", "60"]) as self.running:
            inside.start()
            try:
                yield boot.Lab(process=self.running, console=settings["console"], exchange=folder)
            finally:
                end.set()
                inside.join()
                self.running.kill()
                self.ended.append(self.running)


@dataclass
class Kept:
    """A keeper at work in a thread of this process."""

    state: Path
    machine: Machine
    thread: threading.Thread
    results: Path

    def run(self, name: str = "a-run") -> int:
        folder = self.results / name
        folder.mkdir(parents=True, exist_ok=True)
        with standing.run(self.state, folder) as run:
            return run.wait(PATIENCE_S)

    def asked(self) -> standing.Answer:
        found = standing.ask(self.state)
        assert found is not None
        return found


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Kept]]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    machine = Machine(tmp_path)
    monkeypatch.setattr(boot, "booted", machine.booted)
    monkeypatch.setattr(standing, "kernel_of", lambda _name: None)
    monkeypatch.setattr(signals, "ignore", lambda: None)
    monkeypatch.setattr(keeper, "lasting_folder", lambda: tmp_path / "lasting")
    monkeypatch.setattr(keeper, "LOOK_S", 0.02)
    threads = []

    def start(idle_s: float = 60.0) -> Kept:
        terms = msgspec.structs.replace(TERMS, results=str(tmp_path / "results"))
        thread = threading.Thread(target=keeper.Keeper(state, terms, idle_s).keep)
        thread.start()
        threads.append(thread)
        _await((state / standing.SOCKET).exists)
        return Kept(state, machine, thread, tmp_path / "results")

    yield start
    standing.stop(state)
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def _await(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_runs_share_a_kernel_and_stopping_leaves_nothing(keep: Callable[..., Kept]) -> None:
    kept = keep()
    assert [kept.run("one"), kept.run("two")] == [0, 0]
    found = kept.asked()
    assert (found.runs, found.before, found.pid, kept.machine.boots) == (2, "", os.getpid(), 1)
    assert found.terms.results == str(kept.results)
    assert standing.stop(kept.state)
    kept.thread.join(PATIENCE_S)
    assert not kept.state.exists()
    assert [process.poll() for process in kept.machine.ended] == [-9]
    assert not standing.stop(kept.state)
    assert standing.ask(kept.state) is None


def test_of_changed_code_the_worker_is_new_and_the_kernel_is_not(
    tmp_path: Path, keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    edited, gone = tmp_path / "edited.py", str(tmp_path / "gone.py")
    edited.write_text("new")
    monkeypatch.setattr(standing, "of_worker", lambda: {str(edited): "1", gone: "1", "same.py": "1"})
    kept, orders = keep(), list[Order]()

    def work(order: Order) -> Report:
        orders.append(order)
        return Report(order.number)

    kept.machine.work = work
    assert kept.run("one") == 0
    monkeypatch.setattr(standing, "of_worker", lambda: {str(edited): "2", "same.py": "1"})
    assert [kept.run("two"), kept.run("three")] == [0, 0]
    assert [order.number for order in orders] == [1, 0, 2, 3]
    assert orders[1].files == {str(edited): b"new", gone: None}
    assert (kept.asked().runs, kept.asked().before, kept.machine.boots) == (3, "", 1)


def test_an_edit_is_loaded_before_there_is_a_run(
    tmp_path: Path, keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = tmp_path / "code" / "edited.py"
    edited.parent.mkdir()
    monkeypatch.setattr(standing, "of_worker", lambda: {str(edited): str(edited.exists())})
    kept, orders = keep(), list[Order]()

    def work(order: Order) -> Report:
        orders.append(order)
        return Report(order.number)

    kept.machine.work = work
    edited.write_text("new")
    _await(lambda: bool(orders))
    assert kept.run("one") == 0
    assert orders == [Order(0, files={str(edited): b"new"}), Order(1, "one")]


def test_code_that_cannot_be_loaded_fails_runs_until_it_can(
    keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep()
    kept.machine.work = lambda order: Report(order.number, 0 if order.number else waiting.BROKEN)
    monkeypatch.setattr(standing, "of_worker", lambda: {"/edited.py": "1"})
    assert [kept.run(), kept.run()] == [1, 1]
    assert "Kernel panic" in (kept.results / "a-run" / "console.log").read_text()  # the stand-in's last words
    kept.machine.work = lambda order: Report(order.number)
    monkeypatch.setattr(standing, "of_worker", lambda: {"/edited.py": "2"})
    assert kept.run() == 0
    assert (kept.asked().runs, kept.machine.boots) == (1, 1)


def test_code_with_which_the_program_ends_costs_the_kernel(
    keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep()

    def end(_order: Order) -> None:
        assert kept.machine.running is not None
        kept.machine.running.kill()

    kept.machine.work = end
    monkeypatch.setattr(standing, "of_worker", lambda: {"/edited.py": "1"})
    assert kept.run() == 1
    assert "Kernel panic" in (kept.results / "a-run" / "console.log").read_text()
    assert kept.asked().before == "the harness as it was changed could not be loaded"


@pytest.mark.parametrize(
    ("report", "status", "reason"),
    [
        (Report(1, 2), 2, "the run a-run failed"),
        (Report(1, 0, ("/sys/block/sda",)), 0, "the run a-run left /sys/block/sda"),
    ],
)
def test_after_a_run_that_spoilt_it_another_kernel_boots(
    keep: Callable[..., Kept], report: Report, status: int, reason: str
) -> None:
    kept = keep()
    kept.machine.work = lambda _order: report
    assert kept.run() == status
    kept.machine.work = lambda order: Report(order.number)
    assert kept.run("the-next") == 0
    found = kept.asked()
    assert (found.runs, found.before, kept.machine.boots) == (1, reason, 2)


def test_a_run_that_is_given_up_ends_its_kernel(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.machine.work = lambda _order: None
    (kept.results / "a-run").mkdir(parents=True)
    with standing.run(kept.state, kept.results / "a-run") as run:
        assert run.poll() is None
        assert kept.asked().runs == 1  # it answers during a run
    _await(lambda: kept.machine.boots == 2)
    assert kept.machine.ended[0].poll() == -9
    assert kept.asked().before == "the run a-run was given up"


def test_the_last_words_of_a_kernel_that_ended_are_the_runs(keep: Callable[..., Kept]) -> None:
    kept = keep()

    def panic(_order: Order) -> None:
        assert kept.machine.running is not None
        kept.machine.running.kill()

    kept.machine.work = panic
    assert kept.run() == 1
    assert "Kernel panic" in (kept.results / "a-run" / "console.log").read_text()
    assert kept.asked().before == "it ended in the run a-run"


def test_a_second_run_beside_the_first_is_refused(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.machine.work = lambda _order: None
    folder = kept.results / "a-run"
    folder.mkdir(parents=True)
    with standing.run(kept.state, folder):
        with pytest.raises(TestbedError, match="has ended"), standing.run(kept.state, folder):
            pass
        assert kept.asked().runs == 1


def test_it_ends_by_itself_when_nobody_uses_it(keep: Callable[..., Kept]) -> None:
    kept = keep(idle_s=2.0)
    assert kept.run() == 0
    kept.thread.join(PATIENCE_S)
    assert not kept.thread.is_alive()
    assert not kept.state.exists()


def test_what_a_killed_keeper_left_is_removed_by_its_journal(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    left = tmp_path / "harness-lab-1"
    left.mkdir()
    journal = Journal(state / standing.JOURNAL)
    journal.open(Entry(what=f"ScratchFolder {left}", steps=(Step(("rmdir", str(left))),), netns=None))
    for name in standing.FILES:
        (state / name).touch()
    assert standing.ask(state) is None
    removed, failed = standing.tidy(state)
    assert (removed, failed) == ([f"ScratchFolder {left}"], [])
    assert not left.exists()
    assert not list(state.iterdir())
    assert standing.tidy(state) == ([], [])


def test_a_keeper_that_cannot_boot_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    script = "import sys; sys.exit('expected user namespaces, found none')"
    started = runner.left_running
    monkeypatch.setattr(
        runner, "left_running", lambda _argv, log: started([sys.executable, "-c", script], log)
    )
    with pytest.raises(TestbedError, match="but expected user namespaces, found none"):
        standing.start(state, TERMS)
    assert not list(state.iterdir())


def test_the_program_in_the_lab_sees_what_a_run_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = tmp_path / "block"
    devices.mkdir()
    monkeypatch.setattr(waiting, "LISTS", (str(devices), str(tmp_path / "absent")))
    before = waiting.things()
    (devices / "sdb").touch()
    with subprocess.Popen(["sleep", "60"]) as process:
        _await(lambda: f"process {process.pid}: sleep 60 " in waiting.things())
        left = waiting.things() - before
        process.kill()
    assert {f"{devices}/sdb", f"process {process.pid}: sleep 60 "} <= left


@pytest.mark.parametrize(("status", "ends"), [(0, 0), (3, 3), (None, 1)])
def test_a_run_in_the_lab_has_a_process_and_a_console_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int | None, ends: int
) -> None:
    folder = tmp_path / "a-run"
    folder.mkdir()

    def run(name: str, journal: str) -> int:
        sys.stdout.write(f"{name} {journal} {os.getpid()}\n")
        if status is None:
            raise ValueError("unforeseen")
        return status

    monkeypatch.setattr(waiting, "RESULTS", tmp_path)
    monkeypatch.setattr(waiting, "CLONE_NEWNS", 0)  # it needs no rights here
    monkeypatch.setattr(inside, "get_ready", lambda _is_called: None)
    monkeypatch.setattr(inside, "run", run)
    for number, name in ((1, "stdout"), (2, "stderr")):
        monkeypatch.setattr(sys, name, os.fdopen(number, "w", closefd=False))
    assert waiting.Ready().carry_out("a-run") == ends
    said = (folder / "console.log").read_text()
    assert said.startswith(f"{folder} {started.JOURNAL} ")
    assert said.split()[2] != str(os.getpid())
    assert ("unforeseen" in said) == (status is None)


STAGED = """
import importlib
import sys
import time
import harness
from harness.runs import waiting
harness.__path__.append(sys.argv[1])
names = ("harness.one", "harness.two")
waiting.STAGES = tuple(lambda name=name: importlib.import_module(name) for name in names)
waiting.things = lambda: set()
waiting._in_child = lambda told: time.sleep(60)
waiting.main([sys.argv[2]])
"""


def test_what_has_not_loaded_changed_code_loads_nothing_again(tmp_path: Path) -> None:
    code, exchange, log = tmp_path / "code", Exchange(tmp_path), tmp_path / "log"
    code.mkdir()
    one, two = code / "one.py", code / "two.py"

    def text(word: str) -> bytes:
        return f"with open({str(log)!r}, 'a') as log: log.write('{word} ')\n".encode()

    def reported() -> bool:
        return exchange.take(Report) is not None

    one.write_bytes(text("one"))
    two.write_bytes(text("two"))
    argv = [sys.executable, "-B", "-c", STAGED, str(code), str(tmp_path)]
    with subprocess.Popen(argv, start_new_session=True) as process:
        try:
            _await(reported)
            changes: list[dict[str, bytes | None]] = [
                {str(code / "not_loaded.py"): b""},
                {str(two): text("2")},
                {str(one): text("1"), str(code / "not_loaded.py"): None},
            ]
            for files in changes:
                exchange.put(Order(0, files=files))
                _await(reported)
            assert log.read_text().split() == ["one", "two", "2", "1", "2"]
            assert not (code / "not_loaded.py").exists()
            for content, status in ((b"raise ValueError", waiting.BROKEN), (text("one"), 0)):
                exchange.put(Order(0, files={str(one): content}))
                _await(lambda: (tmp_path / "Report").exists())
                assert exchange.take(Report) == Report(0, status)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_what_each_run_does_is_done_ahead_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def fails() -> None:
        done.append("mounts")
        raise CommandFailed("no rights")

    monkeypatch.setattr(inside, "mount_private", fails)
    monkeypatch.setattr(lean, "fio", lambda _folder: done.append("fio"))
    usual = dataclasses.replace(transports.DEFAULT, get_ready=lambda _host: done.append("transport"))
    monkeypatch.setattr(transports, "DEFAULT", usual)
    inside.get_ready(lambda: len(done) == 2)
    assert done == ["mounts", "fio"]
    inside.get_ready(lambda: False)
    assert done[2:] == ["mounts", "fio", "transport"]


def test_a_process_that_got_ready_ends_with_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = os.pipe()

    def get_ready(_is_called: Callable[[], bool]) -> None:
        hosts.start_kept("import sys, time\ndef serve(): time.sleep(60)\nserve()")
        (started_as,) = hosts._kept()._running.values()
        os.write(marks[1], f"{started_as.process.pid}\n".encode())

    monkeypatch.setattr(waiting, "CLONE_NEWNS", 0)
    monkeypatch.setattr(inside, "get_ready", get_ready)
    ready = waiting.Ready()
    served = int(os.read(marks[0], 32))
    ready.end()
    assert not Path(f"/proc/{served}").exists()
    for end in marks:
        os.close(end)
