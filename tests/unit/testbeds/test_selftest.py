"""What doctor tries on a machine and behind a portal: a run in small, all of it undone, and what fails."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, make_dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest

from harness.hosts.programs.answering import NOT_REACHED
from harness.model import ISCSI, TRANSPORTS, BlackBoxTarget
from harness.model.errors import HostLost, RequirementError, UsageError
from harness.parse.hosts import parse_portal
from harness.protection import kinds
from harness.storage.guard import Device
from harness.storage.reservations import Reservations
from harness.testbeds import doctor, portals, selftest
from harness.testbeds.requirements import Asked
from harness.testbeds.selftest import SelftestOutcome
from tests.unit.command import harness
from tests.unit.fakes import Command, World
from tests.unit.fakes.iscsi import SESSION
from tests.unit.testbeds.refusals import refusal

PORTAL = BlackBoxTarget(transport=ISCSI, typed="nas.lan", address="192.0.2.2", port=3260, name="iqn.x:a")


def test_a_portal_is_read_as_it_is_typed() -> None:
    for text, parts in (
        ("nas.lan", (ISCSI, "nas.lan", None, "")),
        ("192.0.2.2:3261", (ISCSI, "192.0.2.2", 3261, "")),
        ("fd00::2", (ISCSI, "fd00::2", None, "")),
        ("[fd00::2]:3260", (ISCSI, "fd00::2", 3260, "")),
        ("iscsi://nas/iqn.2004-04.com.example:a", (ISCSI, "nas", None, "iqn.2004-04.com.example:a")),
    ):
        found = parse_portal(text)
        assert (found.typed, found.transport, found.host, found.port, found.name) == (text, *parts)


def test_what_is_no_portal_is_refused() -> None:
    for text in ("", "nas:0", "nas:65536", "nas lan", "smb://nas/x", "nas;reboot", "a\nb", ":1"):
        assert refusal(UsageError, "expected a portal as HOST", parse_portal, text), text


def test_the_only_target_is_taken_and_of_several_one_is_asked_for() -> None:
    assert portals._only({"iqn.x:a": ["192.0.2.2:3260"]}, PORTAL) == "iqn.x:a"
    several: dict[str, list[str]] = {"iqn.x:a": [], "iqn.x:b": []}
    hint = refusal(UsageError, r"found 2: iqn\.x:a; iqn\.x:b", portals._only, several, PORTAL)
    assert hint == "name one: --iqn iqn.x:a"
    assert "ACL" in refusal(UsageError, "found 0: none", portals._only, {}, PORTAL)


def unit(number: int) -> dict[str, Any]:
    makers = {"vendor": "IET     ", "model": "VIRTUAL-DISK"}
    return {"lun": number, "node": "/dev/sda", "sectors": "2097152", **makers}


def test_the_only_lun_is_taken_and_of_several_one_is_asked_for() -> None:
    one, two = [unit(1)], [unit(0), unit(1)]
    assert portals._unit(one, None, PORTAL)["lun"] == portals._unit(two, 1, PORTAL)["lun"] == 1
    listed = "LUN 0, 1 GiB IET VIRTUAL-DISK; LUN 1, 1 GiB IET VIRTUAL-DISK"
    said = f"expected one logical unit of iqn.x:a, found {listed}"
    assert refusal(UsageError, said, portals._unit, two, None, PORTAL) == "name one: --lun 0"
    refusal(UsageError, r"expected LUN 7 of iqn\.x:a, found LUN 1", portals._unit, one, 7, PORTAL)
    refusal(UsageError, "found none", portals._unit, [], None, PORTAL)


def test_a_name_is_looked_up_where_the_initiator_is() -> None:
    world = World(answers=[(("getent", "ahosts", "nas.lan"), (0, "192.0.2.2  STREAM nas.lan\n", ""))])
    assert portals._resolved(world.host("initiator"), "nas.lan") == "192.0.2.2"
    assert portals._resolved(world.host("initiator"), "FD00:0::2") == "fd00::2"
    nobody = World(answers=[(("getent", "ahosts", "nas.lan"), (2, "", ""))]).host("initiator")
    refusal(RequirementError, r"knows no address of nas\.lan", portals._resolved, nobody, "nas.lan")


def test_an_ethernet_card_says_what_the_way_carries_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Up:
        sides: Any

        def connection(self, _wanted: object) -> contextlib.nullcontext[None]:
            return contextlib.nullcontext()

        def luns(self, _wanted: object) -> dict[str, Any]:
            return {"address": PORTAL.address, "port": PORTAL.port, "luns": [unit(0)]}

    up: Any = Up(make_dataclass("Ends", ["black_box"])(PORTAL))
    look = partial(portals._look, up, PORTAL, up, World().host("initiator"), lun=None, iface="eth0")
    on_it = Device(number="8:0", node="/dev/sda", path="/dev/sda", signatures=("ext4 file system",))
    monkeypatch.setattr("harness.storage.guard.inspect", lambda _host, _node: on_it)
    held = Reservations(keys=("00",), type=1)
    monkeypatch.setattr("harness.storage.reservations.of", lambda _host, _node: held)
    reserved = "it has a persistent reservation (Write Exclusive)"
    for facts, rate_bit_s in (
        ({"kind": "ethernet", "speed_mbit_s": 2500}, 2_500_000_000),
        ({"kind": "ethernet"}, None),
        ({"kind": "virtual", "speed_mbit_s": 10_000}, None),
    ):
        monkeypatch.setattr("harness.network.interfaces.describe", lambda *_, facts=facts: facts)
        found = look()
        assert (found.iface, found.rate_bit_s) == ("eth0", rate_bit_s)
        assert found.found_on_it == f"ext4 file system, {reserved}"
        assert found.device == msgspec.structs.replace(on_it, reserved=reserved)
    held = Reservations(keys=("00",), type=3)
    refusal(RequirementError, r"LUN 0 of iqn\.x:a does not let other initiators read: it has a persi", look)


FOUND = portals.FoundUnit(portal=PORTAL, iface="eth0", size_bytes=1 << 30, title="1 GiB IET VIRTUAL-DISK")


@contextlib.contextmanager
def nothing(*_words: object, **_more: object) -> Iterator[None]:
    yield


def protections(monkeypatch: pytest.MonkeyPatch, *names: str, notes: Sequence[str] = ()) -> None:
    """A portal is found, and what protects the path to it has these names."""
    monkeypatch.setattr(portals, "look", lambda _asked, **_meant: FOUND)
    machine = SimpleNamespace(reached=nothing)
    monkeypatch.setattr("harness.testbeds.participants.machines", lambda _target, _initiators: [machine])
    way = SimpleNamespace(names=names, notes=notes, steps=())
    monkeypatch.setattr("harness.protection.pre_existing.protection_to", lambda *_words: way)


def test_doctor_says_which_lun_is_read_and_what_protects_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def findings() -> list[doctor.Finding]:
        return list(portals.findings(parse_portal("nas.lan"), initiator="local"))

    protections(monkeypatch, "wireguard", notes=("tun0 is not known",))
    lun, way = findings()
    assert (lun.where, lun.state, lun.tried) == ("portal", doctor.OK, True)
    assert lun.text == "LUN 0 of iqn.x:a: 1 GiB IET VIRTUAL-DISK; logged in without CHAP, and out again"
    assert way.state is doctor.NOTE
    assert way.text == "wireguard protects the path to 192.0.2.2:3260, by eth0; tun0 is not known"
    protections(monkeypatch)
    assert findings()[1].text.startswith("nothing protects")
    error = RequirementError("nothing answers at nas.lan", hint="is the target's service on?")
    monkeypatch.setattr(portals, "look", mock.Mock(side_effect=error))
    (found,) = findings()
    assert (found.ok, found.text, found.mend) == (False, error.message, error.hint)


def test_a_connection_has_to_cover_a_portal_that_has_no_ipsec(monkeypatch: pytest.MonkeyPatch) -> None:
    def protection_to(*_words: object) -> SimpleNamespace:
        has_ipsec = [name != "wireguard" or None for name in said.pop(0)]
        steps = [SimpleNamespace(below="", found=SimpleNamespace(proposal=each)) for each in has_ipsec]
        return SimpleNamespace(steps=steps, notes=())

    def connected() -> None:
        portals.protections("local", {"wired": ("192.0.2.2", "eth0")}, 3260, swanctl="/etc/nas.conf")

    protections(monkeypatch)
    monkeypatch.setattr("harness.protection.pre_existing.protection_to", protection_to)
    monkeypatch.setattr(kinds, "connected", nothing)
    said: list[Sequence[str]] = [(), ("wireguard",)]
    sentence = r"nas\.conf comes up, but its traffic selectors do not cover 192\.0\.2\.2:3260"
    refusal(RequirementError, sentence, connected)
    said = [("aes128gcm16",), ()]
    refusal(RequirementError, r"IPsec protects the path to 192\.0\.2\.2:3260 already", connected)


def test_the_command_asks_the_portal_if_all_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = doctor.Finding("portal", doctor.OK, "LUN 0 of iqn.x:a")
    monkeypatch.setattr(portals, "findings", lambda _asked, **_meant: iter([there]))
    asked: list[object] = []

    def machine_findings(taking_part: Sequence[Any], of: object) -> Iterator[doctor.Finding]:
        asked.append(of)
        assert [machine.role for machine in taking_part] == ["initiator"]
        yield doctor.Finding("initiator", state, "all packages", tried=True)

    monkeypatch.setattr(doctor, "machine_findings", machine_findings)
    states = ((0, doctor.OK), (2, doctor.MISSING))
    for (status, state), name in itertools.product(states, TRANSPORTS):
        done = harness("doctor", "--portal", f"{name}://nas.lan", cwd=tmp_path)
        assert asked.pop() == Asked(transports=(name,), protections=()) and not asked
        assert done.returncode == status
        for words in ("LUN 0 of iqn.x:a", f"the machines are ready: harness run --portal {name}://nas.lan"):
            assert (words in done.stdout) is (state is doctor.OK)


def tried(world: World, role: str, at: Path, asked: Asked = doctor.AS_BY_DEFAULT) -> list[SelftestOutcome]:
    world.answers.append((("sh", "-c", 'test -e "$1" || test -L "$1"'), (1, "", "")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.protection.ipsec.charon.Charon.ask", lambda *words: world.ask(*words))
        return list(selftest.of(world.host(role), role, at, asked))


def problems(outcomes: list[SelftestOutcome]) -> dict[str, str]:
    return {outcome.what: outcome.error.message for outcome in outcomes if outcome.error is not None}


def made(world: World) -> set[str]:
    return {thing.split()[0] for way, thing in world.history if way == "+"}


def test_a_target_is_made_and_removed_and_an_initiator_with_lio_logs_in_to_itself(tmp_path: Path) -> None:
    world = World()
    outcomes = tried(world, "target", tmp_path)
    titles = "an iSCSI target", "an IKE daemon", "an ESP packet and its capture"
    assert outcomes == [SelftestOutcome(what=title) for title in titles]
    assert made(world) == {"discovery-login", "backstore", "target", "daemon"} and not world.left
    world = World()
    outcomes = tried(world, "initiator", tmp_path)
    assert problems(outcomes) == {}
    assert outcomes[0].what == "an iSCSI session to itself, which appeared as /dev/sda"
    assert {"backstore", "target", "session", "daemon"} <= made(world) and not world.left


@pytest.mark.parametrize(
    ("do", "status", "problem"),
    [
        ("connect", NOT_REACHED, ""),
        ("connect", 1, "iscsiadm ended with status 20: could not connect to iscsid"),
        ("tell", 1, "the kernel has no such session"),
    ],
)
def test_an_initiator_without_lio_has_iscsid_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, do: str, status: int, problem: str
) -> None:
    world = World(answers=[(("modprobe", "--dry-run", "--quiet", "iscsi_target_mod"), (1, "", ""))])
    act = world._act

    def answer(netns: str | None, argv: tuple[str, ...], text: str) -> tuple[int, str, str]:
        is_it = argv[-1] == SESSION and json.loads(text)["do"] == do
        return (status, "", problem or "nothing answered") if is_it else act(netns, argv, text)

    monkeypatch.setattr(world, "_act", answer)
    (session, *others) = tried(world, "initiator", tmp_path)
    assert problems(others) == {}
    if problem:
        assert session.error is not None and problem in session.error.message
    else:
        assert session == SelftestOutcome(
            what="iSCSI, to a port where nothing listens (a complete iSCSI session would need LIO here)"
        )
    assert not [c for c in world.commands if "target_core_mod" in c.argv and "--dry-run" not in c.argv]


def test_what_fails_is_reported_and_does_not_hide_the_rest(tmp_path: Path) -> None:
    made_to_fail: list[Command] = []

    def broken(start: str, command: Command) -> bool:
        is_it = " ".join(command.argv).startswith(start) and "delete" not in (command.input or "")
        made_to_fail.extend([command] * is_it)
        return is_it

    for start, what, said in (
        ("/usr/bin/python3 -I", "an iSCSI target", "LIO refused: it was made to fail"),
        ("daemon", "an IKE daemon", "ended while it started"),
        ("unshare --net", "an ESP packet and its capture", "it was made to fail"),
    ):
        made_to_fail.clear()
        world = World(broken=partial(broken, start))
        outcomes = tried(world, "target", tmp_path)
        assert made_to_fail and len(outcomes) == 3
        ((failed, message),) = problems(outcomes).items()
        assert failed == what and said in message and not world.left


def test_what_is_left_is_reported_and_a_machine_that_is_lost_is_no_failed_trial(tmp_path: Path) -> None:
    world = World(broken=lambda command: '"delete-target"' in (command.input or ""))
    outcomes = tried(world, "target", tmp_path)
    assert problems(outcomes)["to undo all that"].startswith("IscsiTarget was not undone: ")

    def lost(command: Command) -> bool:
        if command.argv[0] == "fallocate":
            raise HostLost("it has gone")
        return False

    with pytest.raises(HostLost):
        tried(World(broken=lost), "target", tmp_path)
