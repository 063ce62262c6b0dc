"""This kernel as a host: files that belong to a network namespace; and what every kind of host does alike."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from harness import hosts
from harness.hosts import Host, NamespaceHost, namespaces, of_each
from harness.hosts.black_box import BlackBoxHost
from harness.hosts.runner import await_condition
from harness.model.errors import CommandFailed, HarnessError, RequirementError

PATIENCE_S = 60.0
WORDS = [
    *("", "plain", "", "x", "", " ", "a b", "\t", "'", "''", "it's", "'\\''", '"', 'say "hi"'),
    *("$HOME", "${HOME}", "$(id)", "`id`", "$'a'", "\\", "\\\\", "a\\nb", "\\'", "; reboot"),
    *("new\nline", "\n", "a\n\nb\n", "*", "?", "[a]", "{a,b}", "~", "#", "!", "!!", "&", ";"),
    *("|", ">x", "<x", "-n", "--", "-e", "ü€\N{GRINNING FACE}", "\x01\x7f", ""),
]
"""What a shell would take for something else."""

LOOP = "trap 'echo bye; exit' TERM; echo ready >&2; printf '\\000\\377'; while :; do sleep 0.02; done"


def executable(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    await_condition(condition, deadline_s=PATIENCE_S, what=what)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def pid_in(file: Path) -> int:
    """The process whose number appears there, with a newline."""
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"), f"a process in {file}")
    return int(file.read_text(encoding="utf-8"))


def assert_not_entered(host: Host, argv: list[str], error: type[HarnessError], why: str, **more: Any) -> None:
    """The daemon is not there for anybody, and the error says why."""
    asked = {"ready": lambda: False, "deadline_s": PATIENCE_S, **more}
    with pytest.raises(error, match=why), host.daemon(argv, **asked):
        pytest.fail("it was entered")


class OfKernel(NamespaceHost):
    """A host of a kernel by that name."""

    @property
    def kernel(self) -> str:
        return self.name


def test_several_machines_are_asked_at_the_same_time() -> None:
    """Answers come in the order of the hosts, and the first error is raised. Those of one kernel are asked
    one after another."""
    here, there = (OfKernel(name) for name in "ab")
    met = threading.Barrier(2, timeout=PATIENCE_S)

    def both(host: OfKernel) -> str:
        met.wait()
        return host.kernel

    def refuse(host: OfKernel) -> str:
        raise CommandFailed(host.kernel)

    assert of_each([there, here], both) == ["b", "a"], "one after another would never meet"
    with pytest.raises(CommandFailed, match="b"):
        of_each([there, here], refuse)
    asking = of_each([here, here], lambda _: threading.current_thread())
    assert asking == [threading.current_thread()] * 2


class HostContract:
    """The fixture ``host`` is that of the module which inherits these tests."""

    where = ""
    """How errors name a machine that is not this one."""

    def test_a_program_is_run_to_its_end(self, host: Host) -> None:
        script = 'cat; echo "$A" >&2; exit 3'
        done = host.run(["sh", "-c", script], input="a\nß", check=False, env={"A": "b"})
        assert (done.argv[-3:], done.status) == (("sh", "-c", script), 3)
        assert (done.stdout, done.stderr) == ("a\nß", "b\n")
        assert host.run(["readlink", "/proc/self/fd/0"]).stdout == "/dev/null\n", "it has no input"
        assert host.run(["printf", r"%s\n|", *WORDS]).stdout == "".join(f"{word}\n|" for word in WORDS)
        assert host.run(["printf", r"a\377\000\303\251"]).stdout == "a\N{REPLACEMENT CHARACTER}\0é"
        # Big outputs and inputs come whole.
        done = host.run(["sh", "-c", "head -c 10000000 /dev/zero | tr '\\0' x; seq 300000 >&2"])
        assert done.stdout == "x" * 10_000_000 and done.stderr.splitlines()[-1] == "300000"
        assert host.run(["wc", "-c"], input="x" * 2_000_000).stdout.strip() == "2000000"

    def test_files_are_read_as_is_and_secrets_are_their_owner_s(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x\n\xff")
        paths = [str(tmp_path / "a"), str(tmp_path / "none"), str(tmp_path), "/proc/self/comm"]
        assert host.read_files(paths)[:3] == ["x\n\N{REPLACEMENT CHARACTER}", "", ""]
        file = tmp_path / "deep" / "er" / "secret"
        for text in ("sésame", "s"):
            host.write_secret(file, text)
            assert host.read_files([str(file)]) == [file.read_text(encoding="utf-8")] == [text]
            assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o077) == (0o600, 0)
            file.chmod(0o666)

    def test_a_program_that_fails_or_cannot_be_started_is_an_error(self, host: Host, tmp_path: Path) -> None:
        with pytest.raises(CommandFailed, match="sh -c 'exit 3'` ended with status 3"):
            host.run(["sh", "-c", "exit 3"])
        (tmp_path / "plain").write_text("#!/bin/sh\n", encoding="utf-8")
        for name in ("no-such-program", "/no/such/program", str(tmp_path / "plain"), str(tmp_path)):
            expected = f"expected the program {name}{self.where}, but"
            with pytest.raises(RequirementError, match=expected) as missing:
                host.run([name, "argument"], check=False)
            assert "doctor" in (missing.value.hint or "")
            assert_not_entered(host, [name], RequirementError, expected, log=tmp_path / "log")
        assert host.run(["echo", "on"]).stdout == "on\n"

    def test_a_program_that_is_late_is_killed_with_its_children(self, host: Host, tmp_path: Path) -> None:
        pid = tmp_path / "pid"
        pid.touch()
        argv = ["sh", "-c", 'sleep 987 & echo $! > "$1"; wait', "sh", str(pid)]
        for timeout_s in (0.3, 10.0):  # on a busy machine it may not have begun so soon
            began = time.monotonic()
            expected = rf"sh -c .*`{self.where} did not end within {timeout_s:g} s"
            with pytest.raises(CommandFailed, match=expected):
                host.run(argv, timeout_s=timeout_s, check=False)
            assert time.monotonic() - began < PATIENCE_S
            if pid.read_text(encoding="utf-8"):
                break
        child = pid_in(pid)
        wait_for(lambda: not is_alive(child), "the end of what it started")

    def test_a_daemon_runs_for_the_length_of_the_context(self, host: Host, tmp_path: Path) -> None:
        log, output = tmp_path / "log", tmp_path / "output"
        log.write_text("before\n", encoding="utf-8")
        argv = ["sh", "-c", f"echo $$ > {tmp_path}/pid; {LOOP}"]

        def is_ready() -> bool:  # in whatever order they come
            return (output.read_bytes(), log.read_bytes()) == (b"\0\xff", b"before\nready\n")

        asked: dict[str, Any] = {"log": log, "output": output, "ready": is_ready, "deadline_s": PATIENCE_S}
        with pytest.raises(ZeroDivisionError), host.daemon(argv, **asked):
            pid = pid_in(tmp_path / "pid")
            assert is_alive(pid) and os.getsid(pid) == pid
            raise ZeroDivisionError  # also if what it serves fails
        assert not is_alive(pid)
        assert output.read_bytes() == b"\0\xffbye\n", "its last words are heard"
        assert log.read_text(encoding="utf-8") == "before\nready\n"

    def test_a_daemon_that_ends_while_it_starts_says_why(self, host: Host, tmp_path: Path) -> None:
        """Its first words can come before the answer to the request itself."""
        for number in range(30):
            log = tmp_path / f"log{number}"
            began = time.monotonic()
            expected = "on the target ended while it started: no such thing"
            argv = ["sh", "-c", "echo no such thing >&2; exit 5"]
            assert_not_entered(host, argv, CommandFailed, expected, log=log, deadline_s=2 * PATIENCE_S)
            assert log.read_bytes() == b"no such thing\n"
            assert time.monotonic() - began < PATIENCE_S

    def test_a_daemon_that_is_never_ready_is_stopped(self, host: Host, tmp_path: Path) -> None:
        log, output, pid = tmp_path / "log", tmp_path / "output", tmp_path / "pid"

        def is_ready() -> bool:
            # It has to have begun, or it could not say goodbye.
            wait_for(lambda: output.read_bytes() != b"", "its first words")
            return False

        argv = ["sh", "-c", f"echo $$ > {pid}; {LOOP}"]
        expected = r"waited 0\.3 s in vain for `sh -c .*` on the target to become"
        asked = {"log": log, "output": output, "ready": is_ready, "deadline_s": 0.3}
        assert_not_entered(host, argv, CommandFailed, expected, **asked)
        assert output.read_bytes().endswith(b"bye\n") and not is_alive(pid_in(pid))

    def test_a_daemon_is_asked_by_signals_whether_it_has_ended(self, host: Host, tmp_path: Path) -> None:
        log = tmp_path / "log"  # of all that it prints
        script = "trap 'echo asked' USR1; trap 'exit 3' USR2; echo ready; while :; do sleep 0.02; done"

        def says(words: str) -> bool:
            return words in log.read_text(encoding="utf-8")

        argv = ["sh", "-c", script]
        with host.daemon(argv, log=log, ready=lambda: says("ready"), deadline_s=PATIENCE_S) as daemon:
            daemon.signal(signal.SIGUSR1)
            wait_for(lambda: says("asked"), "its answer")
            assert not daemon.ended()
            daemon.signal(signal.SIGUSR2)
            wait_for(daemon.ended, "its end")
            daemon.signal(signal.SIGUSR1)
            assert daemon.ended()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> NamespaceHost:
    """In a network namespace that is entered without being root: there is none."""
    monkeypatch.setattr(namespaces, "within", lambda _netns, act, *_undo: act())
    return NamespaceHost("target", "harness-beef-0")


def test_files_of_a_namespace(host: NamespaceHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"a": "one\ntwo\n", "empty": "", "blank": "\n\n", "unfinished": "x", "z": " 1: 2\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(hosts, "OF_ITS_READER", (str(tmp_path),))
    paths = [str(tmp_path / name) for name in texts]
    assert host.read_files(paths) == list(texts.values())
    none = str(tmp_path / "none")
    assert host.read_files([none, *paths[::-1], none]) == ["", *list(texts.values())[::-1], ""]
    assert [host.read_files([path]) for path in (paths[0], none)] == [["one\ntwo\n"], [""]]


def test_counters_of_the_namespace_are_read_as_they_are(host: NamespaceHost) -> None:
    devices, snmp = host.read_files(["/proc/net/dev", "/proc/net/snmp"])
    assert devices.startswith("Inter-|") and " lo:" in devices
    assert snmp.startswith("Ip: Forwarding") and "RetransSegs" in snmp


class TestThisKernel(HostContract):
    """In that namespace."""


@pytest.mark.parametrize("lists_itself", [True, False])
def test_folders_are_listed_by_a_program_or_without_one(tmp_path: Path, lists_itself: bool) -> None:
    host = NamespaceHost("initiator", lists_itself=lists_itself).in_netns("target", "netns")
    host = dataclasses.replace(host, netns=None)
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).mkdir()
    assert host.list_folder(str(tmp_path)) == ["a", "b"] and host.list_folder(f"{tmp_path}/a") == []
    with pytest.raises(CommandFailed, match=f"{tmp_path}/none.*No such file"):
        host.list_folder(f"{tmp_path}/none")


def test_a_target_that_is_only_reached_answers_no_question() -> None:
    host = BlackBoxHost()
    assert host.kernel != BlackBoxHost().kernel, "it shares a kernel with nobody"
    asked: tuple[Callable[[], object], ...] = (
        lambda: host.run(["true"]),
        lambda: host.run(["true"], check=False),
        lambda: host.read_files(["/proc/version"]),
        lambda: host.list_folder("/sys"),
        lambda: host.in_netns("other", "netns"),
        *(host.kernel_messages, host.clock_offset_ns),
        lambda: host.write_secret(Path("/run/secret"), "sésame"),
        lambda: host.reach(Path("/run/socket")),
        lambda: host.daemon(["sleep"], log=Path("log"), ready=lambda: True, deadline_s=1).__enter__(),
    )
    for ask in asked:
        with pytest.raises(CommandFailed, match="black-box") as refused:
            ask()
        assert "--target ssh://" in (refused.value.hint or "") and "sésame" not in refused.value.message


INSIDE = """
import subprocess, threading
from harness.hosts import NamespaceHost, namespaces
from harness.model.errors import RequirementError

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
    assert not there.run(["no-such-program"])
except RequirementError as error:
    assert "expected the program no-such-program" in str(error), error
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
    with pytest.raises(namespaces.NotEntered):
        namespaces.within("harness-none", lambda: pytest.fail("it was done"))
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
