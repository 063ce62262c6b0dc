"""Hosts over SSH: addresses, quoting, what becomes of a connection, what ssh has to say, and relayed sockets.

ssh(1) is a script here that does with its last word what sshd does: it has a shell carry it out. What the
agent needs root for (unshare, mount, sudo) are scripts too; all else is real.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shlex
import signal
import socket
import stat
import subprocess
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from harness.hosts import Host, programs, remote
from harness.hosts.programs.local_operations import CHUNK_BYTES, RELAY_WINDOW
from harness.hosts.remote import AgentHost, reaching
from harness.hosts.runner import LARGEST_LOG_BYTES
from harness.hosts.undo import UndoEntry, UndoStep
from harness.model.errors import (
    BusyError,
    CommandFailed,
    HarnessError,
    HostLost,
    RequirementError,
    UsageError,
)
from harness.parse.hosts import HostAddress, parse_address
from tests.unit.agents import agent_source
from tests.unit.hosts.test_hosts import (
    PATIENCE_S,
    WORDS,
    HostContract,
    assert_not_entered,
    executable,
    is_alive,
    pid_in,
    wait_for,
)

pytestmark = pytest.mark.thorough

NAS = "ssh://root@nas:2222"
Connected = contextlib.AbstractContextManager[AgentHost]
Connect = Callable[..., Connected]
SEVERAL_WINDOWS = 4 * RELAY_WINDOW * CHUNK_BYTES

SSH = """\
printf '%s\\0' "$@" > "$(dirname "$0")/ssh.words"
for last; do :; done
exec sh -c "$last"
"""
UNSHARE = 'while [ "$1" != /usr/bin/python3 ]; do shift; done\nexec "$@"'
SUDO = 'test "$1" = -n || exit 9\nshift\nexec "$@"'


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs found before the machine's own."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in (("ssh", SSH), ("unshare", UNSHARE), ("sudo", SUDO), ("mount", ""), ("umount", "")):
        executable(folder / name, text)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def connect(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Connects as a run does, to an agent with its state in the test's folder."""
    del tools
    # Some tests take away what the agent would wait for.
    source = agent_source(tmp_path / "state", stop_s=2.0)
    monkeypatch.setattr(programs, "source", lambda _room, name: {"agent": source}[name])
    # Where root has made runs before, others may not even look.
    monkeypatch.setattr(remote, "PRIVATE", tmp_path / "private")

    def connect(text: str = NAS, role: str = "target", run_id: str = "run-1") -> Connected:
        log = tmp_path / "ssh.log"
        return remote.connect(parse_address(text, role), role=role, name=role, run_id=run_id, log=log)

    return connect


def signal_all(host: AgentHost, number: int) -> None:
    """ssh, and here the agent as well; programs that it has started are in sessions of their own."""
    os.killpg(host.connection.dialogue.process.pid, number)


def says(host: Host, word: str) -> bool:
    return host.run(["echo", word]).stdout == f"{word}\n"


def note(host: Host, what: str, *argv: str) -> None:
    """Something that is up there until its undoing."""
    assert host.ledger is not None
    host.ledger.open(UndoEntry(what, (UndoStep(argv),)))


@pytest.fixture
def host(connect: Connect) -> Iterator[AgentHost]:
    with connect() as host:
        yield host


def test_an_address_is_reported_to_ssh_in_words() -> None:
    for text, words in (
        ("ssh://nas", "nas"),
        ("ssh://nas/", "nas"),
        ("ssh://nas_2.home.example", "nas_2.home.example"),
        ("ssh://10.0.0.7", "10.0.0.7"),
        ("ssh://root@nas", "-l root nas"),
        ("ssh://me.you+x-y@nas:22", "-p 22 -l me.you+x-y nas"),
        ("ssh://nas:65535", "-p 65535 nas"),
        ("ssh://[fe80::1]", "fe80::1"),
        ("ssh://root@[2001:db8::7]:2222/", "-p 2222 -l root 2001:db8::7"),
    ):
        address = parse_address(text, "target")
        assert (address.text, address.is_local, address.ssh_words()) == (text, False, words.split())
    assert parse_address("local", "initiator").is_local


def test_anything_else_is_refused_in_a_sentence() -> None:
    no_addresses = [
        *("", " ", "nas", "root@nas", "LOCAL", "local ", "ssh:nas", "ssh://", "ssh:///", "ssh:///nas"),
        *("SSH://nas", "http://nas", "ssh://-oProxyCommand=x", "ssh://-oProxyCommand=touch PWNED"),
        *("ssh://root@-oProxyCommand=x", "ssh://-oProxyCommand=x@nas", "ssh://-lroot@nas", "ssh://nas;id"),
        *("ssh://$(id)", "ssh://nas%2f", "ssh:// nas", "ssh://nas ", "ssh://root @nas", "ssh://@nas"),
        *("ssh://user@", "ssh://user@:22", "ssh://root:secret@nas", "ssh://a@b@nas", "ssh://$USER@nas"),
        *(
            "ssh://nas:",
            "ssh://nas:0",
            "ssh://nas:00000",
            "ssh://nas:65536",
            "ssh://nas:222222",
            "ssh://nas:-22",
        ),
        *(
            "ssh://nas:\N{FULLWIDTH DIGIT TWO}",
            "ssh://nas/path",
            "ssh://nas//",
            "ssh://nas?x",
            "ssh://nas:ssh",
        ),
        *("ssh://fe80::1", "ssh://[fe80::1", "ssh://fe80::1]", "ssh://[]", "ssh://[-oX]", "ssh://[nas]"),
        *("ssh://.nas", "ssh://näs", "ssh://rööt@nas", "ssh://nas\0", "ssh://root\0@nas", "ssh://nas\n"),
        *(
            "ssh://nas\nroot",
            "\nssh://nas",
            "ssh://nas\r",
            "ssh://nas\x1b[31m",
            "ssh://nas\N{RIGHT-TO-LEFT OVERRIDE}",
        ),
    ]
    for text in no_addresses:
        with pytest.raises(UsageError) as refused:
            parse_address(text, "target")
        words = "expected target as ssh://[USER@]HOST[:PORT] or local, found "
        assert refused.value.message.startswith(words) and refused.value.message.isprintable(), text
        assert refused.value.hint == "try --target ssh://root@server"
        # A port's range is asked there alone.
        if not 0 < len(text) - len("ssh://nas") < 7 or ":" not in text[6:]:
            with pytest.raises(UsageError):
                HostAddress(text).ssh_words()


def test_words_come_through_the_shell_of_another_machine_unchanged() -> None:
    argv = reaching(parse_address(NAS, "target"), ["printf", r"%s\0", *WORDS])
    for shell in ("sh", "bash"):
        done = subprocess.run([shell, "-c", argv[-1]], capture_output=True, check=True)
        assert done.stdout == "".join(f"{word}\0" for word in WORDS).encode(), shell


def test_ssh_asks_nobody_trusts_nobody_and_shares_nothing() -> None:
    argv = reaching(parse_address(NAS, "target"), ["true"])
    assert argv[:2] == ["ssh", "-T"]
    assert argv[-7:] == ["-p", "2222", "-l", "root", "nas", "--", "true"]
    wanted = (
        "BatchMode=yes StrictHostKeyChecking=yes ForwardAgent=no ForwardX11=no ClearAllForwardings=yes "
        "PermitLocalCommand=no RemoteCommand=none ControlPath=none ServerAliveInterval=5 "
        "ServerAliveCountMax=3 ConnectTimeout=15"
    )
    assert {f"-o{option}" for option in wanted.split()} <= set(argv)
    assert not any("UserKnownHostsFile" in word for word in argv), "the user's own serve"
    # One line for any shell: csh(1) quotes no newline and no exclamation mark, and fish(1) no backslash.
    line = reaching(HostAddress(NAS), remote.launch_command(12345))[-1]
    assert not set("\n\r\\!") & set(line)
    inner = shlex.split(line)
    assert (inner[:2], inner[-1]) == (["sh", "-c"], "12345")
    assert all("'" not in word for word in inner)


def test_the_real_ssh_understands_the_command_line() -> None:
    """-G prints what it would do, and goes nowhere."""
    argv = reaching(parse_address("ssh://me@[2001:db8::7]:2222", "target"), ["true"])
    try:
        done = subprocess.run([argv[0], "-G", "-F", "none", *argv[1:]], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no ssh here")
    assert done.returncode == 0, done.stderr
    reported = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert (reported["hostname"], reported["user"], reported["port"]) == ("2001:db8::7", "me", "2222")
    assert (reported["batchmode"], reported["forwardagent"]) == ("yes", "no")
    assert reported["stricthostkeychecking"] in ("yes", "true")


class TestOverSsh(HostContract):
    where = " on the target"


def test_ssh_is_called_once_and_carries_everything(host: AgentHost, tools: Path) -> None:
    (tools / "ssh").unlink()
    words = (tools / "ssh.words").read_text(encoding="utf-8").split("\0")
    assert words[: words.index("nas")][-4:] == ["-p", "2222", "-l", "root"]
    assert isinstance(host.kernel_messages(), list)
    assert (host.netns, host.recovered) == (None, ((), ()))
    with pytest.raises(CommandFailed, match="the target could not do it: ValueError: embedded null byte"):
        host.run(["echo", "a\0b"])
    assert says(host, "on")


def test_a_login_shell_may_greet_first_and_root_may_not_be_needed(connect: Connect, tools: Path) -> None:
    greetings = [
        'printf \'Welcome to NAS\\n\\n{"hello": \\n{}\\n[1]\\nnull\\n"x"\\n\'',
        *("printf 'no newline at the end: '", "printf '\\377\\000\\033[31m\\n'"),
        *("seq 10000", "echo to the log >&2"),
    ]
    for address, program, text in (
        ("local", "ssh", "exit 1"),  # none is needed to this machine
        *((NAS, "ssh", f"{said}\n{SSH}") for said in greetings),
        (NAS, "id", "echo 1000"),  # sudo where root is not
    ):
        executable(tools / program, text)
        with connect(address) as host:
            assert says(host, "hi"), text


def test_many_ask_at_once(host: AgentHost, tmp_path: Path) -> None:
    # Each waits until all have begun.
    script = 'cd "$1"; touch "$2"; until [ "$(ls | wc -l)" = 16 ]; do sleep 0.05; done; seq "$2" "$2"000'
    (tmp_path / "begun").mkdir()

    def ask(number: int) -> list[str]:
        argv = ["sh", "-c", script, "sh", str(tmp_path / "begun"), str(number)]
        return host.run(argv, timeout_s=PATIENCE_S).stdout.split()

    with ThreadPoolExecutor(16) as threads:
        for number, said in enumerate(threads.map(ask, range(1, 17)), 1):
            assert (said[0], said[-1]) == (str(number), f"{number}000")


def test_who_gives_up_has_it_killed(host: AgentHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_answers: object, _timeout_s: float) -> None:
        pid_in(tmp_path / "pid")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(host.connection, "answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            host.run(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 77"])
    wait_for(lambda: not is_alive(pid_in(tmp_path / "pid")), "the program to end")


def test_a_disk_that_is_full_here_is_not_passed_over(host: AgentHost, tmp_path: Path) -> None:
    """What was captured would lack something, and look as if nothing had been sent."""
    expected = "its output could not be written: No space left on device"
    assert_not_entered(host, ["yes"], HostLost, expected, log=tmp_path / "log", output=Path("/dev/full"))
    with pytest.raises(HostLost):
        host.run(["true"])


def test_what_is_brought_up_is_written_down_there(host: AgentHost, tmp_path: Path) -> None:
    assert host.ledger is not None
    number = host.ledger.open(UndoEntry("Thing a", (UndoStep(("true",)),)))
    (journal,) = (tmp_path / "state").glob("agent-*.jsonl")
    assert '"Thing a"' in journal.read_text(encoding="utf-8")
    host.ledger.close(number)
    assert len(journal.read_text(encoding="utf-8").splitlines()) == 2


def test_what_is_up_is_taken_down_at_the_end_or_by_the_next_run(connect: Connect, tmp_path: Path) -> None:
    state, undone, allowed = (tmp_path / name for name in ("state", "undone", "allowed"))
    with connect() as host:
        note(host, "Thing b", "touch", str(undone))
    assert undone.exists() and not state.exists()
    undone.unlink()
    with connect() as host:
        note(host, "Thing a", "test", "-e", str(allowed))
        note(host, "Thing b", "touch", str(undone))
        signal_all(host, signal.SIGKILL)
        with pytest.raises(HostLost):
            host.run(["true"])
    assert not undone.exists()
    with connect() as host:
        assert host.recovered == (("Thing b",), (f"Thing a: test -e {allowed}: ",))
    allowed.touch()
    with connect() as host:
        assert host.recovered == (("Thing a",), ())


BOOTS = """\
test "$1" = reboot || exit 9
echo "$PPID" > {boot}
# The kernel ends all, and what was in memory is gone.
( sleep 0.2; kill -KILL "$PPID"; rm -rf {state} ) > /dev/null 2>&1 &
"""


def test_a_machine_that_boots_anew_goes_on_with_what_lasts(
    connect: Connect, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot, state, undone = (tmp_path / name for name in ("boot", "state", "undone"))
    boot.write_text("first")
    executable(tools / "systemctl", BOOTS.format(boot=boot, state=state))
    monkeypatch.setattr(remote, "BOOT_ID", str(boot))
    monkeypatch.setattr(remote, "REBOOT_POLL_S", 0.1)
    with (
        connect() as host,
        host.daemon(["sleep", "60"], log=tmp_path / "log", ready=lambda: True, deadline_s=60) as daemon,
    ):
        assert host.ledger is not None and host.boots == 0
        of_disk = UndoEntry("a file", (UndoStep(("touch", str(undone))),), lasting=True)
        number = host.ledger.open(of_disk)
        note(host, "of the kernel", "touch", str(tmp_path / "never"))
        host.reboot(60)
        assert host.boots == 1 and says(host, "hi") and daemon.ended()
        assert not undone.exists()
        with pytest.raises(BusyError), connect(run_id="run-2"):
            pytest.fail("it does not keep others out")
        signal_all(host, signal.SIGKILL)
        with pytest.raises(HostLost):
            host.ledger.close(number)
    assert not undone.exists() and not (tmp_path / "never").exists()
    with connect() as host:
        assert host.recovered == (("a file",), ())
    assert undone.exists()


def test_a_machine_that_does_not_come_back_is_lost(
    connect: Connect, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (boot := tmp_path / "boot").write_text("always the same")
    executable(tools / "systemctl", "( sleep 0.2; kill -KILL $PPID ) > /dev/null 2>&1 &")
    monkeypatch.setattr(remote, "BOOT_ID", str(boot))
    monkeypatch.setattr(remote, "REBOOT_POLL_S", 0.1)
    with connect() as host, pytest.raises(HostLost, match="it has not come back within 1 s after the run"):
        host.reboot(1)


def test_a_machine_that_refuses_to_reboot_is_as_before(connect: Connect, tools: Path, tmp_path: Path) -> None:
    executable(tools / "systemctl", "echo no >&2; exit 1")
    with connect() as host:
        note(host, "Thing a", "touch", str(tmp_path / "undone"))
        with pytest.raises(CommandFailed, match="the target could not do it"):
            host.reboot(1)
        assert host.boots == 0 and says(host, "hi")
    assert (tmp_path / "undone").exists()


def test_a_second_run_is_refused(connect: Connect, tmp_path: Path) -> None:
    with connect() as host:
        with pytest.raises(BusyError) as refused, connect(run_id="run-2"):
            pytest.fail("there are two")
        assert refused.value.message == f"the target ({NAS}) is in use by run run-1"
        with connect(role="initiator") as other:
            assert says(other, "hi")
        assert says(host, "on")
    assert not (tmp_path / "state").exists()


def test_a_host_that_is_lost_is_reported_to_all_who_wait_and_who_ask(host: AgentHost, tmp_path: Path) -> None:
    lost_s = time.monotonic()
    with (
        ThreadPoolExecutor(3) as threads,
        pytest.raises(HostLost),
        host.daemon(["sleep", "60"], log=tmp_path / "log", ready=lambda: True, deadline_s=PATIENCE_S),
    ):
        asking = [threads.submit(host.run, ["sleep", "60"], timeout_s=60) for _ in range(3)]
        signal_all(host, signal.SIGKILL)
        raised = [each.exception(PATIENCE_S) for each in asking]
        for call in (
            lambda: host.run(["true"]),
            lambda: host.read_files(["/proc/self/comm"]),
            lambda: host.write_secret(tmp_path / "x", ""),
            host.kernel_messages,
        ):
            with pytest.raises(HostLost):
                call()
        assert host.ledger is not None
        host.ledger.close(1)
    assert time.monotonic() - lost_s < 30, "long before what runs there would have ended"
    assert [type(error) for error in raised] == [HostLost] * 3
    assert str(raised[0]).startswith("the target was lost in the middle of the run: the connection ended (")
    assert "undoes the run there itself, within 30 s; " in raised[0].hint  # type: ignore[union-attr]


def test_a_daemon_of_a_lost_host_is_not_said_to_have_ended(host: AgentHost, tmp_path: Path) -> None:
    def kill() -> bool:
        signal_all(host, signal.SIGKILL)
        return False

    asked = {"log": tmp_path / "log", "ready": kill}
    assert_not_entered(host, ["sleep", "60"], HostLost, "the target was lost", **asked)


def test_a_host_that_does_not_answer_is_given_up(host: AgentHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ANSWER_GRACE_S", 0.2)
    signal_all(host, signal.SIGSTOP)
    with pytest.raises(HostLost, match=r"it has not answered for 0\.5 s"):
        host.run(["true"], timeout_s=0.3)
    with pytest.raises(HostLost):
        host.run(["true"])
    signal_all(host, signal.SIGKILL)


def test_without_beats_it_ends(connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert remote.BEAT_S * 3 < remote.DEADMAN_S
    monkeypatch.setattr(remote, "DEADMAN_S", 1.0)
    with connect() as host:
        note(host, "Thing a", "touch", str(tmp_path / "undone"))
        wait_for((tmp_path / "undone").exists, "the undoing")
        with pytest.raises(HostLost):
            host.run(["true"])
    monkeypatch.setattr(remote, "BEAT_S", 0.1)

    def is_kept(deadman_s: float) -> bool:
        monkeypatch.setattr(remote, "DEADMAN_S", deadman_s)
        with contextlib.suppress(HostLost), connect() as host:
            time.sleep(2 * deadman_s)
            return says(host, "on")
        return False

    # A busy machine may keep beats back for too long.
    assert is_kept(0.6) or is_kept(10.0)


def refused(connect: Connect) -> HarnessError:
    with pytest.raises(RequirementError) as error, connect():
        pytest.fail("it was connected")
    assert "\n" not in error.value.message
    return error.value


def test_words_without_end_or_none(connect: Connect, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tools / "ssh", "exec yes welcome")
    began = time.monotonic()
    assert "the target could not be reached" in refused(connect).message
    assert time.monotonic() - began < remote.HELLO_DEADLINE_S
    monkeypatch.setattr(remote, "HELLO_DEADLINE_S", 0.3)
    # A child of its own holds the pipes when it is killed, as a ProxyCommand does.
    executable(tools / "ssh", "sleep 40\n:")
    began = time.monotonic()
    error = refused(connect)
    assert time.monotonic() - began < 30
    assert error.message == "the target could not be reached: it said nothing for 0.3 s"
    assert error.hint == "try ssh to it by hand"


CHANGED = """\
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Offending ED25519 key in /home/me/.ssh/known_hosts:4
Host key for nas has changed and you have requested strict checking.
Host key verification failed.
"""
UNKNOWN = "No ED25519 host key is known for nas and you have ...\r\nHost key verification failed.\r\n"
NO_PYTHON = "unshare: failed to execute /usr/bin/python3: No such file or directory\n"
NO_NAME = "ssh: Could not resolve hostname nas: Name or service not known\r\n"
TO_NAS = "ssh: connect to host nas port 22: "


def test_what_ssh_says_comes_with_what_to_try(connect: Connect, tools: Path, tmp_path: Path) -> None:
    # What an earlier connection said is not taken for this one's.
    (tmp_path / "ssh.log").write_text("me: Host key verification failed earlier.\n", encoding="utf-8")
    executable(tools / "ssh", f"cat {tmp_path}/said >&2\nexit 255\n")
    by_hand = "try ssh to it by hand"
    for said, shown, hint in (
        (UNKNOWN, "Host key verification failed.", "connect once by hand with ssh, and compare the finger"),
        (CHANGED, "Host key for nas has changed", "find out why before anything else"),
        ("root@nas: Permission denied (publickey,password).\r\n", "Permission denied", "`ssh-add` one"),
        (NO_NAME, "Could not resolve hostname nas", "check the name"),
        (f"{TO_NAS}Connection refused\r\n", "refused", "is sshd running"),
        (f"{TO_NAS}Connection timed out\r\n", "timed out", "is the machine on"),
        (f"{TO_NAS}No route to host\r\n", "No route", "is the machine on"),
        ("sudo: a password is required\n", "a password is required", "NOPASSWD"),
        ("sh: 1: exec: sudo: not found\n", "sudo: not found", "install sudo there"),
        ("me is not in the sudoers file.\nsudo: a password is required\n", "sudoers", "NOPASSWD"),
        ("sudo: unshare: command not found\n", "unshare", "install util-linux"),
        ("sh: 1: exec: unshare: not found\n", "unshare", "install util-linux"),
        (NO_PYTHON, "python3", "install python3 there"),
        ("unshare: unshare failed: Operation not permitted\n", "not permitted", "CAP_SYS_ADMIN"),
        ("sh: not found\n", "sh: not found", "sh, util-linux and python3"),
        ("kex_exchange_identification: odd\x1b[31m\n", r"odd\x1b[31m", by_hand),
        ("", "the connection ended", by_hand),
    ):
        (tmp_path / "said").write_text(said, encoding="utf-8")
        error = refused(connect)
        assert error.message.startswith("the target could not be reached: ")
        assert shown in error.message and error.message.isprintable()
        assert hint in (error.hint or "") and "earlier" not in error.message


def test_without_ssh_or_the_right_to_mount_that_is_said(
    connect: Connect, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tools / "mount", "exit 32")
    with monkeypatch.context() as patch:
        patch.setattr(remote, "PRIVATE", tmp_path / "state" / "private")
        expected = "the target could not do it: CalledProcessError: "
        with pytest.raises(CommandFailed, match=expected), connect():
            pytest.fail("it was connected")
    assert not (tmp_path / "state").exists()
    (tools / "ssh").unlink()
    path = {"PATH": str(tools)}
    monkeypatch.setattr("harness.hosts.runner.environment", lambda extra=None: path | (extra or {}))
    monkeypatch.setenv("PATH", str(tools))
    assert "expected the program ssh" in refused(connect).message


HOSTILE = """\
#!/usr/bin/python3 -I
import json, os, sys

size = {size}
while size:
    size -= len(os.read(0, size))


def say(data):
    while data:
        data = data[os.write(1, data):]


say(b'{{"hello": 1}}\\n')
for request in map(json.loads, sys.stdin):
    number = request.get("id", 0)
    if request["do"] == "end":
        sys.exit()
    if request["do"] == "begin" and {honest_begin}:
        say(json.dumps({{"id": number, "removed": [], "failed": []}}).encode() + b"\\n")
    elif number:
{harm}
"""
"""What answers in the agent's place."""


def hostile(tools: Path, harm: str, *, honest_begin: bool = True) -> None:
    size, lines = len(remote._program().encode()), textwrap.indent(harm, " " * 8)
    text = HOSTILE.format(size=size, harm=lines, honest_begin=honest_begin)
    (tools / "ssh").write_text(text, encoding="utf-8")


def test_answers_of_other_types_are_a_host_lost(
    connect: Connect, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[object] = [
        *([1], 7, None, {"id": [1]}, {"id": {}}, {"id": 1, "out": 7}, {"id": 1, "out": "***"}),
        {"id": 2, "status": "0", "stdout": "", "stderr": ""},
        {"id": 2, "status": 0, "stdout": ["x"], "stderr": ""},
        {"id": 2, "error": {"a": 1}},
        {"id": 1, "removed": 7, "failed": {}},
        {"id": 2, "texts": [1, None], "lines": "x", "offset_ns": "soon"},
    ]
    for answer, (honest_begin, grace_s) in itertools.product(answers, ((True, 0.5), (False, -119))):
        monkeypatch.setattr(remote, "ANSWER_GRACE_S", grace_s)
        hostile(tools, f"say({msgspec.json.encode(answer)!r} + b'\\n')", honest_begin=honest_begin)
        with pytest.raises(HarnessError) as error, connect() as host:
            host.run(["true"], timeout_s=0.1)
            host.read_files(["/x", "/y"])
            host.kernel_messages()
            host.clock_offset_ns()
            with host.daemon(["x"], log=tmp_path / "log", ready=lambda: True, deadline_s=5):
                raise CommandFailed("it understood all of it")
        assert "\n" not in error.value.message, answer


def test_what_has_no_end_or_was_not_asked_for_is_not_kept(connect: Connect, tools: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for harm, found in (
        ("say(b'{\"id\": 2, \"x\": ' + b'[' * 200000 + b'\\n')", "something that is not the agent's output"),
        ("while True: say(b'x' * (1 << 20))", "a line that did not end within 32 MiB"),
    ):
        hostile(tools, harm)
        with pytest.raises(HostLost, match=found), connect() as host:
            host.run(["true"], timeout_s=60)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10, "KiB"
    for_ever = "line = json.dumps({'id': number, 'data': 'x' * 80000}).encode() + b'\\n'\nwhile 1: say(line)"
    hostile(tools, f"say(json.dumps({{'id': number}}).encode() + b'\\n')\n{for_ever}")
    with connect() as host, host.reach(Path("/there")) as near, socket.socket(socket.AF_UNIX) as reader:
        reader.connect(str(near))  # and nothing is read
        wait_for(lambda: host.connection.lost is not None, "the end")
        assert host.connection.lost == "it sent more than it was asked for"


def test_log_limits(connect: Connect, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    monkeypatch.setattr("harness.hosts.runner.LARGEST_LOG_BYTES", 100_000)
    executable(tools / "ssh", f"head -c 50000000 /dev/zero | tr '\\0' x >&2\n{SSH}")
    with connect() as host:
        assert says(host, "hi"), "it is listened to all the same"
        argv = ["sh", "-c", "head -c 5000000 /dev/zero >&2; echo done; exec sleep 60"]
        with host.daemon(argv, log=log, output=out, ready=lambda: out.read_text() == "done\n", deadline_s=60):
            pass
    for file in (tmp_path / "ssh.log", log):
        data = file.read_bytes()
        assert 100_000 < len(data) < 100_100 and data.endswith(b"(the rest was left out)\n")


def test_what_drives_a_terminal_or_has_no_end_is_a_sentence(connect: Connect, tools: Path) -> None:
    many = "head -c 1000000 /dev/zero | tr '\\0' x"
    executable(tools / "ssh", f"{many} >&2; printf '\\033[2J\\377' >&2; exit 255")
    errors = [refused(connect)]
    words = "\n".join(["\x1b]0;x\x07", "x" * 10**6, "\x1b]0;x\x07"])
    for field in ("error", "missing"):
        hostile(tools, f"say(json.dumps({{'id': number, {field!r}: {words!r}}}).encode() + b'\\n')")
        with pytest.raises(HarnessError) as error, connect() as host:
            host.run(["true"])
        errors.append(error.value)
    assert all(each.message.isprintable() and len(each.message) < 2000 for each in errors)


def test_a_machine_that_is_asked_once_is_not_listened_to_for_ever() -> None:
    for to in ("", ">&2"):
        argv = ["sh", "-c", f"cat; head -c 300000000 /dev/zero {to}; echo end"]
        answer = remote.asked_once(argv, "hello", within_s=PATIENCE_S)
        assert answer is not None
        said, errors = answer
        assert said.startswith("hello") and len(said) <= 2 * remote.LARGEST_LOOK_BYTES
        assert len(errors) <= LARGEST_LOG_BYTES + 100 and said.endswith("end\n") == bool(to)
    began = time.monotonic()
    assert remote.asked_once(["sleep", "60"], "hello", within_s=0.3) is None
    assert time.monotonic() - began < 30


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        yield listener


@pytest.fixture
def near(host: AgentHost, tmp_path: Path) -> Iterator[Path]:
    """Where the listener can be reached here."""
    with host.reach(tmp_path / "s") as near:
        yield near


@contextlib.contextmanager
def connected(near: Path, listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of one relayed connection: the one here, the host's."""
    with socket.socket(socket.AF_UNIX) as here:
        here.settimeout(PATIENCE_S)
        here.connect(str(near))
        there, _ = listener.accept()
        there.settimeout(PATIENCE_S)
        with there:
            yield here, there


def received(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := end.recv(1 << 20)):
        data += more
    return data


def test_bytes_arrive_whole_and_in_order_both_ways(near: Path, listener: socket.socket) -> None:
    blob = os.urandom(SEVERAL_WINDOWS)
    with connected(near, listener) as ends:
        for sender, receiver in (ends, reversed(ends)):
            sending = threading.Thread(target=sender.sendall, args=(blob,))
            sending.start()
            assert received(receiver, len(blob)) == blob
            sending.join()
    # What was sent before the end still arrives.
    for number in (0, 1):
        with connected(near, listener) as ends:
            closing, other = ends[number], ends[1 - number]
            closing.sendall(b"last words")
            closing.close()
            assert received(other, 100) == b"last words"


def test_who_does_not_read_holds_up_nobody(host: AgentHost, near: Path, listener: socket.socket) -> None:
    with connected(near, listener) as (here, _there), connected(near, listener) as (fast, echo):
        here.settimeout(0.2)
        with pytest.raises(TimeoutError):
            here.sendall(bytes(100 * SEVERAL_WINDOWS))
        fast.sendall(b"ping")
        assert received(echo, 4) == b"ping"
        assert host.run(["echo", "well"]).stdout == "well\n"


@pytest.mark.parametrize("ends", ["context", "host"])
def test_connections_end_with_their_context_or_host_and_nobody_else_may_connect(
    host: AgentHost, tmp_path: Path, listener: socket.socket, ends: str
) -> None:
    with host.reach(tmp_path / "none") as nobody, socket.socket(socket.AF_UNIX) as here:
        here.settimeout(PATIENCE_S)
        here.connect(str(nobody))
        assert here.recv(1) == b"", "where nobody listens"
    with contextlib.ExitStack() as stack:
        near = stack.enter_context(host.reach(tmp_path / "s"))
        assert stat.S_IMODE(near.parent.stat().st_mode) == 0o700
        with connected(near, listener) as (here, there):
            here.sendall(b"ping")
            assert received(there, 4) == b"ping"
            if ends == "context":
                stack.close()
            else:
                signal_all(host, signal.SIGKILL)
            assert here.recv(1) == there.recv(1) == b""
    assert not near.parent.exists()


def test_what_a_machine_cannot_do(host: AgentHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(UsageError, match="no socket could be made"), host.reach(tmp_path / "s"):
        pass
    # Nor has a machine links between namespaces.
    with pytest.raises(RequirementError, match="the target is a machine"):
        host.in_netns("target", "harness-beef-0")
