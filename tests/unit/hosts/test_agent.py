"""The agent: does what it is asked, and undoes everything by itself, however it comes to its end.

What it does with programs and daemons for a host is in test_remote as well (``HostContract``).
"""

from __future__ import annotations

import base64
import contextlib
import json
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
from tests.unit.agents import SHORT_S, agent_source, lasting
from tests.unit.hosts.test_hosts import PATIENCE_S, executable, is_alive, pid_in, wait_for

pytestmark = pytest.mark.thorough

Message = dict[str, Any]
Start = Callable[..., "Agent"]


class Agent:
    """An agent, and the harness's end of its pipes: every message is kept by the number it belongs to."""

    def __init__(self, state: Path, *, reads: bool = True, **waits_s: float) -> None:
        source, pipe = agent_source(state, **waits_s).encode(), subprocess.PIPE
        argv = [programs.PYTHON, "-I", "-c", remote._BOOTSTRAP, str(len(source))]
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self._in, self._out = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
        self._number = 0
        self._queues: dict[int, queue.Queue[Message]] = {}
        self.last: list[Message] = []
        self._reader = threading.Thread(target=self._read)
        self.write(source)
        if reads:
            assert self._out.readline() == b"\n"
            assert json.loads(self._out.readline())["hello"] == 1
            self._reader.start()

    def _read(self) -> None:
        for line in self._out:
            message = json.loads(line)
            if "id" in message:
                self._queues[message["id"]].put(message)
            else:
                self.last.append(message)

    def write(self, data: bytes) -> None:
        self._in.write(data)
        self._in.flush()

    def send(self, do: str, **fields: object) -> int:
        self._number += 1
        self._queues[self._number] = queue.Queue()
        self.write(json.dumps({"id": self._number, "do": do, **fields}).encode() + b"\n")
        return self._number

    def await_answer(self, number: int) -> Message:
        return self._queues[number].get(timeout=PATIENCE_S)

    def ask(self, do: str, **fields: object) -> Message:
        return self.await_answer(self.send(do, **fields))

    def start_run(self, *argv: str) -> int:
        return self.send("run", argv=argv, timeout_s=PATIENCE_S)

    def run(self, *argv: str, **fields: object) -> Message:
        return self.ask("run", argv=argv, timeout_s=PATIENCE_S, **fields)

    def start_to_begin(self, **fields: Any) -> int:
        whole = {"role": "target", "run_id": "run-1", "private": [], "deadman_s": PATIENCE_S}
        return self.send("begin", **whole | fields)

    def begin(self, **fields: Any) -> Message:
        return self.await_answer(self.start_to_begin(**fields))

    def note(self, number: int, *steps: list[str], lasting: bool = False, **step: object) -> None:
        entry: Message = {"what": f"Thing {number}", "steps": [{"argv": argv, **step} for argv in steps]}
        entry |= {"lasting": True} if lasting else {}
        assert self.ask("note", number=number, entry=entry) == {"id": self._number}

    def note_words(self, log: Path, *numbers: int, lasting: bool = False) -> None:
        """Notes each of whose undoing writes its number into the log."""
        for number in numbers:
            self.note(number, ["sh", "-c", f"echo {number} >> {log}"], lasting=lasting)

    def spawn(self, *argv: str) -> int:
        return self.send("spawn", argv=argv)

    def printed(self, number: int, least: int) -> bytes:
        """What a daemon has printed, at least so many bytes of it."""
        data = b""
        while len(data) < least:
            message = self.await_answer(number)
            assert "out" in message or "spawned" in message, message
            data += base64.b64decode(message.get("out", ""))
        return data

    def heard(self, number: int) -> tuple[bytes, bytes, int]:
        """What a daemon prints until its end, and its exit status."""
        out = err = b""
        while "ended" not in (message := self.await_answer(number)):
            out += base64.b64decode(message.get("out", ""))
            err += base64.b64decode(message.get("err", ""))
        return out, err, message["ended"]

    def hang_up(self) -> None:
        self._in.close()
        self.await_exit()

    def kill(self) -> None:
        self.process.kill()
        self.await_exit()

    def await_exit(self) -> None:
        self.process.wait(PATIENCE_S)
        if self._reader.is_alive():
            self._reader.join(PATIENCE_S)

    def close(self) -> None:
        self.kill()
        with contextlib.suppress(OSError):
            self._in.close()
        self._out.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def start(state: Path) -> Iterator[Start]:
    """Starts agents, each of which is gone when the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda **waits_s: stack.enter_context(contextlib.closing(Agent(state, **waits_s)))


@pytest.fixture
def agent(start: Start) -> Agent:
    """One with a run."""
    agent = start()
    agent.begin()
    return agent


@contextlib.contextmanager
def killed(start: Start) -> Iterator[Agent]:
    """One with a run, which SIGKILL ends."""
    agent = start()
    agent.begin()
    yield agent
    agent.kill()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent without a run, which does what one test after another asks of it."""
    with contextlib.closing(Agent(tmp_path_factory.mktemp("worker") / "state")) as agent:
        yield agent


def words_of(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").split()


def test_a_program_has_the_c_locale_and_what_it_is_given(worker: Agent, tmp_path: Path) -> None:
    script = 'echo "$LC_ALL $LANGUAGE-$ODD"; echo "$PATH"; pwd'
    variables, path, folder = worker.run("sh", "-c", script, env={"ODD": "a b"})["stdout"].splitlines()
    assert variables == "C.UTF-8 -a b"
    assert {"/usr/sbin", "/sbin"} <= set(path.split(":"))
    assert folder == "/", "not where the user's files are, from which python3 -c takes modules"
    executable(tmp_path / "rare", "echo found")
    assert worker.run("rare")["missing"] == "rare"
    assert worker.run("rare", env={"PATH": f"{tmp_path}:/bin"})["stdout"] == "found\n"


PROGRAM = """
import os, signal, sys
print(sys.argv, __name__, os.environ["ODD"], sys.stdin.read() if sys.argv[0] == "-c" else "")
print(sorted(map(int, os.listdir("/proc/self/fd")))[:-1], os.getpgrp() == os.getpid())
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN)
"""
ENDS = ("", "sys.exit()", "sys.exit(3)", "sys.exit('no')", "1 / 0", "os.kill(os.getpid(), 9)", "(")


def test_a_program_of_ours_is_a_fork_that_does_the_same(worker: Agent) -> None:
    """An interpreter takes most of a second to start on a slow machine."""
    for end in ENDS:
        program, env = PROGRAM + end, {"ODD": "a b"}
        for words, text in ((["-c", program, "x"], "input"), (["-", "y"], program)):
            # Of the options -I -S only the agent makes a fork.
            fork, start = (
                worker.run(programs.PYTHON, *options, *words, input=text, env=env)
                for options in (["-I", "-S"], ["-S", "-I"])
            )
            said = [answer["stderr"].splitlines()[-1:] for answer in (fork, start)]
            assert said[0] == said[1], end
            assert (fork["status"], fork["stdout"]) == (start["status"], start["stdout"]), end
    cmdline = Path(f"/proc/{worker.process.pid}/cmdline").read_text(encoding="utf-8")
    ask = [programs.PYTHON, "-I", "-S", "-c", "print(open('/proc/self/cmdline').read(), end='')"]
    assert worker.run(*ask)["stdout"] == cmdline, "no other interpreter was started"


def test_a_folder_is_listed_without_a_process(worker: Agent, tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).touch()
    assert worker.ask("list", path=str(tmp_path))["lines"] == ["a", "b"]
    assert "FileNotFoundError" in worker.ask("list", path=str(tmp_path / "c"))["error"]


def test_a_function_of_a_program_is_called_without_a_process(worker: Agent) -> None:
    source = (
        "import os\ncalls = []\ndef look(word):\n    calls.append(word)\n    return [os.getpid(), *calls]\n"
    )
    for calls in (["a"], ["a", "b"]):  # the program is kept
        answer = worker.ask("call", source=source, function="look", words=calls[-1:])
        assert json.loads(answer["found"])[1:] == calls
    assert json.loads(answer["found"])[0] == worker.process.pid
    assert worker.ask("call", source=source + "look = int", function="look", words=["x"])["error"]


def test_what_cannot_be_done_is_reported_and_the_agent_goes_on(worker: Agent) -> None:
    for do, fields in (
        ("run", {"argv": ["echo", "a\0b"], "timeout_s": 1}),
        ("spawn", {"argv": ["echo", "a\0b"]}),
        ("write", {"path": "/dev/null/x", "text": ""}),
        ("write", {"path": "/tmp/a\0b", "text": ""}),
        ("note", {"number": 1, "entry": {}}),
    ):
        assert worker.ask(do, **fields)["error"], (do, fields)
    for do in ("kill", "signal", "stop"):
        worker.send(do, of=999, signal=signal.SIGUSR1)
    assert worker.run("echo", "on")["stdout"] == "on\n"
    first, second = worker.start_run("cat"), worker.start_run("cat")
    assert worker.await_answer(first)["stdout"] == worker.await_answer(second)["stdout"] == "", "no input"


def test_a_daemon_is_heard_byte_by_byte_before_its_end_is_reported(worker: Agent) -> None:
    for way, last, status in (("stop", b"bye\n", 4), ("kill", b"", -signal.SIGKILL)):
        number = worker.spawn("sh", "-c", "trap 'echo bye; exit 4' TERM; echo; while :; do sleep 0.02; done")
        worker.printed(number, 1)
        worker.send(way, of=number)
        assert worker.heard(number) == (last, b"", status)
    number = worker.spawn("sh", "-c", r"printf '\000\377\n'; printf 'e\376' >&2")
    assert worker.heard(number) == (b"\0\xff\n", b"e\xfe", 0)
    out, _, status = worker.heard(worker.spawn("sh", "-c", "seq 100000; exit 5"))
    assert (out.splitlines()[-1], status) == (b"100000", 5)
    for _ in range(20):
        number = worker.spawn("true")
        assert "spawned" in worker.await_answer(number)
        assert worker.await_answer(number) == {"id": number, "ended": 0}


def test_a_daemon_that_does_not_want_to_end_is_killed(start: Start) -> None:
    agent = start(stop_s=SHORT_S)
    number = agent.spawn("sh", "-c", "trap '' TERM; echo; while :; do sleep 0.02; done")
    agent.printed(number, 1)
    began = time.monotonic()
    agent.send("stop", of=number)
    assert agent.heard(number)[2] == -signal.SIGKILL
    assert time.monotonic() - began >= SHORT_S


DAEMON = "trap 'echo daemon >> \"$1\"; exit' TERM; echo; while :; do sleep 0.02; done"
UNDONE = ["104", "102", "daemon", "sésame", "101", "101-again"]
SILENT_S = 2.0
"""After so long the dead man is dead: longer than a busy machine takes from one request to the next."""

WAYS: dict[str, Callable[[Agent], object]] = {
    "end": lambda agent: agent.send("end"),
    "hang up": Agent.hang_up,
    "terminate": lambda agent: agent.process.terminate(),
    "say nothing": Agent.await_exit,
}


@pytest.mark.parametrize("way", WAYS)
def test_everything_is_undone_newest_first(start: Start, state: Path, tmp_path: Path, way: str) -> None:
    agent, log = start(), tmp_path / "log"
    agent.begin(deadman_s=SILENT_S if way == "say nothing" else PATIENCE_S)
    agent.note(101, *(["sh", "-c", f"echo {word} >> {log}"] for word in ("101", "101-again")))
    agent.note(105, ["tee", "-a", str(log)], input="sésame\n")
    agent.printed(agent.spawn("sh", "-c", DAEMON, "sh", str(log)), 1)
    agent.note_words(log, 102, 103, 104)
    agent.ask("done", number=103)
    agent.start_run("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60")
    pid = pid_in(tmp_path / "pid")
    assert len(list(state.glob("agent-target-*.jsonl"))) == 1
    WAYS[way](agent)
    agent.await_exit()
    assert words_of(log) == UNDONE
    assert (agent.process.returncode, agent.last) == (0, [{"ended": True}])
    wait_for(lambda: not is_alive(pid), "the end of what ran")
    assert not state.exists(), "nothing is left of its own"


def test_half_a_request_is_no_request_and_something_else_ends_it_too(start: Start, tmp_path: Path) -> None:
    half = b'{"id": 9, "do": "run", "argv": ["touch", "' + bytes(tmp_path / "half")
    for number, data in enumerate((half, b"GET / HTTP/1.0\n")):
        agent, undone = start(), tmp_path / f"undone-{number}"
        agent.begin()
        agent.note(101, ["touch", str(undone)])
        agent.write(data)
        if data is half:
            agent.hang_up()
        agent.await_exit()
        assert undone.exists() and not (tmp_path / "half").exists()


def test_what_cannot_be_undone_does_not_stop_the_rest(start: Start, state: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    agent = start(step_s=1.0)
    agent.begin()
    agent.note_words(log, 101)
    agent.note(102, ["sh", "-c", "echo no >&2; exit 1"], ["sh", "-c", f"echo second >> {log}"])
    agent.note(103, ["no-such-program"])
    agent.note(104, ["sleep", "60"])
    agent.note(105, ["sh", "-c", "echo it is gone >&2; exit 1"], absent=["is gone"])
    agent.hang_up()
    assert words_of(log) == ["second", "101"]
    (kept,) = state.iterdir()
    assert kept.suffix == ".jsonl", "what is still there stays written down"

    begun = start(step_s=1.0).begin()
    assert begun["removed"] == []
    sleeps, missing, fails = begun["failed"]
    assert sleeps.startswith("Thing 104:") and "timed out" in sleeps
    assert missing.startswith("Thing 103:") and "No such file" in missing
    assert fails.startswith("Thing 102:") and fails.endswith("no")


def test_without_its_journal_all_is_undone_too(agent: Agent, state: Path, tmp_path: Path) -> None:
    agent.note_words(tmp_path / "log", 101, 102)
    (journal,) = state.glob("agent-*.jsonl")
    journal.unlink()
    journal.mkdir()
    agent.hang_up()
    assert words_of(tmp_path / "log") == ["102", "101"]


def test_without_a_reader_the_dead_man_is_noticed_all_the_same(state: Path, tmp_path: Path) -> None:
    """As when the network is cut: what is written goes nowhere, and nothing ends by itself."""
    with contextlib.closing(Agent(state, reads=False, stop_s=SHORT_S)) as agent:
        agent.start_to_begin(deadman_s=SHORT_S)
        entry = {"what": "x", "steps": [{"argv": ["touch", str(tmp_path / "undone")]}]}
        agent.send("note", number=101, entry=entry)
        agent.spawn("yes", "x" * 1000)
        agent.await_exit()
        assert (tmp_path / "undone").exists()
        assert not state.exists()


def test_what_a_killed_agent_left_the_next_one_undoes(start: Start, state: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with killed(start) as agent:
        agent.note_words(log, 101, 102, 103)
        agent.note(104, ["sh", "-c", "echo it is gone >&2; exit 1"], absent=["is gone"])
        agent.ask("done", number=102)
    assert not log.exists()
    other = start()
    assert other.begin(role="initiator")["removed"] == [] and not log.exists(), "it is another role's"
    other.hang_up()
    following = start()
    begun = following.begin()  # 104 was not there any more
    assert (begun["removed"], begun["failed"]) == (["Thing 103", "Thing 101"], [])
    assert words_of(log) == ["103", "101"]
    assert list(state.glob("agent-*.jsonl")) == []
    following.note(101, ["true"])
    following.hang_up()
    assert not state.exists()


def test_what_a_reboot_leaves_is_written_down_on_a_disk(start: Start, state: Path, tmp_path: Path) -> None:
    log, disk = tmp_path / "log", lasting(state)
    with killed(start) as agent:
        assert not disk.exists(), "most machines have nothing to write there"
        agent.note_words(log, 101, 102, lasting=True)
        agent.note_words(log, 103)
        agent.ask("done", number=102)
        (written,) = disk.iterdir()
        assert disk.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(state)  # as a power loss does
    following = start()
    begun = following.begin()
    assert (begun["removed"], begun["failed"]) == (["Thing 101"], [])
    assert words_of(log) == ["101"]
    assert not written.exists()
    following.note(104, ["true"], lasting=True)
    following.hang_up()
    assert not disk.exists() and not state.exists()
    with killed(start) as agent:  # and no more: then the lasting goes after what stood on it
        agent.note_words(log, 101, 102, lasting=True)
        agent.note_words(log, 103)
    assert start().begin()["removed"] == ["Thing 103", "Thing 102", "Thing 101"]
    disk.mkdir(exist_ok=True)
    disk.chmod(0o777)
    assert f"expected {disk} to be a folder that only its owner" in start().begin(role="other")["error"]


def test_agents_that_share_a_disk_leave_each_other_alone(start: Start, state: Path, tmp_path: Path) -> None:
    """As in containers, each of which has a /run of its own."""
    log = tmp_path / "log"
    with killed(start) as first:
        first.note_words(log, 101, lasting=True)
        state.rename(tmp_path / "of the first")
        second = start()
        assert second.begin()["removed"] == []
        second.note_words(log, 102, lasting=True)
        assert len(list(lasting(state).iterdir())) == 2 and not log.exists()
    second.hang_up()
    assert start().begin()["removed"] == ["Thing 101"]
    assert words_of(log) == ["102", "101"]


def test_the_same_run_resumed_does_not_mix_up_its_numbers(start: Start, agent: Agent, tmp_path: Path) -> None:
    """They begin anew with every connection."""
    agent.note(1, ["test", "-e", str(tmp_path / "allowed")])
    agent.hang_up()
    second = start()
    assert second.begin()["failed"]
    second.note(1, ["true"])
    second.ask("done", number=1)
    second.kill()
    (tmp_path / "allowed").touch()
    assert start().begin()["removed"] == ["Thing 1"]


def test_a_second_run_leaves_the_first_alone(start: Start, agent: Agent, state: Path, tmp_path: Path) -> None:
    second = start()
    agent.note(101, ["touch", str(tmp_path / "undone")])
    assert second.begin(run_id="run-2")["busy"] == "run-1"
    assert "error" in second.ask("note", number=1, entry={"what": "x", "steps": []})
    second.hang_up()
    assert (state / "target.lock").exists(), "it is the first one's"
    assert not (tmp_path / "undone").exists()
    assert start().begin(run_id="run-3")["busy"] == "run-1"
    initiator = start()
    assert "busy" not in initiator.begin(role="initiator"), "one machine can have both"
    assert isinstance(initiator.ask("kernel_messages")["lines"], list)
    agent.hang_up()
    assert [path.name for path in state.glob("*.lock")] == ["initiator.lock"]
    initiator.hang_up()
    assert not state.exists()
    assert "busy" not in start().begin(run_id="run-4")


def test_a_lock_that_was_just_removed_is_not_taken_for_one(start: Start, state: Path) -> None:
    """Agents come and go as fast as they can; never do two have the role at once."""
    for _ in range(5):
        agents = [start() for _ in range(3)]
        numbers = [agent.start_to_begin() for agent in agents]
        begun = [agent.await_answer(n) for agent, n in zip(agents, numbers, strict=True)]
        assert sum("busy" not in answer for answer in begun) == 1
        for agent in agents:
            agent._in.close()
        for agent in agents:
            agent.await_exit()
    assert not state.exists()


def test_a_connection_that_breaks_before_the_program_has_come_ends_it(state: Path) -> None:
    source = agent_source(state).encode()
    argv = [programs.PYTHON, "-I", "-c", remote._BOOTSTRAP, str(len(source))]
    for half in (b"", source[: len(source) // 2]):
        done = subprocess.run(argv, input=half, capture_output=True, timeout=PATIENCE_S, check=False)
        assert (done.stdout, done.stderr) == (b"", b""), len(half)


def test_what_is_sent_needs_nothing_but_the_standard_library() -> None:
    files = {*Path(harness.__file__).parent.rglob("programs/[a-z]*.py")}
    assert files
    for file in files:
        imported = set(sources.read(file).imports)
        # These go with it (``programs.source``), and are among the files themselves.
        shared = tuple(f"{of}.programs.{name}." for of, name in programs.SHARED.findall(file.read_text()))
        others = {module.partition(".")[0] for module in imported if not module.startswith(shared)}
        assert imported and others <= sys.stdlib_module_names, file
