"""The agent: does what it is asked, and undoes everything by itself, however it comes to its end."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest

import harness
from harness.hosts import programs, remote
from tests.unit import sources
from tests.unit.agents import PATIENT_S, SHORT_S, agent_source, lasting

pytestmark = pytest.mark.thorough

PATIENCE_S = 60.0
Message = dict[str, Any]


class Agent:
    """An agent, and the harness's end of its pipes: every message is kept by the number it belongs to."""

    def __init__(
        self,
        state: Path,
        *,
        reads: bool = True,
        stderr: Path | None = None,
        stop_s: float = PATIENT_S,
        step_s: float = PATIENT_S,
    ) -> None:
        source = agent_source(state, stop_s=stop_s, step_s=step_s).encode()
        with (stderr or Path(os.devnull)).open("ab") as errors:
            self.process = subprocess.Popen(
                [programs.PYTHON, "-I", "-c", remote._BOOTSTRAP, str(len(source))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._in, self._out = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
        self._number = 0
        self._queues: dict[int, queue.Queue[Message]] = {}
        self.last: list[Message] = []
        self._in.write(source)
        self._in.flush()
        if reads:
            assert self._out.readline() == b"\n"
            assert json.loads(self._out.readline())["hello"] == 1
            self._reader = threading.Thread(target=self._read)
            self._reader.start()

    def _read(self) -> None:
        for line in self._out:
            message = json.loads(line)
            if "id" in message:
                self._queues[message["id"]].put(message)
            else:
                self.last.append(message)

    def send(self, do: str, **fields: object) -> int:
        self._number += 1
        self._queues[self._number] = queue.Queue()
        self._in.write(json.dumps({"id": self._number, "do": do, **fields}).encode() + b"\n")
        self._in.flush()
        return self._number

    def await_answer(self, number: int) -> Message:
        return self._queues[number].get(timeout=PATIENCE_S)

    def ask(self, do: str, **fields: object) -> Message:
        return self.await_answer(self.send(do, **fields))

    def run(self, *argv: str, timeout_s: float = PATIENCE_S, **fields: object) -> Message:
        return self.ask("run", argv=argv, timeout_s=timeout_s, **fields)

    def begin(self, deadman_s: float = PATIENCE_S, run_id: str = "run-1", role: str = "target") -> Message:
        return self.ask("begin", role=role, run_id=run_id, private=[], deadman_s=deadman_s)

    def note(self, number: int, *steps: list[str], lasting: bool = False, **step: object) -> None:
        entry: Message = {"what": f"Thing {number}", "steps": [{"argv": argv, **step} for argv in steps]}
        if lasting:
            entry["lasting"] = True
        assert self.ask("note", number=number, entry=entry) == {"id": self._number}

    def spawn(self, *argv: str) -> int:
        return self.send("spawn", argv=argv)

    def printed(self, number: int, name: str, least: int) -> bytes:
        """What a daemon has printed, at least so many bytes of it."""
        data = b""
        while len(data) < least:
            message = self.await_answer(number)
            assert name in message or "spawned" in message, message
            data += base64.b64decode(message.get(name, ""))
        return data

    def await_end(self, number: int) -> int:
        while "ended" not in (message := self.await_answer(number)):
            pass
        return int(message["ended"])

    def hang_up(self) -> None:
        self._in.close()

    def await_exit(self) -> None:
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            self._in.close()
        if hasattr(self, "_reader"):
            self._reader.join(PATIENCE_S)
        self._out.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def start(state: Path) -> Iterator[Callable[..., Agent]]:
    """Starts agents, each of which is gone when the test ends."""
    with contextlib.ExitStack() as stack:

        def start(*, stop_s: float = PATIENT_S, step_s: float = PATIENT_S) -> Agent:
            agent = Agent(state, stop_s=stop_s, step_s=step_s)
            stack.callback(agent.close)
            return agent

        yield start


@pytest.fixture
def agent(start: Callable[..., Agent]) -> Agent:
    return start()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent without a run, which does what one test after another asks of it."""
    with contextlib.closing(Agent(tmp_path_factory.mktemp("worker") / "state")) as agent:
        yield agent


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


# Running programs


def test_a_program_is_run_to_its_end(worker: Agent) -> None:
    done = worker.run("sh", "-c", "cat; echo oops >&2; exit 3", input="in")
    assert (done["status"], done["stdout"], done["stderr"]) == (3, "in", "oops\n")


def test_a_program_without_input_has_none_and_does_not_eat_requests(worker: Agent) -> None:
    first, second = (
        worker.send("run", argv=["cat"], timeout_s=PATIENCE_S),
        worker.send("run", argv=["cat"], timeout_s=PATIENCE_S),
    )
    assert worker.await_answer(first)["stdout"] == worker.await_answer(second)["stdout"] == ""


def test_a_program_has_the_c_locale_administrators_programs_and_what_it_is_given(worker: Agent) -> None:
    said = worker.run("sh", "-c", 'echo "$LC_ALL $LANGUAGE-$ODD"; echo "$PATH"', env={"ODD": "a b"})["stdout"]
    assert said.splitlines()[0] == "C.UTF-8 -a b"
    assert {"/usr/sbin", "/sbin"} <= set(said.splitlines()[1].split(":"))


def test_a_program_is_looked_up_in_the_path_it_is_given(worker: Agent, tmp_path: Path) -> None:
    (tmp_path / "rare").write_text("#!/bin/sh\necho found\n", encoding="utf-8")
    (tmp_path / "rare").chmod(0o755)
    assert worker.run("rare")["missing"] == "rare"
    assert worker.run("rare", env={"PATH": f"{tmp_path}:/bin"})["stdout"] == "found\n"


def test_a_program_does_not_start_where_the_users_files_are(worker: Agent) -> None:
    """python3 -c takes modules from there."""
    assert worker.run("pwd")["stdout"] == "/\n"


@pytest.mark.parametrize(
    "word",
    ["", " ", "a b", "'", '"', "$HOME", "`id`", "\\", "new\nline", "ü€\N{GRINNING FACE}", "*", "-n", "#"],
)
def test_words_arrive_as_they_are(worker: Agent, word: str) -> None:
    assert worker.run("printf", "%s|%s|", word, "end")["stdout"] == f"{word}|end|"


def test_output_that_is_no_text_is_marked(worker: Agent) -> None:
    done = worker.run("printf", r"a\377\000\303\251")
    assert done["stdout"] == "a\N{REPLACEMENT CHARACTER}\0é"


def test_ten_megabytes_come_whole(worker: Agent) -> None:
    done = worker.run("sh", "-c", "head -c 10000000 /dev/zero | tr '\\0' x; seq 300000 >&2")
    assert len(done["stdout"]) == 10_000_000
    assert done["stdout"].strip("x") == ""
    assert done["stderr"].splitlines()[-1] == "300000"


def test_a_long_input_goes_in_whole(worker: Agent) -> None:
    assert worker.run("wc", "-c", input="x" * 2_000_000)["stdout"].strip() == "2000000"


def test_a_missing_program_is_reported_and_one_that_may_not_be_executed_too(
    worker: Agent, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n", encoding="utf-8")
    for name in ("no-such-program", "/no/such/program", str(tmp_path / "plain"), str(tmp_path)):
        assert worker.run(name)["missing"] == name
        assert worker.ask("spawn", argv=[name])["missing"] == name


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "run", "argv": ["echo", "a\0b"], "timeout_s": 1},
        {"do": "spawn", "argv": ["echo", "a\0b"]},
        {"do": "write", "path": "/dev/null/x", "text": ""},
        {"do": "write", "path": "/tmp/a\0b", "text": ""},
        {"do": "note", "number": 1, "entry": {}},
    ],
    ids=lambda request: request["do"],
)
def test_what_cannot_be_done_is_reported_and_the_agent_goes_on(worker: Agent, request_: Message) -> None:
    assert worker.ask(**request_)["error"]
    assert worker.run("echo", "on")["stdout"] == "on\n"


def test_a_program_that_outlives_its_time_is_killed_with_what_it_started(
    worker: Agent, tmp_path: Path
) -> None:
    script = 'sleep 987 & echo $! > "$1"; wait'
    pid = tmp_path / "pid"
    pid.touch()
    for timeout_s in (0.3, 10.0):  # on a busy machine it may not have begun so soon
        said = worker.run("sh", "-c", script, "sh", str(pid), timeout_s=timeout_s)
        assert said["timeout"] is True
        if pid.read_text(encoding="utf-8"):
            break
    child = int(pid.read_text(encoding="utf-8"))
    wait_for(lambda: not is_alive(child), "its child's end")


def test_requests_are_done_side_by_side_and_answered_by_number(worker: Agent, tmp_path: Path) -> None:
    script = 'cd "$1"; touch "began-$2"; until [ -e go ]; do sleep 0.05; done; echo "$2"'
    numbers = {
        worker.send("run", argv=["sh", "-c", script, "sh", str(tmp_path), str(n)], timeout_s=60): n
        for n in range(20)
    }
    assert worker.run("echo", "quick")["stdout"] == "quick\n"
    wait_for(lambda: len(list(tmp_path.glob("began-*"))) == len(numbers), "all, of which none has ended")
    (tmp_path / "go").touch()
    for number, n in numbers.items():
        assert worker.await_answer(number)["stdout"] == f"{n}\n"


def test_a_program_can_be_killed_while_it_runs(worker: Agent) -> None:
    number = worker.send("run", argv=["sleep", "60"], timeout_s=60)
    worker.send("kill", of=number)
    worker.send("kill", of=999)
    assert worker.await_answer(number)["status"] == -signal.SIGKILL


def test_a_daemon_gets_signals_while_it_runs(worker: Agent) -> None:
    script = "trap 'echo asked' USR1; echo ready; while :; do sleep 0.02; done"
    number = worker.spawn("sh", "-c", script)
    assert worker.printed(number, "out", 6) == b"ready\n"
    for _ in range(3):
        worker.send("signal", of=number, signal=signal.SIGUSR1)
        assert worker.printed(number, "out", 6) == b"asked\n"
    worker.send("signal", of=999, signal=signal.SIGUSR1)
    worker.send("kill", of=number)
    assert worker.await_end(number) == -signal.SIGKILL


# Files


def test_files_are_read_as_they_are_and_absent_ones_are_empty(worker: Agent, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x\n\xff")
    paths = [str(tmp_path / "a"), str(tmp_path / "none"), str(tmp_path), "/proc/self/comm"]
    assert worker.ask("read", paths=paths)["texts"][:3] == ["x\n\N{REPLACEMENT CHARACTER}", "", ""]


def test_a_secret_is_readable_by_its_owner_alone(worker: Agent, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "secret"
    assert "error" not in worker.ask("write", path=str(file), text="sésame")
    assert file.read_text(encoding="utf-8") == "sésame"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
    file.chmod(0o666)
    worker.ask("write", path=str(file), text="s")
    assert (file.read_text(encoding="utf-8"), file.stat().st_mode & 0o777) == ("s", 0o600)


# Daemons


def test_a_daemon_is_heard_until_it_is_stopped(worker: Agent) -> None:
    number = worker.spawn("sh", "-c", "trap 'echo bye; exit 4' TERM; echo hi; while :; do sleep 0.02; done")
    assert worker.printed(number, "out", 3) == b"hi\n"
    worker.send("stop", of=number)
    assert worker.printed(number, "out", 4) == b"bye\n"
    assert worker.await_end(number) == 4


def test_both_outputs_of_a_daemon_are_distinguished_byte_by_byte(worker: Agent) -> None:
    number = worker.spawn("sh", "-c", r"printf '\000\377\n'; printf 'e\376' >&2")
    heard = {"out": b"", "err": b""}
    while "ended" not in (message := worker.await_answer(number)):
        for name in heard:
            heard[name] += base64.b64decode(message.get(name, ""))
    assert heard == {"out": b"\0\xff\n", "err": b"e\xfe"}
    assert message["ended"] == 0


def test_a_daemon_is_reported_to_have_begun_before_it_is_reported_to_have_ended(worker: Agent) -> None:
    for _ in range(20):
        number = worker.spawn("true")
        assert "spawned" in worker.await_answer(number)
        assert worker.await_answer(number) == {"id": number, "ended": 0}


def test_a_daemon_that_ends_by_itself_is_reported_after_its_last_words(worker: Agent) -> None:
    number = worker.spawn("sh", "-c", "seq 100000; exit 5")
    data = b""
    while "ended" not in (message := worker.await_answer(number)):
        data += base64.b64decode(message.get("out", ""))
    assert message["ended"] == 5
    assert data.splitlines()[-1] == b"100000"


def test_a_daemon_that_does_not_want_to_end_is_killed(start: Callable[..., Agent]) -> None:
    agent = start(stop_s=SHORT_S)
    number = agent.spawn("sh", "-c", "trap '' TERM; echo; while :; do sleep 0.02; done")
    agent.printed(number, "out", 1)
    began = time.monotonic()
    agent.send("stop", of=number)
    assert agent.await_end(number) == -signal.SIGKILL
    assert time.monotonic() - began >= SHORT_S


# The end, whatever brings it


DAEMON = "trap 'echo daemon >> \"$1\"; exit' TERM; echo; while :; do sleep 0.02; done"


def bring_up(agent: Agent, log: Path) -> None:
    """A note, a daemon, and three notes, of which one is done; each tells ``log`` of its undoing."""
    agent.note(101, *(["sh", "-c", f"echo {word} >> {log}"] for word in ("first", "first-again")))
    number = agent.spawn("sh", "-c", DAEMON, "sh", str(log))
    agent.printed(number, "out", 1)
    for note, word in ((102, "second"), (103, "done"), (104, "third")):
        agent.note(note, ["sh", "-c", f"echo {word} >> {log}"])
    agent.ask("done", number=103)


UNDONE = ["third", "second", "daemon", "first", "first-again"]


def end(agent: Agent) -> None:
    agent.send("end")


def hang_up(agent: Agent) -> None:
    agent.hang_up()


def terminate(agent: Agent) -> None:
    agent.process.terminate()


def say_nothing(_agent: Agent) -> None:
    """The dead man's way."""


SILENT_S = 2.0
"""After so long he is dead: longer than a busy machine takes from one request to the next."""


@pytest.mark.parametrize("way", [end, hang_up, terminate, say_nothing])
def test_everything_is_undone_newest_first(
    agent: Agent, state: Path, tmp_path: Path, way: Callable[[Agent], None]
) -> None:
    agent.begin(deadman_s=SILENT_S if way is say_nothing else PATIENCE_S)
    log = tmp_path / "log"
    bring_up(agent, log)
    script = 'echo $$ > "$1.new"; mv "$1.new" "$1"; exec sleep 60'
    agent.send("run", argv=["sh", "-c", script, "sh", str(tmp_path / "pid")], timeout_s=60)
    wait_for((tmp_path / "pid").exists, "a program that runs")
    assert len(list(state.glob("agent-target-*.jsonl"))) == 1
    way(agent)
    agent.await_exit()
    assert log.read_text(encoding="utf-8").split() == UNDONE
    assert agent.process.returncode == 0
    assert agent.last == [{"ended": True}]
    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    wait_for(lambda: not is_alive(pid), "the end of what ran")
    assert not state.exists(), "nothing is left of its own"


def test_beats_keep_it_alive(start: Callable[..., Agent], tmp_path: Path) -> None:
    undone = tmp_path / "undone"

    def is_kept(deadman_s: float) -> bool:
        agent = start()
        agent.begin(deadman_s=deadman_s)
        agent.note(101, ["touch", str(undone)])
        with contextlib.suppress(BrokenPipeError):  # it has ended
            for _ in range(10):
                time.sleep(deadman_s / 4)
                agent.send("beat")
        kept = not undone.exists()
        agent.await_exit()
        assert undone.exists()
        undone.unlink()
        return kept

    # A busy machine may keep the first beats back for too long.
    assert is_kept(SHORT_S) or is_kept(20 * SHORT_S)


def test_half_a_request_is_no_request(agent: Agent, tmp_path: Path) -> None:
    agent.begin()
    agent.note(101, ["touch", str(tmp_path / "undone")])
    agent._in.write(b'{"id": 9, "do": "run", "argv": ["touch", "' + str(tmp_path / "half").encode())
    agent.hang_up()
    agent.await_exit()
    assert (tmp_path / "undone").exists()
    assert not (tmp_path / "half").exists()


def test_something_else_than_requests_ends_it_too(agent: Agent, tmp_path: Path) -> None:
    agent.begin()
    agent.note(101, ["touch", str(tmp_path / "undone")])
    agent._in.write(b"GET / HTTP/1.0\n")
    agent._in.flush()
    agent.await_exit()
    assert (tmp_path / "undone").exists()


def test_what_cannot_be_undone_does_not_keep_the_rest_from_it(
    start: Callable[..., Agent], state: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    agent = start(step_s=1.0)
    agent.begin()
    agent.note(101, ["sh", "-c", f"echo first >> {log}"])
    agent.note(102, ["sh", "-c", "echo no >&2; exit 1"], ["sh", "-c", f"echo second >> {log}"])
    agent.note(103, ["no-such-program"])
    agent.note(104, ["sleep", "60"])
    agent.note(105, ["sh", "-c", "echo it is gone >&2; exit 1"], absent=["is gone"])
    agent.hang_up()
    agent.await_exit()
    assert log.read_text(encoding="utf-8").split() == ["second", "first"]
    (kept,) = state.iterdir()
    assert kept.suffix == ".jsonl", "what is still there stays written down"

    begun = start(step_s=1.0).begin()
    assert begun["removed"] == []
    whats = [line.partition(":")[0] for line in begun["failed"]]
    assert whats == ["Thing 104", "Thing 103", "Thing 102"]
    assert "timed out" in begun["failed"][0]
    assert "No such file" in begun["failed"][1]
    assert begun["failed"][2].endswith("no")


def test_input_of_a_step_is_handed_on(agent: Agent, tmp_path: Path) -> None:
    agent.begin()
    agent.note(101, ["tee", str(tmp_path / "said")], input="sésame")
    agent.hang_up()
    agent.await_exit()
    assert (tmp_path / "said").read_text(encoding="utf-8") == "sésame"


def test_a_journal_that_cannot_be_written_does_not_keep_things_from_being_undone(
    agent: Agent, state: Path, tmp_path: Path
) -> None:
    agent.begin()
    for note in (101, 102):
        agent.note(note, ["touch", str(tmp_path / str(note))])
    (journal,) = state.glob("agent-*.jsonl")
    journal.unlink()
    journal.mkdir()
    agent.hang_up()
    agent.process.wait(PATIENCE_S)
    assert (tmp_path / "101").exists()
    assert (tmp_path / "102").exists()


def test_without_a_reader_the_dead_man_is_noticed_all_the_same(state: Path, tmp_path: Path) -> None:
    """As when the network is cut: what is written goes nowhere, and nothing ends by itself."""
    agent = Agent(state, reads=False, stop_s=SHORT_S)
    try:
        agent.send("begin", role="target", run_id="r", private=[], deadman_s=SHORT_S)
        entry = {"what": "x", "steps": [{"argv": ["touch", str(tmp_path / "undone")]}]}
        agent.send("note", number=101, entry=entry)
        agent.spawn("yes", "x" * 1000)
        agent.process.wait(PATIENCE_S)
        assert (tmp_path / "undone").exists()
        assert not state.exists()
    finally:
        agent.close()


# A kill, and the next agent


def kill(agent: Agent) -> None:
    agent.process.kill()
    agent.await_exit()


def test_what_a_killed_agent_left_the_next_one_undoes(
    start: Callable[..., Agent], state: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    killed = start()
    killed.begin()
    for note in (101, 102, 103):
        killed.note(note, ["sh", "-c", f"echo {note} >> {log}"])
    killed.ask("done", number=102)
    kill(killed)
    assert not log.exists()
    following = start()
    begun = following.begin()
    assert begun["removed"] == ["Thing 103", "Thing 101"]
    assert begun["failed"] == []
    assert log.read_text(encoding="utf-8").split() == ["103", "101"]
    assert list(state.glob("agent-*.jsonl")) == []
    following.note(101, ["true"])
    following.hang_up()
    following.await_exit()
    assert not state.exists()


def test_what_a_reboot_leaves_is_written_down_on_a_disk(
    start: Callable[..., Agent], state: Path, tmp_path: Path
) -> None:
    log, disk = tmp_path / "log", lasting(state)
    killed = start()
    killed.begin()
    assert not disk.exists(), "most machines have nothing to write there"
    for note in (101, 102, 103):
        killed.note(note, ["sh", "-c", f"echo {note} >> {log}"], lasting=note < 103)
    killed.ask("done", number=102)
    (written,) = disk.iterdir()
    assert disk.stat().st_mode & 0o777 == 0o700
    kill(killed)
    shutil.rmtree(state)  # as a power loss does
    following = start()
    begun = following.begin()
    assert (begun["removed"], begun["failed"]) == (["Thing 101"], [])
    assert log.read_text(encoding="utf-8").split() == ["101"]
    assert not written.exists()
    following.note(104, ["true"], lasting=True)
    following.hang_up()
    following.await_exit()
    assert not disk.exists() and not state.exists()


def test_agents_that_share_the_disk_alone_leave_each_other_s_journals(
    start: Callable[..., Agent], state: Path, tmp_path: Path
) -> None:
    """As in containers, each of which has a /run of its own."""
    log = tmp_path / "log"
    first = start()
    first.begin()
    first.note(101, ["sh", "-c", f"echo first >> {log}"], lasting=True)
    state.rename(tmp_path / "of the first")
    second = start()
    assert second.begin()["removed"] == []
    second.note(101, ["sh", "-c", f"echo second >> {log}"], lasting=True)
    assert len(list(lasting(state).iterdir())) == 2 and not log.exists()
    kill(first)
    second.hang_up()
    second.await_exit()
    assert start().begin()["removed"] == ["Thing 101"]
    assert log.read_text(encoding="utf-8").split() == ["second", "first"]


def test_a_journal_on_disk_that_somebody_removes_is_made_again(
    start: Callable[..., Agent], state: Path
) -> None:
    killed = start()
    killed.begin()
    for note in (101, 102):
        killed.note(note, ["true"], lasting=True)
    shutil.rmtree(lasting(state))
    killed.note(103, ["true"], lasting=True)
    killed.ask("done", number=102)
    shutil.rmtree(lasting(state))
    killed.ask("done", number=103)
    kill(killed)
    assert start().begin()["removed"] == ["Thing 101"]


def test_after_a_mere_kill_what_is_lasting_goes_after_what_stood_on_it(start: Callable[..., Agent]) -> None:
    killed = start()
    killed.begin()
    for note in (101, 102, 103):
        killed.note(note, ["true"], lasting=note != 103)
    kill(killed)
    assert start().begin()["removed"] == ["Thing 103", "Thing 102", "Thing 101"]


def test_a_folder_on_disk_that_others_may_write_to_is_not_trusted(agent: Agent, state: Path) -> None:
    disk = lasting(state)
    disk.mkdir()
    disk.chmod(0o777)
    said = agent.begin()
    assert f"expected {disk} to be a folder that only its owner" in said["error"]


def test_what_is_not_there_any_more_is_not_reported_to_have_been_removed(start: Callable[..., Agent]) -> None:
    killed = start()
    killed.begin()
    killed.note(101, ["true"])
    killed.note(102, ["sh", "-c", "echo it is gone >&2; exit 1"], absent=["is gone"])
    kill(killed)
    assert start().begin()["removed"] == ["Thing 101"]


def test_another_role_is_left_alone(start: Callable[..., Agent], tmp_path: Path) -> None:
    killed = start()
    killed.begin(role="target")
    killed.note(101, ["touch", str(tmp_path / "undone")])
    kill(killed)
    assert start().begin(role="initiator")["removed"] == []
    assert not (tmp_path / "undone").exists()


def test_the_same_run_resumed_does_not_mix_up_its_numbers(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    """They begin anew with every connection."""
    first = start()
    first.begin()
    first.note(1, ["test", "-e", str(tmp_path / "allowed")])
    first.hang_up()
    first.await_exit()
    second = start()
    assert second.begin()["failed"]
    second.note(1, ["true"])
    second.ask("done", number=1)
    kill(second)
    (tmp_path / "allowed").touch()
    assert start().begin()["removed"] == ["Thing 1"]


FOREIGN = {
    "a list": b"[1]",
    "text": b"hello",
    "bytes": b"\xff\xfe\x1b[2J",
    "bytes in a name": b'{"id": 2, "entry": {"what": "\xff", "steps": []}}',
    "no number": b'{"undone": 1}',
    "steps that are none": b'{"id": 2, "entry": {"what": "x", "steps": 7}}',
    "a step that is none": b'{"id": 2, "entry": {"what": "x", "steps": ["rm"]}}',
    "words that are none": b'{"id": 2, "entry": {"what": "x", "steps": [{"argv": [1]}]}}',
    "another version": b'{"id": 2, "entry": {"version": 9}}',
    "no end of brackets": b'{"id": 2, "x": ' + b"[" * 100_000 + b"]" * 100_000,
}


@pytest.mark.parametrize("line", FOREIGN.values(), ids=list(FOREIGN))
def test_a_journal_that_cannot_be_read_is_set_aside_and_stops_nobody(
    start: Callable[..., Agent], state: Path, tmp_path: Path, line: bytes
) -> None:
    killed = start()
    killed.begin()
    killed.note(101, ["touch", str(tmp_path / "undone")])
    kill(killed)
    (journal,) = state.glob("agent-*.jsonl")
    journal.write_bytes(journal.read_bytes() + line + b"\n")
    begun = start().begin()
    assert begun["removed"] == []
    (reported,) = begun["failed"]
    assert (
        str(journal) in reported
        and "its line 2 is of another version" in reported
        and "unreadable now" in reported
    )
    assert not journal.exists() and not (tmp_path / "undone").exists()
    assert len(list(state.glob("*.unreadable"))) == 1


@pytest.mark.parametrize("damage", [b"\0" * 300, b'{"id": 2, "en' + b"\0" * 300], ids=["zeroes", "torn"])
def test_zeroes_that_a_power_cut_left_are_passed_over(
    start: Callable[..., Agent], state: Path, damage: bytes
) -> None:
    killed = start()
    killed.begin()
    killed.note(101, ["true"])
    kill(killed)
    (journal,) = state.glob("agent-*.jsonl")
    journal.write_bytes(journal.read_bytes() + damage)
    begun = start().begin()
    assert (begun["removed"], begun["failed"]) == (["Thing 101"], [])


@pytest.mark.parametrize("cut", [1, 20, -1], ids=["first byte", "middle", "all but one"])
def test_a_torn_journal_is_undone_but_for_what_was_torn(
    start: Callable[..., Agent], state: Path, tmp_path: Path, cut: int
) -> None:
    """What was being written down was not yet acted on, whether it was torn at the end or in the middle."""
    killed = start()
    killed.begin()
    for note in (101, 102, 103):
        killed.note(note, ["touch", str(tmp_path / str(note))])
    kill(killed)
    (journal,) = state.glob("agent-*.jsonl")
    first, second, third = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(first + second.rstrip(b"\n")[:cut] + b"\n" + third)
    assert start().begin()["removed"] == ["Thing 103", "Thing 101"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.isdigit()) == ["101", "103"]


# One run at a time


def test_a_second_run_is_reported_of_the_first_and_leaves_it_alone(
    start: Callable[..., Agent], state: Path, tmp_path: Path
) -> None:
    first, second = start(), start()
    first.begin(run_id="run-1")
    first.note(101, ["touch", str(tmp_path / "undone")])
    assert second.begin(run_id="run-2")["busy"] == "run-1"
    assert "error" in second.ask("note", number=1, entry={"what": "x", "steps": []})
    second.hang_up()
    second.await_exit()
    assert (state / "target.lock").exists(), "it is the first one's"
    assert not (tmp_path / "undone").exists()
    assert start().begin(run_id="run-3")["busy"] == "run-1"
    first.hang_up()
    first.await_exit()
    assert "busy" not in start().begin(run_id="run-4")


def test_one_machine_can_have_both_roles(start: Callable[..., Agent], state: Path) -> None:
    target, initiator = start(), start()
    assert "busy" not in target.begin(role="target")
    assert "busy" not in initiator.begin(role="initiator")
    target.hang_up()
    target.await_exit()
    assert [path.name for path in state.glob("*.lock")] == ["initiator.lock"]
    initiator.hang_up()
    initiator.await_exit()
    assert not state.exists()


def test_a_lock_that_was_just_removed_is_not_taken_for_one(start: Callable[..., Agent], state: Path) -> None:
    """Agents come and go as fast as they can; never do two have the role at once."""
    for _ in range(5):
        agents = [start() for _ in range(3)]
        numbers = [
            agent.send("begin", role="target", run_id="r", private=[], deadman_s=PATIENCE_S)
            for agent in agents
        ]
        begun = [agent.await_answer(n) for agent, n in zip(agents, numbers, strict=True)]
        assert sum("busy" not in answer for answer in begun) == 1
        for agent in agents:
            agent.hang_up()
        for agent in agents:
            agent.await_exit()
    assert not state.exists()


def test_the_kernel_s_messages_are_a_list(agent: Agent) -> None:
    agent.begin()
    assert isinstance(agent.ask("kernel_messages")["lines"], list)


@pytest.mark.parametrize("share", [0.0, 0.5], ids=["nothing", "half"])
def test_a_connection_that_breaks_before_the_program_has_come_ends_it(state: Path, share: float) -> None:
    source = agent_source(state).encode()
    argv = [programs.PYTHON, "-I", "-c", remote._BOOTSTRAP, str(len(source))]
    half = source[: int(len(source) * share)]
    done = subprocess.run(argv, input=half, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.stdout, done.stderr) == (b"", b"")


PROGRAMS = [
    file for file in Path(harness.__file__).parent.rglob("programs/*.py") if file.name != "__init__.py"
]


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.stem)
def test_what_is_sent_needs_nothing_but_the_standard_library(file: Path) -> None:
    imported = set(sources.read(file).imports)
    assert imported
    # These go with it (``programs.source``), and are in the list themselves.
    shared = tuple(f"{of}.programs.{name}." for of, name in programs.SHARED.findall(file.read_text()))
    others = {module.partition(".")[0] for module in imported if not module.startswith(shared)}
    assert others <= sys.stdlib_module_names
