"""Sockets of a host as sockets here: whole, in order, bounded, and closed with either end."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.hosts import programs, remote
from harness.hosts.programs.here import CHUNK_BYTES, RELAY_WINDOW
from harness.model.errors import RequirementError, UsageError
from tests.unit.agents import agent_source

pytestmark = pytest.mark.thorough

PATIENCE_S = 60.0
SEVERAL_WINDOWS = 4 * RELAY_WINDOW * CHUNK_BYTES


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[remote.AgentHost]:
    """A host whose agent is a process here, without root."""
    source = agent_source(tmp_path / "state")
    monkeypatch.setattr(programs, "source", lambda *_: source)
    argv = [programs.PYTHON, "-I", "-c", remote._BOOTSTRAP, str(len(source.encode()))]
    connection = remote.AgentConnection("nas", argv, tmp_path / "log")
    with contextlib.closing(connection):
        connection.await_hello()
        yield remote.AgentHost(name="nas", connection=connection, address="local")


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        yield listener


@pytest.fixture
def near(host: remote.AgentHost, tmp_path: Path) -> Iterator[Path]:
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


def test_what_was_sent_before_the_end_still_arrives(near: Path, listener: socket.socket) -> None:
    for number in (0, 1):
        with connected(near, listener) as ends:
            closing, other = ends[number], ends[1 - number]
            closing.sendall(b"last words")
            closing.close()
            assert received(other, 100) == b"last words"


def test_who_does_not_read_holds_up_nobody(
    host: remote.AgentHost, near: Path, listener: socket.socket
) -> None:
    with connected(near, listener) as (here, _there), connected(near, listener) as (fast, echo):
        here.settimeout(0.2)
        with pytest.raises(TimeoutError):
            here.sendall(bytes(100 * SEVERAL_WINDOWS))
        fast.sendall(b"ping")
        assert received(echo, 4) == b"ping"
        assert host.run(["echo", "well"]).stdout == "well\n"


def test_where_nobody_listens_the_connection_ends(near: Path) -> None:
    with socket.socket(socket.AF_UNIX) as here:
        here.settimeout(PATIENCE_S)
        here.connect(str(near))
        assert here.recv(1) == b""


def test_a_lost_host_ends_connections(host: remote.AgentHost, near: Path, listener: socket.socket) -> None:
    with connected(near, listener) as (here, there):
        here.sendall(b"ping")
        assert received(there, 4) == b"ping"
        host.connection.dialogue.process.kill()
        assert here.recv(1) == b""


def test_the_end_of_the_context_ends_connections_at_both_ends_and_nobody_else_may_connect(
    host: remote.AgentHost, tmp_path: Path, listener: socket.socket
) -> None:
    with contextlib.ExitStack() as stack:
        near = stack.enter_context(host.reach(tmp_path / "s"))
        assert stat.S_IMODE(near.parent.stat().st_mode) == 0o700
        with connected(near, listener) as (here, there):
            here.sendall(b"ping")
            assert received(there, 4) == b"ping"
            stack.close()
            assert here.recv(1) == b""
            assert there.recv(1) == b""
    assert not near.parent.exists()


def test_a_folder_too_deep_for_a_socket_is_refused(
    host: remote.AgentHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(UsageError, match="no socket could be made"), host.reach(tmp_path / "s"):
        pass


def test_a_machine_has_no_links_between_namespaces(host: remote.AgentHost) -> None:
    with pytest.raises(RequirementError, match="the nas is a machine"):
        host.in_netns("target", "harness-beef-0")
