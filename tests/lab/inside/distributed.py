"""Two initiators measure at once through fio's client and servers: figures add up, faults are named.

The two are local agents on one kernel, each with a disk of its own. In turn the one's server is killed, its
job is killed, its server hangs, its disk is not there, and it goes down as a whole. The other's figures stay
every time, and nothing is left. The arguments are the faults that are tried; without any, all are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.hosts import remote
from harness.hosts.remote import AgentHost
from harness.model import Io
from harness.parse.fio import total
from harness.parse.hosts import parse_address
from harness.parse.jobfile import job_file, parse_jobs
from harness.runs.distributed import LARGEST_SKEW, run_distributed
from harness.runs.outcome import Done, InitiatorResult
from tests.lab.inside.kernel import arguments, modprobe, processes, sh, wait_for

WORK = Path("/root/together")
DISK_MIB = 64
RUNTIME_S, BROKEN_S = 2.0, 3.0
"""The second where something breaks in the middle: that may come late on a busy machine."""

TIMEOUT_S, HANGS_S = 60.0, 30.0
"""A server hangs for as long as the other may take to measure, which on a busy machine was more than 12 s."""
PROFILE = "[mixed]\nrw=randrw\nbs=4k\ntime_based\nruntime=1\n"


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[AgentHost, AgentHost]]:
    """Two agents on this kernel. Roles keep runs off each other, so each takes another one."""

    def agent(role: str, name: str) -> contextlib.AbstractContextManager[AgentHost]:
        address, log = parse_address("local", role), WORK / f"{name}.log"
        return remote.connect(address, role=role, name=name, run_id="together", log=log)

    with agent("initiator", "one") as first, agent("target", "two") as second:
        yield first, second


def job(disk: int, runtime_s: float) -> str:
    (workload,) = parse_jobs(PROFILE, "profile")
    device, size_bytes = f"/dev/ram{disk}", DISK_MIB << 20
    return job_file(workload, device=device, size_bytes=size_bytes, seed=7, runtime_s=runtime_s)


@contextlib.contextmanager
def once_at_work(log: Path, fault: Callable[[], object]) -> Iterator[None]:
    """Let something happen half a second after both jobs have begun; it has to have been possible."""

    def act() -> None:
        wait_for(log.exists, "fio's client", deadline_s=20)
        wait_for(lambda: log.read_text().count("op SERVER_START") == 2, "both jobs", deadline_s=20)
        time.sleep(0.5)
        fault()

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act)
        yield
        acting.result()


def run(
    name: str,
    jobs: Sequence[tuple[AgentHost, str]],
    *,
    timeout_s: float = TIMEOUT_S,
    fault: Callable[[], object] | None = None,
) -> Done:
    folder = WORK / name
    folder.mkdir()
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        if fault is not None:
            stack.enter_context(once_at_work(folder / "fio-client.txt", fault))
        done = run_distributed(jobs, folder=folder, timeout_s=timeout_s)
    took_s = time.monotonic() - began
    for part in done.parts:
        read = part.job.read if part.job else None
        print(f"  {part.initiator}: {read and f'{read.iops:.0f} IOPS'}, {part.reasons}")
    print(f"{name}: {took_s:.1f} s, {done.warnings}", flush=True)
    return done


def server() -> int:
    """The process group of the first host's fio server."""
    socket = ["/run/harness/private/fio-0.sock"]
    (shell,) = [pid for pid, name in processes().items() if name == "sh" and arguments(pid)[-1:] == socket]
    return os.getpgid(shell)


def jobs_process(group: int) -> int:
    """The process that does a server's I/O: the youngest that it has forked."""
    return max(pid for pid, name in processes().items() if name == "fio" and os.getpgid(pid) == group)


def agent(host: AgentHost) -> int:
    """The agent of a host that is local: what unshare(1) has started, which ends as at a shutdown."""
    pid = host.connection.dialogue.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8"))


def whole(part: InitiatorResult) -> tuple[Io, Io]:
    assert not part.reasons, part.reasons
    assert part.job is not None and part.started_unix_s is not None
    assert not part.job.invalid, part.job.invalid
    assert part.job.read is not None and part.job.write is not None
    return part.job.read, part.job.write


def figures_add_up(hosts: Sequence[AgentHost]) -> None:
    done = run("whole", [(host, job(disk, RUNTIME_S)) for disk, host in enumerate(hosts)])
    both = [whole(part) for part in done.parts]
    totals = total([part.job for part in done.parts if part.job])
    for parts, io in zip(zip(*both, strict=True), totals, strict=True):
        assert io is not None
        assert io.bytes == sum(part.bytes for part in parts) > 0
        assert io.ios == sum(part.ios for part in parts)
        assert io.bytes == 4096 * io.ios
        assert io.runtime_ns == max(part.runtime_ns for part in parts)
        for figure in ("p50_ns", "p99_ns", "p99_9_ns"):
            values = [getattr(part.latency, figure) for part in parts]
            merged = getattr(io.latency, figure)
            assert min(values) <= merged <= max(values), (figure, values, merged)
    starts = [part.started_unix_s or 0 for part in done.parts]
    apart_s = abs(starts[0] - starts[1])
    print(f"  began {apart_s * 1000:.0f} ms apart", flush=True)
    # On a busy machine the second begins late, and that is then said.
    shortest_s = min(io.runtime_ns for ios in both for io in ios) / 1e9
    assert bool(done.warnings) == (apart_s > LARGEST_SKEW * shortest_s), (apart_s, done.warnings)


def faults(hosts: Sequence[AgentHost], only: Collection[str]) -> None:
    killed, hangs = "was killed while it ran", f"its fio did not end within {HANGS_S:g} s, and was stopped"
    lost = "the one was lost in the middle of the run"
    acts: dict[str, tuple[str, Callable[[], object] | None]] = {
        "server-killed": (f"its fio server {killed}", lambda: os.killpg(server(), signal.SIGKILL)),
        "job-killed": (f"its fio job {killed}", lambda: os.kill(jobs_process(server()), signal.SIGKILL)),
        "server-hangs": (hangs, lambda: os.killpg(server(), signal.SIGSTOP)),
        "no-disk": ("its fio said: ", None),
        "host-goes-down": (lost, lambda: os.kill(agent(hosts[0]), signal.SIGTERM)),
    }
    for name, (reason, fault) in acts.items():
        if only and name not in only:
            continue
        jobs = [(hosts[0], job(0 if fault else 9, BROKEN_S)), (hosts[1], job(1, BROKEN_S))]
        timeout_s = HANGS_S if reason == hangs else TIMEOUT_S
        first, second = run(name, jobs, timeout_s=timeout_s, fault=fault).parts
        assert "".join(first.reasons).startswith(reason), first.reasons
        assert first.job is None or first.job.invalid
        whole(second)


def left() -> set[str]:
    """What a measurement must not leave: processes, sockets and their folders, mounts, segments."""
    ours = [*Path("/tmp").glob("harness-*/fio-*"), *Path("/run").glob("harness/*")]
    mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    # One that is dead and waits to be asked for its status has no arguments any more.
    fios = [name for pid, name in processes().items() if name == "fio" and arguments(pid)]
    return {*map(str, (*ours, *Path("/dev/shm").iterdir())), *mounts, *fios, *sh("ipcs", "-m").splitlines()}


def main(only: Collection[str]) -> None:
    WORK.mkdir()
    modprobe(f"brd rd_nr=2 rd_size={DISK_MIB << 10}")
    before = left()
    with two_hosts() as hosts:
        up = left()
        figures_add_up(hosts)
        wait_for(lambda: left() == up, f"an end of {left() ^ up}", deadline_s=20)
        faults(hosts, only)
        wait_for(lambda: left() <= up, f"an end of {left() - up}", deadline_s=20)
    wait_for(lambda: left() <= before, "the lost agent to take itself down", deadline_s=60)
    print("two initiators measured together")


if __name__ == "__main__":
    main(sys.argv[1:])
