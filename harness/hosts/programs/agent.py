"""The agent on a host: carries out requests, and undoes everything itself once requests stop coming.

Requests come as JSON lines on standard input; answers and outputs of daemons go as JSON lines to standard
output. ``hosts/remote.py`` is the other end. ``begin`` comes first. Whatever is brought up is written down
before (``note``), together with what undoes it, and crossed out after (``done``). If standard input ends,
nothing comes for ``deadman_s``, or a SIGTERM comes, the agent stops daemons and undoes what is still written
down, newest first. The next agent undoes what a killed one wrote down. ``lasting`` entries are written down
on a disk, and are undone after a reboot as well.

It runs as process 1 of a process namespace, so its children die with it.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import queue
import select
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from harness.hosts.programs.forked import instead_of
from harness.hosts.programs.local_operations import (
    CHUNK_BYTES,
    DamagedJournal,
    JournalFile,
    KernelLog,
    Message,
    Relay,
    clock_offset_ns,
    environment,
    left,
    locked,
    own_folder,
    read_files,
    recover,
    write_secret,
)

STATE = Path("/run/harness")
LASTING = Path("/var/lib/harness")
MOST_WAITING = 256
"""How many messages may wait to be read: at most some 20 MB of daemons' outputs."""

STOP_S = 5.0
UNDO_STEP_S = 60.0


class NoMoreRequests(Exception):
    """No more requests will come, and why; empty if that was agreed."""


class Agent:
    def __init__(self) -> None:
        self.outbox: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self.writer = threading.Thread(target=self.write_out, daemon=True)
        self.deadman_s: float | None = None
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.relays: dict[int, Relay] = {}
        # The names of each program of which a function was called, by its text.
        self.programs: dict[str, dict[str, Any]] = {}
        # What is to be taken down, in the order in which it came up: the numbers of daemons and of notes.
        self.up: list[int] = []
        # For what a reboot ends, and for what is lasting.
        self.journals: tuple[JournalFile, ...] = ()
        self.lock: BinaryIO | None = None
        self.role = ""
        self.log: KernelLog | None = None

    # Talking

    def send(self, message: Message) -> None:
        """Queue a message to be written, once there is room; NoMoreRequests if there is none for
        ``deadman_s``."""
        try:
            self.outbox.put(json.dumps(message).encode() + b"\n", timeout=self.deadman_s)
        except queue.Full:
            raise NoMoreRequests(f"nothing was read for {self.deadman_s} s") from None

    def write_out(self) -> None:
        """Write the queue, in a thread: a dead connection blocks it, and must not block anything else."""
        while data := self.outbox.get():
            # Standard input shows that the reader has gone.
            with contextlib.suppress(OSError):
                while data:
                    data = data[os.write(1, data) :]

    def say_last(self, message: Message) -> None:
        """Send the last message and wait until it is written, if anybody reads at all."""
        self.deadman_s = STOP_S
        with contextlib.suppress(NoMoreRequests, queue.Full):
            self.send(message)
            self.outbox.put(b"", timeout=STOP_S)
            self.writer.join(STOP_S)

    def serve(self, signals: int) -> None:
        """Answer requests until there is a reason to stop; raises NoMoreRequests.

        ``signals`` is a file that becomes readable once a SIGTERM has come.
        """
        data = b""
        while True:
            readable, _, _ = select.select([0, signals], [], [], self.deadman_s)
            if not readable:
                raise NoMoreRequests(f"nothing was heard for {self.deadman_s} s")
            if signals in readable:
                raise NoMoreRequests("it was asked to end")
            more = os.read(0, CHUNK_BYTES)
            if not more:
                raise NoMoreRequests("the connection ended")
            data += more
            *lines, data = data.split(b"\n")
            for line in lines:
                self.handle(json.loads(line))

    def handle(self, request: Message) -> None:
        number = request.get("id", 0)
        try:
            answer = getattr(self, "do_" + request["do"])(request)
        except (OSError, ValueError, subprocess.SubprocessError, DamagedJournal) as error:
            # ValueError: a NUL in an argument or a path.
            answer = {"error": f"{type(error).__name__}: {error}"}
        if answer is not None:
            self.send({"id": number, **answer})

    # Requests; a method that answers later, from a thread, returns None.

    def do_begin(self, request: Message) -> Message:
        self.role = request["role"]
        own_folder(STATE)
        name = STATE / (self.role + ".lock")
        lock = locked(name)  # keeps other runs of this role out
        if lock is None:
            return {"busy": read_files([str(name)])[0] or "another run"}
        self.lock = lock
        lock.truncate(0)
        lock.write(request["run_id"].encode())
        lock.flush()
        for place in request["private"]:
            if place.startswith(str(STATE)):
                Path(place).mkdir(mode=0o700, exist_ok=True)
            if Path(place).is_dir():
                subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", place], check=True)
        self.deadman_s = request["deadman_s"]
        self.log = KernelLog()
        # A journal of its own: a resumed run has the same id, and its numbers begin anew. After a reboot that
        # the run asked for, it goes on.
        journal = request.get("journal") or f"agent-{self.role}-{time.time_ns()}.jsonl"
        lasting = JournalFile(LASTING / journal, is_shared=True)
        lasting.take_up()
        removed, failed = self.recover()
        self.journals = (JournalFile(STATE / journal), lasting)
        self.up += lasting.pending
        return {"removed": removed, "failed": failed, "journal": journal}

    def do_beat(self, _request: Message) -> None:
        """Nothing to do: it was heard."""

    def do_end(self, _request: Message) -> None:
        raise NoMoreRequests("")

    def do_reboot(self, _request: Message) -> Message:
        """What is up ends with the kernel. What is lasting stays written down."""
        subprocess.run(["systemctl", "reboot"], check=True, capture_output=True, timeout=UNDO_STEP_S)
        self.up.clear()
        return {}

    def do_run(self, request: Message) -> Message | None:
        process = self.start(request)
        if process is None:
            return {"missing": request["argv"][0]}
        self.running[request["id"]] = process
        threading.Thread(target=self.finish, args=(request, process), daemon=True).start()
        return None

    def finish(self, request: Message, process: subprocess.Popen[bytes]) -> None:
        text = request.get("input")
        answer: Message = {"timeout": True}
        try:
            data = None if text is None else text.encode("utf-8", "surrogateescape")
            out, err = process.communicate(data, timeout=request["timeout_s"])
            answer = {
                "status": process.returncode,
                "stdout": out.decode("utf-8", "replace"),
                "stderr": err.decode("utf-8", "replace"),
            }
        except subprocess.TimeoutExpired:
            kill(process)
        self.running.pop(request["id"], None)
        self.send({"id": request["id"], **answer})
        process.wait()

    def do_spawn(self, request: Message) -> Message | None:
        process = self.start(request)
        if process is None:
            return {"missing": request["argv"][0]}
        number = request["id"]
        self.running[number] = process
        self.up.append(number)
        # Before its threads: it may have ended by now, which must be reported after this.
        self.send({"id": number, "spawned": process.pid})
        pumps = [
            threading.Thread(target=self.pump, args=(number, name, pipe), daemon=True)
            for name, pipe in (("out", process.stdout), ("err", process.stderr))
        ]
        for pump in pumps:
            pump.start()
        threading.Thread(target=self.await_end, args=(number, process, pumps), daemon=True).start()
        return None

    def pump(self, number: int, name: str, pipe: Any) -> None:
        while True:
            data = os.read(pipe.fileno(), CHUNK_BYTES)
            if not data:
                return
            self.send({"id": number, name: base64.b64encode(data).decode()})

    def await_end(self, number: int, process: subprocess.Popen[bytes], pumps: list[threading.Thread]) -> None:
        status = process.wait()
        for pump in pumps:
            pump.join(STOP_S)  # a program that it started may hold its pipes
        self.running.pop(number, None)
        self.send({"id": number, "ended": status})

    def do_stop(self, request: Message) -> None:
        threading.Thread(target=self.stop, args=(request["of"],), daemon=True).start()

    def stop(self, number: int) -> None:
        """Ask a program to end, and kill it if it does not; ``await_end`` reports its end."""
        process = self.running.get(number)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            kill(process)

    def do_signal(self, request: Message) -> None:
        if process := self.running.get(request["of"]):
            process.send_signal(request["signal"])

    def do_kill(self, request: Message) -> None:
        if process := self.running.get(request["of"]):
            kill(process)

    def do_read(self, request: Message) -> Message:
        return {"texts": read_files(request["paths"])}

    def do_list(self, request: Message) -> Message:
        return {"lines": sorted(os.listdir(request["path"]))}  # noqa: PTH208 -- names are all that is asked

    def do_call(self, request: Message) -> Message:
        """Here and now, so it is for what only reads, and not for long."""
        program = self.programs.setdefault(request["source"], {"__name__": "called"})
        if request["function"] not in program:
            exec(compile(request["source"], "<called>", "exec", 0, True), program)  # noqa: S102 -- it was sent
        return {"found": json.dumps(program[request["function"]](*request["words"]))}

    def do_clock(self, _request: Message) -> Message:
        return {"offset_ns": clock_offset_ns()}

    def do_write(self, request: Message) -> Message:
        write_secret(Path(request["path"]), request["text"])
        return {}

    def do_kernel_messages(self, _request: Message) -> Message:
        return {"lines": self.log.read() if self.log else []}

    def do_relay(self, request: Message) -> None:
        threading.Thread(target=self.relay, args=(request["id"], request["path"]), daemon=True).start()

    def relay(self, number: int, path: str) -> None:
        def send(data: str | None) -> None:
            with contextlib.suppress(NoMoreRequests):
                self.send({"id": number, "data": data})

        with socket.socket(socket.AF_UNIX) as there:
            try:
                there.connect(path)
            except OSError as error:
                self.send({"id": number, "error": f"{path}: {error.strerror}"})
                return
            self.relays[number] = relay = Relay(there)
            self.send({"id": number})
            relay.carry(send)
        del self.relays[number]

    def do_relayed(self, request: Message) -> None:
        if relay := self.relays.get(request["of"]):
            data = request["data"]
            relay.take(None if data is None else base64.b64decode(data))

    def do_note(self, request: Message) -> Message:
        if not self.journals:
            raise OSError("nothing can be written down before a run has begun")
        entry = request["entry"]
        self.up.append(request["number"])
        self.journals[bool(entry.get("lasting", False))].open(request["number"], entry)
        return {}

    def do_done(self, request: Message) -> Message:
        for journal in self.journals:
            if request["number"] in journal.pending:
                journal.close(request["number"])
        return {}

    # Starting and ending

    def start(self, request: Message) -> subprocess.Popen[bytes] | None:
        """Start a program in a session of its own; None if it does not exist or may not be executed."""
        argv, env = request["argv"], environment(request.get("env"))
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if request.get("input") is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                start_new_session=True,
                preexec_fn=instead_of(argv, env),
            )
        except (FileNotFoundError, PermissionError):
            return None

    def recover(self) -> tuple[list[str], list[str]]:
        """Undo what killed agents of this role left; the lock says that none of them lives."""
        removed: list[str] = []
        failed: list[str] = []
        name = f"agent-{self.role}-*.jsonl"
        # Lasting entries after those that depend on them.
        for journal in itertools.chain(sorted(STATE.glob(name), reverse=True), left(LASTING, name)):
            gone, kept = recover(journal, undo)
            removed += gone
            failed += kept
        return removed, failed

    def take_down(self) -> None:
        """Take down everything that is still up, newest first."""
        for number, process in list(self.running.items()):
            if number not in self.up:
                kill(process)
        for number in reversed(self.up):
            self.stop(number)
            for journal in self.journals:
                if number in journal.pending and not undo(journal.pending[number])[0]:
                    with contextlib.suppress(OSError):  # if this fails, it is undone once more, without harm
                        journal.close(number)
        for journal in self.journals:
            journal.end()
        self.leave()

    def leave(self) -> None:
        """Remove the harness's places, unless the other role's agent still uses them."""
        if self.lock is None:
            return
        Path(self.lock.name).unlink(missing_ok=True)
        if list(STATE.glob("*.lock")):
            return
        private = STATE / "private"
        subprocess.run(["umount", str(private)], stderr=subprocess.DEVNULL)
        for place in (private, STATE, LASTING):
            with contextlib.suppress(OSError):
                place.rmdir()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and what it started in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def undo(entry: Message) -> tuple[list[str], bool]:
    """Carry out all steps that undo an entry.

    Returns a phrase for each that failed, and whether there was anything to undo.
    """
    problems, found = [], False
    for step in entry["steps"]:
        try:
            done = subprocess.run(
                step["argv"],
                input=step.get("input", "").encode(),
                capture_output=True,
                timeout=UNDO_STEP_S,
                env=environment(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            problems.append(str(error))
            continue
        words = done.stderr.decode("utf-8", "replace")
        is_absent = any(absent in words for absent in step.get("absent", ()))
        found = found or not is_absent
        if done.returncode != 0 and not is_absent:
            # A whole program may be among the words, which people need not read.
            command = " ".join(word if len(word) <= 300 else "..." for word in step["argv"][:4])
            problems.append(f"{command}: {words.strip()[-200:]}")
    return problems, found


def main() -> None:
    # Standard input shows the end of a terminal or session; SIGTERM may come from a shutdown.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # Read from a pipe, so that it never comes between two halves of a step.
    signals, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    # Not in a folder with the user's own modules: programs run here may be Python too, and run as root.
    os.chdir("/")
    agent = Agent()
    agent.writer.start()
    # On a line of its own, whatever a login shell printed before.
    agent.outbox.put(b"\n")
    agent.send({"hello": 1})
    try:
        agent.serve(signals)
    except NoMoreRequests:
        pass
    finally:
        agent.take_down()
        agent.say_last({"ended": True})


main()
