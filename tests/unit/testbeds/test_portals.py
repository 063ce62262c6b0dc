"""What is chosen behind a portal, and what is asked back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.model import ISCSI, NBD, NVME_TCP, ReachedTarget
from harness.model.errors import RequirementError, UsageError
from harness.parse.hosts import parse_portal
from harness.protection import kinds
from harness.storage.guard import Device
from harness.storage.reservations import Reservations
from harness.testbeds import doctor, portals
from harness.testbeds.requirements import Asked
from tests.unit.command import harness
from tests.unit.fakes import World
from tests.unit.testbeds.refusals import refusal

PORTAL = ReachedTarget(transport=ISCSI, typed="nas.lan", address="192.0.2.2", port=3260, name="iqn.x:a")


def test_a_portal_is_read_as_it_is_typed() -> None:
    for text, parts in (
        ("nas.lan", (ISCSI, "nas.lan", None, "")),
        ("192.0.2.2:3261", (ISCSI, "192.0.2.2", 3261, "")),
        ("fd00::2", (ISCSI, "fd00::2", None, "")),
        ("[fd00::2]:3260", (ISCSI, "fd00::2", 3260, "")),
        ("iscsi://nas/iqn.2004-04.com.example:a", (ISCSI, "nas", None, "iqn.2004-04.com.example:a")),
        ("nvme-tcp://nas:4420", (NVME_TCP, "nas", 4420, "")),
        ("nvme-tcp://[fd00::2]:8009", (NVME_TCP, "fd00::2", 8009, "")),
        ("nbd://nas/export", (NBD, "nas", None, "export")),
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
    size = {"sectors": "2097152", "vendor": "IET     ", "model": "VIRTUAL-DISK"}
    return {"lun": number, "node": "/dev/sda", **size}


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


@dataclass(frozen=True)
class Up:
    """A portal that can be logged in to."""

    sides: Any
    found: dict[str, Any]

    def connection(self, _wanted: object) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def luns(self, _wanted: object) -> dict[str, Any]:
        return self.found


def test_an_ethernet_card_says_what_the_way_carries_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    luns = {"address": PORTAL.address, "port": PORTAL.port, "luns": [unit(0)]}
    up: Any = Up(make_dataclass("Ends", ["reached"])(PORTAL), luns)

    def look() -> portals.FoundUnit:
        wanted: Any = None
        return portals._look(up, PORTAL, wanted, World().host("initiator"), lun=None, iface="eth0")

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
    refusal(RequirementError, r"LUN 0 of iqn\.x:a lets nobody else read: it has a persi", look)


FOUND = portals.FoundUnit(portal=PORTAL, iface="eth0", size_bytes=1 << 30, title="1 GiB IET VIRTUAL-DISK")
MEANT: dict[str, Any] = {"name": "", "lun": None, "chap_user": "", "iface": None, "initiator": "local"}


@contextlib.contextmanager
def nothing(*_words: object, **_more: object) -> Iterator[None]:
    yield


def ways(monkeypatch: pytest.MonkeyPatch, *names: str, notes: Sequence[str] = ()) -> None:
    """A portal is found, and what protects the way to it has these names."""
    monkeypatch.setattr(portals, "look", lambda _asked, **_meant: FOUND)
    machine = SimpleNamespace(reached=nothing)
    monkeypatch.setattr("harness.testbeds.participants.machines", lambda _target, _initiators: [machine])
    way = SimpleNamespace(names=names, notes=notes, steps=())
    monkeypatch.setattr("harness.protection.as_found.way_to", lambda *_words: way)


def test_doctor_says_which_lun_is_read_and_what_protects_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def findings() -> list[doctor.Finding]:
        return list(portals.findings(parse_portal("nas.lan"), **MEANT))

    ways(monkeypatch, "wireguard", notes=("tun0 is not known",))
    lun, way = findings()
    assert (lun.where, lun.state, lun.tried) == ("portal", doctor.OK, True)
    assert lun.text == "LUN 0 of iqn.x:a: 1 GiB IET VIRTUAL-DISK; logged in without CHAP, and out again"
    assert way.state is doctor.NOTE
    assert way.text == "wireguard protects the way to 192.0.2.2:3260, by eth0; tun0 is not known"
    ways(monkeypatch)
    assert findings()[1].text.startswith("nothing protects")

    def look(*_words: object, **_meant: object) -> None:
        raise RequirementError("nobody answers at nas.lan", hint="is the target's service on?")

    monkeypatch.setattr(portals, "look", look)
    (found,) = findings()
    assert (found.ok, found.text) == (False, "nobody answers at nas.lan")
    assert found.mend == "is the target's service on?"


def test_a_connection_has_to_cover_a_portal_that_has_no_ipsec(monkeypatch: pytest.MonkeyPatch) -> None:
    def way_to(*_words: object) -> SimpleNamespace:
        has_ipsec = [name != "wireguard" or None for name in said.pop(0)]
        steps = [SimpleNamespace(below="", found=SimpleNamespace(proposal=each)) for each in has_ipsec]
        return SimpleNamespace(steps=steps, notes=())

    def connected() -> None:
        portals.ways("local", {"wired": ("192.0.2.2", "eth0")}, 3260, swanctl="/etc/nas.conf")

    ways(monkeypatch)
    monkeypatch.setattr("harness.protection.as_found.way_to", way_to)
    monkeypatch.setattr(kinds, "connected", nothing)
    said: list[Sequence[str]] = [(), ("wireguard",)]
    sentence = r"nas\.conf comes up, but its traffic selectors do not cover 192\.0\.2\.2:3260"
    refusal(RequirementError, sentence, connected)
    said = [("aes128gcm16",), ()]
    refusal(RequirementError, r"IPsec protects the way to 192\.0\.2\.2:3260 already", connected)


def test_the_command_asks_the_portal_if_all_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = doctor.Finding("portal", doctor.OK, "LUN 0 of iqn.x:a")
    monkeypatch.setattr(portals, "findings", lambda _asked, **_meant: iter([there]))
    asked: list[object] = []

    def machine_findings(taking_part: Sequence[Any], of: object) -> Iterator[doctor.Finding]:
        asked.append(of)
        assert [machine.role for machine in taking_part] == ["initiator"]
        yield doctor.Finding("initiator", state, "all packages", tried=True)

    monkeypatch.setattr(doctor, "machine_findings", machine_findings)
    for status, state in ((0, doctor.OK), (2, doctor.MISSING)):
        done = harness("doctor", "--portal", "nbd://nas.lan", cwd=tmp_path)
        assert asked.pop() == Asked(transports=(NBD,), protections=()) and not asked
        assert done.returncode == status
        assert ("LUN 0 of iqn.x:a" in done.stdout) is (state is doctor.OK)
        ready = "the machines are ready: harness run --portal nbd://nas.lan"
        assert (ready in done.stdout) is (state is doctor.OK)
