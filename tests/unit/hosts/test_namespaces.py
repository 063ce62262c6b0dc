"""Acting in a network namespace: where it may be entered, and what comes back of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from harness.hosts import NamespaceHost, namespaces

INSIDE = """
import subprocess, threading
from harness.hosts import NamespaceHost, namespaces

made = "mount -t tmpfs tmpfs /run && ip netns add there && ip -n there link set lo up"
subprocess.run(made, shell=True, check=True)
here, there = NamespaceHost("here"), NamespaceHost("there", "there")
counters = "/proc/sys/net/ipv4/ip_forward"
# A new namespace has it from the first, where Docker's daemon turns it on.
subprocess.run(["sh", "-c", f"echo 0 > {counters}"], check=True)
subprocess.run(["nsenter", "--net=/run/netns/there", "sh", "-c", f"echo 1 > {counters}"], check=True)
assert there.read_files([counters, "/proc/no such file"]) == ["1\\n", ""]
assert here.read_files([counters]) == ["0\\n"]
up = ["ip", "-br", "link", "show", "dev", "lo"]
assert "UNKNOWN" in there.run(up).stdout and "DOWN" in here.run(up).stdout
assert "lo" in there.read_files(["/proc/net/dev"])[0]
table = "/proc/net/fib_trie"
subprocess.run(["ip", "-n", "there", "address", "add", "198.18.0.9/32", "dev", "lo"], check=True)
assert "198.18.0.9" in there.read_files([table])[0] and "198.18.0.9" not in here.read_files([table])[0]
inodes = {host: host.run(["readlink", "/proc/self/ns/net"]).stdout for host in (here, there, here)}
assert inodes[here] != inodes[there]
try:
    there.run(["no-such-program"])
except Exception as error:
    assert "expected the program no-such-program" in str(error), error
else:
    raise AssertionError
# Deleted, it is gone: the thread that was in it has left it.
subprocess.run(["ip", "netns", "del", "there"], check=True)
done = there.run(["true"], check=False)
assert done.status == 1 and "No such file or directory" in done.stderr, done
print("all seen")
"""


def test_programs_and_files_are_those_of_the_namespace() -> None:
    apart = ["unshare", "--map-root-user", "--mount", "--net"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces are refused here")
    argv = [*apart, sys.executable, "-c", INSIDE]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "all seen\n", done.stderr


def test_an_absent_namespace_is_not_entered_and_nothing_is_done() -> None:
    done: list[int] = []
    with pytest.raises(namespaces.NotEntered):
        namespaces.within("harness-none", lambda: done.append(1))
    assert not done
    assert NamespaceHost("none", "harness-none").run(["true"], check=False).status != 0


def test_what_an_interrupted_caller_made_is_undone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(namespaces, "_enter", lambda _file: None)
    monkeypatch.setattr(namespaces, "NETNS", tmp_path)
    (tmp_path / "any").touch()
    undone: list[str] = []

    class Later(Future[object]):
        asked = False

        def result(self, timeout: float | None = None) -> object:
            if not self.asked:
                self.asked = True
                raise KeyboardInterrupt
            return super().result(timeout)

    class Threads:
        def submit(self, do: Callable[..., object], *words: object) -> Later:
            later = Later()
            later.set_running_or_notify_cancel()
            later.set_result(do(*words))
            return later

    monkeypatch.setattr(namespaces, "_threads", Threads)
    with pytest.raises(KeyboardInterrupt):
        namespaces.within("any", lambda: "made", undone.append)
    assert undone == ["made"]
