"""What can break a tunnel: keys that one end loses, keys made anew, a daemon that is gone for a while."""

from __future__ import annotations

import signal
from pathlib import Path
from unittest import mock

import pytest

from harness.hosts import Host
from harness.protection.ipsec import faults
from harness.protection.ipsec.charon import Charon
from harness.protection.xfrm_listener import REQID
from tests.unit.fakes import World
from tests.unit.fakes.paths import link_path

KILL, STOP, GO_ON = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT


def broken(world: World, kind: str) -> tuple[Host, list[int], list[str]]:
    """A fault, held and over: what it is, the signals that charon got, and what its successor was told."""
    path = link_path(world)
    daemon, tunnel = mock.Mock(), mock.Mock(path=path)
    nowhere = Path("x")
    hosts = (path.initiator, path.target)
    ends = tuple(Charon(host=host, socket=nowhere, log=nowhere, daemon=daemon) for host in hosts)
    host, resource = faults.of_tunnel(tunnel, (ends[0], ends[1]), lambda: ends[1])[kind]
    resource.acquire(host)
    assert resource.undo() == ()
    getattr(resource, "restore", lambda: None)()
    signals = [call.args[0] for call in daemon.signal.call_args_list]
    return host, signals, [call.args[0] for call in tunnel.load.call_args_list]


def test_keys_are_lost_at_the_target_both_ways() -> None:
    world = World()
    host, *_ = broken(world, "sa-deleted")
    assert host.name == "target"
    acts = [" ".join(command.argv) for command in world.commands]
    ends = (("198.18.3.2", "198.18.3.1"), ("198.18.3.1", "198.18.3.2"))
    assert acts == [
        f"ip xfrm state deleteall src {near} dst {far} proto esp reqid {REQID + 3}" for near, far in ends
    ]


@pytest.mark.parametrize("kind", ["ike", "child"])
def test_the_initiator_asks_for_new_keys(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, list[str]]]()
    monkeypatch.setattr(Charon, "ask", lambda _charon, command, message: asked.append((command, [*message])))
    broken(World(), f"rekey-{kind}")
    assert asked == [("rekey", [kind])]


def test_a_daemon_is_back_with_what_it_knew() -> None:
    _, signals, loaded = broken(World(), "ike-daemon-killed")
    assert signals == [KILL] and loaded == ["target"]
    _, signals, loaded = broken(World(), "ike-daemon-stopped")
    assert signals == [STOP, GO_ON] and not loaded
