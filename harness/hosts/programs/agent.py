"""One host's side of a run: does what it is asked, and undoes everything by itself if nobody asks any more.

Requests come as JSON lines on standard input; answers and outputs of daemons go as JSON lines to standard
output. ``hosts/remote.py`` is the other end. ``begin`` comes first. Whatever is brought up is written down
before (``note``), together with what undoes it, and crossed out after (``done``). If standard input ends,
nothing comes for ``deadman_s``, or a SIGTERM comes, the agent stops daemons and undoes what is still written
down, newest first. The next agent undoes what a killed one wrote down. ``lasting`` entries are written down
on a disk, and are undone after a reboot as well.

It runs as process 1 of a process namespace, so its children die with it. Its one argument is the machine's
``SSH_CONNECTION``, which sudo would not pass on.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import queue
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

STATE = Path("/run/harness")
LASTING = Path("/var/lib/harness")
CHUNK_BYTES = 1 << 16
MOST_WAITING = 256
"""How many messages may wait to be read: at most some 20 MB of daemons' outputs."""

RELAY_WINDOW = 8
"""How many chunks of a relayed connection may be on their way to one end before that end has read them."""

BEGINS = b'{"id":'
LARGEST_JOURNAL_BYTES = 16 << 20
STOP_S = 5.0
UNDO_STEP_S = 60.0
CLOCK_READINGS = 20
POLL_S = 0.01

Message = dict[str, Any]


class Ended(Exception):
    """No more requests will come, and why; empty if that was agreed."""


class Agent:
    def __init__(self) -> None:
        self.outbox: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self.writer = threading.Thread(target=self.write_out, daemon=True)
        self.deadman_s: float | None = None
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.relays: dict[int, Relay] = {}
        # What is to be taken down, in the order in which it came up: (kind, number).
        self.up: list[tuple[str, int]] = []
        self.notes: dict[int, Message] = {}
        # For what a reboot ends, and for what is lasting.
        self.journals: dict[bool, Path] = {}
        self.lock: Any = None
        self.lasting: Any = None
        self.role = ""
        self.kmsg: int | None = None

    # Talking

    def send(self, message: Message) -> None:
        """Queue a message to be written, once there is room; raises Ended if there is none for
        ``deadman_s``."""
        try:
            self.outbox.put(json.dumps(message).encode() + b"\n", timeout=self.deadman_s)
        except queue.Full:
            raise Ended(f"nothing was read for {self.deadman_s} s") from None

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
        with contextlib.suppress(Ended, queue.Full):
            self.send(message)
            self.outbox.put(b"", timeout=STOP_S)
            self.writer.join(STOP_S)

    def serve(self, signals: int) -> None:
        """Answer requests until there is a reason to stop; raises Ended.

        ``signals`` is a file that becomes readable once a SIGTERM has come.
        """
        data = b""
        while True:
            readable, _, _ = select.select([0, signals], [], [], self.deadman_s)
            if not readable:
                raise Ended(f"nothing was heard for {self.deadman_s} s")
            if signals in readable:
                raise Ended("it was asked to end")
            more = os.read(0, CHUNK_BYTES)
            if not more:
                raise Ended("the connection ended")
            data += more
            *lines, data = data.split(b"\n")
            for line in lines:
                self.handle(json.loads(line))

    def handle(self, request: Message) -> None:
        number = request.get("id", 0)
        try:
            answer = getattr(self, "do_" + request["do"].replace("-", "_"))(request)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # ValueError: a NUL in an argument or a path.
            answer = {"error": f"{type(error).__name__}: {error}"}
        if answer is not None:
            self.send({"id": number, **answer})

    # Requests; a method that answers later, from a thread, returns None.

    def do_begin(self, request: Message) -> Message:
        self.role = request["role"]
        busy = self.take_lock()
        if busy:
            return {"busy": busy}
        self.lock.truncate(0)
        self.lock.write(request["run_id"])
        self.lock.flush()
        for place in request["private"]:
            if place.startswith(str(STATE)):
                Path(place).mkdir(mode=0o700, exist_ok=True)
            if Path(place).is_dir():
                subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", place], check=True)
        self.deadman_s = request["deadman_s"]
        with contextlib.suppress(OSError):
            self.kmsg = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.kmsg, 0, os.SEEK_END)
        removed, failed = self.recover()
        # A journal of its own: a resumed run has the same id, and its numbers begin anew.
        name = f"agent-{self.role}-{time.time_ns()}.jsonl"
        self.journals = {False: STATE / name, True: LASTING / name}
        return {"removed": removed, "failed": failed, "ssh": sys.argv[2]}

    def do_beat(self, _request: Message) -> None:
        """Nothing to do: it was heard."""

    def do_end(self, _request: Message) -> None:
        raise Ended("")

    def do_run(self, request: Message) -> Message | None:
        process = self.start(request, subprocess.PIPE, subprocess.PIPE)
        if process is None:
            return {"missing": request["argv"][0]}
        self.running[request["id"]] = process
        threading.Thread(target=self.finish, args=(request, process), daemon=True).start()
        return None

    def finish(self, request: Message, process: subprocess.Popen[bytes]) -> None:
        started = time.monotonic()
        text = request.get("input")
        try:
            data = None if text is None else text.encode("utf-8", "surrogateescape")
            out, err = process.communicate(data, timeout=request["timeout_s"])
        except subprocess.TimeoutExpired:
            kill(process)
            self.running.pop(request["id"], None)
            self.send({"id": request["id"], "timeout": True})
            process.wait()
            return
        self.running.pop(request["id"], None)
        self.send(
            {
                "id": request["id"],
                "status": process.returncode,
                "stdout": out.decode("utf-8", "replace"),
                "stderr": err.decode("utf-8", "replace"),
                "seconds": time.monotonic() - started,
            }
        )

    def do_spawn(self, request: Message) -> Message | None:
        process = self.start(request, subprocess.PIPE, subprocess.PIPE)
        if process is None:
            return {"missing": request["argv"][0]}
        number = request["id"]
        self.running[number] = process
        self.up.append(("daemon", number))
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
        process = self.running.get(request["of"])
        if process is not None:
            process.send_signal(request["signal"])

    def do_kill(self, request: Message) -> None:
        process = self.running.get(request["of"])
        if process is not None:
            kill(process)

    def do_read(self, request: Message) -> Message:
        return {"texts": [read_text(path) for path in request["paths"]]}

    def do_clock(self, _request: Message) -> Message:
        # Of many readings the fastest one: on a busy machine ms may pass in the middle of a reading.
        readings = []
        for _ in range(CLOCK_READINGS):
            before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
            readings.append((after - before, now - (before + after) // 2))
        return {"offset_ns": min(readings)[1]}

    def do_write(self, request: Message) -> Message:
        path = Path(request["path"])
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(request["text"], encoding="utf-8")
        return {}

    def do_relay(self, request: Message) -> None:
        relay = Relay(self, request["id"])
        self.relays[relay.number] = relay
        threading.Thread(target=relay.carry, args=(request["path"],), daemon=True).start()

    def do_relayed(self, request: Message) -> None:
        if relay := self.relays.get(request["of"]):
            relay.inbox.put(base64.b64decode(request["data"]))

    def do_taken(self, request: Message) -> None:
        if relay := self.relays.get(request["of"]):
            relay.window.release()

    def do_kernel_messages(self, _request: Message) -> Message:
        lines = []
        while self.kmsg is not None:
            try:
                line = os.read(self.kmsg, 8192).decode("utf-8", "replace")
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # lines were overwritten before they were read
            lines.append(line.partition(";")[2].split("\n")[0])
        return {"lines": lines}

    def do_note(self, request: Message) -> Message:
        self.notes[request["number"]] = request["entry"]
        self.up.append(("note", request["number"]))
        self.write_down(request["entry"], {"id": request["number"], "entry": request["entry"]})
        return {}

    def do_done(self, request: Message) -> Message:
        entry = self.notes.pop(request["number"], {})
        self.write_down(entry, {"id": request["number"]})
        return {}

    def write_down(self, entry: Message, line: Message) -> None:
        """Append to the entry's journal, which is made if it is not there: it is the first line, or somebody
        has removed the folder.

        A lasting one is locked, because agents of other containers may share its folder.
        """
        if not self.journals:
            raise OSError("nothing can be written down before a run has begun")
        kind = is_lasting(entry)
        journal = self.journals[kind]
        lines = [line]
        if not journal.exists():
            own_folder(journal.parent)
            if kind:
                self.lasting = locked(journal)
                while self.lasting is None:
                    time.sleep(POLL_S)  # another agent looks whether it is a killed one's
                    self.lasting = locked(journal)
            notes = self.notes.items()
            lines = [{"id": number, "entry": each} for number, each in notes if is_lasting(each) == kind]
        write_down(journal, *lines)

    # Starting and ending

    def start(self, request: Message, out: int, err: int) -> subprocess.Popen[bytes] | None:
        """Start a program in a session of its own; None if it does not exist or may not be executed."""
        variables = {**environment(), **(request.get("env") or {})}
        try:
            return subprocess.Popen(
                request["argv"],
                stdin=subprocess.DEVNULL if request.get("input") is None else subprocess.PIPE,
                stdout=out,
                stderr=err,
                env=variables,
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError):
            return None

    def take_lock(self) -> str:
        """Keep other runs of this role out; returns the run that has it, if there is one."""
        place = STATE / (self.role + ".lock")
        self.lock = locked(place)
        return "" if self.lock else read_text(str(place)) or "another run"

    def recover(self) -> tuple[list[str], list[str]]:
        """Undo what killed agents of this role left; the lock says that none of them lives, and those of
        lasting journals that no agent of another container has them."""
        removed: list[str] = []
        failed: list[str] = []
        name = f"agent-{self.role}-*.jsonl"
        lasting = own_folder(LASTING).glob(name) if LASTING.exists() else ()
        # Lasting entries after those that depend on them.
        for journal in (*sorted(STATE.glob(name), reverse=True), *sorted(lasting, reverse=True)):
            # What is no file cannot be locked, and is reported.
            is_shared = journal.parent == LASTING and journal.is_file()
            lock = locked(journal) if is_shared else contextlib.nullcontext()
            if lock is not None:
                with lock:
                    recover_from(journal, removed, failed)
        return removed, failed

    def take_down(self) -> None:
        """Take down everything that is still up, newest first."""
        daemons = {number for kind, number in self.up if kind == "daemon"}
        for number, process in list(self.running.items()):
            if number not in daemons:
                kill(process)
        for kind, number in reversed(self.up):
            if kind == "daemon":
                self.stop(number)
            elif number in self.notes and not undo(self.notes[number]["steps"])[0]:
                with contextlib.suppress(OSError):  # if this fails, it is undone once more, without harm
                    self.do_done({"number": number})
        for lasting, journal in self.journals.items():
            if not any(is_lasting(entry) == lasting for entry in self.notes.values()):
                journal.unlink(missing_ok=True)
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


class Relay:
    """A connection to a unix socket here, carried for the other end; see ``remote._Relay``."""

    def __init__(self, agent: Agent, number: int) -> None:
        self.agent = agent
        self.number = number
        self.socket = socket.socket(socket.AF_UNIX)
        self.window = threading.Semaphore(RELAY_WINDOW)
        self.inbox: queue.Queue[bytes] = queue.Queue()
        """What is to be written here, bounded by the other end's window. Empty bytes: the other end has
        closed."""
        self.over = False

    def carry(self, path: str) -> None:
        reader = threading.Thread(target=self.read, daemon=True)
        with contextlib.suppress(Ended), self.socket:
            try:
                self.socket.connect(path)
            except OSError as error:
                self.agent.send({"id": self.number, "error": f"{path}: {error.strerror}"})
            else:
                self.agent.send({"id": self.number})
                reader.start()
                self.write()
                reader.join()
        del self.agent.relays[self.number]

    def write(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.inbox.get():
                self.socket.sendall(data)
                self.agent.send({"id": self.number, "taken": 1})
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.over = True
        self.window.release()

    def read(self) -> None:
        with contextlib.suppress(Ended, OSError):
            while not self.over and (data := self.socket.recv(CHUNK_BYTES)):
                self.window.acquire()
                self.agent.send({"id": self.number, "data": base64.b64encode(data).decode()})
        with contextlib.suppress(Ended):
            self.agent.send({"id": self.number, "closed": True})


def is_lasting(entry: Message) -> bool:
    """Whether it lies on a disk, so that a reboot does not end it."""
    return bool(entry.get("lasting", False))


def recover_from(journal: Path, removed: list[str], failed: list[str]) -> None:
    """Undo what a journal says, and add to the two lists what was undone and what could not be."""
    try:
        pending = read_journal(journal)
    except (OSError, ValueError) as error:
        failed.append(f"{journal}: {error}; {set_aside(journal)}")
        return
    for number, entry in reversed(list(pending.items())):
        problems, found = undo(entry["steps"])
        if problems:
            failed.append(": ".join([entry["what"], *problems]))
        else:
            removed += [entry["what"]] * found
            # By the next try it could be somebody else's: a file of the same name, say.
            write_down(journal, {"id": number})
            del pending[number]
    if not pending:
        journal.unlink()


def locked(path: Path) -> Any:
    """A file, open and locked, made if absent; None if another process has locked it."""
    while True:
        own_folder(path.parent)
        try:
            file = path.open("a+")
        except FileNotFoundError:
            continue  # the folder has just been removed
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        # Who had it until now may have removed it: then nobody else would find it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


def write_down(journal: Path, *lines: Message) -> None:
    with journal.open("a") as file:
        is_new = file.tell() == 0
        file.write("".join(json.dumps(line) + "\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    for folder in (journal.parent, journal.parent.parent) if is_new else ():
        sync(folder)


def read_journal(journal: Path) -> dict[int, Message]:
    """What was brought up and not undone, by number, oldest first. ValueError if the file is of another
    version, or not a journal."""
    found = journal.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_JOURNAL_BYTES:
        raise ValueError("it is not a journal")
    pending: dict[int, Message] = {}
    for number, text in enumerate(journal.read_bytes().split(b"\n"), 1):
        try:
            line = json.loads(text)
        except (UnicodeDecodeError, RecursionError):
            line = None
        except ValueError:
            if text[: len(BEGINS)] == BEGINS[: len(text)] or not text.strip(b"\0"):
                continue  # torn by the kill, or a power cut: what it names was not yet acted on
            line = None
        if not is_line(line):
            raise ValueError(f"its line {number} is of another version, or of something else")
        if "entry" in line:
            pending[line["id"]] = line["entry"]
        else:
            pending.pop(line["id"], None)
    return pending


def is_line(line: Any) -> bool:
    """Whether it is a line that ``write_down`` writes."""
    if not isinstance(line, dict) or not isinstance(line.get("id"), int):
        return False
    entry = line.get("entry", {"what": "", "steps": []})
    if not isinstance(entry, dict) or not isinstance(entry.get("what"), str):
        return False
    steps = entry.get("steps")
    return isinstance(steps, list) and all(isinstance(step, dict) and is_step(step) for step in steps)


def is_step(step: Message) -> bool:
    words = [step.get("argv"), step.get("absent", [])]
    return isinstance(step.get("input", ""), str) and all(
        isinstance(each, list) and all(isinstance(word, str) for word in each) for each in words
    )


def set_aside(journal: Path) -> str:
    """Rename a journal that cannot be read, so that it stops nobody; returns a sentence about it."""
    aside = journal.with_name(f"{journal.name}.{time.time_ns()}.unreadable")
    try:
        journal.rename(aside)
    except OSError as error:
        return f"remove it by hand, because it could not be renamed: {error.strerror}"
    return f"it is {aside} now, and what it names may still be there"


def own_folder(folder: Path) -> Path:
    """A folder that only root may write to, made if absent: the agent carries out what lies in it."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise OSError(f"expected {folder} to be a folder that only root may write to")
    return folder


def sync(folder: Path) -> None:
    """Write the names in a folder to its disk, which fsync(2) of a file does not do."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def environment() -> dict[str, str]:
    """The environment of every program: the agent's, with the C locale, and with administrators' programs."""
    path = os.environ.get("PATH", "/usr/bin:/bin")
    folders = f"{path}:/usr/local/sbin:/usr/sbin:/sbin"
    return {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "", "PATH": folders}


def read_text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and what it started in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def undo(steps: list[Message]) -> tuple[list[str], bool]:
    """Carry out all steps that undo something.

    Returns a phrase for each that failed, and whether there was anything to undo.
    """
    problems, found = [], False
    for step in steps:
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
    agent.send({"hello": 1, "uid": os.geteuid(), "python": sys.version.split()[0]})
    try:
        agent.serve(signals)
    except Ended:
        pass
    finally:
        agent.take_down()
        agent.say_last({"ended": True})


main()
