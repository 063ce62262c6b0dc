"""One measurement with several initiators at once: fio's own distributed mode, without using a network.

Each initiator has a ``fio --server`` on a unix socket in its private folder, which only root can reach. One
``fio --client`` here sends all of them their jobs, and then the word to run, through ``Host.reach``.

What fio 3.33 does when something breaks, and what the harness does about it (each was tried):

================================  ================================================================
a server is killed, or its host   the client goes on, and ends with status 1 and the others' jobs
the process of a job is killed    the same, with status 0: the only sign is a missing job
a server hangs                    the client waits for ever: its socket is cut after ``timeout_s``
a server refuses a job and goes   SIGPIPE would end the client, and all figures with it: it is ignored
a server is asked to end          its running job goes on: its whole session is killed
the protocols differ              the server closes the connection, like one that died
================================  ================================================================

With ``--debug=net`` the client prints whom it hears from, and so when each job began, by the clock of this
machine. The hosts' clocks differ, and fio's ``job_start``, which later versions have, uses those.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import PRIVATE, Host, runner
from harness.model.errors import HarnessError
from harness.model.escape import printable
from harness.parse import fio
from harness.parse.fio import ServerAnswer
from harness.runs.outcome import Done, InitiatorResult

LARGEST_SKEW = 0.05
"""The most that the jobs' starts may differ without a warning, as a part of the time that they measured."""

READY_S = 20.0
CUT_S = 10.0
"""How long fio's client may take to end once hanging servers are cut off."""

VERSION = ["fio", "--version"]
NOT_FOUND = 127
"""env(1)'s exit status if there is no such program."""

POLL_S = 0.005
MEASURING_POLL_S = 0.1

# Whatever ends this shell, the processes that fio forks for a connection and for a job end with it. fio
# leaves its socket, and a job that verifies leaves its state in the working folder, which is in memory.
_SERVER = """
cd "${0%/*}" || exit
rm -f "$0"
trap 'rm -f "$0"; kill -9 $! 2>/dev/null; wait; kill -9 0' EXIT
trap exit TERM
fio --server=sock:"$0" &
wait
"""


def run_distributed(jobs: Sequence[tuple[Host, str]], *, folder: Path, timeout_s: float) -> Done:
    """Run each fio job file on its host, all at once, and wait for them, but no longer than ``timeout_s``.

    Each job has ``thread`` set, because one in a process of its own would leave the session that is killed at
    the end. A job's failure is in its part, and the others go on; a part's start is by the clock of this
    machine. ``folder`` then has NAME.fio and, if a server printed anything, NAME.server.log for each host,
    and fio-client.txt. Raises HarnessError if fio or a server cannot be started.
    """
    log = folder / "fio-client.txt"
    log.write_bytes(b"")
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(_server(host, PRIVATE / f"fio-{number}.sock", folder))
            for number, (host, _) in enumerate(jobs)
        ]
        argv = ["env", "--ignore-signal=PIPE", "fio", "--eta=never", "--debug=net", "--output-format=json+"]
        for (host, text), server in zip(jobs, servers, strict=True):
            job_file = folder / f"{host.name}.fio"
            job_file.write_text(text, encoding="utf-8")
            argv += [f"--client=sock:{server.near}", str(job_file)]
        heard = _Heard(log)
        with runner.piped(argv, output=log) as process:
            heard.until(process, [server.near for server in servers], timeout_s)
            hung = process.poll() is None
            late = [server for server in servers if hung and heard.when(fio.GONE, server.near) is None]
            for server in late:
                server.link.close()
            for server in late:
                server.daemon.close()
            heard.until(process, [], CUT_S)
        heard.listen()  # its last words were on their way when it ended
    if process.returncode == NOT_FOUND:
        raise runner.missing("fio")
    output = fio.parse_client(log.read_text(encoding="utf-8", errors="replace"))
    parts = []
    for (host, _), server in zip(jobs, servers, strict=True):
        answer = output.servers.get(server.near, ServerAnswer())
        part = InitiatorResult(
            initiator=host.name, job=answer.job, started_unix_s=heard.when(fio.BEGAN, server.near)
        )
        if answer.job is not None:
            if answer.job.invalid and answer.said:
                part.reasons.append(_said("its fio said", answer))
        elif server in late:
            part.reasons.append(f"its fio did not end within {timeout_s:g} s, and was stopped")
        elif process.returncode not in (0, 1):
            part.reasons.append(
                f"fio's client ended with status {process.returncode} before it printed its results"
            )
        else:
            part.reasons.append(_why_missing(host, answer))
        parts.append(part)
    warnings = [*output.warnings, *absence_warnings(parts), *start_warnings(parts)]
    return Done(parts=parts, warnings=warnings)


def start_warnings(parts: Sequence[InitiatorResult]) -> tuple[str, ...]:
    """The warning if jobs did not begin at the same time, so that some measured alone for a while."""
    runtimes_s = [
        io.runtime_ns / 1e9 for part in parts if part.job for io in (part.job.read, part.job.write) if io
    ]
    starts = {p.started_unix_s: p.initiator for p in parts if p.job and p.started_unix_s is not None}
    if not starts or not runtimes_s:
        return ()
    spread_s = max(starts) - min(starts)
    if spread_s <= LARGEST_SKEW * min(runtimes_s):
        return ()
    return (
        f"the initiators did not measure at the same time: {starts[max(starts)]} began {spread_s:.2g} s "
        f"after {starts[min(starts)]}, and measured for {min(runtimes_s):.3g} s; measure for longer",
    )


def absence_warnings(parts: Sequence[InitiatorResult]) -> tuple[str, ...]:
    """The warning about figures of jobs that ran while others were missing."""
    missing = [part.initiator for part in parts if not (part.job and (part.job.read or part.job.write))]
    if not missing or len(missing) == len(parts):
        return ()
    return (f"{', '.join(missing)} stopped early, so the others measured partly without them",)


# Running


@dataclass(frozen=True, kw_only=True)
class _Server:
    """A running server: its socket as reached from here, the connection to it, and the daemon itself."""

    near: str
    link: contextlib.ExitStack
    daemon: contextlib.ExitStack


@contextlib.contextmanager
def _server(host: Host, path: Path, folder: Path) -> Iterator[_Server]:
    log = folder / f"{host.name}.server.log"

    def listens() -> bool:
        # A bound socket does not listen yet (__SO_ACCEPTCON, net/unix/af_unix.c).
        rows = [row.split() for row in host.read_files(["/proc/net/unix"])[0].splitlines()]
        return any(row[-1] == str(path) and row[3] == "00010000" for row in rows)

    with contextlib.ExitStack() as daemon, contextlib.ExitStack() as link:
        daemon.callback(_drop_if_empty, log)
        daemon.enter_context(
            host.daemon(["sh", "-c", _SERVER, str(path)], log=log, ready=listens, deadline_s=READY_S)
        )
        near = link.enter_context(host.reach(path))
        yield _Server(near=str(near), link=link, daemon=daemon)


def _drop_if_empty(file: Path) -> None:
    if file.exists() and not file.stat().st_size:
        file.unlink()


class _Heard:
    """What fio's client prints to a file, and when (in Unix seconds)."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read_bytes = 0
        self._first: dict[tuple[str, str], float] = {}
        # One offset for all that is heard, because the clock may be set meanwhile.
        self._epoch_s = time.time() - time.monotonic()

    def when(self, message: str, server: str) -> float | None:
        """When the first such message came; None if none came."""
        return self._first.get((message, server))

    def until(self, process: subprocess.Popen[bytes], servers: Collection[str], deadline_s: float) -> None:
        """Listen until the client ends or the deadline has passed.

        Until each of ``servers`` has begun, times are exact to 5 ms. After that nothing more is expected, and
        the measurement must not be disturbed.
        """
        end = time.monotonic() + deadline_s
        while process.poll() is None and time.monotonic() < end:
            self.listen()
            begun = all(self.when(fio.BEGAN, name) or self.when(fio.GONE, name) for name in servers)
            time.sleep(MEASURING_POLL_S if begun else POLL_S)
        self.listen()

    def listen(self) -> None:
        """Hear what has been printed by now."""
        with self._log.open("rb") as file:
            file.seek(self._read_bytes)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read_bytes += len(whole + newline)
        now = self._epoch_s + time.monotonic()
        for line in whole.decode("utf-8", "replace").split("\n"):
            if message := fio.heard(line):
                self._first.setdefault(message, now)


# Understanding


def _why_missing(host: Host, answer: ServerAnswer) -> str:
    """Why a server that the client is done with has sent no result."""
    here = runner.run(VERSION).stdout.strip()
    try:
        there = host.run(VERSION).stdout.strip()
    except HarnessError as error:
        # Mostly HostLost.
        return str(error)
    if not answer.accepted and here != there:
        return (
            f"fio's versions do not match: {printable(here)} here, {printable(there)} on the {host.name}; "
            "install the same version of fio on all machines"
        )
    if not answer.accepted:
        return _said("its fio did not accept the job", answer)
    return _said(f"its fio {'job' if answer.ended else 'server'} was killed while it ran", answer)


def _said(what: str, answer: ServerAnswer) -> str:
    return ": ".join(filter(None, [what, printable(" / ".join(answer.said[-3:]))]))
