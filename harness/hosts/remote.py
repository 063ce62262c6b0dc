"""Hosts that are other machines (or this one, as root): an agent there carries out a ``Host``'s operations.

The agent (``programs/agent.py``) is sent through the connection, and nothing is installed. The connection is
the system's OpenSSH, so the user's configuration, keys, agent, known hosts and jump hosts count. One channel
carries everything. If it breaks, the agent undoes by itself what was brought up there.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import select
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn

import msgspec

from harness.hosts import BOOT_ID, PRIVATE, Daemon, Host, Ledger, programs, runner
from harness.hosts.programs.local_operations import RELAY_WINDOW, Relay
from harness.hosts.runner import DEFAULT_TIMEOUT_S, Completed, command_line
from harness.hosts.undo import UndoEntry
from harness.model import signals, temporary
from harness.model.errors import (
    BusyError,
    CommandFailed,
    HarnessError,
    HostLost,
    RequirementError,
    UsageError,
)
from harness.model.escape import printable
from harness.model.units import format_size
from harness.parse.hosts import HostAddress

BEAT_S = 4.0
DEADMAN_S = 20.0
"""The agent undoes everything if it hears nothing for this long; ssh notices a dead peer within 15 s."""

HELLO_DEADLINE_S = 30.0
ANSWER_GRACE_S = 15.0
REBOOT_POLL_S = 1.0
RELAY_END_S = 5.0
LARGEST_GREETING_BYTES = 1 << 16
"""How much a login shell may print before the agent's first message."""

LARGEST_ANSWER_BYTES = 32 << 20
"""Limit of a line of the agent's. Outputs of programs are longest."""

MOST_ANSWERS = 2 * (RELAY_WINDOW + 1)
"""How many answers may wait for a request: a relayed connection has a window full of them at most, and with
each of those as much again to acknowledge."""

LARGEST_LOOK_BYTES = 1 << 20
"""How much of a machine's answer to a single question is read."""

NONSENSE = "it sent something that is not the agent's output"
TOO_MUCH = "it sent more than it was asked for"


class AgentMessage(msgspec.Struct):
    """A message of an agent: the number of its request, and what that asked for; or a daemon's output."""

    id: int = 0
    hello: int = 0
    error: str | None = None
    missing: str | None = None
    busy: str | None = None
    removed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    timeout: bool = False
    status: int = -1
    stdout: str = ""
    stderr: str = ""
    texts: list[str] = []
    lines: list[str] = []
    offset_ns: int = 0
    found: str = ""
    journal: str = ""
    out: bytes | None = None
    err: bytes | None = None
    data: bytes | None = None


Replies = queue.Queue[AgentMessage | None]
"""The answers to one request, in order; None once the host is lost."""

SSH_OPTIONS = {
    # A run has nobody to ask, and an unknown host is never trusted.
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "ConnectTimeout": "15",
    # A connection of the run's own, whatever the user shares or forwards otherwise.
    "ControlMaster": "no",
    "ControlPath": "none",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
}

# One line without an apostrophe, backslash or exclamation mark, because the login shell may be any.
_BOOTSTRAP = (
    "import sys; i = sys.stdin.buffer.raw; n = int(sys.argv[1]); b = bytearray(); "
    "[b.extend(part) for part in iter(lambda: i.read(n - len(b)), bytes())]; "
    'len(b) == n and exec(compile(b, "agent", "exec", 0, True))'
)
_LAUNCH = (
    'if test $(id -u) -eq 0; then s=; else s="sudo -n"; fi; '
    f"exec $s unshare --mount --propagation private --pid --fork {programs.PYTHON} -I -X utf8 -c "
    '"$0" "$1"'
)


def launch_command(program_bytes: int) -> list[str]:
    """Starts the agent as root, in a mount and a process namespace; its program follows on standard input.

    /proc stays the machine's, so that the device guard sees which processes hold what.
    """
    return ["sh", "-c", _LAUNCH, _BOOTSTRAP, str(program_bytes)]


def reaching(address: HostAddress, command: Sequence[str]) -> list[str]:
    """What runs a command at an address: ssh(1), or for this machine the command itself.

    This is the one place where words are quoted for another machine's shell.
    """
    if address.is_local:
        return [*command]
    options = [f"-o{name}={value}" for name, value in SSH_OPTIONS.items()]
    return ["ssh", "-T", *options, *address.ssh_words(), "--", shlex.join(command)]


def asked_once(argv: Sequence[str], text: str, *, within_s: float) -> tuple[str, str] | None:
    """The output of a program, perhaps on another machine, for a short ``text``: standard output and error.

    Both are limited in size. None if the program has not ended within ``within_s``. RequirementError as for
    ssh(1).
    """
    end = time.monotonic() + within_s
    data = b""
    with temporary.folder() as folder:
        dialogue = runner.PipedProgram(argv, folder / "log")
        try:
            with contextlib.suppress(OSError):
                dialogue.input.write(text.encode())
                dialogue.input.close()
            while (left_s := end - time.monotonic()) > 0 and len(data) <= LARGEST_LOOK_BYTES:
                if select.select([dialogue.output], [], [], left_s)[0]:
                    more = os.read(dialogue.output.fileno(), 1 << 16)
                    data += more
                    if not more:
                        break
            has_ended = left_s > 0
        finally:
            dialogue.end(1)
            dialogue.output.close()
        return (data.decode("utf-8", "replace"), dialogue.said()) if has_ended else None


class AgentConnection:
    """A running agent: requests go in, answers come out, and daemons' outputs go to files."""

    def __init__(self, name: str, argv: Sequence[str], log: Path) -> None:
        self.name = name
        self.boots = 0
        self._argv, self._log = argv, log
        self._numbers = itertools.count(1)
        self._begun: dict[str, Any] = {}
        self._waiting: dict[int, Replies] = {}
        self.lost: str | None = None
        """Why it is gone, once it is."""
        self._streams: dict[tuple[int, str], Callable[[bytes], object]] = {}
        self._lock = threading.Lock()
        # A lock of its own: writing may take long, and meanwhile messages must be read.
        self._sending = threading.Lock()
        self._open()

    def _open(self) -> None:
        """Start an agent."""
        self._hello: Replies = queue.Queue()
        self._waiting[0] = self._hello
        self.lost = None
        self.dialogue = runner.PipedProgram(self._argv, self._log)
        self._ended = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()
        with contextlib.suppress(OSError):
            self.dialogue.input.write(_program().encode())
            self.dialogue.input.flush()

    def await_hello(self) -> None:
        """The agent's first message; HarnessError with the message of ssh or the shell if it does not
        come."""
        try:
            hello = self._hello.get(timeout=HELLO_DEADLINE_S)
        except queue.Empty:
            self.lost = f"it said nothing for {HELLO_DEADLINE_S:g} s"
            hello = None
        if hello is None:
            self.dialogue.kill()
            raise explain(self.name, self.dialogue.said() or self.lost or "")
        threading.Thread(target=self._beat, daemon=True).start()

    def _listen(self) -> None:
        try:
            if _has_greeted(self.dialogue.output):
                self._hello.put(AgentMessage())
                for line in _lines(self.dialogue.output, LARGEST_ANSWER_BYTES):
                    self._take(_decode(line))
        except _BadAgentMessage as nonsense:
            self.lost = self.lost or str(nonsense)
            self.dialogue.process.kill()  # otherwise it would go on
        except OSError as error:
            # An incomplete capture must not count as a complete one.
            self.lost = self.lost or f"its output could not be written: {error.strerror}"
        finally:
            self.lost = self.lost or "the connection ended"
            with self._lock:
                for waiting in self._waiting.values():
                    waiting.put(None)
            self._ended.set()

    def _take(self, answer: AgentMessage) -> None:
        for name, data in (("out", answer.out), ("err", answer.err)):
            if data is not None:
                with self._lock:  # so that nobody closes its file in the meantime
                    if take := self._streams.get((answer.id, name)):
                        take(data)
                return
        with self._lock:
            waiting = self._waiting.get(answer.id)
        if waiting is not None:
            if waiting.qsize() > MOST_ANSWERS:
                raise _BadAgentMessage(TOO_MUCH)
            waiting.put(answer)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            with contextlib.suppress(HostLost):
                self._send({"do": "beat"})

    def _send(self, request: dict[str, Any]) -> None:
        if self.lost is not None:
            raise self.gone()
        with self._sending:
            try:
                self.dialogue.input.write(msgspec.json.encode(request) + b"\n")
                self.dialogue.input.flush()
            except OSError:
                self.lost = self.lost or "the connection ended"
        if self.lost is not None:
            raise self.gone()

    def begin(self, **asked: Any) -> AgentMessage:
        """Have the agent begin; see ``programs/agent.py``."""
        begun = self.ask("begin", within_s=120, **asked)
        if begun.busy is None:
            self._begun = {**asked, "journal": begun.journal}
        return begun

    def reboot(self, within_s: float) -> None:
        """Have the machine boot anew, and start an agent there that goes on with what is lasting.

        HostLost if it does not come back in time.
        """
        until = time.monotonic() + within_s
        before = self._boot_id()
        self.ask("reboot")
        # Then it ends all programs, and this connection.
        while not self._is_back(before, until):
            if time.monotonic() > until:
                self.lost = f"it has not come back within {within_s:g} s after the run had it boot anew"
                raise self.gone()
            time.sleep(REBOOT_POLL_S)
        self.boots += 1

    def _boot_id(self) -> str:
        return self.ask("read", paths=[BOOT_ID]).texts[0]

    def _is_back(self, before: str, until: float) -> bool:
        if not self._ended.wait(max(0.0, until - time.monotonic())):
            return False
        self.dialogue.end(1)
        self._open()
        with contextlib.suppress(HarnessError):
            self.await_hello()
            if self._boot_id() != before and self.begin(**self._begun).busy is None:
                return True
        self.lost = self.lost or "it has not booted yet"
        self.dialogue.kill()
        return False

    def gone(self) -> HostLost:
        return HostLost(
            f"the {self.name} was lost in the middle of the run: {self.lost}",
            hint=f"it undoes the run there itself, within {DEADMAN_S + 10:g} s; if it was "
            "switched off, the next run there, or `harness clean`, removes the file that is left on its disk",
        )

    @contextlib.contextmanager
    def request(
        self, do: str, *, streams: Mapping[str, Callable[[bytes], object]] | None = None, **fields: Any
    ) -> Iterator[tuple[int, Replies]]:
        """Send a request; yields its number and the queue of its answers (None: the host was lost).

        ``streams`` take a daemon's output, by ``out`` and ``err``.
        """
        number = next(self._numbers)
        answers: Replies = queue.Queue()
        with self._lock:
            self._waiting[number] = answers
            for name, take in (streams or {}).items():
                self._streams[number, name] = take
        try:
            self._send({"id": number, "do": do, **fields})
            yield number, answers
        finally:
            with self._lock:
                del self._waiting[number]
                for name in streams or {}:
                    del self._streams[number, name]

    def ask(self, do: str, *, within_s: float = DEFAULT_TIMEOUT_S, **fields: Any) -> AgentMessage:
        """Send a request and wait for its answer. HostLost if the host is gone or does not answer."""
        with self.request(do, **fields) as (number, answers):
            try:
                return self.answer(answers, within_s)
            except BaseException:
                if do == "run":
                    with contextlib.suppress(HostLost):
                        self.tell("kill", of=number)
                raise

    def answer(self, answers: Replies, timeout_s: float) -> AgentMessage:
        """The next answer. HostLost if there is none; else see ``Host.run``."""
        try:
            answer = answers.get(timeout=timeout_s + ANSWER_GRACE_S)
        except queue.Empty:
            raise self.given_up(f"it has not answered for {timeout_s + ANSWER_GRACE_S:g} s") from None
        if answer is None:
            raise self.gone()
        if answer.error is not None:
            said = runner.last_lines(answer.error)
            raise CommandFailed(f"the {self.name} could not do it: {printable(said)}")
        if answer.missing is not None:
            program = printable(runner.last_lines(answer.missing))
            raise RequirementError(
                f"expected the program {program} on the {self.name}, but it is not installed or may not be "
                "executed",
                hint="`harness doctor` with the same --target and --initiator lists all that is missing",
            )
        return answer

    def given_up(self, why: str) -> HostLost:
        """End the connection to a host that does not communicate properly."""
        self.lost = self.lost or why
        self.dialogue.kill()
        return self.gone()

    def tell(self, do: str, **fields: Any) -> None:
        """Send a request that has no answer."""
        self._send({"id": 0, "do": do, **fields})

    def close(self) -> None:
        """Make the agent take down what is left and end; it is killed if it does not."""
        signals.surely(self._close)

    def _close(self) -> None:
        with contextlib.suppress(HostLost):
            self.tell("end")
            # Its last message comes once it has taken everything down.
            self._ended.wait(60)
        self.lost = self.lost or "it was closed"
        self.dialogue.end(10)


class _BadAgentMessage(Exception):
    """A message that no agent sends; says what it is."""


def _lines(out: IO[bytes], largest_bytes: int) -> Iterator[bytes]:
    """The lines that come, with a limit on their length."""
    while line := out.readline(largest_bytes + 1):
        if len(line) > largest_bytes:
            raise _BadAgentMessage(f"it sent a line that did not end within {format_size(largest_bytes)}")
        yield line


def _program() -> str:
    """The agent's."""
    return programs.source(__package__, "agent")


def _decode(line: bytes) -> AgentMessage:
    try:
        return msgspec.json.decode(line, type=AgentMessage)
    except (ValueError, RecursionError) as error:
        raise _BadAgentMessage(NONSENSE) from error


def _has_greeted(out: IO[bytes]) -> bool:
    """Whether the agent's hello comes, after whatever a login shell prints before it."""
    read = 0
    for line in _lines(out, LARGEST_GREETING_BYTES):
        read += len(line)
        with contextlib.suppress(_BadAgentMessage):
            if _decode(line).hello:
                return True
        if read > LARGEST_GREETING_BYTES:
            break
    return False


SSH_FAILURES: tuple[tuple[str, str], ...] = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one in known_hosts; find out why before anything else",
    ),
    (
        "Host key verification failed",
        "its host key is not in known_hosts: connect once by hand with ssh, and compare the fingerprint",
    ),
    ("Permission denied (", "no key of yours is accepted there: `ssh-add` one, or see `ssh -v`"),
    ("Could not resolve hostname", "check the name, or add it to ~/.ssh/config"),
    ("Connection refused", "is sshd running there?"),
    ("timed out", "is the machine on, and reachable?"),
    ("No route to host", "is the machine on, and reachable?"),
)
FAILURES: tuple[tuple[str, str], ...] = (
    *SSH_FAILURES,
    ("a password is required", "log in as root, or allow sudo without a password (NOPASSWD) there"),
    (f"{programs.PYTHON}: No such file", "install python3 there"),
    ("unshare: command not found", "install util-linux there"),
    ("unshare: not found", "install util-linux there"),
    ("sudo: ", "log in as root, or install sudo there and allow it"),
    ("unshare: ", "the agent needs root's full rights there (CAP_SYS_ADMIN), which a container may lack"),
    ("not found", "the machine needs sh, util-linux and python3"),
)
"""Messages of ssh, sudo or the shell, and what to try. The first match counts."""


def advice(said: str, failures: Sequence[tuple[str, str]] = FAILURES) -> str:
    """What to try after this message of ssh, sudo or the shell."""
    return next((hint for words, hint in failures if words in said), "try ssh to it by hand")


def explain(name: str, said: str, failures: Sequence[tuple[str, str]] = FAILURES) -> HarnessError:
    """The error for a host that printed something other than the agent would."""
    last = runner.last_lines(said, 4)
    hint = advice(said, failures)
    return RequirementError(f"the {name} could not be reached: {printable(last)}", hint=hint)


@dataclass(frozen=True, eq=False)
class _AgentLedger:
    connection: AgentConnection

    def open(self, entry: UndoEntry) -> int:
        number = next(self.connection._numbers)
        self.connection.ask("note", number=number, entry=msgspec.to_builtins(entry))
        return number

    def close(self, number: int) -> None:
        self.connection.ask("done", number=number)


@dataclass(frozen=True, eq=False)
class _Spawned:
    """A daemon that an agent started for the request of this number."""

    connection: AgentConnection
    number: int
    answers: Replies
    last: list[AgentMessage | None] = field(default_factory=list)

    def ended(self) -> bool:
        with contextlib.suppress(queue.Empty):
            self.last.append(self.answers.get_nowait())
        if None in self.last and self.connection.lost is not None:
            raise self.connection.gone()
        return bool(self.last)

    def signal(self, number: int) -> None:
        self.connection.tell("signal", of=self.number, signal=number)

    def stop(self) -> None:
        # A lost host ends its daemons by itself.
        with contextlib.suppress(HostLost):
            if not self.ended():
                self.connection.tell("stop", of=self.number)
                self.connection.answer(self.answers, DEFAULT_TIMEOUT_S)


@dataclass(frozen=True, eq=False)
class AgentHost(Host):
    """A machine through its agent. ``address`` is for people: where it is."""

    name: str
    connection: AgentConnection
    address: str
    recovered: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """What killed runs had left there: removed, not removed."""

    def in_netns(self, name: str, netns: str) -> NoReturn:
        del name, netns
        raise RequirementError(
            f"the {self.name} is a machine, and links between namespaces are made in the lab",
            hint="name an interface of its own: --link wired=IFACE",
        )

    @property
    def kernel(self) -> object:
        return self.connection

    @property
    def boots(self) -> int:
        return self.connection.boots

    def reboot(self, within_s: float) -> None:
        self.connection.reboot(within_s)

    @property
    def ledger(self) -> Ledger | None:
        return _AgentLedger(self.connection)

    def kernel_messages(self) -> list[str]:
        return self.connection.ask("kernel_messages").lines

    def _run(
        self, argv: Sequence[str], input: str | None, timeout_s: float, env: Mapping[str, str]
    ) -> Completed:
        asked = {"argv": list(argv), "input": input, "timeout_s": timeout_s, "env": dict(env)}
        answer = self.connection.ask("run", within_s=timeout_s, **asked)
        if answer.timeout:
            raise CommandFailed(
                f"`{command_line(argv)}` on the {self.name} did not end within {timeout_s:g} s"
            )
        return Completed(argv=tuple(argv), status=answer.status, stdout=answer.stdout, stderr=answer.stderr)

    @contextlib.contextmanager
    def _spawned(
        self, argv: Sequence[str], log: Path, output: Path | None, env: Mapping[str, str]
    ) -> Iterator[Daemon]:
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(contextlib.closing(runner.Bounded(log)))
            out = None if output is None else stack.enter_context(output.open("ab", buffering=0))
            streams = {"out": (out or errors).write, "err": errors.write}
            asked = {"argv": list(argv), "env": dict(env)}
            number, answers = stack.enter_context(self.connection.request("spawn", streams=streams, **asked))
            self.connection.answer(answers, DEFAULT_TIMEOUT_S)
            daemon = _Spawned(self.connection, number, answers)
            stack.callback(daemon.stop)
            yield daemon

    def clock_offset_ns(self) -> int:
        return self.connection.ask("clock").offset_ns

    def list_folder(self, path: str) -> list[str]:
        return self.connection.ask("list", path=path).lines

    def call(self, room: str, program: str, function: str, *words: str) -> bytes:
        source = programs.source(room, program)
        return self.connection.ask("call", source=source, function=function, words=words).found.encode()

    def read_files(self, paths: Sequence[str]) -> list[str]:
        texts = self.connection.ask("read", paths=list(paths)).texts
        return [*texts, *[""] * len(paths)][: len(paths)]

    def write_secret(self, path: Path, text: str) -> None:
        self.connection.ask("write", path=str(path), text=text)

    @contextlib.contextmanager
    def reach(self, path: Path) -> Iterator[Path]:
        with contextlib.ExitStack() as stack:
            # Its mode is 0700, so nobody else reaches what listens on the host.
            near = stack.enter_context(temporary.folder()) / path.name
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            try:
                listener.bind(str(near))
            except OSError as error:
                raise UsageError(
                    f"no socket could be made in {near.parent}: {error}", hint="set TMPDIR to a shorter path"
                ) from error
            listener.listen()
            relays: list[tuple[Relay, threading.Thread]] = []

            def accept() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        relay = Relay(listener.accept()[0])
                        carrying = threading.Thread(target=self._carry, args=(relay, path), daemon=True)
                        carrying.start()
                        relays.append((relay, carrying))

            accepting = threading.Thread(target=accept, daemon=True)
            accepting.start()
            try:
                yield near
            finally:
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
                accepting.join()
                for relay, carrying in relays:
                    relay.shut()
                    carrying.join(RELAY_END_S)  # briefly, because the connection to the host may hang

    def _carry(self, relay: Relay, path: Path) -> None:
        """Carry a connection made here to a unix socket there."""
        connection = self.connection
        with (
            relay.near,
            contextlib.suppress(HostLost),
            connection.request("relay", path=str(path)) as (number, answers),
        ):

            def send(data: str | None) -> None:
                with contextlib.suppress(HostLost):
                    connection.tell("relayed", of=number, data=data)

            opened = answers.get()
            if opened is None or opened.error is not None:
                return
            carrying = threading.Thread(target=relay.carry, args=(send,), daemon=True)
            carrying.start()
            try:
                while (answer := answers.get()) and relay.take(answer.data) and answer.data != b"":
                    pass
                if answer and answer.data != b"":
                    raise connection.given_up(TOO_MUCH)
            finally:
                relay.take(b"")
                carrying.join()


@contextlib.contextmanager
def connect(
    address: HostAddress,
    *,
    role: str,
    name: str,
    run_id: str,
    log: Path,
    private: Sequence[str] = (),
) -> Iterator[AgentHost]:
    """A host while the context lasts; all that is still up there is taken down at the end.

    ``role`` (target, initiator) decides which runs exclude each other: one machine can have both. For each of
    the folders ``private`` that exists there, programs run there see an empty folder in memory instead.
    RequirementError if the host cannot be reached or lacks rights, BusyError if another run has it.
    """
    argv = reaching(address, launch_command(len(_program().encode())))
    connection = AgentConnection(name, argv, log)
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        connection.await_hello()
        begun = connection.begin(
            role=role, run_id=run_id, private=[str(PRIVATE), *private], deadman_s=DEADMAN_S
        )
        if begun.busy is not None:
            owner = printable(runner.last_lines(begun.busy))
            raise BusyError(
                f"the {name} ({address.text}) is in use by run {owner}",
                hint="wait for it; if its harness was killed, it is free within half a minute",
            )
        yield AgentHost(
            name=name,
            connection=connection,
            address=address.text,
            recovered=(begun.removed, begun.failed),
        )
