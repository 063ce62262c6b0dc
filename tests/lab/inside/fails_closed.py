"""Both charons are killed and the SAs deleted under a disk at work: not one segment leaves in clear.

At the end the barrier is taken away as well, to show that it was what held, and that the captures would
have seen what they did not see.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness import inside
from harness.bench import Bench
from harness.capture import Capture
from harness.events import Event
from harness.hosts import PRIVATE, Host
from harness.ipsec import Barrier
from harness.journal import Journal
from harness.links import LinkPath
from harness.measure import Lane
from harness.model import Column
from harness.plan import Request, make_plan
from harness.results import RunFolder
from harness.undo import carry_out
from tests.lab.inside.kernel import processes, sh, wait_for

STALL_S = 4.0
BOUND_S = 60.0
PORTAL = "tcp port 3260"


def emit(_event: Event) -> None:
    """Nobody follows this run."""


@contextlib.contextmanager
def clear_segments(host: Host, iface: str, file: Path) -> Iterator[Path]:
    """A capture of its own at one end: a line for each segment of the portal that is sent in clear."""
    argv = ["tcpdump", "-i", iface, "-Q", "out", "-p", "-n", "-l", "--immediate-mode", PORTAL]
    log = file.with_suffix(".log")
    with host.daemon(
        argv,
        log=log,
        output=file,
        deadline_s=10,
        ready=lambda: log.exists() and "listening on" in log.read_text(encoding="utf-8"),
    ):
        yield file


def lines(files: list[Path]) -> list[str]:
    return [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def cleartext_seen(capture: Capture) -> int:
    """What the harness's own captures have seen in clear since they were last asked, of both ends."""
    return sum(seen.cleartext for seen in capture.look())


def kill_charons() -> None:
    charons = [pid for pid, name in processes().items() if name.startswith("charon")]
    assert len(charons) == 2, processes()
    for pid in charons:
        os.kill(pid, signal.SIGKILL)


def delete_states(host: Host) -> None:
    for line in host.run(["ip", "xfrm", "state", "list", "nokeys"]).stdout.split("\nsrc "):
        words = line.removeprefix("src ").split()
        if "spi" in words:
            state = ["src", words[0], "dst", words[2], "proto", "esp", "spi", words[words.index("spi") + 1]]
            host.run(["ip", "xfrm", "state", "delete", *state])
    assert not host.run(["ip", "xfrm", "state", "list", "nokeys"]).stdout


def delete_policies_of_charon(host: Host, path: LinkPath) -> None:
    """Leave the barrier alone, as if somebody had flushed all that charon had installed."""
    for source, destination in (
        (path.initiator_address, path.target_address),
        (path.target_address, path.initiator_address),
    ):
        for direction in ("in", "out", "fwd"):
            selector = ["src", f"{source}/32", "dst", f"{destination}/32", "dir", direction]
            host.run(["ip", "xfrm", "policy", "delete", *selector], check=False)
    left = host.run(["ip", "xfrm", "policy"]).stdout
    assert "tmpl" not in left and "action block" in left, left


def position(process: subprocess.Popen[bytes]) -> str:
    """How far dd has read, by the kernel's account of its open file."""
    return Path(f"/proc/{process.pid}/fdinfo/0").read_text(encoding="utf-8").split()[1]


def main() -> None:
    plan = make_plan(Request(links=("wired",), ipsec=("on",), repeats=1, size="32M", runtime="1s"))
    folder = RunFolder(Path("/root/run"))
    folder.path.mkdir()
    journal = Journal(Path("/root/journal.jsonl"))
    inside.mount_private()
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(inside.hosts(plan, folder, lambda _: None))
        inside.prepare(plan, hosts)
        bench = Bench(plan, folder, emit, hosts=hosts, journal=journal, private=PRIVATE)
        stack.enter_context(bench.shared())
        (lane,) = bench.column(Column("wired", "aes128gcm16")).lanes
        assert_nothing_in_clear(stack, lane)
        began_teardown = time.monotonic()
    took_s = time.monotonic() - began_teardown
    print(f"torn down in {took_s:.1f} s, leaks: {journal.leaks}")
    assert took_s < BOUND_S
    assert not journal.open_entries() and not journal.leaks, journal.leaks
    assert not sh("ip", "xfrm", "state") and not sh("ip", "xfrm", "policy")
    assert not list(Path("/sys/class/iscsi_session").iterdir())


def assert_nothing_in_clear(stack: contextlib.ExitStack, lane: Lane) -> None:
    path = lane.path
    ends = ((path.initiator, path.initiator_iface), (path.target, path.target_iface))
    files = [
        stack.enter_context(clear_segments(host, iface, Path(f"/root/clear-{iface}"))) for host, iface in ends
    ]
    argv = ["dd", f"if={lane.disk.device}", "of=/dev/null", "bs=4k", "iflag=direct"]
    reader = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    stack.callback(reader.kill)
    wait_for(lambda: position(reader) != "0", "the first block", deadline_s=5)
    assert cleartext_seen(lane.capture) == 0

    kill_charons()
    for host, _ in ends:
        delete_states(host)
    before = position(reader)
    time.sleep(STALL_S)
    assert reader.poll() is not None or position(reader) == before, "without SAs nothing may move"
    for host, _ in ends:
        delete_policies_of_charon(host, path)
    time.sleep(STALL_S)
    assert not lines(files), lines(files)
    assert cleartext_seen(lane.capture) == 0

    began = time.monotonic()
    reader.wait(timeout=BOUND_S)
    print(f"I/O failed after {2 * STALL_S + time.monotonic() - began:.1f} s")
    assert reader.returncode != 0, "the read fails"
    assert not lines(files), lines(files)

    # The other way round: without the barrier the initiator's next attempt to connect goes out in clear.
    near, far = path.initiator_address, path.target_address
    assert carry_out(Barrier("initiator", near, far).undo(), path.initiator.run) == []
    assert carry_out(Barrier("target", near, far).undo(), path.target.run) == []
    wait_for(lambda: bool(lines(files)), "cleartext once the barrier is gone", deadline_s=30)
    assert cleartext_seen(lane.capture) > 0


if __name__ == "__main__":
    main()
