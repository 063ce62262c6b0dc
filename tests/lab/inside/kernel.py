"""What scripts share: the state of their kernel, programs, runs, and things of "the user's own"."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.hosts import programs

HARNESS = str(Path(sys.executable).with_name("harness"))
RESULTS = Path("/root/results")
STARTED = Path("/root/started.log")
LIO = Path("/sys/kernel/config/target")
OF_PATHS = {"pppd", "pppoe", "pppoe-server", "ovsdb-server", "ovs-vswitchd", "ovs-testcontrol"}
DAEMONS = {"charon-systemd", "iscsid", "tcpdump", "fio", "dd", *OF_PATHS}
"""By comm, the 15 characters of a name that the kernel keeps."""
COUNTS = ("statistics", "_hits", "num_", "inst")
"""Parts of names in configfs of what counts or is numbered by itself."""
SEQUENCE_NUMBERS = re.compile(r"0x[0-9a-f]{8}")
"""Of the session in an ACL's `info`: they go on by themselves (RFC 7143, section 4.2.2)."""

OWN_IQN = "iqn.2003-01.org.example:own"
OWN_TARGET = f"""
import rtslib_fb as lio
store = lio.FileIOStorageObject("own", dev="/root/own.img", size=16 << 20, wwn="own-serial")
target = lio.Target(lio.FabricModule("iscsi"), "{OWN_IQN}", mode="create")
group = lio.TPG(target, 1, mode="create")
group.set_attribute("authentication", 0)
lun = lio.LUN(group, 0, store)
lio.NetworkPortal(group, "0.0.0.0", 3260, mode="create")
acl = lio.NodeACL(group, "iqn.2003-01.org.example:client", mode="create")
lio.MappedLUN(acl, 0, lun)
group.enable = True
"""

OWN_NETWORK = f"""\
netns add own
link add own0 type veth peer name own1 netns own
address add 10.9.0.1/24 dev own0
link set own0 up
xfrm state add src 10.9.0.1 dst 10.9.0.2 proto esp spi 0x99 reqid 7 mode transport \
 aead rfc4106(gcm(aes)) 0x{"42" * 20} 128
xfrm policy add src 10.9.0.1 dst 10.9.0.2 dir out \
 tmpl src 10.9.0.1 dst 10.9.0.2 proto esp reqid 7 mode transport
"""


SERVER = """
import socket, sys, threading
def serve(peer):
    while (count := int.from_bytes(peer.recv(8, socket.MSG_WAITALL), "big", signed=True)):
        if count < 0:
            peer.sendall(bytes(-count))
        while count > 0:
            count -= len(peer.recv(min(count, 1 << 16)))
        peer.sendall(b"!")
listening = socket.create_server(("", int(sys.argv[1])))
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
"""
"""Takes as many bytes as it is told, or gives as many (less than 0), and then says that it has."""


def exchange(peer: socket.socket, count: int) -> None:
    """Send so many bytes to such a server, or have them from it."""
    peer.sendall(count.to_bytes(8, "big", signed=True))
    peer.sendall(bytes(max(count, 0)))
    left = 1 + max(-count, 0)
    while left:
        data = peer.recv(min(left, 1 << 20))
        assert data, "the server went away"
        left -= len(data)


def assert_rate(
    to: tuple[str, int],
    parts: Sequence[float],
    expected_bit_s: float,
    tries_s: Iterable[float],
    *,
    least: float,
    most: float,
) -> None:
    """TCP moves so many bit/s to such a server: the parts at once, those below 0 from there. A busy machine
    makes it slower, so the best of some tries, each of which takes about so long; faster it never is."""

    def move(count: int) -> None:
        with socket.create_connection(to, 120) as peer:
            exchange(peer, count)

    best = 0.0
    for seconds in tries_s:
        counts = [round(part * expected_bit_s / 8 * seconds) for part in parts]
        began = time.monotonic()
        with ThreadPoolExecutor(len(counts)) as pool:
            list(pool.map(move, counts))
        found = sum(map(abs, counts)) * 8 / (time.monotonic() - began)
        print(f"{counts} bytes: {found / 1e6:.1f} Mbit/s of {expected_bit_s / 1e6:.1f}")
        assert found < most
        best = max(best, found)
        if best > least:
            return
    raise AssertionError(f"at best {best} of {least}")


def sh(*argv: str, check: bool = True, input: str = "") -> str:
    done = subprocess.run(
        argv, input=input, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    assert not check or done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def modprobe(*modules: str) -> None:
    for module in modules:
        sh("modprobe", *module.split())


def prepare_lio(*modules: str) -> None:
    """LIO with files for disks, and what else is to be loaded."""
    modprobe("target_core_mod", "target_core_file", "iscsi_target_mod", *modules)
    if not LIO.is_dir():
        sh("mount", "-t", "configfs", "configfs", "/sys/kernel/config")
    # rtslib would have LIO keep its files there.
    Path("/etc/rtslib-fb-target").mkdir(exist_ok=True)


def ip(netns: str, words: str) -> str:
    """ip(8) in a network namespace; "" is our own."""
    return sh("ip", *(("-n", netns) if netns else ()), *words.split())


def cable(*ends: tuple[str, str, str]) -> None:
    """Joins two interfaces that are up: the namespace of each, its name and its address."""
    (here, near, _), (there, far, _) = ends
    ip(here, f"link add {near} type veth peer name {far} netns {there}")
    for netns, iface, address in ends:
        ip(netns, f"address add {address} dev {iface}")
        ip(netns, f"link set {iface} up")


def within(netns: str) -> tuple[str, ...]:
    """What has a command run in a network namespace."""
    return ("nsenter", f"--net=/run/netns/{netns}", "--")


def make_the_user_s_own() -> None:
    """A target, xfrm objects, a namespace and a shaped link that somebody else uses on this kernel."""
    prepare_lio("xfrm_user", "esp4", "veth", "sch_netem")
    sh(programs.PYTHON, "-c", OWN_TARGET)
    sh("ip", "-batch", "-", input=OWN_NETWORK)
    sh("tc", "-batch", "-", input="qdisc add dev own0 root netem delay 1ms\n")
    Path("/etc/iscsi").mkdir(exist_ok=True)
    Path("/etc/iscsi/own.conf").write_text("# somebody's notes\n", encoding="utf-8")


def snapshot() -> dict[str, Any]:
    """All that a run on this kernel must leave as it was."""
    return {
        "xfrm states": sh("ip", "xfrm", "state"),
        "xfrm policies": sh("ip", "xfrm", "policy"),
        "links": sh("ip", "link"),
        "addresses": sh("ip", "address"),
        "routes": sh("ip", "route", "show", "table", "all"),
        "namespaces": sh("ip", "netns", "list"),
        "links of the namespace": sh("ip", "-n", "own", "link"),
        "queueing disciplines": sh("tc", "qdisc"),
        "LIO": dict(_configfs()),
        "sessions": sorted(map(str, Path("/sys/class/iscsi_session").glob("*"))),
        "mounts": Path("/proc/mounts").read_text(encoding="utf-8"),
        "/etc/iscsi": {str(p): _text(p) for p in Path("/etc/iscsi").rglob("*") if p.is_file()},
        "disks": sorted(map(str, Path("/sys/block").iterdir())),
        "brd": Path("/sys/module/brd").exists(),
        "daemons": sorted(name for name in processes().values() if name in DAEMONS),
        "files": sorted(_names()),
        "journals": sorted(map(str, Path("/run/harness").glob("journal-*"))),
    }


def _configfs() -> Iterator[tuple[str, str]]:
    for folder, folders, files in os.walk(LIO):
        yield folder, ""
        for name in folders + files:
            path = Path(folder, name)
            if path.is_symlink():
                yield str(path), str(path.readlink())
            elif path.is_file() and not any(part in str(path) for part in COUNTS):
                yield str(path), SEQUENCE_NUMBERS.sub("", _text(path)) if name == "info" else _text(path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return str(error)


def _names() -> Iterator[str]:
    # Of /run/harness the lock and an empty folder stay; the locks of open-iscsi and of iproute2, and
    # pppd's database, are theirs.
    # Not /tmp: the machine's shows through from below, and others may be at work there. In the lab, home is
    # in /run, and a table that was shown is kept in its .cache.
    ours = ("/run/harness", "/run/lock", "/run/results", "/run/pppd2.tdb", str(Path.home() / ".cache"))
    for top in ("/etc", "/run", "/dev/shm"):
        for folder, folders, files in os.walk(top):
            paths = [f"{folder}/{name}" for name in folders + files if name != "harness"]
            yield from (path for path in paths if not path.startswith(ours))


def differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    changed = [(what, _parts(before[what]), _parts(after[what])) for what in before]
    return "\n".join(f"{what}: gone {a - b}, new {b - a}" for what, a, b in changed if a != b)


@contextlib.contextmanager
def unchanged(what: str, state: Callable[[], dict[str, Any]] = snapshot) -> Iterator[None]:
    before = state()
    yield
    changed = differences(before, state())
    assert not changed, f"{what}:\n{changed}"


def _parts(value: Any) -> set[Any]:
    if isinstance(value, dict):
        return set(value.items())
    return set(value) if isinstance(value, list) else set(str(value).splitlines())


def processes() -> dict[int, str]:
    """The names of all processes of this kernel by their numbers, without those that are dead and waited for
    by nobody (proc_pid_stat(5), Z)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (entry / "stat").read_text(encoding="utf-8")
                name, _, rest = words.partition("(")[2].rpartition(")")
                if rest.split()[0] != "Z":
                    found[int(entry.name)] = name
    return found


def arguments(pid: int) -> list[str]:
    """Those of a process; none of one that is gone."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return line.decode(errors="replace").split("\0")[:-1]


def environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


BUSY = 10


def wait_for(condition: Callable[[], bool], what: str, *, deadline_s: float) -> None:
    """Waits for what comes within ``deadline_s`` on a quiet machine: on a busy one, ten times as long."""
    end = time.monotonic() + BUSY * deadline_s
    while not condition():
        assert time.monotonic() < end, f"waited {BUSY * deadline_s:g} s in vain for {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def serving(
    *argv: str, ready: Callable[[], bool], log: Path | None = None, deadline_s: float = 20
) -> Iterator[subprocess.Popen[bytes]]:
    """A program, from when it is ready until the context ends; in a group of its own, for some end theirs."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(log.open("wb")) if log else None
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        wait_for(ready, " ".join(argv), deadline_s=deadline_s)
        yield process


def iscsid() -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    unix = Path("/proc/net/unix")
    return serving("iscsid", "--foreground", ready=lambda: "@ISCSIADM" in unix.read_text(encoding="utf-8"))


def _command(words: Sequence[str]) -> list[str]:
    """What others on the machine disturb is taken as it is: to measure it again would take time."""
    is_new = words[0] == "run" and not any(word.startswith("--resume") for word in words)
    as_it_is = ["--retries=0"] if is_new else []
    return [HARNESS, *words, *as_it_is]


def harness(*words: str, status: int = 0, says: Sequence[str] = ()) -> str:
    """Run the command to its end, which has to have this status and to say this, wherever its lines are
    broken; all that it printed."""
    done = subprocess.run(
        _command(words), stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == status, f"status {done.returncode} of {words}: {said}"
    assert "Traceback" not in said, said
    for part in says:
        assert part in said or part in " ".join(said.split()), f"{part!r} is not in: {said}"
    return said


def measured(*words: str) -> dict[str, dict[str, Any]]:
    said = harness(*words)
    found = newest_records()
    assert found and all(record["status"] == "ok" for record in found.values()), f"{found}\n{said}"
    return found


@contextlib.contextmanager
def started(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The command, going on; killed when the context ends, if it has not ended by then."""
    with STARTED.open("wb") as log:
        process = subprocess.Popen(_command(words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def under_way(*words: str, event: str = "cell-ended") -> Iterator[subprocess.Popen[bytes]]:
    """A run, going on from when a cell of it has begun or, for ``cell-ended``, has ended and is ok."""
    for file in RESULTS.rglob("events.jsonl"):
        file.unlink()

    def has_come() -> bool:
        return any(each["event"] == event and each.get("status", "ok") == "ok" for each in newest_events())

    with started(words) as process:
        wait_for(lambda: has_come() or process.poll() is not None, event, deadline_s=60)
        assert process.poll() is None, started_said()
        yield process


def started_said() -> str:
    return STARTED.read_text(encoding="utf-8")


def newest_events() -> list[dict[str, Any]]:
    return events(newest_run()) if any(RESULTS.glob("*")) else []


def newest_run() -> Path:
    return max(RESULTS.iterdir(), key=lambda folder: folder.stat().st_mtime_ns)


def events(folder: Path) -> list[dict[str, Any]]:
    file = folder / "events.jsonl"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def records(folder: Path) -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_bytes()) for file in (folder / "cells").glob("*.json")}


def newest_records() -> dict[str, dict[str, Any]]:
    return records(newest_run())
