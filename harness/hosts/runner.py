"""The only module that starts programs: argument lists only, C.UTF-8, standard input never the terminal."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from harness.hosts import namespaces
from harness.hosts.programs.local_operations import environment
from harness.model import signals
from harness.model.errors import CommandFailed, RequirementError

P = TypeVar("P", bound="subprocess.Popen[Any]")

DEFAULT_TIMEOUT_S = 30.0
LONGEST_WORD_SHOWN = 300
LONGEST_LINE_SHOWN = 500
FORKING = "HARNESS_FORKING"
LARGEST_LOG_BYTES = 16 << 20
"""How much is kept of the output of a program that comes from another machine, because it may never stop."""


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A program that has ended: exit ``status`` (negative: killed by that signal), output as text."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    def require_success(self) -> Completed:
        """Return itself, or raise CommandFailed with a command line to copy and the program's last lines."""
        if self.status == 0:
            return self
        words = last_lines(self.stderr.strip() or self.stdout.strip() or "it printed nothing")
        raise CommandFailed(f"`{command_line(self.argv)}` ended with status {self.status}: {words}")


def command_line(argv: Sequence[str]) -> str:
    """A command as a person would type it; a whole program among its arguments is shortened."""
    return shlex.join(word if len(word) <= LONGEST_WORD_SHOWN else f"{word[:20]}..." for word in argv)


def _popen(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, **more: Any
) -> subprocess.Popen[Any]:
    """Start a program in a session of its own, without input unless ``more`` has a ``stdin``.

    RequirementError if it does not exist or may not be executed.
    """
    whole = environment(env)
    try:
        return subprocess.Popen(
            argv,
            # Otherwise the child would try each folder of PATH, and in the lab execve(2) of a file that is
            # not there takes 2 ms, because its kernel first makes a process on the machine.
            executable=shutil.which(argv[0], path=whole["PATH"]),
            env=whole,
            start_new_session=True,
            **{"stdin": subprocess.DEVNULL, **more},
        )
    except (FileNotFoundError, PermissionError) as error:
        # A command line may have been shortened.
        raise missing(str(error.filename or argv[0])) from error


def _started(netns: str | None, start: Callable[[], P], kill: Callable[[P], object]) -> P:
    """What ``start`` starts in a namespace; ``kill`` gets it if the caller is interrupted meanwhile."""
    return start() if netns is None else namespaces.within(netns, start, kill)


def run(
    argv: Sequence[str],
    *,
    input: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    netns: str | None = None,
) -> Completed:
    """Run a program to its end.

    CommandFailed if it fails (with ``check``) or outlives ``timeout_s``; RequirementError if it does not
    exist or may not be executed; NotEntered if nothing can be started in ``netns``. If interrupted, it is
    killed with all that it started.
    """

    def start() -> subprocess.Popen[str]:
        return _popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )

    process = _started(netns, start, _kill)
    try:
        stdout, stderr = process.communicate(input, timeout=timeout_s)
    except BaseException as error:
        _kill(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise CommandFailed(f"`{command_line(argv)}` did not end within {timeout_s:g} s") from error
        raise
    completed = Completed(argv=tuple(argv), status=process.returncode, stdout=stdout, stderr=stderr)
    return completed.require_success() if check else completed


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a program and what it started in its session, and wait for it, but not for ever."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)


def missing(program: str) -> RequirementError:
    """The error for a program that could not be started."""
    return RequirementError(
        f"expected the program {program}, but it is not installed or may not be executed",
        hint="`harness doctor` lists all that is missing and the command that installs it",
    )


@contextlib.contextmanager
def spawned(
    argv: Sequence[str], *, log: Path, output: Path | None, env: Mapping[str, str], netns: str | None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs while the context lasts; see ``Host.daemon``."""
    with log.open("ab") as errors, (output or log).open("ab") as out:

        def start() -> subprocess.Popen[bytes]:
            return _popen(argv, env=env, stdout=out, stderr=errors)

        process = _started(netns, start, stop)
    try:
        yield process
    finally:
        signals.surely(lambda: stop(process))


@contextlib.contextmanager
def piped(
    argv: Sequence[str], *, output: Path, env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a session of its own; its output goes through a pipe and is appended to ``output``.

    Leaving the context kills it, if it has not ended by itself.
    """
    with output.open("ab") as out:
        process = _popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=pass_fds)
        # cat(1) copies in the background, and lives on to copy the last output of a killed program.
        copier = subprocess.Popen(["cat"], stdin=process.stdout, stdout=out, start_new_session=True)
        if process.stdout is not None:
            process.stdout.close()

        def end() -> None:
            process.kill()
            process.wait()
            copier.wait(timeout=5)

        try:
            yield process
        finally:
            signals.surely(end)


def left_running(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program that outlives this one, in a session of its own; its output is appended to ``log``."""
    with log.open("ab") as out:
        return _popen(argv, stdout=out, stderr=subprocess.STDOUT)


class ForkingProgram:
    """A program that is loaded once, and forks for each run, whose files it takes from a socket.

    It finds the socket's number in the environment variable ``FORKING``, writes a byte there when it is
    ready, and the status of each child (waitpid(2)) when that has ended.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> None:
        """CommandFailed if it is not ready in time; RequirementError if it cannot be started."""
        self._argv = tuple(argv)
        self._socket, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._socket)
            with theirs:
                number = theirs.fileno()
                null = subprocess.DEVNULL
                more = {**env, FORKING: str(number)}
                self._process = _popen(argv, env=more, pass_fds=[number], stdout=null, stderr=null)
            stack.callback(_kill, self._process)
            self._answer(1, timeout_s)
            self._stack = stack.pop_all()

    def _answer(self, size: int, timeout_s: float) -> bytes:
        self._socket.settimeout(timeout_s)
        try:
            answer = self._socket.recv(size)
        except TimeoutError as error:
            raise CommandFailed(f"`{command_line(self._argv)}` did not end within {timeout_s:g} s") from error
        if len(answer) < size:
            raise CommandFailed(f"`{command_line(self._argv)}` ended too early")
        return answer

    def run(self, input: str, timeout_s: float) -> Completed:
        """As ``run`` without ``check``. If it fails, the program is killed with all its children."""
        try:
            with contextlib.ExitStack() as stack:
                files = [
                    stack.enter_context(os.fdopen(os.memfd_create(name), "w+b"))
                    for name in ("input", "output", "errors")
                ]
                files[0].write(input.encode())
                files[0].seek(0)
                socket.send_fds(self._socket, [b"\0"], [file.fileno() for file in files])
                status = int.from_bytes(self._answer(4, timeout_s), sys.byteorder)
                texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in files[1:]]
        except OSError as error:
            self.end()
            raise CommandFailed(f"`{command_line(self._argv)}` could not be run: {error}") from error
        except BaseException:
            self.end()
            raise
        stdout, stderr = (text.decode("utf-8", "replace") for text in texts)
        ended = os.waitstatus_to_exitcode(status)
        return Completed(argv=self._argv, status=ended, stdout=stdout, stderr=stderr)

    @property
    def is_up(self) -> bool:
        return self._socket.fileno() >= 0

    def end(self) -> None:
        """Kill it, if it is there."""
        signals.surely(self._stack.close)


class PipedProgram:
    """A dialogue with a program in a session of its own: ``input`` and ``output`` are pipes.

    Its standard error is appended to ``log``, up to LARGEST_LOG_BYTES. RequirementError if it cannot be
    started.
    """

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        self._log = log
        errors = Bounded(log)
        self._log_begins = errors.begins
        try:
            pipe = subprocess.PIPE
            self.process: subprocess.Popen[bytes] = _popen(argv, stdin=pipe, stdout=pipe, stderr=pipe)
        except RequirementError:
            errors.close()
            raise
        self.input, self.output = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
        says = cast(IO[bytes], self.process.stderr)
        self._logging = threading.Thread(target=_log_all, args=(says, errors), daemon=True)
        self._logging.start()

    def said(self) -> str:
        """What it has printed on standard error."""
        return self._log.read_bytes()[self._log_begins :].decode("utf-8", "replace").strip()

    def end(self, within_s: float) -> None:
        """Close its input, and kill it if it has not ended in time."""
        with contextlib.suppress(OSError):
            self.input.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within_s)
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        # So that a shell that it started ends, too. Without what is not yet written, for nobody may read it.
        cast(io.BufferedWriter, self.input).raw.close()
        # Its last output may still be on its way; but a program that it started may hold the pipe for ever.
        self._logging.join(1)


class Bounded:
    """A log that grows by at most LARGEST_LOG_BYTES from where it ``begins``: the rest is left out."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self.begins = self._file.tell()
        self._left = LARGEST_LOG_BYTES

    def write(self, data: bytes) -> None:
        if self._left > 0:
            whole = len(data) <= self._left
            self._file.write(data if whole else data[: self._left] + b"\n(the rest was left out)\n")
            self._left -= len(data)

    def close(self) -> None:
        self._file.close()


def _log_all(says: IO[bytes], log: Bounded) -> None:
    with says, contextlib.closing(log):
        while data := os.read(says.fileno(), 1 << 16):
            # Output beyond the limit must still be read, or the program that prints it hangs.
            with contextlib.suppress(OSError):
                log.write(data)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a child process to end, and kill it if it has not after 5 s."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired as error:
                raise CommandFailed(f"process {process.pid} could not be killed") from error


def await_condition(
    condition: Callable[[], bool], *, deadline_s: float, what: str, interval_s: float = 0.02
) -> None:
    """Poll until ``condition()`` is true; CommandFailed naming ``what`` once ``deadline_s`` has passed."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise CommandFailed(f"waited {deadline_s:g} s in vain for {what}")
        time.sleep(interval_s)


def tail(log: Path) -> str:
    """The last lines of a log on one line, for an error message."""
    return last_lines(log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")


def last_lines(text: str, count: int = 3) -> str:
    """The last lines of an output on one line, each limited in length, for an error message."""
    lines = [line.strip() for line in text.strip().splitlines()[-count:]]
    shown = (f"{line[:LONGEST_LINE_SHOWN]}..." if len(line) > LONGEST_LINE_SHOWN else line for line in lines)
    return " / ".join(shown) or "its log is empty"
