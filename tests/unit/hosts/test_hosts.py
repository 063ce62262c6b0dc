"""This kernel as a host: files that belong to a network namespace, and daemons that can be asked."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import hosts
from harness.hosts import Host, NamespaceHost, namespaces
from harness.hosts.runner import await_condition

PATIENCE_S = 60.0


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> NamespaceHost:
    """In a network namespace that is entered without being root: there is none."""

    def within(_netns: str, act: Callable[[], object], *_undo: object) -> object:
        return act()

    monkeypatch.setattr(namespaces, "within", within)
    return NamespaceHost("target", "harness-beef-0")


def test_files_of_a_namespace_are_distinguished_whatever_is_in_them(
    host: NamespaceHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"a": "one\ntwo\n", "empty": "", "blank": "\n\n", "unfinished": "x", "z": " 1: 2\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(hosts, "OF_ITS_READER", (str(tmp_path),))
    paths = [str(tmp_path / name) for name in texts]
    assert host.read_files(paths) == list(texts.values())
    none = str(tmp_path / "none")
    assert host.read_files([none, *paths[::-1], none]) == ["", *list(texts.values())[::-1], ""]
    assert host.read_files([paths[0]]) == ["one\ntwo\n"]
    assert host.read_files([none]) == [""]


def test_counters_of_the_namespace_are_read_as_they_are(host: NamespaceHost) -> None:
    devices, snmp = host.read_files(["/proc/net/dev", "/proc/net/snmp"])
    assert devices.startswith("Inter-|") and " lo:" in devices
    assert snmp.startswith("Ip: Forwarding") and "RetransSegs" in snmp


def test_a_daemon_can_be_asked_by_signals_and_says_whether_it_has_ended(host: Host, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "trap 'echo asked' USR1; trap 'exit 3' USR2; echo ready; while :; do sleep 0.02; done"

    def says(words: str) -> bool:
        return words in log.read_text(encoding="utf-8")

    with host.daemon(
        ["sh", "-c", script], log=log, ready=lambda: says("ready"), deadline_s=PATIENCE_S
    ) as daemon:
        daemon.signal(signal.SIGUSR1)
        await_condition(lambda: says("asked"), deadline_s=PATIENCE_S, what="its answer")
        assert not daemon.ended()
        daemon.signal(signal.SIGUSR2)
        await_condition(daemon.ended, deadline_s=PATIENCE_S, what="its end")
        daemon.signal(signal.SIGUSR1)
        assert daemon.ended()
