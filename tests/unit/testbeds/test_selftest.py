"""What doctor tries on a machine: each part of a run in small, all of it undone, and what fails is named."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest

from harness.hosts.programs.answering import NOT_REACHED
from harness.model.errors import HostLost, RequirementError
from harness.storage import transports
from harness.testbeds import doctor, selftest
from harness.testbeds.requirements import Asked
from harness.testbeds.selftest import SelftestOutcome
from tests.unit.fakes import Command, World
from tests.unit.fakes.iscsi import SESSION

HAS_LIO = ("modprobe", "--dry-run", "--quiet", "iscsi_target_mod")
NO_FILE = (("sh", "-c", 'test -e "$1" || test -L "$1"'), (1, "", ""))


def tried(
    world: World, role: str, tmp_path: Path, asked: Asked = doctor.AS_BY_DEFAULT
) -> list[SelftestOutcome]:
    world.answers.append(NO_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.protection.ipsec.charon.Charon.ask", lambda *words: world.ask(*words))
        return list(selftest.of(world.host(role), role, tmp_path, asked))


def problems(outcomes: list[SelftestOutcome]) -> dict[str, str]:
    return {outcome.what: outcome.error.message for outcome in outcomes if outcome.error is not None}


def made(world: World) -> set[str]:
    return {thing.split()[0] for way, thing in world.history if way == "+"}


def test_a_target_is_made_and_removed_and_an_initiator_with_lio_logs_in_to_itself(tmp_path: Path) -> None:
    world = World()
    assert [(o.what, o.error) for o in tried(world, "target", tmp_path)] == [
        ("an iSCSI target", None),
        ("an IKE daemon", None),
        ("an ESP packet and its capture", None),
    ]
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
    world = World(answers=[(HAS_LIO, (1, "", ""))])
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
        assert session == SelftestOutcome(what="iSCSI, to nobody (a whole iSCSI session would need LIO here)")
    assert not [c for c in world.commands if "target_core_mod" in c.argv and "--dry-run" not in c.argv]


BOTH = Asked(transports=("iscsi", "nvme-tcp"), protections=("wireguard", "macsec"))


def test_each_transport_and_protection_that_is_asked_for_is_tried(tmp_path: Path) -> None:
    for role, nvme in (
        ("target", "an NVMe/TCP subsystem"),
        ("initiator", "an NVMe/TCP connection to itself, which appeared as /dev/nvme0n1"),
    ):
        world = World()
        outcomes = tried(world, role, tmp_path, BOTH)
        assert problems(outcomes) == {}
        _, *others = (outcome.what for outcome in outcomes)
        assert others == [nvme, "an interface of WireGuard", "an interface of MACsec"]
        assert "subsystem" in made(world) and ("connection" in made(world)) is (role == "initiator")
        assert not [c for c in world.commands if c.argv[0] == "daemon" and "charon" in c.argv[-1]]
        assert not world.left


NVME = Asked(transports=("nvme-tcp",), protections=())


def test_without_nvmet_nobody_is_connected_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = "NVMe/TCP, to nobody (a whole NVMe/TCP connection would need nvmet here)"
    no_nvmet = World(answers=[(("modprobe", "--dry-run"), (1, "", ""))])
    assert tried(no_nvmet, "initiator", tmp_path, NVME) == [SelftestOutcome(what=nobody)]

    def missing(command: Command) -> bool:
        if command.argv == ("nobody's",):
            raise RequirementError("there is no such program")
        return False

    # As of a target that is no kernel's; this one has a program that nobody has.
    changed = dataclasses.replace(transports.named("nvme-tcp"), target_software=("nobody's",))
    monkeypatch.setitem(transports._BY_NAME, "nvme-tcp", changed)
    assert tried(World(broken=missing), "initiator", tmp_path, NVME) == [SelftestOutcome(what=nobody)]


def test_what_the_kernel_says_of_nvme_is_reported(tmp_path: Path) -> None:
    """As where the program that reads a connection failed, and doctor said that all was ready."""
    world = World(broken=lambda command: '"tell"' in (command.input or ""))
    ((what, message),) = problems(tried(world, "initiator", tmp_path, NVME)).items()
    assert what == "an NVMe/TCP connection" and not world.left
    assert message == "the NVMe/TCP connection cannot be read: it was made to fail"


def test_a_protection_that_is_not_possible_is_reported(tmp_path: Path) -> None:
    world = World(broken=lambda command: command.argv == ("modprobe", "wireguard"))
    for name, words in (("wireguard", "needs the module wireguard"), ("tls", "not possible yet over")):
        found = problems(tried(world, "target", tmp_path, Asked(transports=(), protections=(name,))))
        ((_, message),) = found.items()
        assert words in message


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
